//! Transactions (broker spec 8). A half message lies in `RMQ_SYS_TRANS_HALF_TOPIC` (the send puts it there), visible
//! to nobody. Its producer ends it ([`end`]): a commit stores it again under its own topic, and either way an *op
//! message* marks the half message as done. What nobody ends is asked about again and again ([`round`]) and at last
//! put aside in `TRANS_CHECK_MAX_TIME_TOPIC`, from where request 323 brings it back.

mod ask;
mod decide;
mod end;
mod half;
mod resume;
mod round;

pub use ask::Asker;
pub use end::{Ends, end_collected};
pub use resume::resume;
pub use round::CopiesWaiting;
