//! A table kept in a file of `config/` (broker spec 16): written when its content has changed, one writer at a time.

use std::path::{Path, PathBuf};

use minimq_common::atomic_file::{self, AtomicFileError};
use parking_lot::Mutex;

/// One file, with what was written to it last.
#[derive(Debug)]
pub(crate) struct SavedFile {
    path: PathBuf,
    written: Mutex<Vec<u8>>,
}

impl SavedFile {
    pub(crate) fn new(root: &Path, name: &str) -> Self {
        Self {
            path: root.join("config").join(name),
            written: Mutex::default(),
        }
    }

    /// Reads it, or its backup when it is damaged. `None` when there is none.
    pub(crate) fn read<V, E: std::fmt::Display>(
        &self,
        parse: impl FnMut(&[u8]) -> Result<V, E>,
    ) -> Result<Option<V>, AtomicFileError> {
        let read = atomic_file::read_with_fallback(&self.path, parse)?;
        Ok(read.map(|read| {
            if read.origin != atomic_file::Origin::Main {
                tracing::warn!(path = %self.path.display(), "the file was damaged or missing, its backup is used");
            }
            read.value
        }))
    }

    /// Writes what `content` makes, unless it is what is there. `content` is asked under the file's lock, so that
    /// an older state never replaces a newer one.
    pub(crate) fn write(&self, content: impl FnOnce() -> Vec<u8>) -> Result<(), AtomicFileError> {
        let mut written = self.written.lock();
        let bytes = content();
        if *written != bytes {
            atomic_file::write_with_backup(&self.path, &bytes)?;
            *written = bytes;
        }
        Ok(())
    }

    /// Keeps others from writing.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.written.lock()
    }

    /// As [`SavedFile::write`]; a failure is logged.
    pub(crate) fn write_or_log(&self, content: impl FnOnce() -> Vec<u8>) {
        if let Err(error) = self.write(content) {
            tracing::error!(%error, "cannot save");
        }
    }
}
