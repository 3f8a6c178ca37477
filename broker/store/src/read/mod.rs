//! Reading messages: by queue offset, by place in the log, by key, by time (store spec 4.7 – 4.9, 5.6).
//!
//! | module | what |
//! |---|---|
//! | [`get`] | messages of a queue from an offset on, with budgets and filters |
//! | `record` | one record of the log, hot or cold |
//! | `query` | messages by key |
//! | `pool` | buffers for cold bytes |
//!
//! Nothing here blocks unless it was allowed to: [`ReadError::WouldBlock`] asks the caller to repeat the call where
//! waiting is allowed. Not here: long polls, permissions, statistics (the broker's).

pub mod get;
mod pool;
mod query;
mod record;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use self::pool::BufferPool;
use crate::commit_log::CommitLog;
use crate::config::{StoreConfig, StoreRole};
use crate::consume_queue::{Blocking, ConsumeQueues, ReadError};
use crate::damage::DamageList;
use crate::error::StoreError;
use crate::index::Index;
use crate::offset::{PhysicalOffset, QueueOffset};

pub use get::{GetRequest, GetResult, GetStatus, MessageFilter, NoFilter};
pub use query::QueryResult;

/// Reads from one store; shared by all who do.
#[derive(Debug)]
pub struct Reader {
    log: Arc<CommitLog>,
    queues: Arc<ConsumeQueues>,
    index: Arc<Index>,
    damage: Arc<DamageList>,
    pool: Arc<BufferPool>,
    limits: RwLock<Limits>,
}

/// How much one get gives (store spec 4.7).
#[derive(Debug, Clone, Copy)]
struct Limits {
    memory_bytes: usize,
    memory_count: usize,
    disk_bytes: usize,
    disk_count: usize,
    /// Bytes behind the end of the log that count as in memory.
    memory_window: i64,
    /// A slave that does not know better leaves a wrong offset to its master.
    keep_wrong_offsets: bool,
    query_count: usize,
}

impl Limits {
    fn of(config: &StoreConfig) -> Self {
        let ratio = u64::from(config.access_message_in_memory_max_ratio);
        let window = rustix::system::sysinfo().totalram / 100 * ratio;
        Self {
            memory_bytes: config.max_transfer_bytes_on_message_in_memory,
            memory_count: config.max_transfer_count_on_message_in_memory,
            disk_bytes: config.max_transfer_bytes_on_message_in_disk,
            disk_count: config.max_transfer_count_on_message_in_disk,
            memory_window: i64::try_from(window).unwrap_or(i64::MAX),
            keep_wrong_offsets: config.role == StoreRole::Slave && !config.offset_check_in_slave,
            query_count: config.max_msgs_num_batch,
        }
    }
}

impl Reader {
    pub(crate) fn new(
        config: &StoreConfig,
        log: Arc<CommitLog>,
        queues: Arc<ConsumeQueues>,
        index: Arc<Index>,
        damage: Arc<DamageList>,
    ) -> Self {
        Self {
            limits: RwLock::new(Limits::of(config)),
            log,
            queues,
            index,
            damage,
            pool: Arc::default(),
        }
    }

    /// Takes over changed settings, from the next read on.
    pub(crate) fn reconfigure(&self, config: &StoreConfig) {
        *self.limits.write() = Limits::of(config);
    }

    fn limits(&self) -> Limits {
        *self.limits.read()
    }

    /// The number of the first message of a queue that can be read; 0 for a queue that does not exist.
    #[must_use]
    pub fn min_offset(&self, topic: &str, queue_id: i32) -> QueueOffset {
        QueueOffset(
            self.queues
                .get(topic, queue_id)
                .map_or(0, |q| q.min_offset()),
        )
    }

    /// The number the next message of a queue will get; 0 for a queue that does not exist.
    #[must_use]
    pub fn max_offset(&self, topic: &str, queue_id: i32) -> QueueOffset {
        QueueOffset(
            self.queues
                .get(topic, queue_id)
                .map_or(0, |q| q.max_offset()),
        )
    }

    /// The number of the message stored at `timestamp`, or of the nearest one (store spec 4.8).
    ///
    /// # Errors
    /// When the disk fails.
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp: i64,
    ) -> Result<QueueOffset, StoreError> {
        let Some(queue) = self.queues.get(topic, queue_id) else {
            return Ok(QueueOffset(0));
        };
        let log_min = self.log.min_offset().get();
        let mut time_of = |at, _| self.time_at(at).ok().flatten();
        queue
            .offset_by_time(timestamp, log_min, &mut time_of)
            .map(QueueOffset)
    }

    /// When message `offset` of a queue was stored, ms; `None` if it is not there.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn store_time(
        &self,
        topic: &str,
        queue_id: i32,
        offset: QueueOffset,
    ) -> Result<Option<i64>, StoreError> {
        let Some(queue) = self
            .queues
            .get(topic, queue_id)
            .filter(|q| offset.get() >= q.min_offset())
        else {
            return Ok(None);
        };
        match queue.entry(offset.get())? {
            Some(entry) if !entry.is_filler() => self.time_at(entry.physical_offset),
            _ => Ok(None),
        }
    }

    /// When the first message of a queue was stored, ms; `None` if it has none.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn earliest_time(&self, topic: &str, queue_id: i32) -> Result<Option<i64>, StoreError> {
        self.store_time(topic, queue_id, self.min_offset(topic, queue_id))
    }

    /// When the first message of the store was stored, ms; `None` if it has none.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn earliest_time_of_all(&self) -> Result<Option<i64>, StoreError> {
        self.time_at(self.log.min_offset().get())
    }

    /// The record that begins at `at`; `None` if none does, or it is damaged.
    ///
    /// # Errors
    /// [`ReadError::WouldBlock`] if it must be read from the disk and `blocking` forbids that; or the disk's failure.
    pub fn record(
        &self,
        at: PhysicalOffset,
        blocking: Blocking,
    ) -> Result<Option<Bytes>, ReadError> {
        self.record_at(at.get(), blocking)
    }
}
