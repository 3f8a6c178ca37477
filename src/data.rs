//! Where a cluster keeps its files: a folder of its own, or a temporary one.

use std::path::{Path, PathBuf};

use minimq_common::temporary::TemporaryFolder;

/// Below this a cluster does not start, bytes.
const LEAST_FREE: u64 = 512 * 1024 * 1024;
/// A file that says the folder is one of ours.
const MARK: &str = "minimq-data";

/// Which folder a cluster uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// A temporary one, removed at the end.
    Temporary,
    /// This one, made if it is missing.
    Folder(PathBuf),
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// It holds something else.
    #[error("{0} is not empty and holds no mini-MQ data: name another folder with --data")]
    Foreign(PathBuf),
    /// It cannot be made or read.
    #[error("cannot use the data folder {path}: {source}")]
    Io {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The disk is nearly full.
    #[error("{path} has {free} MiB free, a cluster needs {least}: free space, or name another folder (--data, key storePathRootDir)", free = .free / 1024 / 1024, least = LEAST_FREE / 1024 / 1024)]
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// Bytes free.
        free: u64,
    },
}

/// A folder in use.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    _temporary: Option<TemporaryFolder>,
}

impl DataFolder {
    pub(crate) fn open(data: &Data) -> Result<Self, DataError> {
        let folder = match data {
            Data::Folder(path) => {
                let path = std::path::absolute(path).map_err(|source| io(path, source))?;
                Self {
                    path,
                    _temporary: None,
                }
            }
            Data::Temporary => {
                let temporary = TemporaryFolder::new();
                let temporary = temporary.map_err(|source| io(&std::env::temp_dir(), source))?;
                Self {
                    path: temporary.path().to_owned(),
                    _temporary: Some(temporary),
                }
            }
        };
        folder.claim()?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn claim(&self) -> Result<(), DataError> {
        let path = &self.path;
        std::fs::create_dir_all(path).map_err(|source| io(path, source))?;
        let mark = path.join(MARK);
        if !mark.exists() {
            let mut entries = std::fs::read_dir(path).map_err(|source| io(path, source))?;
            if entries.next().is_some() {
                return Err(DataError::Foreign(path.clone()));
            }
            std::fs::write(&mark, "1\n").map_err(|source| io(&mark, source))?;
        }
        let disk = rustix::fs::statvfs(path).map_err(|error| io(path, error.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < LEAST_FREE {
            return Err(DataError::NoSpace {
                path: path.clone(),
                free,
            });
        }
        Ok(())
    }
}

fn io(path: &Path, source: std::io::Error) -> DataError {
    DataError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_ours_is_used_again_and_a_foreign_one_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let own = Data::Folder(outer.path().join("own"));
        drop(DataFolder::open(&own).unwrap());
        assert!(DataFolder::open(&own).is_ok());
        std::fs::write(outer.path().join("own/file"), "x").unwrap();
        assert!(DataFolder::open(&own).is_ok());
        let foreign = Data::Folder(outer.path().to_owned());
        assert!(matches!(
            DataFolder::open(&foreign),
            Err(DataError::Foreign(_))
        ));
    }

    #[test]
    fn a_temporary_folder_is_gone_when_dropped() {
        let folder = DataFolder::open(&Data::Temporary).unwrap();
        let path = folder.path().to_owned();
        assert!(path.exists());
        drop(folder);
        assert!(!path.exists());
    }
}
