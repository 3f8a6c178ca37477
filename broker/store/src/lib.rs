//! The message store: RocketMQ 4.9's file formats, appended to near the speed of memory, and honest about what is on
//! disk. Sync API, own threads, no network, no async runtime.
//!
//! Where to start reading: `store` (the facade), `append` (how a message gets in), `commit_log` (where it lies),
//! [`recovery`] (what is believed after a crash). `README.md` of this crate has every file's layout byte by byte.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | every limit and path, named after its RocketMQ key |
//! | [`error`] | why the store did not open, why a message was refused |
//! | [`offset`] | [`PhysicalOffset`], [`QueueOffset`] |
//! | [`delay_level`] | how long delayed messages wait |
//! | [`dispatch_record`] | what consume queues and index get to know of a record |
//! | [`io`] | the disk as the store sees it: the real one, and a simulated one whose power can be cut |
//! | [`consume_queue`] | queues: entries that point into the log, their extensions |
//! | [`index`] | hash files from which messages are found by key |
//! | [`recovery`] | what a stopped store still proves, and what is cut |
//!
//! Not here: the wire, topics' permissions, delay and transaction services (the broker crate).

#![deny(unsafe_code)]

pub mod config;
pub mod consume_queue;
pub mod delay_level;
pub mod dispatch_record;
pub mod error;
#[cfg(test)]
mod golden;
pub mod index;
pub mod io;
pub mod offset;
pub mod recovery;
pub mod region;

pub use config::{FlushDiskType, StoreConfig, StoreRole};
pub use delay_level::DelayLevels;
pub use dispatch_record::DispatchRecord;
pub use error::{AppendError, Refusal, StoreError};
pub use offset::{PhysicalOffset, QueueOffset};
