//! Whether an address can be connected with.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use url::{ParseError, Url};

/// Parameters that the driver knows, beside `options[...]`. It logs any other with its value, which may be a
/// part of a password whose special characters are not escaped (ARC-101).
const PARAMETERS: [&str; 18] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// What an address has to have and lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// A character of the credentials ends them.
    #[error(
        "special characters of the user and the password escaped with %: / is %2F, ? is %3F, # is %23, @ is %40"
    )]
    Unescaped,
    /// The port is out of range, or no number.
    #[error("a port from 1 to 65535 after the host's colon, and special characters escaped with %")]
    Port,
    /// The driver connects to one host.
    #[error("one host, not a list of them")]
    Hosts,
    /// A parameter that the driver does not know.
    #[error("of its parameters only those that the driver knows")]
    Parameter,
    /// Something else that the driver refuses.
    #[error("an address with parameters whose values the driver takes")]
    Refused,
}

/// Checks that `address` is one that the driver understands to its last parameter. Connects to nothing.
///
/// # Errors
/// [`AddressError`]: it is not.
pub fn check_address(address: &str) -> Result<(), AddressError> {
    let is_cut = |(place, rest): (&str, &str)| rest.contains('@') && !place.contains('@');
    if let Some((_, rest)) = address.split_once("://")
        && rest.split_once(['/', '?', '#']).is_some_and(is_cut)
    {
        return Err(AddressError::Unescaped);
    }
    let url = Url::parse(address).map_err(|error| match error {
        ParseError::InvalidPort => AddressError::Port,
        _ => AddressError::Refused,
    })?;
    if url.fragment().is_some() || url.path().contains('@') {
        return Err(AddressError::Unescaped);
    }
    if url.port() == Some(0) {
        return Err(AddressError::Port);
    }
    if url.host_str().is_some_and(|host| host.contains(',')) {
        return Err(AddressError::Hosts);
    }
    if !url.query_pairs().all(|(name, _)| is_known(&name)) {
        return Err(AddressError::Parameter);
    }
    PgConnectOptions::from_str(address)
        .map(drop)
        .map_err(|_| AddressError::Refused)
}

fn is_known(parameter: &str) -> bool {
    PARAMETERS.contains(&parameter)
        || (parameter.starts_with("options[") && parameter.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arc_101_an_address_is_understood_whole_or_not_used() {
        for usable in [
            "postgres://u:p%3Fw@h:5432/d",
            "postgresql://h/d?sslmode=require&application_name=x",
            "postgres://%2Frun%2Fpostgres/d?options[search_path]=x",
        ] {
            assert_eq!(check_address(usable), Ok(()), "{usable}");
        }
        for (refused, error) in [
            ("postgres://h/d?pasword=p", AddressError::Parameter),
            ("postgres://u:12?sEcReT@h/d", AddressError::Unescaped),
            ("postgres://u:12#sEcReT@h/d", AddressError::Unescaped),
            ("postgres://u:12/sEcReT@h/d", AddressError::Unescaped),
            ("postgres://u:p/sEcReT@h/d", AddressError::Unescaped),
            ("postgres://u:p@h/d#x", AddressError::Unescaped),
            ("postgres://u@h:99999/d", AddressError::Port),
            ("postgres://u@h:0/d", AddressError::Port),
            ("postgres://u@h:port/d", AddressError::Port),
            ("postgres://u@h1,h2/d", AddressError::Hosts),
            (
                "postgres://h/d?application_name=a&pw=b",
                AddressError::Parameter,
            ),
            ("postgres://h/d?sslmode=no-such-mode", AddressError::Refused),
            ("postgres://h/d?port=no-number", AddressError::Refused),
            ("postgres://h/d?options[open=x", AddressError::Parameter),
            ("no address", AddressError::Refused),
        ] {
            assert_eq!(check_address(refused), Err(error), "{refused}");
        }
    }
}
