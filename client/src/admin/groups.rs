//! Consumer groups at brokers.

use minimq_protocol::Command;
use minimq_protocol::body::{SubscriptionGroupConfig, SubscriptionGroupWrapper};
use minimq_protocol::code::request;
use minimq_protocol::header::DeleteSubscriptionGroupRequest;
use minimq_protocol::name;

use super::{Admin, body};
use crate::error::Result;

impl Admin {
    /// Creates or changes a group at one broker (200).
    pub async fn create_group(&self, addr: &str, group: &SubscriptionGroupConfig) -> Result<()> {
        name::check_group(&group.group_name)?;
        let request = Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
            .with_body(group.to_wire());
        self.call(addr, request).await.map(drop)
    }

    /// Creates or changes a group at every master of a cluster; the brokers' addresses.
    pub async fn create_group_in_cluster(
        &self,
        cluster: &str,
        group: &SubscriptionGroupConfig,
    ) -> Result<Vec<String>> {
        let mut done = Vec::new();
        for (_, addr) in self.masters_of_cluster(cluster).await? {
            self.create_group(&addr, group).await?;
            done.push(addr);
        }
        Ok(done)
    }

    /// All groups of a broker (201).
    pub async fn groups(&self, addr: &str) -> Result<SubscriptionGroupWrapper> {
        let answer = self
            .call_long(
                addr,
                Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
            )
            .await?;
        body(addr, &answer, SubscriptionGroupWrapper::from_json)
    }

    /// One group's settings at a broker.
    pub async fn group_config(
        &self,
        addr: &str,
        group: &str,
    ) -> Result<Option<SubscriptionGroupConfig>> {
        Ok(self
            .groups(addr)
            .await?
            .subscription_group_table
            .remove(group))
    }

    /// Deletes a group at one broker (207), and its offsets if wanted.
    pub async fn delete_group(&self, addr: &str, group: &str, remove_offsets: bool) -> Result<()> {
        let header = DeleteSubscriptionGroupRequest {
            group_name: group,
            remove_offset: remove_offsets,
            clean_offset: Some(remove_offsets),
        };
        self.call(
            addr,
            Command::request_with(request::DELETE_SUBSCRIPTIONGROUP, &header),
        )
        .await
        .map(drop)
    }
}
