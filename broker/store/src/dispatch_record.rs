//! What dispatch tells consume queues and index about one record of the log.

use minimq_protocol::hash::tags_code;
use minimq_protocol::message::RecordRef;
use minimq_protocol::properties::{Properties, name};

use crate::delay_level::DelayLevels;
use crate::offset::{PhysicalOffset, QueueOffset};

const TAGS: &[u8] = name::TAGS.as_bytes();
const KEYS: &[u8] = name::KEYS.as_bytes();
const UNIQ_KEY: &[u8] = name::UNIQ_KEY.as_bytes();

/// The properties that queues and index look at.
#[derive(Debug, Default)]
pub(crate) struct Marks<'a> {
    pub(crate) tags: Option<&'a [u8]>,
    pub(crate) keys: Option<&'a [u8]>,
    pub(crate) uniq_key: Option<&'a [u8]>,
}

impl<'a> Marks<'a> {
    /// Finds them in one walk; of a doubled name the last value counts.
    pub(crate) fn look_at(&mut self, properties: &'a [u8]) {
        for (name, value) in Properties::from_bytes(properties).iter_bytes() {
            match name {
                TAGS => self.tags = Some(value),
                KEYS => self.keys = Some(value),
                UNIQ_KEY => self.uniq_key = Some(value),
                _ => {}
            }
        }
    }
}

/// One record of the commit log as consume queues, index and held pulls need it. Borrowed from the log's bytes: nothing
/// here outlives the dispatch of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchRecord<'a> {
    /// Topic as stored (of a delayed message the schedule topic).
    pub topic: &'a str,
    /// Queue as stored.
    pub queue_id: i32,
    /// First byte of the record.
    pub physical_offset: PhysicalOffset,
    /// Whole length of the record.
    pub size: i32,
    /// Tag hash, or the delivery time in ms of a delayed message (store spec 4.2).
    pub tags_code: i64,
    /// When the broker stored it, ms.
    pub store_timestamp: i64,
    /// Number of its consume-queue entry; 0 for prepared and rollback records, which get none.
    pub queue_offset: QueueOffset,
    /// Value of `KEYS`: index keys between single blanks; empty if there is none.
    pub keys: &'a str,
    /// Value of `UNIQ_KEY`.
    pub uniq_key: Option<&'a str>,
    /// `sysFlag`; its transaction bits decide about queue and index entries.
    pub sys_flag: i32,
    /// Physical offset of the half message this record commits or rolls back, else 0.
    pub prepared_transaction_offset: i64,
    /// Properties text as stored.
    pub properties: &'a [u8],
    /// The body or the property text is known to be damaged: the record keeps its place in the queue (a filler entry)
    /// so that later offsets stay what they were, but is never served and never indexed. `tags_code`, `keys`,
    /// `uniq_key` and `properties` are empty.
    pub damaged: bool,
}

impl<'a> DispatchRecord<'a> {
    /// What a whole record of the log says.
    #[must_use]
    pub fn of(record: &'a RecordRef<'_>, delay_levels: &DelayLevels) -> Self {
        let properties = record.properties();
        let mut marks = Marks::default();
        marks.look_at(properties.as_bytes());
        let text =
            |value: Option<&'a [u8]>| value.and_then(|value| std::str::from_utf8(value).ok());
        let (topic, store_timestamp) = (record.topic(), record.store_timestamp());
        let due = delay_levels.due_time(topic, properties, store_timestamp);
        Self {
            tags_code: due.unwrap_or_else(|| tags_code(text(marks.tags))),
            keys: text(marks.keys).unwrap_or_default(),
            uniq_key: text(marks.uniq_key),
            properties: properties.as_bytes(),
            damaged: false,
            ..Self::damaged(record)
        }
    }

    /// What is believed of a record whose body or property text is damaged: its head.
    #[must_use]
    pub fn damaged(record: &'a RecordRef<'_>) -> Self {
        Self {
            topic: record.topic(),
            queue_id: record.queue_id(),
            physical_offset: PhysicalOffset(record.physical_offset()),
            size: i32::try_from(record.size()).unwrap_or(i32::MAX),
            tags_code: 0,
            store_timestamp: record.store_timestamp(),
            queue_offset: QueueOffset(record.queue_offset()),
            keys: "",
            uniq_key: None,
            sys_flag: record.sys_flag(),
            prepared_transaction_offset: record.prepared_transaction_offset(),
            properties: &[],
            damaged: true,
        }
    }

    /// First byte after the record.
    #[must_use]
    pub fn end(&self) -> PhysicalOffset {
        self.physical_offset.plus(i64::from(self.size))
    }

    /// Whether the record has an entry in its consume queue: all but prepared and rolled-back ones do.
    #[must_use]
    pub fn is_consumable(&self) -> bool {
        matches!(self.sys_flag & 0xC, 0x0 | 0x8)
    }
}
