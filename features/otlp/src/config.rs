//! The keys `telemetry.otlp_*`, and the one environment variable that may stand in for a key (ARC-097).

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use url::Url;
use xmtp_server::config::scalar::{Flag, Int};
use xmtp_server::config::text::{self, Form};
use xmtp_server::config::{ConfigError, ConfigErrors, Document, OwnedSchema, Refusal};

/// The variable that is used where `telemetry.otlp_endpoint` is absent.
const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

const ENDPOINT: &str = "telemetry.otlp_endpoint";
const LOGS: &str = "telemetry.otlp_logs";
const METRICS: &str = "telemetry.otlp_metrics";
const METRICS_INTERVAL: &str = "telemetry.otlp_metrics_interval_seconds";

type Interval = Int<1, 3600, 60>;

/// Schemas of the keys.
pub(crate) fn schemas() -> Vec<OwnedSchema> {
    vec![
        OwnedSchema::section::<Endpoint>(ENDPOINT),
        OwnedSchema::key::<Flag<false>>(
            LOGS,
            "Whether the collector also gets what is logged, at `server.log_level` (ARC-094).",
        ),
        OwnedSchema::key::<Flag<false>>(
            METRICS,
            "Whether the collector also gets the metrics. The listener for Prometheus stays.",
        ),
        OwnedSchema::key::<Interval>(
            METRICS_INTERVAL,
            "Seconds between two times that the collector gets the metrics.",
        ),
    ]
}

/// Where a collector takes OTLP over gRPC: `telemetry.otlp_endpoint`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    origin: String,
    is_tls: bool,
}

impl Endpoint {
    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) const fn is_tls(&self) -> bool {
        self.is_tls
    }
}

impl Form for Endpoint {
    const EXPECTED: &'static str = "an http or https URL with a host and without credentials";

    fn pattern() -> String {
        r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s/?#@]+(?:[/?#]\S*)?(?!\n)$".to_owned()
    }

    /// gRPC has paths of its own: that of the URL has no meaning.
    fn parse(text: &str) -> Option<Self> {
        // The parser forgives more than a URL in a configuration should need.
        let (_, rest) = text.split_once("://")?;
        if rest.is_empty() || rest.starts_with(['/', '\\']) || text.contains(char::is_whitespace) {
            return None;
        }
        let url = Url::parse(text).ok()?;
        let scheme = url.scheme();
        if !matches!(scheme, "http" | "https")
            || !url.username().is_empty()
            || url.password().is_some()
        {
            return None;
        }
        let host = url.host_str().filter(|host| !host.is_empty())?;
        let origin = match url.port() {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        };
        tonic::transport::Endpoint::from_shared(origin.clone()).ok()?;
        Some(Self {
            origin,
            is_tls: scheme == "https",
        })
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::decode(deserializer)
    }
}

impl JsonSchema for Endpoint {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Endpoint".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = text::schema::<Self>();
        schema.insert(
            "description".to_owned(),
            "Where a collector takes OTLP over gRPC: an `http` or `https` URL without credentials. Absent uses the \
             environment variable `OTEL_EXPORTER_OTLP_ENDPOINT`, if it is set; with neither, nothing is exported (ARC-097, \
             OPS-022)."
                .into(),
        );
        schema.insert("examples".to_owned(), vec!["http://collector:4317"].into());
        schema
    }
}

/// Shows nothing: it may have come from the environment (ARC-101).
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endpoint(..)")
    }
}

/// What is exported.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) endpoint: Endpoint,
    pub(crate) logs: bool,
    /// Between two pushes; `None` where metrics are not exported.
    pub(crate) metrics_interval: Option<Duration>,
}

impl Export {
    /// Takes the keys. `None` where no endpoint is given.
    ///
    /// # Errors
    /// Every key that is refused, or the variable.
    pub(crate) fn take(
        document: &mut Document,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let endpoint = match document.take(ENDPOINT) {
            Ok(None) => from_variable(variable).map_err(ConfigErrors::from),
            written => written,
        };
        let endpoint = errors.keep(endpoint).flatten();
        let logs = errors.keep(document.take::<Flag<false>>(LOGS)).flatten();
        let metrics = errors.keep(document.take::<Flag<false>>(METRICS)).flatten();
        let interval = errors.keep(document.take::<Interval>(METRICS_INTERVAL));
        let interval = interval.flatten().unwrap_or_default().seconds();
        errors.or(endpoint.map(|endpoint| Self {
            endpoint,
            logs: logs.unwrap_or_default().0,
            metrics_interval: metrics.unwrap_or_default().0.then_some(interval),
        }))
    }
}

/// The endpoint of the environment; an empty variable counts as absent.
fn from_variable(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Endpoint>, ConfigError> {
    let Some(content) = variable(ENDPOINT_VARIABLE).filter(|content| !content.is_empty()) else {
        return Ok(None);
    };
    let refused = |refusal| ConfigError {
        key: ENDPOINT_VARIABLE.to_owned(),
        position: None,
        refusal,
    };
    let Some(text) = content.to_str() else {
        return Err(refused(Refusal::Expected("Unicode".to_owned())));
    };
    let endpoint = Endpoint::parse(text);
    let endpoint =
        endpoint.ok_or_else(|| refused(Refusal::Expected(Endpoint::EXPECTED.to_owned())));
    endpoint.map(Some)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use xmtp_server::config::Build;

    use super::*;

    fn take(text: &str, variable: Option<&OsString>) -> Result<Option<Export>, ConfigErrors> {
        let mut document = Document::parse(text, Build::default(), |_| None).unwrap();
        Export::take(&mut document, |name| {
            assert_eq!(name, "OTEL_EXPORTER_OTLP_ENDPOINT");
            variable.cloned()
        })
    }

    /// What is refused, without what was configured.
    #[track_caller]
    fn refused(result: Result<Option<Export>, ConfigErrors>) -> Vec<String> {
        let errors = result.expect_err("refused");
        let text = format!("{errors} {errors:?}");
        assert!(!text.contains("planted"), "{text}");
        errors.iter().map(|error| error.key.clone()).collect()
    }

    #[test]
    fn arc_097_nothing_is_exported_without_an_endpoint() {
        let keys = "telemetry.otlp_logs = true\ntelemetry.otlp_metrics = true\n";
        for text in ["", keys] {
            assert!(take(text, None).unwrap().is_none());
            assert!(take(text, Some(&OsString::new())).unwrap().is_none());
        }
    }

    #[test]
    fn arc_097_the_key_beats_the_variable_which_is_not_looked_at_then() {
        let written = "telemetry.otlp_endpoint = \"http://written:1\"\n";
        let unfit = OsString::from_vec(vec![0xff]);
        for variable in [None, Some("http://planted:2".into()), Some(unfit)] {
            let export = take(written, variable.as_ref()).unwrap();
            let export = export.expect("an endpoint");
            assert_eq!(export.endpoint.origin(), "http://written:1");
            assert!(!export.logs);
            assert_eq!(export.metrics_interval, None);
        }
        let export = take("", Some(&"https://variable/".into())).unwrap();
        let endpoint = export.expect("an endpoint").endpoint;
        assert_eq!(endpoint.origin(), "https://variable");
        assert!(endpoint.is_tls());
    }

    #[test]
    fn ops_022_what_is_no_url_with_a_host_is_refused_by_key_or_variable() {
        for text in [
            "planted",
            "planted:4317",
            "ftp://planted",
            "http://",
            "http:///planted",
            "http:planted",
            "http://user:planted@host",
            "http://planted host",
            "http://planted:99999",
            "https://?planted",
            " http://planted",
            "http://planted\n",
        ] {
            let document = format!("telemetry.otlp_endpoint = {text:?}\n");
            assert_eq!(refused(take(&document, None)), [ENDPOINT], "{text:?}");
            let variable = text.into();
            assert_eq!(
                refused(take("", Some(&variable))),
                [ENDPOINT_VARIABLE],
                "{text:?}"
            );
        }
        let empty = take("telemetry.otlp_endpoint = \"\"\n", None);
        assert_eq!(refused(empty), [ENDPOINT]);
        let unfit = OsString::from_vec(b"http://planted\xff".to_vec());
        assert_eq!(refused(take("", Some(&unfit))), [ENDPOINT_VARIABLE]);
        for text in [
            "http://a",
            "HTTPS://a.b:4317/",
            "http://[::1]:4317",
            "http://127.0.0.1:1/v1/traces",
        ] {
            assert!(Endpoint::parse(text).is_some(), "{text}");
        }
    }

    #[test]
    fn the_other_keys_have_their_types_and_bounds() {
        let written = "telemetry.otlp_endpoint = \"http://a\"\ntelemetry.otlp_logs = true\n\
                       telemetry.otlp_metrics = true\n";
        let export = take(written, None).unwrap().expect("an endpoint");
        assert!(export.logs);
        assert_eq!(export.metrics_interval, Some(Duration::from_mins(1)));
        for (seconds, is_good) in [(0, false), (1, true), (3600, true), (3601, false)] {
            let text = format!("{written}telemetry.otlp_metrics_interval_seconds = {seconds}\n");
            match take(&text, None) {
                Ok(export) => {
                    let interval = export.expect("an endpoint").metrics_interval;
                    assert!(is_good && interval == Some(Duration::from_secs(seconds)));
                }
                Err(_) => assert!(!is_good, "{seconds}"),
            }
        }
        let all = "telemetry.otlp_endpoint = 1\ntelemetry.otlp_logs = \"planted\"\n\
                   telemetry.otlp_metrics = 1\ntelemetry.otlp_metrics_interval_seconds = 1.5\n";
        assert_eq!(
            refused(take(all, None)),
            [ENDPOINT, LOGS, METRICS, METRICS_INTERVAL]
        );
    }

    #[test]
    fn arc_101_debug_shows_no_endpoint() {
        let export = take("telemetry.otlp_endpoint = \"http://planted\"\n", None).unwrap();
        assert!(!format!("{export:?}").contains("planted"));
    }
}
