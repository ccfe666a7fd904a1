{
  mkShell,
  xmtp-backend,
  cargo-deny,
  cargo-hack,
  clippy,
  postgresql_17,
  python3,
  rust-analyzer,
  rustfmt,
}:

# PostgreSQL on the path: ci/postgres then fetches none.
mkShell {
  inputsFrom = [ xmtp-backend ];
  packages = [
    cargo-deny
    cargo-hack
    clippy
    postgresql_17
    python3
    rust-analyzer
    rustfmt
  ];
}
