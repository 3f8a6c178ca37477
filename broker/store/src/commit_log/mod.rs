//! The commit log: all messages in one address space of bytes, cut into files of one size (store spec 1 and 2).
//!
//! | module | what |
//! |---|---|
//! | `file` | one file |
//! | `folders` | which folder holds which file; reading them in |
//! | [`scanner`] | records one after the other, for dispatch and recovery |
//! | `ahead` | files and pages made ready before they are needed |
//!
//! Three numbers rule it: `min` (first byte kept) ≤ `flushed` (known to be on disk) ≤ `published` (may be read). Writing is
//! in `append`, flushing in `flush`; what is true after a crash in `recovery`.

pub(crate) mod ahead;
pub(crate) mod file;
pub(crate) mod folders;
pub mod scanner;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;

use self::file::LogFile;
use self::folders::LogFolders;
use crate::config::{FlushDiskType, StoreConfig};
use crate::counters::{Counters, add};
use crate::error::StoreError;
use crate::io::Disk;
use crate::offset::PhysicalOffset;
use crate::recent_records::RecentRecords;
use crate::region::Published;
use crate::signal::Signal;

/// What a read of the log found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRead {
    /// The bytes; they stay valid as long as they are held, whatever is deleted meanwhile.
    Found(Bytes),
    /// They must be read from the disk, and waiting was not allowed.
    WouldWait,
    /// Deleted, or not yet written.
    Absent,
}

/// The log's files and how far they are written. Shared by all who read.
#[derive(Debug)]
pub struct CommitLog {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) folders: LogFolders,
    pub(crate) counters: Arc<Counters>,
    pub(crate) recent_records: RecentRecords,
    file_size: i64,
    hot_window: i64,
    sync_flush: bool,
    files: RwLock<Vec<Arc<LogFile>>>,
    published: AtomicI64,
    flushed: AtomicI64,
    /// Bytes from here on are served from the mapping.
    hot_from: AtomicI64,
    /// Dispatch goes no further, whatever is published.
    dispatch_cap: AtomicI64,
    /// Store time of the newest message below `published`.
    last_store_timestamp: AtomicI64,
    grown: Signal,
    flush_wanted: Signal,
    flush_on_append: AtomicBool,
}

impl CommitLog {
    /// The log as recovery left it: all below `end` is good and durable.
    pub(crate) fn new(
        config: &StoreConfig,
        disk: Arc<dyn Disk>,
        files: Vec<Arc<LogFile>>,
        end: i64,
        last_store_timestamp: i64,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            disk,
            folders: LogFolders::of(config),
            counters,
            recent_records: RecentRecords::default(),
            file_size: config.mapped_file_size_commit_log as i64,
            hot_window: i64::try_from(config.hot_window_bytes).unwrap_or(i64::MAX),
            sync_flush: config.flush_disk_type == FlushDiskType::SyncFlush,
            files: RwLock::new(files),
            published: AtomicI64::new(end),
            flushed: AtomicI64::new(end),
            hot_from: AtomicI64::new(end),
            dispatch_cap: AtomicI64::new(i64::MAX),
            last_store_timestamp: AtomicI64::new(last_store_timestamp),
            grown: Signal::default(),
            flush_wanted: Signal::default(),
            flush_on_append: AtomicBool::new(
                config.flush_disk_type == FlushDiskType::SyncFlush
                    || !config.flush_commit_log_timed,
            ),
        }
    }

    /// Length of a file.
    #[must_use]
    pub fn file_size(&self) -> i64 {
        self.file_size
    }

    /// First byte kept; -1 without files.
    #[must_use]
    pub fn min_offset(&self) -> PhysicalOffset {
        PhysicalOffset(self.files.read().first().map_or(-1, |file| file.base))
    }

    /// First byte not yet written: all below may be read.
    #[must_use]
    pub fn max_offset(&self) -> PhysicalOffset {
        PhysicalOffset(self.published.load(Ordering::Acquire))
    }

    /// All below is on disk.
    #[must_use]
    pub fn flushed_offset(&self) -> PhysicalOffset {
        PhysicalOffset(self.flushed.load(Ordering::Acquire))
    }

    /// All below may be shown to consumers: what a crash cannot take back where that was promised (`SYNC_FLUSH`), and what
    /// [`CommitLog::set_dispatch_cap`] allows.
    #[must_use]
    pub fn dispatch_limit(&self) -> PhysicalOffset {
        let readable = if self.sync_flush {
            self.flushed_offset()
        } else {
            self.max_offset()
        };
        PhysicalOffset(
            readable
                .get()
                .min(self.dispatch_cap.load(Ordering::Acquire)),
        )
    }

    pub(crate) fn is_sync_flush(&self) -> bool {
        self.sync_flush
    }

    /// Holds dispatch back at `cap` (`SYNC_MASTER`: what a slave in sync has acknowledged); `None` lets it go.
    pub fn set_dispatch_cap(&self, cap: Option<PhysicalOffset>) {
        self.dispatch_cap
            .store(cap.map_or(i64::MAX, PhysicalOffset::get), Ordering::Release);
        self.grown.notify();
    }

    /// Told whenever [`CommitLog::max_offset`], [`CommitLog::flushed_offset`] or [`CommitLog::dispatch_limit`] grew.
    #[must_use]
    pub fn grown(&self) -> &Signal {
        &self.grown
    }

    /// For the flush thread: there is something to flush at once.
    pub(crate) fn flush_wanted(&self) -> &Signal {
        &self.flush_wanted
    }

    /// Tells those who follow the log that it grew.
    pub(crate) fn appended(&self) {
        self.grown.notify();
        self.appended_to_flush();
    }

    /// Tells the flush thread alone that the log grew.
    pub(crate) fn appended_to_flush(&self) {
        if self.flush_on_append.load(Ordering::Relaxed) {
            self.flush_wanted.notify();
        }
    }

    /// Whether the flush thread is told of each append, or looks from time to time.
    pub(crate) fn set_flush_on_append(&self, on: bool) {
        self.flush_on_append.store(on, Ordering::Relaxed);
    }

    /// Store time of the newest message, ms; 0 if none is known.
    #[must_use]
    pub fn last_store_timestamp(&self) -> i64 {
        self.last_store_timestamp.load(Ordering::Acquire)
    }

    /// Where the file after the one that holds `at` begins.
    #[must_use]
    pub fn next_file_start(&self, at: PhysicalOffset) -> PhysicalOffset {
        PhysicalOffset(at.get() - at.get().rem_euclid(self.file_size) + self.file_size)
    }

    /// Whether bytes from `at` on are served from memory, without touching a file.
    #[must_use]
    pub fn is_hot(&self, at: PhysicalOffset) -> bool {
        at.get() >= self.hot_from.load(Ordering::Acquire)
    }

    /// All bytes from `at` on in memory, to the end of the file or of what is published; `None` if `at` is not hot.
    /// One allocation; parts of it are slices without any.
    #[must_use]
    pub fn hot_span(&self, at: PhysicalOffset) -> Option<Bytes> {
        self.hot_bytes(at).map(Bytes::from_owner)
    }

    /// As [`CommitLog::hot_span`], without an allocation.
    pub(crate) fn hot_bytes(&self, at: PhysicalOffset) -> Option<Published> {
        if !self.is_hot(at) {
            return None;
        }
        let file = self.file_at(at.get())?;
        let end = file.end().min(self.published.load(Ordering::Acquire));
        let (from, to) = (
            usize::try_from(at.get() - file.base).ok()?,
            usize::try_from(end - file.base).ok()?,
        );
        if from >= to {
            return None;
        }
        file.region()?.span(from..to)
    }

    /// Reads `len` bytes at `at`, which must lie in one file. Hot bytes are a slice of the mapping; others are copied from
    /// the file, at once if the page cache has them, else only if `may_wait`.
    ///
    /// # Errors
    /// When the disk cannot read; nothing is known then about other places.
    pub fn read(
        &self,
        at: PhysicalOffset,
        len: usize,
        may_wait: bool,
    ) -> Result<LogRead, StoreError> {
        if let Some(span) = self.hot_span(at) {
            return Ok(if len <= span.len() {
                LogRead::Found(span.slice(..len))
            } else {
                LogRead::Absent
            });
        }
        let Some(file) = self.file_at(at.get()) else {
            return Ok(LogRead::Absent);
        };
        let end = file.end().min(self.published.load(Ordering::Acquire));
        if i64::try_from(len).map_or(true, |len| len > end - at.get()) {
            return Ok(LogRead::Absent);
        }
        let mut buffer = vec![0; len];
        match Self::read_file(&file, at.get(), &mut buffer, may_wait) {
            Ok(true) => Ok(LogRead::Found(buffer.into())),
            Ok(false) => Ok(LogRead::WouldWait),
            Err(error) => Err(StoreError::io(&file.path, "read", error)),
        }
    }

    /// As [`CommitLog::read`] of bytes that are not hot, into the caller's memory. Gives how many bytes there were, at most
    /// to the end of the file or of what is published; `None` if reading would wait and must not.
    ///
    /// # Errors
    /// When the disk cannot read.
    pub fn read_cold(
        &self,
        at: PhysicalOffset,
        buffer: &mut [u8],
        may_wait: bool,
    ) -> Result<Option<usize>, StoreError> {
        let Some(file) = self.file_at(at.get()) else {
            return Ok(Some(0));
        };
        let end = file.end().min(self.published.load(Ordering::Acquire));
        let len = usize::try_from(end - at.get())
            .unwrap_or(0)
            .min(buffer.len());
        let buffer = buffer.get_mut(..len).unwrap_or_default();
        match Self::read_file(&file, at.get(), buffer, may_wait) {
            Ok(whole) => Ok(whole.then_some(len)),
            Err(error) => Err(StoreError::io(&file.path, "read", error)),
        }
    }

    /// Fills `buffer` or says that it would have to wait.
    fn read_file(file: &LogFile, at: i64, buffer: &mut [u8], may_wait: bool) -> io::Result<bool> {
        let len = if may_wait {
            file.read(at, buffer)?
        } else {
            match file.file.read_at_nowait(buffer, file.within(at)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                // Part of it was there at once.
                Ok(len) if len < buffer.len() => return Ok(false),
                len => len?,
            }
        };
        if len < buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(true)
    }

    /// Deletes the oldest file, if it is not the last one. Its bytes live on in slices that are held. Gives its path and
    /// the first offset kept.
    ///
    /// # Errors
    /// When the file cannot be deleted; then it stays part of the log.
    pub fn delete_oldest_file(&self) -> Result<Option<(PathBuf, PhysicalOffset)>, StoreError> {
        let (oldest, next) = match self.files.read().as_slice() {
            [oldest, next, ..] => (Arc::clone(oldest), next.base),
            _ => return Ok(None),
        };
        if oldest.end() > self.max_offset().get() {
            return Ok(None);
        }
        self.disk
            .remove_file(&oldest.path)
            .map_err(|error| StoreError::io(&oldest.path, "remove", error))?;
        self.files.write().retain(|file| file.base != oldest.base);
        Ok(Some((oldest.path.clone(), PhysicalOffset(next))))
    }

    /// Path, first offset and end offset of each file, ascending.
    #[must_use]
    pub fn file_list(&self) -> Vec<(PathBuf, PhysicalOffset, PhysicalOffset)> {
        let entry = |file: &Arc<LogFile>| {
            (
                file.path.clone(),
                PhysicalOffset(file.base),
                PhysicalOffset(file.end()),
            )
        };
        self.files.read().iter().map(entry).collect()
    }

    /// When a file of [`CommitLog::file_list`] was last written to.
    ///
    /// # Errors
    /// The system's.
    pub fn file_modified(
        &self,
        start: PhysicalOffset,
    ) -> Result<Option<std::time::SystemTime>, StoreError> {
        let Some(file) = self.file_at(start.get()) else {
            return Ok(None);
        };
        file.file
            .modified()
            .map(Some)
            .map_err(|error| StoreError::io(&file.path, "stat", error))
    }

    /// The file that holds the byte at `at`.
    pub(crate) fn file_at(&self, at: i64) -> Option<Arc<LogFile>> {
        let files = self.files.read();
        let index = files.partition_point(|file| file.end() <= at);
        files.get(index).filter(|file| file.base <= at).cloned()
    }

    /// Files that overlap a range, ascending.
    pub(crate) fn files_in(&self, from: i64, to: i64) -> Vec<Arc<LogFile>> {
        let overlaps = |file: &&Arc<LogFile>| file.base < to && from < file.end();
        self.files.read().iter().filter(overlaps).cloned().collect()
    }

    /// Adds the next file at the end.
    pub(crate) fn push_file(&self, file: Arc<LogFile>) {
        let mut files = self.files.write();
        debug_assert!(files.last().is_none_or(|last| last.end() <= file.base));
        files.push(file);
    }

    /// Lets readers see all below `end`; its bytes were published in their region before.
    pub(crate) fn publish(&self, end: i64, last_store_timestamp: i64) {
        debug_assert!(end >= self.published.load(Ordering::Relaxed));
        self.last_store_timestamp
            .store(last_store_timestamp, Ordering::Release);
        self.published.store(end, Ordering::Release);
        self.assert_order();
    }

    /// Notes that all below `end` is on disk.
    pub(crate) fn set_flushed(&self, end: i64) {
        self.flushed.fetch_max(end, Ordering::AcqRel);
        self.assert_order();
        self.grown.notify();
    }

    /// min ≤ flushed ≤ published, and what is hot and what may be dispatched are published. Each only grows, so the larger
    /// one is looked at last.
    fn assert_order(&self) {
        if cfg!(debug_assertions) {
            let min = self.min_offset().get();
            let hot = self.hot_from.load(Ordering::Acquire);
            let dispatch = self.dispatch_limit().get();
            let flushed = self.flushed.load(Ordering::Acquire);
            let published = self.published.load(Ordering::Acquire);
            debug_assert!(
                min <= published
                    && hot <= published
                    && dispatch <= published
                    && flushed <= published
            );
        }
    }

    /// The first byte ever in the log, for a slave that begins in the middle.
    pub(crate) fn begin_at(&self, at: i64) {
        debug_assert!(self.files.read().is_empty());
        for number in [&self.hot_from, &self.flushed, &self.published] {
            number.store(at, Ordering::Release);
        }
    }

    /// Moves the cold border up behind the append position and gives the pages behind it back.
    pub(crate) fn cool(&self) {
        let old = self.hot_from.load(Ordering::Acquire);
        let new = self
            .published
            .load(Ordering::Acquire)
            .saturating_sub(self.hot_window)
            .max(old);
        // Not worth a system call for less than a part of the window.
        if new - old < (self.hot_window / 16).min(self.file_size) {
            return;
        }
        self.hot_from.store(new, Ordering::Release);
        for file in self.files_in(old, new) {
            if file.end() <= new {
                file.unmap();
            } else if let (Some(region), Ok(end)) =
                (file.region(), usize::try_from(new - file.base))
            {
                let start = usize::try_from(old - file.base).unwrap_or(0);
                region.release(start..end);
            }
        }
        add(
            &self.counters.released_bytes,
            u64::try_from(new - old).unwrap_or(0),
        );
    }
}
