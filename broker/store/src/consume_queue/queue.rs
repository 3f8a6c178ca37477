//! One consume queue: the entries of one queue of one topic, in files and, for the last few, in memory.
//!
//! An entry can be read as soon as it was pushed: it is in memory then, in the `tail`. It is written to its file together
//! with its neighbours, when there are enough of them or when the store is flushed: with thousands of queues, a write an
//! entry would cost more than everything else. What a crash takes is made again from the log.
//!
//! Writing has one owner at a time, behind `writer`; files are written with it held. `tail` is held for copies in memory
//! only. `writer` is taken before `tail`.
//!
//! Not here: recovery, truncation and cleaning (`trim`), search by time (`by_time`), the table of all queues
//! (`table`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;

use super::entry::{ENTRY_LEN, QueueEntry, entries};
use super::ext::{self, ExtUnit, ExtWriter};
use super::segments::{Segments, Shared};
use super::trim::OnDisk;
use super::{Blocking, QueueSettings, ReadError};
use crate::dispatch_record::DispatchRecord;
use crate::error::StoreError;

pub(super) const ENTRY: i64 = ENTRY_LEN as i64;

/// Entries of a queue's end that are kept in memory, so that consumers which keep up read no file.
const TAIL_ENTRIES: usize = 64;

/// Entries that are written together. The next push after so many writes them.
const WRITE_AT: i64 = 64;

/// Filler written together.
const FILLER_AT: i64 = 4096;

/// Missing entries that are padded with filler. More than that is a damaged record, not a gap.
const MAX_GAP: i64 = 1 << 24;

/// What became of a record given to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the queue now, and readable.
    Added,
    /// The queue has this entry already.
    Present,
    /// An older record has its number: it gets no entry.
    NumberTaken,
    /// The entry's number cannot be right: the record is damaged.
    Refused,
    /// The queue was deleted while the caller held it; look it up again.
    Deleted,
}

/// One queue of one topic.
#[derive(Debug)]
pub struct ConsumeQueue {
    topic: Box<str>,
    queue_id: i32,
    pub(super) files: Segments,
    pub(super) ext_files: Option<Segments>,
    pub(super) min: AtomicI64,
    pub(super) max: AtomicI64,
    /// Entries that are on disk for sure.
    flushed: AtomicI64,
    /// Whether stale bytes behind the end were erased since the last flush: a power cut could bring them back.
    pub(super) erased: AtomicBool,
    pub(super) writer: Mutex<Writer>,
    tail: Mutex<Tail>,
}

#[derive(Debug)]
pub(super) struct Writer {
    /// Number of the next entry.
    next: i64,
    /// Entries below are in the files.
    written: i64,
    /// End in the commit log of the last message entered.
    pub(super) physical_end: i64,
    /// Whether there is no entry yet, in the files or in memory.
    pub(super) empty: bool,
    pub(super) ext: ExtWriter,
    /// What recovery found, until the queue is truncated.
    pub(super) on_disk: OnDisk,
    /// Whether anything was pushed since [`ConsumeQueue::rest`] looked last.
    busy: bool,
    deleted: bool,
    /// Changes whenever the entries become others under the same numbers: what was found out about them before is void.
    pub(super) generation: u64,
}

/// The last entries: at least those that are not written yet.
#[derive(Debug, Default)]
struct Tail {
    /// Number of the first entry in `bytes`.
    from: i64,
    bytes: Vec<u8>,
}

impl ConsumeQueue {
    /// An empty queue; touches nothing on disk.
    pub(super) fn new(
        topic: &str,
        queue_id: i32,
        settings: &QueueSettings,
        shared: &Arc<Shared>,
    ) -> Self {
        let below = |root: &Path| root.join(topic).join(queue_id.to_string());
        let ext = settings.ext.as_ref();
        Self {
            topic: topic.into(),
            queue_id,
            files: Segments::new(
                below(&settings.folder),
                settings.file_len,
                "mappedFileSizeConsumeQueue",
                shared,
            ),
            ext_files: ext.map(|e| {
                Segments::new(
                    below(&e.folder),
                    e.file_len,
                    "mappedFileSizeConsumeQueueExt",
                    shared,
                )
            }),
            min: AtomicI64::new(0),
            max: AtomicI64::new(0),
            flushed: AtomicI64::new(0),
            erased: AtomicBool::new(false),
            writer: Mutex::new(Writer::new()),
            tail: Mutex::default(),
        }
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The queue's number within its topic.
    pub fn queue_id(&self) -> i32 {
        self.queue_id
    }

    /// Number of the first entry whose message is still in the log; the same as [`Self::max_offset`] if none is.
    pub fn min_offset(&self) -> i64 {
        self.min.load(Ordering::Acquire)
    }

    /// Number the next message will get; entries below it can be read.
    pub fn max_offset(&self) -> i64 {
        self.max.load(Ordering::Acquire)
    }

    /// Where the record of the last entry ends in the commit log; 0 for a queue without messages.
    pub fn physical_end(&self) -> i64 {
        self.writer.lock().physical_end
    }

    /// Adds an entry. One that is there already is left alone, so dispatching a record twice does no harm. Missing entries
    /// before it become filler, and so does a damaged record. `bit_map` goes into the extension unit; empty if it was not
    /// computed.
    ///
    /// # Errors
    /// When entries that were pushed before cannot be written; this one was not added then.
    pub fn push(&self, record: &DispatchRecord<'_>, bit_map: &[u8]) -> Result<Pushed, StoreError> {
        let mut writer = self.writer.lock();
        if writer.deleted {
            return Ok(Pushed::Deleted);
        }
        let number = record.queue_offset.get();
        if !self.is_sane(&writer, record) {
            return Ok(Pushed::Refused);
        }
        let physical_end = record.end().get();
        if physical_end <= writer.physical_end {
            return Ok(Pushed::Present);
        }
        if number == 0 && !writer.empty {
            self.begin_again(&mut writer)?;
        }
        if number < writer.next {
            return Ok(Pushed::NumberTaken);
        }
        if writer.next - writer.written >= WRITE_AT {
            self.write_rest(&mut writer)?;
        }
        if number > writer.next || writer.empty {
            self.pad(&mut writer, number)?;
        }
        let entry = self.entry_for(&mut writer, record, bit_map);
        writer.physical_end = physical_end;
        writer.busy = true;
        self.add(&mut writer, &entry);
        Ok(Pushed::Added)
    }

    fn add(&self, writer: &mut Writer, entry: &QueueEntry) {
        self.tail.lock().bytes.extend_from_slice(&entry.encode());
        writer.next += 1;
        // Filler before an end taken over from the catalogue lies below it.
        self.max.fetch_max(writer.next, Ordering::AcqRel);
    }

    fn is_sane(&self, writer: &Writer, record: &DispatchRecord<'_>) -> bool {
        let number = record.queue_offset.get();
        let near = writer.empty || number.saturating_sub(writer.next) <= MAX_GAP;
        let addressable = (0..i64::MAX / ENTRY - self.files.file_len()).contains(&number);
        near && addressable && record.physical_offset.get() >= 0 && record.size > 0
    }

    fn entry_for(
        &self,
        writer: &mut Writer,
        record: &DispatchRecord<'_>,
        bit_map: &[u8],
    ) -> QueueEntry {
        if record.damaged {
            return QueueEntry::FILLER;
        }
        let plain = record.tags_code;
        let address = self.ext_files.as_ref().and_then(|files| {
            writer
                .ext
                .push(files.file_len(), plain, record.store_timestamp, bit_map)
        });
        QueueEntry {
            physical_offset: record.physical_offset.get(),
            size: record.size,
            tags_code: address.unwrap_or(plain),
        }
    }

    /// A newer record has a number that was given already: its topic was deleted and made again, and what is here belongs
    /// to the old one.
    fn begin_again(&self, writer: &mut Writer) -> Result<(), StoreError> {
        tracing::info!(
            topic = self.topic(),
            queue = self.queue_id,
            "numbers start again: old entries dropped"
        );
        self.delete_files()?;
        self.set_end(writer, 0, 0);
        *writer = Writer {
            on_disk: std::mem::take(&mut writer.on_disk),
            generation: writer.generation,
            ..Writer::new()
        };
        Ok(())
    }

    /// Recovery: begins again without entries, if the last record ends at or below `below`. Gives whether it did.
    pub(crate) fn begin_again_after(&self, below: i64) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock();
        let begins = !writer.deleted && (1..=below).contains(&writer.physical_end);
        if begins {
            self.begin_again(&mut writer)?;
        }
        Ok(begins)
    }

    fn delete_files(&self) -> Result<(), StoreError> {
        [Some(&self.files), self.ext_files.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(Segments::delete_all)
    }

    /// Recovery: the files are of no use, so the queue begins without any. Gives the number of its next message by what
    /// it had.
    pub(super) fn start_over(&self) -> Result<i64, StoreError> {
        let mut writer = self.writer.lock();
        self.delete_files()?;
        let max = self.max_offset();
        self.set_end(&mut writer, 0, 0);
        *writer = Writer {
            generation: writer.generation,
            ..Writer::new()
        };
        Ok(max)
    }

    /// Goes on with entry `number`, though those before are neither here nor in the log any more.
    pub(super) fn begin_at(&self, number: i64) {
        let mut writer = self.writer.lock();
        if writer.empty && number > writer.next {
            self.set_end(&mut writer, number, 0);
            writer.empty = true;
            self.min.store(number, Ordering::Release);
        }
    }

    /// Filler up to `to`. A queue without entries begins with the file that holds `to`.
    fn pad(&self, writer: &mut Writer, to: i64) -> Result<(), StoreError> {
        if writer.empty {
            let first = self.files.start_of(to * ENTRY) / ENTRY;
            // Entries of messages that the log has lost may lie there.
            self.files.delete_below(first * ENTRY)?;
            (writer.next, writer.written) = (first, first);
            self.tail.lock().from = first;
            // Set before the first entry shows: filler is never the minimum.
            self.min.store(to, Ordering::Release);
            writer.empty = false;
        } else {
            tracing::warn!(
                topic = &*self.topic,
                queue = self.queue_id,
                from = writer.next,
                to,
                "entries missing in a consume queue, padded with filler"
            );
        }
        while writer.next < to {
            self.add(writer, &QueueEntry::FILLER);
            if writer.next - writer.written >= FILLER_AT {
                self.write_rest(writer)?;
            }
        }
        Ok(())
    }

    /// Writes the entries that are only in memory.
    ///
    /// # Errors
    /// When the disk fails or is full; the entries stay in memory.
    pub fn write_out(&self) -> Result<(), StoreError> {
        self.write_rest(&mut self.writer.lock())
    }

    fn write_rest(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if writer.deleted || writer.written >= writer.next {
            return Ok(());
        }
        if let Some(files) = &self.ext_files {
            writer.ext.write_out(files)?;
        }
        // Copied, so that readers do not wait for the disk.
        let mut bytes = Vec::new();
        let copied = self
            .tail
            .lock()
            .copy(writer.written, writer.next, &mut bytes);
        debug_assert!(copied, "what is not written is in memory");
        self.files.write(writer.written * ENTRY, &bytes)?;
        writer.written = writer.next;
        self.tail.lock().shorten(TAIL_ENTRIES);
        Ok(())
    }

    /// Gives the memory of the last entries back if nothing came since the last call.
    pub(super) fn rest(&self) {
        let mut writer = self.writer.lock();
        if !std::mem::take(&mut writer.busy) && writer.written == writer.next {
            *self.tail.lock() = Tail {
                from: writer.next,
                bytes: Vec::new(),
            };
        }
    }

    /// Puts the entries `[from, from + count)` that exist into `out` (emptied first), but none from beyond the file
    /// that holds `from`. Nothing is put if `from` is not below the published end or no file holds it.
    pub fn read(
        &self,
        from: i64,
        count: usize,
        out: &mut Vec<u8>,
        blocking: Blocking,
    ) -> Result<(), ReadError> {
        out.clear();
        let max = self.max_offset();
        if from < 0 || from >= max {
            return Ok(());
        }
        let per_file = self.entries_per_file();
        let end = (from - from % per_file + per_file)
            .min(max)
            .min(from.saturating_add(count as i64));
        let in_memory_from = {
            let tail = self.tail.lock();
            if tail.copy(from, end, out) {
                return Ok(());
            }
            tail.from.clamp(from, end)
        };
        out.resize((in_memory_from - from) as usize * ENTRY_LEN, 0);
        let read = self.files.read(from * ENTRY, out, blocking);
        out.truncate(*read.as_ref().unwrap_or(&0));
        read?;
        if !out.is_empty() {
            // If the oldest of these left memory meanwhile, there are fewer entries than there could be.
            self.tail.lock().copy(in_memory_from, end, out);
        }
        Ok(())
    }

    /// One entry, reading the disk if it has to.
    pub fn entry(&self, number: i64) -> Result<Option<QueueEntry>, StoreError> {
        let mut bytes = Vec::with_capacity(ENTRY_LEN);
        self.read(number, 1, &mut bytes, Blocking::Allowed)
            .map_err(ReadError::into_store_error)?;
        Ok(entries(&bytes).next().filter(QueueEntry::is_written))
    }

    /// The extension unit an entry's tag field points to; `None` if it points to none or the unit is unreadable.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn ext_unit(
        &self,
        tags_code: i64,
        blocking: Blocking,
    ) -> Result<Option<ExtUnit>, ReadError> {
        match &self.ext_files {
            Some(files) if ext::is_address(tags_code) => {
                if let Some(unit) = self.writer.lock().ext.pending_unit(tags_code) {
                    return Ok(Some(unit));
                }
                ext::read(files, tags_code, blocking)
            }
            _ => Ok(None),
        }
    }

    /// Entries in one file.
    pub fn entries_per_file(&self) -> i64 {
        self.files.file_len() / ENTRY
    }

    /// Whether at least `least` entries are not known to be on disk, or what was erased is not.
    pub fn has_unflushed(&self, least: i64) -> bool {
        self.erased.load(Ordering::Acquire)
            || self.max_offset() - self.flushed.load(Ordering::Acquire) >= least.max(1)
    }

    /// Brings all entries (and their extension units) to disk.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn flush(&self) -> Result<(), StoreError> {
        let written = self.write_for_flush()?;
        let (flushed, max) = (self.flushed.load(Ordering::Acquire), written.end);
        // The file behind the last entry too, if something was erased there.
        let erased = i64::from(self.erased.load(Ordering::Acquire));
        if flushed >= max && erased == 0 {
            return Ok(());
        }
        if let Some(files) = &self.ext_files {
            let end = self.writer.lock().ext.written();
            let from = self.ext_start(flushed)?.unwrap_or(0);
            files.sync(from, end + erased)?;
        }
        self.files.sync(flushed * ENTRY, max * ENTRY + erased)?;
        self.set_flushed(written);
        Ok(())
    }

    /// Writes all entries. Once they are on disk, [`Self::set_flushed`] is to be called.
    pub(super) fn write_for_flush(&self) -> Result<Written, StoreError> {
        let mut writer = self.writer.lock();
        self.write_rest(&mut writer)?;
        Ok(Written {
            end: writer.written,
            generation: writer.generation,
        })
    }

    /// What was written is on disk; unless other entries have taken its place meanwhile.
    pub(super) fn set_flushed(&self, written: Written) {
        let writer = self.writer.lock();
        if writer.generation == written.generation {
            self.flushed.fetch_max(written.end, Ordering::AcqRel);
            self.erased.store(false, Ordering::Release);
        }
    }

    /// Byte offset of the unit of entry `number`.
    fn ext_start(&self, number: i64) -> Result<Option<i64>, StoreError> {
        let entry = self.entry(number)?.filter(|e| ext::is_address(e.tags_code));
        Ok(entry.map(|e| ext::position_of(e.tags_code)))
    }

    /// Goes on after entry `next - 1`, whose record ends at `physical_end`. The files are not touched.
    pub(super) fn set_end(&self, writer: &mut Writer, next: i64, physical_end: i64) {
        (writer.next, writer.written) = (next, next);
        writer.empty = false;
        writer.generation += 1;
        writer.physical_end = physical_end;
        *self.tail.lock() = Tail {
            from: next,
            bytes: Vec::new(),
        };
        self.min.fetch_min(next, Ordering::AcqRel);
        self.flushed.fetch_min(next, Ordering::AcqRel);
        self.max.store(next, Ordering::Release);
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.writer.lock().deleted
    }

    /// Deletes the queue's files, if no entry is of a record that ends after `below`. Whoever still holds the queue can
    /// write no more. Gives whether it is deleted; after an error it is not, and some of its files are gone.
    pub(super) fn delete(&self, below: i64) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock();
        if writer.deleted {
            return Ok(true);
        }
        // It began again at 0 already, with messages that are not meant.
        if writer.physical_end > below {
            return Ok(false);
        }
        self.delete_files()?;
        writer.deleted = true;
        Ok(true)
    }
}

/// What a flush is about to bring to disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    /// Entries below are written.
    end: i64,
    /// Which entries they were.
    generation: u64,
}

impl Writer {
    fn new() -> Self {
        Self {
            next: 0,
            written: 0,
            physical_end: 0,
            empty: true,
            ext: ExtWriter::default(),
            on_disk: OnDisk::default(),
            busy: false,
            deleted: false,
            generation: 0,
        }
    }
}

impl Tail {
    /// Drops the oldest entries until `kept` are left, if that is worth it.
    fn shorten(&mut self, kept: usize) {
        let kept = kept * ENTRY_LEN;
        if self.bytes.len() >= 2 * kept {
            let dropped = self.bytes.len() - kept;
            self.bytes.drain(..dropped);
            self.bytes.shrink_to(4 * kept);
            self.from += (dropped / ENTRY_LEN) as i64;
        }
    }

    /// Copies `[from, to)` if all of it is here.
    fn copy(&self, from: i64, to: i64, out: &mut Vec<u8>) -> bool {
        let (Ok(first), Ok(last)) = (
            usize::try_from(from - self.from),
            usize::try_from(to - self.from),
        ) else {
            return false;
        };
        match self.bytes.get(first * ENTRY_LEN..last * ENTRY_LEN) {
            Some(bytes) => out.extend_from_slice(bytes),
            None => return false,
        }
        true
    }
}
