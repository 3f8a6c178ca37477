//! Queues and index during recovery: how the scan of the log brings them in line with it.
//!
//! Not here: the scan (`recovery`), and the index, which finds by itself what it lacks once the store is open.

use std::ops::Range;

use minimq_protocol::message::RecordRef;

use super::dispatcher::{RecentQueues, enter};
use crate::checkpoint::CheckpointContent;
use crate::consume_queue::{ConsumeQueues, Deletions};
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
    deletions: Deletions,
    /// After a clean stop: all records below have their entries, nothing there is to be entered again.
    complete_below: i64,
    log_min: i64,
}

impl<'a> DerivedData<'a> {
    /// Both still empty.
    pub fn new(queues: &'a ConsumeQueues, index: &'a Index) -> Self {
        Self {
            queues,
            index,
            recent: RecentQueues::default(),
            deletions: Deletions::default(),
            complete_below: 0,
            log_min: 0,
        }
    }
}

impl Derived for DerivedData<'_> {
    fn load(&mut self, clean: bool, checkpoint: &CheckpointContent) -> Result<(), StoreError> {
        // A 4.9.8 broker that was at work since may have deleted queues for good.
        let ours = checkpoint.flushed_offset.zip(checkpoint.dispatched_offset);
        let dispatched = ours.map(|(flushed, dispatched)| flushed.min(dispatched));
        let trusted = dispatched.filter(|_| !clean).unwrap_or(i64::MAX);
        let without_queues = self.queues.load(clean, trusted)?;
        match dispatched {
            Some(dispatched) if self.queues.read_catalogue(clean)? => {
                self.deletions = self.queues.deletions(checkpoint);
                self.complete_below = if clean { dispatched } else { 0 };
            }
            None if clean => {
                let entered = self.queues.largest_physical_end();
                self.deletions = Deletions::by_empty_folders(without_queues, entered);
            }
            _ => {}
        }
        self.index.load(clean, checkpoint.index_timestamp)
    }

    fn largest_end(&self) -> PhysicalOffset {
        PhysicalOffset(self.queues.largest_physical_end())
    }

    fn needed_from(&mut self, log_min: PhysicalOffset) -> PhysicalOffset {
        self.log_min = log_min.get();
        if self.queues.lacks_any() {
            return log_min;
        }
        // The last records may have been of a topic that was deleted.
        let complete = PhysicalOffset(self.complete_below);
        self.largest_end().max(complete)
    }

    fn rewind(&mut self, from: PhysicalOffset) -> Result<(), StoreError> {
        self.queues.rewind(from.get())
    }

    fn record_starts(&self, range: Range<PhysicalOffset>) -> Result<Vec<RecordPlace>, StoreError> {
        self.queues.record_starts(&range)
    }

    fn is_deleted(&self, record: &RecordRef<'_>) -> bool {
        self.deletions.is_deleted(record)
    }

    fn accept(&mut self, record: &DispatchRecord<'_>) -> Result<(), StoreError> {
        if !record.is_consumable() {
            return Ok(());
        }
        let (deletions, log_min) = (&self.deletions, self.log_min);
        // Nothing is lost of a queue that has no message of the log; and one that is made again of a topic that was being
        // deleted may have begun with messages from before.
        let anew_below = |topic: &str| match deletions.is_remade(topic) {
            true => i64::MAX,
            false => log_min,
        };
        enter(self.queues, &mut self.recent, record, &[], anew_below)
    }

    fn truncate(&mut self, end: PhysicalOffset) -> Result<(), StoreError> {
        self.queues.truncate(end.get())?;
        self.index.truncate(end.get())
    }

    fn next_offsets(&self, visit: &mut dyn FnMut(&str, i32, QueueOffset)) {
        self.queues.next_offsets(visit);
    }
}
