//! Parts of the log that are known to be damaged: never served, reported, remembered over restarts.
//!
//! They are kept in the file `damaged` under the root, a line each: first offset, end offset, topic, queue id, queue offset
//! (`-` where unknown) and reason, separated by tabs. RocketMQ ignores the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minimq_protocol::message::{Damage, Verdict, VerifyBody, check};
use parking_lot::RwLock;

use crate::error::StoreError;
use crate::io::{Disk, DiskFile};
use crate::offset::{PhysicalOffset, QueueOffset};

/// A sector a disk writes or loses as one: a torn text has at least this many zero bytes, or they reach its border.
const SECTOR: usize = 512;

/// Whether a property text shows the marks of a torn write: it is not UTF-8, begins or ends with a zero byte, or holds a
/// sector of them. A zero byte elsewhere is odd but can have been sent.
#[must_use]
pub fn is_torn(properties: &[u8]) -> bool {
    if std::str::from_utf8(properties).is_err() {
        return true;
    }
    if memchr::memchr(0, properties).is_none() {
        return false;
    }
    let at_border = properties.first() == Some(&0) || properties.last() == Some(&0);
    at_border
        || properties
            .split(|byte| *byte != 0)
            .any(|zeros| zeros.len() >= SECTOR)
}

/// What is wrong with bytes that should be the record of the place `at`; `None` if nothing is. Reads all of them.
pub(crate) fn fault_of(bytes: &[u8], at: i64) -> Option<String> {
    match check(bytes, VerifyBody::Crc) {
        Verdict::Whole(record) if record.physical_offset() == at => None,
        Verdict::Damaged {
            record: Some(record),
            damage: Damage::Properties(_),
            ..
        } if record.physical_offset() == at && !is_torn(record.properties().as_bytes()) => None,
        Verdict::Whole(_) => Some("a record of another place".into()),
        Verdict::Blank { .. } => Some("an end mark".into()),
        Verdict::Damaged { damage, .. } => Some(damage.to_string()),
        Verdict::NotARecord(error) => Some(error.to_string()),
    }
}

/// A part of the log that is not what was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Its first byte: that of a record.
    pub from: PhysicalOffset,
    /// First byte after it: that of the next whole record.
    pub to: PhysicalOffset,
    /// The record it is, where its head is whole.
    pub record: Option<DamagedRecord>,
    /// What is wrong.
    pub reason: String,
}

/// What the head of a damaged record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRecord {
    /// Its topic.
    pub topic: String,
    /// Its queue.
    pub queue_id: i32,
    /// Its number in the queue.
    pub queue_offset: QueueOffset,
}

/// All damaged parts, by offset.
#[derive(Debug)]
pub struct DamageList {
    path: PathBuf,
    any: AtomicBool,
    ranges: RwLock<Vec<DamagedRange>>,
}

impl DamageList {
    /// Reads the file, if there is one. Lines that make no sense are left out.
    pub(crate) fn load(disk: &dyn Disk, root: &Path) -> Result<Self, StoreError> {
        let path = root.join("damaged");
        let mut ranges = Vec::new();
        if disk.exists(&path) {
            let file = disk
                .open(&path)
                .map_err(|error| StoreError::io(&path, "open", error))?;
            let text = read_all(&file).map_err(|error| StoreError::io(&path, "read", error))?;
            ranges = Self::parse(&text);
        }
        ranges.sort_by_key(|range| range.from);
        Ok(Self {
            path,
            any: AtomicBool::new(!ranges.is_empty()),
            ranges: RwLock::new(ranges),
        })
    }

    /// What a file of this kind says.
    pub(crate) fn parse(text: &[u8]) -> Vec<DamagedRange> {
        let text = String::from_utf8_lossy(text);
        text.lines().filter_map(parse_line).collect()
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&self) {
        self.ranges.write().clear();
        self.any.store(false, Ordering::Release);
    }

    /// Whether the record at `at` must not be served. One load as long as nothing is damaged.
    #[must_use]
    pub fn contains(&self, at: PhysicalOffset) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let ranges = self.ranges.read();
        let index = ranges.partition_point(|range| range.to <= at);
        ranges.get(index).is_some_and(|range| range.from <= at)
    }

    /// All damaged parts, ascending.
    #[must_use]
    pub fn ranges(&self) -> Vec<DamagedRange> {
        self.ranges.read().clone()
    }

    /// Adds what a scan of `scanned_from..end` found, drops what it found whole or cut, and what lies below `min`.
    pub(crate) fn update(
        &self,
        disk: &dyn Disk,
        found: &[DamagedRange],
        (min, scanned_from, end): (i64, i64, i64),
    ) -> Result<(), StoreError> {
        let mut ranges = self.ranges.write();
        let before = ranges.clone();
        ranges.retain(|range| {
            let seen_again = found.iter().any(|new| new.from == range.from);
            range.to.get() > min && range.from.get() < scanned_from.min(end) && !seen_again
        });
        // What comes behind the log's new end is new.
        for range in ranges.iter_mut() {
            range.to = range.to.min(PhysicalOffset(end));
        }
        ranges.extend_from_slice(found);
        ranges.sort_by_key(|range| range.from);
        self.any.store(!ranges.is_empty(), Ordering::Release);
        if *ranges == before && disk.exists(&self.path) != ranges.is_empty() {
            return Ok(());
        }
        let text: String = ranges.iter().map(line).collect();
        replace_file(disk, &self.path, text.as_bytes())
    }
}

fn line(range: &DamagedRange) -> String {
    let record = range.record.as_ref();
    let topic = record.map_or("-", |record| &record.topic);
    let queue_id = record.map_or("-".into(), |record| record.queue_id.to_string());
    let queue_offset = record.map_or("-".into(), |record| record.queue_offset.to_string());
    let reason = range.reason.replace(['\t', '\n', '\r'], " ");
    format!(
        "{}\t{}\t{topic}\t{queue_id}\t{queue_offset}\t{reason}\n",
        range.from, range.to
    )
}

fn parse_line(line: &str) -> Option<DamagedRange> {
    let mut fields = line.splitn(6, '\t');
    let from: i64 = fields.next()?.parse().ok()?;
    let to: i64 = fields.next()?.parse().ok()?;
    let (topic, queue_id, queue_offset) = (fields.next()?, fields.next()?, fields.next()?);
    let record =
        queue_id
            .parse()
            .ok()
            .zip(queue_offset.parse().ok())
            .map(|(queue_id, queue_offset)| DamagedRecord {
                topic: topic.into(),
                queue_id,
                queue_offset: QueueOffset(queue_offset),
            });
    let reason = fields.next().unwrap_or_default().to_owned();
    (from < to).then_some(DamagedRange {
        from: PhysicalOffset(from),
        to: PhysicalOffset(to),
        record,
        reason,
    })
}

/// All bytes of a small file.
pub(crate) fn read_all(file: &Arc<dyn DiskFile>) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(0)];
    let len = file.read_at(&mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Puts a small file in the place of another one so that a crash leaves one or the other.
pub(crate) fn replace_file(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let temporary = path.with_extension("tmp");
    let folder = path.parent().unwrap_or(Path::new("."));
    (|| {
        let file = disk.create(&temporary)?;
        file.set_len(0)?;
        file.write_all_at(content, 0)?;
        file.sync_data()?;
        disk.rename(&temporary, path)?;
        disk.sync_folder(folder)
    })()
    .map_err(|error| StoreError::io(path, "replace", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SimulatedDisk;

    fn range(from: i64, to: i64, record: Option<DamagedRecord>) -> DamagedRange {
        DamagedRange {
            from: PhysicalOffset(from),
            to: PhysicalOffset(to),
            record,
            reason: "body\tCRC".into(),
        }
    }

    #[test]
    fn a_text_is_torn_if_zeros_reach_its_border_or_fill_a_sector() {
        let sector = [b"a".as_slice(), &[0; 512], b"b"].concat();
        for torn in [b"\0a\x01b".as_slice(), b"a\x01b\0", b"a\x01\xff", &sector] {
            assert!(is_torn(torn), "{torn:?}");
        }
        for sound in [
            b"".as_slice(),
            b"a\x01b\x02c\x01d\x02",
            b"a\x01b\0b",
            "名\u{1}值".as_bytes(),
        ] {
            assert!(!is_torn(sound), "{sound:?}");
        }
    }

    #[test]
    fn damage_is_remembered_until_it_is_cut_or_cleaned_away() {
        let disk = SimulatedDisk::new();
        let root = Path::new("/s");
        disk.create_folder(root).unwrap();
        let list = DamageList::load(&disk, root).unwrap();
        let record = DamagedRecord {
            topic: "T".into(),
            queue_id: 3,
            queue_offset: QueueOffset(7),
        };
        list.update(
            &disk,
            &[range(100, 200, Some(record.clone())), range(500, 900, None)],
            (0, 0, 1000),
        )
        .unwrap();

        let again = DamageList::load(&disk, root).unwrap();
        let at = |offset| again.contains(PhysicalOffset(offset));
        assert_eq!(
            [at(99), at(100), at(199), at(200), at(899), at(900)],
            [false, true, true, false, true, false]
        );
        assert_eq!(again.ranges()[0].record, Some(record));
        assert_eq!(again.ranges()[0].reason, "body CRC");

        // A later scan from 400 on finds all whole; the older damage is cleaned away with its file.
        again.update(&disk, &[], (150, 400, 1000)).unwrap();
        assert_eq!(again.ranges().len(), 1);
        again.update(&disk, &[], (200, 400, 1000)).unwrap();
        assert_eq!(DamageList::load(&disk, root).unwrap().ranges(), []);
    }
}
