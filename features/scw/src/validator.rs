//! The judge: a contract of our own (`contracts/Validator.sol`), whose creation code runs in a call and answers the verdict.
//! It is never deployed, so nothing of it has to be on a chain.

use std::sync::LazyLock;

use alloy_primitives::{Address, B256, Bytes};
use alloy_sol_types::SolValue;
use xmtp_protocol::identity::ContractSignature;

use crate::trouble::Trouble;

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

/// Reads the verdict (contract of identities, section 6.3): the byte 1 is valid, any other answer invalid. A chain that
/// answers nothing has not run the code.
pub(crate) fn verdict(answer: &[u8]) -> Result<bool, Trouble> {
    match answer {
        [] => Err(Trouble::Malformed),
        answer => Ok(answer == [1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ident_061_one_byte_is_a_verdict_and_nothing_is_none() {
        assert_eq!(verdict(&[1]), Ok(true));
        assert_eq!(verdict(&[0]), Ok(false));
        assert_eq!(verdict(&[1, 0]), Ok(false));
        assert_eq!(verdict(&[[0; 31].as_slice(), &[1]].concat()), Ok(false));
        assert_eq!(verdict(&[]), Err(Trouble::Malformed));
    }
}
