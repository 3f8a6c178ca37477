//! Messages of one queue from an offset on (store spec 4.7): which, how many, and what the caller is told when there
//! are none.

use std::cell::RefCell;

use bytes::Bytes;

use super::pool::BUFFER_LEN;
use super::record::Span;
use super::{Limits, Reader};
use crate::consume_queue::entry::{ENTRY_LEN, entries};
use crate::consume_queue::{Blocking, ConsumeQueue, ExtUnit, QueueEntry, ReadError};
use crate::offset::{PhysicalOffset, QueueOffset};

/// Entries looked at in one get, unless more messages are wanted.
const MAX_SCANNED: usize = 800;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct GetRequest<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue.
    pub queue_id: i32,
    /// Number of the first message wanted.
    pub offset: QueueOffset,
    /// Most messages wanted; the settings' budgets apply beside it. The first message is given whatever they say.
    pub max_count: usize,
    /// Most bytes wanted, beside the settings' budgets.
    pub max_bytes: usize,
}

/// What came of it: names and meaning as RocketMQ's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetStatus {
    /// There are messages.
    Found,
    /// Messages were looked at, none matched.
    NoMatchedMessage,
    /// Entries are there, their messages were just deleted.
    MessageWasRemoving,
    /// The offset lies in the queue, but no file has it.
    OffsetFoundNull,
    /// The offset lies behind the queue's end.
    OffsetOverflowBadly,
    /// The offset is the queue's end: the next message will have it.
    OffsetOverflowOne,
    /// The offset lies before the first message.
    OffsetTooSmall,
    /// The queue is empty, or does not exist.
    NoMessageInQueue,
}

/// The answer to a get; its records are in the list that was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetResult {
    /// What came of it.
    pub status: GetStatus,
    /// Where to go on.
    pub next_begin_offset: QueueOffset,
    /// The queue's minimum.
    pub min_offset: QueueOffset,
    /// The queue's maximum.
    pub max_offset: QueueOffset,
    /// Messages given.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Bytes from the last entry looked at to the end of the log; 0 if none was.
    pub behind_bytes: i64,
    /// The reader is so far behind that a slave should serve it.
    pub suggest_pulling_from_slave: bool,
}

/// Decides which messages are given. Of tags only a hash is known here: clients compare the text.
pub trait MessageFilter {
    /// By the queue entry: hash of the tags, and the extension unit if there is one. `None`: the unit with the hash
    /// cannot be read, so the message has to pass.
    fn matches_entry(&mut self, tags_code: Option<i64>, unit: Option<&ExtUnit>) -> bool;

    /// By the record, after its entry passed.
    fn matches_record(&mut self, record: &[u8]) -> bool {
        let _ = record;
        true
    }
}

/// Lets everything pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFilter;

impl MessageFilter for NoFilter {
    fn matches_entry(&mut self, _tags_code: Option<i64>, _unit: Option<&ExtUnit>) -> bool {
        true
    }
}

thread_local! {
    static ENTRIES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Reader {
    /// Gets messages and adds their records to `out`. One get never goes beyond the queue file that holds the offset.
    ///
    /// # Errors
    /// [`ReadError::WouldBlock`] if something must be read from the disk and `blocking` forbids that; then `out` is as it
    /// was, but the filter may have been asked. Or the disk's failure.
    pub fn get(
        &self,
        request: &GetRequest<'_>,
        filter: &mut dyn MessageFilter,
        blocking: Blocking,
        out: &mut Vec<Bytes>,
    ) -> Result<GetResult, ReadError> {
        let before = out.len();
        let queue = self.queues.get(request.topic, request.queue_id);
        let mut scratch = ENTRIES.take();
        let result = match &queue {
            Some(queue) => self.get_from(queue, request, filter, blocking, &mut scratch, out),
            None => Ok(self.nothing(request, (0, 0), GetStatus::NoMessageInQueue, 0)),
        };
        ENTRIES.set(scratch);
        result.inspect_err(|_| out.truncate(before))
    }

    fn get_from(
        &self,
        queue: &ConsumeQueue,
        request: &GetRequest<'_>,
        filter: &mut dyn MessageFilter,
        blocking: Blocking,
        scratch: &mut Vec<u8>,
        out: &mut Vec<Bytes>,
    ) -> Result<GetResult, ReadError> {
        let offset = request.offset.get();
        let (min, max) = (queue.min_offset(), queue.max_offset());
        let range = (min, max);
        if max == 0 {
            return Ok(self.nothing(request, range, GetStatus::NoMessageInQueue, 0));
        }
        if offset < min {
            return Ok(self.nothing(request, range, GetStatus::OffsetTooSmall, min));
        }
        if offset == max {
            return Ok(self.nothing(request, range, GetStatus::OffsetOverflowOne, offset));
        }
        if offset > max {
            return Ok(self.nothing(request, range, GetStatus::OffsetOverflowBadly, max));
        }
        queue.read(
            offset,
            MAX_SCANNED.max(request.max_count),
            scratch,
            blocking,
        )?;
        if scratch.is_empty() {
            let per_file = queue.entries_per_file();
            return Ok(self.nothing(
                request,
                range,
                GetStatus::OffsetFoundNull,
                offset - offset % per_file + per_file,
            ));
        }
        let mut scan = Scan {
            reader: self,
            limits: self.limits(),
            queue,
            blocking,
            log_max: self.log.max_offset().get(),
            max_count: request.max_count,
            max_bytes: request.max_bytes,
            span: Span::default(),
            removed_before: i64::MIN,
            last_seen: None,
            count: 0,
            bytes: 0,
        };
        let passed = scan.run(scratch, filter, out)?;
        let behind_bytes = scan.last_seen.map_or(0, |at| scan.log_max - at);
        let status = match (scan.count, scan.removed_before) {
            (0, i64::MIN) => GetStatus::NoMatchedMessage,
            (0, _) => GetStatus::MessageWasRemoving,
            _ => GetStatus::Found,
        };
        Ok(GetResult {
            status,
            next_begin_offset: QueueOffset(offset + passed as i64),
            min_offset: QueueOffset(min),
            max_offset: QueueOffset(max),
            count: scan.count,
            bytes: scan.bytes,
            behind_bytes,
            suggest_pulling_from_slave: behind_bytes > scan.limits.memory_window,
        })
    }

    /// The answer when nothing was looked at.
    fn nothing(
        &self,
        request: &GetRequest<'_>,
        (min, max): (i64, i64),
        status: GetStatus,
        next: i64,
    ) -> GetResult {
        let next = if self.limits().keep_wrong_offsets {
            request.offset.get()
        } else {
            next
        };
        GetResult {
            status,
            next_begin_offset: QueueOffset(next),
            min_offset: QueueOffset(min),
            max_offset: QueueOffset(max),
            count: 0,
            bytes: 0,
            behind_bytes: 0,
            suggest_pulling_from_slave: false,
        }
    }
}

/// One get that found entries to look at.
struct Scan<'a> {
    reader: &'a Reader,
    limits: Limits,
    queue: &'a ConsumeQueue,
    blocking: Blocking,
    log_max: i64,
    max_count: usize,
    max_bytes: usize,
    span: Span,
    /// Records below were deleted, as the last look found; `i64::MIN` after one that was there.
    removed_before: i64,
    /// Place of the last entry looked at.
    last_seen: Option<i64>,
    count: usize,
    bytes: usize,
}

impl Scan<'_> {
    /// Looks at entries until a budget is used up; gives how many were passed.
    fn run(
        &mut self,
        bytes: &[u8],
        filter: &mut dyn MessageFilter,
        out: &mut Vec<Bytes>,
    ) -> Result<usize, ReadError> {
        for (number, entry) in entries(bytes).enumerate() {
            self.last_seen = Some(entry.physical_offset);
            if entry.physical_offset < self.removed_before || entry.is_filler() {
                continue;
            }
            if self.is_full(&entry) {
                return Ok(number);
            }
            if !self.passes(&entry, filter)? {
                continue;
            }
            let len = entry.size as usize;
            let at = entry.physical_offset;
            let rest = bytes.get(number * ENTRY_LEN..).unwrap_or_default();
            let wanted = self.max_count.saturating_sub(self.count).max(1);
            let ahead = || ahead(rest, wanted);
            let Some(record) =
                self.reader
                    .record_of_entry(&mut self.span, at, len, ahead, self.blocking)?
            else {
                if at < self.reader.log.min_offset().get() {
                    self.removed_before = self.reader.log.next_file_start(PhysicalOffset(at)).get();
                }
                continue;
            };
            if !filter.matches_record(&record) {
                continue;
            }
            self.count += 1;
            self.bytes += record.len();
            self.removed_before = i64::MIN;
            out.push(record);
        }
        Ok(bytes.len() / ENTRY_LEN)
    }

    /// Whether the message does not fit any more. The first one always does.
    fn is_full(&self, entry: &QueueEntry) -> bool {
        if self.count == 0 {
            return false;
        }
        let limits = &self.limits;
        let in_memory = self.log_max - entry.physical_offset <= limits.memory_window;
        let (bytes, count) = match in_memory {
            true => (limits.memory_bytes, limits.memory_count),
            false => (limits.disk_bytes, limits.disk_count),
        };
        self.count >= self.max_count.min(count)
            || self.bytes.saturating_add(entry.size as usize) > bytes.min(self.max_bytes)
    }

    fn passes(
        &self,
        entry: &QueueEntry,
        filter: &mut dyn MessageFilter,
    ) -> Result<bool, ReadError> {
        if !crate::consume_queue::ext::is_address(entry.tags_code) {
            return Ok(filter.matches_entry(Some(entry.tags_code), None));
        }
        let unit = self.queue.ext_unit(entry.tags_code, self.blocking)?;
        Ok(filter.matches_entry(unit.as_ref().map(|u| u.tags_code), unit.as_ref()))
    }
}

/// Bytes worth reading at once where the record of the first entry in `rest` is cold: as far as those of the next `wanted`
/// entries lie close together.
fn ahead(rest: &[u8], wanted: usize) -> usize {
    let mut rest = entries(rest).take(wanted);
    let Some(first) = rest.next() else { return 0 };
    let start = first.physical_offset;
    let mut end = first.physical_end().unwrap_or(start);
    for entry in rest {
        match entry.physical_end() {
            Some(next) if next - start <= BUFFER_LEN as i64 => end = next,
            _ => break,
        }
    }
    usize::try_from(end - start).unwrap_or(0)
}
