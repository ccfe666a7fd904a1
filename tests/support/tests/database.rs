//! A test's database: apart from others, and gone afterwards.

use std::panic::AssertUnwindSafe;

use sqlx::{Connection, Row};
use xmtp_test_support::{TestDatabase, eventually};

async fn exists(through: &TestDatabase, name: &str) -> bool {
    sqlx::query("SELECT count(*) FROM pg_database WHERE datname = $1")
        .bind(name)
        .fetch_one(&mut through.connect().await)
        .await
        .expect("the catalogue can be read")
        .get::<i64, _>(0)
        == 1
}

fn name_of(database: &TestDatabase) -> String {
    database
        .options()
        .get_database()
        .expect("it has a name")
        .to_owned()
}

#[tokio::test]
async fn each_database_is_apart() {
    let (one, other) = tokio::join!(TestDatabase::create(), TestDatabase::create());
    for database in [&one, &other] {
        database
            .execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
            .await;
    }
    let rows: i64 = sqlx::query("SELECT count(*) FROM t")
        .fetch_one(&mut one.connect().await)
        .await
        .unwrap()
        .get(0);
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn the_url_names_the_database() {
    let database = TestDatabase::create().await;
    let mut connection = sqlx::PgConnection::connect(&database.url()).await.unwrap();
    let name: String = sqlx::query("SELECT current_database()::text")
        .fetch_one(&mut connection)
        .await
        .unwrap()
        .get(0);
    assert_eq!(name, name_of(&database));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_goes_with_its_value_also_while_in_use() {
    let witness = TestDatabase::create().await;
    let database = TestDatabase::create().await;
    let name = name_of(&database);
    let _in_use = database.connect().await;
    assert!(exists(&witness, &name).await);
    drop(database);
    assert!(!exists(&witness, &name).await);
}

#[tokio::test]
async fn a_database_goes_after_a_panic() {
    let witness = TestDatabase::create().await;
    let database = TestDatabase::create().await;
    let name = name_of(&database);
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(move || {
        let _database = database;
        std::panic::resume_unwind(Box::new("the test fails"));
    }));
    assert!(panicked.is_err());
    assert!(!exists(&witness, &name).await);
}

#[tokio::test]
async fn sessions_are_killed_by_name() {
    let database = TestDatabase::create().await;
    let mut victim =
        sqlx::PgConnection::connect_with(&database.options().application_name("victim"))
            .await
            .unwrap();
    let mut bystander = database.connect().await;
    assert_eq!(database.kill_sessions("victim").await, 1);
    eventually("the killed session is gone", async || {
        victim.ping().await.is_err().then_some(())
    })
    .await;
    bystander.ping().await.unwrap();
}
