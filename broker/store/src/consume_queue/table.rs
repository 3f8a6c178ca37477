//! All consume queues of a store, by topic and queue id.
//!
//! Not here: what happens inside one queue (`queue`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use dashmap::DashMap;
use parking_lot::Mutex;

use super::QueueSettings;
use super::catalogue::Catalogue;
use super::deletions::{Deletions, QueueNames};
use super::open_files::OpenFiles;
use super::queue::ConsumeQueue;
use super::segments::Shared;
use crate::checkpoint::CheckpointContent;
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::io::Disk;
use crate::offset::{PhysicalOffset, QueueOffset};
use crate::recovery::RecordPlace;

/// Queue files that are open at a time, whatever the number of queues.
const OPEN_FILES: usize = 1024;

/// Files synced each for itself; if there are more, the whole file system is synced at once, which costs one journal
/// commit instead of one a file.
const SYNCED_ONE_BY_ONE: usize = 16;

/// The queues of one topic.
type Queues = BTreeMap<i32, Arc<ConsumeQueue>>;

/// Every queue that exists, on disk or not yet.
#[derive(Debug)]
pub struct ConsumeQueues {
    settings: QueueSettings,
    shared: Arc<Shared>,
    topics: DashMap<Box<str>, Queues>,
    catalogue: Mutex<Catalogue>,
}

impl ConsumeQueues {
    /// No queues yet; touches nothing on disk.
    pub fn new(config: &StoreConfig, disk: Arc<dyn Disk>) -> Self {
        Self {
            settings: QueueSettings::new(config),
            shared: Arc::new(Shared {
                disk,
                open_files: OpenFiles::new(OPEN_FILES),
            }),
            topics: DashMap::new(),
            catalogue: Mutex::new(Catalogue::new(&config.store_path_root_dir)),
        }
    }

    /// Takes in all queues on disk as they were left by a stop, `clean` or not. Entries of records below `trusted` are on
    /// disk for sure. Gives the topics that have a folder, but no queue in it.
    ///
    /// # Errors
    /// [`StoreError::FileSize`] when files of another size setting are found, or when the disk fails.
    pub fn load(&self, clean: bool, trusted: i64) -> Result<Vec<String>, StoreError> {
        let disk = &*self.shared.disk;
        let folders = |path: &Path| -> Result<Vec<String>, StoreError> {
            let entries = disk
                .list(path)
                .map_err(|e| StoreError::io(path, "list", e))?;
            Ok(entries
                .into_iter()
                .filter(|e| e.is_folder)
                .map(|e| e.name)
                .collect())
        };
        let mut without_queues = Vec::new();
        for topic in folders(&self.settings.folder)? {
            let path = self.settings.folder.join(&topic);
            for name in folders(&path)? {
                let Ok(queue_id) = name.parse::<i32>() else {
                    tracing::warn!(folder = %path.display(), name, "not a queue number, left alone");
                    continue;
                };
                if let Some(max) = self
                    .get_or_create(&topic, queue_id)
                    .recover(clean, trusted)?
                {
                    self.catalogue.lock().add_lost(&topic, queue_id, max);
                }
            }
            if !self.topics.contains_key(topic.as_str()) {
                without_queues.push(topic);
            }
        }
        Ok(without_queues)
    }

    /// One queue, if there is one.
    pub fn get(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        self.topics.get(topic)?.get(&queue_id).map(Arc::clone)
    }

    /// One queue; an empty one in memory if there is none.
    pub fn get_or_create(&self, topic: &str, queue_id: i32) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.get(topic, queue_id) {
            return queue;
        }
        let mut queues = self.topics.entry(topic.into()).or_default();
        let queue = queues.entry(queue_id).or_insert_with(|| {
            Arc::new(ConsumeQueue::new(
                topic,
                queue_id,
                &self.settings,
                &self.shared,
            ))
        });
        Arc::clone(queue)
    }

    /// All queues of one topic, by number.
    pub fn of_topic(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        self.topics
            .get(topic)
            .map(|queues| queues.values().map(Arc::clone).collect())
            .unwrap_or_default()
    }

    /// All queues, in no order.
    pub fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        self.topics
            .iter()
            .flat_map(|queues| queues.values().map(Arc::clone).collect::<Vec<_>>())
            .collect()
    }

    /// Names of the topics that have queues.
    pub fn topics(&self) -> Vec<Box<str>> {
        self.topics
            .iter()
            .map(|queues| queues.key().clone())
            .collect()
    }

    /// The largest end of a record that a queue knows of; 0 without entries.
    pub fn largest_physical_end(&self) -> i64 {
        self.all()
            .iter()
            .map(|q| q.physical_end())
            .max()
            .unwrap_or(0)
    }

    /// Goes back so that records from `physical` on can be entered again. Nothing on disk changes.
    pub(crate) fn rewind(&self, physical: i64) -> Result<(), StoreError> {
        self.all().iter().try_for_each(|q| q.rewind(physical))
    }

    /// Drops the entries of records that end after `physical`, the new end of the log, and erases stale bytes. Queues
    /// that were lost, and of which the log had nothing, go on with the number they had.
    pub(crate) fn truncate(&self, physical: i64) -> Result<(), StoreError> {
        self.all().iter().try_for_each(|q| q.truncate(physical))?;
        let mut catalogue = self.catalogue.lock();
        for lost in catalogue.take_lost() {
            self.get_or_create(&lost.topic, lost.queue_id)
                .begin_at(lost.max);
        }
        // Before the first message comes there that a later start could take for a deleted one.
        if catalogue.end_deleted(physical) {
            catalogue.write(&*self.shared.disk, &self.all())?;
        }
        Ok(())
    }

    /// Compares with the catalogue that was written last, to find queues whose files are gone, and ends deletions that a
    /// stop, `clean` or not, came into. Gives whether there is a catalogue.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn read_catalogue(&self, clean: bool) -> Result<bool, StoreError> {
        let mut catalogue = self.catalogue.lock();
        let has_entries = |topic: &str, id| self.get(topic, id).is_some_and(|q| q.max_offset() > 0);
        let found = catalogue.read(&*self.shared.disk, has_entries)?;
        catalogue.end_begun_deletions();
        for lost in catalogue.lost() {
            tracing::warn!(
                ?lost,
                "files of a consume queue are gone: made again from the log"
            );
        }
        for queue in self.all() {
            if catalogue.goes(&queue, clean) {
                self.delete(&queue, i64::MAX)?;
                self.leave_out_topic(queue.topic());
            }
        }
        Ok(found)
    }

    /// What was read of deleted topics, by a checkpoint that vouches for it.
    pub(crate) fn deletions(&self, checkpoint: &CheckpointContent) -> Deletions {
        let mut on_disk = QueueNames::new();
        for queue in self.all() {
            let queues = on_disk.entry(queue.topic().into()).or_default();
            queues.insert(queue.queue_id());
        }
        Deletions::listed(checkpoint, &self.catalogue.lock(), on_disk)
    }

    /// Whether files of a queue are gone, or were of no use, so that the whole log has to be looked at for its records.
    pub fn lacks_any(&self) -> bool {
        self.catalogue.lock().lacks_any()
    }

    /// Writes down which queues there are, if that changed.
    pub(crate) fn write_catalogue(&self) -> Result<(), StoreError> {
        self.catalogue.lock().write(&*self.shared.disk, &self.all())
    }

    /// Calls `visit` with the number that the next message of each queue gets.
    pub fn next_offsets(&self, visit: &mut dyn FnMut(&str, i32, QueueOffset)) {
        for queue in self.all() {
            visit(
                queue.topic(),
                queue.queue_id(),
                QueueOffset(queue.max_offset()),
            );
        }
    }

    /// The folder of all queues.
    pub(crate) fn folder(&self) -> &Path {
        &self.settings.folder
    }

    /// Where records begin in `range`, ascending, as far as the entries on disk tell.
    pub(crate) fn record_starts(
        &self,
        range: &Range<PhysicalOffset>,
    ) -> Result<Vec<RecordPlace>, StoreError> {
        let mut places = Vec::new();
        for queue in self.all() {
            queue.record_starts(range, &mut places)?;
        }
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }

    /// Moves all minimums up to what the log, which now begins at `log_min`, still has.
    pub(crate) fn raise_min(&self, log_min: i64) -> Result<(), StoreError> {
        self.forget_deleted(log_min);
        self.all().iter().try_for_each(|q| q.raise_min(log_min))
    }

    /// The log, which now begins at `log_min`, has nothing below any more.
    pub(crate) fn forget_deleted(&self, log_min: i64) {
        self.catalogue.lock().forget_deleted(log_min);
    }

    /// Brings to disk the queues that have at least `least_pages` unflushed pages; 0: all that have anything.
    pub(crate) fn flush(&self, least_pages: u64) -> Result<(), StoreError> {
        let least_entries = (least_pages * 4096 / 20) as i64;
        let mut unflushed = self.all();
        unflushed.retain(|q| q.has_unflushed(least_entries));
        if unflushed.len() <= SYNCED_ONE_BY_ONE {
            return unflushed.iter().try_for_each(|q| q.flush());
        }
        let ends: Vec<_> = unflushed
            .iter()
            .map(|q| q.write_for_flush())
            .collect::<Result<_, _>>()?;
        let folder = &self.settings.folder;
        self.shared
            .disk
            .sync_all(folder)
            .map_err(|e| StoreError::io(folder, "flush all files of", e))?;
        unflushed
            .iter()
            .zip(ends)
            .for_each(|(queue, end)| queue.set_flushed(end));
        Ok(())
    }

    /// Gives back the memory of queues that had nothing to do since the last call.
    pub(crate) fn rest(&self) {
        self.all().iter().for_each(|q| q.rest());
    }

    /// Deletes one queue, unless it has records that end after `below`.
    pub(crate) fn delete_queue(
        &self,
        topic: &str,
        queue_id: i32,
        below: i64,
    ) -> Result<(), StoreError> {
        if let Some(queue) = self.get(topic, queue_id) {
            self.delete(&queue, below)?;
        }
        self.write_catalogue()
    }

    fn delete(&self, queue: &Arc<ConsumeQueue>, below: i64) -> Result<(), StoreError> {
        // While its files go it stays here, so that nobody begins a new queue over them.
        if queue.delete(below)? {
            self.leave_out(queue);
        }
        Ok(())
    }

    /// Takes a deleted queue out of the table; one that took its place stays.
    pub(crate) fn leave_out(&self, queue: &Arc<ConsumeQueue>) {
        if let Some(mut queues) = self.topics.get_mut(queue.topic())
            && queues
                .get(&queue.queue_id())
                .is_some_and(|here| Arc::ptr_eq(here, queue))
        {
            queues.remove(&queue.queue_id());
        }
    }

    /// Topics that have queues are about to be deleted, and their numbers to begin at 0; all of the log below `from` is on
    /// disk. Once the catalogue is on disk, no power cut can mix up old and new messages. Gives whether any has a queue.
    pub(crate) fn begin_deletion(&self, topics: &[&str], from: i64) -> bool {
        let mut catalogue = self.catalogue.lock();
        let there = topics.iter().filter(|t| self.topics.contains_key(**t));
        there
            .map(|topic| catalogue.begin_deletion(topic, from))
            .count()
            > 0
    }

    /// Topics are not deleted after all.
    pub(crate) fn call_off_deletion(&self, topics: &[&str]) {
        let mut catalogue = self.catalogue.lock();
        topics.iter().for_each(|t| catalogue.call_off_deletion(t));
    }

    /// Deletes the queues of topics, but those that have records that end after the topic's offset, below which all of the
    /// log is on disk. Returns how many there were. Once it returned no record from below is in a queue again, not even
    /// after a power cut.
    pub(crate) fn delete_topics(&self, topics: &[(&str, i64)]) -> Result<usize, StoreError> {
        let mut deleted = Vec::new();
        {
            let mut catalogue = self.catalogue.lock();
            for (topic, below) in topics {
                let queues = self.of_topic(topic);
                if !queues.is_empty() || catalogue.is_deletion_begun(topic) {
                    // Whether or not the files can be deleted, numbers begin at 0 there.
                    catalogue.set_deleted(topic, *below);
                    deleted.push((*topic, *below, queues));
                }
            }
            if deleted.is_empty() {
                return Ok(0);
            }
            // Before the first file goes: a topic is deleted as a whole.
            catalogue.write(&*self.shared.disk, &self.all())?;
        }
        for (topic, below, queues) in &deleted {
            queues.iter().try_for_each(|q| self.delete(q, *below))?;
            self.leave_out_topic(topic);
        }
        self.write_catalogue()?;
        self.sync_folders()?;
        Ok(deleted.iter().map(|(.., queues)| queues.len()).sum())
    }

    /// Makes it durable which topics have folders.
    fn sync_folders(&self) -> Result<(), StoreError> {
        let disk = &self.shared.disk;
        for folder in self.folders().filter(|folder| disk.exists(folder)) {
            disk.sync_folder(folder)
                .map_err(|e| StoreError::io(folder, "flush", e))?;
        }
        Ok(())
    }

    /// The folders of queues and of their extensions.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        let ext = self.settings.ext.as_ref().map(|e| e.folder.as_path());
        std::iter::once(self.settings.folder.as_path()).chain(ext)
    }

    /// Takes a topic out of the table if it has no queue any more, and its folder from the disk.
    fn leave_out_topic(&self, topic: &str) {
        let left_out = self.topics.remove_if(topic, |_, queues| queues.is_empty());
        if left_out.is_none() {
            return;
        }
        for folder in self.folders().map(|f| f.join(topic)) {
            // Something of somebody else may be left in it.
            if let Err(error) = self.shared.disk.remove_folder(&folder) {
                tracing::warn!(folder = %folder.display(), %error, "folder of a deleted topic stays");
            }
        }
    }

    #[cfg(test)]
    pub(super) fn open_files(&self) -> usize {
        self.shared.open_files.len()
    }
}
