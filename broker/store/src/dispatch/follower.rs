//! Records of the living log, one batch after the other.
//!
//! Not here: what is done with them.

use std::sync::Arc;

use minimq_protocol::message::{MIN_RECORD_LEN, RecordRef};

use crate::commit_log::CommitLog;
use crate::commit_log::scanner::{LogScanner, Step};
use crate::damage::DamageList;
use crate::delay_level::DelayLevels;
use crate::dispatch_record::DispatchRecord;
use crate::error::StoreError;
use crate::offset::PhysicalOffset;
use crate::recent_records::RecentCursor;

/// Bytes of the log in a batch: enough that one write a queue covers many entries, little enough that the bytes are
/// still in a core's cache when they are looked at a second time.
const BATCH_BYTES: i64 = 256 * 1024;

/// Walks the log from a position on.
#[derive(Debug)]
pub(super) struct Follower {
    log: Arc<CommitLog>,
    damage: Arc<DamageList>,
    delay_levels: Arc<DelayLevels>,
    scanner: LogScanner,
    recent: RecentCursor,
}

/// How a batch ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Batch {
    /// At this position; there may be more.
    Until(i64),
    /// Before something that is no record and is not known to be damaged: nobody may go on.
    Stuck { at: i64, reason: String },
}

impl Follower {
    pub(super) fn new(
        log: Arc<CommitLog>,
        damage: Arc<DamageList>,
        delay_levels: Arc<DelayLevels>,
        at: i64,
    ) -> Self {
        Self {
            scanner: LogScanner::over(Arc::clone(&log), at),
            log,
            damage,
            delay_levels,
            recent: RecentCursor::default(),
        }
    }

    /// From now on, whether the records ahead were followed before, by whomever.
    pub(super) fn set_again(&mut self, again: bool) {
        self.scanner.set_again(again);
    }

    /// Gives `take` the records of one batch from `from` on that end at or below `limit`. An error of `take` ends it.
    pub(super) fn batch(
        &mut self,
        from: i64,
        limit: i64,
        mut take: impl FnMut(&DispatchRecord<'_>) -> Result<(), StoreError>,
    ) -> Result<Batch, StoreError> {
        // Cleaning may have overtaken us.
        let from = from.max(self.log.min_offset().get());
        self.scanner.seek(from);
        self.recent.seek(from);
        let end = limit.min(from.saturating_add(BATCH_BYTES));
        loop {
            let at = self.scanner.position();
            if at >= end {
                return Ok(Batch::Until(at));
            }
            if let Some(end) = self.closed_part(at) {
                self.scanner.seek(end);
                continue;
            }
            if let Some(end) = self.take_recent(at, limit, &mut take)? {
                self.scanner.seek(end);
                continue;
            }
            let next = match self.scanner.step(limit)? {
                Step::CaughtUp => return Ok(Batch::Until(at)),
                Step::EndOfFile => {
                    // Of an end mark too a slave may have the begin only.
                    if self.scanner.position() > limit {
                        return Ok(Batch::Until(at));
                    }
                    continue;
                }
                Step::Record(record) => {
                    if self.damage.contains(PhysicalOffset(at)) {
                        take(&DispatchRecord::damaged(&record))?;
                    } else {
                        take(&DispatchRecord::of(&record, &self.delay_levels))?;
                    }
                    continue;
                }
                Step::Damaged {
                    size,
                    record,
                    reason,
                } => {
                    if !self.damage.contains(PhysicalOffset(at)) {
                        tracing::error!(
                            at,
                            size,
                            reason,
                            "damaged record in the log: its number is kept, it is never served"
                        );
                    }
                    if let Some(record) = record {
                        take(&DispatchRecord::damaged(&record))?;
                    }
                    at + size as i64
                }
                Step::Nothing { reason, size } => {
                    // A slave gets its bytes cut anywhere: the rest of a record may still come.
                    let cut = size.map_or(limit - at < MIN_RECORD_LEN as i64, |size| {
                        at + size as i64 > limit
                    });
                    if cut {
                        return Ok(Batch::Until(at));
                    }
                    match self.damage_end(at) {
                        Some(end) => end,
                        None => return Ok(Batch::Stuck { at, reason }),
                    }
                }
            };
            self.scanner.seek(next);
        }
    }

    /// Gives `take` the record at `at` if it is one of those that were just appended and ends at or below `limit`; gives its
    /// end.
    fn take_recent(
        &mut self,
        at: i64,
        limit: i64,
        take: &mut impl FnMut(&DispatchRecord<'_>) -> Result<(), StoreError>,
    ) -> Result<Option<i64>, StoreError> {
        let Some(recent) = self.recent.at(&self.log.recent_records, at) else {
            return Ok(None);
        };
        if recent.end() > limit || self.damage.contains(PhysicalOffset(at)) {
            return Ok(None);
        }
        let bytes = self.scanner.peek(at, recent.size())?;
        let Some(record) = recent.read(bytes) else {
            return Ok(None);
        };
        debug_assert_eq!(
            Some(record),
            RecordRef::parse_slice(bytes)
                .ok()
                .as_ref()
                .map(|record| DispatchRecord::of(record, &self.delay_levels)),
            "what the append knew is what the record says"
        );
        take(&record)?;
        Ok(Some(recent.end()))
    }

    /// Where the part without records that holds `at` ends, if there is one: it may not even be readable.
    fn closed_part(&self, at: i64) -> Option<i64> {
        let at = PhysicalOffset(at);
        if !self.damage.contains(at) {
            return None;
        }
        let ranges = self.damage.ranges();
        let range = ranges
            .iter()
            .find(|range| range.from <= at && at < range.to)?;
        range.record.is_none().then_some(range.to.get())
    }

    /// Where the known damage at `at` ends.
    fn damage_end(&self, at: i64) -> Option<i64> {
        let at = PhysicalOffset(at);
        let ranges = self.damage.ranges();
        ranges
            .iter()
            .find(|range| range.from <= at && at < range.to)
            .map(|range| range.to.get())
    }
}
