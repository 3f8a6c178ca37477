//! The disk of the machine.

use std::any::Any;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Flock, FlockType};

use super::{Disk, DiskFile, FolderEntry, Space, write_zeros};
use crate::region::{Region, map_file};

/// The file systems of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(
            File::options().read(true).write(true).open(path)?,
        )))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?,
        )))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut list = Vec::new();
        for entry in entries {
            let entry = entry?;
            let metadata = fs::metadata(entry.path())?;
            list.push(FolderEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                len: if metadata.is_dir() { 0 } else { metadata.len() },
                is_folder: metadata.is_dir(),
            });
        }
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        ignore_missing(fs::remove_file(path))
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        ignore_missing(fs::remove_dir(folder))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn sync_all(&self, folder: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(folder)?)?)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Space {
            total: bytes(stat.f_blocks),
            free: bytes(stat.f_bfree),
            usable: bytes(stat.f_bavail),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        // A record lock belongs to the process and is lost when the process closes *any* descriptor of the file. So
        // a second store of this process must be kept away before it opens the file.
        let folder = path
            .parent()
            .map_or_else(|| Ok(PathBuf::from(".")), fs::canonicalize)?;
        let name = folder.join(path.file_name().unwrap_or_default());
        let name = OpenHere::claim(name)?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN | Errno::ACCESS) => return Err(io::ErrorKind::WouldBlock.into()),
            result => result?,
        }
        file.write_all(b"lock")?;
        file.set_len(4)?;
        file.sync_data()?;
        Ok(Box::new((file, name)))
    }
}

/// Whether a broker, in this process or another, has the store with this `lock` file open. Changes nothing.
pub(crate) fn is_in_use(lock: &Path) -> io::Result<bool> {
    // Closing any descriptor of it would end a lock that this process has.
    if OpenHere::has(lock) {
        return Ok(true);
    }
    let file = match File::open(lock) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let wanted = Flock::from(FlockType::WriteLock);
    Ok(rustix::process::fcntl_getlk(&file, &wanted)?.is_some())
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Lock files that this process has open.
static OPEN_HERE: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);

struct OpenHere(PathBuf);

impl OpenHere {
    fn has(path: &Path) -> bool {
        let folder = path
            .parent()
            .and_then(|folder| fs::canonicalize(folder).ok());
        let name = folder
            .unwrap_or_default()
            .join(path.file_name().unwrap_or_default());
        OPEN_HERE.lock().get_or_insert_default().contains(&name)
    }

    fn claim(path: PathBuf) -> io::Result<Self> {
        if OPEN_HERE
            .lock()
            .get_or_insert_default()
            .insert(path.clone())
        {
            Ok(Self(path))
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }
}

impl Drop for OpenHere {
    fn drop(&mut self) {
        OPEN_HERE.lock().get_or_insert_default().remove(&self.0);
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), offset, len) {
            // The file system cannot reserve: writing zeros behind the end does.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let end = offset.saturating_add(len);
                let from = self.len()?.max(offset);
                if from < end {
                    write_zeros(self, from, end - from)
                } else {
                    Ok(())
                }
            }
            result => Ok(result?),
        }
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(
            &self.0,
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            offset,
            len,
        ) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(self, offset, len),
            result => Ok(result?),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_at_nowait(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match rustix::io::preadv2(
            &self.0,
            &mut [IoSliceMut::new(buffer)],
            offset,
            ReadWriteFlags::NOWAIT,
        ) {
            // Not every file system can tell; what cannot is read where waiting is allowed.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            result => Ok(result?),
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn modified(&self) -> io::Result<SystemTime> {
        self.0.metadata()?.modified()
    }

    fn map(&self, published: usize) -> io::Result<Arc<Region>> {
        let len = usize::try_from(self.len()?)
            .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        Ok(Region::new(map_file(&self.0, len)?, published))
    }
}
