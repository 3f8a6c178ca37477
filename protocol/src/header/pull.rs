//! Pulling and queue offsets: codes 11 (361), 12, 14, 15, 29–33 (wire spec 4.3).

use super::header;

header! {
    /// Code 11, to a broker or a filter server; 361 is the same.
    pub struct PullMessageRequest<'a> {
        /// Consumer group.
        consumer_group: &'a str = b"consumerGroup",
        /// Topic.
        topic: &'a str = b"topic",
        /// Queue.
        queue_id: i32 = b"queueId",
        /// First queue offset wanted.
        queue_offset: i64 = b"queueOffset",
        /// Messages wanted at most.
        max_msg_nums: i32 = b"maxMsgNums",
        /// Bits of the pull (wire spec 7.5).
        sys_flag: i32 = b"sysFlag",
        /// Stored for the group when the commit bit is set.
        commit_offset: i64 = b"commitOffset",
        /// How long the broker may hold the pull.
        suspend_timeout_millis: i64 = b"suspendTimeoutMillis",
        /// Expression, when the subscription bit is set.
        subscription: Option<&'a str> = b"subscription",
        /// Version of the consumer's subscription.
        sub_version: i64 = b"subVersion",
        /// `TAG` or `SQL92`; none is `TAG`.
        expression_type: Option<&'a str> = b"expressionType",
        /// Bytes wanted at most (5.x).
        max_msg_bytes: Option<i32> = b"maxMsgBytes",
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }

    /// On codes 0, 19, 20 and 21.
    pub struct PullMessageResponse {
        /// Broker to pull from next: 0 the master.
        suggest_which_broker_id: i64 = b"suggestWhichBrokerId",
        /// Offset to pull next.
        next_begin_offset: i64 = b"nextBeginOffset",
        /// First offset of the queue.
        min_offset: i64 = b"minOffset",
        /// One behind the last.
        max_offset: i64 = b"maxOffset",
    }

    /// Code 12.
    pub struct QueryMessageRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// A key of the message, or its unique id.
        key: &'a str = b"key",
        /// Messages wanted at most.
        max_num: i32 = b"maxNum",
        /// Stored not before, ms.
        begin_timestamp: i64 = b"beginTimestamp",
        /// Stored not after, ms.
        end_timestamp: i64 = b"endTimestamp",
        /// Whether `key` is a unique id: then the broker's own limit replaces `max_num`.
        unique_key_query: Option<bool> = b"_UNIQUE_KEY_QUERY",
    }

    /// Answer to 12, on 0 and 22.
    pub struct QueryMessageResponse {
        /// Store time of the last message indexed.
        index_last_update_timestamp: i64 = b"indexLastUpdateTimestamp",
        /// Its commit-log offset.
        index_last_update_phyoffset: i64 = b"indexLastUpdatePhyoffset",
    }

    /// Code 14.
    pub struct QueryConsumerOffsetRequest<'a> {
        /// Consumer group.
        consumer_group: &'a str = b"consumerGroup",
        /// Topic.
        topic: &'a str = b"topic",
        /// Queue.
        queue_id: i32 = b"queueId",
        /// False: 22 instead of offset 0 when nothing is stored (5.x).
        set_zero_if_not_found: Option<bool> = b"setZeroIfNotFound",
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }

    /// Answer to 14.
    pub struct QueryConsumerOffsetResponse {
        /// Queue offset to consume next.
        offset: i64 = b"offset",
    }

    /// Code 15.
    pub struct UpdateConsumerOffsetRequest<'a> {
        /// Consumer group.
        consumer_group: &'a str = b"consumerGroup",
        /// Topic.
        topic: &'a str = b"topic",
        /// Queue.
        queue_id: i32 = b"queueId",
        /// Queue offset to consume next.
        commit_offset: i64 = b"commitOffset",
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }

    /// Code 29.
    pub struct SearchOffsetRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// Queue.
        queue_id: i32 = b"queueId",
        /// Store time, ms.
        timestamp: i64 = b"timestamp",
        /// `LOWER` (none means that) or `UPPER` (5.x).
        boundary_type: Option<&'a str> = b"boundaryType",
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }

    /// Answer to 29.
    pub struct SearchOffsetResponse {
        /// Queue offset.
        offset: i64 = b"offset",
    }

    /// Code 30.
    pub struct GetMaxOffsetRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// Queue.
        queue_id: i32 = b"queueId",
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }

    /// Answer to 30.
    pub struct GetMaxOffsetResponse {
        /// One behind the last.
        offset: i64 = b"offset",
    }

    /// Code 31.
    pub struct GetMinOffsetRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// Queue.
        queue_id: i32 = b"queueId",
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }

    /// Answer to 31.
    pub struct GetMinOffsetResponse {
        /// First offset of the queue.
        offset: i64 = b"offset",
    }

    /// Code 32.
    pub struct GetEarliestMsgStoretimeRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// Queue.
        queue_id: i32 = b"queueId",
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }

    /// Answer to 32.
    pub struct GetEarliestMsgStoretimeResponse {
        /// Store time of the first message, ms; −1: none.
        timestamp: i64 = b"timestamp",
    }

    /// Code 33.
    pub struct ViewMessageRequest {
        /// Commit-log offset.
        offset: i64 = b"offset",
    }
}
