//! A log file that starts anew at a size: `PREFIX.log` is the newest, `PREFIX.1.log` the one
//! before, and so on. (The rolling files of `tracing-appender` know dates only.)

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub(super) struct BySize {
    folder: PathBuf,
    prefix: String,
    max_size: u64,
    max_files: usize,
    file: File,
    size: u64,
}

impl BySize {
    /// Goes on with the newest file that is there.
    pub(super) fn open(
        folder: &Path,
        prefix: &str,
        max_size: u64,
        max_files: usize,
    ) -> io::Result<Self> {
        let file = append_to(&path_of(folder, prefix, 0))?;
        let size = file.metadata()?.len();
        Ok(Self {
            folder: folder.into(),
            prefix: prefix.into(),
            max_size,
            max_files: max_files.max(1),
            file,
            size,
        })
    }

    fn roll(&mut self) -> io::Result<()> {
        let path = |number| path_of(&self.folder, &self.prefix, number);
        if self.max_files == 1 {
            fs::remove_file(path(0))?;
        }
        for number in (0..self.max_files - 1).rev() {
            match fs::rename(path(number), path(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.file = append_to(&path(0))?;
        self.size = 0;
        Ok(())
    }
}

impl Write for BySize {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = line.len() as u64;
        if self.size > 0 && self.size + length > self.max_size {
            // A file that cannot be renamed grows on: a long log is better than none.
            if self.roll().is_err() {
                self.size = 0;
            }
        }
        self.file.write_all(line)?;
        self.size += length;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn path_of(folder: &Path, prefix: &str, number: usize) -> PathBuf {
    match number {
        0 => folder.join(format!("{prefix}.log")),
        _ => folder.join(format!("{prefix}.{number}.log")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    fn files(folder: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| {
                (
                    e.file_name().into_string().unwrap(),
                    fs::read_to_string(e.path()).unwrap(),
                )
            })
            .collect();
        files.sort();
        files
    }

    fn pair(name: &str, text: &str) -> (String, String) {
        (name.into(), text.into())
    }

    #[test]
    fn a_full_file_makes_room_and_the_oldest_goes() {
        let folder = tempdir().unwrap();
        let mut log = BySize::open(folder.path(), "x", 10, 3).unwrap();
        for line in [
            "1111\n", "2222\n", "3333\n", "4444\n", "5555\n", "6666\n", "7777\n",
        ] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(
            files(folder.path()),
            [
                pair("x.1.log", "5555\n6666\n"),
                pair("x.2.log", "3333\n4444\n"),
                pair("x.log", "7777\n")
            ]
        );
    }

    #[test]
    fn a_restart_goes_on_with_the_newest_file() {
        let folder = tempdir().unwrap();
        BySize::open(folder.path(), "x", 10, 1)
            .unwrap()
            .write_all(b"1111\n")
            .unwrap();
        let mut log = BySize::open(folder.path(), "x", 10, 1).unwrap();
        log.write_all(b"2222\n").unwrap();
        assert_eq!(files(folder.path()), [pair("x.log", "1111\n2222\n")]);
        log.write_all(b"a line longer than a file\n").unwrap();
        assert_eq!(
            files(folder.path()),
            [pair("x.log", "a line longer than a file\n")]
        );
    }
}
