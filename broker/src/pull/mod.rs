//! Pulling: codes 11 and 361 (broker spec 4). `request` checks and reads, `held` keeps pulls that wait for messages,
//! `wake` runs them again.

mod held;
mod request;
mod wake;

pub use held::HeldPulls;
pub use request::pull;
pub use wake::ArrivalListener;
