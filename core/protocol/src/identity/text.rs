//! The text that every signature of an update signs (IDENT-020).

use std::fmt::{self, Write};

use super::{action::Action, identifier::Identifier};

const NS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Writes the text of an update: UTF-8, line feeds alone, none at the end.
///
/// `client_timestamp_ns` is read as signed: what is 2^63 or above lies before 1970.
pub(super) fn signature_text<S>(
    inbox_id: &str,
    client_timestamp_ns: u64,
    actions: &[Action<S>],
) -> String {
    let time = Utc(client_timestamp_ns.cast_signed().div_euclid(NS_PER_SECOND));
    let mut text = String::with_capacity(256 + 96 * actions.len());
    write!(
        text,
        "XMTP : Authenticate to inbox\n\nInbox ID: {inbox_id}\nCurrent time: {time}\n\n"
    )
    .expect("a string takes every write");
    for (index, action) in actions.iter().enumerate() {
        let separator = if index == 0 { "" } else { "\n" };
        let (line, label, identifier) = lines(action);
        let identifier = identifier.text();
        write!(text, "{separator}- {line}\n  ({label}: {identifier})")
            .expect("a string takes every write");
    }
    text.push_str("\n\nFor more info: https://xmtp.org/signatures");
    text
}

/// What is done, how the identifier is called, and the identifier.
fn lines<S>(action: &Action<S>) -> (&'static str, &'static str, &Identifier) {
    match action {
        Action::Create { initial, .. } => ("Create inbox", "Owner", initial),
        Action::Add { member, .. } => match member {
            Identifier::Ethereum(_) => ("Link address to inbox", "Address", member),
            Identifier::Passkey(_) => ("Link passkey to inbox", "Passkey", member),
            Identifier::Installation(_) => ("Grant messaging access to app", "ID", member),
        },
        Action::Revoke { member, .. } => match member {
            Identifier::Ethereum(_) => ("Unlink address from inbox", "Address", member),
            Identifier::Passkey(_) => ("Unlink passkey from inbox", "Passkey", member),
            Identifier::Installation(_) => ("Revoke messaging access from app", "ID", member),
        },
        // Also of a passkey.
        Action::ChangeRecovery { new, .. } => ("Change inbox recovery address", "Address", new),
    }
}

/// Seconds since 1970, shown as `YYYY-MM-DDTHH:MM:SSZ`. The years here have four digits: 64 bits of
/// nanoseconds reach from 1677 to 2262.
struct Utc(i64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0.div_euclid(SECONDS_PER_DAY));
        let second = self.0.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

/// The date of a day, counted from 1970-01-01, in the Gregorian calendar.
///
/// Years are counted from March, so that a leap day is the last of its year, in eras of 400 years.
const fn civil(day: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    /// From 0000-03-01 to 1970-01-01.
    const EPOCH: i64 = 719_468;
    let day = day + EPOCH;
    let era = day.div_euclid(DAYS_PER_ERA);
    let day_of_era = day.rem_euclid(DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, next_year) = if month_from_march < 10 {
        (month_from_march + 3, 0)
    } else {
        (month_from_march - 9, 1)
    };
    (era * 400 + year_of_era + next_year, month, day_of_month)
}
