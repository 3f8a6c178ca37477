//! One entry of a consume queue: 20 bytes that point into the commit log (store spec 4.1).
//!
//! Not here: where an entry lies in which file (`queue`), the extension unit its tag field may point to (`ext`).

/// Bytes of one entry.
pub const ENTRY_LEN: usize = 20;

/// Size field of a filler entry, which stands for a message that this store never had.
pub const FILLER_SIZE: i32 = i32::MAX;

/// A pointer from a queue into the commit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueEntry {
    /// Offset of the record's first byte in the commit log.
    pub physical_offset: i64,
    /// Bytes of the record; [`FILLER_SIZE`] for filler; 0 for an entry not written yet.
    pub size: i32,
    /// Hash of the tags, the delivery time of a delayed message, or the address of an extension unit.
    pub tags_code: i64,
}

impl QueueEntry {
    /// The entry written where a queue has no message to point to.
    pub const FILLER: Self = Self {
        physical_offset: 0,
        size: FILLER_SIZE,
        tags_code: 0,
    };

    /// The bytes on disk: offset 8, size 4, tags code 8, all big-endian.
    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[..8].copy_from_slice(&self.physical_offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.size.to_be_bytes());
        bytes[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    /// Reads the bytes on disk.
    pub fn decode(bytes: &[u8; ENTRY_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, rest @ ..] = *bytes;
        Self {
            physical_offset: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
            size: i32::from_be_bytes([i, j, k, l]),
            tags_code: i64::from_be_bytes(rest),
        }
    }

    /// Whether this entry stands for a message the store never had.
    pub fn is_filler(&self) -> bool {
        self.physical_offset == 0 && self.size == FILLER_SIZE
    }

    /// Whether anything was written here: filler counts, zeros do not.
    pub fn is_written(&self) -> bool {
        self.physical_offset >= 0 && self.size > 0
    }

    /// Offset just past the record; `None` for filler and for nonsense.
    pub fn physical_end(&self) -> Option<i64> {
        if self.is_filler() || !self.is_written() {
            return None;
        }
        self.physical_offset.checked_add(i64::from(self.size))
    }
}

/// The whole entries in `bytes`; a part at the end is left out.
pub fn entries(
    bytes: &[u8],
) -> impl DoubleEndedIterator<Item = QueueEntry> + ExactSizeIterator + '_ {
    bytes
        .as_chunks::<ENTRY_LEN>()
        .0
        .iter()
        .map(QueueEntry::decode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_bytes() {
        let entry = QueueEntry {
            physical_offset: 0x0102_0304_0506_0708,
            size: 167,
            tags_code: -2_598_919,
        };
        assert_eq!(QueueEntry::decode(&entry.encode()), entry);
    }

    #[test]
    fn filler_has_the_recorded_bytes_and_no_end() {
        let mut expected = [0; ENTRY_LEN];
        expected[8..12].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(QueueEntry::FILLER.encode(), expected);
        assert!(QueueEntry::FILLER.is_written());
        assert_eq!(QueueEntry::FILLER.physical_end(), None);
        assert!(!QueueEntry::decode(&[0; ENTRY_LEN]).is_written());
    }
}
