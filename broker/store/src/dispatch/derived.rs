//! Queues and index during recovery: how the scan of the log brings them in line with it.
//!
//! Not here: the scan (`recovery`), and the index, which finds by itself what it lacks once the store is open.

use std::ops::Range;

use super::dispatcher::{RecentQueues, enter};
use crate::checkpoint::CheckpointContent;
use crate::consume_queue::ConsumeQueues;
use crate::dispatch_record::DispatchRecord;
use crate::error::StoreError;
use crate::index::Index;
use crate::offset::{PhysicalOffset, QueueOffset};
use crate::recovery::{Derived, RecordPlace};

/// What recovery works on.
#[derive(Debug)]
pub struct DerivedData<'a> {
    queues: &'a ConsumeQueues,
    index: &'a Index,
    recent: RecentQueues,
}

impl<'a> DerivedData<'a> {
    /// Both still empty.
    pub fn new(queues: &'a ConsumeQueues, index: &'a Index) -> Self {
        Self {
            queues,
            index,
            recent: RecentQueues::default(),
        }
    }
}

impl Derived for DerivedData<'_> {
    fn load(&mut self, clean: bool, checkpoint: &CheckpointContent) -> Result<(), StoreError> {
        let trusted = match (checkpoint.flushed_offset, checkpoint.dispatched_offset) {
            (Some(flushed), Some(dispatched)) if !clean => flushed.min(dispatched),
            _ => i64::MAX,
        };
        self.queues.load(clean, trusted)?;
        // A 4.9.8 broker that was at work since may have deleted queues for good.
        if checkpoint.dispatched_offset.is_some() {
            self.queues.find_lost()?;
        }
        self.index.load(clean, checkpoint.index_timestamp)
    }

    fn largest_end(&self) -> PhysicalOffset {
        PhysicalOffset(self.queues.largest_physical_end())
    }

    fn needed_from(&self, log_min: PhysicalOffset) -> PhysicalOffset {
        if self.queues.lacks_any() {
            log_min
        } else {
            self.largest_end()
        }
    }

    fn rewind(&mut self, from: PhysicalOffset) -> Result<(), StoreError> {
        self.queues.rewind(from.get())
    }

    fn record_starts(&self, range: Range<PhysicalOffset>) -> Result<Vec<RecordPlace>, StoreError> {
        self.queues.record_starts(&range)
    }

    fn accept(&mut self, record: &DispatchRecord<'_>) -> Result<(), StoreError> {
        if !record.is_consumable() {
            return Ok(());
        }
        enter(self.queues, &mut self.recent, record, &[])
    }

    fn truncate(&mut self, end: PhysicalOffset) -> Result<(), StoreError> {
        self.queues.truncate(end.get())?;
        self.index.truncate(end.get())
    }

    fn next_offsets(&self, visit: &mut dyn FnMut(&str, i32, QueueOffset)) {
        self.queues.next_offsets(visit);
    }
}
