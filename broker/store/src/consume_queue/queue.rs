//! One consume queue: the entries of one queue of one topic, in files and, for the last few, in memory.
//!
//! Writing has one owner at a time (the dispatcher, recovery, deletion), behind `writer`. Readers see entries
//! below the published end only; that end moves after the bytes are in the file. `writer` is taken before `tail`.
//!
//! Not here: recovery, truncation and cleaning (`trim`), search by time (`by_time`), the table of all queues
//! (`table`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

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

/// Entries pushed before they are written without being asked.
const MAX_PENDING: usize = 4096;

/// Missing entries that are padded with filler. More than that is a damaged record, not a gap.
const MAX_GAP: i64 = 1 << 24;

/// What became of a record given to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the queue now. `first` says that the queue had nothing to write before.
    Added {
        /// Whether the caller has to remember this queue for [`ConsumeQueue::write_out`].
        first: bool,
    },
    /// The queue has this entry already.
    Present,
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
    pub(super) writer: Mutex<Writer>,
    tail: Mutex<Tail>,
}

#[derive(Debug)]
pub(super) struct Writer {
    /// Bytes of the entries before `next` that are not in the files yet.
    pending: Vec<u8>,
    /// Number of the next entry.
    next: i64,
    /// End in the commit log of the last message entered.
    pub(super) physical_end: i64,
    /// Whether there is no entry yet, in the files or pending.
    pub(super) empty: bool,
    /// First entry that is a message, when a queue begins in the middle.
    first: Option<i64>,
    pub(super) ext: ExtWriter,
    /// What recovery found, until the queue is truncated.
    pub(super) on_disk: OnDisk,
    deleted: bool,
}

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

    /// Adds an entry in memory; [`Self::write_out`] publishes it. An entry that is there already is left alone, so
    /// dispatching a record twice does no harm. Missing entries before it become filler, and so does a damaged record.
    /// `bit_map` goes into the extension unit; empty if it was not computed.
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
            return Ok(Pushed::Present);
        }
        let first = writer.pending.is_empty();
        if number > writer.next || writer.empty {
            self.pad(&mut writer, number)?;
        }
        let entry = self.entry_for(&mut writer, record, bit_map);
        writer.add(&entry);
        writer.physical_end = physical_end;
        if writer.pending.len() >= MAX_PENDING * ENTRY_LEN {
            self.write_pending(&mut writer)?;
        }
        Ok(Pushed::Added { first })
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

    /// A newer record has the number 0: its topic was deleted and made again, and what is here belongs to the old one.
    fn begin_again(&self, writer: &mut Writer) -> Result<(), StoreError> {
        tracing::info!(
            topic = self.topic(),
            queue = self.queue_id,
            "numbers start at 0 again: old entries dropped"
        );
        for files in [Some(&self.files), self.ext_files.as_ref()]
            .into_iter()
            .flatten()
        {
            files.delete_all()?;
        }
        self.set_end(writer, 0, 0);
        *writer = Writer {
            on_disk: std::mem::take(&mut writer.on_disk),
            ..Writer::new()
        };
        Ok(())
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
        if std::mem::take(&mut writer.empty) {
            writer.next = self.files.start_of(to * ENTRY) / ENTRY;
            writer.first = Some(to);
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
            writer.add(&QueueEntry::FILLER);
            if writer.pending.len() >= MAX_PENDING * ENTRY_LEN {
                self.write_pending(writer)?;
            }
        }
        Ok(())
    }

    /// Writes the entries pushed so far and publishes them.
    pub fn write_out(&self) -> Result<(), StoreError> {
        self.write_pending(&mut self.writer.lock())
    }

    fn write_pending(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if writer.deleted || writer.pending.is_empty() {
            return Ok(());
        }
        if let Some(files) = &self.ext_files {
            writer.ext.write_out(files)?;
        }
        let from = writer.next - (writer.pending.len() / ENTRY_LEN) as i64;
        self.files.write(from * ENTRY, &writer.pending)?;
        self.tail.lock().extend(from, &writer.pending);
        if let Some(first) = writer.first {
            self.min.store(first, Ordering::Release);
            if first < writer.next {
                writer.first = None;
            }
        }
        // Filler before an end taken over from the catalogue lies below it.
        self.max.fetch_max(writer.next, Ordering::AcqRel);
        writer.pending.clear();
        writer.pending.shrink_to(TAIL_ENTRIES * ENTRY_LEN);
        Ok(())
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
        if self.tail.lock().copy(from, end, out) {
            return Ok(());
        }
        out.resize((end - from) as usize * ENTRY_LEN, 0);
        let read = self.files.read(from * ENTRY, out, blocking);
        out.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop)
    }

    /// One entry, reading the disk if it has to.
    pub fn entry(&self, number: i64) -> Result<Option<QueueEntry>, StoreError> {
        let mut bytes = Vec::with_capacity(ENTRY_LEN);
        self.read(number, 1, &mut bytes, Blocking::Allowed)
            .map_err(ReadError::into_store_error)?;
        Ok(entries(&bytes).next().filter(QueueEntry::is_written))
    }

    /// The extension unit an entry's tag field points to; `None` if it points to none or the unit is unreadable.
    pub fn ext_unit(
        &self,
        tags_code: i64,
        blocking: Blocking,
    ) -> Result<Option<ExtUnit>, ReadError> {
        match &self.ext_files {
            Some(files) if ext::is_address(tags_code) => ext::read(files, tags_code, blocking),
            _ => Ok(None),
        }
    }

    /// Entries in one file.
    pub fn entries_per_file(&self) -> i64 {
        self.files.file_len() / ENTRY
    }

    /// Whether at least `least` entries are not known to be on disk.
    pub fn has_unflushed(&self, least: i64) -> bool {
        self.max_offset() - self.flushed.load(Ordering::Acquire) >= least.max(1)
    }

    /// Brings the published entries (and their extension units) to disk.
    pub fn flush(&self) -> Result<(), StoreError> {
        let max = self.max_offset();
        let flushed = self.flushed.load(Ordering::Acquire);
        if flushed >= max {
            return Ok(());
        }
        if let Some(files) = &self.ext_files {
            let end = self.writer.lock().ext.written();
            let from = self.ext_start(flushed)?.unwrap_or(0);
            files.sync(from, end)?;
        }
        self.files.sync(flushed * ENTRY, max * ENTRY)?;
        self.flushed.store(max, Ordering::Release);
        Ok(())
    }

    /// Byte offset of the unit of entry `number`.
    fn ext_start(&self, number: i64) -> Result<Option<i64>, StoreError> {
        let entry = self.entry(number)?.filter(|e| ext::is_address(e.tags_code));
        Ok(entry.map(|e| ext::position_of(e.tags_code)))
    }

    /// Goes on after entry `next - 1`, whose record ends at `physical_end`. The files are not touched.
    pub(super) fn set_end(&self, writer: &mut Writer, next: i64, physical_end: i64) {
        writer.pending = Vec::new();
        writer.next = next;
        writer.empty = false;
        writer.physical_end = physical_end;
        writer.first = None;
        *self.tail.lock() = Tail::default();
        self.min.fetch_min(next, Ordering::AcqRel);
        self.flushed.fetch_min(next, Ordering::AcqRel);
        self.max.store(next, Ordering::Release);
    }

    /// What is published is on disk: so after a clean stop.
    pub(super) fn set_flushed(&self) {
        self.flushed.store(self.max_offset(), Ordering::Release);
    }

    /// Deletes the queue's files. Whoever still holds the queue can write no more.
    pub(super) fn delete(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        writer.deleted = true;
        writer.pending = Vec::new();
        for files in [Some(&self.files), self.ext_files.as_ref()]
            .into_iter()
            .flatten()
        {
            files.delete_all()?;
        }
        Ok(())
    }
}

impl Writer {
    fn new() -> Self {
        Self {
            pending: Vec::new(),
            next: 0,
            physical_end: 0,
            empty: true,
            first: None,
            ext: ExtWriter::default(),
            on_disk: OnDisk::default(),
            deleted: false,
        }
    }

    fn add(&mut self, entry: &QueueEntry) {
        self.pending.extend_from_slice(&entry.encode());
        self.next += 1;
    }
}

impl Tail {
    /// Adds entries that begin at `from`, dropping the oldest.
    fn extend(&mut self, from: i64, bytes: &[u8]) {
        const KEPT: usize = TAIL_ENTRIES * ENTRY_LEN;
        let end = self.from + (self.bytes.len() / ENTRY_LEN) as i64;
        if end != from || bytes.len() >= KEPT {
            let skipped = bytes.len().saturating_sub(KEPT);
            self.bytes.clear();
            self.from = from + (skipped / ENTRY_LEN) as i64;
            self.bytes.extend_from_slice(&bytes[skipped..]);
            return;
        }
        if self.bytes.len() + bytes.len() > 2 * KEPT {
            let dropped = self.bytes.len() - KEPT;
            self.bytes.drain(..dropped);
            self.from += (dropped / ENTRY_LEN) as i64;
        }
        self.bytes.extend_from_slice(bytes);
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
