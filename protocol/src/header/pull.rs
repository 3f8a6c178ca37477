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
}
