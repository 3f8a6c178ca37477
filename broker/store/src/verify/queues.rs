//! Consume queues beside the records of the log. Both are walked in the order of the log, so what is kept in memory is a
//! place in each queue and a block of its entries.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;

use super::files::{Files, Layout, read_at};
use super::report::{Finding, Findings, QueueCounts};
use crate::consume_queue::QueueEntry;
use crate::consume_queue::entry::{ENTRY_LEN, entries};
use crate::consume_queue::ext::{is_address, position_of};
use crate::dispatch_record::DispatchRecord;
use crate::error::StoreError;
use crate::offset::PhysicalOffset;
use crate::recovery::RecordPlace;

/// Entries read at a time.
const BLOCK: i64 = 256;
/// Bytes of an extension unit before its bit map: length, tags code, store time.
const UNIT_HEAD: usize = 18;

#[derive(Debug)]
pub(super) struct QueueCheck {
    queues: HashMap<String, HashMap<i32, Queue>>,
    /// Messages of queues that have no files.
    strangers: HashMap<(String, i32), u64>,
    /// Entries of messages of deleted topics.
    left: BTreeMap<(String, i32), u64>,
    log_min: i64,
    counts: QueueCounts,
}

#[derive(Debug)]
struct Queue {
    files: Files,
    ext: Files,
    file_len: i64,
    ext_len: u64,
    /// First number there is a file for, and the number just past the last entry written.
    first: i64,
    end: i64,
    /// Next number to be compared.
    next: i64,
    block: (i64, Vec<QueueEntry>),
    /// Entries that point further on than the record with their number, with what that would have: right if the queue
    /// began again later. The first ones, and how many.
    further: Vec<(i64, QueueEntry, QueueEntry)>,
    further_total: u64,
}

/// Most entries kept in `further`.
const MOST_FURTHER: usize = 1_000;

impl QueueCheck {
    pub(super) fn new(layout: &Layout, log_min: i64) -> Result<Self, StoreError> {
        let mut queues: HashMap<String, HashMap<i32, Queue>> = HashMap::new();
        let mut counts = QueueCounts::default();
        for ((topic, queue_id), files) in &layout.queues {
            let (Some((first, ..)), Some(file_len)) = (files.first(), layout.sizes.queue_file)
            else {
                continue;
            };
            let mut queue = Queue {
                ext: layout
                    .ext
                    .get(&(topic.clone(), *queue_id))
                    .cloned()
                    .unwrap_or_default(),
                file_len: file_len as i64,
                ext_len: layout.sizes.ext_file.unwrap_or(0),
                first: first / ENTRY_LEN as i64,
                end: 0,
                next: first / ENTRY_LEN as i64,
                block: (0, Vec::new()),
                further: Vec::new(),
                further_total: 0,
                files: files.clone(),
            };
            queue.end = queue.find_end()?;
            counts.queues += 1;
            queues
                .entry(topic.clone())
                .or_default()
                .insert(*queue_id, queue);
        }
        Ok(Self {
            queues,
            strangers: HashMap::new(),
            left: BTreeMap::new(),
            log_min,
            counts,
        })
    }

    pub(super) fn counts(&self) -> QueueCounts {
        self.counts
    }

    fn all(&self) -> impl Iterator<Item = &Queue> {
        self.queues.values().flat_map(HashMap::values)
    }

    /// Where the last entry's record ends, over all queues.
    pub(super) fn largest_end(&self) -> i64 {
        self.all().filter_map(Queue::last_end).max().unwrap_or(0)
    }

    /// Where records begin in a range of the log, ascending.
    pub(super) fn record_starts(
        &self,
        range: &Range<PhysicalOffset>,
    ) -> Result<Vec<RecordPlace>, StoreError> {
        let mut places = Vec::new();
        for queue in self.all() {
            let mut at = queue.first_at_or_after(range.start.get())?;
            'queue: while at < queue.end {
                let block = queue.read(at, (at + BLOCK).min(queue.end))?;
                if block.is_empty() {
                    break;
                }
                at += block.len() as i64;
                for entry in block.iter().filter(|e| is_message(e)) {
                    let place = PhysicalOffset(entry.physical_offset);
                    if place >= range.end {
                        break 'queue;
                    }
                    if range.contains(&place) {
                        places.push(RecordPlace {
                            at: place,
                            size: entry.size,
                        });
                    }
                }
            }
        }
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }

    /// Compares the entry of a record, and those before it that no record claimed.
    pub(super) fn record(
        &mut self,
        record: &DispatchRecord<'_>,
        findings: &mut Findings,
    ) -> Result<(), StoreError> {
        let number = record.queue_offset.get();
        let at = record.physical_offset.get();
        let name = || (record.topic.to_owned(), record.queue_id);
        let queue = self
            .queues
            .get_mut(record.topic)
            .and_then(|queues| queues.get_mut(&record.queue_id));
        let Some(queue) = queue else {
            *self.strangers.entry(name()).or_default() += 1;
            return Ok(());
        };
        if number < queue.first {
            // Its file was cleaned, or belonged to a topic of this name that was deleted.
            self.counts.superseded += 1;
            return Ok(());
        }
        if number < queue.next {
            self.counts.superseded += std::mem::take(&mut queue.further_total);
            queue.further.clear();
        }
        for skipped in queue.next..number.min(queue.end) {
            let entry = queue.entry(skipped)?;
            // One that points further on is of a newer message with this number.
            if let Some(entry) = entry.filter(is_message)
                && (self.log_min..at).contains(&entry.physical_offset)
            {
                findings.add(Finding::EntryDangling {
                    queue: name(),
                    number: skipped,
                    entry,
                });
            }
        }
        queue.next = number + 1;
        let expected = QueueEntry {
            physical_offset: at,
            size: record.size,
            tags_code: record.tags_code,
        };
        match queue.entry(number)? {
            Some(entry) if entry.is_filler() && record.damaged => self.counts.matched += 1,
            None if number >= queue.end => self.counts.behind += 1,
            Some(entry) if is_message(&entry) => {
                if entry.physical_offset > at {
                    queue.further_total += 1;
                    if queue.further.len() < MOST_FURTHER {
                        queue.further.push((number, entry, expected));
                    }
                } else if (entry.physical_offset, entry.size) == (at, record.size)
                    && (record.damaged || queue.says(entry.tags_code, record)?)
                {
                    self.counts.matched += 1;
                } else {
                    findings.add(Finding::EntryWrong {
                        queue: name(),
                        number,
                        entry,
                        expected,
                    });
                }
            }
            _ => findings.add(Finding::EntryMissing {
                queue: name(),
                number,
                at: record.physical_offset,
            }),
        }
        Ok(())
    }

    /// Looks whether a queue still has the entry of a record whose topic was deleted.
    pub(super) fn deleted(&mut self, record: &DispatchRecord<'_>) -> Result<(), StoreError> {
        let (number, at) = (record.queue_offset.get(), record.physical_offset.get());
        self.counts.superseded += u64::from(record.is_consumable());
        let queues = self.queues.get_mut(record.topic);
        let Some(queue) = queues.and_then(|queues| queues.get_mut(&record.queue_id)) else {
            return Ok(());
        };
        let entry = queue.entry(number)?.filter(is_message);
        if entry.is_some_and(|entry| entry.physical_offset == at) {
            queue.next = queue.next.max(number + 1);
            let name = (record.topic.to_owned(), record.queue_id);
            *self.left.entry(name).or_default() += 1;
        }
        Ok(())
    }

    /// After the last record: what is left in queues, and queues that are missing.
    pub(super) fn finish(&mut self, findings: &mut Findings) -> Result<(), StoreError> {
        for (topic, queues) in &mut self.queues {
            for (queue_id, queue) in queues {
                for (from, to) in queue.gaps() {
                    findings.add(Finding::QueueGap {
                        folder: queue.folder(),
                        from,
                        to,
                    });
                }
                let unlisted = queue.further_total - queue.further.len() as u64;
                findings.total += unlisted;
                for (number, entry, expected) in queue.further.drain(..) {
                    findings.add(Finding::EntryWrong {
                        queue: (topic.clone(), *queue_id),
                        number,
                        entry,
                        expected,
                    });
                }
                for number in queue.next..queue.end {
                    let entry = queue.entry(number)?.filter(is_message);
                    let Some(entry) = entry.filter(|e| e.physical_offset >= self.log_min) else {
                        continue;
                    };
                    findings.add(Finding::EntryDangling {
                        queue: (topic.clone(), *queue_id),
                        number,
                        entry,
                    });
                }
            }
        }
        for (queue, entries) in std::mem::take(&mut self.left) {
            findings.add(Finding::DeletedTopic { queue, entries });
        }
        let mut strangers: Vec<_> = self.strangers.drain().collect();
        strangers.sort();
        for (queue, records) in strangers {
            findings.add(Finding::NoQueue { queue, records });
        }
        Ok(())
    }
}

fn is_message(entry: &QueueEntry) -> bool {
    entry.is_written() && !entry.is_filler()
}

impl Queue {
    fn folder(&self) -> PathBuf {
        let file = self.files.first().map(|(_, _, path)| path.as_path());
        file.and_then(|path| path.parent())
            .map_or_else(PathBuf::new, ToOwned::to_owned)
    }

    /// Numbers of entries whose files are missing.
    fn gaps(&self) -> Vec<(i64, i64)> {
        let gap = |pair: &[(i64, u64, PathBuf)]| match pair {
            [(start, ..), (next, ..)] if start + self.file_len < *next => Some((
                (start + self.file_len) / ENTRY_LEN as i64,
                next / ENTRY_LEN as i64,
            )),
            _ => None,
        };
        self.files.windows(2).filter_map(gap).collect()
    }

    /// Entries `[from, to)`, but none from beyond the file that holds `from`.
    fn read(&self, from: i64, to: i64) -> Result<Vec<QueueEntry>, StoreError> {
        let address = from * ENTRY_LEN as i64;
        let index = self
            .files
            .partition_point(|(start, ..)| start + self.file_len <= address);
        let Some((start, _, path)) = self.files.get(index).filter(|(s, ..)| *s <= address) else {
            return Ok(Vec::new());
        };
        let end = (to * ENTRY_LEN as i64).min(start + self.file_len);
        let len = usize::try_from(end - address).unwrap_or(0);
        let bytes = read_at(path, (address - start) as u64, len)?;
        Ok(entries(&bytes).collect())
    }

    /// Where the last message's record ends.
    fn last_end(&self) -> Option<i64> {
        let per_file = self.file_len / ENTRY_LEN as i64;
        let mut to = self.end;
        while to > self.first {
            let in_file = (to - 1) - (to - 1) % per_file;
            let from = (to - BLOCK).max(in_file);
            let block = self.read(from, to).ok()?;
            if let Some(end) = block.iter().rev().find_map(QueueEntry::physical_end) {
                return Some(end);
            }
            to = from;
        }
        None
    }

    /// The entry of a number, if it is written.
    fn entry(&mut self, number: i64) -> Result<Option<QueueEntry>, StoreError> {
        let (from, block) = &self.block;
        let known = usize::try_from(number - from)
            .ok()
            .and_then(|at| block.get(at).copied());
        let entry = match known {
            Some(entry) => Some(entry),
            None => {
                self.block = (number, self.read(number, number + BLOCK)?);
                self.block.1.first().copied()
            }
        };
        Ok(entry.filter(QueueEntry::is_written))
    }

    /// Number just past the last written entry: zeros follow the entries of a file to its end.
    fn find_end(&self) -> Result<i64, StoreError> {
        let per_file = self.file_len / ENTRY_LEN as i64;
        for (start, ..) in self.files.iter().rev() {
            let first = start / ENTRY_LEN as i64;
            let mut to = first + per_file;
            while to > first {
                let from = (to - BLOCK).max(first);
                let block = self.read(from, to)?;
                if let Some(last) = block.iter().rposition(QueueEntry::is_written) {
                    return Ok(from + last as i64 + 1);
                }
                to = from;
            }
        }
        Ok(self.first)
    }

    /// The first number from which on entries may be of records at or after `physical`.
    fn first_at_or_after(&self, physical: i64) -> Result<i64, StoreError> {
        let (mut low, mut high) = (self.first, self.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let block = self.read(middle, (middle + BLOCK).min(high))?;
            match block.iter().position(is_message) {
                Some(at) if block[at].physical_offset < physical => low = middle + at as i64 + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Whether a tag field, or the unit it points to, says what the record does.
    fn says(&self, tags_code: i64, record: &DispatchRecord<'_>) -> Result<bool, StoreError> {
        if !is_address(tags_code) || self.ext.is_empty() {
            return Ok(tags_code == record.tags_code);
        }
        let position = position_of(tags_code);
        let file = self.ext.iter().find(|(start, ..)| {
            (*start..start.saturating_add(self.ext_len as i64)).contains(&position)
        });
        let Some((start, _, path)) = file else {
            return Ok(false);
        };
        let unit = read_at(path, (position - start) as u64, UNIT_HEAD)?;
        let word = |at: usize| {
            unit.get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|word| i64::from_be_bytes(*word))
        };
        Ok(word(2) == Some(record.tags_code) && word(10) == Some(record.store_timestamp))
    }
}
