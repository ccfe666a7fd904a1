//! Work on what may be many topics, of a stream that may end meanwhile.

use crate::End;
use crate::output::Output;
use crate::pace::Pace;
use crate::port::Mailbox;

/// A topic is a step.
pub(crate) struct Steps<'a> {
    pub(crate) pace: &'a Pace,
    /// Those since the stream last rested.
    pub(crate) taken: &'a mut usize,
    pub(crate) output: &'a Output,
    pub(crate) mailbox: &'a Mailbox,
}

impl Steps<'_> {
    /// Before each topic. In it the owner looks at what it otherwise learns between two events: whether there is anybody
    /// left to work for.
    pub(crate) async fn step(&mut self) -> Result<(), End> {
        let (output, mailbox) = (self.output, self.mailbox);
        let is_over = || {
            let is_abandoned = output.is_abandoned();
            mailbox.end().or(is_abandoned.then_some(End::Client))
        };
        self.pace.step(self.taken, is_over).await
    }
}
