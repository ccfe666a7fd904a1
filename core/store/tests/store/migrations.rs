//! Bringing a database to the schema, and refusing one that cannot be brought there.

use std::time::Duration;

use xmtp_store::{ErrorKind, Primary, SchemaProblem, StartupCheckError};
use xmtp_test_support::{TestDatabase, eventually};

use crate::fixture::{Store, failure, group, publish_each, set_for_new_sessions, settings};

async fn instance(database: &TestDatabase) -> Primary {
    Primary::connect(settings(database)).await.unwrap()
}

/// Everything in the database that a start might change: relations, and the record of migrations.
async fn contents(database: &TestDatabase) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT relname::text || ' ' || oid || ' ' || xmin::text FROM pg_class
             WHERE relnamespace = 'public'::regnamespace
         UNION ALL SELECT version || ' ' || encode(checksum, 'hex') FROM _sqlx_migrations
         ORDER BY 1",
    )
    .fetch_all(&mut database.connect().await)
    .await
    .unwrap()
}

async fn relations(database: &TestDatabase) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT relname::text FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S') ORDER BY 1",
    )
    .fetch_all(&mut database.connect().await)
    .await
    .unwrap()
}

#[tokio::test]
async fn arc_005_instances_that_start_together_on_an_empty_database_all_prepare_it() {
    let database = TestDatabase::create().await;
    let instances = futures::future::join_all((0..4).map(|_| instance(&database))).await;
    for prepared in futures::future::join_all(instances.iter().map(Primary::prepare)).await {
        prepared.unwrap();
    }
    publish_each(&instances[0], group(1), ["works"]).await;
}

#[tokio::test]
async fn arc_005_a_second_start_changes_nothing() {
    let store = Store::create().await;
    let before = contents(&store.database).await;
    store.another().await.prepare().await.unwrap();
    assert_eq!(contents(&store.database).await, before);
    store.at_rest().await;
}

#[tokio::test]
async fn arc_005_an_instance_waits_for_one_that_migrates_beyond_every_bound() {
    let database = TestDatabase::create().await;
    let mut settings = settings(&database);
    settings.statement_timeout = Duration::from_millis(200);
    settings.transaction_timeout = Duration::from_millis(300);
    let one = Primary::connect(settings.clone()).await.unwrap();
    one.prepare().await.unwrap();
    // As by a migration that takes longer than a statement may.
    let mut holder = database.connect().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE _sqlx_migrations IN ACCESS EXCLUSIVE MODE")
        .execute(&mut holder)
        .await
        .unwrap();
    let other = Primary::connect(settings).await.unwrap();
    let mut witness = database.connect().await;
    let release = async {
        eventually("it waits for longer than its bounds", async || {
            sqlx::query_scalar::<_, bool>(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                 AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > '1 s')",
            )
            .fetch_one(&mut witness)
            .await
            .unwrap()
            .then_some(())
        })
        .await;
        sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    };
    let (prepared, ()) = tokio::join!(other.prepare(), release);
    prepared.unwrap();
}

#[tokio::test]
async fn s40_a_failed_migration_is_named_and_leaves_no_lock_and_no_schema() {
    let database = TestDatabase::create().await;
    // Of the last objects that the migration makes.
    database
        .execute("CREATE TABLE push_cursor (other int)")
        .await;
    let error = failure(instance(&database).await.prepare().await);
    let StartupCheckError::Migration { version, source } = &error else {
        panic!("{error}");
    };
    assert_eq!(*version, 1);
    assert_eq!(source.kind(), ErrorKind::Other);
    // duplicate_table
    assert_eq!(
        error.to_string(),
        "migration 1 failed: database error 42P07"
    );
    assert_eq!(
        relations(&database).await,
        ["_sqlx_migrations", "push_cursor"]
    );

    database.execute("DROP TABLE push_cursor").await;
    let second = instance(&database).await;
    tokio::time::timeout(Duration::from_secs(10), second.prepare())
        .await
        .expect("nobody holds the lock")
        .unwrap();
    publish_each(&second, group(1), ["works"]).await;
}

#[tokio::test]
async fn s41_a_newer_schema_is_refused_and_left_as_it_is() {
    let store = Store::create().await;
    store
        .database
        .execute(
            r"INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
              VALUES (9000, 'newer', true, '\x00', 0)",
        )
        .await;
    refused(&store, 9000, SchemaProblem::Newer).await;
}

#[tokio::test]
async fn s41_an_edited_schema_is_refused_and_left_as_it_is() {
    let store = Store::create().await;
    store
        .database
        .execute(r"UPDATE _sqlx_migrations SET checksum = '\x00'")
        .await;
    refused(&store, 1, SchemaProblem::Edited).await;
}

async fn refused(store: &Store, at_fault: i64, expected: SchemaProblem) {
    let before = contents(&store.database).await;
    let other = store.another().await;
    let prepared = tokio::time::timeout(Duration::from_secs(10), other.prepare());
    let error = failure(prepared.await.expect("it is refused quickly"));
    let StartupCheckError::Schema { version, problem } = error else {
        panic!("{error}");
    };
    assert_eq!((version, problem), (at_fault, expected));
    assert_eq!(contents(&store.database).await, before);
    store.at_rest().await;
}

#[tokio::test]
async fn s15_a_read_only_database_is_refused_at_the_start_and_left_as_it_is() {
    let database = TestDatabase::create().await;
    set_for_new_sessions(&database, "default_transaction_read_only = on").await;
    let primary = instance(&database).await;
    let error = failure(primary.prepare().await);
    assert!(matches!(error, StartupCheckError::ReadOnly), "{error}");
    assert!(relations(&database).await.is_empty());
}
