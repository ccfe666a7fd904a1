//! What the claims of a verified token have to say (AUTH-011, AUTH-012, AUTH-013, AUTH-031).

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::reason::Reason;

/// What the deployment asks of claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    /// One of them must be in `aud`; absent asks for none.
    pub(crate) audiences: Option<Vec<String>>,
    /// `iss` must be one of them; absent asks for none.
    pub(crate) issuers: Option<Vec<String>>,
    /// All of them must be in `scope`.
    pub(crate) required_scopes: Vec<String>,
    /// Seconds by which clocks may differ.
    pub(crate) leeway: u64,
}

impl Policy {
    /// Judges `claims` at `now`, in Unix seconds. A claim of a wrong type does not fail the check of its value: the
    /// types are judged after the values, and before the scopes.
    ///
    /// # Errors
    /// The first that fails of: `exp`, `nbf`, `aud`, `iss`, the types, `scope`.
    pub(crate) fn judge(&self, claims: &Map<String, Value>, now: u64) -> Result<(), Reason> {
        let exp = seconds(claims.get("exp"));
        let nbf = seconds(claims.get("nbf"));
        let aud = words(claims.get("aud"));
        let iss = text(claims.get("iss"));
        let expired = match exp {
            Claim::Absent => true,
            Claim::Is(exp) => exp < now.saturating_sub(self.leeway),
            Claim::WrongType => false,
        };
        if expired {
            return Err(Reason::Expired);
        }
        if matches!(nbf, Claim::Is(nbf) if nbf > now.saturating_add(self.leeway)) {
            return Err(Reason::NotYetValid);
        }
        if let Some(allowed) = &self.audiences {
            let is_allowed = |word: &&str| allowed.iter().any(|allowed| allowed == word);
            let meant = match &aud {
                Claim::Absent => false,
                Claim::Is(words) => words.iter().any(is_allowed),
                Claim::WrongType => true,
            };
            if !meant {
                return Err(Reason::Audience);
            }
        }
        if let Some(allowed) = &self.issuers {
            let known = match iss {
                Claim::Absent => false,
                Claim::Is(iss) => allowed.iter().any(|allowed| allowed == iss),
                Claim::WrongType => true,
            };
            if !known {
                return Err(Reason::Issuer);
            }
        }
        let scope = words(claims.get("scope"));
        let wrong = [
            exp.is_wrong(),
            nbf.is_wrong(),
            aud.is_wrong(),
            iss.is_wrong(),
            text(claims.get("sub")).is_wrong(),
            scope.is_wrong(),
        ];
        if wrong.contains(&true) {
            return Err(Reason::Malformed);
        }
        let granted = |required: &String| match (&scope, claims.get("scope")) {
            // One string holds many words, separated by spaces.
            (Claim::Is(_), Some(Value::String(text))) => {
                text.split(' ').any(|word| word == required)
            }
            (Claim::Is(words), _) => words.contains(&required.as_str()),
            _ => false,
        };
        if self.required_scopes.iter().all(granted) {
            Ok(())
        } else {
            Err(Reason::Scope)
        }
    }
}

/// One claim as far as its type goes.
enum Claim<T> {
    Absent,
    Is(T),
    WrongType,
}

impl<T> Claim<T> {
    fn of(value: Option<&Value>, read: impl FnOnce(&Value) -> Option<T>) -> Self {
        match value.map(read) {
            None => Self::Absent,
            Some(Some(value)) => Self::Is(value),
            Some(None) => Self::WrongType,
        }
    }

    const fn is_wrong(&self) -> bool {
        matches!(self, Self::WrongType)
    }
}

/// A point in time: a number that is not negative, rounded to the nearest second.
fn seconds(value: Option<&Value>) -> Claim<u64> {
    Claim::of(value, |value| match value.as_u64() {
        Some(seconds) => Some(seconds),
        None => value
            .as_f64()
            .filter(|seconds| seconds.is_finite() && *seconds >= 0.0)
            .map(rounded),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and the number is not negative"
)]
fn rounded(seconds: f64) -> u64 {
    seconds.round() as u64
}

fn text(value: Option<&Value>) -> Claim<&str> {
    match value {
        None => Claim::Absent,
        Some(Value::String(text)) => Claim::Is(text),
        Some(_) => Claim::WrongType,
    }
}

/// A string, or an array of strings.
fn words(value: Option<&Value>) -> Claim<Vec<&str>> {
    match value {
        None => Claim::Absent,
        Some(Value::String(text)) => Claim::Is(vec![text]),
        Some(Value::Array(items)) => match items.iter().map(Value::as_str).collect() {
            Some(words) => Claim::Is(words),
            None => Claim::WrongType,
        },
        Some(_) => Claim::WrongType,
    }
}

/// The claims of an accepted token. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Claims(Arc<Map<String, Value>>);

impl Claims {
    pub(crate) fn new(claims: Map<String, Value>) -> Self {
        Self(Arc::new(claims))
    }

    /// The claim of that name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

/// Shows no claim (AUTH-027).
impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} claims", self.0.len())
    }
}
