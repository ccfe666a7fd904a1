{
  lib,
  rustPlatform,
  postgresql_17,
  python3,
  withDefaultFeatures ? true,
}:

let
  manifest = (lib.importTOML ../Cargo.toml).workspace.package;
in
rustPlatform.buildRustPackage {
  pname = "xmtp-backend";
  inherit (manifest) version;

  src = lib.cleanSource ../.;
  cargoLock.lockFile = ../Cargo.lock;

  # The queries are checked against their committed descriptions: there is no database here.
  env.SQLX_OFFLINE = "true";
  buildNoDefaultFeatures = !withDefaultFeatures;

  nativeCheckInputs = [
    postgresql_17
    python3
  ];
  # The tests of the package's own features, on a server that lives as long as they do.
  checkPhase = ''
    runHook preCheck
    patchShebangs ci
    ci/postgres run --volatile -- cargo test --release --offline ${lib.optionalString (!withDefaultFeatures) "--no-default-features"}
    runHook postCheck
  '';

  meta = {
    description = "Stores, orders, queries and streams the end-to-end-encrypted envelopes of an XMTP network";
    license = lib.licenses.mit;
    mainProgram = "xmtp-backend";
    platforms = lib.platforms.unix;
  };
}
