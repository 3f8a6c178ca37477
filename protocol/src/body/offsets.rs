//! Offset tables: answers 43 and 45, the files of the broker and of broadcast consumers, and the event that an offset
//! was moved (wire spec 6.14, broker spec 16, client spec 4.8).

use super::{MessageQueue, body};
use std::collections::BTreeMap;

body! {
    /// Offsets of all groups: answer 43, `consumerOffset.json`, `lmqConsumerOffset.json`.
    #[derive(Eq)]
    pub struct ConsumerOffsetWrapper: Standard, large {
        /// `topic@group` → offset, of light message queues; `None` where these are off.
        lmq_offset_table: Option<BTreeMap<String, i64>> = "lmqOffsetTable";
        /// `topic@group` → queue id → offset.
        offset_table: BTreeMap<String, BTreeMap<i32, i64>> = "offsetTable";
    }
}

body! {
    /// Offsets of the delay levels: answer 45, `delayOffset.json`.
    #[derive(Eq)]
    pub struct DelayOffsetWrapper: Standard {
        /// Delay level → offset.
        offset_table: BTreeMap<i32, i64> = "offsetTable";
    }
}

body! {
    /// Offsets of a broadcast consumer in its own file `offsets.json`.
    #[derive(Eq)]
    pub struct LocalOffsetTable: Fastjson, large {
        /// Queue → offset.
        offset_table: BTreeMap<MessageQueue, i64> = "offsetTable";
    }
}

body! {
    /// Body of the messages in topic `OFFSET_MOVED_EVENT`.
    #[derive(Eq)]
    pub struct OffsetMovedEvent: Fastjson {
        /// The group.
        consumer_group: String = "consumerGroup";
        /// The queue.
        message_queue: MessageQueue = "messageQueue";
        /// Offset to go on from.
        offset_new: i64 = "offsetNew";
        /// Offset asked for.
        offset_request: i64 = "offsetRequest";
    }
}
