//! Which queues there were when the store was last flushed: the file `queues` under the root, a line each: topic, queue
//! id, next number, separated by tabs. RocketMQ ignores it.
//!
//! A queue in it without files was lost (somebody deleted its folder). Its entries are made again from the log, and its
//! numbers go on even if the log has none of its messages any more.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::queue::ConsumeQueue;
use crate::damage::{read_all, replace_file};
use crate::error::StoreError;
use crate::io::Disk;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) topic: String,
    pub(super) queue_id: i32,
    /// Number of the next message.
    pub(super) max: i64,
}

/// The file, and what it told.
#[derive(Debug)]
pub(super) struct Catalogue {
    path: PathBuf,
    /// What the file says, once that is known.
    written: Option<String>,
    lost: Vec<Line>,
}

impl Catalogue {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            path: root.join("queues"),
            written: None,
            lost: Vec::new(),
        }
    }

    /// Reads the file and keeps the queues for which `has_entries` is false. Gives whether there is a file.
    pub(super) fn find_lost(
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
        for Line {
            topic,
            queue_id,
            max,
        } in String::from_utf8_lossy(&bytes).lines().filter_map(parse)
        {
            if max <= 0 || has_entries(&topic, queue_id) {
                continue;
            }
            tracing::warn!(
                topic,
                queue_id,
                max,
                "files of a consume queue are gone: made again from the log"
            );
            self.add_lost(&topic, queue_id, max);
        }
        Ok(true)
    }

    pub(super) fn lost(&self) -> &[Line] {
        &self.lost
    }

    /// A queue without usable files, whose next message gets the number `max` at least.
    pub(super) fn add_lost(&mut self, topic: &str, queue_id: i32, max: i64) {
        self.lost.push(Line {
            topic: topic.to_owned(),
            queue_id,
            max,
        });
    }

    pub(super) fn lacks_any(&self) -> bool {
        !self.lost.is_empty()
    }

    pub(super) fn take_lost(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lost)
    }

    /// Writes down `queues`, unless the file says just that.
    pub(super) fn write(
        &mut self,
        disk: &dyn Disk,
        queues: &[Arc<ConsumeQueue>],
    ) -> Result<(), StoreError> {
        let mut lines: Vec<_> = queues
            .iter()
            .filter(|q| q.max_offset() > 0 && !q.is_deleted())
            .map(|q| format!("{}\t{}\t{}\n", q.topic(), q.queue_id(), q.max_offset()))
            .collect();
        lines.sort_unstable();
        let text = lines.concat();
        if self.written.as_ref() != Some(&text) {
            replace_file(disk, &self.path, text.as_bytes())?;
            self.written = Some(text);
        }
        Ok(())
    }
}

fn parse(line: &str) -> Option<Line> {
    let mut fields = line.split('\t');
    let (topic, queue_id, max) = (
        fields.next()?,
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
    );
    Some(Line {
        topic: topic.to_owned(),
        queue_id,
        max,
    })
}
