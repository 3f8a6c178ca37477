//! All index files of a store.
//!
//! One thread at a time adds records ([`Index::put`] takes them in the order of the log); any thread may query.
//!
//! Not here: what happens inside a file (`file`).

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use minimq_protocol::hash::index_key_hash;

use super::file::{IndexFile, Wanted};
use super::layout::{Geometry, Header};
use crate::config::StoreConfig;
use crate::dispatch_record::DispatchRecord;
use crate::error::StoreError;
use crate::io::Disk;

/// Transaction bits of a record that was rolled back.
const ROLLBACK: i32 = 0xC;

/// What a query found in the index. The keys are not compared, only their hashes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where the records begin, newest first as long as one file is enough.
    pub physical_offsets: Vec<i64>,
    /// Store time of the newest record in the index.
    pub last_update_timestamp: i64,
    /// Where it begins.
    pub last_update_physical: i64,
}

/// All index files.
#[derive(Debug)]
pub struct Index {
    folder: PathBuf,
    geometry: Geometry,
    disk: Arc<dyn Disk>,
    /// Oldest first.
    files: RwLock<Vec<Arc<IndexFile>>>,
    resume: Mutex<Resume>,
}

/// The last record in the index when it was opened may have been added in part.
#[derive(Debug, Clone, Copy, Default)]
struct Resume {
    physical: i64,
    keys_present: usize,
}

impl Index {
    /// Without files yet; touches nothing on disk.
    pub fn new(config: &StoreConfig, disk: Arc<dyn Disk>) -> Self {
        Self {
            folder: config.store_path_root_dir.join("index"),
            geometry: Geometry {
                slots: config.max_hash_slot_num.max(1),
                entries: config.max_index_num.max(2),
            },
            disk,
            files: RwLock::default(),
            resume: Mutex::default(),
        }
    }

    /// Takes in the files on disk. After an unclean stop only those are kept whose newest record is not newer than
    /// `flushed_timestamp`, the checkpoint's word on what was flushed; the records of the others are to be added again.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn load(&self, clean: bool, flushed_timestamp: i64) -> Result<(), StoreError> {
        let entries = self
            .disk
            .list(&self.folder)
            .map_err(|e| StoreError::io(&self.folder, "list", e))?;
        let mut files = Vec::new();
        for entry in entries {
            let path = self.folder.join(&entry.name);
            if entry.is_folder
                || entry.name.is_empty()
                || !entry.name.bytes().all(|b| b.is_ascii_digit())
            {
                tracing::warn!(path = %path.display(), "not an index file, left alone");
                continue;
            }
            files.push(Arc::new(IndexFile::open(
                path,
                self.geometry,
                Arc::clone(&self.disk),
            )?));
        }
        *self.files.write() = files;
        if !clean {
            self.drop_from(|header| header.end_timestamp > flushed_timestamp)?;
            if let Some(last) = self.last()
                && !last.rebuild_slots()?
            {
                tracing::warn!(path = %last.path().display(), "damaged index file, built again from the log");
                self.delete_last()?;
            }
        }
        self.find_resume()
    }

    /// Forgets the files that know of records at or after `physical`, the new end of the log.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn truncate(&self, physical: i64) -> Result<(), StoreError> {
        self.drop_from(|header| header.end_physical >= physical)?;
        self.find_resume()
    }

    /// Deletes the files from the first that is `unwanted` on.
    fn drop_from(&self, unwanted: impl Fn(&Header) -> bool) -> Result<(), StoreError> {
        let keep = self
            .files
            .read()
            .iter()
            .take_while(|f| !unwanted(&f.header()))
            .count();
        while self.files.read().len() > keep {
            self.delete_last()?;
        }
        Ok(())
    }

    fn delete_last(&self) -> Result<(), StoreError> {
        match self.files.write().pop() {
            Some(file) => self.delete(&file),
            None => Ok(()),
        }
    }

    fn delete(&self, file: &IndexFile) -> Result<(), StoreError> {
        self.disk
            .remove_file(file.path())
            .map_err(|e| StoreError::io(file.path(), "delete", e))
    }

    fn find_resume(&self) -> Result<(), StoreError> {
        let mut resume = Resume::default();
        if let Some(last) = self.last() {
            resume.physical = last.header().end_physical;
            for file in self.files.read().iter().rev() {
                let here = file.entries_at_end_of(resume.physical)?;
                resume.keys_present += here as usize;
                if here + 1 < file.header().count {
                    break;
                }
            }
        }
        *self.resume.lock() = resume;
        Ok(())
    }

    fn last(&self) -> Option<Arc<IndexFile>> {
        self.files.read().last().map(Arc::clone)
    }

    /// Where the record begins from which on records are to be added; 0 without files.
    pub fn needed_from(&self) -> i64 {
        self.last().map_or(0, |last| last.header().end_physical)
    }

    /// Adds the keys of a record. Records that are in the index already change nothing. After an error the call may be
    /// repeated.
    ///
    /// # Errors
    /// When the disk fails, or is full.
    pub fn put(&self, record: &DispatchRecord<'_>) -> Result<(), StoreError> {
        let physical = record.physical_offset.get();
        let mut file = match self.last() {
            Some(file) => file,
            None => self.add_file()?,
        };
        if physical < file.header().end_physical
            || record.damaged
            || record.sys_flag & ROLLBACK == ROLLBACK
        {
            return Ok(());
        }
        let mut resume = self.resume.lock();
        if resume.physical != physical {
            *resume = Resume {
                physical,
                keys_present: 0,
            };
        }
        let pieces = record.keys.split(' ').filter(|k| !k.is_empty());
        for key in record
            .uniq_key
            .into_iter()
            .chain(pieces)
            .skip(resume.keys_present)
        {
            let key_hash = index_key_hash(record.topic, key);
            while !file.put(key_hash, physical, record.store_timestamp)? {
                file.flush()?;
                file = self.add_file()?;
            }
            resume.keys_present += 1;
        }
        Ok(())
    }

    /// Writes the entries added so far.
    ///
    /// # Errors
    /// When the disk fails, or is full.
    pub fn write_out(&self) -> Result<(), StoreError> {
        self.last().map_or(Ok(()), |last| last.write_entries())
    }

    /// Brings the index to disk. Returns the store time of the newest record that is there now: what the checkpoint may
    /// say.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn flush(&self) -> Result<Option<i64>, StoreError> {
        let Some(last) = self.last() else {
            return Ok(None);
        };
        let timestamp = last.flush()?;
        self.disk
            .sync_folder(&self.folder)
            .map_err(|e| StoreError::io(&self.folder, "flush", e))?;
        Ok(Some(timestamp))
    }

    fn add_file(&self) -> Result<Arc<IndexFile>, StoreError> {
        self.disk
            .create_folder(&self.folder)
            .map_err(|e| StoreError::io(&self.folder, "create", e))?;
        let header = match self.last().map(|last| last.header()) {
            Some(last) => Header::following(last.end_timestamp, last.end_physical),
            None => Header::following(0, 0),
        };
        let path = self.unused_name();
        let file = Arc::new(IndexFile::create(
            path,
            self.geometry,
            Arc::clone(&self.disk),
            header,
        )?);
        self.files.write().push(Arc::clone(&file));
        Ok(file)
    }

    /// The local time to the millisecond, or the next one that sorts behind the files there are.
    fn unused_name(&self) -> PathBuf {
        let now = jiff::Zoned::now().strftime("%Y%m%d%H%M%S%3f").to_string();
        let newest = self
            .last()
            .and_then(|f| f.path().file_name()?.to_str()?.parse::<u64>().ok());
        let number = now
            .parse::<u64>()
            .unwrap_or(0)
            .max(newest.map_or(0, |n| n + 1));
        self.folder.join(format!("{number:017}"))
    }

    /// The newest `max` records of a topic whose key hashes as `key` and whose store time lies between `begin` and
    /// `end`, to the second.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        max: usize,
        begin: i64,
        end: i64,
    ) -> Result<Found, StoreError> {
        let files = self.files.read().clone();
        let key_hash = index_key_hash(topic, key);
        let wanted = Wanted { begin, end, max };
        let mut found = Found::default();
        if let Some(newest) = files.last().map(|f| f.header()) {
            found.last_update_timestamp = newest.end_timestamp;
            found.last_update_physical = newest.end_physical;
        }
        for file in files.iter().rev() {
            let header = file.header();
            if begin <= header.end_timestamp && end >= header.begin_timestamp {
                file.select(key_hash, &wanted, &mut found.physical_offsets)?;
            }
            if header.begin_timestamp < begin || found.physical_offsets.len() >= max {
                break;
            }
        }
        Ok(found)
    }

    /// Deletes the files all of whose records lie below `log_min`, never the last. Returns how many.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn clean(&self, log_min: i64) -> Result<usize, StoreError> {
        let gone: Vec<_> = {
            let mut files = self.files.write();
            let most = files.len().saturating_sub(1);
            let gone = files
                .iter()
                .take(most)
                .take_while(|f| f.header().end_physical < log_min)
                .count();
            files.drain(..gone).collect()
        };
        gone.iter().try_for_each(|file| self.delete(file))?;
        Ok(gone.len())
    }
}
