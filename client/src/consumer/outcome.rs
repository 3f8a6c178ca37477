//! What handlers return.

use std::time::Duration;

/// What became of a message in a concurrent handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Consumed.
    Done,
    /// Deliver it again; the broker waits longer each time.
    Retry,
    /// Deliver it again after that delay level.
    RetryAtLevel(i32),
    /// Put it into the dead-letter topic at once.
    Reject,
}

impl Outcome {
    /// The delay level of a send-back; `None` if there is nothing to send back.
    pub(crate) fn level(self) -> Option<i32> {
        match self {
            Self::Done => None,
            Self::Retry => Some(0),
            Self::RetryAtLevel(level) => Some(level.max(1)),
            Self::Reject => Some(-1),
        }
    }
}

/// What became of a message in an ordered handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderedOutcome {
    /// Consumed; the next one follows.
    Done,
    /// The queue rests for the time set in the builder, then the message comes again.
    Suspend,
    /// The same after another time.
    SuspendFor(Duration),
}

/// Outcomes of the messages handed to a handler at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcomes {
    /// The same for all.
    All(Outcome),
    /// One for each, in order; missing ones are retried.
    Each(Vec<Outcome>),
}

impl Outcomes {
    pub(crate) fn of(&self, index: usize) -> Outcome {
        match self {
            Self::All(outcome) => *outcome,
            Self::Each(each) => each.get(index).copied().unwrap_or(Outcome::Retry),
        }
    }
}

impl From<Outcome> for Outcomes {
    fn from(outcome: Outcome) -> Self {
        Self::All(outcome)
    }
}

impl From<Vec<Outcome>> for Outcomes {
    fn from(each: Vec<Outcome>) -> Self {
        Self::Each(each)
    }
}

impl From<()> for Outcomes {
    /// Done.
    fn from((): ()) -> Self {
        Self::All(Outcome::Done)
    }
}

impl<E: std::fmt::Display> From<Result<(), E>> for Outcomes {
    /// Done, or retried; the error is logged.
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::All(Outcome::Done),
            Err(error) => {
                tracing::warn!(%error, "the handler failed; the message is delivered again");
                Self::All(Outcome::Retry)
            }
        }
    }
}

impl From<()> for OrderedOutcome {
    /// Done.
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl<E: std::fmt::Display> From<Result<(), E>> for OrderedOutcome {
    /// Done, or suspended; the error is logged.
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(error) => {
                tracing::warn!(%error, "the handler failed; the queue rests");
                Self::Suspend
            }
        }
    }
}
