//! Numeric socket addresses as a regular expression, for the schema. It takes what the standard
//! library's parser takes: no host names, no leading zeros in octets, IPv6 in brackets with an
//! optional embedded IPv4 address and an optional numeric scope.

const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const PORT: &str =
    "0*(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})";
/// Up to 4294967295.
const SCOPE: &str = "0*(?:429496729[0-5]|42949672[0-8][0-9]|4294967[01][0-9]{2}|429496[0-6][0-9]{3}\
    |42949[0-5][0-9]{4}|4294[0-8][0-9]{5}|429[0-3][0-9]{6}|42[0-8][0-9]{7}|4[01][0-9]{8}\
    |[1-3][0-9]{9}|[0-9]{1,9})";
const GROUP: &str = "[0-9A-Fa-f]{1,4}";

/// Without anchors.
pub(super) fn pattern() -> String {
    let v4 = format!(r"{OCTET}(?:\.{OCTET}){{3}}");
    let v6 = v6(&v4);
    format!(r"{v4}:{PORT}|\[(?:{v6})(?:%{SCOPE})?\]:{PORT}")
}

/// Eight groups, the last two of which an IPv4 address may stand for; or fewer, with `::` for the
/// one or more that are left out.
fn v6(v4: &str) -> String {
    let whole = [
        format!("(?:{GROUP}:){{7}}{GROUP}"),
        format!("(?:{GROUP}:){{6}}{v4}"),
    ];
    let shortened = (0..=7).map(|head| {
        let front = match head {
            0 => String::new(),
            head => format!("{GROUP}(?::{GROUP}){{{}}}", head - 1),
        };
        let back = match 7 - head {
            0 => String::new(),
            1 => format!("(?:{GROUP})?"),
            room => format!(
                "(?:{GROUP}(?::{GROUP}){{0,{}}}|(?:{GROUP}:){{0,{}}}{v4})?",
                room - 1,
                room - 2
            ),
        };
        format!("{front}::{back}")
    });
    whole
        .into_iter()
        .chain(shortened)
        .collect::<Vec<_>>()
        .join("|")
}
