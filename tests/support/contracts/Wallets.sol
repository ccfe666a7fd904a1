// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// A wallet with one owner, who can hand it over.
contract Wallet {
    address public owner;

    constructor(address first) {
        owner = first;
    }

    /// Whoever asks may do this here.
    function handOver(address next) external {
        owner = next;
    }

    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        bool isOwners = signature.length == 65
            && ecrecover(hash, uint8(signature[64]), bytes32(signature[:32]), bytes32(signature[32:64])) == owner;
        return isOwners ? bytes4(0x1626ba7e) : bytes4(0xffffffff);
    }
}

/// Deploys wallets where their owner says they will be.
contract Factory {
    function deploy(address owner) external {
        new Wallet{salt: 0}(owner);
    }

    function addressOf(address owner) external view returns (address) {
        bytes32 code = keccak256(abi.encodePacked(type(Wallet).creationCode, abi.encode(owner)));
        return address(uint160(uint256(keccak256(abi.encodePacked(bytes1(0xff), address(this), bytes32(0), code)))));
    }
}

/// Answers every question in one odd way.
contract OddWallet {
    enum Way {
        Revert,
        BurnGas,
        ReturnNothing,
        ReturnFourBytes,
        ReturnGarbage,
        ReturnDirtyWord,
        RevertLong
    }

    Way private immutable way;

    constructor(Way chosen) {
        way = chosen;
    }

    function isValidSignature(bytes32, bytes calldata) external view {
        if (way == Way.BurnGas) {
            uint256 steps;
            while (true) steps++;
        }
        Way chosen = way;
        assembly {
            switch chosen
            case 2 { return(0, 0) }
            case 3 {
                mstore(0, shl(224, 0x1626ba7e))
                return(0, 4)
            }
            case 4 {
                mstore(0, not(0))
                return(0, 4096)
            }
            case 5 {
                mstore(0, or(shl(224, 0x1626ba7e), 1))
                return(0, 32)
            }
            case 6 { revert(0, 100000) }
            default { revert(0, 0) }
        }
    }
}
