{
  description = "A self-hosted backend for XMTP";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "x86_64-darwin"
        "aarch64-darwin"
      ];
      forEachSystem = build: nixpkgs.lib.genAttrs systems (system: build nixpkgs.legacyPackages.${system});
    in
    {
      packages = forEachSystem (pkgs: {
        default = pkgs.callPackage ./nix/package.nix { };
        # The core alone.
        minimal = pkgs.callPackage ./nix/package.nix { withDefaultFeatures = false; };
      });

      devShells = forEachSystem (pkgs: {
        default = pkgs.callPackage ./nix/shell.nix {
          xmtp-backend = self.packages.${pkgs.stdenv.hostPlatform.system}.default;
        };
      });
    };
}
