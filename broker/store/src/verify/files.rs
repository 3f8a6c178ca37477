//! Which files a store has, how large they are, and how they are read: for reading only, and short ones as if zeros
//! followed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::ReaderOptions;
use crate::commit_log::file::LogFile;
use crate::error::StoreError;
use crate::index::infer_geometry;
use crate::io::DiskFile;
use crate::region::Region;

pub(super) use crate::io::is_in_use;

/// Length of an index file with RocketMQ's defaults, and those.
const DEFAULT_INDEX: (u64, (u32, u32)) = (420_000_040, (5_000_000, 20_000_000));
/// Longer index files than this are not searched for their sizes.
const SEARCHED_INDEX: u64 = 256 << 20;

/// Sizes of a store's files; `None` where there is no file, or where it cannot be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSizes {
    /// `mappedFileSizeCommitLog`.
    pub commit_log_file: Option<u64>,
    /// `mappedFileSizeConsumeQueue`, in bytes.
    pub queue_file: Option<u64>,
    /// `mappedFileSizeConsumeQueueExt`.
    pub ext_file: Option<u64>,
    /// `maxHashSlotNum` and `maxIndexNum`.
    pub index: Option<(u32, u32)>,
}

/// Start, length and path of each file of one address space, ascending.
pub(super) type Files = Vec<(i64, u64, PathBuf)>;

/// All files.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) sizes: StoreSizes,
    pub(super) log: Arc<Vec<Arc<LogFile>>>,
    /// Files that are shorter than their size: path, length, size.
    pub(super) short: Vec<(PathBuf, u64, u64)>,
    pub(super) queues: BTreeMap<(String, i32), Files>,
    pub(super) ext: BTreeMap<(String, i32), Files>,
    pub(super) index: Vec<PathBuf>,
}

impl Layout {
    /// Topics that have a folder, but no queue in it.
    pub(super) fn topics_without_queues(&self, root: &Path) -> Vec<String> {
        let folders = fs::read_dir(root.join("consumequeue"))
            .into_iter()
            .flatten();
        let topics = folders.flatten().filter(|entry| entry.path().is_dir());
        topics
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|topic| !self.queues.keys().any(|(other, _)| other == topic))
            .collect()
    }

    pub(super) fn of(root: &Path, options: &ReaderOptions) -> Result<Self, StoreError> {
        let folders = match options.commit_log_folders.as_slice() {
            [] => vec![root.join("commitlog")],
            folders => folders.to_vec(),
        };
        let mut log_files = Files::new();
        for folder in &folders {
            log_files.extend(files_of(folder)?);
        }
        log_files.sort();
        let queues = queue_files(&root.join("consumequeue"))?;
        let ext = queue_files(&root.join("consumequeue_ext"))?;
        let longest = |files: &mut dyn Iterator<Item = &(i64, u64, PathBuf)>| {
            files.map(|(_, len, _)| *len).max().filter(|len| *len > 0)
        };
        let given = &options.sizes;
        let mut sizes = StoreSizes {
            commit_log_file: given
                .commit_log_file
                .or_else(|| longest(&mut log_files.iter())),
            queue_file: given
                .queue_file
                .or_else(|| longest(&mut queues.values().flatten())),
            ext_file: given
                .ext_file
                .or_else(|| longest(&mut ext.values().flatten())),
            index: given.index,
        };
        let index = index_files(&root.join("index"))?;
        if sizes.index.is_none() {
            sizes.index = index.iter().find_map(|path| index_sizes(path));
        }
        let mut short = Vec::new();
        for (files, size, key) in [
            (&log_files, sizes.commit_log_file, "mappedFileSizeCommitLog"),
            (
                &queues.values().flatten().cloned().collect(),
                sizes.queue_file,
                "mappedFileSizeConsumeQueue",
            ),
            (
                &ext.values().flatten().cloned().collect(),
                sizes.ext_file,
                "mappedFileSizeConsumeQueueExt",
            ),
        ] {
            check(files, size, key, &mut short)?;
        }
        let size = sizes.commit_log_file.unwrap_or(0);
        let log = log_files
            .into_iter()
            .map(|(start, _, path)| {
                let file = ReadOnly::open(&path, size)?;
                Ok(Arc::new(LogFile::new(
                    start,
                    size as i64,
                    path,
                    Arc::new(file),
                )))
            })
            .collect::<Result<_, StoreError>>()?;
        Ok(Self {
            sizes,
            log: Arc::new(log),
            short,
            queues,
            ext,
            index,
        })
    }
}

/// Refuses files that do not stand where a file of `size` can, and notes those that are shorter.
fn check(
    files: &Files,
    size: Option<u64>,
    key: &'static str,
    short: &mut Vec<(PathBuf, u64, u64)>,
) -> Result<(), StoreError> {
    let Some(size) = size else {
        return Ok(());
    };
    for (start, len, path) in files {
        if *len > size || !start.unsigned_abs().is_multiple_of(size) {
            return Err(StoreError::FileSize {
                path: path.clone(),
                len: *len,
                expected: size,
                key,
            });
        }
        if *len < size {
            short.push((path.clone(), *len, size));
        }
    }
    Ok(())
}

/// Entries of a folder; none if there is no such folder.
fn list(folder: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries
            .and_then(Iterator::collect)
            .map_err(|e| StoreError::io(folder, "list", e)),
    }
}

/// Files named after the address they begin at.
fn files_of(folder: &Path) -> Result<Files, StoreError> {
    let mut files = Files::new();
    for entry in list(folder)? {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_name = name.len() >= 20 && name.bytes().all(|byte| byte.is_ascii_digit());
        let metadata =
            fs::metadata(entry.path()).map_err(|e| StoreError::io(entry.path(), "stat", e))?;
        if let (true, true, Ok(start)) = (is_name, metadata.is_file(), name.parse()) {
            files.push((start, metadata.len(), entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

/// Files of each queue of each topic.
fn queue_files(folder: &Path) -> Result<BTreeMap<(String, i32), Files>, StoreError> {
    let mut queues = BTreeMap::new();
    for topic in list(folder)?.into_iter().filter(|e| e.path().is_dir()) {
        for queue in list(&topic.path())? {
            if let Ok(queue_id) = queue.file_name().to_string_lossy().parse() {
                let name = topic.file_name().to_string_lossy().into_owned();
                queues.insert((name, queue_id), files_of(&queue.path())?);
            }
        }
    }
    Ok(queues)
}

fn index_files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let is_name = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut paths: Vec<_> = list(folder)?
        .into_iter()
        .filter(is_name)
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    Ok(paths)
}

fn index_sizes(path: &Path) -> Option<(u32, u32)> {
    let len = fs::metadata(path).ok()?.len();
    if len == DEFAULT_INDEX.0 {
        return Some(DEFAULT_INDEX.1);
    }
    (len <= SEARCHED_INDEX)
        .then(|| infer_geometry(&fs::read(path).ok()?))
        .flatten()
}

/// Reads `len` bytes at `at`, fewer at the end of the file.
pub(super) fn read_at(path: &Path, at: u64, len: usize) -> Result<Vec<u8>, StoreError> {
    let file = ReadOnly::open(path, u64::MAX)?;
    let mut bytes = vec![0; len];
    let read = file
        .read_there_is(&mut bytes, at)
        .map_err(|e| StoreError::io(path, "read", e))?;
    bytes.truncate(read);
    Ok(bytes)
}

/// A file opened for reading, as if it had a given length.
#[derive(Debug)]
pub(super) struct ReadOnly {
    file: File,
    len: u64,
}

impl ReadOnly {
    pub(super) fn open(path: &Path, len: u64) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(|e| StoreError::io(path, "open", e))?;
        Ok(Self { file, len })
    }

    /// As much as the file really has.
    fn read_there_is(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::PermissionDenied.into())
}

impl DiskFile for ReadOnly {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn zero(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = usize::try_from(self.len.saturating_sub(offset))
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let buffer = buffer.get_mut(..wanted).unwrap_or_default();
        let read = self.read_there_is(buffer, offset)?;
        buffer.get_mut(read..).unwrap_or_default().fill(0);
        Ok(wanted)
    }

    fn read_at_nowait(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    fn write_all_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        refused()
    }

    fn sync_data(&self) -> io::Result<()> {
        refused()
    }

    fn modified(&self) -> io::Result<SystemTime> {
        self.file.metadata()?.modified()
    }

    fn map(&self, _published: usize) -> io::Result<Arc<Region>> {
        refused()
    }
}
