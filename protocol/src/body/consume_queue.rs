//! Entries of a consume queue: answer 321; and the request 46 that checks a subscription (wire spec 6.8).

use super::{SubscriptionData, body};

body! {
    /// One entry.
    #[derive(Eq)]
    pub struct ConsumeQueueData: Fastjson {
        /// Bloom bits of the entry, as text.
        bit_map: Option<String> = "bitMap";
        /// Whether the subscription takes the message.
        eval: bool = "eval";
        /// The extended entry as JSON text.
        extend_data_json: Option<String> = "extendDataJson";
        /// What went wrong with this entry.
        msg: Option<String> = "msg";
        /// Offset in the commit log.
        physic_offset: i64 = "physicOffset";
        /// Length of the record, bytes.
        physic_size: i32 = "physicSize";
        /// Hash of the tags, or the address of the extended entry.
        tags_code: i64 = "tagsCode";
    }
}

body! {
    /// Answer to QUERY_CONSUME_QUEUE (321).
    #[derive(Eq)]
    pub struct QueryConsumeQueueResponseBody: Fastjson {
        /// The group's filter as text.
        filter_data: Option<String> = "filterData";
        /// One past the last index.
        max_queue_index: i64 = "maxQueueIndex";
        /// The first index.
        min_queue_index: i64 = "minQueueIndex";
        /// The entries.
        queue_data: Option<Vec<ConsumeQueueData>> = "queueData", default Some(Vec::new());
        /// The group's subscription, if there is one.
        subscription_data: Option<SubscriptionData> = "subscriptionData";
    }
}

body! {
    /// Request CHECK_CLIENT_CONFIG (46).
    #[derive(Eq)]
    pub struct CheckClientRequestBody: Fastjson {
        /// Client id.
        client_id: String = "clientId";
        /// Consumer group.
        group: String = "group";
        /// The subscription to check; without one there is nothing to check.
        subscription_data: Option<SubscriptionData> = "subscriptionData";
    }
}
