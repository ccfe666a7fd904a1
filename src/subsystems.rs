//! Every subsystem of this build, and what the others are called. The only place that knows features.

use xmtp_server::config::{AbsentSubsystem, Build};
use xmtp_server::subsystem::Subsystem;

/// The subsystems of this build, in the order in which they are configured.
pub(crate) fn all() -> Vec<Box<dyn Subsystem>> {
    vec![
        #[cfg(feature = "auth")]
        Box::new(xmtp_auth::AuthSubsystem),
        #[cfg(feature = "embedded-postgres")]
        Box::new(xmtp_embedded_postgres::EmbeddedPostgresSubsystem),
        #[cfg(feature = "otlp")]
        Box::new(xmtp_otlp::OtlpSubsystem::default()),
        #[cfg(feature = "replica")]
        Box::new(xmtp_replica::ReplicaSubsystem),
        #[cfg(feature = "scw")]
        Box::new(xmtp_scw::ScwSubsystem),
    ]
}

/// Says what of the environment only a subsystem that this build lacks would heed (contract decisions, 14).
pub(crate) fn warn_of_what_is_ignored() {
    #[cfg(not(feature = "otlp"))]
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        tracing::warn!(
            "OTEL_EXPORTER_OTLP_ENDPOINT is ignored: the `otlp` subsystem is not part of this build"
        );
    }
}

/// What the configuration may speak of in this build: the one table of what each optional subsystem owns. Of two paths
/// the deeper stands first. One that no build of this version has says so.
pub(crate) const BUILD: Build = Build {
    absent: &[
        #[cfg(not(feature = "embedded-postgres"))]
        AbsentSubsystem {
            feature: "embedded-postgres",
            paths: &[],
            url_schemes: &["embedded"],
            exists: true,
        },
        #[cfg(not(feature = "auth"))]
        AbsentSubsystem {
            feature: "auth",
            paths: &["auth"],
            url_schemes: &[],
            exists: true,
        },
        #[cfg(not(feature = "replica"))]
        AbsentSubsystem {
            feature: "replica",
            paths: &["database.replica_url"],
            url_schemes: &[],
            exists: true,
        },
        #[cfg(not(feature = "scw"))]
        AbsentSubsystem {
            feature: "scw",
            paths: &["chains", "validation"],
            url_schemes: &[],
            exists: true,
        },
        #[cfg(not(feature = "otlp"))]
        AbsentSubsystem {
            feature: "otlp",
            paths: &[
                "telemetry.otlp_endpoint",
                "telemetry.otlp_logs",
                "telemetry.otlp_metrics",
                "telemetry.otlp_metrics_interval_seconds",
            ],
            url_schemes: &[],
            exists: true,
        },
        planned("push-apns", &["push.apns"]),
        planned("push-fcm", &["push.fcm"]),
        planned("push-http", &["push.http"]),
        planned("push", &["push", "limits.max_push_topics"]),
        planned("attachments", &["attachments"]),
        planned("mls-v1", &["mls_v1"]),
    ],
    url_schemes: &[
        #[cfg(feature = "embedded-postgres")]
        xmtp_embedded_postgres::SCHEME,
    ],
};

/// A subsystem that no build of this version has.
const fn planned(feature: &'static str, paths: &'static [&'static str]) -> AbsentSubsystem {
    AbsentSubsystem {
        feature,
        paths,
        url_schemes: &[],
        exists: false,
    }
}

#[cfg(test)]
mod tests {
    use xmtp_server::Server;
    use xmtp_server::config::Document;
    use xmtp_server::telemetry::monitoring;

    use super::*;

    /// The features of the root package.
    fn features() -> Vec<String> {
        let manifest: toml::Table = include_str!("../Cargo.toml").parse().expect("a manifest");
        let features = manifest["features"].as_table().expect("features");
        features.keys().cloned().collect()
    }

    #[test]
    fn arc_100_the_table_of_subsystems_agrees_with_what_can_be_built() {
        for absent in BUILD.absent {
            let buildable = features().iter().any(|feature| feature == absent.feature);
            assert_eq!(absent.exists, buildable, "{}", absent.feature);
            let built = all().iter().any(|present| present.name() == absent.feature);
            assert!(!built, "{} is part of this build", absent.feature);
        }
    }

    #[test]
    fn arc_100_every_part_of_an_absent_subsystem_is_refused_by_its_name() {
        for absent in BUILD.absent {
            for path in absent.paths {
                let text = format!(
                    "server.identifier = \"a\"\ndatabase.url = \"postgres://h/d\"\n{path} = 1\n"
                );
                let document = Document::parse(&text, BUILD, |_| None).expect("a document");
                let errors = Server::configure(document, &mut all())
                    .err()
                    .expect("refused");
                let text = errors.to_string();
                let mut lines = text.lines();
                let line = lines.find(|line| line.starts_with(&format!("{path} (line 3, column ")));
                let line = line.unwrap_or_else(|| panic!("{path} is not refused: {text}"));
                let named = format!("belongs to the `{}` subsystem", absent.feature);
                assert!(line.contains(&named), "{text}");
            }
        }
    }

    #[test]
    fn arc_100_every_feature_is_built_or_in_the_table() {
        let named = |feature: &String| {
            all().iter().any(|present| present.name() == feature)
                || BUILD.absent.iter().any(|absent| absent.feature == feature)
        };
        let sets = ["default", "full"];
        for feature in features()
            .iter()
            .filter(|feature| !sets.contains(&feature.as_str()))
        {
            assert!(named(feature), "{feature}");
        }
    }

    #[test]
    fn arc_100_a_full_build_has_every_subsystem() {
        let manifest: toml::Table = include_str!("../Cargo.toml").parse().expect("a manifest");
        let full = manifest["features"]["full"].as_array().expect("a list");
        let full: Vec<&str> = full.iter().filter_map(toml::Value::as_str).collect();
        let mut all = features();
        all.retain(|feature| !["default", "full"].contains(&feature.as_str()));
        assert_eq!(full, all);
    }

    /// The names of the rules, in the contract's order, with the feature that brings those which are not core's.
    const ALERTS: [(&str, Option<&str>); 18] = [
        ("BackendDown", None),
        ("BackendNotReady", None),
        ("TailerNotReady", None),
        ("HighErrorRate", None),
        ("DatabaseUnavailable", None),
        ("StorageInvariant", None),
        ("PublishLatencyHigh", None),
        ("QueryLatencyHigh", None),
        ("LockWaitHigh", None),
        ("LeakedTransactions", None),
        ("TailerRestarting", None),
        ("GapRangesGrowing", None),
        ("BarrierStarved", None),
        ("StreamsFailing", None),
        ("JwksRefreshFailing", Some("auth")),
        ("AuthRejectionsHigh", Some("auth")),
        ("ExportFailing", Some("otlp")),
        ("ChainRpcFailing", Some("scw")),
    ];

    /// The panels of the contract that need a subsystem, with the row that they stand in.
    const PANELS: [(&str, &str, &str); 6] = [
        ("auth", "Authentication", "Rejections by reason"),
        ("auth", "Authentication", "Signing keys"),
        ("auth", "Authentication", "Fetches of the JWKS by result"),
        ("otlp", "Errors", "Telemetry failures"),
        ("scw", "Chains", "Verifications by result"),
        (
            "scw",
            "Chains",
            "Verification, p99, with those from the cache",
        ),
    ];

    fn is_present(feature: &str) -> bool {
        all().iter().any(|subsystem| subsystem.name() == feature)
    }

    #[test]
    fn ops_017_every_alert_of_the_contract_is_there_with_its_subsystem() {
        let there: Vec<&str> = monitoring::alerts(&all())
            .iter()
            .map(|it| it.name)
            .collect();
        let expected = ALERTS
            .iter()
            .filter(|(_, feature)| feature.is_none_or(is_present));
        assert!(there.iter().eq(expected.map(|(name, _)| name)), "{there:?}");
    }

    #[test]
    fn ops_017_every_panel_of_the_contract_is_there_with_its_subsystem() {
        let groups = monitoring::groups(&all());
        for (feature, row, title) in PANELS {
            let mut titles = groups
                .iter()
                .filter(|(name, _)| *name == row)
                .flat_map(|(_, panels)| panels.iter().map(|panel| panel.title));
            assert_eq!(titles.any(|it| it == title), is_present(feature), "{title}");
        }
    }

    #[test]
    fn ops_017_rules_and_panels_of_the_build_speak_only_of_what_it_serves() {
        assert_eq!(monitoring::faults(&all()), [""; 0]);
    }
}
