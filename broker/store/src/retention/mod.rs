//! What is deleted, and when messages are refused because a disk is full (store spec 7).
//!
//! | module | what |
//! |---|---|
//! | [`watermark`] | how full a disk is and what that means: pure |
//! | [`cleaner`] | the thread that deletes log files, queue files and index files |
//!
//! Not here: deletion of topics (`ConsumeQueues::delete_topics`), and a disk that is full to the last block, which the
//! log itself notices when it makes its next file.

pub mod cleaner;
pub mod watermark;

pub use cleaner::{CleanReport, Cleaner};
pub use watermark::{DiskUse, Watermarks};
