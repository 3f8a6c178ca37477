//! One file of the log.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::RwLock;

use crate::io::DiskFile;
use crate::region::Region;

/// Bytes read as one when a part of a file cannot be read: what lies in the same block is given up with it.
const SALVAGE_BLOCK: usize = 4096;

/// One file of the log: its place in the log's address space, its descriptor, and, while it is hot, its mapping.
pub(crate) struct LogFile {
    /// Offset of its first byte in the log.
    pub(crate) base: i64,
    /// Its length: `mappedFileSizeCommitLog`.
    pub(crate) size: i64,
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// Its descriptor.
    pub(crate) file: Arc<dyn DiskFile>,
    region: RwLock<Option<Arc<Region>>>,
    zeroed_to: AtomicI64,
}

impl LogFile {
    pub(crate) fn new(base: i64, size: i64, path: PathBuf, file: Arc<dyn DiskFile>) -> Self {
        Self {
            base,
            size,
            path,
            file,
            region: RwLock::new(None),
            zeroed_to: AtomicI64::new(base),
        }
    }

    /// Log offset up to which its blocks were written, with zeros if nothing else.
    pub(crate) fn zeroed_to(&self) -> i64 {
        self.zeroed_to.load(Ordering::Acquire)
    }

    pub(crate) fn set_zeroed_to(&self, to: i64) {
        self.zeroed_to.store(to, Ordering::Release);
    }

    /// Offset of the first byte after it.
    pub(crate) fn end(&self) -> i64 {
        self.base + self.size
    }

    /// Its mapping, if it is mapped.
    pub(crate) fn region(&self) -> Option<Arc<Region>> {
        self.region.read().clone()
    }

    /// Maps it; the first `published` bytes are final.
    pub(crate) fn map(&self, published: usize) -> io::Result<Arc<Region>> {
        let region = self.file.map(published)?;
        *self.region.write() = Some(Arc::clone(&region));
        Ok(region)
    }

    /// Gives up its mapping. Slices handed out keep theirs.
    pub(crate) fn unmap(&self) {
        self.region.write().take();
    }

    /// Before a sync of all in `[from, to)`, as log offsets: the pages that it will write are mapped for reading only, which
    /// makes it cheaper.
    pub(crate) fn map_for_reading(&self, from: i64, to: i64) {
        if let Some(region) = self.region() {
            let within = |at: i64| usize::try_from(at.min(self.end()) - self.base).unwrap_or(0);
            // Nothing depends on it: whoever reads a page that is not mapped has it mapped then.
            let _ = region.map_for_reading(within(from)..within(to));
        }
    }

    /// Reads from log offset `at`; fewer bytes than asked for only at the end of the file.
    pub(crate) fn read(&self, at: i64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, self.within(at))
    }

    /// As [`LogFile::read`], but what cannot be read is zeros. Gives the bytes and whether any block was given up.
    pub(crate) fn salvage(&self, at: i64, buffer: &mut [u8]) -> (usize, bool) {
        match self.read(at, buffer) {
            Ok(len) => (len, false),
            Err(_) => {
                let available = usize::try_from(self.end() - at)
                    .unwrap_or(0)
                    .min(buffer.len());
                let mut given_up = false;
                let blocks = buffer
                    .get_mut(..available)
                    .unwrap_or_default()
                    .chunks_mut(SALVAGE_BLOCK);
                for (index, block) in blocks.enumerate() {
                    let from = at + (index * SALVAGE_BLOCK) as i64;
                    let len = self.read(from, block).unwrap_or_else(|_| {
                        given_up = true;
                        0
                    });
                    block.get_mut(len..).unwrap_or_default().fill(0);
                }
                (available, given_up)
            }
        }
    }

    /// Position inside the file of a log offset.
    pub(crate) fn within(&self, at: i64) -> u64 {
        debug_assert!(at >= self.base && at <= self.end());
        u64::try_from(at - self.base).unwrap_or(0)
    }
}

impl fmt::Debug for LogFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(formatter)
    }
}
