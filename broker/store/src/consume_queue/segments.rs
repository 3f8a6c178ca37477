//! An address space cut into files of one length, named by the address of their first byte (store spec 1.2):
//! what a consume queue and its extension have in common. Files are created at full length but sparse, and used
//! through the shared set of open files.
//!
//! Not here: what the bytes mean.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::open_files::{FileId, OpenFiles};
use super::{Blocking, ReadError};
use crate::error::StoreError;
use crate::io::{Disk, DiskFile};

/// Name of the file that begins at `start`.
pub(crate) fn file_name(start: i64) -> String {
    format!("{start:020}")
}

/// What all address spaces of a store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) open_files: OpenFiles,
}

/// The files of one queue (or of its extension).
#[derive(Debug)]
pub(crate) struct Segments {
    folder: PathBuf,
    file_len: i64,
    /// Setting that says `file_len`.
    key: &'static str,
    owner: u64,
    shared: Arc<Shared>,
    /// Whether a file was created, or one at either end deleted, and the folder may not say so on disk yet.
    new_names: AtomicBool,
    /// Held shared while a file is opened and put among the open ones, alone while one is deleted: else a reader could
    /// leave the descriptor of a deleted file there, and what is written to a new file of that name would go to the old.
    names: RwLock<()>,
}

impl Segments {
    /// Touches nothing on disk.
    pub(crate) fn new(
        folder: PathBuf,
        file_len: i64,
        key: &'static str,
        shared: &Arc<Shared>,
    ) -> Self {
        Self {
            folder,
            file_len,
            key,
            owner: shared.open_files.new_owner(),
            shared: Arc::clone(shared),
            new_names: AtomicBool::new(false),
            names: RwLock::new(()),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn file_len(&self) -> i64 {
        self.file_len
    }

    /// Start of the file that holds `address`.
    pub(crate) fn start_of(&self, address: i64) -> i64 {
        address - address % self.file_len
    }

    fn path(&self, start: i64) -> PathBuf {
        self.folder.join(file_name(start))
    }

    fn error(&self, operation: &'static str, start: i64, source: io::Error) -> StoreError {
        StoreError::io(self.path(start), operation, source)
    }

    fn folder_error(&self, operation: &'static str, source: io::Error) -> StoreError {
        StoreError::io(&self.folder, operation, source)
    }

    /// Starts of the files on disk, ascending. Names that are no addresses of this space are left alone.
    pub(crate) fn list(&self) -> Result<Vec<i64>, StoreError> {
        Ok(self.listed()?.into_iter().map(|(start, _)| start).collect())
    }

    /// Starts and lengths.
    fn listed(&self) -> Result<Vec<(i64, u64)>, StoreError> {
        let entries = self
            .shared
            .disk
            .list(&self.folder)
            .map_err(|e| self.folder_error("list", e))?;
        let mut files = Vec::with_capacity(entries.len());
        for entry in entries {
            let start = Some(&entry.name)
                .filter(|n| n.len() >= 20 && !entry.is_folder)
                .and_then(|n| n.parse::<i64>().ok());
            match start.filter(|s| *s >= 0) {
                Some(start) => files.push((start, entry.len)),
                None => {
                    tracing::warn!(folder = %self.folder.display(), name = entry.name, "not a queue file, left alone")
                }
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    /// As [`Segments::list`], after the store was stopped: with their lengths checked. A file the process died over while
    /// it made or cut it is shorter; it gets its length if that can be (`repair`: the stop was unclean). Any other wrong
    /// length is an error, as the size setting does not fit the store.
    pub(crate) fn load(&self, repair: bool) -> Result<Vec<i64>, StoreError> {
        let files = self.listed()?;
        let len = self.file_len as u64;
        for (start, found) in &files {
            let short = *found == 0 || (repair && *found < len);
            if (*found != len && !short) || start % self.file_len != 0 {
                return Err(StoreError::FileSize {
                    path: self.path(*start),
                    len: *found,
                    expected: len,
                    key: self.key,
                });
            }
        }
        for (start, _) in files.iter().filter(|(_, found)| *found != len) {
            self.open_or_create(*start)?;
        }
        Ok(files.into_iter().map(|(start, _)| start).collect())
    }

    fn id(&self, start: i64) -> FileId {
        FileId {
            owner: self.owner,
            start,
        }
    }

    fn keep(&self, start: i64, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        self.shared
            .open_files
            .insert(self.id(start), Arc::clone(&file));
        file
    }

    /// The file that begins at `start`, `None` if there is none.
    fn open(&self, start: i64) -> Result<Option<Arc<dyn DiskFile>>, StoreError> {
        if let Some(file) = self.shared.open_files.get(self.id(start)) {
            return Ok(Some(file));
        }
        let _names = self.names.read();
        match self.shared.disk.open(&self.path(start)) {
            Ok(file) => Ok(Some(self.keep(start, file))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.error("open", start, e)),
        }
    }

    fn open_or_create(&self, start: i64) -> Result<Arc<dyn DiskFile>, StoreError> {
        if let Some(file) = self.shared.open_files.get(self.id(start)) {
            return Ok(file);
        }
        let _names = self.names.read();
        let disk = &self.shared.disk;
        let path = self.path(start);
        if !disk.exists(&path) {
            self.new_names.store(true, Ordering::Release);
            disk.create_folder(&self.folder)
                .map_err(|e| self.folder_error("create", e))?;
        }
        let file = disk.create(&path).and_then(|file| {
            if file.len()? < self.file_len as u64 {
                file.set_len(self.file_len as u64)?;
            }
            Ok(file)
        });
        Ok(self.keep(start, file.map_err(|e| self.error("create", start, e))?))
    }

    /// Writes `bytes` at `address`, creating files as needed, across as many files as it takes.
    pub(crate) fn write(&self, mut address: i64, mut bytes: &[u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let start = self.start_of(address);
            let room = (start + self.file_len - address) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.open_or_create(start)?
                .write_all_at(now, (address - start) as u64)
                .map_err(|e| self.error("write", start, e))?;
            address += now.len() as i64;
            bytes = later;
        }
        Ok(())
    }

    /// Reads from `address` to the end of `buffer` or of the file, whichever comes first. Returns the bytes read: 0
    /// if no file holds the address. With `Blocking::Refused` a file that is not open yet is `WouldBlock`, since
    /// opening may read the disk.
    pub(crate) fn read(
        &self,
        address: i64,
        buffer: &mut [u8],
        blocking: Blocking,
    ) -> Result<usize, ReadError> {
        let start = self.start_of(address);
        let file = match blocking {
            Blocking::Allowed => self.open(start)?,
            Blocking::Refused => Some(
                self.shared
                    .open_files
                    .get(self.id(start))
                    .ok_or(ReadError::WouldBlock)?,
            ),
        };
        let Some(file) = file else {
            return Ok(0);
        };
        let room = (start + self.file_len - address) as usize;
        let wanted = room.min(buffer.len());
        let at = (address - start) as u64;
        read_fully(&*file, &mut buffer[..wanted], at, blocking).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => ReadError::WouldBlock,
            _ => self.error("read", start, e).into(),
        })?;
        Ok(wanted)
    }

    /// Makes everything from `from` on read as zeros: cuts the file that holds `from`, which stays even if nothing
    /// in it is left, and deletes the later ones.
    pub(crate) fn erase_from(&self, from: i64) -> Result<(), StoreError> {
        let first = self.start_of(from);
        for start in self.list()?.into_iter().rev().take_while(|s| *s > first) {
            self.delete(start)?;
            self.new_names.store(true, Ordering::Release);
        }
        let Some(file) = self.open(first)? else {
            return Ok(());
        };
        file.set_len((from - first) as u64)
            .and_then(|()| file.set_len(self.file_len as u64))
            .map_err(|e| self.error("erase the end of", first, e))
    }

    /// Deletes the file that begins at `start`; readers that hold it go on.
    pub(crate) fn delete(&self, start: i64) -> Result<(), StoreError> {
        let _names = self.names.write();
        self.shared.open_files.forget(self.id(start));
        self.shared
            .disk
            .remove_file(&self.path(start))
            .map_err(|e| self.error("delete", start, e))
    }

    /// Deletes the files that begin below `address`.
    pub(crate) fn delete_below(&self, address: i64) -> Result<(), StoreError> {
        for start in self.list()?.into_iter().take_while(|s| *s < address) {
            self.delete(start)?;
            self.new_names.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Deletes all files and the folder.
    pub(crate) fn delete_all(&self) -> Result<(), StoreError> {
        for start in self.list()? {
            self.delete(start)?;
        }
        self.shared
            .disk
            .remove_folder(&self.folder)
            .map_err(|e| self.folder_error("delete", e))
    }

    /// Brings what was written in `[from, to)`, and the files' names, to disk.
    pub(crate) fn sync(&self, from: i64, to: i64) -> Result<(), StoreError> {
        let mut start = self.start_of(from);
        while start < to {
            // No file is no error: it was cleaned meanwhile.
            if let Some(file) = self.open(start)? {
                file.sync_data()
                    .map_err(|e| self.error("flush", start, e))?;
            }
            start += self.file_len;
        }
        if self.new_names.swap(false, Ordering::AcqRel) {
            self.sync_names()
                .inspect_err(|_| self.new_names.store(true, Ordering::Release))?;
        }
        Ok(())
    }

    /// The folder's names, and those of the two folders above (topic, all topics), which may be new as well.
    fn sync_names(&self) -> Result<(), StoreError> {
        for folder in self.folder.ancestors().take(3) {
            self.shared
                .disk
                .sync_folder(folder)
                .map_err(|e| StoreError::io(folder, "flush", e))?;
        }
        Ok(())
    }
}

/// Fills `buffer`; with `Blocking::Refused` from the page cache only.
fn read_fully(
    file: &dyn DiskFile,
    buffer: &mut [u8],
    at: u64,
    blocking: Blocking,
) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        let n = match blocking {
            Blocking::Allowed => file.read_at(rest, at + done as u64)?,
            Blocking::Refused => file.read_at_nowait(rest, at + done as u64)?,
        };
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        done += n;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::RealDisk;

    fn segments(folder: &Path) -> Segments {
        let shared = Shared {
            disk: Arc::new(RealDisk),
            open_files: OpenFiles::new(2),
        };
        Segments::new(
            folder.join("queues/topic/0"),
            100,
            "mappedFileSizeConsumeQueue",
            &Arc::new(shared),
        )
    }

    #[test]
    fn writes_cross_files_and_read_back_and_reads_stop_at_the_end_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let s = segments(folder.path());
        let bytes: Vec<u8> = (0..250).collect();
        s.write(60, &bytes).unwrap();
        assert_eq!(s.list().unwrap(), [0, 100, 200, 300]);
        let mut read = [0xff; 250];
        assert_eq!(s.read(60, &mut read, Blocking::Allowed).unwrap(), 40);
        assert_eq!(read[..40], bytes[..40]);
        assert_eq!(s.read(200, &mut read, Blocking::Allowed).unwrap(), 100);
        assert_eq!(read[..100], bytes[140..240]);
        assert_eq!(
            s.read(400, &mut read, Blocking::Allowed).unwrap(),
            0,
            "no such file"
        );
        s.sync(60, 310).unwrap();
    }

    #[test]
    fn a_read_that_must_not_block_says_so_when_the_file_is_not_open() {
        let folder = tempfile::tempdir().unwrap();
        segments(folder.path()).write(0, b"abc").unwrap();
        let s = segments(folder.path());
        let mut read = [0; 3];
        assert!(matches!(
            s.read(0, &mut read, Blocking::Refused),
            Err(ReadError::WouldBlock)
        ));
        assert_eq!(s.read(0, &mut read, Blocking::Allowed).unwrap(), 3);
        match s.read(0, &mut read, Blocking::Refused) {
            Ok(n) => assert_eq!((n, &read), (3, b"abc")),
            Err(e) => assert!(
                matches!(e, ReadError::WouldBlock),
                "a file system without RWF_NOWAIT"
            ),
        }
    }

    #[test]
    fn erasing_zeros_the_rest_of_a_file_and_deletes_the_later_ones() {
        let folder = tempfile::tempdir().unwrap();
        let s = segments(folder.path());
        s.write(0, &[7; 300]).unwrap();
        s.erase_from(140).unwrap();
        assert_eq!(s.list().unwrap(), [0, 100]);
        let mut read = [1; 100];
        s.read(100, &mut read, Blocking::Allowed).unwrap();
        assert_eq!(read[..40], [7; 40]);
        assert_eq!(read[40..], [0; 60]);
        s.erase_from(0).unwrap();
        assert_eq!(
            s.list().unwrap(),
            [0],
            "the file that holds the position stays"
        );
    }

    #[test]
    fn a_file_of_another_length_is_refused_by_name_and_an_empty_one_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let s = segments(folder.path());
        std::fs::create_dir_all(s.folder()).unwrap();
        std::fs::write(s.folder().join("notes.txt"), "x").unwrap();
        std::fs::write(s.folder().join(file_name(0)), "").unwrap();
        assert_eq!(s.load(false).unwrap(), [0]);
        assert_eq!(
            std::fs::metadata(s.folder().join(file_name(0)))
                .unwrap()
                .len(),
            100
        );
        std::fs::write(s.folder().join(file_name(100)), "short").unwrap();
        let text = s.load(false).unwrap_err().to_string();
        assert!(
            text.contains("00000000000000000100") && text.contains("5 bytes"),
            "{text}"
        );
        assert_eq!(
            s.load(true).unwrap(),
            [0, 100],
            "after an unclean stop it is completed"
        );
        assert_eq!(s.load(false).unwrap(), [0, 100]);
    }
}
