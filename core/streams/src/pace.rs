//! The pace of work on many topics: one client's 100,000 must not cost the others their time.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::coop::consume_budget;
use tokio::time::sleep;

use crate::End;

/// Topics between two rests: about a millisecond's work.
pub(crate) const DOSE: usize = 1000;

/// The shortest rest that the timer knows.
const REST: Duration = Duration::from_millis(1);

/// Where the streams of an instance rest, one for every two processors at a time: there are as many doses in each
/// [`REST`] at most, so that most of the processors' time is left for the others.
pub(crate) struct Pace(Semaphore);

impl Pace {
    pub(crate) fn new() -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::of((processors / 2).max(1))
    }

    fn of(turns: usize) -> Self {
        Self(Semaphore::new(turns))
    }

    /// Before each topic of a stream that has `taken` some since it rested. Lets others run meanwhile. Where many are to
    /// be taken it looks whether the stream `is_over`, as it may be by the time its turn to rest comes.
    pub(crate) async fn step(
        &self,
        taken: &mut usize,
        is_over: impl Fn() -> Option<End>,
    ) -> Result<(), End> {
        if *taken == DOSE {
            *taken = 0;
            let turn = self.0.acquire().await;
            if let Some(end) = is_over() {
                return Err(end);
            }
            // Closed, there are no rests.
            if turn.is_ok() {
                sleep(REST).await;
            }
        }
        *taken += 1;
        consume_budget().await;
        Ok(())
    }

    /// Nobody rests any more: who is left has to end.
    pub(crate) fn hurry(&self) {
        self.0.close();
    }

    /// Every turn there is.
    #[cfg(test)]
    pub(crate) async fn all_turns(&self) -> impl Drop + '_ {
        let turns = self.0.available_permits().try_into();
        self.0.acquire_many(turns.unwrap()).await.unwrap()
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join3;
    use tokio::time::Instant;

    use super::*;

    async fn work(pace: &Pace, topics: usize) -> Duration {
        let begin = Instant::now();
        let mut taken = 0;
        for _ in 0..topics {
            pace.step(&mut taken, || None).await.unwrap();
        }
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn arc_074_many_topics_rest_after_each_dose_and_few_never() {
        let pace = Pace::of(1);
        assert_eq!(work(&pace, DOSE).await, Duration::ZERO);
        let once = work(&pace, DOSE + 1).await;
        assert!(once >= REST, "{once:?}");
        assert!(work(&pace, 10 * DOSE).await >= 9 * REST);
    }

    #[tokio::test(start_paused = true)]
    async fn arc_074_streams_rest_as_many_at_a_time_as_there_are_turns_and_take_them_in_order() {
        let pace = Pace::of(1);
        let alone = work(&pace, 5 * DOSE).await;
        let many = work(&pace, 50 * DOSE);
        let (few, many, _) = join3(work(&pace, 5 * DOSE), many, work(&pace, DOSE)).await;
        assert!(few > alone && few <= 3 * alone, "{few:?} {alone:?}");
        assert!(many >= 53 * REST, "{many:?}");

        let pace = Pace::of(2);
        let (one, two, three) = (
            work(&pace, 50 * DOSE),
            work(&pace, 50 * DOSE),
            work(&pace, 1),
        );
        let (one, two, _) = join3(one, two, three).await;
        assert!(
            one < 2 * many && two < 2 * many,
            "neither waits: {one:?} {two:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn arc_082_who_has_to_end_does_not_rest() {
        let pace = Pace::of(1);
        let begin = Instant::now();
        let ended = pace.step(&mut { DOSE }, || Some(End::Client)).await;
        assert_eq!((ended, begin.elapsed()), (Err(End::Client), Duration::ZERO));
        pace.hurry();
        assert_eq!(work(&pace, 10 * DOSE).await, Duration::ZERO);
        let ended = pace.step(&mut { DOSE }, || Some(End::Shutdown)).await;
        assert_eq!(ended, Err(End::Shutdown));
    }
}
