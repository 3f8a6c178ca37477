//! What a stopped store still proves, and what is cut.

use std::ops::Range;

use crate::dispatch_record::DispatchRecord;
use crate::error::StoreError;
use crate::offset::{PhysicalOffset, QueueOffset};

/// Where a record lies according to a queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordPlace {
    /// Its first byte.
    pub at: PhysicalOffset,
    /// Its whole length.
    pub size: i32,
}

/// What is derived from the log, consume queues and index, as recovery of the log sees it. It is loaded and recovered by
/// itself before (store spec 6.4); then the log is scanned, and this is brought in line with it.
pub trait Derived {
    /// The largest end (offset + size) that any queue entry on disk proves; 0 without entries. Filler does not count.
    fn largest_end(&self) -> PhysicalOffset;

    /// From where on records must be given to [`Derived::accept`] again, because queues or index lack them. Everything
    /// from the log's beginning if there are no queues at all.
    fn needed_from(&self, log_min: PhysicalOffset) -> PhysicalOffset;

    /// Records from `from` on are about to be given again, in order: entries that point there count only once their
    /// records are accepted again, but stay known to [`Derived::record_starts`].
    ///
    /// # Errors
    /// When the queues cannot be read.
    fn rewind(&mut self, from: PhysicalOffset) -> Result<(), StoreError>;

    /// Where records begin in a range of the log, ascending, as far as queues tell. Asked only when the log is damaged.
    ///
    /// # Errors
    /// When the queues cannot be read.
    fn record_starts(&self, range: Range<PhysicalOffset>) -> Result<Vec<RecordPlace>, StoreError>;

    /// Takes a record in log order; one that is there already changes nothing.
    ///
    /// # Errors
    /// When it cannot be written.
    fn accept(&mut self, record: &DispatchRecord<'_>) -> Result<(), StoreError>;

    /// Forgets everything about records at or after `end` (store spec 6.8).
    ///
    /// # Errors
    /// When it cannot be written.
    fn truncate(&mut self, end: PhysicalOffset) -> Result<(), StoreError>;

    /// Calls `visit` with the next offset of each queue: what the table of queue offsets starts with (store spec 6.7).
    fn next_offsets(&self, visit: &mut dyn FnMut(&str, i32, QueueOffset));
}
