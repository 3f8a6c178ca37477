//! Answers to requests that only our brokers know: codes 31000 to 31003.

use super::{MessageQueue, body};
use std::collections::BTreeMap;

body! {
    /// A part of the commit log that is never served.
    #[derive(Eq)]
    pub struct DamagedRecordBody: Standard {
        /// Its first byte.
        from: i64 = "from";
        /// The queue of the record it is, where its head is whole.
        queue: Option<MessageQueue> = "queue";
        /// Its number in that queue; −1 if not known.
        queue_offset: i64 = "queueOffset";
        /// What is wrong.
        reason: String = "reason";
        /// First byte behind it.
        to: i64 = "to";
    }
}

body! {
    /// Answer to GET_DAMAGED_RECORDS (31000).
    #[derive(Eq)]
    pub struct DamagedRecordList: Standard, large {
        /// By place in the log.
        records: Vec<DamagedRecordBody> = "records";
    }
}

body! {
    /// A member that subscribes otherwise than its group.
    #[derive(Eq)]
    pub struct MixedMember: Standard {
        /// Its client id.
        client_id: String = "clientId";
        /// Topics that differ.
        topics: Vec<String> = "topics";
    }
}

body! {
    /// Answer to GET_MIXED_SUBSCRIPTIONS (31001).
    #[derive(Eq)]
    pub struct MixedSubscriptions: Standard, large {
        /// Group → members that differ.
        groups: BTreeMap<String, Vec<MixedMember>> = "groups";
    }
}

body! {
    /// Pulls that wait for messages of one queue.
    #[derive(Eq)]
    pub struct HeldPullBody: Standard {
        /// How many.
        count: i64 = "count";
        /// The longest wait so far, ms.
        longest_ms: i64 = "longestMs";
        /// The queue.
        queue: MessageQueue = "queue";
    }
}

body! {
    /// Answer to GET_HELD_PULLS (31002).
    #[derive(Eq)]
    pub struct HeldPullList: Standard, large {
        /// One entry a queue.
        pulls: Vec<HeldPullBody> = "pulls";
    }
}

body! {
    /// One lock.
    #[derive(Eq)]
    pub struct QueueLockBody: Standard {
        /// Who holds it.
        client_id: String = "clientId";
        /// The group it counts in.
        group: String = "group";
        /// The queue.
        queue: MessageQueue = "queue";
        /// When it was last taken or refreshed, ms.
        refreshed_timestamp: i64 = "refreshedTimestamp";
    }
}

body! {
    /// Answer to GET_QUEUE_LOCKS (31003).
    #[derive(Eq)]
    pub struct QueueLockList: Standard, large {
        /// All locks.
        locks: Vec<QueueLockBody> = "locks";
    }
}
