//! Whether an address can be connected with.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use url::Url;

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

/// Whether `address` is one that the driver understands to its last parameter. Connects to nothing.
pub fn is_usable_address(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| url.query_pairs().all(|(name, _)| is_known(&name)))
        && PgConnectOptions::from_str(address).is_ok()
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
            assert!(is_usable_address(usable), "{usable}");
        }
        for refused in [
            "postgres://h/d?pasword=p",
            "postgres://u:12?sEcReT@h/d",
            "postgres://h/d?application_name=a&pw=b",
            "postgres://h/d?sslmode=no-such-mode",
            "postgres://h/d?port=no-number",
            "postgres://h/d?options[open=x",
            "no address",
        ] {
            assert!(!is_usable_address(refused), "{refused}");
        }
    }
}
