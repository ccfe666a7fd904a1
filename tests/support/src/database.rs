//! A database for one test.

use std::env;
use std::str::FromStr;
use std::thread;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use tokio::runtime;
use uuid::Uuid;

/// Names the server on which the tests make their databases. Its user has to be a superuser.
pub const SERVER_VARIABLE: &str = "XMTP_TEST_DATABASE_URL";

/// An empty database of its own name, dropped with the value, also when the test panics.
///
/// Sessions that still use it are ended then.
#[derive(Debug)]
pub struct TestDatabase {
    server: PgConnectOptions,
    name: String,
}

impl TestDatabase {
    /// Creates a database on the server that [`SERVER_VARIABLE`] names.
    ///
    /// # Panics
    /// When the variable is not set, or the server does not do it.
    pub async fn create() -> Self {
        let url = env::var(SERVER_VARIABLE).unwrap_or_else(|_| {
            panic!(
                "{SERVER_VARIABLE} is not set: run the tests with `ci/test`, or one command with \
                 `ci/postgres run -- COMMAND`"
            )
        });
        let server = PgConnectOptions::from_str(&url)
            .unwrap_or_else(|error| panic!("{SERVER_VARIABLE} is not a PostgreSQL URL: {error}"));
        Self::create_on(server).await
    }

    /// Creates a database on `server`.
    ///
    /// # Panics
    /// When the server does not do it.
    pub async fn create_on(server: PgConnectOptions) -> Self {
        let database = Self {
            server,
            name: format!("test_{}", Uuid::new_v4().simple()),
        };
        database
            .on_server(format!("CREATE DATABASE {}", database.name))
            .await;
        database
    }

    /// The database's URL, with the password of the server's user.
    pub fn url(&self) -> String {
        self.options().to_url_lossy().into()
    }

    /// How to connect to the database.
    pub fn options(&self) -> PgConnectOptions {
        self.server.clone().database(&self.name)
    }

    /// Opens a connection of the test's own, apart from every pool under test.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn connect(&self) -> PgConnection {
        self.options()
            .connect()
            .await
            .expect("the test database takes connections")
    }

    /// Runs statements that answer nothing, on a connection of their own.
    ///
    /// # Panics
    /// When one of them fails.
    pub async fn execute(&self, statements: &str) {
        let mut connection = self.connect().await;
        connection
            .execute(AssertSqlSafe(statements))
            .await
            .expect("the test's statements run");
    }

    /// Ends, as a broken network would, every session on this database that calls itself `application_name`. Answers
    /// how many there were.
    ///
    /// # Panics
    /// When the server does not do it.
    pub async fn kill_sessions(&self, application_name: &str) -> usize {
        sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = $1 \
             AND pid <> pg_backend_pid()",
        )
        .bind(application_name)
        .fetch_all(&mut self.connect().await)
        .await
        .expect("sessions can be ended")
        .len()
    }

    async fn on_server(&self, statement: String) {
        let mut connection = self
            .server
            .connect()
            .await
            .expect("the test server takes connections");
        connection
            .execute(AssertSqlSafe(statement))
            .await
            .expect("the test server makes and drops databases");
        connection.close().await.expect("a connection closes");
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // The test's runtime may be the one that unwinds, and cannot be waited on from within: another one, elsewhere.
        let dropped = thread::scope(|scope| {
            scope
                .spawn(|| {
                    runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .expect("a runtime can be built")
                        .block_on(
                            self.on_server(format!("DROP DATABASE {} WITH (FORCE)", self.name)),
                        );
                })
                .join()
        });
        // A second panic while the first one unwinds would abort, and hide it.
        assert!(
            dropped.is_ok() || thread::panicking(),
            "the test database {} is left behind",
            self.name
        );
    }
}
