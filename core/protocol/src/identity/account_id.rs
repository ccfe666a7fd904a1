//! The accounts of contract wallets: CAIP-10, and what an identity signature asks beyond it.

use std::{fmt, ops::RangeInclusive};

use super::{error::SignatureError, identifier::ADDRESS_LEN};

/// A CAIP-10 account id: namespace, reference and address. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AccountId<'a> {
    namespace: &'a str,
    reference: &'a str,
    address: &'a str,
}

impl<'a> AccountId<'a> {
    /// Reads an account id.
    ///
    /// # Errors
    ///
    /// [`SignatureError::AccountIdForm`] for anything but three parts of the lengths and characters
    /// that CAIP-10 allows.
    pub fn parse(text: &'a str) -> Result<Self, SignatureError> {
        let mut parts = text.split(':');
        let (Some(namespace), Some(reference), Some(address), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(SignatureError::AccountIdForm);
        };
        let is_legal = is_part(namespace, 3..=8, |c| {
            c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'
        }) && is_part(reference, 1..=32, |c| {
            c.is_ascii_alphanumeric() || c == b'-' || c == b'_'
        }) && is_part(address, 1..=128, |c| {
            c.is_ascii_alphanumeric() || c == b'-' || c == b'.' || c == b'%'
        });
        is_legal
            .then_some(Self {
                namespace,
                reference,
                address,
            })
            .ok_or(SignatureError::AccountIdForm)
    }

    /// The kind of chain, such as `eip155`.
    pub const fn namespace(&self) -> &'a str {
        self.namespace
    }

    /// The chain among those of its kind.
    pub const fn reference(&self) -> &'a str {
        self.reference
    }
}

fn is_part(part: &str, length: RangeInclusive<usize>, is_legal: impl Fn(u8) -> bool) -> bool {
    length.contains(&part.len()) && part.bytes().all(is_legal)
}

impl fmt::Debug for AccountId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountId(..)")
    }
}

/// An account on an Ethereum chain. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EvmAccount {
    /// The `eip155` reference; a route to the chain is known by `eip155:` and this number.
    pub chain_id: u64,
    /// The address.
    pub address: [u8; ADDRESS_LEN],
}

impl TryFrom<AccountId<'_>> for EvmAccount {
    type Error = SignatureError;

    /// Reads an account that can sign for an identity (IDENT-060): namespace `eip155`, a decimal 64-bit
    /// reference without leading zeros, and `0x` with 40 hex characters of either case.
    fn try_from(account: AccountId<'_>) -> Result<Self, SignatureError> {
        let malformed = SignatureError::AccountIdForm;
        let reference = account.reference;
        let is_decimal = reference.bytes().all(|digit| digit.is_ascii_digit())
            && (reference == "0" || !reference.starts_with('0'));
        if account.namespace != "eip155" || !is_decimal {
            return Err(malformed);
        }
        let digits = account.address.strip_prefix("0x").ok_or(malformed)?;
        let mut address = [0; ADDRESS_LEN];
        hex::decode_to_slice(digits, &mut address).map_err(|_| malformed)?;
        Ok(Self {
            chain_id: reference.parse().map_err(|_| malformed)?,
            address,
        })
    }
}

impl fmt::Debug for EvmAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EvmAccount(..)")
    }
}
