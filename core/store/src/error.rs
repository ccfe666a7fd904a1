//! What can go wrong in storage, sorted by what the caller may do about it.

use std::borrow::Cow;

/// How a failed database operation looks to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A statement, transaction or lifetime bound ran out. The outcome of a write is unknown.
    Timeout,
    /// A lock was not granted in the time given for it; nothing else failed.
    LockTimeout,
    /// No pooled connection in the time given for it; nothing was asked of the database.
    PoolTimeout,
    /// No usable connection: server gone, or no longer writable.
    Connection,
    /// Stored data, or the guard that protects it, is not as it must be (ARC-034, ARC-050).
    Invariant,
    /// Anything else, the server's own resource limits included.
    Other,
}

impl ErrorKind {
    /// Value of the `kind` label of `xmtp_db_errors_total`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Timeout | Self::LockTimeout => "timeout",
            Self::PoolTimeout | Self::Connection => "connection",
            Self::Invariant => "invariant",
            Self::Other => "other",
        }
    }
}

/// A failed storage operation.
///
/// `Display` and `Debug` show fixed words and the SQLSTATE only: a driver's message may quote row
/// values.
#[derive(thiserror::Error)]
#[error("{}", self.describe())]
pub struct StoreError {
    kind: ErrorKind,
    reason: Reason,
}

enum Reason {
    /// The server's SQLSTATE.
    Sqlstate(String),
    /// A failure of the network.
    Io(std::io::ErrorKind),
    /// The server's name has no address.
    Lookup,
    /// A failure of the driver, or a connection that it must not use.
    Driver(&'static str),
    /// A broken invariant that this crate found itself.
    Broken(&'static str),
    /// A bound that this crate enforces itself.
    Bound(&'static str),
}

impl StoreError {
    /// A broken invariant; `what` is a fixed phrase.
    pub const fn invariant(what: &'static str) -> Self {
        Self {
            kind: ErrorKind::Invariant,
            reason: Reason::Broken(what),
        }
    }

    /// A connection that must not be read from; `what` is a fixed phrase.
    pub(crate) const fn unusable(what: &'static str) -> Self {
        Self {
            kind: ErrorKind::Connection,
            reason: Reason::Driver(what),
        }
    }

    /// A time bound of this crate; `what` is a fixed phrase.
    pub(crate) const fn timeout(what: &'static str) -> Self {
        Self {
            kind: ErrorKind::Timeout,
            reason: Reason::Bound(what),
        }
    }

    /// No connection in time.
    pub(crate) const fn pool_timeout() -> Self {
        Self {
            kind: ErrorKind::PoolTimeout,
            reason: Reason::Bound("no database connection in time"),
        }
    }

    /// No connection any more.
    pub(crate) const fn pool_closed() -> Self {
        Self::unusable("database pool is closed")
    }

    /// What the caller may do about it.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The server's SQLSTATE, where it is the server that failed.
    pub fn sqlstate(&self) -> Option<&str> {
        match &self.reason {
            Reason::Sqlstate(code) => Some(code),
            _ => None,
        }
    }

    fn describe(&self) -> Cow<'static, str> {
        match &self.reason {
            Reason::Sqlstate(code) => Cow::Owned(match meaning(code) {
                Some(meaning) => format!("database error {code} ({meaning})"),
                None => format!("database error {code}"),
            }),
            Reason::Io(kind) => Cow::Owned(format!("database connection failed ({kind})")),
            Reason::Lookup => {
                Cow::Borrowed("database connection failed (the host's name cannot be resolved)")
            }
            Reason::Driver(what) | Reason::Broken(what) | Reason::Bound(what) => {
                Cow::Borrowed(what)
            }
        }
    }
}

impl std::fmt::Debug for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoreError({:?}, {})", self.kind, self.describe())
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let driver = |kind, what| Self {
            kind,
            reason: Reason::Driver(what),
        };
        match error {
            sqlx::Error::Database(error) => {
                let code = error.code().unwrap_or_default().into_owned();
                Self {
                    kind: kind_of_sqlstate(&code),
                    reason: Reason::Sqlstate(code),
                }
            }
            sqlx::Error::Io(error) => Self {
                kind: ErrorKind::Connection,
                reason: network_reason(&error),
            },
            sqlx::Error::Tls(_) => driver(ErrorKind::Connection, "database TLS handshake failed"),
            sqlx::Error::Protocol(_) => driver(ErrorKind::Connection, "database protocol error"),
            sqlx::Error::Configuration(_) => {
                driver(ErrorKind::Other, "database address cannot be used")
            }
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                driver(ErrorKind::Invariant, "stored value cannot be decoded")
            }
            _ => driver(ErrorKind::Other, "database operation failed"),
        }
    }
}

/// The standard library has no kind of its own for a name that is not resolved: the resolver's error alone has neither
/// a kind that is named nor a number of the operating system.
fn network_reason(error: &std::io::Error) -> Reason {
    let unnamed = std::io::Error::from_raw_os_error(i32::MAX).kind();
    if error.kind() == unnamed && error.raw_os_error().is_none() {
        Reason::Lookup
    } else {
        Reason::Io(error.kind())
    }
}

/// What operators meet most when a server starts.
fn meaning(sqlstate: &str) -> Option<&'static str> {
    Some(match sqlstate {
        "28P01" => "wrong user name or password",
        "28000" => "the server refuses this user or host",
        "3D000" => "no such database",
        // `transaction_timeout`, which every session sets, came with PostgreSQL 17.
        "42704" => "a setting is unknown to the server: PostgreSQL 17 or later is required",
        "42501" => "not permitted to this user",
        "53300" => "too many connections",
        _ => return None,
    })
}

/// Sorts a SQLSTATE (PostgreSQL appendix A).
fn kind_of_sqlstate(code: &str) -> ErrorKind {
    match code {
        // statement_timeout; transaction_timeout, which ends the connection
        "57014" | "25P04" => ErrorKind::Timeout,
        "55P03" => ErrorKind::LockTimeout,
        // A demoted or read-only primary is one that we are no longer connected to.
        "25006" => ErrorKind::Connection,
        // admin shutdown, crash shutdown, starting up, database dropped, idle session timeouts
        _ if code.starts_with("57P") || code.starts_with("08") || code == "25P03" => {
            ErrorKind::Connection
        }
        // constraint violations and values out of range
        _ if code.starts_with("23") || code.starts_with("22") => ErrorKind::Invariant,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_an_address_is_told_from_other_failures_of_the_network() {
        use std::net::ToSocketAddrs;
        let unresolved = ("no-such-host.invalid", 1).to_socket_addrs().unwrap_err();
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let unknown = std::io::Error::from_raw_os_error(i32::MAX);
        for (error, is_lookup) in [(unresolved, true), (refused, false), (unknown, false)] {
            let said = StoreError::from(sqlx::Error::Io(error)).to_string();
            assert_eq!(said.contains("cannot be resolved"), is_lookup, "{said}");
        }
    }

    #[test]
    fn sqlstates_are_sorted_by_what_a_caller_may_do() {
        for (code, kind) in [
            ("57014", ErrorKind::Timeout),
            ("25P04", ErrorKind::Timeout),
            ("55P03", ErrorKind::LockTimeout),
            ("25006", ErrorKind::Connection),
            ("57P01", ErrorKind::Connection),
            ("08006", ErrorKind::Connection),
            ("23505", ErrorKind::Invariant),
            ("22003", ErrorKind::Invariant),
            ("53200", ErrorKind::Other),
            ("53300", ErrorKind::Other),
            ("40P01", ErrorKind::Other),
        ] {
            assert_eq!(kind_of_sqlstate(code), kind, "{code}");
        }
    }
}
