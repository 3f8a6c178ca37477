//! Topic configuration (wire spec 6.4): the answer to GET_ALL_TOPIC_CONFIG (21) and the file `topics.json`.

use super::{body, wire_enum};
use std::collections::BTreeMap;

body! {
    /// Version of a table. Two are the same only if both members are equal.
    #[derive(Copy, Eq, Hash)]
    pub struct DataVersion: Fastjson {
        /// Changes since the table was made.
        counter: i64 = "counter";
        /// Time of the last change, ms since 1970. Brokers before 4.0 misspell the name.
        timestamp: i64 = "timestamp" | "timestatmp";
    }
}

impl DataVersion {
    /// The version after a change at `now_ms`.
    pub fn next(self, now_ms: i64) -> Self {
        DataVersion {
            counter: self.counter.wrapping_add(1),
            timestamp: now_ms,
        }
    }
}

wire_enum! {
    /// How many tags a message of the topic may carry. Nothing depends on it.
    #[derive(Default)]
    pub enum TopicFilterType {
        /// One tag.
        #[default]
        SingleTag = "SINGLE_TAG",
        /// Several tags.
        MultiTag = "MULTI_TAG",
    }
}

body! {
    /// One topic at one broker.
    #[derive(Eq)]
    pub struct TopicConfig: Fastjson {
        /// Messages are ordered across the queues of several brokers.
        order: bool = "order";
        /// Permission bits: 4 read, 2 write, 1 inherit.
        perm: i32 = "perm", default 6;
        /// Queues that can be read.
        read_queue_nums: i32 = "readQueueNums", default 16;
        /// One tag or several.
        topic_filter_type: TopicFilterType = "topicFilterType";
        /// Topic. The name server takes this one, not the key of the table.
        topic_name: String = "topicName";
        /// Bits: 1 unit topic, 2 has unit subscription.
        topic_sys_flag: i32 = "topicSysFlag";
        /// Queues that can be written.
        write_queue_nums: i32 = "writeQueueNums", default 16;
    }
}

impl TopicConfig {
    /// A topic with the defaults: 16 queues, read and write.
    pub fn new(topic_name: impl Into<String>) -> Self {
        TopicConfig {
            topic_name: topic_name.into(),
            ..TopicConfig::default()
        }
    }
}

body! {
    /// All topics of a broker: answer 21, body of old registrations, and `topics.json`
    /// (Java's `TopicConfigSerializeWrapper`).
    #[derive(Eq)]
    pub struct TopicConfigWrapper: Fastjson, large {
        /// Version of the table.
        data_version: DataVersion = "dataVersion";
        /// Topic → configuration.
        topic_config_table: BTreeMap<String, TopicConfig> = "topicConfigTable";
    }
}
