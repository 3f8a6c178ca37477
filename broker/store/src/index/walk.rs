//! The entries of an index file one after the other, for tools that read a store without opening it.

use std::path::{Path, PathBuf};

use super::layout::{ENTRY_LEN, Entry, Geometry, HEADER_LEN, Header, SLOT_LEN};
use crate::error::StoreError;

/// Entries read at a time.
const BLOCK: u32 = 1_000;
/// Entries that are looked at to find out the sizes of a file.
const LOOK: u32 = 256;

/// One entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexPlace {
    pub(crate) number: u32,
    pub(crate) key_hash: i32,
    pub(crate) physical: i64,
}

/// Reads bytes of a file: path, offset, most bytes.
pub(crate) type Read<'a> = &'a dyn Fn(&Path, u64, usize) -> Result<Vec<u8>, StoreError>;

/// Walks the entries that the header counts.
#[derive(Debug)]
pub(crate) struct IndexEntries {
    path: PathBuf,
    geometry: Geometry,
    header: Header,
    next: u32,
    block: Vec<u8>,
    block_from: u32,
    /// The newest entry of each chain so far.
    heads: Vec<u32>,
    fault: Option<String>,
}

impl IndexEntries {
    pub(crate) fn new(path: PathBuf, head: &[u8], (slots, entries): (u32, u32)) -> Self {
        let geometry = Geometry {
            slots: slots.max(1),
            entries: entries.max(2),
        };
        let (header, fault) = match head.first_chunk::<HEADER_LEN>() {
            Some(head) => (Header::decode(head, geometry), None),
            None => (Header::following(0, 0), Some("no header".to_owned())),
        };
        Self {
            path,
            geometry,
            header,
            next: 1,
            block: Vec::new(),
            block_from: 1,
            heads: Vec::new(),
            fault,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next entry; `None` at the end.
    pub(crate) fn next(&mut self, read: Read<'_>) -> Result<Option<IndexPlace>, StoreError> {
        if self.next >= self.header.count {
            return Ok(None);
        }
        let at = |this: &Self| (this.next - this.block_from) as usize * ENTRY_LEN;
        if self.block.get(at(self)..at(self) + ENTRY_LEN).is_none() {
            let many = BLOCK.min(self.header.count - self.next);
            self.block_from = self.next;
            self.block = read(
                &self.path,
                self.geometry.entry_at(self.next),
                many as usize * ENTRY_LEN,
            )?;
        }
        let Some(bytes) = self
            .block
            .get(at(self)..)
            .and_then(|rest| rest.first_chunk::<ENTRY_LEN>())
        else {
            self.fault
                .get_or_insert_with(|| format!("it ends before entry {}", self.next));
            return Ok(None);
        };
        let (entry, number) = (Entry::decode(bytes), self.next);
        self.next += 1;
        self.heads.resize(self.geometry.slots as usize, 0);
        let head = self
            .heads
            .get_mut(self.geometry.slot_of(entry.key_hash) as usize);
        if let Some(head) = head {
            if entry.key_hash < 0 || u32::try_from(entry.previous) != Ok(*head) {
                self.fault.get_or_insert_with(|| {
                    format!(
                        "entry {number} follows {} in its chain, not {head}",
                        entry.previous
                    )
                });
            }
            *head = number;
        }
        Ok(Some(IndexPlace {
            number,
            key_hash: entry.key_hash,
            physical: entry.physical,
        }))
    }

    /// What is wrong with the file by itself, after its last entry; `slots`: they are looked at too.
    pub(crate) fn fault(
        &mut self,
        slots: bool,
        read: Read<'_>,
    ) -> Result<Option<String>, StoreError> {
        if self.fault.is_none() && slots && !self.heads.is_empty() {
            let mut slot = 0;
            while slot < self.geometry.slots {
                let wanted = (self.geometry.slots - slot) as usize * SLOT_LEN as usize;
                let bytes = read(&self.path, self.geometry.slot_at(slot), wanted)?;
                if bytes.len() < SLOT_LEN as usize {
                    break;
                }
                for value in bytes.as_chunks::<4>().0 {
                    let head = self.heads.get(slot as usize).copied().unwrap_or(0);
                    if u32::from_be_bytes(*value) != head && self.fault.is_none() {
                        let has = u32::from_be_bytes(*value);
                        self.fault =
                            Some(format!("slot {slot} says {has}, its chain ends at {head}"));
                    }
                    slot += 1;
                }
            }
        }
        self.heads = Vec::new();
        Ok(self.fault.take())
    }
}

/// Finds out numbers of slots and entries, which stand nowhere: those with which header, slots and entries of a whole
/// file agree. `None` for a file without entries.
pub(crate) fn infer_geometry(bytes: &[u8]) -> Option<(u32, u32)> {
    let len = bytes.len() as u64;
    let most = u32::try_from(len / SLOT_LEN).ok()?;
    let head: &[u8; HEADER_LEN] = bytes.first_chunk()?;
    (1..most).find_map(|slots| {
        let rest = len.checked_sub(HEADER_LEN as u64 + SLOT_LEN * u64::from(slots))?;
        let entries = u32::try_from(rest / ENTRY_LEN as u64).ok()?;
        if !rest.is_multiple_of(ENTRY_LEN as u64) || entries < 2 {
            return None;
        }
        agrees(bytes, head, Geometry { slots, entries }).then_some((slots, entries))
    })
}

fn agrees(bytes: &[u8], head: &[u8; HEADER_LEN], geometry: Geometry) -> bool {
    let header = Header::decode(head, geometry);
    let entry = |number: u32| {
        let at = usize::try_from(geometry.entry_at(number)).ok()?;
        bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map(Entry::decode)
    };
    let slot_of = |entry: &Entry| {
        let at = usize::try_from(geometry.slot_at(geometry.slot_of(entry.key_hash))).ok()?;
        bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map(|value| u32::from_be_bytes(*value))
    };
    if header.count < 2 || entry(header.count - 1).is_none_or(|e| e.physical != header.end_physical)
    {
        return false;
    }
    let mut before = i64::MIN;
    (1..header.count.min(LOOK)).all(|number| {
        let Some(entry) = entry(number) else {
            return false;
        };
        let forward = entry.physical >= before && entry.physical <= header.end_physical;
        before = entry.physical;
        // Chains are newest first: a slot names this entry or a later one.
        forward
            && entry.key_hash >= 0
            && u32::try_from(entry.previous).is_ok_and(|previous| previous < number)
            && slot_of(&entry).is_some_and(|newest| newest >= number && newest < header.count)
    })
}
