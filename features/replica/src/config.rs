//! The key `database.replica_url`.

use schemars::JsonSchema;
use serde::Deserialize;
use xmtp_server::config::sections::PostgresUrl;

/// Path of the key.
pub(crate) const KEY: &str = "database.replica_url";

/// Address of one physical standby of the primary, never of a balancer over several. Newest envelopes, the inboxes of
/// identifiers and streams are read from it (OPS-009), with `max_connections` connections of its own and one for the
/// tailer (ARC-060). Absent reads everything from the primary.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(example = &"env:XMTP_REPLICA_URL")]
pub(crate) struct ReplicaUrl(pub(crate) PostgresUrl);

#[cfg(test)]
mod tests {
    use xmtp_server::config::{Build, ConfigErrors, Document};

    use super::*;

    fn take(line: &str) -> Result<Option<ReplicaUrl>, ConfigErrors> {
        let mut document = Document::parse(line, Build::default(), |_| None).unwrap();
        document.take(KEY)
    }

    #[test]
    fn arc_100_an_address_is_asked_for_as_of_the_primary() {
        assert!(take("").unwrap().is_none());
        for url in [
            "postgres://h/d",
            "postgresql://u:p%3Fw@h:5432/d?sslmode=require",
        ] {
            assert!(
                take(&format!("{KEY} = {url:?}")).unwrap().is_some(),
                "{url}"
            );
        }
        for value in [
            "\"\"",
            "\"planted\"",
            "\"embedded:planted\"",
            "\"postgres:planted\"",
            "\"mysql://planted/d\"",
            "\"postgres://h/d?pasword=planted\"",
            "\"postgres://u:100%planted@h/d\"",
            "\"postgres://h/d planted\"",
            "[\"postgres://planted/a\", \"postgres://planted/b\"]",
            "1",
        ] {
            let errors = take(&format!("{KEY} = {value}")).expect_err(value);
            assert!(errors.iter().all(|error| error.key == KEY), "{errors}");
            assert!(
                !format!("{errors} {errors:?}").contains("planted"),
                "{errors}"
            );
        }
    }

    #[test]
    fn arc_101_debug_does_not_show_the_address() {
        let url = take(&format!("{KEY} = \"postgres://u:planted@planted/planted\""));
        assert!(!format!("{:?}", url.unwrap()).contains("planted"));
    }
}
