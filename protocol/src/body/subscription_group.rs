//! Configuration of consumer groups (wire spec 6.13): request 200, answer 201, file `subscriptionGroup.json`.

use super::{DataVersion, body};
use std::collections::BTreeMap;

body! {
    /// One consumer group at a broker.
    #[derive(Eq)]
    pub struct SubscriptionGroupConfig: Fastjson {
        /// Broker id the group reads from.
        broker_id: i64 = "brokerId";
        /// The group may consume as broadcast.
        consume_broadcast_enable: bool = "consumeBroadcastEnable", default true;
        /// The group may consume at all.
        consume_enable: bool = "consumeEnable", default true;
        /// The group may begin at the smallest offset.
        consume_from_min_enable: bool = "consumeFromMinEnable", default true;
        /// The group.
        group_name: String = "groupName";
        /// Members are told when the membership changes.
        notify_consumer_ids_changed_enable: bool = "notifyConsumerIdsChangedEnable", default true;
        /// Deliveries before a message goes to the dead-letter topic.
        retry_max_times: i32 = "retryMaxTimes", default 16;
        /// Queues of the retry topic.
        retry_queue_nums: i32 = "retryQueueNums", default 1;
        /// Broker id suggested to a consumer that lags far behind.
        which_broker_when_consume_slowly: i64 = "whichBrokerWhenConsumeSlowly", default 1;
    }
}

impl SubscriptionGroupConfig {
    /// A group with the defaults.
    pub fn new(group_name: impl Into<String>) -> Self {
        SubscriptionGroupConfig {
            group_name: group_name.into(),
            ..SubscriptionGroupConfig::default()
        }
    }
}

body! {
    /// All consumer groups of a broker.
    #[derive(Eq)]
    pub struct SubscriptionGroupWrapper: Fastjson, large {
        /// Version of the table.
        data_version: DataVersion = "dataVersion";
        /// Group → configuration.
        subscription_group_table: BTreeMap<String, SubscriptionGroupConfig> = "subscriptionGroupTable";
    }
}
