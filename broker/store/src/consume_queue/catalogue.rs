//! Which queues there were when the store was last flushed, and which topics were deleted: the file `queues` under the
//! root. A line has three fields, separated by tabs. RocketMQ ignores it.
//!
//! * Topic, queue id, next number. A queue in it without files was lost (somebody deleted its folder). Its entries are
//!   made again from the log, and its numbers go on even if the log has none of its messages any more.
//! * Topic, `deleted`, offset. Messages of the topic that begin below that offset of the log are of one that was deleted;
//!   a new one of this name may have some from there on. The line stays as long as the log has anything below.
//! * Topic, `deleting`, offset. A deletion began when the log ended there: messages below are of the deleted topic, those
//!   from there on of it or of a new one. It stands there before the numbers begin at 0, and `deleted` takes its place.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::queue::ConsumeQueue;
use crate::damage::{read_all, replace_file};
use crate::error::StoreError;
use crate::io::Disk;

/// Second field of the line of a deleted topic.
const DELETED: &str = "deleted";
/// Of one whose deletion began.
const DELETING: &str = "deleting";

/// A queue whose files are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) topic: String,
    pub(super) queue_id: i32,
    /// Number of the next message.
    pub(super) max: i64,
}

/// Topics that were deleted: their messages lie below this offset.
pub(super) type DeletedTopics = BTreeMap<Box<str>, i64>;

/// The file, and what it told.
#[derive(Debug)]
pub(super) struct Catalogue {
    path: PathBuf,
    /// What the file says, once that is known.
    written: Option<String>,
    lost: Vec<Lost>,
    deleted: DeletedTopics,
    /// Topics whose deletion began, and where the log ended then.
    begun: DeletedTopics,
    remade: RemadeTopics,
}

/// Deleted topics whose queues a start made none of, since nothing tells which are the deleted ones: those of messages
/// that count are made again from the whole log.
pub(super) type RemadeTopics = BTreeSet<Box<str>>;

impl Catalogue {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            path: root.join("queues"),
            written: None,
            lost: Vec::new(),
            deleted: DeletedTopics::new(),
            begun: DeletedTopics::new(),
            remade: RemadeTopics::new(),
        }
    }

    /// Reads the file and keeps the deleted topics, and the queues for which `has_entries` is false. Gives whether there
    /// is a file.
    pub(super) fn read(
        &mut self,
        disk: &dyn Disk,
        has_entries: impl Fn(&str, i32) -> bool,
    ) -> Result<bool, StoreError> {
        if !disk.exists(&self.path) {
            return Ok(false);
        }
        let bytes = disk
            .open(&self.path)
            .and_then(|file| read_all(&file))
            .map_err(|e| StoreError::io(&self.path, "read", e))?;
        self.take_in(&String::from_utf8_lossy(&bytes), has_entries);
        Ok(true)
    }

    /// Takes what the file says: see [`Catalogue::read`].
    pub(super) fn take_in(&mut self, text: &str, has_entries: impl Fn(&str, i32) -> bool) {
        for line in text.lines() {
            match parse(line) {
                Some((topic, Entry::Deleted { below })) => self.set_deleted(topic, below),
                Some((topic, Entry::Deleting { from })) => self.begin_deletion(topic, from),
                Some((topic, Entry::Queue { id, max })) if max > 0 && !has_entries(topic, id) => {
                    self.add_lost(topic, id, max);
                }
                _ => {}
            }
        }
    }

    pub(super) fn lost(&self) -> &[Lost] {
        &self.lost
    }

    pub(super) fn deleted(&self) -> &DeletedTopics {
        &self.deleted
    }

    /// A topic's messages that begin below an offset of the log, all of which are on disk, count for nothing.
    pub(super) fn set_deleted(&mut self, topic: &str, below: i64) {
        self.begun.remove(topic);
        let known = self.deleted.entry(topic.into()).or_default();
        *known = below.max(*known);
    }

    /// A topic's messages below an offset of the log, all of which are on disk, are about to count for nothing, and its
    /// numbers to begin at 0.
    pub(super) fn begin_deletion(&mut self, topic: &str, from: i64) {
        self.begun.insert(topic.into(), from);
    }

    /// A deletion that began does not take place.
    pub(super) fn call_off_deletion(&mut self, topic: &str) {
        self.begun.remove(topic);
    }

    pub(super) fn is_deletion_begun(&self, topic: &str) -> bool {
        self.begun.contains_key(topic)
    }

    /// At a start: deletions that began take place, and the topics' queues are made again.
    pub(super) fn end_begun_deletions(&mut self) {
        for (topic, from) in std::mem::take(&mut self.begun) {
            self.lost.retain(|lost| *lost.topic != *topic);
            self.set_deleted(&topic, from);
            self.remade.insert(topic);
        }
    }

    /// At a start: whether a queue has to go, of a deleted topic or of one that is made again.
    pub(super) fn goes(&mut self, queue: &ConsumeQueue, clean: bool) -> bool {
        // It may be of the deleted topic or of the new one, and a stop may have kept it from being removed.
        let only_damaged = !clean && queue.max_offset() > 0 && queue.physical_end() == 0;
        if only_damaged && self.deleted.contains_key(queue.topic()) {
            self.remade.insert(queue.topic().into());
            return true;
        }
        self.remade.contains(queue.topic()) || self.is_deleted(queue)
    }

    pub(super) fn remade(&self) -> &RemadeTopics {
        &self.remade
    }

    /// The log begins at `min` now: there is nothing below.
    pub(super) fn forget_deleted(&mut self, min: i64) {
        self.deleted.retain(|_, below| *below > min);
    }

    /// The log ends at `end`: whatever comes there now is of no deleted topic. Gives whether that was not known.
    pub(super) fn end_deleted(&mut self, end: i64) -> bool {
        let beyond = self.deleted.values_mut().filter(|below| **below > end);
        beyond.map(|below| *below = end).count() > 0
    }

    /// Whether all that a queue has is of a deleted topic.
    pub(super) fn is_deleted(&self, queue: &ConsumeQueue) -> bool {
        queue.is_deleted()
            || self.deleted.get(queue.topic()).is_some_and(|below| {
                // Without any entry of a message it may be a new one, whose first ones are damaged.
                (1..=*below).contains(&queue.physical_end())
            })
    }

    /// A queue without usable files, whose next message gets the number `max` at least.
    pub(super) fn add_lost(&mut self, topic: &str, queue_id: i32, max: i64) {
        self.lost.push(Lost {
            topic: topic.to_owned(),
            queue_id,
            max,
        });
    }

    pub(super) fn lacks_any(&self) -> bool {
        !self.lost.is_empty() || !self.remade.is_empty()
    }

    pub(super) fn take_lost(&mut self) -> Vec<Lost> {
        std::mem::take(&mut self.lost)
    }

    /// Writes down `queues` and the deleted topics, unless the file says just that.
    pub(super) fn write(
        &mut self,
        disk: &dyn Disk,
        queues: &[Arc<ConsumeQueue>],
    ) -> Result<(), StoreError> {
        let mut lines: Vec<_> = queues
            .iter()
            .filter(|q| q.max_offset() > 0 && !self.is_deleted(q))
            .map(|q| format!("{}\t{}\t{}\n", q.topic(), q.queue_id(), q.max_offset()))
            .collect();
        let deleted = self.deleted.iter();
        lines.extend(deleted.map(|(topic, below)| format!("{topic}\t{DELETED}\t{below}\n")));
        let begun = self.begun.iter();
        lines.extend(begun.map(|(topic, from)| format!("{topic}\t{DELETING}\t{from}\n")));
        lines.sort_unstable();
        let text = lines.concat();
        if self.written.as_ref() != Some(&text) {
            replace_file(disk, &self.path, text.as_bytes())?;
            self.written = Some(text);
        }
        Ok(())
    }
}

/// What a line says of a topic.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Queue { id: i32, max: i64 },
    Deleted { below: i64 },
    Deleting { from: i64 },
}

fn parse(line: &str) -> Option<(&str, Entry)> {
    let mut fields = line.split('\t');
    let (topic, what, number) = (fields.next()?, fields.next()?, fields.next()?);
    let number = number.parse().ok()?;
    let entry = match what {
        DELETED => Entry::Deleted { below: number },
        DELETING => Entry::Deleting { from: number },
        id => Entry::Queue {
            id: id.parse().ok()?,
            max: number,
        },
    };
    Some((topic, entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SimulatedDisk;

    fn read(text: &str) -> Catalogue {
        let disk = SimulatedDisk::new();
        disk.put(Path::new("/s/queues"), text.into());
        let mut catalogue = Catalogue::new(Path::new("/s"));
        assert!(catalogue.read(&disk, |topic, _| topic == "Here").unwrap());
        catalogue
    }

    #[test]
    fn a_file_from_before_there_were_deleted_topics_tells_of_lost_queues() {
        let catalogue = read("Gone\t-1\t7\nHere\t0\t5\nNothing\t0\t0\nno line\nT\tx\t1\n\n");
        let lost = Lost {
            topic: "Gone".into(),
            queue_id: -1,
            max: 7,
        };
        assert_eq!(catalogue.lost(), [lost]);
        assert!(catalogue.deleted().is_empty());
    }

    #[test]
    fn the_later_deletion_of_a_topic_counts_as_far_as_the_log_reaches() {
        let mut catalogue = read("A\tdeleted\t700\nB\tdeleted\t400\nA\t0\t3\n");
        let deleted = |catalogue: &Catalogue| {
            let deleted = catalogue.deleted().iter();
            let text: Vec<_> = deleted.map(|(topic, at)| format!("{topic} {at}")).collect();
            text.join(", ")
        };
        assert_eq!(deleted(&catalogue), "A 700, B 400");
        catalogue.set_deleted("A", 500);
        catalogue.set_deleted("B", 800);
        assert_eq!(deleted(&catalogue), "A 700, B 800");
        assert!(!catalogue.end_deleted(800));
        assert!(catalogue.end_deleted(750));
        assert_eq!(deleted(&catalogue), "A 700, B 750");
        catalogue.forget_deleted(700);
        assert_eq!(deleted(&catalogue), "B 750");
    }
}
