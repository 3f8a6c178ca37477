//! The disk as the store sees it: files, folders, and mapped regions. Two of them exist: [`RealDisk`], and
//! [`SimulatedDisk`], whose power can be cut so that the real append and recovery code is tested against it.
//!
//! What a disk promises: bytes written are kept once [`DiskFile::sync_data`] returned, and only then; a file's name is
//! kept once [`Disk::sync_folder`] returned. Between the two anything may happen to the 512-byte sectors written.

mod real;
mod simulated;

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

pub use real::RealDisk;
pub(crate) use real::is_in_use;
pub use simulated::{Operation, SimulatedDisk};

use crate::region::Region;

/// Zeros are written in pieces of this many bytes, which stay in the processor's caches.
pub(crate) const ZEROS_LEN: usize = 64 * 1024;

/// Writes zeros to a range, [`ZEROS_LEN`] bytes at a time.
///
/// # Errors
/// The system's.
pub(crate) fn write_zeros(file: &dyn DiskFile, offset: u64, len: u64) -> io::Result<()> {
    static ZEROS: [u8; ZEROS_LEN] = [0; ZEROS_LEN];
    let end = offset.saturating_add(len);
    let mut at = offset;
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        let piece = ZEROS.get(..left).unwrap_or(&ZEROS);
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// Name without path.
    pub name: String,
    /// Length of a file, 0 for a folder.
    pub len: u64,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// Space of the file system that holds a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All bytes.
    pub total: u64,
    /// Bytes free for root.
    pub free: u64,
    /// Bytes free for everyone.
    pub usable: u64,
}

/// A tree of folders and files.
pub trait Disk: Debug + Send + Sync {
    /// Opens an existing file for reading and writing. `NotFound` if there is none.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates a file, or opens and keeps the one that is there. The folder must exist.
    ///
    /// # Errors
    /// The system's.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Entries of a folder in ascending order of their names; nothing if there is no such folder.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>>;

    /// Whether a file or folder is there.
    fn exists(&self, path: &Path) -> bool;

    /// Makes a folder and those above it.
    ///
    /// # Errors
    /// The system's.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Removes a file's name; its bytes live on while it is open. Nothing there is no error.
    ///
    /// # Errors
    /// The system's.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder. Nothing there is no error.
    ///
    /// # Errors
    /// The system's.
    fn remove_folder(&self, folder: &Path) -> io::Result<()>;

    /// Gives a file another name, replacing what had it.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes everything durable that was written to the file system of `folder`, names included.
    ///
    /// # Errors
    /// The system's.
    fn sync_all(&self, folder: &Path) -> io::Result<()>;

    /// Space of the file system of `path`.
    ///
    /// # Errors
    /// The system's.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// Takes the exclusive lock of a store: the byte range a 4.9.8 broker locks too. `WouldBlock` if someone has it. The
    /// lock goes with the returned value.
    ///
    /// # Errors
    /// The system's.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>>;
}

/// One open file. All offsets are absolute; no position is kept.
#[allow(
    clippy::len_without_is_empty,
    reason = "a length that has to be asked for, and may fail"
)]
pub trait DiskFile: Debug + Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> io::Result<u64>;

    /// Cuts or extends (with a hole).
    ///
    /// # Errors
    /// The system's.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves blocks for a range, extending the file; bytes that were not written read as zeros. A full disk is an
    /// error here, and never later in this range.
    ///
    /// # Errors
    /// The system's.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes a range read as zeros, keeping its blocks reserved and the length.
    ///
    /// # Errors
    /// The system's.
    fn zero(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Reads at most `buffer.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// The system's, `EIO` among them.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Like [`DiskFile::read_at`], but only what needs no waiting for the disk: `WouldBlock` if nothing does.
    ///
    /// # Errors
    /// The system's.
    fn read_at_nowait(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// The system's.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes what was written, and the length, durable (fdatasync).
    ///
    /// # Errors
    /// The system's. After one nothing is known about what is on disk.
    fn sync_data(&self) -> io::Result<()>;

    /// When it was last written to.
    ///
    /// # Errors
    /// The system's.
    fn modified(&self) -> io::Result<SystemTime>;

    /// The whole file as memory, of which the first `published` bytes are final. A file is mapped at most once at a time.
    ///
    /// # Errors
    /// The system's.
    fn map(&self, published: usize) -> io::Result<Arc<Region>>;
}
