//! What can be known before a server starts: one value for each check. Changes nothing, and shows numbers
//! and fixed words only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xmtp_store::{Condition, Data, Inspection, SchemaState};

pub use crate::check::{Check, Outcome};

use crate::config::Config;
use crate::config::checks::retention_fits;
use crate::lifecycle::{Server, StartError};

/// Difference of the clocks above which a warning is due.
const CLOCKS_DIFFER: Duration = Duration::from_secs(1);

/// Difference of the clocks above which key packages are judged wrongly.
const CLOCKS_FAIL: Duration = Duration::from_mins(1);

/// What to do where the database does not answer one question.
const UNREAD: &str = "look at the server's log, and for who holds a lock";

/// How long a port that should serve has to accept a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// Whether the server's ports should be free, or should be its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Before a start.
    Free,
    /// While it serves on this machine.
    Serving,
}

impl Server {
    /// Looks at everything that a start depends on.
    pub async fn examine(&self, ports: Ports) -> Vec<Check> {
        let source = self.read_source();
        let found = self.visit(async |primary| {
            let condition = primary.condition().await?;
            let of_source = match source {
                Some(source) => source.examine(primary).await,
                None => Vec::new(),
            };
            Ok((condition, of_source))
        });
        let found = found.await;
        let mut checks = vec![connection(found.as_ref().err())];
        let subject = found.as_ref().ok().map(|(condition, _)| Subject {
            condition,
            config: self.config(),
            local_ns: unix_nanoseconds(condition.asked_at),
        });
        let unasked = || Verdict::skipped("the database could not be asked");
        checks.extend(DATABASE.iter().map(|(name, judge)| match &subject {
            Some(subject) => judge(subject).named(name),
            None => unasked().named(name),
        }));
        checks.extend(match (found, source) {
            (Ok((_, of_source)), _) => of_source,
            (Err(_), Some(source)) => vec![unasked().named(source.word())],
            (Err(_), None) => Vec::new(),
        });
        let grpc = Some(self.config().server.listen.0);
        let metrics = self.config().telemetry.metrics_listen.0;
        // Both at once, as the server has them.
        let mut held = Vec::new();
        for (name, address) in [("grpc-port", grpc), ("metrics-port", metrics)] {
            checks.push(port(address, ports, &mut held).named(name));
        }
        checks
    }

    /// Counts what the database holds.
    ///
    /// # Errors
    /// [`StartError`]: it cannot be reached or asked.
    pub async fn inspect(&self) -> Result<Inspection, StartError> {
        let limit = self
            .config()
            .publishing
            .max_publish_duration_ms
            .milliseconds();
        self.visit(async |primary| primary.inspect(limit).await)
            .await
    }
}

/// What the checks of the database look at.
#[derive(Clone, Copy)]
struct Subject<'a> {
    condition: &'a Condition,
    config: &'a Config,
    /// This machine's clock when the database told its own.
    local_ns: i64,
}

/// A check without its name.
struct Verdict {
    outcome: Outcome,
    finding: String,
    advice: &'static str,
}

impl Verdict {
    fn ok(finding: impl Into<String>) -> Self {
        Self::new(Outcome::Ok, finding, "")
    }

    fn warning(finding: impl Into<String>, advice: &'static str) -> Self {
        Self::new(Outcome::Warning, finding, advice)
    }

    fn failed(finding: impl Into<String>, advice: &'static str) -> Self {
        Self::new(Outcome::Failed, finding, advice)
    }

    fn skipped(finding: &str) -> Self {
        Self::new(Outcome::Skipped, finding, "")
    }

    fn new(outcome: Outcome, finding: impl Into<String>, advice: &'static str) -> Self {
        Self {
            outcome,
            finding: finding.into(),
            advice,
        }
    }

    fn named(self, name: &'static str) -> Check {
        Check {
            name,
            outcome: self.outcome,
            finding: self.finding,
            advice: self.advice,
        }
    }
}

type Judge = fn(&Subject<'_>) -> Verdict;

/// The checks of the database, in the order in which they are shown.
const DATABASE: [(&str, Judge); 13] = [
    ("postgres-version", version),
    ("writable", writable),
    ("crash-safety", crash_safety),
    ("synchronous-commit", synchronous_commit),
    ("schema", schema),
    ("rights", rights),
    ("sequence", sequence),
    ("boundary", boundary),
    ("retention", retention),
    ("connections", connections),
    ("locks", locks),
    ("clock", clock),
    ("wal-archiving", wal_archiving),
];

fn connection(error: Option<&StartError>) -> Check {
    match error {
        None => Verdict::ok("connected"),
        Some(error) => Verdict::failed(
            error.to_string(),
            "see the address, the server and the user's rights in docs/errors.md",
        ),
    }
    .named("connection")
}

fn version(subject: &Subject<'_>) -> Verdict {
    let number = subject.condition.version_number;
    let finding = format!("PostgreSQL {}.{}", number / 10_000, number % 10_000);
    if number >= 170_000 {
        Verdict::ok(finding)
    } else {
        Verdict::failed(finding, "use PostgreSQL 17 or later")
    }
}

fn writable(subject: &Subject<'_>) -> Verdict {
    if subject.condition.read_only {
        let advice = "point database.url at the primary, and see default_transaction_read_only";
        Verdict::failed("a standby, or read-only", advice)
    } else {
        Verdict::ok("accepts writes")
    }
}

fn crash_safety(subject: &Subject<'_>) -> Verdict {
    let advice =
        "set fsync and full_page_writes to on: a crash loses or corrupts acknowledged envelopes";
    match (
        subject.condition.durability.fsync,
        subject.condition.durability.full_page_writes,
    ) {
        (true, true) => Verdict::ok("fsync and full_page_writes are on"),
        (false, _) => Verdict::failed("fsync is off", advice),
        (true, false) => Verdict::failed("full_page_writes is off", advice),
    }
}

fn synchronous_commit(subject: &Subject<'_>) -> Verdict {
    if subject.condition.durability.asynchronous_commit {
        let advice = "set it to on or stricter: a crash loses publishes that were acknowledged";
        Verdict::failed("synchronous_commit is off", advice)
    } else {
        Verdict::ok("a commit is durable before it is answered")
    }
}

fn schema(subject: &Subject<'_>) -> Verdict {
    let Condition {
        schema,
        may_create,
        missing,
        ..
    } = subject.condition;
    let schema = match schema {
        Ok(schema) => schema,
        Err(error) => {
            return Verdict::failed(format!("_sqlx_migrations cannot be read: {error}"), UNREAD);
        }
    };
    let advice = "let the user create tables in its schema: GRANT CREATE ON SCHEMA";
    match schema {
        SchemaState::Current if missing.is_empty() => Verdict::ok("is the one of this program"),
        SchemaState::Current => Verdict::failed(
            format!("missing: {}", missing.join(", ")),
            "restore the database: the migration is on record, and makes nothing again",
        ),
        SchemaState::Empty if *may_create => Verdict::ok("is made at the first start"),
        SchemaState::Older if *may_create => Verdict::ok("is brought up to date at the start"),
        SchemaState::Empty | SchemaState::Older => {
            Verdict::failed("the user may not create tables", advice)
        }
        SchemaState::Unusable { version, problem } => Verdict::failed(
            format!("migration {version} of the database {problem}"),
            "use the program that migrated the database, or a newer one",
        ),
    }
}

fn rights(subject: &Subject<'_>) -> Verdict {
    match subject.condition.rights_missing {
        None => Verdict::skipped("the tables are not there"),
        Some(0) if subject.condition.missing.is_empty() => {
            Verdict::ok("every table can be read and written")
        }
        Some(0) => Verdict::ok("every table that is there can be read and written"),
        Some(missing) => Verdict::failed(
            format!("{missing} tables or sequences are closed to the user"),
            "make the user their owner, or grant SELECT, INSERT and UPDATE, and USAGE of the sequence",
        ),
    }
}

/// What the tables say.
fn data(subject: &Subject<'_>) -> Result<Data, Verdict> {
    match &subject.condition.data {
        None => Err(Verdict::skipped("the tables cannot be read")),
        Some(Ok(data)) => Ok(*data),
        Some(Err(error)) => Err(Verdict::failed(
            format!("the tables cannot be read: {error}"),
            UNREAD,
        )),
    }
}

/// S38: ids only ever grow.
fn sequence(subject: &Subject<'_>) -> Verdict {
    let Data {
        allocated,
        greatest,
        maximum,
        sequence_is_sound,
        ..
    } = match data(subject) {
        Ok(data) => data,
        Err(verdict) => return verdict,
    };
    let finding = format!("{allocated} handed out, {greatest} is the greatest stored");
    if !sequence_is_sound {
        let advice = "give envelope_sequence CACHE 1, INCREMENT 1 and NO CYCLE again";
        Verdict::failed("ids are not handed out one by one", advice)
    } else if allocated < greatest {
        Verdict::failed(
            finding,
            "raise envelope_sequence above every id that was ever handed out, with a wide margin",
        )
    } else if allocated >= maximum {
        Verdict::failed(
            format!("all ids to {maximum} are handed out"),
            "give envelope_sequence NO MAXVALUE again: until then every publish answers INTERNAL",
        )
    } else if maximum < i64::MAX {
        Verdict::warning(
            format!("{finding}, and {maximum} is the last"),
            "give envelope_sequence NO MAXVALUE again",
        )
    } else {
        Verdict::ok(finding)
    }
}

fn boundary(subject: &Subject<'_>) -> Verdict {
    match data(subject) {
        Err(verdict) => verdict,
        Ok(Data { boundary: None, .. }) => Verdict::failed(
            "the row of allocation_boundary is missing",
            "restore it with the rest of the backup",
        ),
        Ok(Data {
            boundary: Some(boundary),
            allocated,
            ..
        }) if boundary > allocated => Verdict::failed(
            format!("{boundary} is closed, {allocated} handed out"),
            "raise envelope_sequence above every id that was ever handed out, with a wide margin",
        ),
        Ok(Data {
            boundary: Some(boundary),
            allocated,
            ..
        }) => Verdict::ok(format!("{} ids above it", allocated - boundary)),
    }
}

/// OPS-020.
fn retention(subject: &Subject<'_>) -> Verdict {
    match retention_fits(subject.condition.clock_ns, &subject.config.retention) {
        Ok(()) => Verdict::ok("every period fits the database's clock"),
        Err(error) => Verdict::failed(error.to_string(), "shorten the period"),
    }
}

/// The pool, and the tailer's connection.
fn connections(subject: &Subject<'_>) -> Verdict {
    let Condition {
        connections,
        connections_in_use,
        ..
    } = *subject.condition;
    let needed = i64::from(subject.config.database.max_connections.to_u32()) + 1;
    let finding = format!(
        "{needed} for this instance, {connections} on the server, {connections_in_use} in use"
    );
    if needed > connections {
        Verdict::failed(
            finding,
            "raise max_connections of the server, or lower database.max_connections",
        )
    } else if needed > connections - connections_in_use {
        Verdict::warning(
            finding,
            "raise max_connections of the server before another instance starts",
        )
    } else {
        Verdict::ok(finding)
    }
}

/// A publish holds one lock for each topic, and all sessions share one table of locks.
fn locks(subject: &Subject<'_>) -> Verdict {
    let config = subject.config;
    let slots = subject.condition.lock_slots;
    let most = i64::from(config.database.max_connections.to_u32())
        .saturating_mul(i64::from(config.limits.max_publish_topics.to_u32()));
    let finding = format!("{most} for the largest publishes at once, {slots} on the server");
    if most > slots {
        Verdict::warning(
            finding,
            "raise max_locks_per_transaction, or lower limits.max_publish_topics; until then such publishes may \
             answer UNAVAILABLE",
        )
    } else {
        Verdict::ok(finding)
    }
}

fn clock(subject: &Subject<'_>) -> Verdict {
    let difference = subject.condition.clock_ns.abs_diff(subject.local_ns);
    let difference = Duration::from_nanos(difference);
    let finding = format!(
        "{} ms between the database and this machine",
        difference.as_millis()
    );
    let advice = "run a time service on both: key packages are judged by this machine's clock";
    if difference > CLOCKS_FAIL {
        Verdict::failed(finding, advice)
    } else if difference > CLOCKS_DIFFER {
        Verdict::warning(finding, advice)
    } else {
        Verdict::ok(finding)
    }
}

fn wal_archiving(subject: &Subject<'_>) -> Verdict {
    if subject.condition.archiving {
        Verdict::ok("archive_mode is on")
    } else {
        Verdict::warning(
            "archive_mode is off",
            "archive the write-ahead log, or stream it to a replica: a dump loses what came after it",
        )
    }
}

/// Whether a listener can be had, which is then `held`, or is there.
fn port(address: Option<SocketAddr>, ports: Ports, held: &mut Vec<TcpListener>) -> Verdict {
    let Some(address) = address else {
        return Verdict::skipped("no listener is configured");
    };
    if address.port() == 0 {
        return Verdict::skipped("the system chooses the port");
    }
    match ports {
        Ports::Free => match TcpListener::bind(address) {
            Ok(listener) => {
                held.push(listener);
                Verdict::ok(format!("{address} is free"))
            }
            Err(error) => Verdict::failed(
                format!("cannot listen on {address}: {}", error.kind()),
                "stop what listens there, or configure another address; --serving where it is this server",
            ),
        },
        Ports::Serving => match TcpStream::connect_timeout(&reachable(address), CONNECT) {
            Ok(_) => Verdict::ok(format!("{address} accepts")),
            Err(error) => Verdict::failed(
                format!("{address} does not accept: {}", error.kind()),
                "start the server, or leave --serving out",
            ),
        },
    }
}

/// Where a listener on `address` can be reached from this machine.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn unix_nanoseconds(time: SystemTime) -> i64 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use xmtp_store::{Durability, StoreError};

    use super::*;
    use crate::config::{Build, Document};

    const SECOND: i64 = 1_000_000_000;

    fn config(settings: &str) -> Config {
        let text = format!(
            "server.identifier = \"org.example.test\"\ndatabase.url = \"postgres://h/d\"\n{settings}"
        );
        let mut document = Document::parse(&text, Build::default(), |_| None).expect("a document");
        Config::load(&mut document).expect("a configuration")
    }

    fn sound() -> Condition {
        Condition {
            version_number: 170_010,
            read_only: false,
            durability: Durability {
                fsync: true,
                full_page_writes: true,
                asynchronous_commit: false,
            },
            archiving: true,
            clock_ns: SECOND,
            asked_at: UNIX_EPOCH,
            connections: 97,
            connections_in_use: 1,
            lock_slots: 20_000,
            may_create: true,
            schema: Ok(SchemaState::Current),
            missing: Vec::new(),
            rights_missing: Some(0),
            data: Some(Ok(Data {
                allocated: 9,
                greatest: 7,
                boundary: Some(8),
                maximum: i64::MAX,
                sequence_is_sound: true,
            })),
        }
    }

    fn outcomes(condition: &Condition, settings: &str) -> Vec<(&'static str, Outcome)> {
        let config = config(settings);
        let subject = Subject {
            condition,
            config: &config,
            local_ns: SECOND,
        };
        let judged = DATABASE
            .iter()
            .map(|(name, judge)| judge(&subject).named(name));
        judged
            .filter(|check| check.outcome != Outcome::Ok)
            .map(|check| (check.name, check.outcome))
            .collect()
    }

    /// The one check that is not well once `change` has happened.
    fn only(change: impl FnOnce(&mut Condition), name: &'static str, outcome: Outcome) {
        let mut condition = sound();
        change(&mut condition);
        assert_eq!(outcomes(&condition, ""), [(name, outcome)]);
    }

    #[test]
    fn doctor_finds_nothing_in_a_sound_database() {
        assert_eq!(outcomes(&sound(), ""), []);
    }

    #[test]
    fn arc_007_doctor_refuses_an_old_server() {
        only(
            |it| it.version_number = 169_999,
            "postgres-version",
            Outcome::Failed,
        );
    }

    #[test]
    fn doctor_refuses_what_loses_acknowledged_publishes() {
        only(|it| it.read_only = true, "writable", Outcome::Failed);
        only(
            |it| it.durability.fsync = false,
            "crash-safety",
            Outcome::Failed,
        );
        only(
            |it| it.durability.full_page_writes = false,
            "crash-safety",
            Outcome::Failed,
        );
        only(
            |it| it.durability.asynchronous_commit = true,
            "synchronous-commit",
            Outcome::Failed,
        );
        only(|it| it.archiving = false, "wal-archiving", Outcome::Warning);
    }

    #[test]
    fn s38_doctor_refuses_ids_that_would_come_again() {
        let data = |change: fn(&mut Data)| {
            move |it: &mut Condition| match &mut it.data {
                Some(Ok(data)) => change(data),
                _ => unreachable!("there is data"),
            }
        };
        only(data(|it| it.greatest = 10), "sequence", Outcome::Failed);
        only(data(|it| it.maximum = 9), "sequence", Outcome::Failed);
        only(data(|it| it.maximum = 10), "sequence", Outcome::Warning);
        only(
            data(|it| it.sequence_is_sound = false),
            "sequence",
            Outcome::Failed,
        );
        only(
            data(|it| it.boundary = Some(10)),
            "boundary",
            Outcome::Failed,
        );
        only(data(|it| it.boundary = None), "boundary", Outcome::Failed);
    }

    #[test]
    fn s41_doctor_refuses_another_schema() {
        let unusable = SchemaState::Unusable {
            version: 2,
            problem: xmtp_store::SchemaProblem::Newer,
        };
        let state = |schema, may_create| Condition {
            schema: Ok(schema),
            may_create,
            rights_missing: None,
            data: None,
            ..sound()
        };
        let unread = [
            ("rights", Outcome::Skipped),
            ("sequence", Outcome::Skipped),
            ("boundary", Outcome::Skipped),
        ];
        let failed = [&[("schema", Outcome::Failed)][..], &unread].concat();
        assert_eq!(outcomes(&state(unusable, true), ""), failed);
        assert_eq!(outcomes(&state(SchemaState::Empty, false), ""), failed);
        assert_eq!(outcomes(&state(SchemaState::Empty, true), ""), unread);
        assert_eq!(outcomes(&state(SchemaState::Older, true), ""), unread);
    }

    #[test]
    fn doctor_names_what_is_missing_and_what_cannot_be_read() {
        let gone = Condition {
            missing: vec!["topic_watermark".to_owned(), "push_cursor".to_owned()],
            data: None,
            ..sound()
        };
        let expected = [
            ("schema", Outcome::Failed),
            ("sequence", Outcome::Skipped),
            ("boundary", Outcome::Skipped),
        ];
        assert_eq!(outcomes(&gone, ""), expected);
        let unread = || StoreError::invariant("no answer");
        only(|it| it.schema = Err(unread()), "schema", Outcome::Failed);
        let locked = Condition {
            data: Some(Err(unread())),
            ..sound()
        };
        let expected = ["sequence", "boundary"].map(|name| (name, Outcome::Failed));
        assert_eq!(outcomes(&locked, ""), expected);
    }

    #[test]
    fn doctor_refuses_missing_rights() {
        let condition = Condition {
            rights_missing: Some(2),
            data: None,
            ..sound()
        };
        let expected = [
            ("rights", Outcome::Failed),
            ("sequence", Outcome::Skipped),
            ("boundary", Outcome::Skipped),
        ];
        assert_eq!(outcomes(&condition, ""), expected);
    }

    #[test]
    fn doctor_weighs_the_pool_and_its_locks_against_the_server() {
        only(|it| it.connections = 20, "connections", Outcome::Failed);
        only(
            |it| it.connections_in_use = 77,
            "connections",
            Outcome::Warning,
        );
        only(|it| it.lock_slots = 19_999, "locks", Outcome::Warning);
        let mut condition = sound();
        condition.connections_in_use = 76;
        assert_eq!(outcomes(&condition, ""), []);
        let settings = "limits.max_publish_topics = 1001";
        assert_eq!(
            outcomes(&condition, settings),
            [("locks", Outcome::Warning)]
        );
    }

    #[test]
    fn doctor_compares_the_clocks_in_both_directions() {
        for sign in [1, -1] {
            let apart = |seconds: i64| {
                move |it: &mut Condition| it.clock_ns = SECOND + sign * seconds * SECOND
            };
            only(apart(2), "clock", Outcome::Warning);
            only(apart(61), "clock", Outcome::Failed);
        }
    }

    #[test]
    fn ops_020_doctor_holds_retention_against_the_databases_clock() {
        let mut condition = sound();
        condition.clock_ns = i64::MAX - SECOND;
        let found = outcomes(&condition, "");
        assert!(found.contains(&("retention", Outcome::Failed)), "{found:?}");
    }

    #[test]
    fn doctor_tries_the_ports() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut held = Vec::new();
        let mut tried = |address, ports| port(address, ports, &mut held).outcome;
        assert_eq!(tried(Some(address), Ports::Free), Outcome::Failed);
        assert_eq!(tried(Some(address), Ports::Serving), Outcome::Ok);
        drop(listener);
        assert_eq!(tried(Some(address), Ports::Serving), Outcome::Failed);
        assert_eq!(tried(None, Ports::Free), Outcome::Skipped);
        // One port for two listeners.
        assert_eq!(tried(Some(address), Ports::Free), Outcome::Ok);
        assert_eq!(tried(Some(address), Ports::Free), Outcome::Failed);
        assert_eq!(
            reachable(([0, 0, 0, 0], 7).into()),
            ([127, 0, 0, 1], 7).into()
        );
    }
}
