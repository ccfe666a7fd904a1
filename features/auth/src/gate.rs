//! The judgement of one request: the stages of the contract, of which the first that fails answers (AUTH-014).

use std::time::{SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::BoxFuture;
use xmtp_server::subsystem::{Connection, PRINCIPAL, Rejection, RequestGate, RequestHead};

use crate::api_keys::ApiKeys;
use crate::bearer::{self, NoToken};
use crate::claims::{Claims, Policy};
use crate::digest::digest;
use crate::keys::CurrentKeys;
use crate::principal::Principal;
use crate::reason::Reason;
use crate::rejection::{NO_BEARER_TOKEN, reject, reject_with};
use crate::token;
use crate::turns::Turns;

/// Beginnings of the paths that need no credential, whose header is not even read (AUTH-002). There are no others.
const PUBLIC: [&str; 2] = ["/grpc.health.v1.", "/xmtp.backend.v1.ConfigurationService/"];

/// Most bytes of a token.
const MAX_TOKEN_BYTES: usize = 8192;

/// What credentials are judged by.
pub(crate) struct Gate {
    pub(crate) api_keys: ApiKeys,
    /// `None` where no JWT is accepted.
    pub(crate) tokens: Option<Tokens>,
}

/// What JWTs are judged by.
pub(crate) struct Tokens {
    pub(crate) keys: CurrentKeys,
    pub(crate) policy: Policy,
    pub(crate) turns: Turns,
}

impl RequestGate for Gate {
    fn judge<'a>(&'a self, head: &'a mut RequestHead<'_>) -> BoxFuture<'a, Result<(), Rejection>> {
        self.admit(head).boxed()
    }
}

impl Gate {
    async fn admit(&self, head: &mut RequestHead<'_>) -> Result<(), Rejection> {
        if PUBLIC.iter().any(|public| head.path.starts_with(public)) {
            return Ok(());
        }
        let token = bearer::token(head.headers).map_err(|error| match error {
            NoToken::Missing => reject(Reason::Missing),
            NoToken::Malformed => reject_with(Reason::Malformed, NO_BEARER_TOKEN),
        })?;
        let principal = self.principal(token, head.connection, unix_seconds).await;
        let principal = principal.map_err(reject)?;
        if let Principal::ApiKey(name) = &principal {
            head.span.record(PRINCIPAL, &**name);
        }
        head.extensions.insert(principal);
        Ok(())
    }

    /// Whom `token` stands for, by a clock in Unix seconds.
    async fn principal(
        &self,
        token: &str,
        connection: &Connection,
        now: impl FnOnce() -> u64,
    ) -> Result<Principal, Reason> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(match self.tokens {
                Some(_) => Reason::Malformed,
                None => Reason::Untrusted,
            });
        }
        let digest = digest(token.as_bytes());
        if let Some(name) = self.api_keys.find(&digest) {
            return Ok(Principal::ApiKey(name.clone()));
        }
        let tokens = self.tokens.as_ref().ok_or(Reason::Untrusted)?;
        let Tokens {
            keys,
            policy,
            turns,
        } = tokens;
        let turn = turns.take(connection);
        let claims = token::verified(token, &digest, &keys.get(), turn).await?;
        // A token may expire while it waits.
        policy.judge(&claims, now())?;
        Ok(Principal::Token(Claims::new(claims)))
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since_epoch| since_epoch.as_secs())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use http::header::AUTHORIZATION;
    use http::{Extensions, HeaderMap};
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use secrecy::SecretString;
    use serde_json::{Value, json};
    use tonic::Code;
    use tracing::Span;

    use super::*;
    use crate::algorithm::Algorithm;
    use crate::keys::KeySet;
    use crate::testing::{Issuer, segment};

    /// The clock of most tests.
    const NOW: u64 = 1_800_000_000;

    fn tokens(issuers: &[&Issuer], policy: Policy) -> Tokens {
        let keys = issuers.iter().map(|issuer| issuer.key()).collect();
        Tokens {
            keys: CurrentKeys::new(KeySet::new(keys)),
            policy,
            turns: Turns::default(),
        }
    }

    /// Without a wait: nobody else takes a turn.
    fn principal(gate: &Gate, token: &str, now: u64) -> Result<Principal, Reason> {
        let connection = Connection::default();
        let judged = gate.principal(token, &connection, || now).now_or_never();
        judged.expect("a turn is free")
    }

    fn gate(issuers: &[&Issuer], policy: Policy) -> Gate {
        Gate {
            api_keys: ApiKeys::new([]),
            tokens: Some(tokens(issuers, policy)),
        }
    }

    fn policy() -> Policy {
        Policy {
            audiences: Some(vec!["here".to_owned(), "there".to_owned()]),
            issuers: Some(vec!["issuer".to_owned()]),
            required_scopes: vec!["read".to_owned(), "write".to_owned()],
            leeway: 60,
        }
    }

    fn claims() -> Value {
        json!({
            "exp": NOW + 100,
            "aud": "here",
            "iss": "issuer",
            "sub": "somebody",
            "scope": "write read",
        })
    }

    /// The claims with some of them replaced, and those that are null left out.
    fn with(changes: &Value) -> Value {
        let mut claims = claims();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    }

    fn issuer() -> Issuer {
        Issuer::new(Algorithm::EdDsa, "one")
    }

    #[test]
    fn auth_010_signatures_of_all_six_algorithms_are_verified() {
        for algorithm in Algorithm::ALL {
            let issuer = Issuer::new(algorithm, "one");
            let gate = gate(&[&issuer], policy());
            let token = issuer.token(&claims());
            let judged = principal(&gate, &token, NOW);
            let Ok(Principal::Token(accepted)) = judged else {
                panic!("{algorithm:?}: {judged:?}")
            };
            assert_eq!(accepted.get("sub"), Some(&json!("somebody")));
            assert!(!format!("{accepted:?}").contains("somebody"));

            // Each other part of what is signed, and each other signature.
            let (signed, signature) = token.rsplit_once('.').unwrap();
            let mut bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
            let other = issuer.token(&with(&json!({ "exp": NOW + 101 })));
            let (_, others) = other.rsplit_once('.').unwrap();
            let swapped = format!("{signed}.{others}");
            bytes[7] ^= 1;
            let flipped = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(&bytes));
            let empty = format!("{signed}.");
            let undecodable = format!("{signed}.!!");
            for token in [swapped, flipped, empty, undecodable] {
                let refused = principal(&gate, &token, NOW);
                assert_eq!(refused, Err(Reason::Untrusted), "{algorithm:?}");
            }
        }
    }

    #[test]
    fn auth_008_other_algorithms_are_unsupported_whatever_else_is_wrong() {
        let issuer = Issuer::new(Algorithm::Rs256, "one");
        let gate = gate(&[&issuer], policy());
        let expired = with(&json!({ "exp": 1 }));
        for alg in [
            "none", "None", "HS256", "HS384", "HS512", "PS256", "ES512", "rs256", "",
        ] {
            let token = issuer.sign(&json!({ "alg": alg, "kid": "one" }), &expired);
            let refused = principal(&gate, &token, NOW);
            assert_eq!(refused, Err(Reason::UnsupportedAlg), "{alg}");
        }
        // An HMAC whose secret is the public key.
        let signed = format!(
            "{}.{}",
            segment(&json!({ "alg": "HS256" })),
            segment(&claims())
        );
        let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, issuer.pem().as_bytes());
        let tag = ring::hmac::sign(&secret, signed.as_bytes());
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag));
        assert_eq!(principal(&gate, &token, NOW), Err(Reason::UnsupportedAlg));
    }

    #[test]
    fn auth_005_what_is_no_jwt_is_malformed() {
        let issuer = issuer();
        let gate = gate(&[&issuer], policy());
        let token = issuer.token(&claims());
        let parts: Vec<&str> = token.split('.').collect();
        let [header, payload, signature] = parts[..] else {
            panic!("three parts")
        };
        let under = |header: Value| issuer.sign(&header, &claims());
        let long = "k".repeat(257);
        for (what, token) in [
            ("a word", "abc".to_owned()),
            ("two parts", format!("{header}.{payload}")),
            ("four parts", format!("{token}.{signature}")),
            ("no base64", format!("!.{payload}.{signature}")),
            ("padding", format!("{header}=.{payload}.{signature}")),
            ("a list as header", under(json!(["EdDSA"]))),
            ("no alg", under(json!({ "kid": "one" }))),
            ("alg is a number", under(json!({ "alg": 1 }))),
            (
                "kid is a number",
                under(json!({ "alg": "EdDSA", "kid": 1 })),
            ),
            (
                "crit",
                under(json!({ "alg": "EdDSA", "crit": ["exp"], "exp": 1 })),
            ),
            ("no crit", under(json!({ "alg": "EdDSA", "crit": null }))),
            ("a long kid", under(json!({ "alg": "EdDSA", "kid": long }))),
            ("a list as claims", issuer.token(&json!([]))),
            ("text as claims", issuer.token(&json!("exp"))),
            (
                "no JSON",
                format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode("{")),
            ),
        ] {
            assert_eq!(
                principal(&gate, &token, NOW),
                Err(Reason::Malformed),
                "{what}"
            );
        }
        // A key id of just 256 bytes is only unknown.
        let token = under(json!({ "alg": "EdDSA", "kid": &long[..256] }));
        assert_eq!(principal(&gate, &token, NOW), Err(Reason::Untrusted));
    }

    #[test]
    fn auth_009_exactly_one_key_is_tried() {
        let (one, other) = (issuer(), Issuer::new(Algorithm::Es256, "two"));
        let both = gate(&[&one, &other], policy());
        let headed = |issuer: &Issuer, header: Value| issuer.sign(&header, &claims());
        assert!(principal(&both, &one.token(&claims()), NOW).is_ok());
        assert!(principal(&both, &other.token(&claims()), NOW).is_ok());
        // Without a key id, the only key for the algorithm.
        let token = headed(&one, json!({ "alg": "EdDSA" }));
        assert!(principal(&both, &token, NOW).is_ok());
        for header in [
            json!({ "alg": "EdDSA", "kid": "unknown" }),
            json!({ "alg": "EdDSA", "kid": "" }),
            // The key of this id is for another algorithm.
            json!({ "alg": "EdDSA", "kid": "two" }),
            json!({ "alg": "ES256", "kid": "one" }),
            json!({ "alg": "ES384" }),
        ] {
            let refused = principal(&both, &headed(&one, header.clone()), NOW);
            assert_eq!(refused, Err(Reason::Untrusted), "{header}");
        }
        // Two keys for one algorithm: without a key id it is open which.
        let second = Issuer::new(Algorithm::EdDsa, "three");
        let two = gate(&[&one, &second], policy());
        assert_eq!(principal(&two, &token, NOW), Err(Reason::Untrusted));
        assert!(principal(&two, &one.token(&claims()), NOW).is_ok());
        // Two keys with one id, as a JWKS may have them.
        let twin = Issuer::new(Algorithm::Es256, "one");
        let twins = gate(&[&one, &twin], policy());
        assert_eq!(
            principal(&twins, &one.token(&claims()), NOW),
            Err(Reason::Untrusted)
        );
    }

    #[test]
    fn auth_014_each_claim_has_its_reason_and_the_first_wins() {
        let issuer = issuer();
        let gate = gate(&[&issuer], policy());
        for (changes, reason) in [
            (json!({ "exp": null }), Reason::Expired),
            (json!({ "exp": NOW - 100 }), Reason::Expired),
            (json!({ "nbf": NOW + 100 }), Reason::NotYetValid),
            (json!({ "aud": "elsewhere" }), Reason::Audience),
            (json!({ "aud": null }), Reason::Audience),
            (json!({ "aud": [] }), Reason::Audience),
            (json!({ "aud": ["elsewhere", "Here"] }), Reason::Audience),
            (json!({ "iss": "stranger" }), Reason::Issuer),
            (json!({ "iss": null }), Reason::Issuer),
            (json!({ "scope": null }), Reason::Scope),
            (json!({ "scope": "read" }), Reason::Scope),
            (json!({ "scope": ["read write"] }), Reason::Scope),
            (json!({ "scope": "readwrite" }), Reason::Scope),
            // Pairs.
            (json!({ "exp": 1, "nbf": NOW + 100 }), Reason::Expired),
            (json!({ "exp": 1, "aud": "elsewhere" }), Reason::Expired),
            (
                json!({ "nbf": NOW + 100, "aud": null }),
                Reason::NotYetValid,
            ),
            (json!({ "aud": null, "iss": null }), Reason::Audience),
            (json!({ "iss": null, "sub": 1 }), Reason::Issuer),
            (json!({ "sub": 1, "scope": "" }), Reason::Malformed),
            // A claim of a wrong type does not fail the check of its value.
            (json!({ "aud": 1, "iss": "stranger" }), Reason::Issuer),
            (
                json!({ "exp": "soon", "nbf": NOW + 100 }),
                Reason::NotYetValid,
            ),
        ] {
            let refused = principal(&gate, &issuer.token(&with(&changes)), NOW);
            assert_eq!(refused, Err(reason), "{changes}");
        }
        // A bad signature comes before every claim.
        let stranger = Issuer::new(Algorithm::EdDsa, "one");
        let refused = principal(&gate, &stranger.token(&with(&json!({ "exp": 1 }))), NOW);
        assert_eq!(refused, Err(Reason::Untrusted));
    }

    #[test]
    fn auth_031_each_type_that_a_claim_may_have_is_taken_and_no_other() {
        let issuer = issuer();
        let gate = gate(&[&issuer], policy());
        for changes in [
            json!({ "aud": ["elsewhere", "there"] }),
            json!({ "scope": ["write", "more", "read"] }),
            json!({ "scope": "  read  write " }),
            json!({ "exp": u64::MAX }),
            json!({ "exp": 1e300 }),
            json!({ "nbf": 0 }),
            json!({ "sub": null }),
            json!({ "sub": "", "anything": { "else": [1] } }),
        ] {
            let accepted = principal(&gate, &issuer.token(&with(&changes)), NOW);
            assert!(accepted.is_ok(), "{changes}: {accepted:?}");
        }
        for changes in [
            json!({ "exp": "1900000000" }),
            json!({ "exp": -1 }),
            json!({ "exp": -0.5 }),
            json!({ "exp": true }),
            json!({ "nbf": "0" }),
            json!({ "nbf": -1 }),
            json!({ "nbf": [0] }),
            json!({ "aud": 1 }),
            json!({ "aud": ["here", 1] }),
            json!({ "aud": { "here": 1 } }),
            json!({ "iss": ["issuer"] }),
            json!({ "sub": ["somebody"] }),
            json!({ "scope": 1 }),
            json!({ "scope": ["read", "write", 1] }),
        ] {
            let refused = principal(&gate, &issuer.token(&with(&changes)), NOW);
            assert_eq!(refused, Err(Reason::Malformed), "{changes}");
        }
        // A null is a value of a wrong type, and an absent claim is none.
        let mut null = claims();
        null["exp"] = Value::Null;
        assert_eq!(
            principal(&gate, &issuer.token(&null), NOW),
            Err(Reason::Malformed)
        );
    }

    #[test]
    fn auth_011_s19_the_edge_of_the_configured_leeway_is_accepted_and_one_second_more_is_not() {
        let issuer = issuer();
        for leeway in [0, 60, 300] {
            let policy = Policy {
                leeway,
                ..Policy::default()
            };
            let gate = gate(&[&issuer], policy);
            let judge = |claims: Value| principal(&gate, &issuer.token(&claims), NOW);
            assert!(judge(json!({ "exp": NOW - leeway })).is_ok());
            assert_eq!(
                judge(json!({ "exp": NOW - leeway - 1 })),
                Err(Reason::Expired)
            );
            let nbf = |nbf: u64| json!({ "exp": NOW, "nbf": nbf });
            assert!(judge(nbf(NOW + leeway)).is_ok());
            assert_eq!(judge(nbf(NOW + leeway + 1)), Err(Reason::NotYetValid));
            // Fractions go to the nearest second.
            let exp = u32::try_from(NOW - leeway).unwrap();
            assert!(judge(json!({ "exp": f64::from(exp) - 0.4 })).is_ok());
            let earlier = json!({ "exp": f64::from(exp) - 0.6 });
            assert_eq!(judge(earlier), Err(Reason::Expired));
        }
    }

    #[test]
    fn auth_012_without_configured_audiences_issuers_and_scopes_only_exp_is_asked_for() {
        let issuer = issuer();
        let gate = gate(&[&issuer], Policy::default());
        assert!(principal(&gate, &issuer.token(&json!({ "exp": NOW })), NOW).is_ok());
        let refused = principal(&gate, &issuer.token(&json!({})), NOW);
        assert_eq!(refused, Err(Reason::Expired));
        let wrong = issuer.token(&json!({ "exp": NOW, "scope": 1 }));
        assert_eq!(principal(&gate, &wrong, NOW), Err(Reason::Malformed));
    }

    #[test]
    fn auth_006_an_api_key_comes_before_every_stage_of_a_jwt() {
        let issuer = issuer();
        let jwt = issuer.token(&with(&json!({ "exp": 1 })));
        let values = [jwt.clone(), "k".repeat(8192)].map(SecretString::from);
        let api_keys = || ApiKeys::new(["a-jwt", "long"].into_iter().zip(&values));
        let both = Gate {
            api_keys: api_keys(),
            tokens: Some(tokens(&[&issuer], policy())),
        };
        assert_eq!(
            principal(&both, &jwt, NOW),
            Ok(Principal::ApiKey("a-jwt".into()))
        );
        let long = principal(&both, &"k".repeat(8192), NOW);
        assert_eq!(long, Ok(Principal::ApiKey("long".into())));
        assert!(principal(&both, &issuer.token(&claims()), NOW).is_ok());
        // AUTH-007: what does not match is no API key, whatever it looks like, or no JWT.
        let only = Gate {
            api_keys: api_keys(),
            tokens: None,
        };
        for (token, with_jwts) in [
            ("word".to_owned(), Reason::Malformed),
            ("k".repeat(8191), Reason::Malformed),
            ("k".repeat(8193), Reason::Malformed),
            (issuer.token(&with(&json!({ "exp": 2 }))), Reason::Expired),
        ] {
            assert_eq!(principal(&only, &token, NOW), Err(Reason::Untrusted));
            assert_eq!(principal(&both, &token, NOW), Err(with_jwts));
        }
    }

    /// A token of any text, signed.
    fn of_text(issuer: &Issuer, header: &str, claims: &str) -> String {
        let signed = [header, claims].map(|text| URL_SAFE_NO_PAD.encode(text));
        let signed = signed.join(".");
        let signature = issuer.signature(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    #[test]
    fn auth_009_a_key_verifies_for_its_own_algorithm_alone() {
        let (rsa, ec) = (
            Issuer::new(Algorithm::Rs256, "rsa"),
            Issuer::new(Algorithm::Es256, "ec"),
        );
        let gate = gate(&[&rsa, &ec], policy());
        let longer = Issuer::new(Algorithm::Rs512, "rsa");
        for (issuer, alg, kid) in [
            // Each signature is good for some key that is known.
            (&rsa, "RS256", "ec"),
            (&ec, "ES256", "rsa"),
            (&rsa, "ES256", "ec"),
            (&ec, "RS256", "rsa"),
            // The key is right, and is declared for another hash.
            (&longer, "RS512", "rsa"),
        ] {
            let token = issuer.sign(&json!({ "alg": alg, "kid": kid }), &claims());
            let refused = principal(&gate, &token, NOW);
            assert_eq!(refused, Err(Reason::Untrusted), "{alg} {kid}");
        }
        assert!(principal(&gate, &rsa.token(&claims()), NOW).is_ok());
        assert!(principal(&gate, &ec.token(&claims()), NOW).is_ok());
    }

    #[test]
    fn auth_014_of_members_with_one_name_every_stage_reads_the_last() {
        let issuer = issuer();
        let gate = gate(&[&issuer], Policy::default());
        let (good, expired) = (NOW + 100, NOW - 100);
        let header = r#"{"alg":"EdDSA","kid":"one"}"#;
        for (header, claims, refused) in [
            (header, format!(r#"{{"exp":1,"exp":{good}}}"#), None),
            (
                header,
                format!(r#"{{"exp":{good},"exp":{expired}}}"#),
                Some(Reason::Expired),
            ),
            (
                header,
                format!(r#"{{"exp":{good},"sub":"a","sub":1}}"#),
                Some(Reason::Malformed),
            ),
            (
                r#"{"alg":"none","alg":"EdDSA","kid":"two","kid":"one"}"#,
                format!(r#"{{"exp":{good}}}"#),
                None,
            ),
            (
                r#"{"alg":"EdDSA","alg":"none"}"#,
                format!(r#"{{"exp":{good}}}"#),
                Some(Reason::UnsupportedAlg),
            ),
            (
                r#"{"alg":"EdDSA","kid":"one","kid":"two"}"#,
                format!(r#"{{"exp":{good}}}"#),
                Some(Reason::Untrusted),
            ),
        ] {
            let judged = principal(&gate, &of_text(&issuer, header, &claims), NOW);
            assert_eq!(judged.err(), refused, "{header} {claims}");
        }
    }

    #[test]
    fn auth_031_numbers_beyond_every_clock_and_nesting_without_end_are_survived() {
        let issuer = issuer();
        let gate = gate(&[&issuer], Policy::default());
        let header = r#"{"alg":"EdDSA"}"#;
        let far = "99999999999999999999999999";
        let deep = "[".repeat(4000);
        for (claims, refused) in [
            (format!(r#"{{"exp":{far}}}"#), None),
            (format!(r#"{{"exp":{far}.5,"nbf":0.0}}"#), None),
            (r#"{"exp":1e400}"#.to_owned(), Some(Reason::Malformed)),
            (r#"{"exp":-1e400}"#.to_owned(), Some(Reason::Malformed)),
            (r#"{"exp":NaN}"#.to_owned(), Some(Reason::Malformed)),
            (r#"{"exp":Infinity}"#.to_owned(), Some(Reason::Malformed)),
            (r#"{"exp":-0.0}"#.to_owned(), Some(Reason::Expired)),
            (r#"{"exp":-1}"#.to_owned(), Some(Reason::Malformed)),
            (
                format!(r#"{{"exp":{far},"nbf":{far}}}"#),
                Some(Reason::NotYetValid),
            ),
            (
                format!(r#"{{"exp":{far},"more":{deep}}}"#),
                Some(Reason::Malformed),
            ),
        ] {
            let judged = principal(&gate, &of_text(&issuer, header, &claims), NOW);
            assert_eq!(judged.err(), refused, "{claims:.60}");
        }
    }

    #[test]
    fn auth_012_auth_013_what_only_looks_alike_is_not_equal() {
        let issuer = issuer();
        let gate = gate(&[&issuer], policy());
        for (changes, reason) in [
            // Letters of another alphabet, another form of the same letter, and invisible ones.
            (json!({ "aud": "h\u{435}re" }), Reason::Audience),
            (json!({ "aud": "here\u{0}" }), Reason::Audience),
            (json!({ "aud": "her\u{ff45}" }), Reason::Audience),
            (json!({ "aud": " here" }), Reason::Audience),
            (json!({ "iss": "i\u{17f}suer" }), Reason::Issuer),
            (json!({ "iss": "issuer\u{200b}" }), Reason::Issuer),
            (json!({ "scope": "read\u{a0}write" }), Reason::Scope),
            (json!({ "scope": "read\twrite" }), Reason::Scope),
            (json!({ "scope": "read,write" }), Reason::Scope),
        ] {
            let refused = principal(&gate, &issuer.token(&with(&changes)), NOW);
            assert_eq!(refused, Err(reason), "{changes}");
        }
        let alike = issuer.sign(&json!({ "alg": "Ed\u{421}SA" }), &claims());
        assert_eq!(principal(&gate, &alike, NOW), Err(Reason::UnsupportedAlg));
        // Another spelling of the same text is equal.
        let claims = claims().to_string().replace("here", r"h\u0065re");
        let token = of_text(&issuer, r#"{"alg":"EdDSA"}"#, &claims);
        assert!(claims.contains('\\') && principal(&gate, &token, NOW).is_ok());
    }

    #[test]
    fn auth_011_auth_018_a_known_token_still_expires_and_is_forgotten_with_its_key() {
        let issuer = issuer();
        let gate = gate(&[&issuer], policy());
        let token = issuer.token(&claims());
        for (now, expected) in [
            (NOW, None),
            (NOW + 160, None),
            (NOW + 161, Some(Reason::Expired)),
            (NOW, None),
        ] {
            assert_eq!(principal(&gate, &token, now).err(), expected, "{now}");
        }
        let keys = &gate.tokens.as_ref().unwrap().keys;
        // Another key under the same id, and the old one again.
        keys.replace(KeySet::new(vec![
            Issuer::new(Algorithm::EdDsa, "one").key(),
        ]));
        for _ in 0..2 {
            assert_eq!(principal(&gate, &token, NOW), Err(Reason::Untrusted));
        }
        keys.replace(KeySet::new(vec![issuer.key()]));
        assert!(principal(&gate, &token, NOW).is_ok());
    }

    #[test]
    fn auth_010_signatures_wait_for_their_turns_and_nothing_else_does() {
        let issuer = issuer();
        let api_key = SecretString::from("k".repeat(32));
        let gate = Gate {
            api_keys: ApiKeys::new([("one", &api_key)]),
            tokens: Some(tokens(&[&issuer], policy())),
        };
        let known = issuer.token(&claims());
        assert!(principal(&gate, &known, NOW).is_ok());
        let turns = &gate.tokens.as_ref().unwrap().turns;
        let connections = [(); 1000].map(|()| Connection::default());
        let mut taken: Vec<_> = connections
            .iter()
            .map_while(|connection| turns.take(connection).now_or_never())
            .collect();
        assert!(!taken.is_empty() && taken.len() < connections.len());

        let (one, another) = (Connection::default(), Connection::default());
        let forged = Issuer::new(Algorithm::EdDsa, "one").token(&claims());
        let new = issuer.token(&with(&json!({ "sub": "another" })));
        let now = || NOW;
        let mut first = gate.principal(&forged, &one, now).boxed();
        let mut second = gate.principal(&forged, &one, now).boxed();
        let mut third = gate.principal(&new, &another, now).boxed();
        for waiting in [&mut first, &mut second, &mut third] {
            assert_eq!(waiting.now_or_never(), None);
        }
        assert!(principal(&gate, &known, NOW).is_ok());
        assert!(principal(&gate, &"k".repeat(32), NOW).is_ok());
        assert_eq!(principal(&gate, "word", NOW), Err(Reason::Malformed));

        taken.pop();
        // The others of a connection wait behind one of each other connection.
        assert_eq!((&mut second).now_or_never(), None);
        assert_eq!((&mut third).now_or_never(), None);
        assert_eq!(first.now_or_never(), Some(Err(Reason::Untrusted)));
        assert_eq!((&mut second).now_or_never(), None);
        assert!(third.now_or_never().unwrap().is_ok());
        // Who leaves gives its turn to the next.
        drop(second);
        assert_eq!(principal(&gate, &forged, NOW), Err(Reason::Untrusted));
    }

    #[test]
    fn auth_011_a_token_that_expires_while_it_waits_has_expired() {
        let issuer = issuer();
        let gate = gate(&[&issuer], policy());
        let connection = Connection::default();
        let turn = connection.turn().now_or_never();
        let (token, clock) = (issuer.token(&claims()), Cell::new(NOW));
        let mut judged = Box::pin(gate.principal(&token, &connection, || clock.get()));
        assert_eq!((&mut judged).now_or_never(), None);
        clock.set(NOW + 161);
        drop(turn);
        assert_eq!(judged.now_or_never(), Some(Err(Reason::Expired)));
    }

    fn judge(gate: &Gate, path: &str, values: &[&str]) -> (Result<(), Rejection>, Extensions) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        let mut extensions = Extensions::new();
        let mut head = RequestHead {
            path,
            headers: &headers,
            connection: &Connection::default(),
            extensions: &mut extensions,
            span: &Span::none(),
        };
        let judged = gate.judge(&mut head).now_or_never();
        (judged.expect("a turn is free"), extensions)
    }

    #[test]
    fn auth_002_only_paths_that_begin_as_public_ones_need_no_credential() {
        let gate = gate(&[], Policy::default());
        for path in [
            "/grpc.health.v1.Health/Check",
            "/grpc.health.v1.Anything/Else",
            "/xmtp.backend.v1.ConfigurationService/GetConfiguration",
            "/xmtp.backend.v1.ConfigurationService/",
        ] {
            // The header is not read.
            assert!(
                judge(&gate, path, &["nonsense", "twice"]).0.is_ok(),
                "{path}"
            );
        }
        for path in [
            "/",
            "",
            "/grpc.health.v1",
            "/grpc.health.v2.Health/Check",
            "//grpc.health.v1.Health/Check",
            "/GRPC.health.v1.Health/Check",
            "/%67rpc.health.v1.Health/Check",
            "/x/../grpc.health.v1.Health/Check",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/xmtp.backend.v1.ConfigurationService",
            "/xmtp.backend.v1.ConfigurationServiceX/GetConfiguration",
            "/xmtp.backend.v1.QueryService/Query",
        ] {
            let (judged, _) = judge(&gate, path, &[]);
            assert_eq!(judged.unwrap_err().reason, "missing", "{path}");
        }
    }

    #[test]
    fn auth_014_every_reason_has_its_status_its_text_and_its_count() {
        let issuer = issuer();
        let gate = gate(&[&issuer], policy());
        let bearer = |token: &str| format!("Bearer {token}");
        // Far from the clock of this machine, on either side.
        let changed = |changes: Value| {
            let mut claims = with(&json!({ "exp": 9_000_000_000_u64 }));
            for (name, value) in changes.as_object().unwrap() {
                claims[name] = value.clone();
            }
            bearer(&issuer.token(&claims))
        };
        let hmac = bearer(&issuer.sign(&json!({ "alg": "HS256" }), &claims()));
        let stranger = Issuer::new(Algorithm::EdDsa, "one");
        let unsupported = "token is not a supported JWT";
        let rows = [
            (None, "missing", "missing bearer token"),
            (
                Some("Basic abc".to_owned()),
                "malformed",
                "authorization header is not a bearer token",
            ),
            (Some(bearer("abc")), "malformed", unsupported),
            (Some(bearer(&"a".repeat(8193))), "malformed", unsupported),
            (Some(changed(json!({ "sub": 1 }))), "malformed", unsupported),
            (Some(hmac), "unsupported_alg", unsupported),
            (
                Some(bearer(&stranger.token(&claims()))),
                "untrusted",
                "token signature is not trusted",
            ),
            (
                Some(changed(json!({ "exp": 1 }))),
                "expired",
                "token has expired",
            ),
            (
                Some(changed(json!({ "nbf": 9_000_000_000_u64 }))),
                "not_yet_valid",
                "token is not yet valid",
            ),
            (
                Some(changed(json!({ "aud": "x" }))),
                "audience",
                "token audience is not allowed",
            ),
            (
                Some(changed(json!({ "iss": "x" }))),
                "issuer",
                "token issuer is not allowed",
            ),
            (
                Some(changed(json!({ "scope": "x" }))),
                "scope",
                "token is missing a required scope",
            ),
        ];
        let mut reasons: Vec<&str> = rows.iter().map(|(_, reason, ..)| *reason).collect();
        reasons.dedup();
        assert_eq!(reasons, Reason::WORDS, "every reason has a row");
        for (header, reason, text) in rows {
            let code = match reason {
                "scope" => Code::PermissionDenied,
                _ => Code::Unauthenticated,
            };
            let recorder = DebuggingRecorder::new();
            let snapshotter = recorder.snapshotter();
            let (judged, extensions) = metrics::with_local_recorder(&recorder, || {
                judge(&gate, "/any", header.as_deref().as_slice())
            });
            let rejection = judged.unwrap_err();
            assert_eq!(rejection.reason, reason);
            assert_eq!(rejection.status.code(), code, "{reason}");
            assert_eq!(rejection.status.message(), text, "{reason}");
            assert!(extensions.is_empty());
            let counted: Vec<_> = snapshotter.snapshot().into_vec();
            let [(key, _, _, DebugValue::Counter(1))] = &counted[..] else {
                panic!("{reason} is counted once: {counted:?}")
            };
            assert_eq!(key.key().name(), "xmtp_auth_rejections_total");
            let labels: Vec<_> = key.key().labels().map(metrics::Label::value).collect();
            assert_eq!(labels, [reason]);
        }
        let (judged, extensions) = judge(&gate, "/any", &[&changed(json!({}))]);
        assert!(judged.is_ok());
        assert!(matches!(extensions.get(), Some(Principal::Token(_))));
    }
}
