//! The pace of work on many topics: one client's 100,000 must not cost the others their time.

use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::coop::consume_budget;
use tokio::time::sleep;

/// Topics between two rests: about a millisecond's work.
const DOSE: usize = 1000;

/// The shortest rest that the timer knows.
const REST: Duration = Duration::from_millis(1);

/// Where the streams of an instance rest, one after the other: so all of them together do a dose in each
/// [`REST`], and whoever has few topics waits for nobody.
pub(crate) struct Pace(Semaphore);

impl Pace {
    pub(crate) fn new() -> Self {
        Self(Semaphore::new(1))
    }

    pub(crate) const fn begin(&self) -> Steps<'_> {
        Steps {
            pace: self,
            taken: 0,
        }
    }

    /// Nobody rests any more: who is left has to end.
    pub(crate) fn hurry(&self) {
        self.0.close();
    }
}

/// Work on topics, each of them a step.
pub(crate) struct Steps<'a> {
    pace: &'a Pace,
    taken: usize,
}

impl Steps<'_> {
    /// Before each topic. Lets others run meanwhile.
    pub(crate) async fn step(&mut self) {
        if self.taken == DOSE {
            self.taken = 0;
            // Closed, there are no rests.
            if let Ok(_turn) = self.pace.0.acquire().await {
                sleep(REST).await;
            }
        }
        self.taken += 1;
        consume_budget().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join;
    use tokio::time::Instant;

    use super::*;

    async fn work(pace: &Pace, topics: usize) -> Duration {
        let begin = Instant::now();
        let mut steps = pace.begin();
        for _ in 0..topics {
            steps.step().await;
        }
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn arc_074_many_topics_rest_after_each_dose_and_few_never() {
        let pace = Pace::new();
        assert_eq!(work(&pace, DOSE).await, Duration::ZERO);
        let once = work(&pace, DOSE + 1).await;
        assert!(once >= REST, "{once:?}");
        assert!(work(&pace, 10 * DOSE).await >= 9 * REST);
    }

    #[tokio::test(start_paused = true)]
    async fn arc_074_streams_rest_one_after_the_other_and_take_turns() {
        let pace = Pace::new();
        let alone = work(&pace, 5 * DOSE).await;
        let (few, many) = join(work(&pace, 5 * DOSE), work(&pace, 50 * DOSE)).await;
        assert!(few > alone && few <= 3 * alone, "{few:?} {alone:?}");
        assert!(many >= 53 * REST, "{many:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn arc_082_who_has_to_end_does_not_rest() {
        let pace = Pace::new();
        pace.hurry();
        assert_eq!(work(&pace, 10 * DOSE).await, Duration::ZERO);
    }
}
