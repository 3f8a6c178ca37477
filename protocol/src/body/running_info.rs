//! What a running consumer tells about itself: answers 307 and 309 (wire spec 6.11, 6.12).

use super::{MessageQueue, SubscriptionData, body, wire_enum};
use std::collections::BTreeMap;

body! {
    /// What a consumer holds of one queue. Offsets are queue offsets, times ms since 1970.
    #[derive(Copy, Eq)]
    pub struct ProcessQueueInfo: Fastjson {
        /// Messages fetched and not yet consumed.
        cached_msg_count: i32 = "cachedMsgCount";
        /// Largest offset of these.
        cached_msg_max_offset: i64 = "cachedMsgMaxOffset";
        /// Smallest offset of these.
        cached_msg_min_offset: i64 = "cachedMsgMinOffset";
        /// Their size, MiB.
        cached_msg_size_in_mib: i32 = "cachedMsgSizeInMiB";
        /// Offset to be stored.
        commit_offset: i64 = "commitOffset";
        /// The queue belongs to another consumer by now. Java's spelling; Go writes `dropped`.
        dropped: bool = "droped" | "dropped";
        /// Last time messages were consumed.
        last_consume_timestamp: i64 = "lastConsumeTimestamp";
        /// Last time the queue was locked at the broker.
        last_lock_timestamp: i64 = "lastLockTimestamp";
        /// Last pull.
        last_pull_timestamp: i64 = "lastPullTimestamp";
        /// The queue is locked at the broker.
        locked: bool = "locked";
        /// Messages being consumed in order.
        transaction_msg_count: i32 = "transactionMsgCount";
        /// Largest offset of these.
        transaction_msg_max_offset: i64 = "transactionMsgMaxOffset";
        /// Smallest offset of these.
        transaction_msg_min_offset: i64 = "transactionMsgMinOffset";
        /// Times an unlock was put off.
        try_unlock_times: i64 = "tryUnlockTimes";
    }
}

body! {
    /// Speed of a consumer on one topic: times in ms, rates a second.
    #[derive(Copy)]
    pub struct ConsumeStatus: Fastjson {
        /// Messages failed in the last hour.
        consume_failed_msgs: i64 = "consumeFailedMsgs";
        /// Messages failed a second.
        consume_failed_tps: f64 = "consumeFailedTPS";
        /// Messages consumed a second.
        consume_ok_tps: f64 = "consumeOKTPS";
        /// Time to consume a batch.
        consume_rt: f64 = "consumeRT";
        /// Time of a pull.
        pull_rt: f64 = "pullRT";
        /// Messages pulled a second.
        pull_tps: f64 = "pullTPS";
    }
}

body! {
    /// Answer to GET_CONSUMER_RUNNING_INFO (307). A broker relays the bytes without reading them.
    pub struct ConsumerRunningInfo: Fastjson, large {
        /// Stack traces, if asked for.
        jstack: Option<String> = "jstack";
        /// Queue → what the consumer holds of it.
        mq_table: BTreeMap<MessageQueue, ProcessQueueInfo> = "mqTable";
        /// Settings; the keys are [`ConsumerRunningInfo::CONSUME_TYPE`] and the like.
        properties: BTreeMap<String, String> = "properties";
        /// Topic → speed.
        status_table: BTreeMap<String, ConsumeStatus> = "statusTable";
        /// The subscriptions.
        subscription_set: Vec<SubscriptionData> = "subscriptionSet";
    }
}

impl ConsumerRunningInfo {
    /// Name server addresses, each followed by `;`.
    pub const NAMESERVER_ADDR: &'static str = "PROP_NAMESERVER_ADDR";
    /// Size of the thread pool.
    pub const THREADPOOL_CORE_SIZE: &'static str = "PROP_THREADPOOL_CORE_SIZE";
    /// `true` for ordered consumption.
    pub const CONSUME_ORDERLY: &'static str = "PROP_CONSUMEORDERLY";
    /// Name of a [`ConsumeType`](super::ConsumeType).
    pub const CONSUME_TYPE: &'static str = "PROP_CONSUME_TYPE";
    /// Name of the client's version.
    pub const CLIENT_VERSION: &'static str = "PROP_CLIENT_VERSION";
    /// Start time, ms.
    pub const CONSUMER_START_TIMESTAMP: &'static str = "PROP_CONSUMER_START_TIMESTAMP";
}

wire_enum! {
    /// What became of a message that was consumed on request.
    pub enum ConsumeMessageResult {
        /// Consumed.
        Success = "CR_SUCCESS",
        /// To be consumed later.
        Later = "CR_LATER",
        /// Rolled back.
        Rollback = "CR_ROLLBACK",
        /// Committed.
        Commit = "CR_COMMIT",
        /// The listener failed.
        ThrowException = "CR_THROW_EXCEPTION",
        /// The listener gave no result.
        ReturnNull = "CR_RETURN_NULL",
    }
}

body! {
    /// Answer to CONSUME_MESSAGE_DIRECTLY (309). A broker relays the bytes without reading them.
    #[derive(Eq)]
    pub struct ConsumeMessageDirectlyResult: Fastjson {
        /// Offsets are stored without the application's doing.
        auto_commit: bool = "autoCommit", default true;
        /// The result; Go sends the ordinal.
        consume_result: Option<ConsumeMessageResult> = "consumeResult";
        /// Consumed by an ordered listener.
        order: bool = "order";
        /// Text of the failure.
        remark: Option<String> = "remark";
        /// Time taken, ms.
        spent_time_mills: i64 = "spentTimeMills";
    }
}
