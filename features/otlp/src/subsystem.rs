//! How the server reaches this crate: the keys `telemetry.otlp_*`, and an observer that begins before logging is
//! installed.

use std::env;
use std::ffi::OsString;
use std::sync::Arc;

use xmtp_server::config::{ConfigErrors, OwnedSchema};
use xmtp_server::subsystem::{Configure, Subsystem, SubsystemError, TelemetryWords};
use xmtp_server::telemetry::{Observer, Observing};

use crate::config::{Export, schemas};
use crate::exporter::{Exporter, Sources};
use crate::families::FAMILIES;
use crate::logs::Logs;
use crate::monitoring;
use crate::queue::Queue;
use crate::resource::Origin;
use crate::sampler::Sampler;
use crate::spans::{Spans, Tracer};

/// The subsystem. It does nothing unless the document or the environment names an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct OtlpSubsystem {
    /// The environment.
    variable: fn(&str) -> Option<OsString>,
}

impl Default for OtlpSubsystem {
    fn default() -> Self {
        Self {
            variable: |name| env::var_os(name),
        }
    }
}

impl Subsystem for OtlpSubsystem {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn schemas(&self) -> Vec<OwnedSchema> {
        schemas()
    }

    fn telemetry(&self) -> TelemetryWords {
        TelemetryWords {
            families: &FAMILIES,
            alerts: monitoring::alerts(),
            panels: monitoring::panels(),
            ..TelemetryWords::default()
        }
    }

    fn configure(&mut self, context: &mut Configure<'_>) -> Result<(), ConfigErrors> {
        if let Some(export) = Export::take(context.document, self.variable)? {
            context.observer(export);
        }
        Ok(())
    }
}

impl Observer for Export {
    fn observe(self: Box<Self>, context: &mut Observing<'_>) -> Result<(), SubsystemError> {
        let sampler = Sampler::new(context.config.telemetry.sample_ratio.get());
        let sources = Sources {
            spans: Arc::new(Queue::new()),
            logs: self.logs.then(|| Arc::new(Queue::new())),
            metrics: self
                .metrics_interval
                .map(|interval| (context.metrics.clone(), interval)),
        };
        context.request_tracer(Arc::new(Tracer(sampler)));
        context.spans(Spans {
            sampler,
            queue: Arc::clone(&sources.spans),
        });
        if let Some(queue) = &sources.logs {
            context.events(Logs {
                queue: Arc::clone(queue),
            });
        }
        let origin = Origin::new(context.config, context.version);
        context.at_the_end(Exporter::start(&self.endpoint, origin, sources)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use xmtp_server::Server;
    use xmtp_server::config::sections::LogLevel;
    use xmtp_server::config::{Build, Document};
    use xmtp_server::telemetry::{Catalogue, Metrics};

    use super::*;

    fn is_watched(settings: &str) -> bool {
        let text =
            format!("server.identifier = \"a\"\ndatabase.url = \"postgres://h/d\"\n{settings}");
        let document = Document::parse(&text, Build::default(), |_| None).unwrap();
        let subsystem = OtlpSubsystem { variable: |_| None };
        let server = Server::configure(document, &mut [Box::new(subsystem)]);
        let (metrics, _) = Metrics::new(Catalogue::new(&[])).unwrap();
        let mut server = server.expect("the document is valid");
        let mut observers = server.observe(&metrics, LogLevel::Info).expect("it begins");
        observers.layer().is_some()
    }

    #[test]
    fn arc_097_without_an_endpoint_no_layer_is_there() {
        let others = "telemetry.otlp_logs = true\ntelemetry.otlp_metrics = true\n\
                      telemetry.sample_ratio = 1.0\n";
        assert!(!is_watched(""));
        assert!(!is_watched(others));
        assert!(is_watched(
            "telemetry.otlp_endpoint = \"http://127.0.0.1:1\"\n"
        ));
    }
}
