//! State files that survive a crash or power cut at any moment (broker spec 16): the new content
//! is synced under `NAME.tmp`, the old one becomes `NAME.bak`, then one rename puts the new one in
//! place. `NAME` itself is never missing in between, and readers fall back to `NAME.bak`.
//!
//! What the files hold is their owners' business; a parser is passed in where it matters.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// Why a state file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum AtomicFileError {
    /// A step failed in the file system.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// What was tried, as in "sync".
        step: &'static str,
        /// The file or folder it was tried on.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Neither the file nor its backup can be understood.
    #[error(
        "{} cannot be read ({main}), and its backup {} neither ({backup}); repair one of them, or move both away to start empty",
        path.display(), backup_path(path).display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        main: String,
        /// What is wrong with its backup.
        backup: String,
    },
}

/// Which of the two files was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The file itself.
    Main,
    /// The backup; the text says what is wrong with the file. Worth a warning in the log.
    Backup(String),
}

/// Content with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read<V> {
    /// What the parser made of the content.
    pub value: V,
    /// Where it came from.
    pub origin: Origin,
}

/// `NAME.bak` of `NAME`.
#[must_use]
pub fn backup_path(path: &Path) -> PathBuf {
    with_suffix(path, ".bak")
}

/// Replaces `path` by `content`; what it held before becomes `NAME.bak`. Folders are created.
/// When this returns, the content is on the disk. A new file is readable by all (0644 less the
/// umask), an existing one keeps its mode; a symbolic link stays, its target is replaced.
///
/// # Errors
/// [`AtomicFileError::Io`]; the old content is still in place then.
pub fn write_with_backup(path: &Path, content: &[u8]) -> Result<(), AtomicFileError> {
    write(path, content, 0o644)
}

/// [`write_with_backup`] for files with secrets: a new file is readable by its owner only.
///
/// # Errors
/// As [`write_with_backup`].
pub fn write_private_with_backup(path: &Path, content: &[u8]) -> Result<(), AtomicFileError> {
    write(path, content, 0o600)
}

/// Reads `path` by `parse`. When it is missing, empty or refused by `parse`, `NAME.bak` is read
/// instead, and a refused `NAME` is moved to `NAME.broken` so that the next write does not turn it
/// into the backup. `None`: both are missing or empty.
///
/// # Errors
/// [`AtomicFileError::Damaged`] when there is content and none of it parses;
/// [`AtomicFileError::Io`] for anything but "not found".
pub fn read_with_fallback<V, E: fmt::Display>(
    path: &Path,
    mut parse: impl FnMut(&[u8]) -> Result<V, E>,
) -> Result<Option<Read<V>>, AtomicFileError> {
    let main = match read_if_any(path)? {
        Some(content) => match parse(&content) {
            Ok(value) => {
                return Ok(Some(Read {
                    value,
                    origin: Origin::Main,
                }));
            }
            Err(error) => Some(error.to_string()),
        },
        None => None,
    };
    let backup = backup_path(path);
    match (read_if_any(&backup)?, main) {
        (None, None) => Ok(None),
        (None, Some(main)) => Err(AtomicFileError::Damaged {
            path: path.into(),
            main,
            backup: "missing or empty".into(),
        }),
        (Some(content), main) => match parse(&content) {
            Ok(value) => {
                if main.is_some() {
                    rename(path, &with_suffix(path, ".broken"))?;
                }
                let reason = main.unwrap_or_else(|| "missing or empty".into());
                Ok(Some(Read {
                    value,
                    origin: Origin::Backup(reason),
                }))
            }
            Err(error) => Err(AtomicFileError::Damaged {
                path: path.into(),
                main: main.unwrap_or_else(|| "missing or empty".into()),
                backup: error.to_string(),
            }),
        },
    }
}

fn write(path: &Path, content: &[u8], new_mode: u32) -> Result<(), AtomicFileError> {
    let target = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => {
            fs::canonicalize(path).map_err(io_error("resolve", path))?
        }
        _ => path.to_path_buf(),
    };
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(io_error("create the folder", folder))?;

    let _one_writer = lock_of(&target).lock();
    let old = match fs::metadata(&target) {
        Ok(meta) => Some(meta),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error("look at", &target)(error)),
    };
    let mode = old.as_ref().map_or(new_mode, |meta| meta.mode() & 0o7777);

    let temporary = with_suffix(&target, ".tmp");
    write_temporary(&temporary, content, mode, old.is_some())?;
    if old.is_some_and(|meta| meta.len() > 0) {
        keep_backup(&target)?;
    }
    rename(&temporary, &target)?;
    // The renames are only on the disk once the folder is.
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(io_error("sync the folder", folder))
}

fn write_temporary(
    path: &Path,
    content: &[u8],
    mode: u32,
    exact_mode: bool,
) -> Result<(), AtomicFileError> {
    // A left-over of a crash may have another mode, so it goes first.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("remove", path)(error));
        }
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(io_error("create", path))?;
    if exact_mode {
        file.set_permissions(fs::Permissions::from_mode(mode))
            .map_err(io_error("set the mode of", path))?;
    }
    file.write_all(content).map_err(io_error("write", path))?;
    file.sync_all().map_err(io_error("sync", path))
}

/// Makes the content of `target` that of `NAME.bak` without ever taking `target` away.
fn keep_backup(target: &Path) -> Result<(), AtomicFileError> {
    let backup = backup_path(target);
    let step = with_suffix(&backup, ".tmp");
    let _ = fs::remove_file(&step);
    if fs::hard_link(target, &step).is_err() {
        // A file system without hard links.
        fs::copy(target, &step).map_err(io_error("copy to", &step))?;
        File::open(&step)
            .and_then(|file| file.sync_all())
            .map_err(io_error("sync", &step))?;
    }
    rename(&step, &backup)?;
    // Renaming between two links to one file does nothing and leaves the first.
    let _ = fs::remove_file(&step);
    Ok(())
}

fn read_if_any(path: &Path) -> Result<Option<Vec<u8>>, AtomicFileError> {
    match fs::read(path) {
        Ok(content) if content.is_empty() => Ok(None),
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", path)(error)),
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), AtomicFileError> {
    fs::rename(from, to).map_err(io_error("rename", from))
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AtomicFileError {
    let path = path.to_path_buf();
    move |source| AtomicFileError::Io { step, path, source }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Two threads that write one file would share its temporary name; files rarely share a lock.
fn lock_of(path: &Path) -> &'static Mutex<()> {
    static LOCKS: [Mutex<()>; 16] = [const { Mutex::new(()) }; 16];
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let index = usize::try_from(hasher.finish() % LOCKS.len() as u64).unwrap_or(0);
    &LOCKS[index]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::{TempDir, tempdir};

    fn folder() -> (TempDir, PathBuf) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("state").join("topics.json");
        (folder, path)
    }

    /// Content that starts with `{` and ends with `}` counts as whole.
    fn whole(content: &[u8]) -> Result<String, String> {
        let text = String::from_utf8_lossy(content).into_owned();
        if text.starts_with('{') && text.ends_with('}') {
            Ok(text)
        } else {
            Err(format!("not whole: {text}"))
        }
    }

    fn read(path: &Path) -> Read<String> {
        read_with_fallback(path, whole).unwrap().unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn each_write_keeps_the_content_before_it_as_backup() {
        let (_folder, path) = folder();
        write_with_backup(&path, b"{1}").unwrap();
        assert_eq!(names(&path), ["topics.json"]);
        write_with_backup(&path, b"{2}").unwrap();
        write_with_backup(&path, b"{3}").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{3}");
        assert_eq!(fs::read(backup_path(&path)).unwrap(), b"{2}");
        assert_eq!(names(&path), ["topics.json", "topics.json.bak"]);
        assert_eq!(
            read(&path),
            Read {
                value: "{3}".into(),
                origin: Origin::Main
            }
        );
    }

    #[test]
    fn nothing_written_yet_is_not_an_error() {
        let (_folder, path) = folder();
        assert_eq!(read_with_fallback(&path, whole).unwrap(), None);
        write_with_backup(&path, b"").unwrap();
        assert_eq!(read_with_fallback(&path, whole).unwrap(), None);
    }

    #[test]
    fn a_crash_while_the_temporary_file_is_written_changes_nothing() {
        let (_folder, path) = folder();
        write_with_backup(&path, b"{1}").unwrap();
        fs::write(with_suffix(&path, ".tmp"), b"{2").unwrap();
        assert_eq!(read(&path).value, "{1}");
        write_with_backup(&path, b"{3}").unwrap();
        assert_eq!(read(&path).value, "{3}");
        assert_eq!(names(&path), ["topics.json", "topics.json.bak"]);
    }

    #[test]
    fn a_crash_between_backup_and_rename_leaves_the_old_content() {
        let (_folder, path) = folder();
        write_with_backup(&path, b"{1}").unwrap();
        fs::hard_link(&path, backup_path(&path)).unwrap();
        fs::hard_link(&path, with_suffix(&path, ".bak.tmp")).unwrap();
        fs::write(with_suffix(&path, ".tmp"), b"{2}").unwrap();
        assert_eq!(read(&path).value, "{1}");
        write_with_backup(&path, b"{3}").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{3}");
        assert_eq!(fs::read(backup_path(&path)).unwrap(), b"{1}");
        assert_eq!(names(&path), ["topics.json", "topics.json.bak"]);
    }

    #[test]
    fn a_missing_or_empty_file_is_read_from_its_backup() {
        let (_folder, path) = folder();
        write_with_backup(&path, b"{1}").unwrap();
        write_with_backup(&path, b"{2}").unwrap();
        fs::remove_file(&path).unwrap();
        let expected = Read {
            value: "{1}".to_owned(),
            origin: Origin::Backup("missing or empty".into()),
        };
        assert_eq!(read(&path), expected);
        fs::write(&path, b"").unwrap();
        assert_eq!(read(&path), expected);
        // The empty file does not become the backup.
        write_with_backup(&path, b"{3}").unwrap();
        assert_eq!(fs::read(backup_path(&path)).unwrap(), b"{1}");
    }

    #[test]
    fn a_torn_file_is_moved_aside_and_never_replaces_the_good_backup() {
        let (_folder, path) = folder();
        write_with_backup(&path, b"{1}").unwrap();
        write_with_backup(&path, b"{2}").unwrap();
        fs::write(&path, b"{2").unwrap();
        assert_eq!(
            read(&path),
            Read {
                value: "{1}".into(),
                origin: Origin::Backup("not whole: {2".into())
            }
        );
        assert_eq!(names(&path), ["topics.json.bak", "topics.json.broken"]);
        write_with_backup(&path, b"{3}").unwrap();
        assert_eq!(fs::read(backup_path(&path)).unwrap(), b"{1}");
        assert_eq!(read(&path).value, "{3}");
    }

    #[test]
    fn two_damaged_files_are_an_error_that_names_both() {
        let (_folder, path) = folder();
        write_with_backup(&path, b"{1").unwrap();
        let message = read_with_fallback(&path, whole).unwrap_err().to_string();
        assert!(
            message.contains("topics.json cannot be read (not whole: {1)"),
            "{message}"
        );
        fs::write(backup_path(&path), b"{0").unwrap();
        let message = read_with_fallback(&path, whole).unwrap_err().to_string();
        assert!(
            message.contains("topics.json.bak neither (not whole: {0)"),
            "{message}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"{1", "evidence stays in place");
    }

    #[test]
    fn modes_stay_and_private_files_start_private() {
        let (_folder, path) = folder();
        write_private_with_backup(&path, b"{1}").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        write_private_with_backup(&path, b"{2}").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
    }

    #[test]
    fn a_symbolic_link_stays_one() {
        let (folder, path) = folder();
        write_with_backup(&path, b"{1}").unwrap();
        let link = folder.path().join("link.json");
        symlink(&path, &link).unwrap();
        write_with_backup(&link, b"{2}").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"{2}");
    }

    #[test]
    fn errors_name_step_and_path() {
        let (folder, _) = folder();
        let blocked = folder.path().join("file");
        fs::write(&blocked, b"x").unwrap();
        let message = write_with_backup(&blocked.join("topics.json"), b"{}")
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("cannot create the folder") && message.contains("/file"),
            "{message}"
        );
    }

    #[test]
    fn writers_of_one_file_do_not_mix() {
        let (_folder, path) = folder();
        std::thread::scope(|scope| {
            for n in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..10 {
                        write_with_backup(
                            path,
                            format!("{{{}}}", n.to_string().repeat(5000)).as_bytes(),
                        )
                        .unwrap();
                    }
                });
            }
        });
        for file in [path.clone(), backup_path(&path)] {
            let text = whole(&fs::read(file).unwrap()).unwrap();
            assert_eq!(text.len(), 5002);
            assert_eq!(
                text[1..5001]
                    .chars()
                    .collect::<std::collections::HashSet<_>>()
                    .len(),
                1
            );
        }
    }
}
