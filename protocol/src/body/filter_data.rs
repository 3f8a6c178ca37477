//! The broker's file `consumerFilter.json`: filters registered by heartbeats (broker spec 10.6, 16).

use super::body;
use std::collections::BTreeMap;

body! {
    /// The bits a filter sets in a bloom filter.
    #[derive(Eq)]
    pub struct BloomFilterData: Fastjson {
        /// Size of the filter, bits.
        bit_num: i32 = "bitNum";
        /// The bits.
        bit_pos: Vec<i32> = "bitPos";
    }
}

body! {
    /// The filter of one group on one topic.
    #[derive(Eq)]
    pub struct ConsumerFilterData: Fastjson {
        /// Its bloom bits.
        bloom_filter_data: Option<BloomFilterData> = "bloomFilterData";
        /// When it was registered, ms.
        born_time: i64 = "bornTime";
        /// Version the client gave it.
        client_version: i64 = "clientVersion";
        /// The group.
        consumer_group: String = "consumerGroup";
        /// Written for people only; [`ConsumerFilterData::is_dead`] decides, and Java ignores it too.
        dead: bool = "dead";
        /// When its last consumer went, ms; 0 while it lives.
        dead_time: i64 = "deadTime";
        /// The expression.
        expression: Option<String> = "expression";
        /// Its type, such as `SQL92`.
        expression_type: Option<String> = "expressionType";
        /// The topic.
        topic: String = "topic";
    }
}

impl ConsumerFilterData {
    /// True if the last consumer went after the filter was registered.
    pub fn is_dead(&self) -> bool {
        self.dead_time >= self.born_time
    }
}

body! {
    /// The filters on one topic.
    #[derive(Eq)]
    pub struct FilterDataByGroup: Fastjson {
        /// Group → filter.
        group_filter_data: BTreeMap<String, ConsumerFilterData> = "groupFilterData";
        /// The topic.
        topic: String = "topic";
    }
}

body! {
    /// All filters.
    #[derive(Eq)]
    pub struct ConsumerFilterTable: Fastjson, large {
        /// Topic → filters.
        filter_data_by_topic: BTreeMap<String, FilterDataByGroup> = "filterDataByTopic";
    }
}
