//! Errors and `Debug` show neither credentials nor what is stored.

use std::error::Error;
use std::time::Duration;

use sqlx::ConnectOptions;
use xmtp_store::publish::PublishLocks;
use xmtp_store::{ErrorKind, Primary, Settings, StartupCheckError, StoreError};

use crate::fixture::{Store, envelope, failure, group, publish, settings};

const SECRET: &str = "hunter2-planted";

/// Everything that a log could take from an error.
fn shown(error: &dyn Error) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .map(|error| format!("{error} {error:?} {error:#?}"))
        .collect::<Vec<_>>()
        .join("\n")
}

async fn connect(mut settings: Settings, url: String) -> StoreError {
    settings.url = url.into();
    failure(Primary::connect(settings).await)
}

#[tokio::test]
async fn arc_101_connection_errors_do_not_show_the_address() {
    let store = Store::create().await;
    let mut settings = settings(&store.database);
    // How long an address where nobody listens is tried.
    settings.statement_timeout = Duration::from_secs(1);
    let options = store.database.options().password(SECRET);
    let nobody = options.clone().username("nobody-of-that-name");
    for (url, kind) in [
        // Nobody listens there; that is no port; that is no URL; no such database; no such user.
        (
            format!("postgres://user:{SECRET}@127.0.0.1:1/planted"),
            ErrorKind::Connection,
        ),
        (
            format!("postgres://user:{SECRET}@host:{SECRET}/planted"),
            ErrorKind::Other,
        ),
        (format!("{SECRET}@host"), ErrorKind::Other),
        (
            options.clone().database(SECRET).to_url_lossy().into(),
            ErrorKind::Other,
        ),
        (nobody.to_url_lossy().into(), ErrorKind::Other),
    ] {
        let error = connect(settings.clone(), url).await;
        assert_eq!(error.kind(), kind, "{error}");
        let shown = shown(&error);
        for hidden in [SECRET, "planted", "127.0.0.1", "nobody-of-that-name"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
        let startup = StartupCheckError::from(error);
        assert!(!crate::secrets::shown(&startup).contains(SECRET));
    }
}

#[tokio::test]
async fn arc_101_debug_of_settings_and_stores_shows_no_credential() {
    let store = Store::create().await;
    let mut settings = settings(&store.database);
    // A name that the server takes from anybody, beside whatever credential it asks for.
    let address = store.database.url();
    let separator = if address.contains('?') { '&' } else { '?' };
    settings.url = format!("{address}{separator}application_name={SECRET}").into();
    let primary = Primary::connect(settings.clone()).await.unwrap();
    let tail = primary.reads().tail().await.unwrap();
    for shown in [
        format!("{settings:?}"),
        format!("{primary:?}"),
        format!("{:?}", primary.reads()),
        format!("{tail:?}"),
    ] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
}

#[tokio::test]
async fn errors_of_statements_show_their_code_and_no_value() {
    let store = Store::create().await;
    let stored = envelope(group(0xab), "payload-planted");
    publish(&store.primary, std::slice::from_ref(&stored))
        .await
        .unwrap();
    let connection = store.primary.publish().await.unwrap();
    let locks = PublishLocks::new([&group(0xab)]);
    let transaction = connection.begin(&locks).await.unwrap();
    let error = failure(transaction.commit(&[&stored]).await);
    // The server's own words quote the topic and the hash.
    assert_eq!(error.to_string(), "database error 23505");
    let shown = shown(&error);
    for hidden in ["planted", "abab", "envelopes_topic_message_hash"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}
