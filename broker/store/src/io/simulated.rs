//! A disk in memory whose power can be cut: each file has a live image, what programs read, and a durable one, what is
//! left after a cut. The two differ in the 512-byte sectors written since the last sync; a cut keeps any subset of them.
//!
//! Names behave as on a journalling file system: making, renaming and removing files happens in order, a cut keeps any
//! beginning of what was not yet made durable by [`Disk::sync_folder`]. A file's length becomes durable with its data.
//!
//! It can also be full, fail, hang, or lose its power in the middle of what is going on: see [`SimulatedDisk::fail`],
//! [`SimulatedDisk::set_capacity`], [`SimulatedDisk::hold_syncs`], [`SimulatedDisk::fail_power_before`]. For tests; a broker
//! never uses it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Condvar, Mutex};

use super::{Disk, DiskFile, FolderEntry, Space};
use crate::region::{HeapBytes, Region, map_heap};

/// Bytes that are written or lost as one.
const SECTOR: usize = 512;

/// What everything answers that would change a disk without power: EIO.
const NO_POWER: i32 = 5;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`DiskFile::sync_data`].
    Sync,
    /// [`DiskFile::write_all_at`] and [`DiskFile::zero`].
    Write,
    /// [`DiskFile::read_at`].
    Read,
    /// [`DiskFile::allocate`], [`DiskFile::set_len`] and [`Disk::create`].
    Allocate,
    /// [`Disk::remove_file`].
    Remove,
}

/// A cheap handle to one simulated disk; clones are the same disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct State {
    live: Names,
    durable: Names,
    /// Changes of names since the last folder sync, oldest first.
    pending: Vec<NameChange>,
    locked: BTreeSet<PathBuf>,
}

#[derive(Clone, Default)]
struct Names {
    folders: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, Arc<SimulatedFile>>,
}

#[derive(Clone)]
enum NameChange {
    AddFolder(PathBuf),
    RemoveFolder(PathBuf),
    Add(PathBuf, Arc<SimulatedFile>),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl Names {
    fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::AddFolder(path) => {
                self.folders.insert(path.clone());
            }
            NameChange::RemoveFolder(path) => {
                self.folders.remove(path);
            }
            NameChange::Add(path, file) => {
                self.files.insert(path.clone(), Arc::clone(file));
            }
            NameChange::Remove(path) => {
                self.files.remove(path);
            }
            NameChange::Rename(from, to) => {
                if let Some(file) = self.files.remove(from) {
                    self.files.insert(to.clone(), file);
                }
            }
        }
    }
}

#[derive(Default)]
struct Faults {
    rules: Mutex<FaultRules>,
    released: Condvar,
}

#[derive(Default)]
struct FaultRules {
    failing: Vec<(Operation, String, i32)>,
    holding: bool,
    held: usize,
    capacity: Option<u64>,
    used: u64,
    refused: u64,
    /// Changes that were begun.
    changes: u64,
    /// From this change on there is no power.
    powerless_from: Option<u64>,
    /// What is to be done before which change.
    before: Vec<(u64, Act)>,
}

type Act = Box<dyn FnOnce() + Send>;

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_list()
            .entries(self.state.lock().live.files.keys())
            .finish()
    }
}

impl SimulatedDisk {
    /// An empty disk without limits.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Arc::default(),
            faults: Arc::default(),
        }
    }

    /// From now on `operation` on files whose path contains `path_part` fails with the system's error `errno`.
    pub fn fail(&self, operation: Operation, path_part: &str, errno: i32) {
        self.faults
            .rules
            .lock()
            .failing
            .push((operation, path_part.into(), errno));
    }

    /// Nothing fails any more, nor is anything done before a change.
    pub fn heal(&self) {
        let mut rules = self.faults.rules.lock();
        rules.failing.clear();
        rules.powerless_from = None;
        let acts = std::mem::take(&mut rules.before);
        drop(rules);
        drop(acts);
    }

    /// The power fails before the change that `count` others come before, from now on: every operation that makes, writes,
    /// syncs, renames or removes something is one. It and all later ones change nothing and fail with EIO.
    /// [`SimulatedDisk::cut`] gives what is left.
    pub fn fail_power_before(&self, count: u64) {
        let mut rules = self.faults.rules.lock();
        rules.powerless_from = Some(rules.changes + count);
    }

    /// Whether a change came after the power had failed.
    #[must_use]
    pub fn has_power_failed(&self) -> bool {
        let rules = self.faults.rules.lock();
        rules
            .powerless_from
            .is_some_and(|from| from < rules.changes)
    }

    /// Does `act` before the change that `count` others come before, on the thread that makes it, with whatever locks that
    /// holds.
    pub fn before_change(&self, count: u64, act: impl FnOnce() + Send + 'static) {
        let mut rules = self.faults.rules.lock();
        let change = rules.changes + count;
        rules.before.push((change, Box::new(act)));
    }

    /// Bytes that may be allocated in all; a full disk answers ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.faults.rules.lock().capacity = bytes;
    }

    /// How often something asked for more room than there was.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.faults.rules.lock().refused
    }

    /// `true`: syncs hang until `false` is set.
    pub fn hold_syncs(&self, hold: bool) {
        self.faults.rules.lock().holding = hold;
        self.faults.released.notify_all();
    }

    /// Syncs that hang now.
    #[must_use]
    pub fn held_syncs(&self) -> usize {
        self.faults.rules.lock().held
    }

    /// What is left after the power failed: a new disk. `keep` is asked, in a fixed order, whether each unsynced sector,
    /// length and change of names survived. No store may be using this disk.
    #[must_use]
    pub fn cut(&self, mut keep: impl FnMut() -> bool) -> Self {
        let state = self.state.lock();
        let mut names = state.durable.clone();
        for change in &state.pending {
            if !keep() {
                break;
            }
            names.apply(change);
        }
        let after = Self::new();
        for file in names.files.values_mut() {
            let content = file.after_cut(&mut keep);
            *file = Arc::new(SimulatedFile::with(content, Arc::clone(&after.faults)));
        }
        {
            let mut state = after.state.lock();
            state.live = names.clone();
            state.durable = names;
        }
        after
    }

    /// The live content of a file.
    #[must_use]
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        Some(self.state.lock().live.files.get(path)?.live_content())
    }

    /// Puts a file there, durable at once. For damage.
    pub fn put(&self, path: &Path, content: Vec<u8>) {
        let file = Arc::new(SimulatedFile::with(content, Arc::clone(&self.faults)));
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let folders: Vec<_> = path.ancestors().skip(1).map(Path::to_owned).collect();
        for names in [&mut state.live, &mut state.durable] {
            names.folders.extend(folders.iter().cloned());
        }
        state.live.files.insert(path.to_owned(), Arc::clone(&file));
        state.durable.files.insert(path.to_owned(), file);
    }

    /// All files, in order.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state.lock().live.files.keys().cloned().collect()
    }

    fn change(state: &mut State, change: NameChange) {
        state.live.apply(&change);
        state.pending.push(change);
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self
            .state
            .lock()
            .live
            .files
            .get(path)
            .cloned()
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(OpenFile {
            path: path.to_owned(),
            file,
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.faults.check(Operation::Allocate, path)?;
        let mut state = self.state.lock();
        if let Some(file) = state.live.files.get(path) {
            return Ok(Arc::new(OpenFile {
                path: path.to_owned(),
                file: Arc::clone(file),
            }));
        }
        if !path
            .parent()
            .is_some_and(|folder| state.live.folders.contains(folder))
        {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = Arc::new(SimulatedFile::with(Vec::new(), Arc::clone(&self.faults)));
        Self::change(
            &mut state,
            NameChange::Add(path.to_owned(), Arc::clone(&file)),
        );
        Ok(Arc::new(OpenFile {
            path: path.to_owned(),
            file,
        }))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        let state = self.state.lock();
        let name = |path: &Path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        let files = state
            .live
            .files
            .iter()
            .filter(|(path, _)| path.parent() == Some(folder));
        let folders = state
            .live
            .folders
            .iter()
            .filter(|path| path.parent() == Some(folder));
        let mut list: Vec<_> = files
            .map(|(path, file)| FolderEntry {
                name: name(path),
                len: file.len() as u64,
                is_folder: false,
            })
            .chain(folders.map(|path| FolderEntry {
                name: name(path),
                len: 0,
                is_folder: true,
            }))
            .collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    fn exists(&self, path: &Path) -> bool {
        let state = self.state.lock();
        state.live.files.contains_key(path) || state.live.folders.contains(path)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.faults.change()?;
        let mut state = self.state.lock();
        let missing: Vec<_> = folder
            .ancestors()
            .filter(|path| !state.live.folders.contains(*path))
            .collect();
        for path in missing.into_iter().rev() {
            Self::change(&mut state, NameChange::AddFolder(path.to_owned()));
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.faults.check(Operation::Remove, path)?;
        let mut state = self.state.lock();
        if let Some(file) = state.live.files.get(path) {
            self.faults.give_back(file.len() as u64);
            Self::change(&mut state, NameChange::Remove(path.to_owned()));
        }
        Ok(())
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.faults.change()?;
        let mut state = self.state.lock();
        let used = state
            .live
            .files
            .keys()
            .chain(&state.live.folders)
            .any(|path| path.parent() == Some(folder));
        if used {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if state.live.folders.contains(folder) {
            Self::change(&mut state, NameChange::RemoveFolder(folder.to_owned()));
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.change()?;
        let mut state = self.state.lock();
        if !state.live.files.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Self::change(
            &mut state,
            NameChange::Rename(from.to_owned(), to.to_owned()),
        );
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.faults.check(Operation::Sync, folder)?;
        let mut state = self.state.lock();
        for change in std::mem::take(&mut state.pending) {
            state.durable.apply(&change);
        }
        Ok(())
    }

    fn sync_all(&self, folder: &Path) -> io::Result<()> {
        for path in self.paths() {
            self.open(&path)?.sync_data()?;
        }
        self.sync_folder(folder)
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        let rules = self.faults.rules.lock();
        let total = rules.capacity.unwrap_or(1 << 40);
        let free = total.saturating_sub(rules.used);
        Ok(Space {
            total,
            free,
            usable: free,
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        if !self.state.lock().locked.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimulatedLock {
            disk: self.clone(),
            path: path.to_owned(),
        }))
    }
}

struct SimulatedLock {
    disk: SimulatedDisk,
    path: PathBuf,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        self.disk.state.lock().locked.remove(&self.path);
    }
}

impl Faults {
    /// A change begins.
    fn change(&self) -> io::Result<()> {
        let mut rules = self.rules.lock();
        let change = rules.changes;
        rules.changes += 1;
        let acts: Vec<_> = rules
            .before
            .extract_if(.., |(at, _)| *at <= change)
            .collect();
        drop(rules);
        acts.into_iter().for_each(|(_, act)| act());
        match self.rules.lock().powerless_from {
            Some(from) if from <= change => Err(io::Error::from_raw_os_error(NO_POWER)),
            _ => Ok(()),
        }
    }

    fn check(&self, operation: Operation, path: &Path) -> io::Result<()> {
        if operation != Operation::Read {
            self.change()?;
        }
        let rules = self.rules.lock();
        let path = path.to_string_lossy();
        match rules
            .failing
            .iter()
            .find(|(failing, part, _)| *failing == operation && path.contains(part.as_str()))
        {
            Some((_, _, errno)) => Err(io::Error::from_raw_os_error(*errno)),
            None => Ok(()),
        }
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        let mut rules = self.rules.lock();
        if rules
            .capacity
            .is_some_and(|capacity| rules.used + bytes > capacity)
        {
            rules.refused += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        rules.used += bytes;
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        let mut rules = self.rules.lock();
        rules.used = rules.used.saturating_sub(bytes);
    }

    fn pass_sync(&self) {
        let mut rules = self.rules.lock();
        rules.held += 1;
        while rules.holding {
            self.released.wait(&mut rules);
        }
        rules.held -= 1;
    }
}

struct SimulatedFile {
    live: Mutex<Arc<HeapBytes>>,
    durable: Mutex<Vec<u8>>,
    /// Bytes from this one on belong to a region's writer; a sync leaves them.
    region: Mutex<Option<std::sync::Weak<Region>>>,
    modified: Mutex<SystemTime>,
    faults: Arc<Faults>,
}

impl SimulatedFile {
    fn with(content: Vec<u8>, faults: Arc<Faults>) -> Self {
        let live = HeapBytes::zeroed(content.len());
        live.write(&content, 0);
        Self {
            live: Mutex::new(Arc::new(live)),
            durable: Mutex::new(content),
            region: Mutex::new(None),
            modified: Mutex::new(SystemTime::now()),
            faults,
        }
    }

    fn len(&self) -> usize {
        self.live.lock().len()
    }

    /// All that may be read while a writer is at work: what its region published, or the whole file.
    fn readable(&self) -> usize {
        match self
            .region
            .lock()
            .as_ref()
            .and_then(std::sync::Weak::upgrade)
        {
            Some(region) => region.published(),
            None => usize::MAX,
        }
    }

    fn live_content(&self) -> Vec<u8> {
        let live = Arc::clone(&self.live.lock());
        let mut content = vec![0; live.len()];
        let end = self.readable().min(content.len());
        live.read(content.get_mut(..end).unwrap_or_default(), 0);
        content
    }

    fn after_cut(&self, keep: &mut dyn FnMut() -> bool) -> Vec<u8> {
        let live = Arc::clone(&self.live.lock());
        let mut written = vec![0; live.len()];
        live.read(&mut written, 0);
        let mut content = self.durable.lock().clone();
        if content.len() != written.len() && keep() {
            content.resize(written.len(), 0);
        }
        for (old, new) in content.chunks_mut(SECTOR).zip(written.chunks(SECTOR)) {
            let len = old.len().min(new.len());
            let (Some(old), Some(new)) = (old.get_mut(..len), new.get(..len)) else {
                continue;
            };
            if old != new && keep() {
                old.copy_from_slice(new);
            }
        }
        content
    }

    fn resize(&self, len: usize) -> io::Result<()> {
        let mut live = self.live.lock();
        if live.len() == len {
            return Ok(());
        }
        if len > live.len() {
            self.faults.take((len - live.len()) as u64)?;
        } else {
            self.faults.give_back((live.len() - len) as u64);
        }
        let mut content = vec![0; live.len().min(len)];
        live.read(&mut content, 0);
        let resized = HeapBytes::zeroed(len);
        resized.write(&content, 0);
        *live = Arc::new(resized);
        Ok(())
    }
}

struct OpenFile {
    path: PathBuf,
    file: Arc<SimulatedFile>,
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(formatter)
    }
}

impl OpenFile {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.faults.check(Operation::Write, &self.path)?;
        let end = offset as usize + bytes.len();
        if end > self.file.len() {
            self.file.resize(end)?;
        }
        self.file.live.lock().write(bytes, offset as usize);
        *self.file.modified.lock() = SystemTime::now();
        Ok(())
    }
}

impl DiskFile for OpenFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.faults.check(Operation::Allocate, &self.path)?;
        self.file.resize(len as usize)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.faults.check(Operation::Allocate, &self.path)?;
        self.file
            .resize(self.file.len().max((offset + len) as usize))
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let len = len.min((self.file.len() as u64).saturating_sub(offset));
        self.write(&vec![0; len as usize], offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.faults.check(Operation::Read, &self.path)?;
        Ok(self.file.live.lock().read(buffer, offset as usize))
    }

    fn read_at_nowait(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        // What was published before the call is durable after it; what a writer adds meanwhile is not.
        let published = self.file.readable();
        self.file.faults.pass_sync();
        self.file.faults.check(Operation::Sync, &self.path)?;
        let live = Arc::clone(&self.file.live.lock());
        let mut durable = self.file.durable.lock();
        durable.resize(live.len(), 0);
        let end = published.min(live.len());
        live.read(durable.get_mut(..end).unwrap_or_default(), 0);
        Ok(())
    }

    fn modified(&self) -> io::Result<SystemTime> {
        Ok(*self.file.modified.lock())
    }

    fn map(&self, published: usize) -> io::Result<Arc<Region>> {
        let region = Region::new(map_heap(Arc::clone(&self.file.live.lock())), published);
        *self.file.region.lock() = Some(Arc::downgrade(&region));
        Ok(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: &str = "/s";

    fn disk_with_synced_file(content: &[u8]) -> (SimulatedDisk, Arc<dyn DiskFile>) {
        let disk = SimulatedDisk::new();
        disk.create_folder(Path::new(FOLDER)).unwrap();
        let file = disk.create(&Path::new(FOLDER).join("f")).unwrap();
        file.write_all_at(content, 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_folder(Path::new(FOLDER)).unwrap();
        (disk, file)
    }

    fn content(disk: &SimulatedDisk) -> Option<Vec<u8>> {
        disk.content(&Path::new(FOLDER).join("f"))
    }

    #[test]
    fn a_cut_loses_what_was_not_synced_and_nothing_else() {
        let (disk, file) = disk_with_synced_file(&[1; 1024]);
        file.write_all_at(&[2; 1024], 0).unwrap();
        assert_eq!(content(&disk.cut(|| false)), Some(vec![1; 1024]));
        assert_eq!(content(&disk.cut(|| true)), Some(vec![2; 1024]));
    }

    #[test]
    fn a_cut_keeps_any_subset_of_sectors() {
        let (disk, file) = disk_with_synced_file(&[1; 1024]);
        file.write_all_at(&[2; 1024], 0).unwrap();
        let mut answers = [false, true].into_iter();
        let expected = [[1; 512], [2; 512]].concat();
        assert_eq!(
            content(&disk.cut(|| answers.next().unwrap())),
            Some(expected)
        );
    }

    #[test]
    fn a_name_is_lost_unless_its_folder_was_synced() {
        let (disk, _file) = disk_with_synced_file(b"x");
        let other = disk.create(Path::new("/s/g")).unwrap();
        other.write_all_at(b"y", 0).unwrap();
        other.sync_data().unwrap();
        disk.remove_file(Path::new("/s/f")).unwrap();
        assert_eq!(disk.cut(|| false).paths(), [PathBuf::from("/s/f")]);
        assert_eq!(disk.cut(|| true).paths(), [PathBuf::from("/s/g")]);
    }

    #[test]
    fn a_sync_saves_what_a_region_published() {
        let (disk, file) = disk_with_synced_file(&[0; 1024]);
        let mut writer = file.map(0).unwrap().writer().unwrap();
        writer.next(600).unwrap().fill(5);
        writer.advance(600);
        writer.publish();
        file.sync_data().unwrap();
        writer.next(10).unwrap().fill(6);
        writer.advance(10);
        drop(writer);
        let left = content(&disk.cut(|| false)).unwrap();
        assert_eq!(left[..600], [5; 600]);
        assert_eq!(left[600..], [0; 424]);
    }

    #[test]
    fn the_power_fails_before_a_change_and_nothing_changes_after() {
        let (disk, file) = disk_with_synced_file(&[1; 1024]);
        let told = Arc::new(Mutex::new(0));
        let teller = Arc::clone(&told);
        disk.before_change(1, move || *teller.lock() += 1);
        disk.fail_power_before(2);
        file.write_all_at(&[2; 512], 0).unwrap();
        assert_eq!((*told.lock(), disk.has_power_failed()), (0, false));
        file.sync_data().unwrap();
        assert_eq!((*told.lock(), disk.has_power_failed()), (1, false));
        let failed = [
            file.write_all_at(&[3; 512], 512),
            file.sync_data(),
            disk.remove_file(Path::new("/s/f")),
            disk.rename(Path::new("/s/f"), Path::new("/s/g")),
            disk.create_folder(Path::new("/t")),
            disk.remove_folder(Path::new("/t")),
            disk.create(Path::new("/s/g")).map(drop),
        ];
        assert!(failed.iter().all(Result::is_err) && disk.has_power_failed());
        let left = disk.cut(|| true);
        assert_eq!(left.paths(), [PathBuf::from("/s/f")]);
        assert_eq!(content(&left), Some([[2; 512], [1; 512]].concat()));
        left.create(Path::new("/s/g")).unwrap();
        assert_eq!(*told.lock(), 1);
    }

    #[test]
    fn a_full_disk_and_a_failing_one_say_so() {
        let (disk, file) = disk_with_synced_file(b"x");
        disk.set_capacity(Some(100));
        assert_eq!(
            file.allocate(0, 200).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        disk.fail(Operation::Sync, "f", 5);
        assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
        disk.heal();
        file.sync_data().unwrap();
    }
}
