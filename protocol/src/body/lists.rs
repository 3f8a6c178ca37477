//! Small bodies: tables of strings and lists of names (wire spec 6.5, name server spec 9.8).

use super::body;
use std::collections::BTreeMap;

body! {
    /// A table of strings: answers 28 (runtime information), 103 (order topics) and 219 (a KV namespace).
    #[derive(Eq)]
    pub struct KvTable: Fastjson, large {
        /// Key → value.
        table: BTreeMap<String, String> = "table";
    }
}

body! {
    /// The name server's file `kvConfig.json`.
    #[derive(Eq)]
    pub struct KvConfigTable: Fastjson, large {
        /// Namespace → key → value. Required: a file without it is refused.
        config_table: Option<BTreeMap<String, BTreeMap<String, String>>> = "configTable";
    }
}

body! {
    /// A list of topics: answers 206, 224, 304, 305, 311, 312, 313.
    #[derive(Eq)]
    pub struct TopicList: Fastjson, large {
        /// Address of some broker; only in answer 304.
        broker_addr: Option<String> = "brokerAddr";
        /// The topics; in answer 304 the names of all clusters and brokers.
        topic_list: Vec<String> = "topicList";
    }
}

body! {
    /// A list of consumer groups: answer 300.
    #[derive(Eq)]
    pub struct GroupList: Fastjson, large {
        /// The groups.
        group_list: Vec<String> = "groupList";
    }
}

body! {
    /// The members of a consumer group: answer 38.
    #[derive(Eq)]
    pub struct ConsumerIdList: Fastjson {
        /// Client ids, one a connection.
        consumer_id_list: Vec<String> = "consumerIdList";
    }
}
