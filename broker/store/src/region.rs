//! Memory that is a file: the append region, and the only `unsafe` code of this crate.
//!
//! A [`Region`] is a file's bytes mapped at a fixed address and divided by one number, `published`. Below it bytes never
//! change any more and any thread may read them; at and above it only the one [`RegionWriter`] reads or writes. The
//! writer moves `published` forward after it wrote, with `Release`; readers load it with `Acquire`. So no `&mut` to a
//! published byte and no `&` to an unpublished one ever exists, and the rest of the crate needs no `unsafe`.
//!
//! What the compiler cannot know: that nobody else changes the file. Another process is kept out by the `lock` file; in
//! this process only the commit log maps files, each once; and a file that is cut short under a mapping (by hand) kills
//! the process with SIGBUS, as it would any program that maps files. Blocks are allocated before a region is written.
//!
//! Not here: which file is mapped when (`commit_log`), and what is written (`append`).
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

/// Where a region's bytes come from.
///
/// # Safety
/// `base` must point to `len` readable and writable bytes that stay there, and change only through it or through the
/// rules of this module, as long as the value lives.
pub(crate) unsafe trait RegionMemory: Send + Sync {
    /// Address of the first byte.
    fn base(&self) -> *mut u8;
    /// Bytes there are.
    fn len(&self) -> usize;
    /// Makes pages ready so that writing to them waits for no disk. Changes no byte.
    fn populate(&self, range: Range<usize>, how: Populate) -> io::Result<()>;
    /// Takes pages out of the process; the file keeps their content.
    fn release(&self, range: Range<usize>);
}

/// How pages are made ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    /// A write to them costs nothing more; they count as changed, so the next sync writes them.
    ForWriting,
    /// They are in memory, unchanged; the first write to each has to say so to the system.
    Clean,
}

/// A file's bytes in memory: readable below [`Region::published`].
pub struct Region {
    memory: Box<dyn RegionMemory>,
    base: *mut u8,
    len: usize,
    published: AtomicUsize,
    has_writer: AtomicBool,
}

// SAFETY: `base` points into `memory`, which is Send and Sync; access through it is ruled by `published` (module text).
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn new(memory: Box<dyn RegionMemory>, published: usize) -> Arc<Self> {
        let (base, len) = (memory.base(), memory.len());
        Arc::new(Self {
            memory,
            base,
            len,
            published: AtomicUsize::new(published.min(len)),
            has_writer: AtomicBool::new(false),
        })
    }

    /// Bytes of the region, published or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no byte at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that will not change any more.
    #[must_use]
    pub fn published(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }

    /// Published bytes; `None` if the range is not wholly published.
    #[must_use]
    pub fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.published() {
            return None;
        }
        // SAFETY: the range lies below `published`, so inside the memory, initialised by the file, and unchanged from
        // here on; the memory lives as long as `self`.
        Some(unsafe { std::slice::from_raw_parts(self.base.add(range.start), range.len()) })
    }

    /// Published bytes that stay readable as long as the value is held, whatever happens to the file's name.
    #[must_use]
    pub fn slice(self: &Arc<Self>, range: Range<usize>) -> Option<Bytes> {
        self.span(range).map(Bytes::from_owner)
    }

    /// As [`Region::slice`], without an allocation.
    pub(crate) fn span(self: &Arc<Self>, range: Range<usize>) -> Option<Published> {
        self.bytes(range.clone())?;
        Some(Published {
            region: Arc::clone(self),
            range,
        })
    }

    /// Makes pages ready.
    ///
    /// # Errors
    /// The system's: no space or a broken disk is an error here, where a write would be a signal.
    pub fn populate(&self, range: Range<usize>, how: Populate) -> io::Result<()> {
        let end = range.end.min(self.len);
        if range.start >= end {
            Ok(())
        } else {
            self.memory.populate(range.start..end, how)
        }
    }

    /// Lets the pages of a range leave the process. They come back, slower, when they are read.
    pub fn release(&self, range: Range<usize>) {
        let end = range.end.min(self.len);
        if range.start < end {
            self.memory.release(range.start..end);
        }
    }

    /// Maps the pages inside a range again, for reading. A sync takes the right to write away from every changed page on
    /// its own, and tells all processors each time; here that happens once for all of them. Whoever reads meanwhile
    /// finds the page in memory, a little later.
    ///
    /// # Errors
    /// The system's, where pages could not be mapped at once; they are when they are read.
    pub fn map_for_reading(&self, range: Range<usize>) -> io::Result<()> {
        if range.len() < rustix::param::page_size() {
            // No whole page, as with each flush of a lone small message.
            return Ok(());
        }
        self.release(range.clone());
        self.populate(range, Populate::Clean)
    }

    /// The one writer of this region; `None` if it is taken. It goes on at `published`.
    #[must_use]
    pub fn writer(self: &Arc<Self>) -> Option<RegionWriter> {
        if self.has_writer.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(RegionWriter {
            written: self.published(),
            region: Arc::clone(self),
        })
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Region")
            .field("len", &self.len)
            .field("published", &self.published())
            .finish()
    }
}

/// Published bytes of a region, which lives as long as they do; the owner behind a [`Bytes`] of them.
#[derive(Debug)]
pub(crate) struct Published {
    region: Arc<Region>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Published {
    fn as_ref(&self) -> &[u8] {
        self.region.bytes(self.range.clone()).unwrap_or_default()
    }
}

/// Writes behind the published bytes of a region. There is one a region.
#[derive(Debug)]
pub struct RegionWriter {
    region: Arc<Region>,
    /// Bytes written, published or not.
    written: usize,
}

impl RegionWriter {
    /// The region it writes.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Where the next byte goes.
    #[must_use]
    pub fn position(&self) -> usize {
        self.written
    }

    /// Bytes left behind the position.
    #[must_use]
    pub fn room(&self) -> usize {
        self.region.len - self.written
    }

    /// Memory for the next `len` bytes; `None` if they do not fit. It holds whatever the file holds there.
    pub fn next(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.room() {
            return None;
        }
        debug_assert!(self.written >= self.region.published());
        // SAFETY: the range lies in the region at or above `published`, where only the one writer reads or writes; the
        // borrow of `self` keeps it from moving `published` or giving out the range again while the slice lives.
        Some(unsafe { std::slice::from_raw_parts_mut(self.region.base.add(self.written), len) })
    }

    /// Counts `len` bytes as written; at most to the end of the region.
    pub fn advance(&mut self, len: usize) {
        debug_assert!(len <= self.room());
        self.written += len.min(self.room());
    }

    /// Forgets what was written since `position`, which was read from [`RegionWriter::position`] and not published since.
    pub fn rewind(&mut self, position: usize) {
        debug_assert!(position >= self.region.published() && position <= self.written);
        self.written = position.clamp(self.region.published(), self.written);
    }

    /// Lets readers see what was written.
    pub fn publish(&mut self) {
        self.region.published.store(self.written, Ordering::Release);
    }
}

impl Drop for RegionWriter {
    fn drop(&mut self) {
        self.region.has_writer.store(false, Ordering::Release);
    }
}

/// A file mapped shared.
struct Mapped {
    map: MmapRaw,
}

// SAFETY: the mapping lives as long as the value, at one address; who else changes the file is ruled in the module text.
unsafe impl RegionMemory for Mapped {
    fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn populate(&self, range: Range<usize>, how: Populate) -> io::Result<()> {
        let advice = match how {
            Populate::ForWriting => Advice::PopulateWrite,
            Populate::Clean => Advice::PopulateRead,
        };
        match self.map.advise_range(advice, range.start, range.len()) {
            // Kernels before 5.14 do not know it: pages are then made ready by the write itself.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                Ok(())
            }
            result => result,
        }
    }

    fn release(&self, range: Range<usize>) {
        // Whole pages inside the range only: those at its borders are in use.
        let page = rustix::param::page_size();
        let (start, end) = (range.start.next_multiple_of(page), range.end / page * page);
        if start < end {
            // SAFETY: the mapping is shared and backed by a file, so dropped pages are read again from it, with the bytes
            // they had; nothing is lost or zeroed.
            let _ = unsafe {
                self.map
                    .unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start)
            };
        }
    }
}

/// Maps `len` bytes of a file from its beginning. The file must be that long.
pub(crate) fn map_file(file: &File, len: usize) -> io::Result<Box<dyn RegionMemory>> {
    Ok(Box::new(Mapped {
        map: MmapOptions::new().len(len).map_raw(file)?,
    }))
}

/// The live bytes of a simulated file.
///
/// Readers and writers through [`HeapBytes::read`] and [`HeapBytes::write`] follow the rule of this module: below a
/// region's `published` nothing is written, above it only its writer reads or writes.
pub(crate) struct HeapBytes {
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: plain bytes; access is ruled by the text of the type.
unsafe impl Sync for HeapBytes {}

impl HeapBytes {
    pub(crate) fn zeroed(len: usize) -> Self {
        Self {
            bytes: (0..len).map(|_| UnsafeCell::new(0)).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Copies out as much of `buffer` as there is from `offset` on.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: usize) -> usize {
        let from = self.bytes.get(offset..).unwrap_or_default();
        let len = from.len().min(buffer.len());
        // SAFETY: both sides have `len` bytes, and nobody writes to the source (text of the type).
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), buffer.as_mut_ptr(), len)
        };
        len
    }

    /// Copies in as much of `bytes` as there is room from `offset` on.
    pub(crate) fn write(&self, bytes: &[u8], offset: usize) -> usize {
        let to = self.bytes.get(offset..).unwrap_or_default();
        let len = to.len().min(bytes.len());
        // SAFETY: both sides have `len` bytes; the cells may be written through a shared reference, and nobody else
        // touches these (text of the type).
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr().cast::<u8>().cast_mut(), len)
        };
        len
    }
}

struct Heap {
    bytes: Arc<HeapBytes>,
}

// SAFETY: the boxed cells stay at one address as long as the Arc lives.
unsafe impl RegionMemory for Heap {
    fn base(&self) -> *mut u8 {
        self.bytes.bytes.as_ptr().cast::<u8>().cast_mut()
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn populate(&self, _range: Range<usize>, _how: Populate) -> io::Result<()> {
        Ok(())
    }

    fn release(&self, _range: Range<usize>) {}
}

/// A region over the live bytes of a simulated file.
pub(crate) fn map_heap(bytes: Arc<HeapBytes>) -> Box<dyn RegionMemory> {
    Box::new(Heap { bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(len: usize, published: usize) -> Arc<Region> {
        Region::new(map_heap(Arc::new(HeapBytes::zeroed(len))), published)
    }

    #[test]
    fn bytes_are_readable_once_published_and_not_before() {
        let region = region(16, 0);
        let mut writer = region.writer().unwrap();
        writer.next(3).unwrap().copy_from_slice(b"abc");
        writer.advance(3);
        assert_eq!(region.bytes(0..3), None);
        writer.publish();
        assert_eq!(region.bytes(0..3), Some(&b"abc"[..]));
        assert_eq!(region.bytes(0..4), None);
    }

    #[test]
    fn a_region_has_one_writer_and_it_goes_on_where_the_last_one_stopped() {
        let region = region(16, 4);
        let mut writer = region.writer().unwrap();
        assert!(region.writer().is_none());
        assert_eq!((writer.position(), writer.room()), (4, 12));
        assert!(writer.next(13).is_none());
        writer.next(2).unwrap().fill(7);
        writer.advance(2);
        writer.rewind(5);
        writer.publish();
        drop(writer);
        assert_eq!(region.writer().unwrap().position(), 5);
    }

    #[test]
    fn pages_mapped_for_reading_hold_what_was_written_and_the_writer_goes_on_behind_them() {
        let file = tempfile::tempfile().unwrap();
        let len = 16 * rustix::param::page_size();
        file.set_len(len as u64).unwrap();
        let region = Region::new(map_file(&file, len).unwrap(), 0);
        let mut writer = region.writer().unwrap();
        let mut write = |byte: u8| {
            writer.next(len / 2 - 1).unwrap().fill(byte);
            writer.advance(len / 2 - 1);
            writer.publish();
        };
        write(7);
        let held = region.slice(0..len / 2 - 1).unwrap();
        region.map_for_reading(0..len / 2 - 1).unwrap();
        write(8);
        region.map_for_reading(0..len).unwrap();
        assert!(held.iter().all(|byte| *byte == 7));
        let (first, second) = region.bytes(0..len - 2).unwrap().split_at(len / 2 - 1);
        assert!(first.iter().all(|byte| *byte == 7) && second.iter().all(|byte| *byte == 8));
    }

    #[test]
    fn a_slice_outlives_the_handle_and_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, vec![7; 8192]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let region = Region::new(map_file(&file, 8192).unwrap(), 8192);
        region.populate(0..8192, Populate::ForWriting).unwrap();
        let slice = region.slice(4000..4200).unwrap();
        region.release(0..8192);
        std::fs::remove_file(&path).unwrap();
        drop((region, file));
        assert_eq!(&slice[..], &[7; 200]);
    }
}
