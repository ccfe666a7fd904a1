//! A request that is turned away: its status, its text of the wire contract (AUTH-014), and its count.

use tonic::Status;
use xmtp_server::subsystem::Rejection;

use crate::families::REJECTIONS;
use crate::reason::Reason;

/// The header is there and is no bearer token; the reason is [`Reason::Malformed`].
pub(crate) const NO_BEARER_TOKEN: &str = "authorization header is not a bearer token";

/// Counts one rejection for `reason`, with the text of the reason.
pub(crate) fn reject(reason: Reason) -> Rejection {
    let text = match reason {
        Reason::Missing => "missing bearer token",
        Reason::Malformed | Reason::UnsupportedAlg => "token is not a supported JWT",
        Reason::Untrusted => "token signature is not trusted",
        Reason::Expired => "token has expired",
        Reason::NotYetValid => "token is not yet valid",
        Reason::Audience => "token audience is not allowed",
        Reason::Issuer => "token issuer is not allowed",
        Reason::Scope => "token is missing a required scope",
    };
    reject_with(reason, text)
}

/// Counts one rejection for `reason`, with a text of its own.
pub(crate) fn reject_with(reason: Reason, text: &'static str) -> Rejection {
    REJECTIONS.count(&[reason.word()], 1);
    Rejection {
        status: match reason {
            Reason::Scope => Status::permission_denied(text),
            _ => Status::unauthenticated(text),
        },
        reason: reason.word(),
    }
}
