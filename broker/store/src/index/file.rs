//! One index file: hash slots, each the head of a chain of entries, newest first (store spec 5.3, 5.6).
//!
//! The file on disk changes in two ways. Entries are written as they come, behind the count that the header on disk
//! still has. Slots and header follow at a flush, after the entries they speak of are on disk. So what the header
//! counts is always there, and after a crash the slots are made again from the entries.
//!
//! Not here: which file a key goes to (`table`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::layout::{ENTRY_LEN, Entry, Geometry, HEADER_LEN, Header};
use super::slots::Slots;
use crate::error::StoreError;
use crate::io::{Disk, DiskFile};

/// Entries read at a time when walking through all of them.
const BLOCK: usize = 3200;

/// One index file.
#[derive(Debug)]
pub(super) struct IndexFile {
    path: PathBuf,
    geometry: Geometry,
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    header: Header,
    /// Open while the file is written.
    file: Option<Arc<dyn DiskFile>>,
    slots: Slots,
    /// Bytes of the last entries, not in the file yet.
    pending: Vec<u8>,
    /// Whether header or slots differ from the file.
    changed: bool,
}

/// A time range and the most results wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) max: usize,
}

impl IndexFile {
    /// Makes a new file of full length (sparse).
    pub(super) fn create(
        path: PathBuf,
        geometry: Geometry,
        disk: Arc<dyn Disk>,
        header: Header,
    ) -> Result<Self, StoreError> {
        let file = disk
            .create(&path)
            .and_then(|file| file.set_len(geometry.file_len()).map(|()| file))
            .map_err(|e| StoreError::io(&path, "create", e))?;
        let state = State {
            file: Some(file),
            changed: true,
            ..State::new(header, geometry)
        };
        Ok(Self {
            path,
            geometry,
            disk,
            state: Mutex::new(state),
        })
    }

    /// Takes in a file. A short one is lengthened, as 4.9.8 does.
    pub(super) fn open(
        path: PathBuf,
        geometry: Geometry,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, StoreError> {
        let mut bytes = [0; HEADER_LEN];
        disk.open(&path)
            .and_then(|file| {
                if file.len()? < geometry.file_len() {
                    file.set_len(geometry.file_len())?;
                }
                file.read_at(&mut bytes, 0)
            })
            .map_err(|e| StoreError::io(&path, "open", e))?;
        let header = Header::decode(&bytes, geometry);
        Ok(Self {
            path,
            geometry,
            disk,
            state: Mutex::new(State::new(header, geometry)),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn header(&self) -> Header {
        self.state.lock().header
    }

    fn error(&self, operation: &'static str) -> impl FnOnce(io::Error) -> StoreError + '_ {
        move |source| StoreError::io(&self.path, operation, source)
    }

    /// The file, opened if need be, and kept open if it is being written.
    fn opened(&self, state: &State) -> Result<Arc<dyn DiskFile>, StoreError> {
        match &state.file {
            Some(file) => Ok(Arc::clone(file)),
            None => self.disk.open(&self.path).map_err(self.error("open")),
        }
    }

    /// Adds a key in memory. `false` if the file is full.
    pub(super) fn put(
        &self,
        key_hash: i32,
        physical: i64,
        timestamp: i64,
    ) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        if state.header.count >= self.geometry.entries {
            return Ok(false);
        }
        let file = self.opened(&state)?;
        state
            .add(self.geometry, &*file, key_hash, physical, timestamp)
            .map_err(self.error("read"))?;
        state.file = Some(file);
        Ok(true)
    }

    /// Writes the entries added so far.
    pub(super) fn write_entries(&self) -> Result<(), StoreError> {
        self.write_pending(&mut self.state.lock())
    }

    fn write_pending(&self, state: &mut State) -> Result<(), StoreError> {
        if state.pending.is_empty() {
            return Ok(());
        }
        let file = self.opened(state)?;
        file.write_all_at(&state.pending, self.geometry.entry_at(state.written()))
            .map_err(self.error("write"))?;
        state.pending.clear();
        Ok(())
    }

    /// Brings everything to disk: entries first, then slots and the header that counts them. A full file gives its
    /// memory back. Returns the store time of the newest record that is on disk.
    pub(super) fn flush(&self) -> Result<i64, StoreError> {
        let (file, header) = {
            let mut state = self.state.lock();
            if !state.changed {
                // Nothing came since the last flush: the slots can be read again when something does.
                state.slots.forget_clean();
                return Ok(state.header.end_timestamp);
            }
            self.write_pending(&mut state)?;
            (self.opened(&state)?, state.header)
        };
        // Keys that come while the disk works are left for the next flush.
        file.sync_data().map_err(self.error("flush"))?;
        self.write_head(&*file, &header)?;
        file.sync_data().map_err(self.error("flush"))?;
        if header.count >= self.geometry.entries {
            let mut state = self.state.lock();
            state.slots.forget_clean();
            state.file = None;
        }
        Ok(header.end_timestamp)
    }

    fn write_head(&self, file: &dyn DiskFile, header: &Header) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        state.slots.write_out(file).map_err(self.error("write"))?;
        file.write_all_at(&header.encode(), 0)
            .map_err(self.error("write"))?;
        state.changed = state.header != *header;
        Ok(())
    }

    /// Makes the slots again from the entries. `false` if the entries contradict each other: then the file is of no
    /// use.
    pub(super) fn rebuild_slots(&self) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        let file = self.opened(&state)?;
        state.slots.reset();
        state.changed = true;
        let (mut used, mut number) = (0, 1);
        let count = state.header.count;
        let mut bytes = vec![0; BLOCK * ENTRY_LEN];
        while number < count {
            let block = &mut bytes[..((count - number) as usize).min(BLOCK) * ENTRY_LEN];
            file.read_at(block, self.geometry.entry_at(number))
                .map_err(self.error("read"))?;
            for entry in block.as_chunks().0.iter().map(Entry::decode) {
                let slot = state
                    .slots
                    .get_mut(self.geometry.slot_of(entry.key_hash), &*file)
                    .map_err(self.error("read"))?;
                if entry.key_hash < 0
                    || entry.seconds < 0
                    || u32::try_from(entry.previous) != Ok(*slot)
                {
                    return Ok(false);
                }
                used += i32::from(*slot == 0);
                *slot = number;
                number += 1;
            }
        }
        state.file = Some(file);
        Ok(used == state.header.slots_used)
    }

    /// How many entries at the end belong to the record at `physical`.
    pub(super) fn entries_at_end_of(&self, physical: i64) -> Result<u32, StoreError> {
        let state = self.state.lock();
        let file = self.opened(&state)?;
        let mut found = 0;
        for number in (1..state.header.count).rev() {
            if state
                .entry(self.geometry, &*file, number)
                .map_err(self.error("read"))?
                .physical
                != physical
            {
                break;
            }
            found += 1;
        }
        Ok(found)
    }

    /// Adds the physical offsets of a key's records, newest first, until there are `wanted.max`.
    pub(super) fn select(
        &self,
        key_hash: i32,
        wanted: &Wanted,
        found: &mut Vec<i64>,
    ) -> Result<(), StoreError> {
        let state = self.state.lock();
        let file = self.opened(&state)?;
        let header = &state.header;
        let mut number = state
            .slots
            .get(self.geometry.slot_of(key_hash), &*file)
            .map_err(self.error("read"))?;
        if number > header.count || header.count <= 1 {
            return Ok(());
        }
        while number > 0 && found.len() < wanted.max {
            let entry = state
                .entry(self.geometry, &*file, number)
                .map_err(self.error("read"))?;
            if entry.seconds < 0 {
                break;
            }
            let time = header
                .begin_timestamp
                .saturating_add(i64::from(entry.seconds) * 1000);
            if entry.key_hash == key_hash && (wanted.begin..=wanted.end).contains(&time) {
                found.push(entry.physical);
            }
            // A chain goes to smaller numbers; anything else is damage and might never end.
            match u32::try_from(entry.previous) {
                Ok(previous) if previous < number && time >= wanted.begin => number = previous,
                _ => break,
            }
        }
        Ok(())
    }
}

impl State {
    fn new(header: Header, geometry: Geometry) -> Self {
        Self {
            header,
            file: None,
            slots: Slots::new(geometry),
            pending: Vec::new(),
            changed: false,
        }
    }

    /// Number of the first entry that is not in the file.
    fn written(&self) -> u32 {
        self.header.count - (self.pending.len() / ENTRY_LEN) as u32
    }

    fn add(
        &mut self,
        geometry: Geometry,
        file: &dyn DiskFile,
        key_hash: i32,
        physical: i64,
        timestamp: i64,
    ) -> io::Result<()> {
        let header = &mut self.header;
        let slot = self.slots.get_mut(geometry.slot_of(key_hash), file)?;
        let previous = if *slot > header.count { 0 } else { *slot };
        // In a file that follows another, the first entry's time counts from that one's end, and the begin is set
        // after: so the first times read are a little late. 4.9.8 does the same.
        let seconds = if header.begin_timestamp > 0 {
            (timestamp.saturating_sub(header.begin_timestamp) / 1000).clamp(0, i64::from(i32::MAX))
                as i32
        } else {
            0
        };
        let entry = Entry {
            key_hash,
            physical,
            seconds,
            previous: previous as i32,
        };
        self.pending.extend_from_slice(&entry.encode());
        *slot = header.count;
        if header.count <= 1 {
            header.begin_physical = physical;
            header.begin_timestamp = timestamp;
        }
        header.slots_used += i32::from(previous == 0);
        header.count += 1;
        header.end_physical = physical;
        header.end_timestamp = timestamp;
        self.changed = true;
        Ok(())
    }

    fn entry(&self, geometry: Geometry, file: &dyn DiskFile, number: u32) -> io::Result<Entry> {
        let mut bytes = [0; ENTRY_LEN];
        match number.checked_sub(self.written()) {
            Some(at) => {
                let pending = self.pending.as_chunks().0.get(at as usize);
                bytes = *pending.ok_or(io::ErrorKind::InvalidData)?;
            }
            None => {
                file.read_at(&mut bytes, geometry.entry_at(number))?;
            }
        }
        Ok(Entry::decode(&bytes))
    }
}
