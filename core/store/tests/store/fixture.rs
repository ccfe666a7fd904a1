//! A store of a test's own, and the publish sequence of the server.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use xmtp_protocol::identity::AssociationChanges;
use xmtp_protocol::proto::xmtp::backend::v1::client_envelope::Payload;
use xmtp_protocol::proto::xmtp::backend::v1::welcome_message::Version;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, WelcomeMessage};
use xmtp_protocol::{SequenceId, Topic, TopicKind};
use xmtp_store::publish::PublishLocks;
use xmtp_store::{EnvelopeKey, Metadata, NewEnvelope, Primary, Settings, StoreError};
use xmtp_test_support::{TestDatabase, eventually};

/// `application_name` of the store's pooled sessions.
pub(crate) const POOL_APPLICATION: &str = "xmtp-backend";

/// Takes the allocation barrier as a publisher does: the key is fixed (ARC-039).
pub(crate) const SHARED_BARRIER: &str = "SELECT pg_advisory_xact_lock_shared(2020439152, 2)";

/// A migrated database and its primary.
pub(crate) struct Store {
    pub(crate) primary: Primary,
    pub(crate) database: TestDatabase,
}

impl Store {
    pub(crate) async fn create() -> Self {
        Self::with(|_| ()).await
    }

    /// A store whose settings `change` has seen.
    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let database = TestDatabase::create().await;
        let mut settings = settings(&database);
        change(&mut settings);
        Self::on(database, settings).await
    }

    /// A store that reaches its database as `settings` say.
    pub(crate) async fn on(database: TestDatabase, settings: Settings) -> Self {
        let primary = Primary::connect(settings).await.unwrap();
        primary.prepare().await.unwrap();
        Self { primary, database }
    }

    /// Another instance on the same database.
    pub(crate) async fn another(&self) -> Primary {
        Primary::connect(settings(&self.database)).await.unwrap()
    }

    /// Waits until none of the store's sessions holds or awaits a lock, or is inside a transaction.
    pub(crate) async fn at_rest(&self) {
        let mut witness = self.database.connect().await;
        eventually("no lock and no open transaction is left", async || {
            let busy = number(
                &mut witness,
                "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database =
                             (SELECT oid FROM pg_database WHERE datname = current_database()))
                      + (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                             AND pid <> pg_backend_pid() AND xact_start IS NOT NULL)",
            )
            .await;
            (busy == 0).then_some(())
        })
        .await;
    }

    /// Waits until `sessions` of this database wait for an advisory lock.
    pub(crate) async fn until_waiting(&self, sessions: i64) {
        let mut witness = self.database.connect().await;
        eventually("sessions wait for a lock", async || {
            let waiting = number(
                &mut witness,
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            )
            .await;
            (waiting == sessions).then_some(())
        })
        .await;
    }

    /// Takes `connections` at the same time, and gives them back.
    pub(crate) async fn serves(&self, connections: usize) {
        let taken = futures::future::join_all((0..connections).map(|_| self.primary.publish()));
        for connection in taken.await {
            connection.unwrap().release();
        }
    }
}

/// Sets a parameter of every session that begins from now on.
pub(crate) async fn set_for_new_sessions(database: &TestDatabase, setting: &str) {
    let statements = format!(
        "BEGIN READ WRITE;
         DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {setting}', current_database()); END $$;
         COMMIT"
    );
    database.execute(&statements).await;
}

/// Generous bounds, so that none of them runs out in a test that is not about them.
pub(crate) fn settings(database: &TestDatabase) -> Settings {
    Settings {
        url: database.url().into(),
        max_connections: 8,
        statement_timeout: Duration::from_secs(20),
        transaction_timeout: Duration::from_secs(30),
    }
}

/// The topic of a group.
pub(crate) fn group(number: u8) -> Topic {
    Topic::new(TopicKind::GroupMessage, &[number; 16]).unwrap()
}

/// The topic of an inbox.
pub(crate) fn inbox(number: u8) -> Topic {
    Topic::new(TopicKind::IdentityUpdate, &[number; 32]).unwrap()
}

/// Bytes that storing some content takes beside it, where that is shorter than 128 bytes.
pub(crate) const WRAPPING: i64 = 6;

/// A client envelope around some content, as it is stored.
pub(crate) fn wrapped(content: impl AsRef<[u8]>) -> Vec<u8> {
    xmtp_fixtures::envelope(xmtp_fixtures::welcome([], content)).encode_to_vec()
}

/// The content of a stored envelope.
pub(crate) fn content(payload: &Bytes) -> Bytes {
    match ClientEnvelope::decode(payload.clone()).unwrap().payload {
        Some(Payload::WelcomeMessage(WelcomeMessage {
            version: Some(Version::V1(inline)),
        })) => inline.data,
        _ => panic!("it holds no content"),
    }
}

/// An envelope around some content that never expires. The store does not ask whether it is one of the topic.
pub(crate) fn envelope(topic: Topic, content: impl AsRef<[u8]>) -> NewEnvelope {
    let payload = wrapped(content);
    NewEnvelope {
        key: EnvelopeKey {
            topic,
            message_hash: <[u8; 32]>::from(Sha256::digest(&payload)).into(),
        },
        payload: payload.into(),
        is_commit_or_proposal: false,
        push_eligible: true,
        sender_hmac: None,
        retention_seconds: None,
        associations: AssociationChanges::default(),
    }
}

/// Publishes as the server does: duplicates, locks, recheck, commit. Answers one row for each input.
pub(crate) async fn publish(
    primary: &Primary,
    envelopes: &[NewEnvelope],
) -> Result<Vec<Metadata>, StoreError> {
    let keys: Vec<EnvelopeKey> = envelopes.iter().map(|new| new.key).collect();
    let mut connection = primary.publish().await?;
    let mut known = connection.find_duplicates(&keys).await?;
    if keys.iter().all(|key| known.contains_key(key)) {
        connection.release();
    } else {
        let locks = PublishLocks::new(keys.iter().map(|key| &key.topic));
        let mut transaction = connection.begin(&locks).await?;
        known.extend(transaction.find_duplicates(&keys).await?);
        let new: Vec<&NewEnvelope> = envelopes
            .iter()
            .filter(|envelope| !known.contains_key(&envelope.key))
            .collect();
        if new.is_empty() {
            transaction.rollback().await;
        } else {
            let stored = transaction.commit(&new).await?;
            known.extend(
                stored
                    .into_iter()
                    .map(|metadata| (metadata.key(), metadata)),
            );
        }
    }
    Ok(keys.iter().map(|key| known[key]).collect())
}

/// Publishes one envelope for each content, one by one, and answers their ids.
pub(crate) async fn publish_each<const N: usize>(
    primary: &Primary,
    topic: Topic,
    contents: [&str; N],
) -> [i64; N] {
    let mut ids = [0; N];
    for (id, content) in ids.iter_mut().zip(contents) {
        let stored = publish(primary, &[envelope(topic, content)]).await.unwrap();
        *id = stored[0].sequence_id.into();
    }
    ids
}

/// A sequence id.
pub(crate) fn at(id: i64) -> SequenceId {
    id.try_into().unwrap()
}

/// The number that a statement of the test's own answers.
pub(crate) async fn number(connection: &mut PgConnection, statement: &'static str) -> i64 {
    sqlx::query_scalar(statement)
        .fetch_one(connection)
        .await
        .unwrap()
}

/// Stored rows.
pub(crate) const ROWS: &str = "SELECT count(*) FROM envelopes";

/// The error of what has to fail.
#[track_caller]
pub(crate) fn failure<T, E>(result: Result<T, E>) -> E {
    match result {
        Ok(_) => panic!("it has to fail"),
        Err(error) => error,
    }
}
