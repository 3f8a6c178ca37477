//! The files behind the rules: which there are, what they held when last read, and how requests
//! change them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::file::{AccountUpdate, DataVersion, Document, FileText};
use super::rules::{Rules, check_item, check_length};
use super::{AddressList, Permission};
use crate::atomic_file::{AtomicFileError, write_private_with_backup};
use crate::clock::Clock;

/// Folders below the folder of files, at most.
const MAX_DEPTH: usize = 8;

/// Why files could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum AclFileError {
    /// A file or folder could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// File or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file could not be written.
    #[error(transparent)]
    NotWritten(#[from] AtomicFileError),
    /// A file is not YAML of the right form, or an account in it is wrong.
    #[error("{0}")]
    Wrong(String),
    /// A change is wrong, or would make the rules wrong.
    #[error("{0}")]
    Refused(String),
    /// There is no such account.
    #[error("there is no account `{0}`")]
    NoAccount(String),
    /// The file is not one of those in force.
    #[error("{} is not an access-control file in force", .0.display())]
    NoFile(PathBuf),
}

/// A file in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    /// The file.
    pub path: PathBuf,
    /// Its data version; the time it was read and 0 unless a request has changed it.
    pub version: DataVersion,
}

/// What a look at the files found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    /// Nothing has changed.
    Unchanged,
    /// New rules are in force.
    Reloaded,
    /// Something has changed that cannot be used; the rules of before are in force.
    Kept,
}

pub(super) struct Files {
    default_file: PathBuf,
    folder: Option<PathBuf>,
    loaded: Vec<Loaded>,
    /// Faults that were logged already, by file, with what the file looked like.
    complained: HashMap<PathBuf, Option<Stamp>>,
    fault: Option<String>,
    clock: Clock,
}

#[derive(Clone)]
struct Loaded {
    path: PathBuf,
    stamp: Option<Stamp>,
    content: Vec<u8>,
    text: FileText,
    read_at_ms: i64,
}

/// What changes whenever a file does. The change time also moves when a copy brings an old
/// modification time along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        Ok(Self {
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

impl Files {
    pub(super) fn open(
        default_file: PathBuf,
        folder: Option<PathBuf>,
        clock: Clock,
    ) -> Result<(Self, Rules), AclFileError> {
        if !default_file.exists() {
            tracing::warn!(
                "creating {} without accounts: only white-listed addresses pass",
                default_file.display()
            );
            write_private_with_backup(&default_file, b"")?;
        }
        let mut files = Self {
            default_file,
            folder,
            loaded: Vec::new(),
            complained: HashMap::new(),
            fault: None,
            clock,
        };
        for path in files.paths()? {
            let loaded = files.read(&path)?;
            if loaded.text == FileText::default() {
                tracing::warn!("{} is empty", path.display());
            }
            files.loaded.push(loaded);
        }
        let rules = files.rules(&files.loaded).map_err(AclFileError::Wrong)?;
        Ok((files, rules))
    }

    /// Looks at all files; new rules, if any, are for the caller to put in force.
    pub(super) fn poll(&mut self) -> (Poll, Option<Rules>) {
        let paths = match self.paths() {
            Ok(paths) => paths,
            Err(error) => {
                let folder = self.folder.clone().unwrap_or_default();
                self.complain(&folder, None, error.to_string());
                return (Poll::Kept, None);
            }
        };
        self.fault = None;
        let mut candidate = Vec::with_capacity(paths.len());
        let mut kept = false;
        for path in paths {
            let old = self
                .loaded
                .iter()
                .find(|loaded| loaded.path == path)
                .cloned();
            let stamp = Stamp::of(&path).ok();
            if let Some(old) = &old
                && stamp.is_some()
                && old.stamp == stamp
            {
                candidate.push(old.clone());
                continue;
            }
            match self.read_usable(&path, old.as_ref()) {
                Ok(new) => {
                    self.complained.remove(&path);
                    candidate.push(new);
                }
                Err(fault) => {
                    kept = true;
                    self.complain(&path, stamp, fault);
                    candidate.extend(old);
                }
            }
        }
        let key = |loaded: &Loaded| (loaded.path.clone(), loaded.content.clone());
        let changed = candidate.iter().map(key).ne(self.loaded.iter().map(key));
        // Also without new content: stamps are new.
        self.loaded = candidate;
        if !changed {
            return (if kept { Poll::Kept } else { Poll::Unchanged }, None);
        }
        match self.rules(&self.loaded) {
            Ok(rules) => {
                tracing::info!(
                    accounts = rules.accounts.len(),
                    "access control: new rules are in force"
                );
                (if kept { Poll::Kept } else { Poll::Reloaded }, Some(rules))
            }
            // Each file is right by itself, and files cannot contradict each other.
            Err(fault) => {
                let path = self.default_file.clone();
                self.complain(&path, None, fault);
                (Poll::Kept, None)
            }
        }
    }

    /// What the last look could not use.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    pub(super) fn update_account(&mut self, update: &AccountUpdate) -> Result<Rules, AclFileError> {
        let refused = AclFileError::Refused;
        check_length("accessKey", &update.access_key).map_err(refused)?;
        if let Some(secret) = &update.secret_key {
            check_length("secretKey", &secret.0).map_err(refused)?;
        }
        AddressList::parse(update.white_remote_address.as_deref().unwrap_or_default())
            .map_err(|error| refused(format!("whiteRemoteAddress: {error}")))?;
        for (field, value) in [
            ("defaultTopicPerm", &update.default_topic_perm),
            ("defaultGroupPerm", &update.default_group_perm),
        ] {
            match value.as_deref() {
                None | Some("") => {}
                Some(text) if Permission::parse(text).is_some() => {}
                Some(text) => {
                    return Err(refused(format!(
                        "{field}={text} is wrong: expected DENY, PUB, SUB or PUB|SUB"
                    )));
                }
            }
        }
        for (field, items) in [
            ("topicPerms", &update.topic_perms),
            ("groupPerms", &update.group_perms),
        ] {
            for item in items.iter().flatten() {
                check_item(item).map_err(|error| refused(format!("{field}: {error}")))?;
            }
        }
        let place = self.files_with(&update.access_key).next();
        if place.is_none() && update.secret_key.is_none() {
            return Err(refused("a new account needs a secretKey".into()));
        }
        let place = place.or_else(|| self.place(&self.default_file));
        self.change(place, |document| document.put_account(update))
    }

    /// Takes the account out of every file, the one that counts last: a second entry must not come
    /// into force by this.
    pub(super) fn delete_account(&mut self, access_key: &str) -> Result<Rules, AclFileError> {
        let mut places: Vec<usize> = self.files_with(access_key).collect();
        let first = (!places.is_empty()).then(|| places.remove(0));
        let first = first.ok_or_else(|| AclFileError::NoAccount(access_key.to_owned()))?;
        for place in places.into_iter().rev() {
            self.change(Some(place), |document| document.remove_account(access_key))?;
        }
        self.change(Some(first), |document| document.remove_account(access_key))
    }

    pub(super) fn update_white_list(
        &mut self,
        addresses: &[String],
        file: Option<&str>,
    ) -> Result<Rules, AclFileError> {
        for address in addresses {
            AddressList::parse(address)
                .map_err(|error| AclFileError::Refused(error.to_string()))?;
        }
        let path = match file.map(str::trim) {
            None | Some("") => self.default_file.clone(),
            Some(path) => PathBuf::from(path),
        };
        let place = self.place(&path).ok_or(AclFileError::NoFile(path))?;
        self.change(Some(place), |document| document.set_white_list(addresses))
    }

    pub(super) fn versions(&self) -> Vec<FileVersion> {
        let fresh = |loaded: &Loaded| DataVersion {
            timestamp: loaded.read_at_ms,
            counter: 0,
        };
        self.loaded
            .iter()
            .map(|loaded| FileVersion {
                path: loaded.path.clone(),
                version: loaded.text.data_version().unwrap_or_else(|| fresh(loaded)),
            })
            .collect()
    }

    /// Changes one file; the result must be rules, else nothing is written.
    fn change(
        &mut self,
        place: Option<usize>,
        change: impl FnOnce(&mut Document),
    ) -> Result<Rules, AclFileError> {
        let missing = || AclFileError::NoFile(self.default_file.clone());
        let mut candidate = self.loaded.clone();
        let loaded = place
            .and_then(|place| candidate.get_mut(place))
            .ok_or_else(missing)?;
        let mut document = Document::parse(&loaded.content).map_err(AclFileError::Refused)?;
        change(&mut document);
        loaded.content = document
            .into_bytes(self.clock.now_ms())
            .map_err(AclFileError::Refused)?;
        loaded.text = FileText::parse(&loaded.content)
            .map_err(AclFileError::Refused)?
            .unwrap_or_default();
        let (path, content) = (loaded.path.clone(), loaded.content.clone());
        let rules = self.rules(&candidate).map_err(AclFileError::Refused)?;
        write_private_with_backup(&path, &content)?;
        if let Some(loaded) = candidate.iter_mut().find(|loaded| loaded.path == path) {
            loaded.stamp = Stamp::of(&path).ok();
        }
        self.loaded = candidate;
        Ok(rules)
    }

    /// The default file, then those of the folder in the order of their names.
    fn paths(&self) -> Result<Vec<PathBuf>, AclFileError> {
        let mut paths = Vec::new();
        if let Some(folder) = &self.folder
            && folder.is_dir()
        {
            collect(folder, MAX_DEPTH, &mut paths)?;
        }
        paths.sort();
        paths.retain(|path| *path != self.default_file);
        paths.insert(0, self.default_file.clone());
        Ok(paths)
    }

    fn read(&self, path: &Path) -> Result<Loaded, AclFileError> {
        let unreadable = |source| AclFileError::Unreadable {
            path: path.into(),
            source,
        };
        let stamp = Stamp::of(path).map_err(unreadable)?;
        let content = fs::read(path).map_err(unreadable)?;
        let text = FileText::parse(&content)
            .map_err(|error| AclFileError::Wrong(format!("{}: {error}", path.display())))?
            .unwrap_or_default();
        Ok(Loaded {
            path: path.into(),
            stamp: Some(stamp),
            content,
            text,
            read_at_ms: self.clock.now_ms(),
        })
    }

    /// Reads a changed file for taking over.
    fn read_usable(&self, path: &Path, old: Option<&Loaded>) -> Result<Loaded, String> {
        let new = self.read(path).map_err(|error| error.to_string())?;
        if Stamp::of(path).ok() != new.stamp {
            return Err(format!("{} is being written right now", path.display()));
        }
        let had_something = old.is_some_and(|old| old.text != FileText::default());
        if had_something && new.text == FileText::default() {
            return Err(format!("{} became empty", path.display()));
        }
        Rules::of([(path, &new.text)], |_| {})?;
        Ok(new)
    }

    fn rules<'a>(&self, files: impl IntoIterator<Item = &'a Loaded>) -> Result<Rules, String> {
        let files = files
            .into_iter()
            .map(|loaded| (loaded.path.as_path(), &loaded.text));
        Rules::of(files, |warning| tracing::warn!("access control: {warning}"))
    }

    /// Logs a fault once for each state of the file.
    fn complain(&mut self, path: &Path, stamp: Option<Stamp>, fault: String) {
        if self.complained.get(path) != Some(&stamp) {
            tracing::error!("access control: the rules of before stay in force: {fault}");
            self.complained.insert(path.into(), stamp);
        }
        self.fault = Some(fault);
    }

    fn files_with<'a>(&'a self, access_key: &'a str) -> impl Iterator<Item = usize> + 'a {
        let has_it = move |loaded: &Loaded| {
            loaded
                .text
                .accounts()
                .iter()
                .any(|account| account.access_key.as_deref() == Some(access_key))
        };
        (0..self.loaded.len()).filter(move |&place| self.loaded.get(place).is_some_and(has_it))
    }

    fn place(&self, path: &Path) -> Option<usize> {
        let wanted = fs::canonicalize(path).ok()?;
        self.loaded
            .iter()
            .position(|loaded| fs::canonicalize(&loaded.path).is_ok_and(|known| known == wanted))
    }
}

fn collect(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> Result<(), AclFileError> {
    let unreadable = |source| AclFileError::Unreadable {
        path: folder.into(),
        source,
    };
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            if depth > 0 {
                collect(&path, depth - 1, paths)?;
            }
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yml" || extension == "yaml")
        {
            paths.push(path);
        }
    }
    Ok(())
}
