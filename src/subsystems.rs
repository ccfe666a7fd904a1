//! Every subsystem of this build, and what the others are called. The only place that knows features.

use xmtp_server::config::Build;
use xmtp_server::subsystem::Subsystem;

/// The subsystems of this build, in the order in which they are configured.
pub(crate) fn all() -> Vec<Box<dyn Subsystem>> {
    vec![
        #[cfg(feature = "embedded-postgres")]
        Box::new(xmtp_embedded_postgres::EmbeddedPostgresSubsystem),
    ]
}

/// What the configuration may speak of in this build.
pub(crate) const BUILD: Build = Build {
    absent: &[
        #[cfg(not(feature = "embedded-postgres"))]
        xmtp_server::config::AbsentSubsystem {
            feature: "embedded-postgres",
            paths: &[],
            url_schemes: &["embedded"],
        },
    ],
    url_schemes: &[
        #[cfg(feature = "embedded-postgres")]
        xmtp_embedded_postgres::SCHEME,
    ],
};
