//! Looking at stored messages: by key (12), by place in the log (33), by queue entry (321) (broker spec 13.1, 13.2).

mod consume_queue;
mod message;

pub use consume_queue::consume_queue;
pub use message::{by_key, view};
