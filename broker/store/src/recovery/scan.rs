//! The scan of the log: where it starts, what it believes, where the log ends.

use std::sync::Arc;
use std::time::Instant;

use minimq_protocol::message::{
    BLANK_LEN, MAGIC_AT, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_LEN, PHYSICAL_OFFSET_AT,
    RecordRef, TOTAL_SIZE_AT, VerifyBody,
};
use minimq_protocol::sys_flag::message::{TRANSACTION_COMMIT, TRANSACTION_NONE, transaction};

use super::{Cut, Derived, RecoveryProgress, RecoveryReport};
use crate::append::queue_offsets::QueueOffsets;
use crate::checkpoint::CheckpointContent;
use crate::commit_log::file::LogFile;
use crate::commit_log::scanner::{LogScanner, Step};
use crate::config::StoreConfig;
use crate::damage::{DamagedRange, DamagedRecord};
use crate::delay_level::DelayLevels;
use crate::dispatch_record::DispatchRecord;
use crate::error::StoreError;
use crate::offset::{PhysicalOffset, QueueOffset};

/// Files at the end of the log that are always looked at.
const LAST_FILES: usize = 3;
/// RocketMQ's margin on checkpoint times, ms.
const CHECKPOINT_MARGIN_MS: i64 = 3_000;
/// Progress is told after so many bytes.
const PROGRESS_BYTES: i64 = 16 << 20;
/// Bytes behind the end that are looked through to say whether something was cut.
const CUT_LOOK: i64 = 4 << 20;

/// What the scan found.
pub(crate) struct Scanned {
    pub(crate) report: RecoveryReport,
    /// Next queue offsets of the records seen.
    pub(crate) queues: QueueOffsets,
    /// Store time of the last whole record.
    pub(crate) last_store_timestamp: i64,
    /// Records from here on were given to what is derived.
    pub(crate) dispatched_from: i64,
}

/// What the scan works with.
pub(crate) struct Scan<'a> {
    pub(crate) config: &'a StoreConfig,
    pub(crate) files: Arc<Vec<Arc<LogFile>>>,
    pub(crate) checkpoint: CheckpointContent,
    pub(crate) clean: bool,
    pub(crate) delay_levels: &'a DelayLevels,
    /// What earlier scans found damaged.
    pub(crate) known_damage: Vec<DamagedRange>,
    /// Called before entries of records from an offset on are made again.
    pub(crate) before_rewind: &'a dyn Fn(i64) -> Result<(), StoreError>,
}

/// Damage, until a whole record follows.
#[derive(Clone)]
struct Suspect {
    range: DamagedRange,
    /// The record it is, if its lengths hold.
    bytes: Vec<u8>,
}

impl Suspect {
    /// Damage of which nothing is known.
    fn nameless(from: i64, to: i64, reason: String) -> Self {
        let range = DamagedRange {
            from: PhysicalOffset(from),
            to: PhysicalOffset(to),
            record: None,
            reason,
        };
        Self {
            range,
            bytes: Vec::new(),
        }
    }
}

impl Scan<'_> {
    /// Scans, and gives the records to `derived`.
    pub(crate) fn run(
        &self,
        derived: &mut dyn Derived,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<Scanned, StoreError> {
        let begun = Instant::now();
        let Some(min) = self.files.first().map(|file| file.base) else {
            return Ok(Scanned {
                report: RecoveryReport {
                    clean: self.clean,
                    ..RecoveryReport::default()
                },
                queues: QueueOffsets::default(),
                last_store_timestamp: 0,
                dispatched_from: 0,
            });
        };
        let needed = derived.needed_from(PhysicalOffset(min)).get().max(min);
        let durable = self.durable(derived);
        match self.pass(needed, durable, derived, progress, begun)? {
            Some(scanned) => Ok(scanned),
            // Queues lack records that they should have: those of a queue whose folder was lost, for one.
            None => {
                tracing::warn!("consume queues lack records of the log: all of them are rebuilt");
                self.pass(min, durable, derived, progress, begun)?
                    .map_or_else(|| unreachable_pass(self), Ok)
            }
        }
    }

    /// Scans the whole log, and gives all records to `derived`. `durable`: what was proved by then.
    pub(crate) fn run_all(
        &self,
        durable: i64,
        derived: &mut dyn Derived,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<Scanned, StoreError> {
        let min = self.files.first().map_or(0, |file| file.base);
        self.pass(min, durable, derived, progress, Instant::now())?
            .map_or_else(|| unreachable_pass(self), Ok)
    }

    /// Whether queues end before the records that were `seen`: an entry that pointed beyond the log's end was dropped,
    /// though its record was there all the time.
    pub(crate) fn lacks_records(&self, seen: &QueueOffsets, derived: &dyn Derived) -> bool {
        let mut known = QueueOffsets::default();
        derived.next_offsets(&mut |topic, queue_id, next| known.raise(topic, queue_id, next.get()));
        seen.iter()
            .any(|(topic, queue_id, next)| next > known.get(topic, queue_id).unwrap_or(0))
    }

    /// One pass that gives `derived` the records from `needed` on; `None` if it lacks earlier ones too.
    fn pass(
        &self,
        needed: i64,
        durable: i64,
        derived: &mut dyn Derived,
        progress: &mut dyn FnMut(RecoveryProgress),
        begun: Instant,
    ) -> Result<Option<Scanned>, StoreError> {
        let start = self.start(needed);
        let dispatch_from = if self.clean {
            needed
        } else {
            start.min(needed)
        };
        (self.before_rewind)(dispatch_from)?;
        derived.rewind(PhysicalOffset(dispatch_from))?;
        let mut known = QueueOffsets::default();
        derived.next_offsets(&mut |topic, queue_id, next| known.raise(topic, queue_id, next.get()));
        let verify = if self.config.check_crc_on_recover {
            VerifyBody::Crc
        } else {
            VerifyBody::Skip
        };
        let mut pass = Pass {
            scan: self,
            derived,
            scanner: LogScanner::over_files(Arc::clone(&self.files), start, verify),
            end_of_files: self.files.last().map_or(0, |file| file.end()),
            dispatch_from,
            durable,
            known,
            queues: QueueOffsets::default(),
            suspects: Vec::new(),
            damaged: self.gaps_below(start),
            records: 0,
            last_store_timestamp: 0,
            end: start,
            told: start,
        };
        let Some(reason) = pass.walk(start, progress, begun)? else {
            return Ok(None);
        };
        let end = pass
            .suspects
            .first()
            .map_or(pass.end, |suspect| suspect.range.from.get());
        let anything_behind = !pass.suspects.is_empty() || pass.anything_at(end)?;
        let cut = anything_behind.then(|| Cut {
            at: PhysicalOffset(end),
            records: pass
                .suspects
                .iter()
                .map(|suspect| suspect.range.clone())
                .collect(),
            reason,
        });
        progress(RecoveryProgress {
            scanned: (end - start).max(0) as u64,
            total: (end - start).max(0) as u64,
            records: pass.records,
            elapsed: begun.elapsed(),
        });
        Ok(Some(Scanned {
            report: RecoveryReport {
                clean: self.clean,
                scanned_from: PhysicalOffset(start),
                end: PhysicalOffset(end),
                durable: PhysicalOffset(durable),
                records: pass.records,
                damaged: pass.damaged,
                cut,
                elapsed: begun.elapsed(),
                ..RecoveryReport::default()
            },
            queues: pass.queues,
            last_store_timestamp: pass.last_store_timestamp,
            dispatched_from: dispatch_from,
        }))
    }

    /// The start of the file to begin with.
    fn start(&self, needed: i64) -> i64 {
        // Files that were made ahead hold nothing yet: those do not count.
        let used = |file: &Arc<LogFile>| self.first_store_timestamp(file).is_some();
        let last = self.files.iter().rposition(used).unwrap_or(0);
        let first = (last + 1).saturating_sub(LAST_FILES);
        let mut start = self
            .files
            .get(first)
            .map_or(0, |file| file.base)
            .min(self.file_start(needed));
        if !self.clean {
            start = start.min(
                match (
                    self.checkpoint.flushed_offset,
                    self.checkpoint.dispatched_offset,
                ) {
                    (Some(flushed), Some(dispatched)) => self.file_start(flushed.min(dispatched)),
                    _ => self.start_by_time(),
                },
            );
        }
        start
    }

    /// The part without records, found by an earlier scan, that holds `at`. It stays without any: whole ones may lie in
    /// it, but their numbers were given again since.
    fn sealed(&self, at: i64, end_of_files: i64) -> Option<&DamagedRange> {
        self.known_damage.iter().find(|range| {
            range.record.is_none()
                && range.from.get() <= at
                && at < range.to.get()
                && range.to.get() < end_of_files
        })
    }

    /// Files that are missing before the part that is scanned.
    fn gaps_below(&self, start: i64) -> Vec<DamagedRange> {
        let gap = |pair: &[Arc<LogFile>]| match pair {
            [file, next] if file.end() < next.base && next.base <= start => Some(
                Suspect::nameless(file.end(), next.base, "a file of the log is missing".into())
                    .range,
            ),
            _ => None,
        };
        self.files.windows(2).filter_map(gap).collect()
    }

    /// RocketMQ's rule: the last file that begins with a record stored when log and queues were on disk for sure.
    fn start_by_time(&self) -> i64 {
        let times = self
            .checkpoint
            .physic_timestamp
            .min(self.checkpoint.logics_timestamp);
        let mut safe = (times - CHECKPOINT_MARGIN_MS).max(0);
        if self.config.message_index_enable && self.config.message_index_safe {
            safe = safe.min(self.checkpoint.index_timestamp);
        }
        let begins_before = |file: &&Arc<LogFile>| {
            self.first_store_timestamp(file)
                .is_some_and(|stored| stored != 0 && stored <= safe)
        };
        self.files
            .iter()
            .rev()
            .find(begins_before)
            .or(self.files.first())
            .map_or(0, |file| file.base)
    }

    /// Store time of the whole record a file begins with.
    fn first_store_timestamp(&self, file: &LogFile) -> Option<i64> {
        let mut scanner =
            LogScanner::over_files(Arc::clone(&self.files), file.base, VerifyBody::Crc);
        match scanner.step(file.end()) {
            Ok(Step::Record(record)) => Some(record.store_timestamp()),
            _ => None,
        }
    }

    /// The start of the file that holds `at`, or of the first file.
    fn file_start(&self, at: i64) -> i64 {
        let index = self.files.partition_point(|file| file.base <= at);
        self.files
            .get(index.saturating_sub(1))
            .map_or(0, |file| file.base)
    }

    /// See the module's text.
    fn durable(&self, derived: &dyn Derived) -> i64 {
        let flushed = self.checkpoint.flushed_offset.unwrap_or(0);
        let begun = self
            .files
            .iter()
            .rev()
            .find(|file| self.first_store_timestamp(file).is_some());
        flushed
            .max(derived.largest_end().get())
            .max(begun.map_or(0, |file| file.base))
    }
}

/// A pass from the log's beginning asks for nothing earlier.
fn unreachable_pass(scan: &Scan<'_>) -> Result<Scanned, StoreError> {
    let path = scan
        .files
        .first()
        .map(|file| file.path.clone())
        .unwrap_or_default();
    Err(StoreError::StrayFile {
        path,
        reason: "recovery did not come to an end",
    })
}

struct Pass<'a, 'd> {
    scan: &'a Scan<'a>,
    derived: &'d mut dyn Derived,
    scanner: LogScanner,
    end_of_files: i64,
    dispatch_from: i64,
    durable: i64,
    /// Next offsets by the queues' own word, before this pass.
    known: QueueOffsets,
    /// Next offsets by the records seen.
    queues: QueueOffsets,
    suspects: Vec<Suspect>,
    damaged: Vec<DamagedRange>,
    records: u64,
    last_store_timestamp: i64,
    /// End of the last whole record.
    end: i64,
    told: i64,
}

/// What to do after a look at one place.
enum Next {
    Go,
    /// The queues lack a record they should have.
    Lacking,
    /// No record here, and why.
    Broken(String),
    /// A record with a whole head.
    Suspect(Suspect),
}

impl Pass<'_, '_> {
    /// Walks to the end of the log and gives why it ends there; `None` if queues lack records before `dispatch_from`.
    fn walk(
        &mut self,
        start: i64,
        progress: &mut dyn FnMut(RecoveryProgress),
        begun: Instant,
    ) -> Result<Option<String>, StoreError> {
        loop {
            let at = self.scanner.position();
            if let Some(range) = self.scan.sealed(at, self.end_of_files) {
                // One that began before the scan stays in the list as it is.
                if range.from.get() >= start {
                    let (to, reason) = (range.to.get(), range.reason.clone());
                    self.suspects.push(Suspect::nameless(at, to, reason));
                }
                self.scanner.seek(range.to.get());
                continue;
            }
            if at - self.told >= PROGRESS_BYTES {
                self.told = at;
                progress(RecoveryProgress {
                    scanned: (at - start) as u64,
                    total: (self.end_of_files - start) as u64,
                    records: self.records,
                    elapsed: begun.elapsed(),
                });
            }
            match self.look()? {
                Next::Go if self.scanner.position() == at => {
                    let missing = Suspect::nameless(at, at, "a file of the log is missing".into());
                    if !self.search_on(missing)? {
                        return Ok(Some("end of the last file".into()));
                    }
                }
                Next::Go => {}
                Next::Lacking => return Ok(None),
                Next::Suspect(suspect) if self.may_begin_at(suspect.range.to.get(), at)? => {
                    self.scanner.seek(suspect.range.to.get());
                    self.suspects.push(suspect);
                }
                Next::Suspect(suspect) => {
                    let reason = suspect.range.reason.clone();
                    if !self.search_on(suspect.clone())? {
                        self.suspects.push(suspect);
                        return Ok(Some(reason));
                    }
                }
                Next::Broken(reason) => {
                    if !self.search_on(Suspect::nameless(at, at, reason.clone()))? {
                        return Ok(Some(reason));
                    }
                }
            }
        }
    }

    /// Takes what stands at the position.
    fn look(&mut self) -> Result<Next, StoreError> {
        let at = self.scanner.position();
        match self.scanner.step(self.end_of_files)? {
            Step::CaughtUp | Step::EndOfFile => Ok(Next::Go),
            Step::Record(record) => {
                if is_stale(&record, &self.queues, self.last_store_timestamp) {
                    self.scanner.seek(at);
                    return Ok(Next::Broken(
                        "a stale record, older than the one before it".into(),
                    ));
                }
                self.derived.see(&record)?;
                let deleted = self.derived.is_deleted(&record);
                let dispatch = at >= self.dispatch_from;
                if !dispatch && !deleted && lacks(&self.known, &record) {
                    return Ok(Next::Lacking);
                }
                confirm(
                    &mut self.suspects,
                    &mut self.damaged,
                    &mut self.queues,
                    dispatch,
                    &mut *self.derived,
                )?;
                if dispatch && !deleted {
                    self.derived
                        .accept(&DispatchRecord::of(&record, self.scan.delay_levels))?;
                }
                if !deleted {
                    count(&mut self.queues, &record);
                }
                self.last_store_timestamp = record.store_timestamp();
                self.end = at + record.size() as i64;
                self.records += 1;
                Ok(Next::Go)
            }
            Step::Damaged {
                size,
                record,
                reason,
            } => {
                let mut suspect = Suspect::nameless(at, at + size as i64, reason);
                if let Some(record) = record {
                    suspect.bytes = record.raw().to_vec();
                    suspect.range.record = Some(DamagedRecord {
                        topic: record.topic().to_owned(),
                        queue_id: record.queue_id(),
                        queue_offset: QueueOffset(record.queue_offset()),
                    });
                }
                Ok(Next::Suspect(suspect))
            }
            Step::Nothing {
                reason,
                size: Some(size),
            } => Ok(Next::Suspect(Suspect::nameless(
                at,
                at + size as i64,
                reason,
            ))),
            Step::Nothing { reason, size: None } => Ok(Next::Broken(reason)),
        }
    }

    /// Whether a record or an end mark stands at `at`, in the file that holds `before`, as far as a head can tell.
    fn may_begin_at(&mut self, at: i64, before: i64) -> Result<bool, StoreError> {
        let file_end =
            self.scan.file_start(before) + self.scan.config.mapped_file_size_commit_log as i64;
        if at + BLANK_LEN as i64 > file_end {
            return Ok(false);
        }
        let head = self.scanner.peek(at, PHYSICAL_OFFSET_AT + 8)?;
        let word = |from: usize| {
            head.get(from..)
                .and_then(|rest| rest.first_chunk())
                .map(|word| i32::from_be_bytes(*word))
        };
        let own = head
            .get(PHYSICAL_OFFSET_AT..)
            .and_then(|rest| rest.first_chunk())
            .map(|own| i64::from_be_bytes(*own));
        Ok(match (word(TOTAL_SIZE_AT), word(MAGIC_AT)) {
            (Some(size), Some(MAGIC_BLANK)) => i64::from(size) == file_end - at,
            (Some(size), Some(MAGIC_V1 | MAGIC_V2)) => {
                own == Some(at) && size >= MIN_RECORD_LEN as i32 && at + i64::from(size) <= file_end
            }
            _ => false,
        })
    }

    /// After damage: moves the scanner to the next place where a whole record begins, if there can be one.
    fn search_on(&mut self, mut damage: Suspect) -> Result<bool, StoreError> {
        let at = damage.range.from.get();
        if at >= self.durable {
            return Ok(false);
        }
        let Some(next) = self.next_whole(at)? else {
            return Ok(false);
        };
        damage.range.to = PhysicalOffset(next);
        self.suspects.push(damage);
        self.scanner.seek(next);
        Ok(true)
    }

    /// The next place behind `at` where a queue entry points or a file begins, and a whole record does stand.
    fn next_whole(&mut self, at: i64) -> Result<Option<i64>, StoreError> {
        let files = Arc::clone(&self.scan.files);
        let first = files.partition_point(|file| file.end() <= at);
        for file in files.get(first..).unwrap_or_default() {
            let from = (at + 1).max(file.base);
            let range = PhysicalOffset(from)..PhysicalOffset(file.end());
            let begins = (file.base > at).then_some(file.base);
            let told = self.derived.record_starts(range)?;
            for place in begins
                .into_iter()
                .chain(told.iter().map(|place| place.at.get()))
            {
                self.scanner.seek(place);
                if let Step::Record(record) = self.scanner.step(self.end_of_files)?
                    && !is_stale(&record, &self.queues, self.last_store_timestamp)
                {
                    return Ok(Some(place));
                }
            }
        }
        self.scanner.seek(at);
        Ok(None)
    }

    /// Whether anything but zeros stands behind the end, as far as it is worth a look.
    fn anything_at(&mut self, end: i64) -> Result<bool, StoreError> {
        let is_blank = |head: &[u8]| {
            head.get(MAGIC_AT..).and_then(|rest| rest.first_chunk())
                == Some(&MAGIC_BLANK.to_be_bytes())
        };
        // An end mark that nothing follows yet is no loss.
        if is_blank(self.scanner.peek(end, BLANK_LEN)?) {
            let next =
                self.scan.file_start(end) + self.scan.config.mapped_file_size_commit_log as i64;
            return Ok(self
                .scanner
                .peek(next, 1 << 16)?
                .iter()
                .any(|byte| *byte != 0));
        }
        let mut at = end;
        while at < end + CUT_LOOK {
            let bytes = self.scanner.peek(at, 1 << 16)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
            if bytes.is_empty() {
                break;
            }
            at += bytes.len() as i64;
        }
        Ok(false)
    }
}

/// A whole record followed: the damaged ones before it are in the middle of the log.
fn confirm(
    suspects: &mut Vec<Suspect>,
    damaged: &mut Vec<DamagedRange>,
    queues: &mut QueueOffsets,
    dispatch: bool,
    derived: &mut dyn Derived,
) -> Result<(), StoreError> {
    for suspect in suspects.drain(..) {
        tracing::error!(
            from = suspect.range.from.get(),
            to = suspect.range.to.get(),
            reason = %suspect.range.reason,
            "damaged part of the commit log: never served"
        );
        // Of a deleted topic not even the number is kept.
        if let Ok(record) = RecordRef::parse_slice(&suspect.bytes)
            && !derived.is_deleted(&record)
        {
            if dispatch {
                derived.accept(&DispatchRecord::damaged(&record))?;
            }
            count(queues, &record);
        }
        damaged.push(suspect.range);
    }
    Ok(())
}

fn is_in_queue(record: &RecordRef<'_>) -> bool {
    matches!(
        transaction(record.sys_flag()),
        TRANSACTION_NONE | TRANSACTION_COMMIT
    )
}

/// Notes the queue offset of a record.
fn count(queues: &mut QueueOffsets, record: &RecordRef<'_>) {
    if is_in_queue(record) {
        *queues.next(record.topic(), record.queue_id()) = record.queue_offset().saturating_add(1);
    }
}

/// Whether a record was left behind an end that was moved back: see the module's text.
fn is_stale(record: &RecordRef<'_>, queues: &QueueOffsets, last_store_timestamp: i64) -> bool {
    let given = queues.get(record.topic(), record.queue_id()).unwrap_or(0);
    record.store_timestamp() < last_store_timestamp
        && is_in_queue(record)
        && record.queue_offset() < given
}

/// Whether the queues do not have a record that they should have had before this start.
fn lacks(known: &QueueOffsets, record: &RecordRef<'_>) -> bool {
    is_in_queue(record)
        && known.get(record.topic(), record.queue_id()).unwrap_or(0) <= record.queue_offset()
}
