//! The `authorization` header: scheme `Bearer`, one space, a token (AUTH-005).

use http::HeaderMap;
use http::header::AUTHORIZATION;

/// What the headers hold in place of a bearer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoToken {
    /// No `authorization` header.
    Missing,
    /// Several, another scheme, no token, or what is not visible ASCII.
    Malformed,
}

/// The bearer token.
pub(crate) fn token(headers: &HeaderMap) -> Result<&str, NoToken> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(NoToken::Missing)?;
    if values.next().is_some() {
        return Err(NoToken::Malformed);
    }
    let is_text = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let text = value.to_str().ok();
    let text = text.filter(|text| text.as_bytes().iter().all(is_text));
    let text = text.ok_or(NoToken::Malformed)?;
    let (scheme, token) = text.split_once(' ').ok_or(NoToken::Malformed)?;
    let token = token.trim();
    if scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty() {
        Ok(token)
    } else {
        Err(NoToken::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(values: &[&'static [u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = HeaderValue::from_bytes(value).unwrap();
            headers.append(AUTHORIZATION, value);
        }
        headers
    }

    #[test]
    fn auth_005_the_scheme_is_read_without_regard_to_case() {
        for value in [
            &b"Bearer abc"[..],
            b"bearer abc",
            b"BEARER abc",
            b"bEaReR abc ",
            b"Bearer   abc",
        ] {
            assert_eq!(token(&of(&[value])), Ok("abc"));
        }
    }

    #[test]
    fn auth_005_everything_else_is_malformed() {
        for value in [
            &b""[..],
            b"Bearer",
            b"Bearer ",
            b"Bearer   ",
            b"abc",
            b"Basic abc",
            b"Bearer\tabc",
            b"Bearerabc",
            b" Bearer abc",
            b"Bearer \xffabc",
            // Letters that look alike, and a tab, which HTTP allows.
            b"\xd0\x92earer abc",
            b"Bearer a\tbc",
            b"Bearer abc\t",
        ] {
            assert_eq!(token(&of(&[value])), Err(NoToken::Malformed), "{value:?}");
        }
        let twice = of(&[b"Bearer abc", b"Bearer abc"]);
        assert_eq!(token(&twice), Err(NoToken::Malformed));
    }

    #[test]
    fn auth_014_no_header_is_missing() {
        assert_eq!(token(&of(&[])), Err(NoToken::Missing));
    }
}
