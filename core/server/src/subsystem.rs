//! The plug: how an optional capability joins the server.
//!
//! The composition root lists its subsystems explicitly. Each goes through phases, and each phase hands
//! it only what exists by then, through a context of that phase:
//!
//! 1. [`Subsystem::configure`]: take its own parts of the document, and register what it offers.
//! 2. [`Observer::observe`], for those that registered one: watch what the process tells, from before its first log
//!    line until it has ended.
//! 3. [`StartStep::run`], for those that registered one: bring up what has to be there before the first
//!    request.
//! 4. [`ReadSource::open`], once the primary is migrated: open the database that answers what may lag.
//!
//! A subsystem whose part of the document is absent registers nothing, and then costs nothing.

use std::error::Error;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Extensions, HeaderMap};
use secrecy::SecretString;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tracing::Span;
use xmtp_protocol::identity::{ChainVerifier, NoChainVerifier};
use xmtp_protocol::proto::xmtp::backend::v1::GetConfigurationResponse;
use xmtp_store::{Primary, Reads, StartupCheckError};
use xmtp_telemetry::Family;

use crate::check::Check;
use crate::config::{ConfigErrors, Document, OwnedSchema};
use crate::telemetry::Observer;
use crate::telemetry::monitoring::{Alert, Group};
use crate::telemetry::route::Route;

/// What went wrong inside a subsystem. Shows no configured value.
pub type SubsystemError = Box<dyn Error + Send + Sync>;

/// One optional capability.
pub trait Subsystem: Send {
    /// The name of its cargo feature.
    fn name(&self) -> &'static str;

    /// Schemas of the dotted configuration paths that it owns.
    fn schemas(&self) -> Vec<OwnedSchema> {
        Vec::new()
    }

    /// The words that it adds to telemetry, configured or not: a build that has the subsystem describes its
    /// families (contract decisions, 3).
    fn telemetry(&self) -> TelemetryWords {
        TelemetryWords::default()
    }

    /// Takes its parts out of the document, checks them, and registers what they ask for.
    ///
    /// # Errors
    /// Every problem of its parts, located.
    fn configure(&mut self, context: &mut Configure<'_>) -> Result<(), ConfigErrors>;
}

/// Extension point: what telemetry says of a subsystem.
#[derive(Clone, Default)]
pub struct TelemetryWords {
    /// Its metric families.
    pub families: &'static [&'static Family],
    /// The paths that it serves.
    pub routes: &'static [Route],
    /// The names of its operation spans.
    pub operations: &'static [&'static str],
    /// Its alert rules.
    pub alerts: Vec<Alert>,
    /// Its rows of the dashboard.
    pub panels: Vec<Group>,
}

/// What a subsystem can do while the document is being taken apart.
pub struct Configure<'a> {
    /// The document, without what others have taken.
    pub document: &'a mut Document,
    registrar: &'a mut Registrar,
}

impl<'a> Configure<'a> {
    pub(crate) const fn new(document: &'a mut Document, registrar: &'a mut Registrar) -> Self {
        Self {
            document,
            registrar,
        }
    }

    /// Serves `database.url`s whose scheme is `scheme`.
    pub fn database_provider(
        &mut self,
        scheme: &'static str,
        provider: impl DatabaseProvider + 'static,
    ) {
        self.registrar
            .database_providers
            .push((scheme, Box::new(provider)));
    }

    /// Answers from `source` what may lag. There is one; the last that is registered is read from.
    pub fn read_source(&mut self, source: impl ReadSource + 'static) {
        self.registrar.read_source = Some(Box::new(source));
    }

    /// Has `observer` watch what the process tells.
    pub fn observer(&mut self, observer: impl Observer + 'static) {
        self.registrar.observers.push(Box::new(observer));
    }

    /// Has `step` done at every start, before the database is connected to. The steps run in the order of their
    /// registration.
    pub fn start_step(&mut self, step: impl StartStep + 'static) {
        self.registrar.start_steps.push(Box::new(step));
    }
}

/// What the subsystems of a server have registered.
#[derive(Default)]
pub(crate) struct Registrar {
    database_providers: Vec<(&'static str, Box<dyn DatabaseProvider>)>,
    read_source: Option<Box<dyn ReadSource>>,
    observers: Vec<Box<dyn Observer>>,
    start_steps: Vec<Box<dyn StartStep>>,
}

impl Registrar {
    /// Where to read what may lag; `None` where that is the primary.
    pub(crate) fn read_source(&self) -> Option<&dyn ReadSource> {
        self.read_source.as_deref()
    }

    /// The observers, which begin once.
    pub(crate) fn take_observers(&mut self) -> Vec<Box<dyn Observer>> {
        std::mem::take(&mut self.observers)
    }

    /// The words of the start steps, for whoever waits for them.
    pub(crate) fn step_words(&self) -> impl Iterator<Item = &'static str> {
        self.start_steps.iter().map(|step| step.word())
    }

    /// The start steps, which run once.
    pub(crate) fn take_start_steps(&mut self) -> Vec<Box<dyn StartStep>> {
        std::mem::take(&mut self.start_steps)
    }

    /// The provider of a scheme, if a subsystem has registered one.
    pub(crate) fn database_provider(&self, scheme: &str) -> Option<&dyn DatabaseProvider> {
        let mut providers = self.database_providers.iter();
        providers
            .find(|(served, _)| *served == scheme)
            .map(|(_, provider)| provider.as_ref())
    }
}

/// Extension point: a database that the server brings along.
pub trait DatabaseProvider: Send + Sync {
    /// Starts the database that `address` names, which is the whole configured URL.
    fn start<'a>(
        &'a self,
        address: &'a SecretString,
    ) -> BoxFuture<'a, Result<Box<dyn ProvidedDatabase>, SubsystemError>>;
}

/// A database that runs for this process alone.
pub trait ProvidedDatabase: Send + Sync {
    /// Its `postgres://` address.
    fn url(&self) -> SecretString;

    /// Stops it, in bounded time.
    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), SubsystemError>>;
}

/// Extension point: the database that answers what may lag (OPS-009): newest envelopes, the inboxes of identifiers,
/// and streams. Without one, the primary does.
pub trait ReadSource: Send + Sync {
    /// What `/readyz` says while it is waited for.
    fn word(&self) -> &'static str;

    /// Opens it, once `primary` is migrated, and waits until it shows the migrations.
    ///
    /// # Errors
    /// The server does not start, and says why with this: it cannot be read, or its schema is not this program's.
    fn open<'a>(&'a self, primary: &'a Primary) -> BoxFuture<'a, Result<Reads, StartupCheckError>>;

    /// What `doctor` finds in it.
    fn examine<'a>(&'a self, primary: &'a Primary) -> BoxFuture<'a, Vec<Check>>;
}

/// Extension point: what has to be done before the server takes its first request.
pub trait StartStep: Send + Sync {
    /// What `/readyz` says while it is waited for.
    fn word(&self) -> &'static str;

    /// Does it.
    ///
    /// # Errors
    /// The server does not start, and says why with this.
    fn run<'a>(
        self: Box<Self>,
        context: &'a mut Starting<'_>,
    ) -> BoxFuture<'a, Result<(), SubsystemError>>;
}

/// What a subsystem can do while the server starts.
pub struct Starting<'a> {
    /// What clients are told of the deployment. It is fixed once the server serves (CONF-012).
    pub published: &'a mut GetConfigurationResponse,
    attachments: &'a mut Attachments,
}

impl<'a> Starting<'a> {
    pub(crate) const fn new(
        published: &'a mut GetConfigurationResponse,
        attachments: &'a mut Attachments,
    ) -> Self {
        Self {
            published,
            attachments,
        }
    }

    /// Asks `gate` about every request. There is one; the last that is given is asked.
    pub fn request_gate(&mut self, gate: Arc<dyn RequestGate>) {
        self.attachments.gate = Some(gate);
    }

    /// Asks `verifier` about the signatures of contract wallets: those of identity updates, and those
    /// that clients want verified. There is one; the last that is given is asked.
    pub fn chain_verifier(&mut self, verifier: Arc<dyn ChainVerifier>) {
        self.attachments.chain = verifier;
    }

    /// Runs `task` beside the server until it stops. An error ends the start, or drains the server, and ends the
    /// process with a failure.
    pub fn task(
        &mut self,
        task: impl Future<Output = Result<(), SubsystemError>> + Send + 'static,
    ) {
        let Attachments {
            stop,
            tasks,
            failures,
            ..
        } = &self.attachments;
        let (stop, failures) = (stop.clone(), failures.clone());
        tasks.spawn(async move {
            if let Some(Err(error)) = stop.run_until_cancelled(task).await {
                // One is enough to stop the server.
                let _ = failures.try_send(error);
            }
        });
    }
}

/// What start steps have attached to a server.
pub(crate) struct Attachments {
    pub(crate) gate: Option<Arc<dyn RequestGate>>,
    pub(crate) chain: Arc<dyn ChainVerifier>,
    stop: CancellationToken,
    tasks: TaskTracker,
    failures: mpsc::Sender<SubsystemError>,
}

impl Attachments {
    /// Of a server whose tasks are among `tasks` and end with `stop`; and what is heard of their failures.
    pub(crate) fn new(stop: CancellationToken, tasks: TaskTracker) -> (Self, Failures) {
        let (sender, receiver) = mpsc::channel(1);
        let attachments = Self {
            gate: None,
            chain: Arc::new(NoChainVerifier),
            stop,
            tasks,
            failures: sender.clone(),
        };
        let failures = Failures {
            receiver,
            _sender: sender,
        };
        (attachments, failures)
    }
}

/// The first error of a task.
pub(crate) struct Failures {
    receiver: mpsc::Receiver<SubsystemError>,
    /// Kept, so that receiving waits where there is no task.
    _sender: mpsc::Sender<SubsystemError>,
}

impl Failures {
    /// Waits for it. Can be dropped and called again.
    pub(crate) async fn first(&mut self) -> SubsystemError {
        match self.receiver.recv().await {
            Some(error) => error,
            // It is open as long as this is there.
            None => std::future::pending().await,
        }
    }
}

/// Extension point: judges every request by its head, before drain admission and before a byte of its body is
/// read. Preflights are answered before.
pub trait RequestGate: Send + Sync {
    /// Lets the request in, and may leave for its handler, in the extensions, who sends it, and on its span, as
    /// [`PRINCIPAL`]; or turns it away. It is dropped with the request, and ends with its deadline; a drain waits for it.
    ///
    /// # Errors
    /// Why not.
    fn judge<'a>(&'a self, head: &'a mut RequestHead<'_>) -> BoxFuture<'a, Result<(), Rejection>>;
}

/// Field of the request span: who sends the request, under a name that the operator gave.
pub const PRINCIPAL: &str = "auth.principal";

/// The connection that a request came on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Semaphore>);

impl Default for Connection {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Connection {
    /// Waits until no other request of this connection has the turn, and keeps it until it is dropped: where requests
    /// compete before they are let in, many of one connection then count as one.
    pub async fn turn(&self) -> impl Sized {
        // Nothing closes it.
        self.0.acquire().await.ok()
    }
}

/// What a request is judged by.
pub struct RequestHead<'a> {
    /// The path as it was sent, neither decoded nor normalised.
    pub path: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// What it came on.
    pub connection: &'a Connection,
    /// What the handler will find beside the message.
    pub extensions: &'a mut Extensions,
    /// The request's span, disabled where the request is not gRPC.
    pub span: &'a Span,
}

/// Why a request is turned away.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// The answer.
    pub status: Status,
    /// A fixed word, which is logged.
    pub reason: &'static str,
}
