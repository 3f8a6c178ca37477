//! Consume queues: for each queue of each topic, 20-byte entries that point into the commit log (store spec 4), and
//! their extensions. They are derived from the log and can be rebuilt from it.
//!
//! | module | what |
//! |---|---|
//! | [`entry`] | the 20 bytes |
//! | [`queue`] | one queue: entries in, entries out |
//! | `trim` | one queue: its end after a stop, its beginning after cleaning |
//! | `by_time` | one queue: which message was stored when |
//! | [`ext`] | extension units |
//! | [`table`] | all queues |
//! | `catalogue` | which queues there were, to notice one whose files are gone |
//! | `deletions` | which records count for nothing at a start, since their topic was deleted |
//! | `segments`, `open_files` | equal files of one address space; the bounded set of descriptors |
//!
//! Not here: who writes entries and when (`dispatch`), which messages a reader gets (`read`), what is deleted when
//! (`retention`).

use std::path::PathBuf;

use crate::config::StoreConfig;
use crate::error::StoreError;

mod by_time;
mod catalogue;
mod deletions;
pub mod entry;
pub mod ext;
mod open_files;
pub mod queue;
mod segments;
pub mod table;
#[cfg(test)]
mod tests;
mod trim;

pub(crate) use deletions::{Deletions, QueueNames};
pub use entry::QueueEntry;
pub use ext::ExtUnit;
pub use queue::{ConsumeQueue, Pushed};
pub use table::ConsumeQueues;

/// Whether a read may wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    /// The caller is on a thread of its own.
    Allowed,
    /// The caller serves connections: a read that would wait is [`ReadError::WouldBlock`].
    Refused,
}

/// Why a read brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes are not in memory: ask again with [`Blocking::Allowed`] where waiting is allowed.
    #[error("the bytes are not in memory")]
    WouldBlock,
    /// The disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReadError {
    /// For reads that were allowed to block, which never would.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::WouldBlock => StoreError::io("", "read", std::io::ErrorKind::WouldBlock.into()),
            Self::Store(error) => error,
        }
    }
}

/// Where queues lie and how long their files are.
#[derive(Debug, Clone)]
pub(crate) struct QueueSettings {
    folder: PathBuf,
    file_len: i64,
    ext: Option<ExtSettings>,
}

#[derive(Debug, Clone)]
struct ExtSettings {
    folder: PathBuf,
    file_len: i64,
}

impl QueueSettings {
    pub(crate) fn new(config: &StoreConfig) -> Self {
        let root = &config.store_path_root_dir;
        Self {
            folder: root.join("consumequeue"),
            file_len: config.consume_queue_file_size() as i64,
            ext: config.enable_consume_queue_ext.then(|| ExtSettings {
                folder: root.join("consumequeue_ext"),
                file_len: config.mapped_file_size_consume_queue_ext as i64,
            }),
        }
    }
}
