//! The bytes of an index file (store spec 5.1): a header of 40 bytes, slots of 4, entries of 20, all big-endian.
//!
//! Not here: how a chain is built or walked (`file`).

/// Bytes of the header.
pub(super) const HEADER_LEN: usize = 40;
/// Bytes of a slot.
pub(super) const SLOT_LEN: u64 = 4;
/// Bytes of an entry.
pub(super) const ENTRY_LEN: usize = 20;

/// Numbers of slots and entries of a file. Needed to read it, and not stored in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    /// `maxHashSlotNum`.
    pub(super) slots: u32,
    /// `maxIndexNum`; one less are used, as entry 0 never is.
    pub(super) entries: u32,
}

impl Geometry {
    pub(super) fn file_len(self) -> u64 {
        self.entry_at(self.entries)
    }

    pub(super) fn slot_at(self, slot: u32) -> u64 {
        HEADER_LEN as u64 + SLOT_LEN * u64::from(slot)
    }

    pub(super) fn entry_at(self, number: u32) -> u64 {
        self.slot_at(self.slots) + ENTRY_LEN as u64 * u64::from(number)
    }

    pub(super) fn slot_of(self, key_hash: i32) -> u32 {
        key_hash.unsigned_abs() % self.slots
    }
}

/// What a file says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) begin_timestamp: i64,
    pub(super) end_timestamp: i64,
    pub(super) begin_physical: i64,
    pub(super) end_physical: i64,
    pub(super) slots_used: i32,
    /// Number of the next entry; 1 in an empty file.
    pub(super) count: u32,
}

impl Header {
    /// The header of a file that follows one ending at `timestamp` and `physical` (0 and 0: the first file).
    pub(super) fn following(timestamp: i64, physical: i64) -> Self {
        Self {
            begin_timestamp: timestamp,
            end_timestamp: timestamp,
            begin_physical: physical,
            end_physical: physical,
            slots_used: 0,
            count: 1,
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let times = [
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical,
            self.end_physical,
        ];
        for (to, number) in bytes.chunks_exact_mut(8).zip(times) {
            to.copy_from_slice(&number.to_be_bytes());
        }
        bytes[32..36].copy_from_slice(&self.slots_used.to_be_bytes());
        bytes[36..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_LEN], geometry: Geometry) -> Self {
        let long = |at: usize| {
            bytes[at..at + 8]
                .iter()
                .fold(0, |n, b| n << 8 | i64::from(*b))
        };
        let int = |at: usize| {
            bytes[at..at + 4]
                .iter()
                .fold(0, |n, b| n << 8 | i32::from(*b))
        };
        Self {
            begin_timestamp: long(0),
            end_timestamp: long(8),
            begin_physical: long(16),
            end_physical: long(24),
            slots_used: int(32),
            count: u32::try_from(int(36))
                .unwrap_or(1)
                .clamp(1, geometry.entries.max(1)),
        }
    }
}

/// One key of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key_hash: i32,
    pub(super) physical: i64,
    /// Seconds after the header's begin time.
    pub(super) seconds: i32,
    /// The entry before in the same slot; 0 if none.
    pub(super) previous: i32,
}

impl Entry {
    pub(super) fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[..4].copy_from_slice(&self.key_hash.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.physical.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[16..].copy_from_slice(&self.previous.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ENTRY_LEN]) -> Self {
        let int = |at: usize| {
            bytes[at..at + 4]
                .iter()
                .fold(0, |n, b| n << 8 | i32::from(*b))
        };
        Self {
            key_hash: int(0),
            physical: bytes[4..12].iter().fold(0, |n, b| n << 8 | i64::from(*b)),
            seconds: int(12),
            previous: int(16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_entry_survive_their_bytes_and_the_default_file_has_the_known_length() {
        let geometry = Geometry {
            slots: 5_000_000,
            entries: 20_000_000,
        };
        assert_eq!(geometry.file_len(), 420_000_040);
        let header = Header {
            begin_timestamp: 1_795_996_314_942,
            end_timestamp: i64::MAX,
            begin_physical: -1,
            end_physical: 5,
            slots_used: 7,
            count: 9,
        };
        assert_eq!(Header::decode(&header.encode(), geometry), header);
        let entry = Entry {
            key_hash: 1,
            physical: -2,
            seconds: 3,
            previous: 4,
        };
        assert_eq!(Entry::decode(&entry.encode()), entry);
    }

    #[test]
    fn a_count_from_a_damaged_header_stays_within_the_file() {
        let geometry = Geometry {
            slots: 10,
            entries: 20,
        };
        let mut bytes = Header::following(0, 0).encode();
        for (count, read) in [(0i32, 1), (-5, 1), (7, 7), (i32::MAX, 20)] {
            bytes[36..].copy_from_slice(&count.to_be_bytes());
            assert_eq!(Header::decode(&bytes, geometry).count, read);
        }
    }
}
