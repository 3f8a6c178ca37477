//! The message store: RocketMQ 4.9's file formats, appended to near the speed of memory, and honest about what is on
//! disk. Sync API, own threads, no network, no async runtime.
//!
//! Where to start reading: [`log_store`] (what is opened and closed), [`append`] (how a message gets in), [`commit_log`] (where it lies),
//! [`recovery`] (what is believed after a crash). `README.md` of this crate has every file's layout byte by byte.
//!
//! | module | what |
//! |---|---|
//! | [`log_store`] | the log of an open store: opening, appending, flushing, closing |
//! | [`append`] | how a message gets into the log |
//! | [`commit_log`] | the log's files; reading them |
//! | [`flush`], [`checkpoint`] | making the log durable; what a restart may rely on |
//! | [`gate`] | whether messages are taken at all |
//! | [`damage`] | parts of the log that are never served |
//! | [`config`] | every limit and path, named after its RocketMQ key |
//! | [`error`] | why the store did not open, why a message was refused |
//! | [`offset`] | [`PhysicalOffset`], [`QueueOffset`] |
//! | [`delay_level`] | how long delayed messages wait |
//! | [`dispatch_record`] | what consume queues and index get to know of a record |
//! | [`dispatch`] | the threads that fill queues and index from the log |
//! | [`read`] | messages by queue offset, by place, by key, by time |
//! | [`retention`] | what is deleted when; full disks |
//! | [`io`] | the disk as the store sees it: the real one, and a simulated one whose power can be cut |
//! | [`consume_queue`] | queues: entries that point into the log, their extensions |
//! | [`index`] | hash files from which messages are found by key |
//! | [`region`] | memory that is a file; all `unsafe` code |
//! | [`signal`], [`clock`], [`counters`] | waking threads, time, figures |
//! | [`recovery`] | what a stopped store still proves, and what is cut |
//! | [`verify`] | a store read without changing it, for tools |
//!
//! Not here: the wire, topics' permissions, delay and transaction services (the broker crate).

#![deny(unsafe_code)]

pub mod append;
pub mod checkpoint;
pub mod clock;
pub mod commit_log;
pub mod config;
pub mod consume_queue;
pub mod counters;
pub mod damage;
pub mod delay_level;
pub mod dispatch;
pub mod dispatch_record;
pub mod error;
pub mod flush;
pub mod gate;
#[cfg(test)]
mod golden;
pub mod index;
pub mod io;
pub mod log_store;
pub mod offset;
pub mod read;
mod recent_records;
pub mod recovery;
pub mod region;
pub mod retention;
pub mod signal;
pub mod store;
pub mod verify;

pub use append::message::{AppendMessage, AppendOutcome, AppendResult};
pub use append::{Appended, ReplicaAppended};
pub use clock::StoreClock;
pub use commit_log::ahead::RoomTicket;
pub use commit_log::{CommitLog, LogRead};
pub use config::{FlushDiskType, StoreConfig, StoreRole};
pub use consume_queue::{Blocking, ReadError};
pub use delay_level::DelayLevels;
pub use dispatch::{DispatchListener, Dispatched, FilterBits};
pub use dispatch_record::DispatchRecord;
pub use error::{AppendError, Refusal, StoreError};
pub use flush::{FlushOutcome, FlushWaiter};
pub use log_store::LogStore;
pub use offset::{PhysicalOffset, QueueOffset};
pub use read::{GetRequest, GetResult, GetStatus, MessageFilter, NoFilter, QueryResult, Reader};
pub use recovery::{RecoveryProgress, RecoveryReport};
pub use store::Store;
