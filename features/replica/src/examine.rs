//! What `doctor` says of a replica: pure judgements over what the store has read.

use secrecy::SecretString;
use xmtp_server::doctor::{Check, Outcome};
use xmtp_store::{Primary, ReplicaCondition, StoreError};

/// Write-ahead log that a healthy replica may owe, bytes: four segments.
const MUCH: i64 = 64 << 20;

/// Looks at the replica at `url`.
pub(crate) async fn examine(primary: &Primary, url: &SecretString) -> Vec<Check> {
    let condition = condition(primary, url).await;
    let mut checks = vec![connection(condition.as_ref().err())];
    if let Ok(condition) = condition {
        checks.extend([replay(&condition), conflicts(&condition)]);
    }
    checks
}

async fn condition(primary: &Primary, url: &SecretString) -> Result<ReplicaCondition, StoreError> {
    let reads = primary.replica(url.clone()).await?;
    let condition = primary.replica_condition(&reads).await;
    reads.close();
    condition
}

fn connection(error: Option<&StoreError>) -> Check {
    let name = "replica-connection";
    match error {
        None => ok(name, "a standby of the primary".to_owned()),
        Some(error) => Check {
            name,
            outcome: Outcome::Failed,
            finding: error.to_string(),
            advice: "see the address, the server and the user's rights: database.replica_url names one physical standby",
        },
    }
}

fn replay(condition: &ReplicaCondition) -> Check {
    let name = "replica-replay";
    let finding = format!("{} bytes behind the primary", condition.behind_bytes);
    if condition.replay_paused {
        let advice = "its replay is paused: SELECT pg_wal_replay_resume()";
        warning(name, finding, advice)
    } else if !condition.receiving {
        let advice =
            "it receives nothing from its primary, and no metric here shows that: see its log";
        warning(name, finding, advice)
    } else if condition.behind_bytes > MUCH {
        let advice =
            "streams show envelopes as late as that: see the load and the network between them";
        warning(name, finding, advice)
    } else {
        ok(name, finding)
    }
}

fn conflicts(condition: &ReplicaCondition) -> Check {
    let name = "replica-conflicts";
    let delay = match condition.max_delay_ms {
        ..0 => "for ever".to_owned(),
        delay => format!("for {delay} ms"),
    };
    if condition.feedback {
        let finding =
            "hot_standby_feedback is on: clean-up on the primary spares what is read here";
        ok(name, finding.to_owned())
    } else {
        let finding =
            format!("hot_standby_feedback is off, and replay waits {delay} for reads in its way");
        let advice =
            "switch it on, or clean-up on the primary ends reads and streams, or delays them";
        warning(name, finding, advice)
    }
}

fn ok(name: &'static str, finding: String) -> Check {
    Check {
        name,
        outcome: Outcome::Ok,
        finding,
        advice: "",
    }
}

fn warning(name: &'static str, finding: String, advice: &'static str) -> Check {
    Check {
        name,
        outcome: Outcome::Warning,
        finding,
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> ReplicaCondition {
        ReplicaCondition {
            receiving: true,
            replay_paused: false,
            behind_bytes: 4096,
            feedback: true,
            max_delay_ms: 30_000,
        }
    }

    fn outcomes(change: impl FnOnce(&mut ReplicaCondition)) -> [Outcome; 2] {
        let mut condition = sound();
        change(&mut condition);
        [replay(&condition), conflicts(&condition)].map(|check| check.outcome)
    }

    #[test]
    fn doctor_warns_of_a_replica_that_stands_still_or_ends_reads() {
        use Outcome::{Ok, Warning};
        assert_eq!(outcomes(|_| ()), [Ok, Ok]);
        assert_eq!(outcomes(|it| it.receiving = false), [Warning, Ok]);
        assert_eq!(outcomes(|it| it.replay_paused = true), [Warning, Ok]);
        assert_eq!(outcomes(|it| it.behind_bytes = MUCH + 1), [Warning, Ok]);
        assert_eq!(outcomes(|it| it.feedback = false), [Ok, Warning]);
    }
}
