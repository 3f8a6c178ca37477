//! Who is connected: answers 203, 204 and 328 (wire spec 6.8).

use super::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData, body};
use std::collections::BTreeMap;

body! {
    /// One client connection.
    #[derive(Eq)]
    pub struct Connection: Fastjson {
        /// `ip:port`.
        client_addr: String = "clientAddr";
        /// Client id.
        client_id: String = "clientId";
        /// Name of the client's language, such as `JAVA`.
        language: Option<String> = "language";
        /// Version number of the client.
        version: i32 = "version";
    }
}

body! {
    /// Answer to GET_CONSUMER_CONNECTION_LIST (203).
    #[derive(Eq)]
    pub struct ConsumerConnection: Fastjson {
        /// The members of the group.
        connection_set: Vec<Connection> = "connectionSet";
        /// Where the group begins without a stored offset.
        consume_from_where: Option<ConsumeFromWhere> = "consumeFromWhere";
        /// Pull or push.
        consume_type: Option<ConsumeType> = "consumeType";
        /// Shared or broadcast.
        message_model: Option<MessageModel> = "messageModel";
        /// Topic → subscription.
        subscription_table: BTreeMap<String, SubscriptionData> = "subscriptionTable";
    }
}

body! {
    /// Answer to GET_PRODUCER_CONNECTION_LIST (204).
    #[derive(Eq)]
    pub struct ProducerConnection: Fastjson {
        /// The members of the group.
        connection_set: Vec<Connection> = "connectionSet";
    }
}

body! {
    /// One producer in answer 328.
    #[derive(Eq)]
    pub struct ProducerInfo: Fastjson {
        /// Client id.
        client_id: String = "clientId";
        /// Name of the client's language.
        language: Option<String> = "language";
        /// Time of its last heartbeat, ms.
        last_update_timestamp: i64 = "lastUpdateTimestamp";
        /// `/ip:port`, with the slash.
        remote_ip: String = "remoteIP";
        /// Version number of the client.
        version: i32 = "version";
    }
}

body! {
    /// Answer to GET_ALL_PRODUCER_INFO (328).
    #[derive(Eq)]
    pub struct ProducerTableInfo: Fastjson, large {
        /// Producer group → members.
        data: BTreeMap<String, Vec<ProducerInfo>> = "data";
    }
}
