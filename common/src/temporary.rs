//! A temporary folder for servers of this process: it goes also while their last tasks still write into it.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

/// How often its removal is tried, and how long between two tries.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// A folder below the system's folder for temporary files; removed with all that is in it when dropped.
#[derive(Debug)]
pub struct TemporaryFolder(TempDir);

impl TemporaryFolder {
    /// Makes one.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn new() -> std::io::Result<Self> {
        tempfile::Builder::new()
            .prefix("minimq-")
            .tempdir()
            .map(Self)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // A server that was dropped and not stopped may be writing a file: the folder is not empty again, or is
        // there again. After that nothing comes any more.
        for _ in 0..TRIES {
            let _ = std::fs::remove_dir_all(self.path());
            std::thread::sleep(PAUSE);
            if !self.path().exists() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_though_somebody_still_writes() {
        let folder = TemporaryFolder::new().unwrap();
        let path = folder.path().to_owned();
        let writer = std::thread::spawn({
            let path = path.join("inner");
            move || {
                for n in 0..200 {
                    let _ = std::fs::create_dir(&path);
                    let _ = std::fs::write(path.join(n.to_string()), "x");
                }
            }
        });
        drop(folder);
        writer.join().unwrap();
        assert!(!path.exists());
    }
}
