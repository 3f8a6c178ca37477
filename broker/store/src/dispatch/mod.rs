//! What follows the log: records become queue entries, and, behind that and never in its way, index entries.
//!
//! | module | what |
//! |---|---|
//! | `follower` | records of the log in batches, up to a limit; damage passed over |
//! | [`dispatcher`] | the thread that fills consume queues and tells who waits for messages |
//! | [`indexer`] | the thread that fills the index |
//! | `keeper` | the thread that brings queues and index to disk and notes it in the checkpoint |
//! | [`derived`] | the same during recovery, before there are threads |
//!
//! Positions: `indexed ≤ dispatched ≤ CommitLog::dispatch_limit ≤ published`; asserted in `Dispatcher::advance` and
//! `Indexer::run`.

pub mod derived;
pub mod dispatcher;
mod follower;
pub mod indexer;
pub(crate) mod keeper;

pub use dispatcher::{DispatchListener, Dispatched, Dispatcher, FilterBits};
