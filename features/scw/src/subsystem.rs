//! How the server reaches this crate: the sections `[chains]` and `[validation]`, and a step of the start that gives it
//! something to ask about contract wallets.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use xmtp_https::{Connections, Endpoint};
use xmtp_server::config::{ConfigErrors, OwnedSchema};
use xmtp_server::subsystem::{
    Configure, StartStep, Starting, Subsystem, SubsystemError, TelemetryWords,
};

use crate::config::{CHAINS, Chains, Settings, VALIDATION, Validation, caip_2};
use crate::families::{FAMILIES, OPERATIONS};
use crate::monitoring;
use crate::route::Route;
use crate::verifier::Verifier;

/// The subsystem. It does nothing unless the document has a chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScwSubsystem;

impl Subsystem for ScwSubsystem {
    fn name(&self) -> &'static str {
        "scw"
    }

    fn schemas(&self) -> Vec<OwnedSchema> {
        vec![
            OwnedSchema::section::<Chains>(CHAINS),
            OwnedSchema::section::<Validation>(VALIDATION),
        ]
    }

    fn telemetry(&self) -> TelemetryWords {
        TelemetryWords {
            families: &FAMILIES,
            operations: &OPERATIONS,
            alerts: monitoring::alerts(),
            panels: monitoring::panels(),
            ..TelemetryWords::default()
        }
    }

    fn configure(&mut self, context: &mut Configure<'_>) -> Result<(), ConfigErrors> {
        if let Some(settings) = Settings::take(context.document)? {
            context.start_step(AskChains(settings));
        }
        Ok(())
    }
}

/// Gives the server something to ask. No chain is asked anything yet: one that is down holds up no start.
struct AskChains(Settings);

impl StartStep for AskChains {
    fn word(&self) -> &'static str {
        "chains"
    }

    fn run<'a>(
        self: Box<Self>,
        context: &'a mut Starting<'_>,
    ) -> BoxFuture<'a, Result<(), SubsystemError>> {
        async move {
            let Settings {
                providers,
                most_verdicts,
            } = self.0;
            // CONF-070: the ids, and no URL.
            context.published.smart_contract_wallet_chains =
                providers.keys().copied().map(caip_2).collect();
            let mut routes = HashMap::new();
            for (chain_id, url) in providers {
                routes.insert(
                    chain_id,
                    Route::new(chain_id, Endpoint::new(url, Connections::Kept)?),
                );
            }
            tracing::info!(chains = routes.len(), "contract wallets are judged");
            context.chain_verifier(Arc::new(Verifier::new(routes, most_verdicts)));
            Ok(())
        }
        .boxed()
    }
}
