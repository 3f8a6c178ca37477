//! Which records of the log count for nothing at a start, because their topic was deleted since.
//!
//! Not here: what a running store notes of a deletion (`catalogue`).

use std::collections::{HashMap, HashSet};
use std::path::Path;

use minimq_protocol::message::RecordRef;

use super::catalogue::{Catalogue, DeletedTopics, RemadeTopics};
use crate::checkpoint::CheckpointContent;

/// Numbers of the queues of each topic.
pub(crate) type QueueNames = HashMap<Box<str>, HashSet<i32>>;

/// What is known of deletions. Without anything, every record counts.
#[derive(Debug, Default)]
pub(crate) struct Deletions {
    /// Topics that were deleted, and below which offset that counts.
    deleted: DeletedTopics,
    /// Those whose queues are made again from the whole log.
    remade: RemadeTopics,
    /// All records below had reached their queues once.
    entered: i64,
    by_others: ByOthers,
}

/// Queues that a 4.9.8 broker deleted: records that had reached them, and they are not there.
#[derive(Debug)]
enum ByOthers {
    /// All but these, which the list of queues or the disk has.
    AllBut(QueueNames),
    /// Those of these topics: such a broker leaves a topic's folder, empty.
    Of(HashSet<String>),
}

impl Default for ByOthers {
    fn default() -> Self {
        Self::Of(HashSet::new())
    }
}

impl Deletions {
    /// By a list of queues that the checkpoint vouches for, and the queues on disk.
    pub(super) fn listed(
        checkpoint: &CheckpointContent,
        catalogue: &Catalogue,
        on_disk: QueueNames,
    ) -> Self {
        let mut known = on_disk;
        for lost in catalogue.lost() {
            let queues = known.entry(lost.topic.as_str().into()).or_default();
            queues.insert(lost.queue_id);
        }
        let flushed = checkpoint.flushed_offset.unwrap_or(0);
        let entered = checkpoint.entered_offset.or(checkpoint.dispatched_offset);
        Self {
            deleted: catalogue.deleted().clone(),
            remade: catalogue.remade().clone(),
            entered: flushed.min(entered.unwrap_or(0)),
            by_others: ByOthers::AllBut(known),
        }
    }

    /// After a clean stop of a 4.9.8 broker, which left folders of topics without queues. Records below `entered` had
    /// reached their queues.
    pub(crate) fn by_empty_folders(topics: Vec<String>, entered: i64) -> Self {
        Self {
            entered,
            by_others: ByOthers::Of(topics.into_iter().collect()),
            ..Self::default()
        }
    }

    /// By the text of the list and the queues on disk.
    pub(crate) fn read(text: &str, checkpoint: &CheckpointContent, on_disk: QueueNames) -> Self {
        let mut catalogue = Catalogue::new(Path::new(""));
        catalogue.take_in(text, |_, _| false);
        catalogue.end_begun_deletions();
        Self::listed(checkpoint, &catalogue, on_disk)
    }

    /// Whether a record counts for nothing.
    pub(crate) fn is_deleted(&self, record: &RecordRef<'_>) -> bool {
        let (topic, at) = (record.topic(), record.physical_offset());
        let deleted_below = self.deleted.get(topic);
        deleted_below.is_some_and(|below| at < *below)
            || (at + record.size() as i64 <= self.entered
                && !self.is_remade(topic)
                && self.by_others.has(topic, record.queue_id()))
    }

    /// Whether a topic's queues are made again, with messages from before its deletion took hold and from after.
    pub(crate) fn is_remade(&self, topic: &str) -> bool {
        self.remade.contains(topic)
    }
}

impl ByOthers {
    fn has(&self, topic: &str, queue_id: i32) -> bool {
        match self {
            Self::AllBut(known) => known
                .get(topic)
                .is_none_or(|queues| !queues.contains(&queue_id)),
            Self::Of(topics) => topics.contains(topic),
        }
    }
}
