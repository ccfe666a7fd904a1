//! The judge: a contract of our own (`contracts/Validator.sol`), whose creation code runs in a call and answers the verdict.
//! It is never deployed, so nothing of it has to be on a chain.

use std::sync::LazyLock;

use alloy_primitives::{Address, B256, Bytes};
use alloy_sol_types::SolValue;
use xmtp_protocol::identity::ContractSignature;

/// Written by `ci/contracts`.
static CREATION_CODE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    hex::decode(include_str!("../contracts/Validator.hex").trim_end())
        .expect("the compiler writes hexadecimal digits")
});

/// The data of a call that judges `signature`: the code, and after it what its constructor takes.
pub(crate) fn call(signature: &ContractSignature) -> Bytes {
    let account = Address::from(signature.account.address);
    let hash = B256::from(signature.hash);
    let arguments = (account, hash, &signature.signature[..]).abi_encode_params();
    [&CREATION_CODE[..], &arguments].concat().into()
}

/// Reads the verdict (contract of identities, section 6.3): the byte 1 is valid, any other answer invalid, an empty one
/// as well.
pub(crate) fn verdict(answer: &[u8]) -> bool {
    answer == [1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ident_061_the_byte_1_alone_is_valid_and_any_other_answer_invalid() {
        assert!(verdict(&[1]));
        let word = [[0; 31].as_slice(), &[1]].concat();
        for invalid in [&[0][..], &[1, 0], &[2], &word, &[]] {
            assert!(!verdict(invalid), "{invalid:?}");
        }
    }
}
