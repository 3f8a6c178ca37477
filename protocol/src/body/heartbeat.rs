//! HEART_BEAT (34) and the subscription data that other bodies carry too (wire spec 6.6).

use super::{body, wire_enum};

wire_enum! {
    /// How a consumer gets its messages.
    pub enum ConsumeType {
        /// The application pulls.
        ConsumeActively = "CONSUME_ACTIVELY",
        /// The client pushes messages to a listener.
        ConsumePassively = "CONSUME_PASSIVELY",
        /// Pop consumption of 5.x clients.
        ConsumePop = "CONSUME_POP",
    }
}

wire_enum! {
    /// Whether the members of a group share the queues.
    pub enum MessageModel {
        /// Every member gets every message.
        Broadcasting = "BROADCASTING",
        /// Each message goes to one member.
        Clustering = "CLUSTERING",
    }
}

wire_enum! {
    /// Where a group without a stored offset begins.
    pub enum ConsumeFromWhere {
        /// At the end.
        ConsumeFromLastOffset = "CONSUME_FROM_LAST_OFFSET",
        /// Read as the former.
        ConsumeFromLastOffsetAndFromMinWhenBootFirst = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        /// Read as [`ConsumeFromWhere::ConsumeFromLastOffset`].
        ConsumeFromMinOffset = "CONSUME_FROM_MIN_OFFSET",
        /// Read as [`ConsumeFromWhere::ConsumeFromLastOffset`].
        ConsumeFromMaxOffset = "CONSUME_FROM_MAX_OFFSET",
        /// At the beginning.
        ConsumeFromFirstOffset = "CONSUME_FROM_FIRST_OFFSET",
        /// At a time the consumer was configured with.
        ConsumeFromTimestamp = "CONSUME_FROM_TIMESTAMP",
    }
}

body! {
    /// What a consumer wants of one topic.
    #[derive(Eq)]
    pub struct SubscriptionData: Fastjson {
        /// `sub_string` is the class name of a filter at a filter server.
        class_filter_mode: bool = "classFilterMode";
        /// Java hash code of each tag. Recompute it from the tags rather than trust it.
        code_set: Vec<i32> = "codeSet";
        /// `TAG` or `SQL92`.
        expression_type: String = "expressionType", default "TAG".to_owned();
        /// `*`, `A || B`, an SQL92 text, or a class name.
        sub_string: String = "subString";
        /// Grows with each change; Java sends ms, Go ns.
        sub_version: i64 = "subVersion";
        /// The tags of a tag expression.
        tags_set: Vec<String> = "tagsSet";
        /// Topic.
        topic: String = "topic";
    }
}

body! {
    /// A producer group of the client.
    #[derive(Eq)]
    pub struct ProducerData: Fastjson {
        /// The group.
        group_name: String = "groupName";
    }
}

body! {
    /// A consumer group of the client.
    #[derive(Eq)]
    pub struct ConsumerData: Fastjson {
        /// Where to begin without a stored offset; `None` for names we do not know (Go sends `UNKNOWN`).
        consume_from_where: Option<ConsumeFromWhere> = "consumeFromWhere";
        /// Pull or push.
        consume_type: Option<ConsumeType> = "consumeType";
        /// The group.
        group_name: String = "groupName";
        /// Shared or broadcast.
        message_model: Option<MessageModel> = "messageModel";
        /// One entry a topic.
        subscription_data_set: Vec<SubscriptionData> = "subscriptionDataSet";
        /// The consumer belongs to a unit.
        unit_mode: bool = "unitMode";
    }
}

body! {
    /// What a client tells every broker it uses, every 30 s.
    #[derive(Eq)]
    pub struct HeartbeatData: Fastjson {
        /// `ip@instance[@unit]`.
        client_id: String = "clientID";
        /// Consumer groups.
        consumer_data_set: Vec<ConsumerData> = "consumerDataSet";
        /// Producer groups.
        producer_data_set: Vec<ProducerData> = "producerDataSet";
    }
}
