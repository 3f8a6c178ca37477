//! The table of topics and its file, `topics.json`.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minimq_common::atomic_file::AtomicFileError;
use minimq_protocol::body::{DataVersion, TopicConfig, TopicConfigWrapper};
use minimq_protocol::json::Flavour;
use minimq_protocol::{name, perm};
use parking_lot::RwLock;

use crate::config::BrokerConfig;
use crate::saved::SavedFile;

#[derive(Debug, Default)]
struct Topics {
    topics: HashMap<String, Arc<TopicConfig>>,
    version: DataVersion,
}

/// All topics of the broker. A topic found is a snapshot: it does not change in the reader's hands.
#[derive(Debug)]
pub struct TopicTable {
    table: RwLock<Topics>,
    file: SavedFile,
    /// Topics in the table that may not be in the file yet.
    being_made: AtomicUsize,
}

const READ_WRITE: i32 = perm::READ | perm::WRITE;

impl TopicTable {
    /// The system's topics (broker spec 2.1), then those of `topics.json`.
    pub fn load(root: &Path, config: &BrokerConfig, now_ms: i64) -> Result<Self, AtomicFileError> {
        let file = SavedFile::new(root, "topics.json");
        let mut topics: HashMap<String, Arc<TopicConfig>> = system_topics(config)
            .into_iter()
            .map(|topic| (topic.topic_name.clone(), Arc::new(topic)))
            .collect();
        let mut version = DataVersion {
            counter: 0,
            timestamp: now_ms,
        };
        if let Some(saved) = file.read(TopicConfigWrapper::from_json)? {
            version = saved.data_version;
            topics.extend(
                saved
                    .topic_config_table
                    .into_iter()
                    .map(|(name, mut topic)| {
                        topic.topic_name.clone_from(&name);
                        (name, Arc::new(topic))
                    }),
            );
        }
        Ok(Self {
            table: RwLock::new(Topics { topics, version }),
            file,
            being_made: AtomicUsize::new(0),
        })
    }

    /// A topic.
    pub fn get(&self, topic: &str) -> Option<Arc<TopicConfig>> {
        self.table.read().topics.get(topic).cloned()
    }

    /// Whether there is such a topic.
    pub fn contains(&self, topic: &str) -> bool {
        self.table.read().topics.contains_key(topic)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.read().topics.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version of the table.
    pub fn version(&self) -> DataVersion {
        self.table.read().version
    }

    /// All topics with the version they belong to.
    pub fn snapshot(&self) -> (DataVersion, Vec<Arc<TopicConfig>>) {
        let table = self.table.read();
        (table.version, table.topics.values().cloned().collect())
    }

    /// The table as body of 21 and of `topics.json`.
    pub fn to_wrapper(&self) -> TopicConfigWrapper {
        let (data_version, topics) = self.snapshot();
        let topic_config_table: BTreeMap<String, TopicConfig> = topics
            .into_iter()
            .map(|topic| (topic.topic_name.clone(), (*topic).clone()))
            .collect();
        TopicConfigWrapper {
            data_version,
            topic_config_table,
        }
    }

    /// Adds or replaces a topic, and saves the table.
    pub fn put(&self, topic: TopicConfig, now_ms: i64) -> Arc<TopicConfig> {
        let topic = Arc::new(topic);
        self.insert(&mut self.table.write(), topic.clone(), now_ms);
        self.save_inserted();
        topic
    }

    fn insert(&self, table: &mut Topics, topic: Arc<TopicConfig>, now_ms: i64) {
        table.topics.insert(topic.topic_name.clone(), topic);
        table.version = table.version.next(now_ms);
        self.being_made.fetch_add(1, Ordering::Relaxed);
    }

    /// Before anything in the topic is acknowledged: after a crash nobody could read what is in a topic that is not in
    /// the table. Topics that are made together are written together.
    fn save_inserted(&self) {
        self.save();
        self.being_made.fetch_sub(1, Ordering::Release);
    }

    /// The table counts as changed although no topic is.
    pub fn next_version(&self, now_ms: i64) {
        let mut table = self.table.write();
        table.version = table.version.next(now_ms);
    }

    /// Adds a topic unless it is there, and then saves the table; gives what is there, and whether it is new. Others find
    /// the topic before it is saved: see [`TopicTable::save_what_is_being_made`].
    pub fn make(&self, topic: TopicConfig, now_ms: i64) -> (Arc<TopicConfig>, bool) {
        let topic = Arc::new(topic);
        {
            let mut table = self.table.write();
            if let Some(known) = table.topics.get(&topic.topic_name) {
                return (known.clone(), false);
            }
            self.insert(&mut table, topic.clone(), now_ms);
        }
        self.save_inserted();
        (topic, true)
    }

    /// Returns when every topic that was found in the table before is in the file. Called before something that lies in
    /// a topic is acknowledged; one load if no topic is being made.
    pub fn save_what_is_being_made(&self) {
        if self.being_made.load(Ordering::Acquire) != 0 {
            self.save();
        }
    }

    /// Removes a topic; whether there was one.
    pub fn remove(&self, topic: &str, now_ms: i64) -> bool {
        let mut table = self.table.write();
        let removed = table.topics.remove(topic).is_some();
        if removed {
            table.version = table.version.next(now_ms);
        }
        removed
    }

    /// Takes over the name servers' table of ordered topics (broker spec 2.7); whether anything changed.
    pub fn set_ordered(&self, ordered: impl Fn(&str) -> bool, now_ms: i64) -> bool {
        let mut table = self.table.write();
        let mut changed = false;
        for topic in table.topics.values_mut() {
            let order = ordered(&topic.topic_name);
            if topic.order != order {
                *topic = Arc::new(TopicConfig {
                    order,
                    ..(**topic).clone()
                });
                changed = true;
            }
        }
        if changed {
            table.version = table.version.next(now_ms);
        }
        changed
    }

    /// Writes `topics.json` if it is not what was written last.
    pub fn save(&self) {
        self.file
            .write_or_log(|| self.to_wrapper().to_json_pretty(Flavour::Fastjson));
    }
}

fn system_topics(config: &BrokerConfig) -> Vec<TopicConfig> {
    let topic = |name: &str, queues: i32, perm: i32| TopicConfig {
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm,
        ..TopicConfig::new(name)
    };
    let keys = &config.broker;
    let inherited = |enabled| {
        if enabled {
            READ_WRITE | perm::INHERIT
        } else {
            perm::INHERIT
        }
    };
    let mut topics = vec![
        topic(name::SELF_TEST_TOPIC, 1, READ_WRITE),
        topic(name::BENCHMARK_TOPIC, 1024, READ_WRITE),
        topic(
            &keys.broker_cluster_name,
            16,
            inherited(keys.cluster_topic_enable),
        ),
        topic(&keys.broker_name, 1, inherited(keys.broker_topic_enable)),
        topic(name::OFFSET_MOVED_TOPIC, 1, READ_WRITE),
        topic(name::SCHEDULE_TOPIC, 18, READ_WRITE),
        topic(&name::reply_topic(&keys.broker_cluster_name), 1, READ_WRITE),
    ];
    if keys.auto_create_topic_enable {
        let queues = i32::try_from(keys.default_topic_queue_nums).unwrap_or(8);
        topics.push(topic(
            name::AUTO_CREATE_TOPIC,
            queues,
            READ_WRITE | perm::INHERIT,
        ));
    }
    if keys.trace_topic_enable {
        topics.push(topic(&keys.msg_trace_topic_name, 1, READ_WRITE));
    }
    topics
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use minimq_common::temporary::TemporaryFolder;

    use super::*;

    #[test]
    fn what_lies_in_a_topic_is_acknowledged_once_the_topic_is_in_the_file() {
        let folder = TemporaryFolder::new().unwrap();
        let table = TopicTable::load(folder.path(), &BrokerConfig::default(), 0).unwrap();
        table.save_what_is_being_made();
        let file = folder.path().join("config/topics.json");
        assert!(!file.exists(), "nothing is being made");
        let (saved, is_saved) = mpsc::channel();
        std::thread::scope(|scope| {
            // The disk is slow.
            let held = table.file.hold();
            scope.spawn(|| table.make(TopicConfig::new("T"), 0));
            while !table.contains("T") {
                std::thread::yield_now();
            }
            // Another sender finds the topic.
            scope.spawn(|| {
                table.save_what_is_being_made();
                saved.send(std::fs::read_to_string(&file).unwrap()).unwrap();
            });
            assert!(is_saved.recv_timeout(Duration::from_millis(100)).is_err());
            drop(held);
            let content = is_saved.recv_timeout(Duration::from_secs(20)).unwrap();
            assert!(content.contains("\"T\""), "{content}");
        });
        assert_eq!(table.being_made.load(Ordering::Relaxed), 0);
    }
}
