//! Consumers: [`PushConsumer`] hands messages to a handler, [`PullConsumer`] is polled or read as a stream. Both are the same
//! `engine`: it shares out queues (`assign`), pulls each of them (`queue`, `pull`), and the messages leave through
//! `concurrent`, `ordered` or the poller.

mod assign;
mod concurrent;
mod engine;
mod locks;
mod member;
mod offset;
mod ordered;
mod outcome;
mod polled;
mod pull;
mod push;
mod queue;
mod send_back;
mod settings;
mod stats;
mod stream;
mod watched;

pub use outcome::{OrderedOutcome, Outcome, Outcomes};
pub use polled::{PullConsumer, PullConsumerBuilder};
pub use push::{PushConsumer, PushConsumerBuilder};
pub use settings::StartFrom;
pub use stream::{MessageStream, Received};
