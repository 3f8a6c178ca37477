//! Access control at brokers.

use minimq_protocol::Command;
use minimq_protocol::body::{AclConfig, AclFileVersions, DataVersion, PlainAccessConfig};
use minimq_protocol::code::request;
use minimq_protocol::header::{
    CreateAccessConfigRequest, DeleteAccessConfigRequest, GetBrokerAclConfigResponse,
    UpdateGlobalWhiteAddrsConfigRequest,
};

use super::{Admin, body, header};
use crate::error::{Error, Result};

/// Version of a broker's access rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessVersion {
    /// The broker's name.
    pub broker_name: String,
    /// Its address.
    pub broker_addr: String,
    /// Its cluster.
    pub cluster: String,
    /// Version of the default file.
    pub version: DataVersion,
    /// Version of every file.
    pub files: AclFileVersions,
}

impl Admin {
    /// Creates or changes an account at a broker (50).
    pub async fn set_account(&self, addr: &str, account: &PlainAccessConfig) -> Result<()> {
        let joined = |items: &Option<Vec<String>>| items.as_ref().map(|items| items.join(","));
        let (topics, groups) = (joined(&account.topic_perms), joined(&account.group_perms));
        let header = CreateAccessConfigRequest {
            access_key: account.access_key.as_deref().unwrap_or_default(),
            secret_key: account.secret_key.as_deref(),
            white_remote_address: account.white_remote_address.as_deref(),
            admin: account.admin,
            default_topic_perm: account.default_topic_perm.as_deref(),
            default_group_perm: account.default_group_perm.as_deref(),
            topic_perms: topics.as_deref(),
            group_perms: groups.as_deref(),
        };
        self.call(
            addr,
            Command::request_with(request::UPDATE_AND_CREATE_ACL_CONFIG, &header),
        )
        .await
        .map(drop)
    }

    /// Deletes an account at a broker (51).
    pub async fn delete_account(&self, addr: &str, access_key: &str) -> Result<()> {
        let header = DeleteAccessConfigRequest { access_key };
        self.call(
            addr,
            Command::request_with(request::DELETE_ACL_CONFIG, &header),
        )
        .await
        .map(drop)
    }

    /// Sets the addresses that need no signature at a broker (53); `file`: in that rules file.
    pub async fn set_global_white_addrs(
        &self,
        addr: &str,
        white_addrs: &str,
        file: Option<&str>,
    ) -> Result<()> {
        let header = UpdateGlobalWhiteAddrsConfigRequest {
            global_white_addrs: white_addrs,
            acl_file_full_path: file,
        };
        self.call(
            addr,
            Command::request_with(request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, &header),
        )
        .await
        .map(drop)
    }

    /// Version of a broker's access rules (52).
    pub async fn access_version(&self, addr: &str) -> Result<AccessVersion> {
        let answer = self
            .call(addr, Command::request(request::GET_BROKER_CLUSTER_ACL_INFO))
            .await?;
        let found: GetBrokerAclConfigResponse = header(addr, &answer)?;
        let bad = |error| Error::bad_answer(addr, error);
        let files = found
            .all_acl_file_version
            .map(|text| AclFileVersions::from_json(text.as_bytes()));
        Ok(AccessVersion {
            version: DataVersion::from_json(found.version.as_bytes()).map_err(bad)?,
            files: files.transpose().map_err(bad)?.unwrap_or_default(),
            broker_name: found.broker_name.to_owned(),
            broker_addr: found.broker_addr.to_owned(),
            cluster: found.cluster_name.to_owned(),
        })
    }

    /// A broker's access rules (54).
    pub async fn access_rules(&self, addr: &str) -> Result<AclConfig> {
        let answer = self
            .call(
                addr,
                Command::request(request::GET_BROKER_CLUSTER_ACL_CONFIG),
            )
            .await?;
        body(addr, &answer, AclConfig::from_json)
    }
}
