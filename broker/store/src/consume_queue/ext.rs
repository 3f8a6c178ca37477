//! The extension of a consume queue (store spec 4.6): units that hold the real tags code, the store time and a
//! bloom filter over consumer groups, when the entry's own tag field holds the address of a unit.
//!
//! Not here: what the bits of the filter mean (the broker's), and which entry points to which unit (`queue`).

use super::segments::Segments;
use super::{Blocking, ReadError};
use crate::error::StoreError;

/// A tag field at or below this is the address of a unit; no tag hash and no time is that small.
const MAX_ADDRESS: i64 = i32::MIN as i64 - 1;

/// Bytes of a unit without its bit map.
const UNIT_HEAD: usize = 20;

/// Bytes that stay free at the end of a file, for the mark below.
const END_ROOM: i64 = 4;

/// Written where the rest of a file is not used.
const END_MARK: [u8; 2] = [0xff, 0xff];

/// Whether a tag field is the address of a unit.
pub fn is_address(tags_code: i64) -> bool {
    tags_code <= MAX_ADDRESS
}

/// Address as kept in an entry: the byte offset with the top bit set.
fn address_of(position: i64) -> i64 {
    position.wrapping_add(i64::MIN)
}

/// Byte offset that an address means.
pub(crate) fn position_of(address: i64) -> i64 {
    address.wrapping_sub(i64::MIN)
}

/// One unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtUnit {
    /// Hash of the tags, or the delivery time of a delayed message.
    pub tags_code: i64,
    /// The message's store time.
    pub store_timestamp: i64,
    /// The bloom filter; empty if it was not computed.
    pub bit_map: Vec<u8>,
}

impl ExtUnit {
    /// Appends the bytes on disk. `None` if the bit map is too long for a unit.
    fn encode(
        tags_code: i64,
        store_timestamp: i64,
        bit_map: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let size = i16::try_from(UNIT_HEAD + bit_map.len()).ok()?;
        out.extend_from_slice(&size.to_be_bytes());
        out.extend_from_slice(&tags_code.to_be_bytes());
        out.extend_from_slice(&store_timestamp.to_be_bytes());
        out.extend_from_slice(&(size - UNIT_HEAD as i16).to_be_bytes());
        out.extend_from_slice(bit_map);
        Some(size as usize)
    }

    /// Reads a unit at the start of `bytes`.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let size = unit_size(bytes)?;
        let head: &[u8; UNIT_HEAD] = bytes.first_chunk()?;
        let map_len = usize::from(u16::from_be_bytes([head[18], head[19]]));
        (map_len + UNIT_HEAD == size).then_some(())?;
        let number = |at: usize| {
            head[at..at + 8]
                .iter()
                .fold(0, |n, b| n << 8 | i64::from(*b))
        };
        Some(Self {
            tags_code: number(2),
            store_timestamp: number(10),
            bit_map: bytes.get(UNIT_HEAD..size)?.to_vec(),
        })
    }
}

/// The size word of a unit; `None` for zeros, the end mark and whatever is no unit.
fn unit_size(bytes: &[u8]) -> Option<usize> {
    let size = i16::from_be_bytes(*bytes.first_chunk()?);
    usize::try_from(size).ok().filter(|s| *s >= UNIT_HEAD)
}

/// Where the next unit goes. The owner is the queue's single writer.
#[derive(Debug, Default)]
pub(crate) struct ExtWriter {
    /// Byte offset of the first pending byte.
    written: i64,
    pending: Vec<u8>,
}

impl ExtWriter {
    /// A writer that goes on at `position`.
    pub(crate) fn at(position: i64) -> Self {
        Self {
            written: position,
            pending: Vec::new(),
        }
    }

    fn next(&self) -> i64 {
        self.written + self.pending.len() as i64
    }

    /// Adds a unit and returns its address for the entry. `None` if it cannot be stored: then the entry takes the
    /// plain tags code.
    pub(crate) fn push(
        &mut self,
        file_len: i64,
        tags_code: i64,
        store_timestamp: i64,
        bit_map: &[u8],
    ) -> Option<i64> {
        let size = (UNIT_HEAD + bit_map.len()) as i64;
        let left = |next: i64| file_len - next % file_len;
        if size > file_len - END_ROOM || size > i64::from(i16::MAX) {
            return None;
        }
        let rest = left(self.next());
        if size > rest - END_ROOM {
            self.pending
                .extend_from_slice(&END_MARK[..(rest as usize).min(2)]);
            self.pending
                .resize(self.pending.len() + (rest as usize).saturating_sub(2), 0);
        }
        let position = self.next();
        let address = Some(address_of(position)).filter(|a| is_address(*a))?;
        ExtUnit::encode(tags_code, store_timestamp, bit_map, &mut self.pending)?;
        Some(address)
    }

    /// Writes what was pushed.
    pub(crate) fn write_out(&mut self, files: &Segments) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        files.write(self.written, &self.pending)?;
        self.written = self.next();
        self.pending.clear();
        self.pending.shrink_to(4096);
        Ok(())
    }

    /// The unit at `address`, if it is not written yet.
    pub(crate) fn pending_unit(&self, address: i64) -> Option<ExtUnit> {
        let from = usize::try_from(position_of(address) - self.written).ok()?;
        ExtUnit::decode(self.pending.get(from..)?)
    }

    /// Byte offset up to which units are in the files.
    pub(crate) fn written(&self) -> i64 {
        self.written
    }
}

/// Reads the unit at `address`; `None` if there is none there.
pub(crate) fn read(
    files: &Segments,
    address: i64,
    blocking: Blocking,
) -> Result<Option<ExtUnit>, ReadError> {
    let position = position_of(address);
    let room = files.start_of(position) + files.file_len() - position;
    let mut bytes = vec![0; room.min(256) as usize];
    let read = files.read(position, &mut bytes, blocking)?;
    let Some(size) = unit_size(&bytes[..read]) else {
        return Ok(None);
    };
    if size as i64 > room {
        return Ok(None);
    }
    if size > read {
        bytes.resize(size, 0);
        files.read(position, &mut bytes, blocking)?;
    }
    Ok(ExtUnit::decode(&bytes))
}

/// End of the unit at `address`, if there is a unit.
pub(crate) fn end_of_unit(files: &Segments, address: i64) -> Result<Option<i64>, StoreError> {
    let position = position_of(address);
    let unit = read(files, address, Blocking::Allowed).map_err(ReadError::into_store_error)?;
    Ok(unit.map(|u| position + (UNIT_HEAD + u.bit_map.len()) as i64))
}

/// End of the last unit, found by walking the units from the first file: for a queue none of whose last entries
/// points to a unit.
pub(crate) fn scan_end(files: &Segments, starts: &[i64]) -> Result<i64, StoreError> {
    let mut end = starts.first().copied().unwrap_or(0);
    let mut bytes = vec![0; files.file_len() as usize];
    for &start in starts {
        let read = files
            .read(start, &mut bytes, Blocking::Allowed)
            .map_err(ReadError::into_store_error)?;
        let mut rest = &bytes[..read];
        while let Some(next) = unit_size(rest).and_then(|size| rest.get(size..)) {
            rest = next;
        }
        if rest.len() < read {
            end = start + (read - rest.len()) as i64;
        }
    }
    Ok(end)
}

/// Deletes the files that lie wholly below the unit at `address`.
pub(crate) fn delete_below(files: &Segments, address: i64) -> Result<(), StoreError> {
    let first_needed = files.start_of(position_of(address));
    for start in files.list()?.into_iter().take_while(|s| *s < first_needed) {
        files.delete(start)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::open_files::OpenFiles;
    use super::super::segments::Shared;
    use super::*;
    use crate::io::RealDisk;

    #[test]
    fn units_fill_files_up_to_an_end_mark_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let shared = Shared {
            disk: Arc::new(RealDisk),
            open_files: OpenFiles::new(4),
        };
        let files = Segments::new(
            folder.path().join("a/b/0"),
            100,
            "mappedFileSizeConsumeQueueExt",
            &Arc::new(shared),
        );
        let mut writer = ExtWriter::default();
        let maps: [&[u8]; 5] = [&[], &[1, 2, 3], &[0xff; 14], &[9; 60], &[]];
        let addresses: Vec<i64> = maps
            .iter()
            .zip(1..)
            .map(|(map, n)| writer.push(100, n, 1000 + n, map).expect("fits"))
            .collect();
        // 20, 43, 77 of 100 are used; the fourth unit of 80 needs a file of its own, and 20 + 4 do not fit behind it.
        assert_eq!(
            addresses
                .iter()
                .map(|a| position_of(*a))
                .collect::<Vec<_>>(),
            [0, 20, 43, 100, 200]
        );
        writer.write_out(&files).unwrap();
        assert_eq!(writer.written(), 220);
        for ((address, map), n) in addresses.iter().zip(maps).zip(1..) {
            assert!(is_address(*address));
            let unit = read(&files, *address, Blocking::Allowed)
                .unwrap()
                .expect("a unit");
            assert_eq!(
                (unit.tags_code, unit.store_timestamp, &unit.bit_map[..]),
                (n, 1000 + n, map)
            );
        }
        let mut mark = [0; 4];
        files.read(77, &mut mark, Blocking::Allowed).unwrap();
        assert_eq!(mark, [0xff, 0xff, 0, 0]);
        assert_eq!(scan_end(&files, &files.list().unwrap()).unwrap(), 220);
        assert_eq!(end_of_unit(&files, addresses[3]).unwrap(), Some(180));
        delete_below(&files, addresses[3]).unwrap();
        assert_eq!(files.list().unwrap(), [100, 200]);
    }

    #[test]
    fn nonsense_is_no_unit() {
        assert!(ExtUnit::decode(&[0; 40]).is_none());
        assert!(ExtUnit::decode(&[0xff; 40]).is_none());
        let mut bytes = Vec::new();
        ExtUnit::encode(1, 2, &[3; 10], &mut bytes).unwrap();
        assert!(ExtUnit::decode(&bytes[..29]).is_none(), "cut");
        bytes[19] = 11;
        assert!(ExtUnit::decode(&bytes).is_none(), "lengths disagree");
        assert!(!is_address(i64::from(i32::MIN)) && is_address(i64::from(i32::MIN) - 1));
    }
}
