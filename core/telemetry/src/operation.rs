//! Operation spans: what an operator measures the duration of (OPS-019).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tracing::Span;
use tracing::instrument::{Instrument, Instrumented};

/// The field in which an operation records that it failed.
pub const ERROR: &str = "error";

/// The span of an operation of the catalogue, at INFO. Fields may follow the name; they hold numbers and
/// fixed words only (OPS-014).
#[macro_export]
macro_rules! operation {
    ($name:literal $(, $($fields:tt)+)?) => {
        $crate::tracing::info_span!($name, error = $crate::tracing::field::Empty $(, $($fields)+)?)
    };
}

/// Does `work` inside `operation`, which records a failure. Work that is dropped has recorded none.
pub fn observed<F>(operation: Span, work: F) -> Observed<F> {
    Observed {
        work: work.instrument(operation),
    }
}

pin_project! {
    /// Future of [`observed`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Observed<F> {
        #[pin]
        work: Instrumented<F>,
    }
}

impl<F, T, E> Future for Observed<F>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        let mut work = self.project().work;
        let outcome = ready!(work.as_mut().poll(context));
        if outcome.is_err() {
            work.span().record(ERROR, true);
        }
        Poll::Ready(outcome)
    }
}
