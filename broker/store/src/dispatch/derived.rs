//! Queues and index during recovery: how the scan of the log brings them in line with it.
//!
//! Not here: the scan (`recovery`), and the index, which finds by itself what it lacks once the store is open.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use minimq_protocol::message::RecordRef;

use super::dispatcher::{RecentQueues, enter};
use crate::checkpoint::CheckpointContent;
use crate::consume_queue::{ConsumeQueues, DeletedTopics};
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
    dispatched: Option<Dispatched>,
}

/// What queues on disk say about records that had reached them.
#[derive(Debug)]
struct Dispatched {
    /// All records below have their entries on disk.
    to: i64,
    /// All records below had reached their queues once.
    entered: i64,
    /// Whether the last stop was clean: then nothing below is to be entered again.
    clean: bool,
    /// All queues. Records of others are of a topic that a 4.9.8 broker deleted, once.
    known: HashMap<Box<str>, HashSet<i32>>,
    /// Topics that were deleted, and below which offset that counts.
    deleted: DeletedTopics,
}

impl<'a> DerivedData<'a> {
    /// Both still empty.
    pub fn new(queues: &'a ConsumeQueues, index: &'a Index) -> Self {
        Self {
            queues,
            index,
            recent: RecentQueues::default(),
            dispatched: None,
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
        if let (Some(flushed), Some(dispatched)) =
            (checkpoint.flushed_offset, checkpoint.dispatched_offset)
            && self.queues.read_catalogue()?
        {
            let mut known: HashMap<Box<str>, HashSet<i32>> = HashMap::new();
            self.queues.visit_known(&mut |topic, queue_id| {
                known.entry(topic.into()).or_default().insert(queue_id);
            });
            self.dispatched = Some(Dispatched {
                to: flushed.min(dispatched),
                entered: flushed.min(checkpoint.entered_offset.unwrap_or(dispatched)),
                clean,
                known,
                deleted: self.queues.deleted_topics(),
            });
        }
        self.index.load(clean, checkpoint.index_timestamp)
    }

    fn largest_end(&self) -> PhysicalOffset {
        PhysicalOffset(self.queues.largest_physical_end())
    }

    fn needed_from(&self, log_min: PhysicalOffset) -> PhysicalOffset {
        if self.queues.lacks_any() {
            return log_min;
        }
        // The last records may have been of a topic that was deleted.
        let clean = self.dispatched.as_ref().filter(|d| d.clean);
        let dispatched = clean.map_or(0, |dispatched| dispatched.to);
        self.largest_end().max(PhysicalOffset(dispatched))
    }

    fn rewind(&mut self, from: PhysicalOffset) -> Result<(), StoreError> {
        self.queues.rewind(from.get())
    }

    fn record_starts(&self, range: Range<PhysicalOffset>) -> Result<Vec<RecordPlace>, StoreError> {
        self.queues.record_starts(&range)
    }

    fn is_deleted(&self, record: &RecordRef<'_>) -> bool {
        let at = record.physical_offset();
        self.dispatched.as_ref().is_some_and(|dispatched| {
            let (deleted, known) = (&dispatched.deleted, &dispatched.known);
            let is_known = || {
                let queues = known.get(record.topic());
                queues.is_some_and(|queues| queues.contains(&record.queue_id()))
            };
            deleted.get(record.topic()).is_some_and(|below| at < *below)
                || (at + record.size() as i64 <= dispatched.entered && !is_known())
        })
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
