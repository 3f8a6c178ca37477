//! What a check of a store found.

use std::fmt;
use std::path::PathBuf;

use super::files::StoreSizes;
use crate::checkpoint::CheckpointContent;
use crate::consume_queue::QueueEntry;
use crate::damage::DamagedRange;
use crate::offset::PhysicalOffset;
use crate::recovery::{Cut, RecoveryReport};

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A part of the log that is not what was stored; a start marks it, and it is never served.
    Damaged(DamagedRange),
    /// The log ends here, though something stands behind: a start cuts it.
    Cut(Cut),
    /// A file shorter than its size; the rest counts as zeros.
    ShortFile {
        /// The file.
        path: PathBuf,
        /// Its length.
        len: u64,
        /// The length of all others.
        expected: u64,
    },
    /// Files are missing between those of a queue; a start makes the queue again.
    QueueGap {
        /// The queue's folder.
        folder: PathBuf,
        /// Number of the first entry that is missing.
        from: i64,
        /// Number of the first one there is again.
        to: i64,
    },
    /// The log has messages of a queue that has no files: a deleted topic's, or the files were lost.
    NoQueue {
        /// Topic and queue.
        queue: (String, i32),
        /// How many.
        records: u64,
    },
    /// A message of the log is not in its queue, where later ones are.
    EntryMissing {
        /// Topic and queue.
        queue: (String, i32),
        /// Its number.
        number: i64,
        /// Where its record is.
        at: PhysicalOffset,
    },
    /// An entry points to another place, or says another length or tag code, than the message with its number has.
    EntryWrong {
        /// Topic and queue.
        queue: (String, i32),
        /// Its number.
        number: i64,
        /// What the queue has.
        entry: QueueEntry,
        /// What it should have.
        expected: QueueEntry,
    },
    /// An entry points to where the log has no such message.
    EntryDangling {
        /// Topic and queue.
        queue: (String, i32),
        /// Its number.
        number: i64,
        /// What it says.
        entry: QueueEntry,
    },
    /// A queue has entries of messages that count for nothing, since its topic was deleted: a start removes them.
    DeletedTopic {
        /// Topic and queue.
        queue: (String, i32),
        /// How many.
        entries: u64,
    },
    /// An index file contradicts itself.
    IndexFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A key of a message is not in the index, where later ones are.
    KeyMissing {
        /// Where the record is.
        at: PhysicalOffset,
        /// Topic and key, as hashed.
        key: String,
    },
    /// An index entry for which the log has no such key.
    KeyDangling {
        /// The index file.
        path: PathBuf,
        /// Number of the entry.
        number: u32,
        /// Where it points.
        at: PhysicalOffset,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end_of = |entry: &QueueEntry| (entry.physical_offset, entry.size, entry.tags_code);
        match self {
            Self::Damaged(range) => {
                write!(
                    out,
                    "damaged: commit log {}..{}: {}",
                    range.from, range.to, range.reason
                )?;
                match &range.record {
                    Some(record) => write!(
                        out,
                        " ({}/{} number {})",
                        record.topic, record.queue_id, record.queue_offset
                    ),
                    None => Ok(()),
                }
            }
            Self::Cut(cut) => write!(
                out,
                "torn: the commit log ends at {}, {} records behind it are cut: {}",
                cut.at,
                cut.records.len(),
                cut.reason
            ),
            Self::ShortFile {
                path,
                len,
                expected,
            } => write!(
                out,
                "short: {} has {len} of {expected} bytes",
                path.display()
            ),
            Self::QueueGap { folder, from, to } => write!(
                out,
                "queue: {} lacks the files of entries {from}..{to}",
                folder.display()
            ),
            Self::NoQueue {
                queue: (topic, id),
                records,
            } => write!(
                out,
                "queue: {topic}/{id} has no files, the log has {records} messages of it (deleted topic, or lost)"
            ),
            Self::EntryMissing {
                queue: (topic, id),
                number,
                at,
            } => write!(
                out,
                "queue: {topic}/{id} lacks entry {number} for the message at {at}"
            ),
            Self::EntryWrong {
                queue: (topic, id),
                number,
                entry,
                expected,
            } => write!(
                out,
                "queue: {topic}/{id} entry {number} says (offset, size, tags code) {:?}, the message has {:?}",
                end_of(entry),
                end_of(expected)
            ),
            Self::EntryDangling {
                queue: (topic, id),
                number,
                entry,
            } => write!(
                out,
                "queue: {topic}/{id} entry {number} points to {}, where the log has no such message",
                entry.physical_offset
            ),
            Self::DeletedTopic {
                queue: (topic, id),
                entries,
            } => write!(
                out,
                "queue: {topic}/{id} has {entries} entries of a topic that was deleted"
            ),
            Self::IndexFile { path, reason } => {
                write!(out, "index: {}: {reason}", path.display())
            }
            Self::KeyMissing { at, key } => {
                write!(out, "index: key {key} of the message at {at} is missing")
            }
            Self::KeyDangling { path, number, at } => write!(
                out,
                "index: {} entry {number} points to {at}, where the log has no such key",
                path.display()
            ),
        }
    }
}

/// The first findings, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The first ones.
    pub list: Vec<Finding>,
    /// All of them.
    pub total: u64,
    most: usize,
}

impl Findings {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.total += 1;
        if self.list.len() < self.most {
            self.list.push(finding);
        }
    }
}

/// Consume queues, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Queues there are.
    pub queues: u64,
    /// Entries that point to the message with their number.
    pub matched: u64,
    /// Messages behind the end of their queue: a start enters them.
    pub behind: u64,
    /// Messages of topics that were deleted, and such whose number a newer one has.
    pub superseded: u64,
}

/// Index files, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCounts {
    /// Files there are.
    pub files: u64,
    /// Entries for which the log has the key.
    pub matched: u64,
    /// Keys of messages behind the end of the index: it is filled in the background after a start.
    pub behind: u64,
}

/// The result of [`super::StoreReader::verify`].
#[derive(Clone, Debug)]
pub struct VerifyReport {
    /// The sizes of the files.
    pub sizes: StoreSizes,
    /// Whether the last stop was clean.
    pub clean: bool,
    /// What the checkpoint says.
    pub checkpoint: CheckpointContent,
    /// First byte of the log.
    pub log_min: PhysicalOffset,
    /// The log, as a start would find it.
    pub log: RecoveryReport,
    /// The queues.
    pub queues: QueueCounts,
    /// The index.
    pub index: IndexCounts,
    /// What is not as it should be.
    pub findings: Findings,
}

impl VerifyReport {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.total == 0
    }
}
