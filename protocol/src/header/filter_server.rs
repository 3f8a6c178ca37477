//! Filter servers: codes 301 and 302 (wire spec 4.9). Pulls from them use [`super::PullMessageRequest`].

use super::header;

header! {
    /// Code 301, to the broker it filters for.
    pub struct RegisterFilterServerRequest<'a> {
        /// Where consumers reach it, `ip:port`.
        filter_server_addr: &'a str = b"filterServerAddr",
    }

    /// Answer to 301.
    pub struct RegisterFilterServerResponse<'a> {
        /// The broker's name.
        broker_name: &'a str = b"brokerName",
        /// Its id; 0: master.
        broker_id: i64 = b"brokerId",
    }

    /// Code 302; the body is the filter.
    pub struct RegisterMessageFilterClassRequest<'a> {
        /// Consumer group.
        consumer_group: &'a str = b"consumerGroup",
        /// Topic.
        topic: &'a str = b"topic",
        /// Name of the filter.
        class_name: &'a str = b"className",
        /// CRC-32 of the body, top bit cleared; 0: not given.
        class_crc: i32 = b"classCRC",
    }
}
