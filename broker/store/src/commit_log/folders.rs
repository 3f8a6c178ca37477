//! In which folder which file of the log lies (store spec 1.2, 1.5), and reading them all in at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::LogFile;
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::io::{Disk, Space};

/// Above this much use of its disk, in percent, a folder gets no new file as long as another one can take it.
const AVOID_ABOVE_PERCENT: u64 = 85;

/// The folders of the log.
#[derive(Clone, Debug)]
pub(crate) struct LogFolders {
    writable: Vec<PathBuf>,
    read_only: Vec<PathBuf>,
}

impl LogFolders {
    pub(crate) fn of(config: &StoreConfig) -> Self {
        let read_only = config.read_only_commit_log_store_paths.clone();
        let mut writable = config.commit_log_paths();
        writable.retain(|path| !read_only.contains(path));
        writable.sort();
        writable.dedup();
        Self {
            writable,
            read_only,
        }
    }

    /// Folders that take new files.
    pub(crate) fn writable(&self) -> &[PathBuf] {
        &self.writable
    }

    /// Where a new file goes: its number modulo the folders that are not nearly full; all folders if each is.
    pub(crate) fn for_new(&self, disk: &dyn Disk, base: i64, size: i64) -> Option<PathBuf> {
        let has_room = |path: &&PathBuf| {
            disk.space(path)
                .is_ok_and(|space| used_percent(space) <= AVOID_ABOVE_PERCENT)
        };
        let roomy: Vec<_> = match self.writable.as_slice() {
            [only] => vec![only],
            all => all.iter().filter(has_room).collect(),
        };
        let folders = if roomy.is_empty() {
            self.writable.iter().collect()
        } else {
            roomy
        };
        let index = usize::try_from(base / size)
            .unwrap_or(0)
            .checked_rem(folders.len())?;
        folders
            .get(index)
            .map(|folder| folder.join(file_name(base)))
    }

    /// All files there are, ascending. A file shorter than its size, as a crash leaves one that was just made, is
    /// extended with zeros and named in `extended`.
    pub(crate) fn load(
        &self,
        disk: &dyn Disk,
        size: i64,
        extended: &mut Vec<PathBuf>,
    ) -> Result<Vec<Arc<LogFile>>, StoreError> {
        let mut found = Vec::new();
        for folder in self.writable.iter().chain(&self.read_only) {
            for entry in disk
                .list(folder)
                .map_err(|error| StoreError::io(folder, "list", error))?
            {
                let path = folder.join(&entry.name);
                match base_of(&entry.name) {
                    Some(base) if !entry.is_folder => found.push((base, entry.len, path)),
                    _ => {
                        tracing::warn!(path = %path.display(), "not a file of the commit log: left alone")
                    }
                }
            }
        }
        found.sort();
        check(&found, size)?;
        found
            .into_iter()
            .map(|(base, len, path)| {
                let file = disk.open(&path).map_err(|error| StoreError::io(&path, "open", error))?;
                if len < size as u64 {
                    tracing::warn!(path = %path.display(), len, size, "commit-log file is short: extended with zeros");
                    file.set_len(size as u64).map_err(|error| StoreError::io(&path, "extend", error))?;
                    file.allocate(0, size as u64).map_err(|error| StoreError::io(&path, "allocate", error))?;
                    extended.push(path.clone());
                }
                Ok(Arc::new(LogFile::new(base, size, path, file)))
            })
            .collect()
    }
}

/// Refuses files that another size setting made, and two files for one place.
fn check(found: &[(i64, u64, PathBuf)], size: i64) -> Result<(), StoreError> {
    let mut previous: Option<(i64, u64)> = None;
    for (base, len, path) in found {
        let next_to_previous =
            previous.is_some_and(|(at, len)| len < size as u64 && at + len as i64 == *base);
        if *len > size as u64 || base % size != 0 || next_to_previous {
            let key = "mappedFileSizeCommitLog";
            return Err(StoreError::FileSize {
                path: path.clone(),
                len: *len,
                expected: size as u64,
                key,
            });
        }
        if previous.is_some_and(|(at, _)| at == *base) {
            return Err(StoreError::StrayFile {
                path: path.clone(),
                reason: "another folder has a file of this name",
            });
        }
        previous = Some((*base, *len));
    }
    Ok(())
}

/// Percent of a disk in use, rounded up (store spec 7.3).
pub(crate) fn used_percent(space: Space) -> u64 {
    let used = space.total.saturating_sub(space.free);
    let all = used.saturating_add(space.usable);
    if all == 0 {
        0
    } else {
        used.saturating_mul(100).div_ceil(all)
    }
}

/// Name of the file that starts at `base`: at least 20 digits.
pub(crate) fn file_name(base: i64) -> String {
    format!("{base:020}")
}

fn base_of(name: &str) -> Option<i64> {
    let digits = name.len() >= 20 && name.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| name.parse().ok()).flatten()
}

/// Makes a file of zeros of the full size, durable under its name.
pub(crate) fn create(
    disk: &dyn Disk,
    path: &Path,
    base: i64,
    size: i64,
) -> Result<LogFile, StoreError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let file = disk
        .create(path)
        .map_err(|error| StoreError::io(path, "create", error))?;
    let made = (|| {
        file.set_len(0)
            .map_err(|error| StoreError::io(path, "empty", error))?;
        // Trying would take what room there is for a moment, and queues and index could not be written just then.
        if disk
            .space(folder)
            .is_ok_and(|space| space.total > 0 && space.free < size as u64)
        {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(StoreError::io(path, "allocate", full));
        }
        file.allocate(0, size as u64)
            .map_err(|error| StoreError::io(path, "allocate", error))?;
        file.sync_data()
            .map_err(|error| StoreError::io(path, "sync", error))?;
        disk.sync_folder(folder)
            .map_err(|error| StoreError::io(folder, "sync", error))
    })();
    if let Err(error) = made {
        // A file half made would only keep the space that is missing.
        let _ = file.set_len(0);
        let _ = disk.remove_file(path);
        return Err(error);
    }
    Ok(LogFile::new(base, size, path.to_owned(), file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SimulatedDisk;

    fn folders(paths: &[&str], read_only: &[&str]) -> LogFolders {
        let mut config = StoreConfig::new("/s");
        config.store_path_commit_log = paths.iter().map(PathBuf::from).collect();
        config.read_only_commit_log_store_paths = read_only.iter().map(PathBuf::from).collect();
        LogFolders::of(&config)
    }

    #[test]
    fn files_go_round_the_writable_folders_in_the_order_of_their_names() {
        let disk = SimulatedDisk::new();
        let folders = folders(&["/c", "/a", "/b"], &["/b"]);
        let place = |base| folders.for_new(&disk, base, 100).unwrap();
        assert_eq!(place(0), Path::new("/a/00000000000000000000"));
        assert_eq!(place(100), Path::new("/c/00000000000000000100"));
        assert_eq!(place(200), Path::new("/a/00000000000000000200"));
    }

    #[test]
    fn files_of_all_folders_are_loaded_in_the_order_of_their_offsets() {
        let disk = SimulatedDisk::new();
        for (path, len) in [
            ("/b/00000000000000000000", 1024),
            ("/a/00000000000000001024", 1024),
        ] {
            disk.put(Path::new(path), vec![0; len]);
        }
        let files = folders(&["/a"], &["/b"])
            .load(&disk, 1024, &mut Vec::new())
            .unwrap();
        assert_eq!(
            files.iter().map(|file| file.base).collect::<Vec<_>>(),
            [0, 1024]
        );
    }

    #[test]
    fn a_short_file_is_extended_with_zeros() {
        let disk = SimulatedDisk::new();
        let path = Path::new("/a/00000000000000000000");
        disk.put(path, vec![7; 300]);
        let mut extended = Vec::new();
        folders(&["/a"], &[])
            .load(&disk, 1024, &mut extended)
            .unwrap();
        assert_eq!(extended, [path]);
        let content = disk.content(path).unwrap();
        assert_eq!(
            (content.len(), &content[..300], &content[300..]),
            (1024, &[7; 300][..], &[0; 724][..])
        );
    }

    #[test]
    fn files_made_with_another_size_are_refused_and_left_as_they_are() {
        for (name, len) in [
            ("00000000000000000000", 2048),
            ("00000000000000000512", 512),
        ] {
            let disk = SimulatedDisk::new();
            let path = Path::new("/a").join(name);
            disk.put(&path, vec![0; len]);
            let error = folders(&["/a"], &[])
                .load(&disk, 1024, &mut Vec::new())
                .unwrap_err();
            assert!(matches!(error, StoreError::FileSize { .. }), "{error}");
            assert_eq!(disk.content(&path).unwrap().len(), len);
        }
    }

    #[test]
    fn no_file_is_tried_for_which_the_disk_has_no_room() {
        let disk = SimulatedDisk::new();
        let path = Path::new("/a/00000000000000000000");
        disk.create_folder(Path::new("/a")).unwrap();
        disk.set_capacity(Some(1023));
        let error = create(&disk, path, 0, 1024).unwrap_err().to_string();
        assert!(error.contains("allocate"), "{error}");
        assert_eq!((disk.refused(), disk.paths().len()), (0, 0));
        disk.set_capacity(Some(1024));
        create(&disk, path, 0, 1024).unwrap();
    }

    #[test]
    fn use_of_a_disk_is_rounded_up_to_whole_percent() {
        assert_eq!(
            used_percent(Space {
                total: 1000,
                free: 499,
                usable: 499
            }),
            51
        );
        assert_eq!(
            used_percent(Space {
                total: 1000,
                free: 500,
                usable: 0
            }),
            100
        );
        assert_eq!(used_percent(Space::default()), 0);
    }
}
