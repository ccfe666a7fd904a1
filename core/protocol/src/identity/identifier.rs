//! Identifiers: who can belong to an inbox, and under which key that is looked up.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::error::AssociationError;
use crate::proto::xmtp::identity::associations::{
    IdentifierKind, MemberIdentifier, member_identifier,
};

/// The length of an Ethereum address, in bytes.
pub(crate) const ADDRESS_LEN: usize = 20;

/// Somebody who can be a member of an inbox. Two are equal when kind and value are. `Debug` shows the
/// kind alone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identifier {
    /// An Ethereum account.
    Ethereum([u8; ADDRESS_LEN]),
    /// A passkey, by the bytes of its key. Its relying party takes no part.
    Passkey(Bytes),
    /// An installation, by the bytes of its key.
    Installation(Bytes),
}

impl Identifier {
    /// Reads an identifier that is given as text beside its kind. A kind without a meaning reads as
    /// Ethereum.
    ///
    /// # Errors
    ///
    /// [`AssociationError::IdentifierForm`]: an Ethereum address other than `0x` and 40 lower-case hex
    /// characters, which is signed as text and therefore never rewritten (IDENT-013), or a passkey that
    /// is not hex.
    pub fn from_text(text: &str, kind: i32) -> Result<Self, AssociationError> {
        match IdentifierKind::try_from(kind) {
            Ok(IdentifierKind::Passkey) => hex::decode(text)
                .map(|key| Self::Passkey(key.into()))
                .map_err(|_| AssociationError::IdentifierForm),
            Ok(IdentifierKind::Unspecified | IdentifierKind::Ethereum) | Err(_) => {
                ethereum(text).ok_or(AssociationError::IdentifierForm)
            }
        }
    }

    /// Reads the member that an action names.
    ///
    /// # Errors
    ///
    /// A member that is absent or of no kind (IDENT-001), or an Ethereum address that has not its form
    /// (IDENT-013). The keys of passkeys and installations may have any length: one that nobody has
    /// can still be named by a revocation.
    pub(super) fn from_member(member: Option<&MemberIdentifier>) -> Result<Self, AssociationError> {
        use member_identifier::Kind;
        let kind = member.and_then(|member| member.kind.as_ref());
        match kind.ok_or(AssociationError::MemberUnset)? {
            Kind::EthereumAddress(text) => ethereum(text).ok_or(AssociationError::IdentifierForm),
            Kind::InstallationPublicKey(key) => Ok(Self::Installation(key.clone())),
            Kind::Passkey(passkey) => Ok(Self::Passkey(passkey.key.clone())),
        }
    }

    /// The text that is signed and hashed: an address with `0x`, a key as hex without, lower-case both.
    pub fn text(&self) -> String {
        match self {
            Self::Ethereum(address) => format!("0x{}", hex::encode(address)),
            Self::Passkey(key) | Self::Installation(key) => hex::encode(key),
        }
    }

    /// The key of this identifier in the projection. None for an installation, which is never in it
    /// (ARC-022).
    pub fn key(&self) -> Option<IdentifierKey> {
        let kind = match self {
            Self::Ethereum(_) => LookupKind::Ethereum,
            Self::Passkey(_) => LookupKind::Passkey,
            Self::Installation(_) => return None,
        };
        Some(IdentifierKey {
            kind,
            text: self.text(),
        })
    }

    /// Whether both are of one kind.
    pub(super) fn is_kind_of(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    pub(super) const fn is_installation(&self) -> bool {
        matches!(self, Self::Installation(_))
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethereum(_) => "Ethereum(..)",
            Self::Passkey(_) => "Passkey(..)",
            Self::Installation(_) => "Installation(..)",
        })
    }
}

/// An address as it is signed: `0x`, then 40 characters of `0-9a-f`.
fn ethereum(text: &str) -> Option<Identifier> {
    let digits = text.strip_prefix("0x")?;
    let mut address = [0; ADDRESS_LEN];
    hex::decode_to_slice(digits, &mut address).ok()?;
    let is_lower_case = !digits.bytes().any(|digit| digit.is_ascii_uppercase());
    is_lower_case.then_some(Identifier::Ethereum(address))
}

/// The id of the inbox that `initial` opens: lower-case hex of SHA-256 over the identifier's text and
/// the nonce in decimal (IDENT-010).
pub fn inbox_id(initial: &Identifier, nonce: u64) -> String {
    hex::encode(Sha256::digest(format!("{}{nonce}", initial.text())))
}

/// The kinds that can be looked up. The numbers are those of the wire and of the projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i16)]
pub enum LookupKind {
    /// An Ethereum account.
    Ethereum = 1,
    /// A passkey.
    Passkey = 2,
}

/// An identifier as the projection has it, and as a lookup asks for it (ARC-022). `Debug` shows the
/// kind alone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdentifierKey {
    kind: LookupKind,
    text: String,
}

/// Why a lookup is refused (API-270): `INVALID_ARGUMENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LookupError {
    /// The kind has no meaning.
    #[error("unknown identifier kind")]
    UnknownKind,
    /// A passkey that is not hex.
    #[error("passkey identifier is not hex")]
    PasskeyForm,
}

impl IdentifierKey {
    /// Reads the identifier of a lookup, in either case (API-270). The kind 0 means Ethereum.
    ///
    /// None is an Ethereum identifier that no inbox can have, so that nothing need be asked for it.
    ///
    /// # Errors
    ///
    /// A kind without a meaning, or a passkey that is not hex.
    pub fn from_lookup(text: &str, kind: i32) -> Result<Option<Self>, LookupError> {
        match IdentifierKind::try_from(kind).map_err(|_| LookupError::UnknownKind)? {
            IdentifierKind::Unspecified | IdentifierKind::Ethereum => {
                Ok(ethereum(&text.to_ascii_lowercase()).and_then(|account| account.key()))
            }
            IdentifierKind::Passkey => {
                let key = hex::decode(text).map_err(|_| LookupError::PasskeyForm)?;
                Ok(Identifier::Passkey(key.into()).key())
            }
        }
    }

    /// The kind: 1 or 2 in a row.
    pub const fn kind(&self) -> LookupKind {
        self.kind
    }

    /// The identifier in lower case.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for IdentifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentifierKey")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
