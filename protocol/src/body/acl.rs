//! Access control bodies (wire spec 6.15).

use super::{DataVersion, body};
use crate::json;
use std::collections::BTreeMap;

body! {
    /// One account.
    #[derive(Eq)]
    pub struct PlainAccessConfig: Fastjson {
        /// Name of the account.
        access_key: Option<String> = "accessKey";
        /// May do everything.
        admin: bool = "admin";
        /// Permission on groups not named, such as `SUB`.
        default_group_perm: Option<String> = "defaultGroupPerm";
        /// Permission on topics not named, such as `DENY`.
        default_topic_perm: Option<String> = "defaultTopicPerm";
        /// `group=PERM` items.
        group_perms: Option<Vec<String>> = "groupPerms";
        /// Secret of the account.
        secret_key: Option<String> = "secretKey";
        /// `topic=PERM` items.
        topic_perms: Option<Vec<String>> = "topicPerms";
        /// Addresses that need no signature.
        white_remote_address: Option<String> = "whiteRemoteAddress";
    }
}

body! {
    /// Answer to GET_BROKER_CLUSTER_ACL_CONFIG (54), brokers 4.6.0 to 4.9.7.
    #[derive(Eq)]
    pub struct AclConfig: Fastjson {
        /// Addresses that need no signature at all.
        global_white_addrs: Option<Vec<String>> = "globalWhiteAddrs";
        /// The accounts.
        plain_access_configs: Option<Vec<PlainAccessConfig>> = "plainAccessConfigs";
    }
}

/// File path → version: the text in the field `allAclFileVersion` of answer 52.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AclFileVersions(pub BTreeMap<String, DataVersion>);

impl json::FromValue for AclFileVersions {
    fn from_value(value: &json::Value<'_>) -> Result<Option<Self>, json::BodyError> {
        Ok(BTreeMap::from_value(value)?.map(AclFileVersions))
    }
}

impl json::ToJson for AclFileVersions {
    fn write(&self, writer: &mut json::Writer) {
        self.0.write(writer);
    }
}

super::body_methods!(AclFileVersions, Fastjson);
