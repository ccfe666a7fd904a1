//! Keys of the projection of identifiers: ARC-022, API-270.

use xmtp_fixtures::signers::{Installation, Passkey, Signer, Wallet};
use xmtp_protocol::identity::{IdentifierKey, LookupError, LookupKind};

fn key(text: &str, kind: i32) -> Result<Option<IdentifierKey>, LookupError> {
    IdentifierKey::from_lookup(text, kind)
}

#[test]
fn api_270_lookups_find_what_updates_put_there_in_either_case() {
    let (wallet, passkey) = (
        Wallet::new("owner").identifier(),
        Passkey::new("owner").identifier(),
    );
    for text in [
        wallet.text(),
        wallet.text().to_uppercase(),
        wallet.text().replace('a', "A"),
    ] {
        for kind in [0, 1] {
            assert_eq!(key(&text, kind), Ok(wallet.key()));
        }
    }
    for text in [passkey.text(), passkey.text().to_uppercase()] {
        assert_eq!(key(&text, 2), Ok(passkey.key()));
    }
    let found = wallet.key().expect("a wallet is projected");
    assert_eq!(
        (found.kind(), found.text()),
        (LookupKind::Ethereum, wallet.text().as_str())
    );
    let found = passkey.key().expect("a passkey is projected");
    assert_eq!(
        (found.kind(), found.text()),
        (LookupKind::Passkey, passkey.text().as_str())
    );
    assert_eq!(
        [LookupKind::Ethereum as i16, LookupKind::Passkey as i16],
        [1, 2]
    );
}

#[test]
fn arc_022_installations_are_not_projected() {
    let installation = Installation::new("phone").identifier();
    assert_eq!(installation.key(), None);
    assert_eq!(key(&installation.text(), 1), Ok(None));
    // As bytes it could be a passkey, but it is none.
    let as_passkey = key(&installation.text(), 2).expect("it is hex");
    assert_eq!(as_passkey.map(|key| key.kind()), Some(LookupKind::Passkey));
}

#[test]
fn api_270_unknown_kinds_and_passkeys_that_are_not_hex_are_refused() {
    for kind in [-1, 3, i32::MAX] {
        assert_eq!(key("", kind), Err(LookupError::UnknownKind));
    }
    for text in ["0", "0x00", "zz", "\0"] {
        assert_eq!(key(text, 2), Err(LookupError::PasskeyForm));
    }
}

#[test]
fn api_270_any_other_text_is_found_nowhere() {
    for text in ["", "0x", "nobody", "a\0b", "0x00", "é"] {
        assert_eq!(key(text, 1), Ok(None), "{text:?}");
    }
}
