//! The table group → topic → queue → offset, and its file, `consumerOffset.json`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use minimq_common::atomic_file::AtomicFileError;
use minimq_protocol::body::ConsumerOffsetWrapper;
use minimq_protocol::json::Flavour;
use parking_lot::RwLock;

use crate::saved::SavedFile;

/// Between topic and group in the file's keys.
const SEPARATOR: char = '@';

type Queues = BTreeMap<i32, i64>;

/// Offsets of all groups.
#[derive(Debug)]
pub struct OffsetTable {
    groups: RwLock<HashMap<String, HashMap<String, Queues>>>,
    file: SavedFile,
}

impl OffsetTable {
    /// What `consumerOffset.json` holds.
    pub fn load(root: &Path) -> Result<Self, AtomicFileError> {
        let file = SavedFile::new(root, "consumerOffset.json");
        let mut groups: HashMap<String, HashMap<String, Queues>> = HashMap::new();
        if let Some(saved) = file.read(ConsumerOffsetWrapper::from_json)? {
            for (key, queues) in saved.offset_table {
                match key.split_once(SEPARATOR) {
                    Some((topic, group)) => {
                        groups
                            .entry(group.to_owned())
                            .or_default()
                            .insert(topic.to_owned(), queues);
                    }
                    None => tracing::warn!(
                        key,
                        "an entry of consumerOffset.json is no topic@group, dropped"
                    ),
                }
            }
        }
        Ok(Self {
            groups: RwLock::new(groups),
            file,
        })
    }

    /// A group's offset of a queue.
    pub fn get(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        self.groups
            .read()
            .get(group)?
            .get(topic)?
            .get(&queue_id)
            .copied()
    }

    /// Sets a group's offset of a queue, whatever it was.
    pub fn commit(&self, group: &str, topic: &str, queue_id: i32, offset: i64) {
        let mut groups = self.groups.write();
        // Names are copied only when they are new.
        let known = groups
            .get_mut(group)
            .and_then(|topics| topics.get_mut(topic));
        match known {
            Some(queues) => {
                if let Some(before) = queues
                    .insert(queue_id, offset)
                    .filter(|before| *before > offset)
                {
                    tracing::warn!(
                        group,
                        topic,
                        queue_id,
                        before,
                        offset,
                        "an offset went back"
                    );
                }
            }
            None => {
                let topics = groups.entry(group.to_owned()).or_default();
                topics
                    .entry(topic.to_owned())
                    .or_default()
                    .insert(queue_id, offset);
            }
        }
    }

    /// All queues of a topic a group has offsets for.
    pub fn queues(&self, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        self.groups
            .read()
            .get(group)
            .and_then(|topics| topics.get(topic))
            .cloned()
            .unwrap_or_default()
    }

    /// Topics a group has offsets for.
    pub fn topics_of(&self, group: &str) -> Vec<String> {
        self.groups
            .read()
            .get(group)
            .map(|topics| topics.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Groups with offsets for a topic.
    pub fn groups_of(&self, topic: &str) -> Vec<String> {
        let groups = self.groups.read();
        groups
            .iter()
            .filter(|(_, topics)| topics.contains_key(topic))
            .map(|(group, _)| group.clone())
            .collect()
    }

    /// Replaces a group's offsets of a topic.
    pub fn replace(&self, group: &str, topic: &str, queues: BTreeMap<i32, i64>) {
        self.groups
            .write()
            .entry(group.to_owned())
            .or_default()
            .insert(topic.to_owned(), queues);
    }

    /// Forgets a group.
    pub fn remove_group(&self, group: &str) -> bool {
        self.groups.write().remove(group).is_some()
    }

    /// Forgets all groups' offsets of a topic.
    pub fn remove_topic(&self, topic: &str) {
        self.groups.write().retain(|_, topics| {
            topics.remove(topic);
            !topics.is_empty()
        });
    }

    /// The table as body of 43 and of the file.
    pub fn to_wrapper(&self) -> ConsumerOffsetWrapper {
        let mut offset_table = BTreeMap::new();
        for (group, topics) in self.groups.read().iter() {
            for (topic, queues) in topics {
                offset_table.insert(format!("{topic}{SEPARATOR}{group}"), queues.clone());
            }
        }
        ConsumerOffsetWrapper {
            lmq_offset_table: None,
            offset_table,
        }
    }

    /// Writes the file if its content changed.
    pub fn save(&self) {
        self.file
            .write_or_log(|| self.to_wrapper().to_json_pretty(Flavour::Fastjson));
    }
}
