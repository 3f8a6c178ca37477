//! What admin tools ask of a broker (wire spec 4.6), access control aside. Codes not here have no header fields.

use super::header;

header! {
    /// Code 17.
    pub struct CreateTopicRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// Not used.
        default_topic: &'a str = b"defaultTopic",
        /// Queues to read.
        read_queue_nums: i32 = b"readQueueNums",
        /// Queues to write.
        write_queue_nums: i32 = b"writeQueueNums",
        /// Bits 4 read, 2 write, 1 inherit.
        perm: i32 = b"perm",
        /// `SINGLE_TAG` or `MULTI_TAG`.
        topic_filter_type: &'a str = b"topicFilterType",
        /// Bits 1 unit topic, 2 has unit subscriptions.
        topic_sys_flag: Option<i32> = b"topicSysFlag",
        /// Ordered topic.
        order: bool = b"order" or false,
        /// 5.x topic attributes, `+k=v,-k`.
        attributes: Option<&'a str> = b"attributes",
    }

    /// Answer to 26; the body is the settings.
    pub struct GetBrokerConfigResponse<'a> {
        /// A DataVersion as JSON.
        version: &'a str = b"version",
    }

    /// Code 202.
    pub struct GetTopicStatsInfoRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
    }

    /// Code 203.
    pub struct GetConsumerConnectionListRequest<'a> {
        /// Consumer group.
        consumer_group: &'a str = b"consumerGroup",
    }

    /// Code 204.
    pub struct GetProducerConnectionListRequest<'a> {
        /// Producer group.
        producer_group: &'a str = b"producerGroup",
    }

    /// Code 207.
    pub struct DeleteSubscriptionGroupRequest<'a> {
        /// Consumer group.
        group_name: &'a str = b"groupName",
        /// Whether its offsets go too.
        remove_offset: bool = b"removeOffset" or false,
        /// The same from 5.x.
        clean_offset: Option<bool> = b"cleanOffset",
    }

    /// Code 208.
    pub struct GetConsumeStatsRequest<'a> {
        /// Consumer group.
        consumer_group: &'a str = b"consumerGroup",
        /// Only this topic.
        topic: Option<&'a str> = b"topic",
        /// Only these, joined by `;` (5.x).
        topic_list: Option<&'a str> = b"topicList",
    }

    /// Code 215.
    pub struct DeleteTopicRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
    }

    /// Codes 222 (to the broker) and 220 (to clients).
    pub struct ResetOffsetRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// Consumer group.
        group: &'a str = b"group",
        /// Time to go to, ms; −1: the end.
        timestamp: i64 = b"timestamp",
        /// Whether offsets may move forward.
        is_force: bool = b"isForce" or false,
        /// Only this queue; −1: all (5.x).
        queue_id: Option<i32> = b"queueId",
        /// The offset instead of a time (5.x).
        offset: Option<i64> = b"offset",
    }

    /// Codes 223 (to the broker) and 221 (to clients).
    pub struct GetConsumerStatusRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// Consumer group.
        group: &'a str = b"group",
        /// A client id; empty or none: all.
        client_addr: Option<&'a str> = b"clientAddr",
    }

    /// Code 300.
    pub struct QueryTopicConsumeByWhoRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
    }

    /// Code 303.
    pub struct QueryConsumeTimeSpanRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// Consumer group.
        group: &'a str = b"group",
    }

    /// Code 307, to the broker and relayed to the client.
    pub struct GetConsumerRunningInfoRequest<'a> {
        /// Consumer group.
        consumer_group: &'a str = b"consumerGroup",
        /// Client id.
        client_id: &'a str = b"clientId",
        /// Whether the client adds its thread stacks.
        jstack_enable: bool = b"jstackEnable" or false,
    }

    /// Code 308.
    pub struct QueryCorrectionOffsetRequest<'a> {
        /// Groups to leave out, joined by `,`.
        filter_groups: Option<&'a str> = b"filterGroups",
        /// Group to compare with.
        compare_group: &'a str = b"compareGroup",
        /// Topic.
        topic: &'a str = b"topic",
    }

    /// Code 309, to the broker and, with the message as body, relayed to the client.
    pub struct ConsumeMessageDirectlyResultRequest<'a> {
        /// Consumer group.
        consumer_group: &'a str = b"consumerGroup",
        /// Client id.
        client_id: Option<&'a str> = b"clientId",
        /// Offset id.
        msg_id: Option<&'a str> = b"msgId",
        /// Set by the relaying broker.
        broker_name: Option<&'a str> = b"brokerName",
    }

    /// Code 314.
    pub struct CloneGroupOffsetRequest<'a> {
        /// Group to copy from.
        src_group: &'a str = b"srcGroup",
        /// Group to copy to.
        dest_group: &'a str = b"destGroup",
        /// Only this topic.
        topic: Option<&'a str> = b"topic",
        /// Whether the group may be offline.
        offline: bool = b"offline" or false,
    }

    /// Code 315.
    pub struct ViewBrokerStatsDataRequest<'a> {
        /// Statistics kind, e.g. `TOPIC_PUT_NUMS`.
        stats_name: &'a str = b"statsName",
        /// Item, e.g. a topic.
        stats_key: &'a str = b"statsKey",
    }

    /// Code 317.
    pub struct GetConsumeStatsInBroker {
        /// Whether only ordered consumption is meant.
        is_order: bool = b"isOrder" or false,
    }

    /// Code 321.
    pub struct QueryConsumeQueueRequest<'a> {
        /// Topic.
        topic: Option<&'a str> = b"topic",
        /// Queue.
        queue_id: i32 = b"queueId" or 0,
        /// First entry.
        index: i64 = b"index" or 0,
        /// Entries wanted.
        count: i32 = b"count" or 0,
        /// Group whose filter is tried on them.
        consumer_group: Option<&'a str> = b"consumerGroup",
    }
}
