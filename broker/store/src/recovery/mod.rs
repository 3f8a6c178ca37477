//! What a stopped store still proves, and what is cut (store spec 6).
//!
//! The log is the only source of truth. After a clean stop its last three files are looked at; after an unclean one at
//! least those, and further back to where the checkpoint says that log and queues were on disk. What is found there:
//!
//! * a whole record at its own place: kept;
//! * a record with a whole head at its own place whose body or property text is bad, followed by a record or an end mark
//!   where it ends: *damaged*. It is never served, keeps its number in its queue, and is reported; the scan goes on;
//! * anything else: at or below the *durable offset* bytes were lost in the middle, so the scan goes on at the next place
//!   where a record is known to begin (a queue entry, the start of a file) and a whole one does; the part between is
//!   damaged. Above it, or if no such place is left, the log ends here: what follows was never acknowledged as durable.
//!
//! A part in which no record was found once stays without any (the file `damaged`): numbers of records in it that are whole
//! nevertheless were given again since.
//!
//! Damaged records at the very end, with no whole record after them, are cut too: nothing is lost that could be served.
//!
//! *The durable offset* is the largest of three proofs. The checkpoint's flushed offset: it was written after the sync
//! that covered it. The largest end of a queue entry: under `SYNC_FLUSH` only flushed records are dispatched, and a record
//! that was not flushed and is gone cannot be found whole, so believing too much here only costs a search. The start of
//! the last file whose first record is whole: files are filled one after the other. The checkpoint's time needs no proof
//! of its own: it says that records stored before it are on disk, and the last file that begins before it is among the
//! third kind.
//!
//! Stale records, left behind an end that another broker moved back, lie at their own place too. They are told by time and
//! number: stored before the record in front of them *and* with a queue offset that was given already.

pub(crate) mod scan;

use std::path::PathBuf;
use std::time::Duration;

use minimq_protocol::message::RecordRef;

use crate::checkpoint::CheckpointContent;
use crate::damage::DamagedRange;
use std::ops::Range;

use crate::dispatch_record::DispatchRecord;
use crate::error::StoreError;
use crate::offset::{PhysicalOffset, QueueOffset};

/// How far recovery is; for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// Bytes of the log looked at.
    pub scanned: u64,
    /// Bytes there are to look at, at most.
    pub total: u64,
    /// Records found.
    pub records: u64,
    /// Since recovery began.
    pub elapsed: Duration,
}

impl RecoveryProgress {
    /// Percent of the bytes.
    #[must_use]
    pub fn percent(&self) -> u64 {
        self.scanned
            .saturating_mul(100)
            .checked_div(self.total)
            .unwrap_or(100)
    }

    /// Bytes a second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        let nanos = self.elapsed.as_nanos().max(1);
        u64::try_from(u128::from(self.scanned) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
    }
}

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the last stop was clean (no `abort` file).
    pub clean: bool,
    /// First byte looked at.
    pub scanned_from: PhysicalOffset,
    /// Where the log ends now.
    pub end: PhysicalOffset,
    /// What is proved to have been on disk.
    pub durable: PhysicalOffset,
    /// Whole records found.
    pub records: u64,
    /// Parts of the log that are not what was stored, within the log that is kept.
    pub damaged: Vec<DamagedRange>,
    /// What was cut off the end, if there was anything.
    pub cut: Option<Cut>,
    /// Files that were shorter than their size and were extended with zeros.
    pub extended: Vec<PathBuf>,
    /// Files behind the end that were deleted.
    pub deleted: Vec<PathBuf>,
    /// How long it took.
    pub elapsed: Duration,
}

/// What was cut off the end of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Where: the log ends here now.
    pub at: PhysicalOffset,
    /// Records that were cut though their heads are whole.
    pub records: Vec<DamagedRange>,
    /// Why it could not go on.
    pub reason: String,
}

/// Where a record lies according to a queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordPlace {
    /// Its first byte.
    pub at: PhysicalOffset,
    /// Its whole length.
    pub size: i32,
}

/// What is derived from the log, consume queues and index, as recovery of the log sees it. It is loaded and recovered by
/// itself first (store spec 6.4); then the log is scanned, and this is brought in line with it.
pub trait Derived {
    /// Takes in what is on disk, now that the store is locked. `clean`: the last stop was.
    ///
    /// # Errors
    /// When it cannot be read.
    fn load(&mut self, clean: bool, checkpoint: &CheckpointContent) -> Result<(), StoreError> {
        let _ = (clean, checkpoint);
        Ok(())
    }

    /// The largest end (offset + size) that any queue entry on disk proves; 0 without entries. Filler does not count.
    fn largest_end(&self) -> PhysicalOffset;

    /// From where on records must be given to [`Derived::accept`] again, because queues or index lack them. Everything
    /// from the log's beginning if there are no queues at all.
    fn needed_from(&mut self, log_min: PhysicalOffset) -> PhysicalOffset;

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

    /// A whole record was found, in log order; told of every one, before [`Derived::accept`].
    ///
    /// # Errors
    /// An error ends the scan.
    fn see(&mut self, record: &RecordRef<'_>) -> Result<(), StoreError> {
        let _ = record;
        Ok(())
    }

    /// Whether a record is of a topic that was deleted since: it counts for nothing.
    fn is_deleted(&self, record: &RecordRef<'_>) -> bool {
        let _ = record;
        false
    }

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
