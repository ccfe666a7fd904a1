//! How the server reaches this crate: the section `[auth]`, a step of the start, a gate for every request, and a task
//! that keeps fetched keys fresh.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use xmtp_protocol::proto::xmtp::backend::v1::AuthConfiguration;
use xmtp_protocol::proto::xmtp::backend::v1::auth_configuration::SigningKey;
use xmtp_server::config::{ConfigErrors, OwnedSchema};
use xmtp_server::subsystem::{
    Configure, StartStep, Starting, Subsystem, SubsystemError, TelemetryWords,
};

use crate::claims::Policy;
use crate::config::{Auth, Mechanisms, SECTION, Source};
use crate::families::FAMILIES;
use crate::fetch::Fetcher;
use crate::gate::{Gate, Tokens};
use crate::keys::{CurrentKeys, KeySet};
use crate::turns::Turns;
use crate::{monitoring, refresh};

/// The subsystem. It does nothing unless the document has an `[auth]` section that is enabled.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuthSubsystem;

impl Subsystem for AuthSubsystem {
    fn name(&self) -> &'static str {
        "auth"
    }

    fn schemas(&self) -> Vec<OwnedSchema> {
        vec![OwnedSchema::section::<Auth>(SECTION)]
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
        if let Some(mechanisms) = Auth::take(context.document)? {
            context.start_step(LoadKeys(mechanisms));
        }
        Ok(())
    }
}

/// Loads the keys, and puts the gate before the requests.
struct LoadKeys(Mechanisms);

impl StartStep for LoadKeys {
    fn word(&self) -> &'static str {
        "keys"
    }

    fn run<'a>(
        self: Box<Self>,
        context: &'a mut Starting<'_>,
    ) -> BoxFuture<'a, Result<(), SubsystemError>> {
        async move {
            let Mechanisms {
                api_keys,
                source,
                policy,
            } = self.0;
            let keys = match source {
                None => None,
                Some(Source::Inline(keys)) => Some(CurrentKeys::new(KeySet::new(keys))),
                Some(Source::Jwks { url, schedule }) => {
                    let loaded = refresh::load(Fetcher::new(url)?, schedule).await?;
                    let keys = loaded.keys().clone();
                    context.task(async { Ok(loaded.keep_fresh().await?) });
                    Some(keys)
                }
            };
            let count = keys.as_ref().map_or(0, |keys| keys.get().keys().len());
            tracing::info!(
                api_keys = api_keys.len(),
                signing_keys = count,
                "requests need a credential"
            );
            context.published.auth = Some(published(&policy, keys.as_ref()));
            let tokens = keys.map(|keys| Tokens {
                keys,
                policy,
                turns: Turns::default(),
            });
            context.request_gate(Arc::new(Gate { api_keys, tokens }));
            Ok(())
        }
        .boxed()
    }
}

/// What clients are told: no API key, no name of one, and no key material (CONF-011, CONF-068).
fn published(policy: &Policy, keys: Option<&CurrentKeys>) -> AuthConfiguration {
    let keys = keys.map(CurrentKeys::get);
    let keys = keys.iter().flat_map(|keys| keys.keys());
    AuthConfiguration {
        enabled: true,
        keys: keys
            .map(|key| SigningKey {
                kid: key.kid.clone().unwrap_or_default(),
                alg: key.algorithm.name().to_owned(),
            })
            .collect(),
        audiences: policy.audiences.clone().unwrap_or_default(),
        issuers: policy.issuers.clone().unwrap_or_default(),
        required_scopes: policy.required_scopes.clone(),
    }
}
