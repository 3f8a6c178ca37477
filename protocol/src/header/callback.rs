//! What a broker asks of clients: codes 39, 40, 326; 220, 221, 307 and 309 share their headers with the admin codes
//! that cause them (wire spec 4.8).

use super::header;

header! {
    /// Code 39; the body is the half message.
    pub struct CheckTransactionStateRequest<'a> {
        /// Queue offset of the half message.
        tran_state_table_offset: i64 = b"tranStateTableOffset",
        /// Commit-log offset of the half message.
        commit_log_offset: i64 = b"commitLogOffset",
        /// Unique id the client gave the message.
        msg_id: Option<&'a str> = b"msgId",
        /// The same.
        transaction_id: Option<&'a str> = b"transactionId",
        /// Offset id.
        offset_msg_id: Option<&'a str> = b"offsetMsgId",
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }

    /// Code 40.
    pub struct NotifyConsumerIdsChangedRequest<'a> {
        /// Consumer group.
        consumer_group: &'a str = b"consumerGroup",
    }

    /// Code 326; the body is the reply.
    pub struct ReplyMessageRequest<'a> {
        /// Producer group of the replying side.
        producer_group: &'a str = b"producerGroup",
        /// Reply topic.
        topic: &'a str = b"topic",
        /// As in the reply sent.
        default_topic: &'a str = b"defaultTopic",
        /// As in the reply sent.
        default_topic_queue_nums: i32 = b"defaultTopicQueueNums",
        /// Queue.
        queue_id: i32 = b"queueId",
        /// Bits of the message.
        sys_flag: i32 = b"sysFlag",
        /// The replying side's clock, ms.
        born_timestamp: i64 = b"bornTimestamp",
        /// The application's flag.
        flag: i32 = b"flag",
        /// Properties text.
        properties: Option<&'a str> = b"properties",
        /// Times consumed before.
        reconsume_times: Option<i32> = b"reconsumeTimes",
        /// Unit mode.
        unit_mode: bool = b"unitMode" or false,
        /// Who replied, `ip:port`.
        born_host: &'a str = b"bornHost",
        /// The broker, `ip:port`.
        store_host: &'a str = b"storeHost",
        /// The broker's clock, ms.
        store_timestamp: i64 = b"storeTimestamp",
    }
}
