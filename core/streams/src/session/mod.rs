//! A stream's one owner: registrations, floors, updates, catch-up turns and timers (ARC-074).

mod challenge;
mod inbound;
mod steps;
#[cfg(test)]
pub(crate) mod tests;
mod turn;
pub(crate) mod update;

use std::collections::{HashMap, VecDeque};
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::{Instrument, Span};
use uuid::Uuid;
use xmtp_protocol::{SequenceId, Topic};
use xmtp_store::StoreError;
use xmtp_telemetry::{observed, operation};

use crate::feed::{Feed, Switch};
use crate::frame::{ClientFrame, FRAME_OVERHEAD, Frame, Target, Update};
use crate::metrics::{Phase, UpdateOutcome};
use crate::output::{self, Output, OutputStream};
use crate::port::{LiveRow, Mailbox, RegistrationId};
use crate::settings::{FIRST_TURN_TOPICS, Limits, Rate};
use crate::{End, Shared, metrics};
use challenge::Challenge;
use inbound::{ClientFrames, Inbound};
use steps::Steps;
use turn::Turn;

/// The two kinds of stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bidirectional,
    Static,
}

impl Kind {
    const fn label(self) -> &'static str {
        match self {
            Self::Bidirectional => "bidi",
            Self::Static => "static",
        }
    }
}

/// The state of one stream, owned by its task.
pub(crate) struct Session {
    shared: Arc<Shared>,
    kind: Kind,
    request_id: Uuid,
    mailbox: Mailbox,
    output: Output,
    topics: HashMap<Feed, Registration>,
    /// Topics with history to fetch, each at most once, the next one first (ARC-086).
    ready: VecDeque<Feed>,
    turn: Turn,
    /// Topics of the next turn: about as many as fill its frame, since rows beyond are looked up in vain.
    turn_topics: usize,
    /// Topics worked on since the stream last rested.
    taken: usize,
    /// Registered topics whose targets are being read.
    pending: Option<Pending>,
    /// Why the stream ends; what it is while the stream lives is said of a cancelled task.
    end: End,
}

/// One topic on this stream.
struct Registration {
    id: RegistrationId,
    /// Rows at or below it are not delivered (ARC-075). Raised when a row is admitted to the output.
    floor: SequenceId,
    /// Greatest id known to be owed.
    needed: SequenceId,
}

/// A head read that has to end before its topics may deliver (ARC-076).
struct Pending {
    acknowledgement: Acknowledgement,
    feeds: Vec<Feed>,
    heads: BoxFuture<'static, Result<Vec<SequenceId>, StoreError>>,
}

/// The frame that says the targets.
#[derive(Clone, Copy)]
enum Acknowledgement {
    Applied { id: u64 },
    StartedStatic,
}

/// What only a bidirectional stream has.
struct Control {
    last_id: u64,
    /// Updates behind the one in work, and their bytes.
    line: VecDeque<Update>,
    line_bytes: usize,
    updates: DefaultDirectRateLimiter,
    pings: DefaultDirectRateLimiter,
    challenge: Option<Challenge>,
    next_nonce: u64,
    inbound: Inbound,
}

impl Control {
    fn new(limits: &Limits, frames: ClientFrames) -> Self {
        Self {
            last_id: 0,
            line: VecDeque::new(),
            line_bytes: 0,
            updates: bucket(limits.updates),
            pings: bucket(limits.pings),
            challenge: None,
            next_nonce: 1,
            inbound: Inbound::new(frames),
        }
    }
}

/// What the owner waits for.
enum Event {
    Live(Vec<LiveRow>),
    Heads(Result<Vec<SequenceId>, StoreError>),
    Page(Result<xmtp_store::CatchUpPage, StoreError>),
    Client(Option<Result<ClientFrame, End>>),
    OutputTaken,
    Timer,
}

impl Session {
    /// Registers a session while streams are admitted.
    pub(crate) fn open(
        shared: Arc<Shared>,
        kind: Kind,
        request_id: Uuid,
    ) -> Result<(Self, OutputStream), End> {
        let mailbox = shared.registry.open()?;
        let (output, stream) = output::channel(shared.settings.frame_bytes());
        metrics::session_opened(kind.label());
        let session = Self {
            shared,
            kind,
            request_id,
            mailbox,
            output,
            topics: HashMap::new(),
            ready: VecDeque::new(),
            turn: Turn::Idle,
            turn_topics: FIRST_TURN_TOPICS,
            taken: 0,
            pending: None,
            end: End::Shutdown,
        };
        Ok((session, stream))
    }

    /// Serves a bidirectional stream to its end.
    pub(crate) fn run_bidirectional(
        mut self,
        frames: ClientFrames,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let mut control = Control::new(&self.shared.settings.limits, frames);
            let end = match self.admit(Frame::Started) {
                Ok(()) => self.serve(Some(&mut control)).await,
                Err(end) => end,
            };
            // Nothing more is read of the client.
            drop(control);
            self.close(end).await;
        }
        .instrument(Span::current())
    }

    /// Serves a static stream to its end.
    pub(crate) fn run_static(
        mut self,
        positions: Vec<(Topic, SequenceId)>,
    ) -> impl Future<Output = ()> + Send {
        async move {
            self.log_mutation(positions.len(), 0);
            let registered = self
                .register(Acknowledgement::StartedStatic, positions)
                .boxed()
                .await;
            let end = match registered {
                Ok(()) => self.serve(None).await,
                Err(end) => end,
            };
            self.close(end).await;
        }
        .instrument(Span::current())
    }

    /// Goes, for a known reason, and lets others run meanwhile.
    async fn close(&mut self, end: End) {
        self.end = end;
        self.output.finish(end);
        // What still comes for it goes nowhere.
        self.mailbox.port().end(end);
        self.pending = None;
        self.turn = Turn::Idle;
        metrics::topics_released(self.topics.len());
        for (feed, registration) in self.topics.drain() {
            // It is over already.
            let _ = self.shared.pace.step(&mut self.taken, || None).await;
            self.shared.registry.deregister(&feed, registration.id);
        }
    }

    /// Before work on one of what may be many topics.
    async fn step(&mut self) -> Result<(), End> {
        let mut steps = Steps {
            pace: &self.shared.pace,
            taken: &mut self.taken,
            output: &self.output,
            mailbox: &self.mailbox,
        };
        steps.step().await
    }

    /// Handles events until one ends the stream. What only an update needs is boxed: an idle stream keeps this
    /// future, and its largest part with it.
    async fn serve(&mut self, mut control: Option<&mut Control>) -> End {
        // Moved only when it goes off: a busy stream puts its time off with every frame.
        let mut alarm = pin!(sleep_until(Instant::now()));
        loop {
            self.start_turn();
            let timer = self.next_timer(
                control
                    .as_deref_mut()
                    .and_then(|control| control.challenge.as_mut()),
            );
            let event = tokio::select! {
                biased;
                rows = self.mailbox.recv() => match rows {
                    Ok(rows) => Event::Live(rows),
                    Err(end) => return end,
                },
                heads = heads(&mut self.pending) => Event::Heads(heads),
                page = self.turn.read() => Event::Page(page),
                // A frame may have to be answered: it waits for room, and the client's burst with it.
                frame = next_frame(control.as_deref_mut()), if self.output.has_answer_room() =>
                    Event::Client(frame),
                () = self.output.taken() => Event::OutputTaken,
                due = wait_until(alarm.as_mut(), timer) => {
                    if let Some(later) = due {
                        alarm.as_mut().reset(later);
                        continue;
                    }
                    Event::Timer
                }
            };
            if let Err(end) = self.handle(event, control.as_deref_mut()).await {
                return end;
            }
        }
    }

    async fn handle(&mut self, event: Event, control: Option<&mut Control>) -> Result<(), End> {
        match event {
            Event::Live(rows) => self.deliver_live(rows),
            Event::Heads(heads) => {
                self.acknowledge(heads).boxed().await?;
                match control {
                    Some(control) => self.next_update(control).await,
                    None => Ok(()),
                }
            }
            Event::Page(page) => {
                let page = page.map_err(|error| self.read_failed(&error, "history read failed"))?;
                self.turn.hold(page);
                self.admit_held()
            }
            Event::Client(None) => Err(End::Client),
            Event::Client(Some(frame)) => match control {
                Some(control) => self.handle_frame(frame?, control).await,
                None => Ok(()),
            },
            Event::OutputTaken if self.output.is_abandoned() => Err(End::Client),
            Event::OutputTaken => self.admit_held(),
            Event::Timer => match control {
                Some(control) => self.probe(control),
                None => self.admit(Frame::Keepalive),
            },
        }
    }

    /// When the idle time, or the open challenge, runs out.
    fn next_timer(&self, challenge: Option<&mut Challenge>) -> Option<Instant> {
        if let Some(challenge) = challenge {
            if let Some(taken) = self.output.ping_taken() {
                challenge.handed_off(taken);
            }
            return Some(challenge.deadline(self.shared.settings.max_pong_wait));
        }
        // Nothing is said before the first frame of a static stream.
        let silent = self.kind == Kind::Static && self.pending.is_some();
        let idle = self.output.last_admission() + self.shared.settings.keepalive_interval();
        (!silent).then_some(idle)
    }

    /// Sends a Ping after idle time, or judges the one that is open.
    fn probe(&mut self, control: &mut Control) -> Result<(), End> {
        if let Some(challenge) = control.challenge {
            if !challenge.is_handed_off() {
                return Err(End::Backpressure);
            }
            let max_bytes = self.shared.settings.limits.max_request_bytes;
            control.inbound.take_answer(&challenge, max_bytes)?;
            control.challenge = None;
            return Ok(());
        }
        let nonce = control.next_nonce;
        control.next_nonce += 1;
        self.admit(Frame::Ping(nonce))?;
        control.challenge = Some(Challenge::new(nonce, Instant::now()));
        Ok(())
    }

    async fn handle_frame(&mut self, frame: ClientFrame, control: &mut Control) -> Result<(), End> {
        metrics::frame_received(&frame);
        match frame {
            ClientFrame::Unset => Err(End::Invalid("request is absent")),
            ClientFrame::Ping(nonce) => {
                if control.pings.check().is_err() {
                    return Err(End::RateLimited("ping rate exceeded"));
                }
                self.admit(Frame::Pong(nonce))
            }
            ClientFrame::Pong(nonce) => {
                if let Some(challenge) = &mut control.challenge {
                    if let Some(taken) = self.output.ping_taken() {
                        challenge.handed_off(taken);
                    }
                    if challenge.is_answered_by(nonce) {
                        control.challenge = None;
                    }
                }
                Ok(())
            }
            ClientFrame::Update(update) => {
                if control.updates.check().is_err() {
                    metrics::update(UpdateOutcome::RateLimited);
                    return Err(End::RateLimited("update rate exceeded"));
                }
                control.line_bytes += update.encoded_len;
                control.line.push_back(update);
                self.next_update(control).await?;
                if control.line_bytes > self.shared.settings.limits.max_request_bytes {
                    return Err(End::Capacity("pending update capacity exceeded"));
                }
                Ok(())
            }
        }
    }

    /// Takes updates from the line until one has to wait for targets.
    async fn next_update(&mut self, control: &mut Control) -> Result<(), End> {
        while self.pending.is_none()
            && let Some(update) = control.line.pop_front()
        {
            control.line_bytes -= update.encoded_len;
            let applied = self.apply(&update, control).boxed();
            observed(operation!("stream.update"), applied).await?;
        }
        Ok(())
    }

    /// Puts an update in force: all of it, or nothing and the stream ends (STR-002).
    async fn apply(&mut self, update: &Update, control: &mut Control) -> Result<(), End> {
        let limits = &self.shared.settings.limits;
        let registered = |topic: &Topic| self.topics.contains_key(topic);
        let checked = update::check(
            update,
            control.last_id,
            self.topics.len(),
            registered,
            limits,
            &mut Steps {
                pace: &self.shared.pace,
                taken: &mut self.taken,
                output: &self.output,
                mailbox: &self.mailbox,
            },
        )
        .await
        .inspect_err(|_| metrics::update(UpdateOutcome::Invalid))?;
        control.last_id = checked.id;
        let removed = self.remove(&checked.removes).await?;
        let new = checked.new;
        metrics::update(UpdateOutcome::Applied);
        self.log_mutation(new.len(), removed);
        if new.is_empty() {
            return self.admit(Frame::Applied {
                id: checked.id,
                targets: Vec::new(),
            });
        }
        self.register(Acknowledgement::Applied { id: checked.id }, new)
            .await
    }

    /// Registers topics, and only then asks for their heads (ARC-076).
    async fn register(
        &mut self,
        acknowledgement: Acknowledgement,
        positions: Vec<(Topic, SequenceId)>,
    ) -> Result<(), End> {
        let topics: Vec<Topic> = positions.iter().map(|(topic, _)| *topic).collect();
        let before = self.topics.len();
        self.topics.reserve(positions.len());
        let mut feeds = Vec::with_capacity(positions.len());
        let mut registered = Ok(());
        for (topic, after) in positions {
            registered = self.step().await;
            if registered.is_err() {
                break;
            }
            let registry = &self.shared.registry;
            let (feed, id) = registry.register(self.mailbox.port(), topic, after);
            feeds.push(feed.clone());
            self.topics.insert(
                feed,
                Registration {
                    id,
                    floor: after,
                    needed: after,
                },
            );
        }
        metrics::topics_registered(self.topics.len() - before);
        registered?;
        let shared = Arc::clone(&self.shared);
        let heads = async move {
            let reads = shared.reads.clone();
            let read = async move { reads.heads(&topics).await };
            shared.read(read).await
        }
        .boxed();
        self.pending = Some(Pending {
            acknowledgement,
            feeds,
            heads,
        });
        Ok(())
    }

    /// Says the targets; from here on the topics may deliver.
    async fn acknowledge(&mut self, heads: Result<Vec<SequenceId>, StoreError>) -> Result<(), End> {
        let heads = heads.map_err(|error| self.read_failed(&error, "target capture failed"))?;
        let Some(Pending {
            acknowledgement,
            feeds,
            ..
        }) = self.pending.take()
        else {
            return Ok(());
        };
        let target = |(feed, through): (&Feed, &SequenceId)| Target {
            topic: *feed.topic(),
            through: *through,
        };
        let targets = feeds.iter().zip(&heads).map(target).collect();
        self.admit(match acknowledgement {
            Acknowledgement::Applied { id } => Frame::Applied { id, targets },
            Acknowledgement::StartedStatic => Frame::StartedStatic(targets),
        })?;
        for (feed, through) in feeds.into_iter().zip(heads) {
            self.step().await?;
            self.settle(feed, through);
        }
        Ok(())
    }

    /// Drops topics and everything meant for them; says how many were registered.
    async fn remove(&mut self, topics: &[Topic]) -> Result<usize, End> {
        let mut removed = 0;
        let mut stepped = Ok(());
        for topic in topics {
            stepped = self.step().await;
            if stepped.is_err() {
                break;
            }
            if let Some((feed, registration)) = self.topics.remove_entry(topic) {
                self.shared.registry.deregister(&feed, registration.id);
                removed += 1;
            }
        }
        if removed > 0 {
            metrics::topics_released(removed);
            self.ready.retain(|feed| self.topics.contains_key(feed));
            // A turn with a removed topic is dropped; its other topics keep their place in front.
            let remaining = self
                .turn
                .cancel_without(|feed| !self.topics.contains_key(feed));
            for feed in remaining.into_iter().rev() {
                self.ready.push_front(feed);
            }
        }
        stepped.map(|()| removed)
    }

    /// Queues a topic that owes history, known to reach to `through`, or switches it to direct rows.
    fn settle(&mut self, feed: Feed, through: SequenceId) {
        let Some(registration) = self.topics.get_mut(&feed) else {
            return;
        };
        registration.needed = registration.needed.max(through);
        if registration.floor >= registration.needed {
            match feed.switch_if_current(registration.id, registration.floor) {
                // Gone is what was removed meanwhile; added again, it has another registration.
                Switch::Current | Switch::Gone => return,
                Switch::Behind(needed) => registration.needed = needed,
            }
        }
        self.ready.push_back(feed);
    }

    /// Admits direct rows of current topics.
    fn deliver_live(&mut self, rows: Vec<LiveRow>) -> Result<(), End> {
        let mut admitted = 0;
        for row in rows {
            let Some(registration) = self.topics.get_mut(&row.topic) else {
                continue;
            };
            if registration.id != row.registration || row.sequence_id <= registration.floor {
                continue;
            }
            if FRAME_OVERHEAD + row.encoded.len() > self.shared.settings.frame_bytes() {
                return Err(End::OVERSIZED);
            }
            self.output
                .admit_row(row.encoded)
                .map_err(|_| End::Backpressure)?;
            registration.floor = row.sequence_id;
            admitted += 1;
        }
        metrics::envelopes_sent(Phase::Live, admitted);
        Ok(())
    }

    /// The event of ARC-096.
    fn log_mutation(&self, added: usize, removed: usize) {
        tracing::info!(request_id = %self.request_id, added, removed, "stream interests changed");
    }

    fn read_failed(&self, error: &StoreError, text: &'static str) -> End {
        tracing::error!(request_id = %self.request_id, %error, text);
        xmtp_store::count_error(error.kind());
        match error.kind() {
            xmtp_store::ErrorKind::Invariant => End::Corrupt,
            _ => End::Database(text),
        }
    }

    /// Admits a control frame, which cannot wait.
    fn admit(&mut self, frame: Frame) -> Result<(), End> {
        if frame.wire_len() > self.shared.settings.limits.max_response_bytes {
            return Err(End::Capacity("pending control capacity exceeded"));
        }
        self.output.admit(frame).map_err(|_| End::Backpressure)
    }
}

impl Drop for Session {
    /// Every exit deregisters the session and ends its output, once (ARC-082); only the end of the process, in
    /// which nobody is served any more, may interrupt one that does so topic by topic.
    fn drop(&mut self) {
        for (feed, registration) in &self.topics {
            self.shared.registry.deregister(feed, registration.id);
        }
        metrics::topics_released(self.topics.len());
        self.shared.registry.close(self.mailbox.port());
        metrics::session_ended(self.kind.label(), self.end);
        self.output.finish(self.end);
    }
}

/// The next client frame; never, on a static stream. Cancel-safe.
async fn next_frame(control: Option<&mut Control>) -> Option<Result<ClientFrame, End>> {
    match control {
        None => std::future::pending().await,
        Some(control) => control.inbound.next().await,
    }
}

/// The targets that are being read; never, while none are. Cancel-safe.
async fn heads(pending: &mut Option<Pending>) -> Result<Vec<SequenceId>, StoreError> {
    match pending {
        Some(pending) => (&mut pending.heads).await,
        None => std::future::pending().await,
    }
}

/// Waits until `alarm` goes off and answers `timer` where that is later; never, without a timer. Cancel-safe.
async fn wait_until(mut alarm: Pin<&mut Sleep>, timer: Option<Instant>) -> Option<Instant> {
    let Some(timer) = timer else {
        return std::future::pending().await;
    };
    if timer < alarm.deadline() {
        alarm.as_mut().reset(timer);
    }
    alarm.await;
    (timer > Instant::now()).then_some(timer)
}

/// A bucket that is full now (API-258).
fn bucket(rate: Rate) -> DefaultDirectRateLimiter {
    RateLimiter::direct(Quota::per_second(rate.per_second).allow_burst(rate.burst))
}
