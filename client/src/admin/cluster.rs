//! Clusters and brokers: who is there, their figures, permissions and house-keeping.

use std::collections::BTreeMap;

use minimq_protocol::Command;
use minimq_protocol::body::{ClusterInfo, KvTable};
use minimq_protocol::code::request;
use minimq_protocol::header::{
    AddWritePermOfBrokerRequest, AddWritePermOfBrokerResponse, WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
};

use super::{Admin, body, header};
use crate::error::Result;

impl Admin {
    /// Clusters and brokers (106).
    pub async fn cluster_info(&self) -> Result<ClusterInfo> {
        self.name_server(
            Command::request(request::GET_BROKER_CLUSTER_INFO),
            ClusterInfo::from_json,
        )
        .await
    }

    /// The same, asked of one name server.
    pub async fn cluster_info_at(&self, name_server: &str) -> Result<ClusterInfo> {
        let answer = self
            .call(
                name_server,
                Command::request(request::GET_BROKER_CLUSTER_INFO),
            )
            .await?;
        body(name_server, &answer, ClusterInfo::from_json)
    }

    /// Addresses of all brokers, slaves included, of one cluster or all.
    pub async fn broker_addresses(&self, cluster: Option<&str>) -> Result<Vec<String>> {
        let info = self.cluster_info().await?;
        let names = info
            .cluster_addr_table
            .iter()
            .filter(|(name, _)| cluster.is_none_or(|wanted| wanted == *name));
        let brokers = names
            .flat_map(|(_, names)| names)
            .filter_map(|name| info.broker_addr_table.get(name));
        Ok(brokers
            .flat_map(|broker| broker.broker_addrs.values().cloned())
            .collect())
    }

    /// Figures of a broker (28).
    pub async fn broker_runtime(&self, addr: &str) -> Result<BTreeMap<String, String>> {
        let answer = self
            .call(addr, Command::request(request::GET_BROKER_RUNTIME_INFO))
            .await?;
        Ok(body(addr, &answer, KvTable::from_json)?.table)
    }

    /// Takes the write permission of all topics at a broker, at one name server (205); topics changed.
    pub async fn wipe_write_permission(&self, name_server: &str, broker_name: &str) -> Result<i32> {
        let request = Command::request_with(
            request::WIPE_WRITE_PERM_OF_BROKER,
            &WipeWritePermOfBrokerRequest { broker_name },
        );
        let answer = self.call(name_server, request).await?;
        Ok(header::<WipeWritePermOfBrokerResponse>(name_server, &answer)?.wipe_topic_count)
    }

    /// Gives it back (327); topics changed.
    pub async fn add_write_permission(&self, name_server: &str, broker_name: &str) -> Result<i32> {
        let request = Command::request_with(
            request::ADD_WRITE_PERM_OF_BROKER,
            &AddWritePermOfBrokerRequest { broker_name },
        );
        let answer = self.call(name_server, request).await?;
        Ok(header::<AddWritePermOfBrokerResponse>(name_server, &answer)?.add_topic_count)
    }

    /// Deletes consume-queue files that point at nothing any more (306).
    pub async fn clean_expired_queues(&self, addr: &str) -> Result<()> {
        self.call_long(addr, Command::request(request::CLEAN_EXPIRED_CONSUMEQUEUE))
            .await
            .map(drop)
    }

    /// Deletes commit-log files past their time (329).
    pub async fn delete_expired_commit_log(&self, addr: &str) -> Result<()> {
        self.call_long(addr, Command::request(request::DELETE_EXPIRED_COMMITLOG))
            .await
            .map(drop)
    }

    /// Deletes queues of topics that do not exist (316).
    pub async fn clean_unused_topics(&self, addr: &str) -> Result<()> {
        self.call_long(addr, Command::request(request::CLEAN_UNUSED_TOPIC))
            .await
            .map(drop)
    }
}
