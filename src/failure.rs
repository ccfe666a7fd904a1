//! Why a command fails: one line with a stable code for each reason, and the status of the process. `docs/errors.md`
//! explains every code.

use std::io::{self, Write};
use std::process::ExitCode;

use xmtp_server::StartError;
use xmtp_server::config::{ConfigError, ConfigErrors, Refusal, SourceError};
use xmtp_store::{ErrorKind, SchemaProblem, StartupCheckError, StoreError};

use crate::demo::DemoError;
use crate::probe::NotReady;
use crate::serve::ServeError;
use crate::signals::CutOff;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    CutOff(#[from] CutOff),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("{failed} of {all} checks failed")]
    Checks { failed: usize, all: usize },
    #[error("demo failed: {0}")]
    Demo(#[from] DemoError),
    #[error("cannot write: {}", .0.kind())]
    Output(#[from] io::Error),
}

impl Failure {
    /// Says why, a line for each reason, and answers the status: 2 for a wrong command line, as the parser of
    /// arguments has it, and 1 for everything else.
    pub(crate) fn tell(&self, mut to: impl Write) -> ExitCode {
        if matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            // Whoever reads has seen enough, as `head` has.
            return ExitCode::FAILURE;
        }
        // Nothing is left to tell it to if this fails.
        let _ = self
            .lines()
            .iter()
            .try_for_each(|line| writeln!(to, "{line}"));
        match self {
            Self::Source(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    /// Says why in one line; the status is 1 (operations contract, section 8.2).
    pub(crate) fn tell_in_one_line(&self, mut to: impl Write) -> ExitCode {
        let _ = writeln!(to, "{}", self.lines().join("; "));
        ExitCode::FAILURE
    }

    fn lines(&self) -> Vec<String> {
        match self {
            Self::Config(errors) => errors
                .iter()
                .map(|error| format!("{}: {error}", of_config(error).as_str()))
                .collect(),
            other => vec![format!("{}: {other}", other.code().as_str())],
        }
    }

    fn code(&self) -> Code {
        match self {
            Self::Source(_) => Code::ConfigSource,
            Self::Config(errors) => errors.iter().next().map_or(Code::ConfigCheck, of_config),
            Self::Serve(error) => of_serve(error),
            Self::CutOff(CutOff::SecondSignal) => Code::SecondSignal,
            Self::CutOff(CutOff::Overdue) => Code::DrainOverdue,
            Self::Start(error) => of_start(error),
            Self::NotReady(_) => Code::NotReady,
            Self::Checks { .. } => Code::ChecksFailed,
            Self::Demo(_) => Code::DemoFailed,
            Self::Output(_) => Code::OutputFailed,
        }
    }
}

/// Declares the codes, their words, and a list of them all.
macro_rules! codes {
    ($($code:ident $word:literal)+) => {
        /// A reason that keeps its word in every version.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($code,)+
        }

        impl Code {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$code),+];

            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $word,)+
                }
            }
        }
    };
}

codes! {
    ConfigSource "CONFIG_SOURCE"
    ConfigUnreadable "CONFIG_UNREADABLE"
    ConfigSyntax "CONFIG_SYNTAX"
    ConfigUnknownKey "CONFIG_UNKNOWN_KEY"
    ConfigSubsystem "CONFIG_SUBSYSTEM"
    ConfigRequired "CONFIG_REQUIRED"
    ConfigValue "CONFIG_VALUE"
    ConfigVariable "CONFIG_VARIABLE"
    ConfigCheck "CONFIG_CHECK"
    ListenFailed "LISTEN_FAILED"
    SubsystemFailed "SUBSYSTEM_FAILED"
    DatabaseUnreachable "DATABASE_UNREACHABLE"
    DatabaseLogin "DATABASE_LOGIN"
    DatabaseMissing "DATABASE_MISSING"
    DatabaseConnections "DATABASE_CONNECTIONS"
    DatabaseVersion "DATABASE_VERSION"
    DatabaseReadOnly "DATABASE_READ_ONLY"
    DatabaseRights "DATABASE_RIGHTS"
    DatabaseTimeout "DATABASE_TIMEOUT"
    DatabaseFailed "DATABASE_FAILED"
    EmbeddedDatabase "EMBEDDED_DATABASE"
    SchemaMissing "SCHEMA_MISSING"
    SchemaNewer "SCHEMA_NEWER"
    SchemaEdited "SCHEMA_EDITED"
    SchemaPartial "SCHEMA_PARTIAL"
    SchemaIncomplete "SCHEMA_INCOMPLETE"
    MigrationFailed "MIGRATION_FAILED"
    SequenceBehind "SEQUENCE_BEHIND"
    RetentionTooLong "RETENTION_TOO_LONG"
    StreamsFailed "STREAMS_FAILED"
    TelemetryFailed "TELEMETRY_FAILED"
    SystemRefused "SYSTEM_REFUSED"
    SecondSignal "SECOND_SIGNAL"
    DrainOverdue "DRAIN_OVERDUE"
    NotReady "NOT_READY"
    ChecksFailed "CHECKS_FAILED"
    DemoFailed "DEMO_FAILED"
    OutputFailed "OUTPUT_FAILED"
}

const fn of_config(error: &ConfigError) -> Code {
    match error.refusal {
        Refusal::Unreadable { .. } => Code::ConfigUnreadable,
        Refusal::Syntax => Code::ConfigSyntax,
        Refusal::UnknownKey { .. } => Code::ConfigUnknownKey,
        Refusal::AbsentSubsystem(_) | Refusal::UnavailableSubsystem(_) => Code::ConfigSubsystem,
        Refusal::Required => Code::ConfigRequired,
        Refusal::Expected(_) => Code::ConfigValue,
        Refusal::Variable(_) | Refusal::VariableName => Code::ConfigVariable,
        Refusal::Check(_) => Code::ConfigCheck,
    }
}

fn of_serve(error: &ServeError) -> Code {
    match error {
        ServeError::Metrics(_) | ServeError::Logging(_) => Code::TelemetryFailed,
        ServeError::Start(error) => of_start(error),
        ServeError::System(_) => Code::SystemRefused,
        ServeError::Subsystem(_) => Code::SubsystemFailed,
    }
}

fn of_start(error: &StartError) -> Code {
    match error {
        StartError::Listen { .. } => Code::ListenFailed,
        StartError::Step { .. }
        | StartError::Subsystem(_)
        | StartError::ReadSource {
            source: StartupCheckError::Store(_),
            ..
        } => Code::SubsystemFailed,
        StartError::ReadSource { source, .. } => of_startup_check(source),
        StartError::Published(error) => of_config(error),
        StartError::Provider(_) => Code::EmbeddedDatabase,
        StartError::Connect(error) | StartError::Database(StartupCheckError::Store(error)) => {
            of_store(error)
        }
        StartError::Database(error) => of_startup_check(error),
        StartError::Streams(_) => Code::StreamsFailed,
        StartError::Check(_) => Code::RetentionTooLong,
    }
}

fn of_startup_check(error: &StartupCheckError) -> Code {
    match error {
        StartupCheckError::Store(error) => of_store(error),
        StartupCheckError::ServerVersion(_) => Code::DatabaseVersion,
        StartupCheckError::ReadOnly => Code::DatabaseReadOnly,
        StartupCheckError::Schema { problem, .. } => match problem {
            SchemaProblem::Newer => Code::SchemaNewer,
            SchemaProblem::Edited => Code::SchemaEdited,
            SchemaProblem::Partial => Code::SchemaPartial,
        },
        StartupCheckError::Incomplete(_) => Code::SchemaIncomplete,
        StartupCheckError::Migration { source, .. } => match of_store(source) {
            Code::DatabaseRights => Code::DatabaseRights,
            _ => Code::MigrationFailed,
        },
        StartupCheckError::SequenceBehind => Code::SequenceBehind,
    }
}

fn of_store(error: &StoreError) -> Code {
    match (error.sqlstate(), error.kind()) {
        (Some("28000" | "28P01"), _) => Code::DatabaseLogin,
        (Some("3D000"), _) => Code::DatabaseMissing,
        (Some("53300"), _) => Code::DatabaseConnections,
        (Some("42704"), _) => Code::DatabaseVersion,
        (Some("42501"), _) => Code::DatabaseRights,
        (Some("42P01"), _) => Code::SchemaMissing,
        (_, ErrorKind::Connection | ErrorKind::PoolTimeout) => Code::DatabaseUnreachable,
        (_, ErrorKind::Timeout | ErrorKind::LockTimeout) => Code::DatabaseTimeout,
        (_, ErrorKind::Invariant | ErrorKind::Other) => Code::DatabaseFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes that the document explains: the first cell of each row, in backquotes.
    fn documented() -> Vec<&'static str> {
        let rows = include_str!("../docs/errors.md").lines();
        rows.filter_map(|row| row.strip_prefix("| `")?.split_once('`'))
            .map(|(code, _)| code)
            .collect()
    }

    #[test]
    fn every_code_is_documented_once_and_every_documented_code_exists() {
        let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes, documented());
    }

    #[test]
    fn a_wrong_command_line_has_status_2_and_everything_else_1() {
        let source = Failure::from(SourceError::Missing);
        let mut said = Vec::new();
        let status = source.tell(&mut said);
        assert_eq!(format!("{status:?}"), format!("{:?}", ExitCode::from(2)));
        let said = String::from_utf8(said).expect("text");
        assert!(
            said.starts_with("CONFIG_SOURCE: no configuration"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1);
        let checks = Failure::Checks { failed: 1, all: 9 };
        let status = checks.tell(io::sink());
        assert_eq!(format!("{status:?}"), format!("{:?}", ExitCode::FAILURE));
    }
}
