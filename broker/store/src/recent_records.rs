//! The records appended last, as the append knew them: dispatch and index find here what they would have to read out of the
//! log again, length by length and property by property.
//!
//! It is a memory only. A record that is not here — an older one, a slave's, one of the schedule topic — is read from the
//! log, with the same result.

use std::collections::VecDeque;

use minimq_protocol::hash::tags_code;
use minimq_protocol::properties::joined_len;
use parking_lot::Mutex;

use crate::append::message::AppendMessage;
use crate::delay_level::SCHEDULE_TOPIC;
use crate::dispatch_record::{DispatchRecord, Marks};
use crate::offset::{PhysicalOffset, QueueOffset};

/// So many are kept: those that follow the log are rarely further behind under load. One takes 72 bytes.
const KEPT: usize = 16 * 1024;
/// So many are taken out at a time.
const TAKEN: usize = 256;

/// Where a value lies in a property text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    at: u16,
    len: u16,
}

impl Span {
    fn of(self, text: &[u8]) -> Option<&str> {
        let at = usize::from(self.at);
        let value = text.get(at..at + usize::from(self.len))?;
        std::str::from_utf8(value).ok()
    }
}

/// What a message's properties say to queues and index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest {
    tags_code: i64,
    keys: Option<Span>,
    uniq_key: Option<Span>,
}

impl Digest {
    /// Of a message whose property text is UTF-8. `None` if what the queues are told depends on more than that.
    pub(crate) fn of(message: &AppendMessage<'_>) -> Option<Self> {
        if message.topic == SCHEDULE_TOPIC {
            return None;
        }
        let (own, appended) = (message.properties, message.appended_properties);
        let mut marks = Marks::default();
        marks.look_at(own);
        marks.look_at(appended);
        let appended_at = joined_len(own, appended) - appended.len();
        let span = |value: &[u8]| {
            let place = |text: &[u8]| {
                let at = value.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
                (at + value.len() <= text.len()).then_some(at)
            };
            let at = place(own).or_else(|| Some(appended_at + place(appended)?))?;
            Some(Span {
                at: u16::try_from(at).ok()?,
                len: u16::try_from(value.len()).ok()?,
            })
        };
        let span = |value: Option<&[u8]>| match value {
            None => Some(None),
            Some(value) => span(value).map(Some),
        };
        let tags = marks.tags.and_then(|tags| std::str::from_utf8(tags).ok());
        Some(Self {
            tags_code: tags_code(tags),
            keys: span(marks.keys)?,
            uniq_key: span(marks.uniq_key)?,
        })
    }
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentRecord {
    physical_offset: i64,
    store_timestamp: i64,
    queue_offset: i64,
    prepared_transaction_offset: i64,
    digest: Digest,
    size: i32,
    queue_id: i32,
    sys_flag: i32,
    topic_len: u16,
    properties_len: u16,
}

impl RecentRecord {
    /// Of a message whose record of `size` bytes was written at `physical_offset`. `None` if its lengths are not those of
    /// a record.
    pub(crate) fn of(
        message: &AppendMessage<'_>,
        digest: Digest,
        (physical_offset, size): (i64, usize),
        queue_offset: i64,
        store_timestamp: i64,
    ) -> Option<Self> {
        let properties = joined_len(message.properties, message.appended_properties);
        Some(Self {
            physical_offset,
            store_timestamp,
            queue_offset,
            prepared_transaction_offset: message.prepared_transaction_offset,
            digest,
            size: i32::try_from(size).ok()?,
            queue_id: message.queue_id,
            sys_flag: message.fields(0).written_sys_flag(),
            topic_len: u16::try_from(message.topic.len()).ok()?,
            properties_len: u16::try_from(properties).ok()?,
        })
    }

    /// Length of the record in bytes.
    pub(crate) fn size(&self) -> usize {
        usize::try_from(self.size).unwrap_or(0)
    }

    /// First byte after it.
    pub(crate) fn end(&self) -> i64 {
        self.physical_offset + i64::from(self.size)
    }

    /// What dispatch is told, from the record's own `bytes`. `None` if there are not as many as it has.
    pub(crate) fn read<'a>(&self, bytes: &'a [u8]) -> Option<DispatchRecord<'a>> {
        if bytes.len() != self.size() {
            return None;
        }
        let properties_at = bytes.len().checked_sub(usize::from(self.properties_len))?;
        let topic_end = properties_at.checked_sub(2)?;
        let topic_at = topic_end.checked_sub(usize::from(self.topic_len))?;
        let properties = bytes.get(properties_at..)?;
        let value = |span: Option<Span>| span.and_then(|span| span.of(properties));
        Some(DispatchRecord {
            topic: std::str::from_utf8(bytes.get(topic_at..topic_end)?).ok()?,
            queue_id: self.queue_id,
            physical_offset: PhysicalOffset(self.physical_offset),
            size: self.size,
            tags_code: self.digest.tags_code,
            store_timestamp: self.store_timestamp,
            queue_offset: QueueOffset(self.queue_offset),
            keys: value(self.digest.keys).unwrap_or_default(),
            uniq_key: value(self.digest.uniq_key),
            sys_flag: self.sys_flag,
            prepared_transaction_offset: self.prepared_transaction_offset,
            properties,
            damaged: false,
        })
    }
}

/// The records appended last, in the order of the log; some may be left out.
#[derive(Debug)]
pub(crate) struct RecentRecords {
    records: Mutex<VecDeque<RecentRecord>>,
}

impl Default for RecentRecords {
    /// None yet. Memory for all of them, which is used as they come.
    fn default() -> Self {
        Self {
            records: Mutex::new(VecDeque::with_capacity(KEPT)),
        }
    }
}

impl RecentRecords {
    /// Takes over what was just written, behind all that is here. Before it is published, so that whoever sees the bytes
    /// finds it here.
    pub(crate) fn add(&self, written: &mut Vec<RecentRecord>) {
        let mut records = self.records.lock();
        let excess = (records.len() + written.len()).saturating_sub(KEPT);
        let drained = excess.min(records.len());
        records.drain(..drained);
        records.extend(written.drain(..));
    }

    /// Copies out those from the place `at` on. Gives the first place that is still known here.
    fn copy(&self, at: i64, into: &mut Vec<RecentRecord>) -> i64 {
        let records = self.records.lock();
        let from = records.partition_point(|record| record.physical_offset < at);
        into.extend(records.iter().skip(from).take(TAKEN));
        records.front().map_or(at, |first| first.physical_offset)
    }
}

/// Someone's way along the recent records.
#[derive(Debug, Default)]
pub(crate) struct RecentCursor {
    taken: Vec<RecentRecord>,
    /// The next of them.
    next: usize,
    /// Below this nothing was known when it was last looked for.
    known_from: i64,
}

impl RecentCursor {
    /// Goes on at the place `at`, which may lie before.
    pub(crate) fn seek(&mut self, at: i64) {
        self.next = self
            .taken
            .partition_point(|record| record.physical_offset < at);
        if self
            .taken
            .first()
            .is_some_and(|first| first.physical_offset > at)
        {
            self.taken.clear();
        }
    }

    /// The record that begins at `at`, if it is known. Places come in the order of the log.
    pub(crate) fn at(&mut self, records: &RecentRecords, at: i64) -> Option<RecentRecord> {
        let passed = |record: &RecentRecord| record.physical_offset < at;
        while self.taken.get(self.next).is_some_and(passed) {
            self.next += 1;
        }
        if self.next == self.taken.len() {
            if at < self.known_from {
                return None;
            }
            self.next = 0;
            self.taken.clear();
            self.known_from = records.copy(at, &mut self.taken);
        }
        let found = self.taken.get(self.next).copied()?;
        (found.physical_offset == at).then(|| {
            self.next += 1;
            found
        })
    }
}

#[cfg(test)]
mod tests {
    use minimq_protocol::message::RecordRef;
    use proptest::prelude::*;

    use super::*;
    use crate::delay_level::DelayLevels;

    fn message<'a>(topic: &'a str, own: &'a str, appended: &'a str) -> AppendMessage<'a> {
        AppendMessage {
            topic,
            queue_id: 3,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: "[::1]:5000".parse().unwrap(),
            store_host: "127.0.0.1:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 77,
            body: b"body",
            properties: own.as_bytes(),
            appended_properties: appended.as_bytes(),
            joins_previous: false,
        }
    }

    /// A message's record at log offset `at`, and what is remembered of it.
    fn written(message: &AppendMessage<'_>, at: i64) -> (Vec<u8>, Option<RecentRecord>) {
        let mut fields = message.fields(0);
        (
            fields.physical_offset,
            fields.queue_offset,
            fields.store_timestamp,
        ) = (at, 9, 1234);
        let bytes = fields.encode().unwrap();
        let recent = Digest::of(message)
            .and_then(|digest| RecentRecord::of(message, digest, (at, bytes.len()), 9, 1234));
        (bytes.into(), recent)
    }

    fn records(places: impl IntoIterator<Item = i64>) -> Vec<RecentRecord> {
        let message = message("T", "", "");
        let digest = Digest::of(&message).unwrap();
        let record = |at| RecentRecord::of(&message, digest, (at, 100), 0, 0).unwrap();
        places.into_iter().map(record).collect()
    }

    fn text() -> impl Strategy<Value = String> {
        let name = prop_oneof!["KEYS", "TAGS", "UNIQ_KEY", "[a-zé]{0,3}"];
        let pair = (name, prop_oneof!["", "\u{1}"], "[a-c é]{0,6}")
            .prop_map(|(name, between, value)| format!("{name}{between}{value}"));
        let end = prop_oneof!["", "\u{2}"];
        (proptest::collection::vec(pair, 0..6), end)
            .prop_map(|(pairs, end)| pairs.join("\u{2}") + &end)
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_what_the_record_says(own in text(), appended in text()) {
            let message = message("Töpic", &own, &appended);
            let (bytes, recent) = written(&message, 4096);
            let levels = DelayLevels::default();
            let record = RecordRef::parse_slice(&bytes).unwrap();
            prop_assert_eq!(
                recent.unwrap().read(&bytes),
                Some(DispatchRecord::of(&record, &levels))
            );
        }
    }

    #[test]
    fn a_delayed_message_is_left_to_its_record_which_knows_when_it_is_due() {
        let message = message(SCHEDULE_TOPIC, "DELAY\u{1}3", "");
        assert!(written(&message, 0).1.is_none());
    }

    #[test]
    fn a_record_cut_short_is_not_read() {
        let (mut bytes, recent) = written(&message("T", "KEYS\u{1}a", ""), 0);
        bytes.pop();
        assert_eq!(recent.unwrap().read(&bytes), None);
    }

    #[test]
    fn a_way_along_the_records_goes_over_gaps_and_back() {
        let all = RecentRecords::default();
        let mut cursor = RecentCursor::default();
        let mut at = |all: &RecentRecords, place| {
            let found = cursor.at(all, place);
            assert!(found.is_none_or(|found| found.physical_offset == place));
            found.is_some()
        };
        assert!(!at(&all, 0));
        all.add(&mut records([0, 100, 300]));
        assert!(at(&all, 0) && at(&all, 100) && !at(&all, 200) && at(&all, 300));
        assert!(!at(&all, 400));
        all.add(&mut records((4..1_000).map(|number| number * 100)));
        assert!((4..1_000).all(|number| at(&all, number * 100)));
        cursor.seek(500);
        assert!(cursor.at(&all, 500).is_some() && cursor.at(&all, 600).is_some());
    }

    #[test]
    fn the_oldest_are_forgotten_and_who_is_that_far_behind_finds_the_newer_ones_later() {
        let all = RecentRecords::default();
        let (kept, more) = (KEPT as i64, 1_000);
        all.add(&mut records((0..kept).map(|number| number * 100)));
        all.add(&mut records((kept..kept + more).map(|number| number * 100)));
        assert_eq!(all.records.lock().len(), KEPT);
        let mut cursor = RecentCursor::default();
        let found: Vec<bool> = (0..kept + more)
            .map(|number| cursor.at(&all, number * 100).is_some())
            .collect();
        let known_from = found.iter().position(|found| *found);
        assert_eq!(known_from, Some(more as usize));
        assert!(found.iter().skip(more as usize).all(|found| *found));
    }
}
