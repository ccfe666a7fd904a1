//! The life of a fetched key set: loaded at the start, replaced on a schedule, and valid until its stale deadline
//! (AUTH-017, AUTH-018, AUTH-019).

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::families::REFRESHES;
use crate::fetch::{FetchError, Fetcher};
use crate::keys::{CurrentKeys, KeySet};

/// Attempts at the start.
const ATTEMPTS: u32 = 3;

/// Between attempts at the start.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// No attempt of the start has given a usable key.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("auth.jwks_url: no usable signing key after {ATTEMPTS} attempts: {0}")]
pub(crate) struct NotLoaded(FetchError);

/// The key set has not been fetched again in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("auth.jwks_max_stale_seconds: the signing keys could not be fetched again in time")]
pub(crate) struct Stale;

/// When keys are fetched again, and how long they are valid without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) refresh: Duration,
    pub(crate) max_stale: Duration,
}

impl Schedule {
    /// Until when a set is valid that has just been fetched. What was representable at the start may by now lie
    /// beyond the clock: then it is as good as never.
    fn deadline(&self) -> Instant {
        const FAR: Duration = Duration::from_hours(365 * 24);
        let now = Instant::now();
        now.checked_add(self.max_stale).unwrap_or_else(|| now + FAR)
    }
}

/// A set that is valid until `deadline`.
pub(crate) struct Loaded {
    fetcher: Fetcher,
    schedule: Schedule,
    keys: CurrentKeys,
    deadline: Instant,
}

/// Fetches the set for the first time.
pub(crate) async fn load(fetcher: Fetcher, schedule: Schedule) -> Result<Loaded, NotLoaded> {
    let mut attempt = 1;
    loop {
        match fetch(&fetcher).await {
            Ok(keys) => {
                return Ok(Loaded {
                    fetcher,
                    schedule,
                    keys: CurrentKeys::new(keys),
                    deadline: schedule.deadline(),
                });
            }
            Err(error) if attempt == ATTEMPTS => return Err(NotLoaded(error)),
            Err(_) => sleep(RETRY_PAUSE).await,
        }
        attempt += 1;
    }
}

impl Loaded {
    pub(crate) fn keys(&self) -> &CurrentKeys {
        &self.keys
    }

    /// Replaces the set on schedule. A failure, and a document without a usable key, leave it as it is.
    ///
    /// # Errors
    /// The deadline has passed; what is being fetched then does not matter any more.
    pub(crate) async fn keep_fresh(mut self) -> Result<(), Stale> {
        loop {
            let fetched = async {
                sleep(self.pause()).await;
                fetch(&self.fetcher).await
            };
            let keys = tokio::select! {
                biased;
                () = sleep_until(self.deadline) => return Err(Stale),
                fetched = fetched => fetched,
            };
            if let Ok(keys) = keys {
                self.keys.replace(keys);
                self.deadline = self.schedule.deadline();
            }
        }
    }

    /// The interval and up to a tenth of it more, so that instances do not fetch together.
    fn pause(&self) -> Duration {
        let refresh = self.schedule.refresh;
        refresh + refresh.mul_f64(fastrand::f64() / 10.0)
    }
}

/// One attempt, counted and logged.
async fn fetch(fetcher: &Fetcher) -> Result<KeySet, FetchError> {
    let keys = fetcher.fetch().await;
    REFRESHES.count(&[if keys.is_ok() { "ok" } else { "error" }], 1);
    match &keys {
        Ok(keys) => tracing::debug!(keys = keys.keys().len(), "the JWKS is fetched"),
        Err(error) => tracing::warn!(cause = %error, "the JWKS cannot be fetched"),
    }
    keys
}

#[cfg(test)]
mod tests {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
    use serde_json::{Value, json};
    use xmtp_https::Fault;

    use super::*;
    use crate::algorithm::Algorithm;
    use crate::testing::{Issuer, JwksServer, Reply, document};

    const SCHEDULE: Schedule = Schedule {
        refresh: Duration::from_millis(10),
        max_stale: Duration::from_mins(10),
    };

    fn jwk(kid: &'static str) -> Value {
        Issuer::new(Algorithm::EdDsa, kid).jwk()
    }

    fn kids(keys: &CurrentKeys) -> Vec<String> {
        let keys = keys.get();
        let kids = keys.keys().iter().map(|key| key.kid.clone());
        kids.map(Option::unwrap_or_default).collect()
    }

    async fn fetched(server: &JwksServer) -> Result<usize, FetchError> {
        let fetcher = Fetcher::new(server.url.clone()).unwrap();
        let keys = fetcher.fetch().await;
        keys.map(|keys| keys.keys().len())
    }

    /// The counter of refreshes by result, and the gauge of keys.
    fn recorded(snapshotter: &Snapshotter, result: &str) -> (u64, f64) {
        let (mut count, mut keys) = (0, 0.0);
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let has_result = key.key().labels().any(|label| label.value() == result);
            match value {
                DebugValue::Counter(value) if has_result => count = value,
                DebugValue::Gauge(value) => keys = value.into_inner(),
                _ => {}
            }
        }
        (count, keys)
    }

    #[tokio::test]
    async fn auth_015_auth_033_every_answer_that_is_no_jwks_is_a_failure_of_its_kind() {
        // Spaces around the document count.
        let filled = |bytes: usize| {
            let mut text = json!({ "keys": [jwk("one")] }).to_string();
            text.push_str(&" ".repeat(bytes - text.len()));
            Reply::Document(text.into_bytes())
        };
        let redirect = |status: u16| Reply::Head(format!("{status} Moved\r\nlocation: /other"));
        for (reply, expected) in [
            (document(&[jwk("one"), json!({}), jwk("two")]), Ok(2)),
            (filled(262_144), Ok(1)),
            (filled(262_145), Err(Fault::TooLarge.into())),
            (Reply::Endless, Err(Fault::TooLarge.into())),
            (redirect(301), Err(Fault::Redirect.into())),
            (redirect(302), Err(Fault::Redirect.into())),
            (redirect(307), Err(Fault::Redirect.into())),
            (
                Reply::Head("304 Not Modified".to_owned()),
                Err(Fault::Redirect.into()),
            ),
            (
                Reply::Head("404 Not Found".to_owned()),
                Err(Fault::Status.into()),
            ),
            (
                Reply::Head("500 Oops".to_owned()),
                Err(Fault::Status.into()),
            ),
            (Reply::Head("200 OK".to_owned()), Err(FetchError::NotAJwks)),
            (
                Reply::Document(b"<html>".to_vec()),
                Err(FetchError::NotAJwks),
            ),
            (
                Reply::Document(b"{\"keys\":1}".to_vec()),
                Err(FetchError::NotAJwks),
            ),
            (document(&[]), Err(FetchError::NoUsableKey)),
            (
                document(&[json!({ "kty": "oct" })]),
                Err(FetchError::NoUsableKey),
            ),
            (Reply::Cut, Err(Fault::Interrupted.into())),
        ] {
            let server = JwksServer::start([reply]).await;
            assert_eq!(fetched(&server).await, expected);
            let requests = server.requests();
            assert_eq!(requests.len(), 1, "neither followed nor repeated");
            let request = requests[0].to_lowercase();
            assert!(request.starts_with("get /keys?secret=planted http/1.1"));
            assert!(!request.contains("cookie") && !request.contains("authorization"));
        }
        let server = JwksServer::start([Reply::Silence]).await;
        let mut url = server.url.clone();
        // Nobody listens there.
        url.set_port(Some(1)).unwrap();
        let refused = Fetcher::new(url).unwrap().fetch().await;
        assert_eq!(refused.unwrap_err(), Fault::Connect.into());
    }

    // Time is paused: it passes as soon as every task waits.
    #[tokio::test(start_paused = true)]
    async fn auth_033_a_fetch_takes_at_most_ten_seconds() {
        let server = JwksServer::start([Reply::Silence]).await;
        let start = Instant::now();
        assert_eq!(fetched(&server).await, Err(Fault::Timeout.into()));
        let taken = start.elapsed().as_secs_f64();
        assert!((10.0..11.0).contains(&taken), "{taken}");
    }

    #[tokio::test]
    async fn auth_017_the_start_tries_three_times_a_second_apart() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let failure = || Reply::Head("503 Later".to_owned());
        let script = [failure(), document(&[]), document(&[jwk("one")]), failure()];
        let server = JwksServer::start(script).await;
        let start = Instant::now();
        let fetcher = Fetcher::new(server.url.clone()).unwrap();
        let loaded = load(fetcher, SCHEDULE).await.expect("the third works");
        assert!(start.elapsed() >= Duration::from_secs(2));
        assert_eq!(kids(loaded.keys()), ["one"]);
        assert_eq!(recorded(&snapshotter, "error"), (2, 1.0));

        let fetcher = Fetcher::new(server.url.clone()).unwrap();
        let error = load(fetcher, SCHEDULE)
            .await
            .err()
            .expect("no attempt works");
        assert_eq!(server.requests().len(), 6);
        let text = format!("{error} {error:?}");
        assert!(text.starts_with("auth.jwks_url: no usable signing key after 3 attempts: status"));
        assert!(
            !text.contains("planted") && !text.contains("127.0.0.1"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn auth_018_a_refresh_replaces_the_set_as_a_whole_and_a_failure_keeps_it() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let server = JwksServer::start([document(&[jwk("one"), jwk("two")])]).await;
        let fetcher = Fetcher::new(server.url.clone()).unwrap();
        let loaded = load(fetcher, SCHEDULE).await.expect("it works");
        let keys = loaded.keys().clone();
        assert_eq!(kids(&keys), ["one", "two"]);
        let task = tokio::spawn(loaded.keep_fresh());
        for reply in [
            document(&[]),
            Reply::Head("500 Oops".to_owned()),
            document(&[json!({ "kid": "three" })]),
        ] {
            server.answer(reply);
            let before = server.requests().len();
            while server.requests().len() < before + 3 {
                sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(kids(&keys), ["one", "two"], "the old set stays");
        }
        server.answer(document(&[jwk("three")]));
        while kids(&keys) != ["three"] {
            sleep(Duration::from_millis(5)).await;
        }
        task.abort();
        let (errors, count) = recorded(&snapshotter, "error");
        assert!(errors >= 6, "{errors}");
        assert!((count - 1.0).abs() < f64::EPSILON, "{count}");
    }

    #[tokio::test]
    async fn auth_019_at_the_stale_deadline_a_hanging_fetch_does_not_matter() {
        let schedule = Schedule {
            max_stale: Duration::from_millis(300),
            ..SCHEDULE
        };
        let server = JwksServer::start([document(&[jwk("one")]), Reply::Silence]).await;
        let fetcher = Fetcher::new(server.url.clone()).unwrap();
        let start = Instant::now();
        let loaded = load(fetcher, schedule).await.expect("it works");
        let error = loaded.keep_fresh().await.expect_err("the deadline passes");
        assert!(start.elapsed() >= schedule.max_stale);
        assert!(
            start.elapsed() < crate::fetch::MAX_DURATION,
            "no fetch ended"
        );
        assert_eq!(server.requests().len(), 2);
        assert!(
            error
                .to_string()
                .starts_with("auth.jwks_max_stale_seconds: ")
        );
    }

    #[tokio::test]
    async fn auth_019_each_success_moves_the_stale_deadline() {
        let schedule = Schedule {
            max_stale: Duration::from_millis(1500),
            ..SCHEDULE
        };
        let server = JwksServer::start([document(&[jwk("one")])]).await;
        let fetcher = Fetcher::new(server.url.clone()).unwrap();
        let loaded = load(fetcher, schedule).await.expect("it works");
        let task = tokio::spawn(loaded.keep_fresh());
        sleep(schedule.max_stale * 2).await;
        assert!(!task.is_finished(), "it was fetched again and again");
        let down = Instant::now();
        server.answer(Reply::Head("500 Oops".to_owned()));
        task.await.unwrap().expect_err("the deadline passes");
        assert!(down.elapsed() <= schedule.max_stale * 4);
    }

    #[test]
    fn auth_018_a_pause_is_the_interval_and_up_to_a_tenth_more() {
        let loaded = Loaded {
            fetcher: Fetcher::new("http://localhost/".parse().unwrap()).unwrap(),
            schedule: Schedule {
                refresh: Duration::from_secs(100),
                max_stale: Duration::MAX,
            },
            keys: CurrentKeys::new(KeySet::default()),
            deadline: Instant::now(),
        };
        let pauses: Vec<f64> = (0..100).map(|_| loaded.pause().as_secs_f64()).collect();
        assert!(pauses.iter().all(|pause| (100.0..=110.0).contains(pause)));
        assert!(pauses.iter().any(|pause| *pause > 101.0));
        assert!(loaded.schedule.deadline() > Instant::now(), "no overflow");
    }
}
