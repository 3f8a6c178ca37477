//! How far consumers have come, and statistics: answers 202, 208, 303, 308, 315, 317 (wire spec 6.8).

use super::{MessageQueue, body};
use std::collections::BTreeMap;

body! {
    /// A queue's end and a group's place in it.
    #[derive(Copy, Eq)]
    pub struct OffsetWrapper: Fastjson {
        /// End of the queue at the broker.
        broker_offset: i64 = "brokerOffset";
        /// The group's offset.
        consumer_offset: i64 = "consumerOffset";
        /// Store time of the last consumed message, ms; 0 if unknown.
        last_timestamp: i64 = "lastTimestamp";
    }
}

body! {
    /// Answer to GET_CONSUME_STATS (208).
    pub struct ConsumeStats: Fastjson, large {
        /// Messages a second.
        consume_tps: f64 = "consumeTps";
        /// Queue → offsets.
        offset_table: BTreeMap<MessageQueue, OffsetWrapper> = "offsetTable";
    }
}

body! {
    /// Answer to GET_BROKER_CONSUME_STATS (317).
    pub struct ConsumeStatsList: Fastjson, large {
        /// Address of the broker.
        broker_addr: Option<String> = "brokerAddr";
        /// Group → one entry a topic; one group an item.
        consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>> = "consumeStatsList";
        /// Messages not consumed, all groups together.
        total_diff: i64 = "totalDiff";
    }
}

body! {
    /// The ends of a queue.
    #[derive(Copy, Eq)]
    pub struct TopicOffset: Fastjson {
        /// Store time of the last message, ms; 0 if there is none.
        last_update_timestamp: i64 = "lastUpdateTimestamp";
        /// Next offset to be written.
        max_offset: i64 = "maxOffset";
        /// First offset.
        min_offset: i64 = "minOffset";
    }
}

body! {
    /// Answer to GET_TOPIC_STATS_INFO (202).
    #[derive(Eq)]
    pub struct TopicStatsTable: Fastjson, large {
        /// Queue → its ends.
        offset_table: BTreeMap<MessageQueue, TopicOffset> = "offsetTable";
    }
}

body! {
    /// Times of a queue in answer 303, ms since 1970. The texts are what Java writes besides
    /// (`yyyy-MM-dd#HH:mm:ss:SSS`, the sender's time zone); readers compute their own.
    #[derive(Eq)]
    pub struct QueueTimeSpan: Fastjson {
        /// Store time of the last consumed message.
        consume_time_stamp: i64 = "consumeTimeStamp";
        /// The same as text.
        consume_time_stamp_str: Option<String> = "consumeTimeStampStr";
        /// How far consumption lags behind, ms.
        delay_time: i64 = "delayTime";
        /// Store time of the last message.
        max_time_stamp: i64 = "maxTimeStamp";
        /// The same as text.
        max_time_stamp_str: Option<String> = "maxTimeStampStr";
        /// The queue.
        message_queue: MessageQueue = "messageQueue";
        /// Store time of the first message.
        min_time_stamp: i64 = "minTimeStamp";
        /// The same as text.
        min_time_stamp_str: Option<String> = "minTimeStampStr";
    }
}

body! {
    /// Answer to QUERY_CONSUME_TIME_SPAN (303).
    #[derive(Eq)]
    pub struct QueryConsumeTimeSpanBody: Fastjson, large {
        /// One entry a queue.
        consume_time_span_set: Vec<QueueTimeSpan> = "consumeTimeSpanSet";
    }
}

body! {
    /// Answer to QUERY_CORRECTION_OFFSET (308).
    #[derive(Eq)]
    pub struct QueryCorrectionOffsetBody: Standard {
        /// Queue id → offset.
        correction_offsets: BTreeMap<i32, i64> = "correctionOffsets";
    }
}

body! {
    /// Figures over one period.
    #[derive(Copy)]
    pub struct BrokerStatsItem: Fastjson {
        /// Sum an event.
        avgpt: f64 = "avgpt";
        /// Sum over the period.
        sum: i64 = "sum";
        /// Sum a second.
        tps: f64 = "tps";
    }
}

body! {
    /// Answer to VIEW_BROKER_STATS_DATA (315).
    #[derive(Copy)]
    pub struct BrokerStatsData: Fastjson {
        /// The last day.
        stats_day: BrokerStatsItem = "statsDay";
        /// The last hour.
        stats_hour: BrokerStatsItem = "statsHour";
        /// The last minute.
        stats_minute: BrokerStatsItem = "statsMinute";
    }
}

body! {
    /// Which groups have consumed a message. Declared in Java, unused on the wire.
    #[derive(Eq)]
    pub struct ConsumeByWho: Fastjson {
        /// Groups that have.
        consumed_group: Vec<String> = "consumedGroup";
        /// Groups that have not.
        not_consumed_group: Vec<String> = "notConsumedGroup";
        /// Queue offset of the message.
        offset: i64 = "offset";
        /// Its queue.
        queue_id: i32 = "queueId";
        /// Its topic.
        topic: Option<String> = "topic";
    }
}
