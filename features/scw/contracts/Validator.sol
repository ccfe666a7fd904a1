// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// Judges one signature of an account, deployed or not (ERC-1271, ERC-6492; contract of identities, section 6.4).
///
/// It is never deployed. The creation code runs in an `eth_call` without a recipient, so that whatever the factory of a
/// wallet does is forgotten with the call, and answers one byte in place of a contract's code: 1 for a valid signature, 0
/// for an invalid one. It reverts where there is no verdict.
contract Validator {
    /// The end of a signature that says how its wallet is deployed (ERC-6492).
    bytes32 private constant WRAPPED = 0x6492649264926492649264926492649264926492649264926492649264926492;

    /// What a wallet answers to a signature of its own, and the selector of the question (ERC-1271).
    bytes4 private constant IS_VALID_SIGNATURE = 0x1626ba7e;

    constructor(address account, bytes32 hash, bytes memory signature) {
        bool valid = judge(account, hash, signature);
        assembly {
            mstore8(0, valid)
            return(0, 1)
        }
    }

    function judge(address account, bytes32 hash, bytes memory signature) private returns (bool) {
        if (isWrapped(signature)) {
            return asksWallet(account, hash, unwrap(account, signature));
        }
        if (account.code.length > 0) {
            return asksWallet(account, hash, signature);
        }
        return isSignedByKey(account, hash, signature);
    }

    function isWrapped(bytes memory signature) private pure returns (bool wrapped) {
        uint256 length = signature.length;
        if (length < 32) return false;
        bytes32 end;
        assembly {
            end := mload(add(signature, length))
        }
        return end == WRAPPED;
    }

    /// The signature within, once its wallet is there.
    function unwrap(address account, bytes memory signature) private returns (bytes memory) {
        // What is decoded ends before the mark.
        assembly {
            mstore(signature, sub(mload(signature), 32))
        }
        (address factory, bytes memory factoryCall, bytes memory inner) =
            abi.decode(signature, (address, bytes, bytes));
        if (account.code.length == 0) {
            (bool done,) = factory.call(factoryCall);
            require(done);
        }
        return inner;
    }

    function asksWallet(address account, bytes32 hash, bytes memory signature) private view returns (bool) {
        bytes memory question = abi.encodeWithSelector(IS_VALID_SIGNATURE, hash, signature);
        bool answered;
        bytes32 answer;
        // At most one word of the answer is copied, however much the wallet returns.
        assembly {
            answered := staticcall(gas(), account, add(question, 32), mload(question), 0, 32)
            answered := and(answered, gt(returndatasize(), 31))
            answer := mload(0)
        }
        require(answered);
        return answer == bytes32(IS_VALID_SIGNATURE);
    }

    /// The account is that of a key, and has no code.
    function isSignedByKey(address account, bytes32 hash, bytes memory signature) private pure returns (bool) {
        require(signature.length == 65);
        bytes32 r;
        bytes32 s;
        uint8 v;
        assembly {
            r := mload(add(signature, 32))
            s := mload(add(signature, 64))
            v := byte(0, mload(add(signature, 96)))
        }
        require(v == 27 || v == 28);
        address signer = ecrecover(hash, v, r, s);
        // What cannot be recovered is nobody's, not the zero address's.
        return signer != address(0) && signer == account;
    }
}
