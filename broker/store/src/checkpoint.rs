//! The checkpoint file: how far things were on disk when it was written (store spec 6.1).
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 8 | physicMsgTimestamp: store time of the newest message of the log known to be on disk |
//! | 8 | 8 | logicsMsgTimestamp: the same for consume queues |
//! | 16 | 8 | indexMsgTimestamp: the same for index files |
//! | 24 | 8 | 0 |
//! | 32 | 8 | `mqstore1`: what follows is ours; RocketMQ neither reads nor writes it |
//! | 40 | 8 | flushed offset: every byte of the log below it is on disk |
//! | 48 | 8 | dispatched offset: queue entries and index of every record below it are on disk |
//! | 56 | 24 | copy of the three times: if they differ from 0..24, another broker was at work since, and ours is void |
//! | 80 | 4 | CRC-32 of 32..80 |
//! | 84 | 8 | entered offset: every record below had reached its queue once, and the file `queues` lists it since |
//! | 92 | 4 | CRC-32 of 32..92; if it is wrong, the entered offset is the dispatched one |
//! | 96 | 4000 | zeros |
//!
//! All of it lies in one sector, so it is written whole or not at all.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::damage::read_all;
use crate::error::StoreError;
use crate::io::{Disk, DiskFile};

const LEN: usize = 4096;
const OURS: &[u8; 8] = b"mqstore1";

/// What the file said when it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointContent {
    /// Of the log, ms; 0 if nothing is known.
    pub physic_timestamp: i64,
    /// Of the consume queues, ms.
    pub logics_timestamp: i64,
    /// Of the index, ms.
    pub index_timestamp: i64,
    /// All of the log below is on disk; `None` if a 4.9.8 broker wrote the file last.
    pub flushed_offset: Option<i64>,
    /// Queue entries and index of all below are on disk.
    pub dispatched_offset: Option<i64>,
    /// All below had reached their queues once, though entries may have been lost since: whose queue is not known now is
    /// of a deleted topic.
    pub entered_offset: Option<i64>,
}

impl CheckpointContent {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            bytes
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|word| i64::from_be_bytes(*word))
        };
        let time = |at| word(at).unwrap_or(0);
        // Whether all from 32 on is what the checksum at `end` was made of.
        let sound = |end: usize| {
            let stated = bytes.get(end..).and_then(|rest| rest.first_chunk());
            let sum = bytes.get(32..end).map(crc32fast::hash);
            sum.is_some() && sum == stated.map(|sum| u32::from_be_bytes(*sum))
        };
        let ours = bytes.get(32..40) == Some(OURS) && sound(80);
        let current = ours && bytes.get(0..24) == bytes.get(56..80);
        let offset = |at| word(at).filter(|offset| current && *offset >= 0);
        Self {
            physic_timestamp: time(0),
            logics_timestamp: time(8),
            index_timestamp: time(16),
            flushed_offset: offset(40),
            dispatched_offset: offset(48),
            entered_offset: offset(if sound(92) { 84 } else { 48 }),
        }
    }

    /// Before entries of records from `from` on are made again: has the file say, if it is ours, that they are not on disk.
    pub(crate) fn put_down(
        &self,
        disk: &dyn Disk,
        root: &Path,
        from: i64,
    ) -> Result<(), StoreError> {
        if self.dispatched_offset.is_none_or(|offset| offset <= from) {
            return Ok(());
        }
        let content = Self {
            dispatched_offset: Some(from),
            ..*self
        };
        let path = root.join("checkpoint");
        disk.open(&path)
            .and_then(|file| {
                file.write_all_at(&content.encode(), 0)?;
                file.sync_data()
            })
            .map_err(|error| StoreError::io(&path, "write", error))
    }

    fn encode(&self) -> [u8; LEN] {
        let times = [
            self.physic_timestamp,
            self.logics_timestamp,
            self.index_timestamp,
        ];
        let offsets = [
            self.flushed_offset.unwrap_or(-1),
            self.dispatched_offset.unwrap_or(-1),
        ];
        let mut ours = OURS.to_vec();
        ours.extend(
            offsets
                .iter()
                .chain(&times)
                .flat_map(|word| word.to_be_bytes()),
        );
        ours.extend(crc32fast::hash(&ours).to_be_bytes());
        ours.extend(self.entered_offset.unwrap_or(-1).to_be_bytes());
        let sum = crc32fast::hash(&ours);
        let mut bytes = [0; LEN];
        let content = times
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .chain([0; 8])
            .chain(ours)
            .chain(sum.to_be_bytes());
        bytes
            .iter_mut()
            .zip(content)
            .for_each(|(to, from)| *to = from);
        bytes
    }
}

/// The checkpoint of an open store.
#[derive(Debug)]
pub struct Checkpoint {
    file: Arc<dyn DiskFile>,
    path: std::path::PathBuf,
    physic: AtomicI64,
    logics: AtomicI64,
    index: AtomicI64,
    flushed: AtomicI64,
    dispatched: AtomicI64,
    entered: AtomicI64,
    counter: Arc<crate::counters::Counters>,
    written: Mutex<Option<CheckpointContent>>,
}

impl Checkpoint {
    /// Reads the file under `root`; one that is missing or short says nothing.
    pub(crate) fn load(disk: &dyn Disk, root: &Path) -> Result<CheckpointContent, StoreError> {
        let path = root.join("checkpoint");
        if !disk.exists(&path) {
            return Ok(CheckpointContent::default());
        }
        let file = disk
            .open(&path)
            .map_err(|error| StoreError::io(&path, "open", error))?;
        // What cannot be read proves nothing; the log itself does.
        Ok(CheckpointContent::parse(
            &read_all(&file).unwrap_or_default(),
        ))
    }

    /// Opens the file to be written, beginning with what was read.
    pub(crate) fn open(
        disk: &dyn Disk,
        root: &Path,
        content: CheckpointContent,
        counter: Arc<crate::counters::Counters>,
    ) -> Result<Self, StoreError> {
        let path = root.join("checkpoint");
        let file = disk
            .create(&path)
            .map_err(|error| StoreError::io(&path, "create", error))?;
        if file
            .len()
            .map_err(|error| StoreError::io(&path, "stat", error))?
            != LEN as u64
        {
            // With its block, so that a full disk does not keep it from being written.
            file.allocate(0, LEN as u64)
                .or_else(|_| file.set_len(LEN as u64))
                .map_err(|error| StoreError::io(&path, "extend", error))?;
        }
        Ok(Self {
            file,
            path,
            physic: AtomicI64::new(content.physic_timestamp),
            logics: AtomicI64::new(content.logics_timestamp),
            index: AtomicI64::new(content.index_timestamp),
            flushed: AtomicI64::new(content.flushed_offset.unwrap_or(-1)),
            dispatched: AtomicI64::new(content.dispatched_offset.unwrap_or(-1)),
            entered: AtomicI64::new(content.entered_offset.unwrap_or(-1)),
            counter,
            written: Mutex::new(None),
        })
    }

    /// After recovery the log ends at `end`, on disk, wherever it ended before. Queue entries of records from
    /// `dispatched_from` on may not be on disk.
    pub(crate) fn restart_at(&self, end: i64, dispatched_from: i64) {
        self.flushed.store(end, Ordering::Release);
        self.dispatched
            .fetch_min(end.min(dispatched_from), Ordering::AcqRel);
        self.entered.fetch_min(end, Ordering::AcqRel);
    }

    /// The log is on disk up to `offset`, whose newest message was stored at `store_timestamp`.
    pub fn set_flushed(&self, offset: i64, store_timestamp: i64) {
        self.physic.store(store_timestamp, Ordering::Release);
        self.flushed.fetch_max(offset, Ordering::AcqRel);
    }

    /// Consume queues and index are on disk up to what belongs to the record that ends at `offset`, stored at
    /// `store_timestamp`. Noted before they are flushed, set after.
    pub fn set_dispatched(&self, offset: i64, store_timestamp: i64) {
        self.logics.store(store_timestamp, Ordering::Release);
        self.dispatched.fetch_max(offset, Ordering::AcqRel);
        self.entered.fetch_max(offset, Ordering::AcqRel);
    }

    /// Full index files are on disk up to a record stored at `store_timestamp`.
    pub fn set_index_timestamp(&self, store_timestamp: i64) {
        self.index.store(store_timestamp, Ordering::Release);
    }

    /// What would be written now.
    #[must_use]
    pub fn content(&self) -> CheckpointContent {
        let offset =
            |number: &AtomicI64| Some(number.load(Ordering::Acquire)).filter(|offset| *offset >= 0);
        CheckpointContent {
            physic_timestamp: self.physic.load(Ordering::Acquire),
            logics_timestamp: self.logics.load(Ordering::Acquire),
            index_timestamp: self.index.load(Ordering::Acquire),
            flushed_offset: offset(&self.flushed),
            dispatched_offset: offset(&self.dispatched),
            entered_offset: offset(&self.entered),
        }
    }

    /// Writes and syncs the file.
    ///
    /// # Errors
    /// The system's; the file then says less than is true, which is no harm.
    pub fn write(&self) -> Result<(), StoreError> {
        let mut written = self.written.lock();
        let content = self.content();
        self.file
            .write_all_at(&content.encode(), 0)
            .map_err(|error| StoreError::io(&self.path, "write", error))?;
        self.file
            .sync_data()
            .map_err(|error| StoreError::io(&self.path, "sync", error))?;
        crate::counters::add(&self.counter.checkpoints, 1);
        *written = Some(content);
        Ok(())
    }

    /// As [`Checkpoint::write`], unless the file says all of it.
    ///
    /// # Errors
    /// As there.
    pub fn write_if_changed(&self) -> Result<(), StoreError> {
        let same = *self.written.lock() == Some(self.content());
        if same { Ok(()) } else { self.write() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SimulatedDisk;

    fn written() -> (SimulatedDisk, Vec<u8>) {
        let disk = SimulatedDisk::new();
        let root = Path::new("/s");
        disk.create_folder(root).unwrap();
        let checkpoint =
            Checkpoint::open(&disk, root, CheckpointContent::default(), Arc::default()).unwrap();
        checkpoint.set_flushed(700, 11);
        checkpoint.set_dispatched(600, 10);
        checkpoint.set_index_timestamp(9);
        checkpoint.write().unwrap();
        let bytes = disk.content(&root.join("checkpoint")).unwrap();
        (disk, bytes)
    }

    #[test]
    fn it_reads_what_it_wrote_in_the_layout_rocketmq_reads() {
        let (disk, bytes) = written();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(bytes[..24], [11_i64, 10, 9].map(i64::to_be_bytes).concat());
        let content = Checkpoint::load(&disk, Path::new("/s")).unwrap();
        let expected = CheckpointContent {
            physic_timestamp: 11,
            logics_timestamp: 10,
            index_timestamp: 9,
            flushed_offset: Some(700),
            dispatched_offset: Some(600),
            entered_offset: Some(600),
        };
        assert_eq!(content, expected);
    }

    #[test]
    fn what_was_entered_once_stays_so_though_its_entries_are_made_again() {
        let (disk, mut bytes) = written();
        let root = Path::new("/s");
        let content = Checkpoint::load(&disk, root).unwrap();
        let checkpoint = Checkpoint::open(&disk, root, content, Arc::default()).unwrap();
        checkpoint.restart_at(700, 100);
        checkpoint.write().unwrap();
        let content = Checkpoint::load(&disk, root).unwrap();
        assert_eq!(
            (content.dispatched_offset, content.entered_offset),
            (Some(100), Some(600))
        );
        checkpoint.restart_at(500, 100);
        assert_eq!(checkpoint.content().entered_offset, Some(500));
        // As it was written before there was such an offset.
        bytes[84..96].fill(0);
        disk.put(&root.join("checkpoint"), bytes);
        let content = Checkpoint::load(&disk, root).unwrap();
        assert_eq!(content.entered_offset, Some(600));
    }

    #[test]
    fn our_offsets_are_void_once_another_broker_wrote_its_times() {
        let (disk, mut bytes) = written();
        bytes[7] = 12;
        disk.put(Path::new("/s/checkpoint"), bytes);
        let content = Checkpoint::load(&disk, Path::new("/s")).unwrap();
        assert_eq!(
            (
                content.physic_timestamp,
                content.flushed_offset,
                content.dispatched_offset
            ),
            (12, None, None)
        );
    }

    #[test]
    fn a_missing_short_or_foreign_file_proves_nothing_wrong() {
        let disk = SimulatedDisk::new();
        assert_eq!(
            Checkpoint::load(&disk, Path::new("/s")).unwrap(),
            CheckpointContent::default()
        );
        disk.put(Path::new("/s/checkpoint"), vec![0; 5]);
        assert_eq!(
            Checkpoint::load(&disk, Path::new("/s")).unwrap(),
            CheckpointContent::default()
        );
    }
}
