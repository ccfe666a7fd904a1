//! Waiting for a state instead of for a time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long [`eventually`] waits: far longer than any state takes, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long it waits between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `look` finds something, and answers it. `state` is what was waited for, in the words of the failure.
///
/// # Panics
/// When there is nothing to be found within [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(state: &str, look: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    // Written as a function that answers a future, so that a failure names the test's line.
    let caller = std::panic::Location::caller();
    within(PATIENCE, look, move || {
        panic!("{caller}: not within {PATIENCE:?}: {state}")
    })
}

async fn within<T>(
    patience: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
    give_up: impl FnOnce() -> T,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        if Instant::now() >= deadline {
            return give_up();
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_state_that_comes_later_is_found() {
        let mut looks = 0;
        let found = eventually("the third look", async || {
            looks += 1;
            (looks == 3).then_some(looks)
        })
        .await;
        assert_eq!(found, 3);
    }

    #[tokio::test]
    async fn a_state_that_never_comes_ends_the_wait() {
        let found = within(Duration::ZERO, async || None, || "gave up").await;
        assert_eq!(found, "gave up");
    }
}
