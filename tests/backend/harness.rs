//! A whole backend in this process, on ports and a database of its own, and real gRPC clients for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use prost::Message;
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::Channel;
use xmtp_protocol::Topic;
use xmtp_protocol::client::{
    ConfigurationServiceClient, HealthClient, IdentityServiceClient, PublishServiceClient,
    QueryServiceClient, SubscriptionServiceClient,
};
use xmtp_protocol::identity::ChainVerifier;
use xmtp_protocol::proto::google::rpc;
use xmtp_protocol::proto::xmtp::backend::v1::{
    ClientEnvelope, Cursor, EnvelopeMeta, PublishError, PublishRequest, QueryRequest,
    ServerEnvelope, Topic as WireTopic, TopicQuery,
};
use xmtp_server::config::{Build, ConfigErrors, Document};
use xmtp_server::subsystem::{Configure, StartStep, Starting, Subsystem, SubsystemError};
use xmtp_server::{RunningServer, Server};
use xmtp_test_support::{PATIENCE, TestDatabase};

/// Large enough for any message of the API.
const ANY_MESSAGE: usize = 64 << 20;

/// A running backend.
pub(crate) struct Backend {
    pub(crate) database: TestDatabase,
    pub(crate) address: SocketAddr,
    running: RunningServer,
    channel: Channel,
}

impl Backend {
    /// Starts one with the defaults, and a tailer quick enough for tests.
    pub(crate) async fn start() -> Self {
        Self::with("").await
    }

    /// Starts one with `settings`: lines of dotted keys, as in `limits.max_publish_topics = 2`.
    pub(crate) async fn with(settings: &str) -> Self {
        Self::on(TestDatabase::create().await, settings).await
    }

    /// Starts one that asks `chain` about contract wallets.
    pub(crate) async fn with_chain(settings: &str, chain: Arc<dyn ChainVerifier>) -> Self {
        let database = TestDatabase::create().await;
        let server = configure_with(&database, settings, &mut [Box::new(Chains(chain))]);
        let server = server.expect("the document is valid");
        let running = server.start().await.expect("the server starts");
        Self::running(database, running).await
    }

    /// Starts one that asks for credentials, as `settings` say.
    #[cfg(feature = "auth")]
    pub(crate) async fn with_auth(settings: &str) -> Self {
        let database = TestDatabase::create().await;
        let server = configured_with_auth(&database, settings);
        let running = server.start().await.expect("the server starts");
        Self::running(database, running).await
    }

    /// Starts one on a database that is there, and on the replica that `settings` name.
    #[cfg(feature = "replica")]
    pub(crate) async fn with_replica(database: TestDatabase, settings: &str) -> Self {
        let server = configured_with_replica(&database, settings);
        let running = server.start().await.expect("the server starts");
        Self::running(database, running).await
    }

    /// Starts one with the `scw` subsystem.
    #[cfg(feature = "scw")]
    pub(crate) async fn with_scw(settings: &str) -> Self {
        let database = TestDatabase::create().await;
        let server = configured_with_scw(&database, settings);
        let running = server.start().await.expect("the server starts");
        Self::running(database, running).await
    }

    /// Waits until the server cannot go on.
    #[cfg(feature = "auth")]
    pub(crate) async fn failed(&mut self) -> String {
        self.running.failed().await.to_string()
    }

    /// Starts one on a database that is already there.
    pub(crate) async fn on(database: TestDatabase, settings: &str) -> Self {
        let running = serve(&database, settings).await;
        Self::running(database, running).await
    }

    async fn running(database: TestDatabase, running: RunningServer) -> Self {
        let address = running.local_addr();
        Self {
            database,
            address,
            channel: connect(address).await,
            running,
        }
    }

    /// The address of its telemetry listener, which has to be configured.
    pub(crate) fn telemetry(&self) -> SocketAddr {
        self.running.telemetry_addr().expect("it is configured")
    }

    /// Starts a second instance on the same database.
    pub(crate) async fn another(&self, settings: &str) -> (RunningServer, Channel) {
        let running = serve(&self.database, settings).await;
        let channel = connect(running.local_addr()).await;
        (running, channel)
    }

    /// A connection of its own.
    pub(crate) async fn connect(&self) -> Channel {
        connect(self.address).await
    }

    pub(crate) fn publisher(&self) -> PublishServiceClient<Channel> {
        PublishServiceClient::new(self.channel.clone())
            .max_decoding_message_size(ANY_MESSAGE)
            .max_encoding_message_size(ANY_MESSAGE)
    }

    pub(crate) fn queries(&self) -> QueryServiceClient<Channel> {
        QueryServiceClient::new(self.channel.clone())
            .max_decoding_message_size(ANY_MESSAGE)
            .max_encoding_message_size(ANY_MESSAGE)
    }

    pub(crate) fn subscriptions(&self) -> SubscriptionServiceClient<Channel> {
        SubscriptionServiceClient::new(self.channel.clone())
            .max_decoding_message_size(ANY_MESSAGE)
            .max_encoding_message_size(ANY_MESSAGE)
    }

    pub(crate) fn identities(&self) -> IdentityServiceClient<Channel> {
        IdentityServiceClient::new(self.channel.clone())
            .max_decoding_message_size(ANY_MESSAGE)
            .max_encoding_message_size(ANY_MESSAGE)
    }

    pub(crate) fn configuration(&self) -> ConfigurationServiceClient<Channel> {
        ConfigurationServiceClient::new(self.channel.clone())
    }

    pub(crate) fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel.clone())
    }

    /// Publishes, and says what the server answers.
    pub(crate) async fn try_publish(
        &self,
        envelopes: impl IntoIterator<Item = ClientEnvelope>,
    ) -> Result<Vec<EnvelopeMeta>, Status> {
        let request = PublishRequest {
            envelopes: envelopes.into_iter().collect(),
        };
        Ok(self
            .publisher()
            .publish(request)
            .await?
            .into_inner()
            .envelope_metas)
    }

    /// Publishes what must be accepted.
    pub(crate) async fn publish(
        &self,
        envelopes: impl IntoIterator<Item = ClientEnvelope>,
    ) -> Vec<EnvelopeMeta> {
        self.try_publish(envelopes)
            .await
            .expect("the publish is accepted")
    }

    /// Reads all of a topic, page by page.
    pub(crate) async fn read(&self, topic: &Topic) -> Vec<ServerEnvelope> {
        let mut rows: Vec<ServerEnvelope> = Vec::new();
        loop {
            let after = rows.last().map_or(0, sequence_id);
            let request = QueryRequest {
                queries: vec![query(topic, after)],
                limit: 0,
            };
            let page = self
                .queries()
                .query(request)
                .await
                .expect("the query succeeds")
                .into_inner();
            rows.extend(page.envelopes);
            if !page
                .continuation
                .expect("a continuation is always there")
                .has_more
            {
                return rows;
            }
        }
    }

    /// Number of rows in a table.
    pub(crate) async fn count(&self, table: &'static str) -> i64 {
        let mut connection = self.database.connect().await;
        let count = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        sqlx::query_scalar(count)
            .fetch_one(&mut connection)
            .await
            .expect("rows can be counted")
    }

    /// Drains and stops the server; the database goes with the value.
    pub(crate) async fn stop(self) -> TestDatabase {
        self.running.stop().await;
        self.database
    }
}

async fn serve(database: &TestDatabase, settings: &str) -> RunningServer {
    let server = configured(database, settings);
    server.start().await.expect("the server starts")
}

/// A server that has not started yet.
pub(crate) fn configured(database: &TestDatabase, settings: &str) -> Server {
    configure(database, settings).expect("the document is valid")
}

/// A server, unless its configuration is refused.
pub(crate) fn configure(database: &TestDatabase, settings: &str) -> Result<Server, ConfigErrors> {
    configure_with(database, settings, &mut [])
}

/// A server with the `auth` subsystem that has not started yet.
#[cfg(feature = "auth")]
pub(crate) fn configured_with_auth(database: &TestDatabase, settings: &str) -> Server {
    let server = configure_with(
        database,
        settings,
        &mut [Box::new(xmtp_auth::AuthSubsystem)],
    );
    server.expect("the document is valid")
}

/// A server with the `replica` subsystem that has not started yet.
#[cfg(feature = "replica")]
pub(crate) fn configured_with_replica(database: &TestDatabase, settings: &str) -> Server {
    let replica = Box::new(xmtp_replica::ReplicaSubsystem);
    let server = configure_with(database, settings, &mut [replica]);
    server.expect("the document is valid")
}

/// A server with the `scw` subsystem that has not started yet.
#[cfg(feature = "scw")]
pub(crate) fn configured_with_scw(database: &TestDatabase, settings: &str) -> Server {
    let server = configure_with(database, settings, &mut [Box::new(xmtp_scw::ScwSubsystem)]);
    server.expect("the document is valid")
}

/// A subsystem that does nothing but answer for chains.
struct Chains(Arc<dyn ChainVerifier>);

impl Subsystem for Chains {
    fn name(&self) -> &'static str {
        "chains-of-a-test"
    }

    fn configure(&mut self, context: &mut Configure<'_>) -> Result<(), ConfigErrors> {
        context.start_step(Self(self.0.clone()));
        Ok(())
    }
}

impl StartStep for Chains {
    fn word(&self) -> &'static str {
        "chains-of-a-test"
    }

    fn run<'a>(
        self: Box<Self>,
        context: &'a mut Starting<'_>,
    ) -> BoxFuture<'a, Result<(), SubsystemError>> {
        context.chain_verifier(self.0);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A server with subsystems, unless its configuration is refused.
pub(crate) fn configure_with(
    database: &TestDatabase,
    settings: &str,
    subsystems: &mut [Box<dyn Subsystem>],
) -> Result<Server, ConfigErrors> {
    let mut keys: BTreeMap<&str, String> = BTreeMap::from([
        ("server.identifier", "\"org.example.test\"".to_owned()),
        ("server.listen", "\"127.0.0.1:0\"".to_owned()),
        ("telemetry.metrics_listen", "\"\"".to_owned()),
        ("database.url", format!("{:?}", database.url())),
        ("streams.poll_interval_ms", "10".to_owned()),
    ]);
    for line in settings.lines().filter(|line| !line.trim().is_empty()) {
        let (key, value) = line.split_once('=').expect("a setting is KEY = VALUE");
        keys.insert(key.trim(), value.trim().to_owned());
    }
    let lines: Vec<String> = keys
        .iter()
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    let document = Document::parse(&lines.join("\n"), Build::default(), |_| None)
        .expect("the document parses");
    Server::configure(document, subsystems)
}

/// Connects to a server.
pub(crate) async fn connect(address: SocketAddr) -> Channel {
    try_connect(address)
        .await
        .expect("the server accepts connections")
}

/// Connects to a server that may be gone.
pub(crate) async fn try_connect(address: SocketAddr) -> Result<Channel, Status> {
    Channel::from_shared(format!("http://{address}"))
        .expect("an address is a URI")
        .connect()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))
}

/// What the server says, if it says it in time.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future)
        .await
        .expect("the server says something in time")
}

/// A topic on the wire.
pub(crate) fn wire(topic: &Topic) -> WireTopic {
    WireTopic {
        topic: topic.as_bytes().to_vec().into(),
    }
}

/// A topic and where to start on it.
pub(crate) fn query(topic: &Topic, after: u64) -> TopicQuery {
    TopicQuery {
        topic: Some(wire(topic)),
        cursor: Some(Cursor { sequence_id: after }),
    }
}

/// The sequence id of a row.
pub(crate) fn sequence_id(row: &ServerEnvelope) -> u64 {
    meta_id(row.meta.as_ref().expect("a row has metadata"))
}

/// The sequence id in metadata.
pub(crate) fn meta_id(meta: &EnvelopeMeta) -> u64 {
    meta.cursor.expect("metadata has a cursor").sequence_id
}

/// The one detail of a refused publish; `None` where the status has none.
pub(crate) fn publish_error(status: &Status) -> Option<PublishError> {
    if status.details().is_empty() {
        return None;
    }
    let details = rpc::Status::decode(status.details()).expect("details are a google.rpc.Status");
    assert_eq!(
        details.code,
        i32::from(status.code()),
        "the detail repeats the code"
    );
    assert_eq!(
        details.message,
        status.message(),
        "the detail repeats the message"
    );
    let [detail] = &details.details[..] else {
        panic!("one detail, not {}", details.details.len())
    };
    assert_eq!(
        detail.type_url,
        "type.googleapis.com/xmtp.backend.v1.PublishError"
    );
    Some(PublishError::decode(&detail.value[..]).expect("the detail is a PublishError"))
}
