//! Access rules: codes 50–54 (wire spec 4.6), and the names of loose fields that any request may carry (wire spec 8.1,
//! 8.4, 11.1).

use super::header;

pub use crate::acl_signature::{ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, UNIQUE_KEY_QUERY};

/// Ext field: sent and signed by C++.
pub const ONS_CHANNEL: &str = "OnsChannel";
/// Ext field of clients in stream mode (wire spec 8.4).
pub const REQUEST_TYPE: &str = "ReqT";
/// Ext field that Java 5.x adds after signing.
pub const ZONE_NAME: &str = "__ZONE_NAME";
/// Ext field that Java 5.x adds after signing.
pub const ZONE_MODE: &str = "__ZONE_MODE";
/// Ext field: namespace of all topics and groups of a request (5.x).
pub const NAMESPACE: &str = "ns";
/// Ext field: whether [`NAMESPACE`] holds (5.x).
pub const NAMESPACED: &str = "nsd";

header! {
    /// Code 50.
    pub struct CreateAccessConfigRequest<'a> {
        /// Account.
        access_key: &'a str = b"accessKey",
        /// Its secret.
        secret_key: Option<&'a str> = b"secretKey",
        /// Addresses that need no signature.
        white_remote_address: Option<&'a str> = b"whiteRemoteAddress",
        /// Administrator.
        admin: bool = b"admin" or false,
        /// `DENY`, `PUB`, `SUB` or `PUB|SUB`.
        default_topic_perm: Option<&'a str> = b"defaultTopicPerm",
        /// As for topics.
        default_group_perm: Option<&'a str> = b"defaultGroupPerm",
        /// `topic=PERM` items joined by `,`.
        topic_perms: Option<&'a str> = b"topicPerms",
        /// `group=PERM` items joined by `,`.
        group_perms: Option<&'a str> = b"groupPerms",
    }

    /// Code 51.
    pub struct DeleteAccessConfigRequest<'a> {
        /// Account.
        access_key: &'a str = b"accessKey",
    }

    /// Answer to 52.
    pub struct GetBrokerAclConfigResponse<'a> {
        /// A DataVersion as JSON.
        version: &'a str = b"version",
        /// JSON object: file path → DataVersion (4.9.3+).
        all_acl_file_version: Option<&'a str> = b"allAclFileVersion",
        /// Broker name.
        broker_name: &'a str = b"brokerName",
        /// Its address.
        broker_addr: &'a str = b"brokerAddr",
        /// Cluster.
        cluster_name: &'a str = b"clusterName",
    }

    /// Code 53.
    pub struct UpdateGlobalWhiteAddrsConfigRequest<'a> {
        /// Addresses joined by `,`.
        global_white_addrs: &'a str = b"globalWhiteAddrs",
        /// The rules file meant (4.9.4+).
        acl_file_full_path: Option<&'a str> = b"aclFileFullPath",
    }
}
