//! Name server: codes 100–106, 205, 216, 219, 224, 322, 327 (wire spec 4.1). Those not here have no header fields.

use super::header;

header! {
    /// Code 100.
    pub struct PutKVConfigRequest<'a> {
        /// Namespace, e.g. `ORDER_TOPIC_CONFIG`.
        namespace: &'a str = b"namespace",
        /// Key.
        key: &'a str = b"key",
        /// Value.
        value: &'a str = b"value",
    }

    /// Code 101.
    pub struct GetKVConfigRequest<'a> {
        /// Namespace.
        namespace: &'a str = b"namespace",
        /// Key.
        key: &'a str = b"key",
    }

    /// Answer to 101.
    pub struct GetKVConfigResponse<'a> {
        /// Value.
        value: Option<&'a str> = b"value",
    }

    /// Code 102.
    pub struct DeleteKVConfigRequest<'a> {
        /// Namespace.
        namespace: &'a str = b"namespace",
        /// Key.
        key: &'a str = b"key",
    }

    /// Code 103.
    pub struct RegisterBrokerRequest<'a> {
        /// Broker name.
        broker_name: &'a str = b"brokerName",
        /// Where clients reach it, `ip:port`.
        broker_addr: &'a str = b"brokerAddr",
        /// Cluster.
        cluster_name: &'a str = b"clusterName",
        /// Where slaves fetch the log, `ip:port`.
        ha_server_addr: &'a str = b"haServerAddr",
        /// 0: master.
        broker_id: i64 = b"brokerId",
        /// Whether the body is the zlib form (wire spec 6.4).
        compressed: bool = b"compressed" or false,
        /// CRC-32 of the body as sent, top bit cleared; 0: not given.
        body_crc32: i32 = b"bodyCrc32" or 0,
    }

    /// Answer to 103: both only to a slave whose master is known.
    pub struct RegisterBrokerResponse<'a> {
        /// Where the slave fetches the log.
        ha_server_addr: Option<&'a str> = b"haServerAddr",
        /// Its master.
        master_addr: Option<&'a str> = b"masterAddr",
    }

    /// Code 104.
    pub struct UnRegisterBrokerRequest<'a> {
        /// Broker name.
        broker_name: &'a str = b"brokerName",
        /// Its address.
        broker_addr: &'a str = b"brokerAddr",
        /// Cluster.
        cluster_name: &'a str = b"clusterName",
        /// 0: master.
        broker_id: i64 = b"brokerId",
    }

    /// Code 105.
    pub struct GetRouteInfoRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// Wants standard JSON whatever its version (4.9.4+).
        accept_standard_json_only: Option<bool> = b"acceptStandardJsonOnly",
    }

    /// Code 205.
    pub struct WipeWritePermOfBrokerRequest<'a> {
        /// Broker name.
        broker_name: &'a str = b"brokerName",
    }

    /// Answer to 205.
    pub struct WipeWritePermOfBrokerResponse {
        /// Topics changed.
        wipe_topic_count: i32 = b"wipeTopicCount",
    }

    /// Code 216.
    pub struct DeleteTopicFromNamesrvRequest<'a> {
        /// Topic.
        topic: &'a str = b"topic",
        /// Only there.
        cluster_name: Option<&'a str> = b"clusterName",
    }

    /// Code 219.
    pub struct GetKVListByNamespaceRequest<'a> {
        /// Namespace.
        namespace: &'a str = b"namespace",
    }

    /// Code 224.
    pub struct GetTopicsByClusterRequest<'a> {
        /// Cluster.
        cluster: &'a str = b"cluster",
    }

    /// Code 322.
    pub struct QueryDataVersionRequest<'a> {
        /// Broker name.
        broker_name: &'a str = b"brokerName",
        /// Its address.
        broker_addr: &'a str = b"brokerAddr",
        /// Cluster.
        cluster_name: &'a str = b"clusterName",
        /// 0: master.
        broker_id: i64 = b"brokerId",
    }

    /// Answer to 322.
    pub struct QueryDataVersionResponse {
        /// Whether the broker should register.
        changed: bool = b"changed",
    }

    /// Code 327.
    pub struct AddWritePermOfBrokerRequest<'a> {
        /// Broker name.
        broker_name: &'a str = b"brokerName",
    }

    /// Answer to 327.
    pub struct AddWritePermOfBrokerResponse {
        /// Topics changed.
        add_topic_count: i32 = b"addTopicCount",
    }
}
