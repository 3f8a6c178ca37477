//! Topics: creating, deleting, listing, their figures.

use std::collections::BTreeSet;

use minimq_protocol::Command;
use minimq_protocol::body::{TopicConfig, TopicConfigWrapper, TopicList, TopicStatsTable};
use minimq_protocol::code::request;
use minimq_protocol::header::{
    CreateTopicRequest, DeleteTopicFromNamesrvRequest, DeleteTopicRequest,
    GetTopicStatsInfoRequest, GetTopicsByClusterRequest,
};
use minimq_protocol::name::{self, AUTO_CREATE_TOPIC};

use super::{Admin, body, masters};
use crate::error::{Error, Result};

impl Admin {
    /// Creates or changes a topic at one broker (17).
    pub async fn create_topic(&self, addr: &str, topic: &TopicConfig) -> Result<()> {
        name::check_topic(&topic.topic_name)?;
        let header = CreateTopicRequest {
            topic: &topic.topic_name,
            default_topic: AUTO_CREATE_TOPIC,
            read_queue_nums: topic.read_queue_nums,
            write_queue_nums: topic.write_queue_nums,
            perm: topic.perm,
            topic_filter_type: topic.topic_filter_type.as_str(),
            topic_sys_flag: Some(topic.topic_sys_flag),
            order: topic.order,
            attributes: None,
        };
        let request = Command::request_with(request::UPDATE_AND_CREATE_TOPIC, &header);
        self.call(addr, request).await.map(drop)
    }

    /// Creates or changes a topic at every master of a cluster; the brokers' addresses.
    pub async fn create_topic_in_cluster(
        &self,
        cluster: &str,
        topic: &TopicConfig,
    ) -> Result<Vec<String>> {
        let mut done = Vec::new();
        for (_, addr) in self.masters_of_cluster(cluster).await? {
            self.create_topic(&addr, topic).await?;
            done.push(addr);
        }
        Ok(done)
    }

    /// Deletes a topic at one broker (215).
    pub async fn delete_topic_at_broker(&self, addr: &str, topic: &str) -> Result<()> {
        let request = Command::request_with(
            request::DELETE_TOPIC_IN_BROKER,
            &DeleteTopicRequest { topic },
        );
        self.call(addr, request).await.map(drop)
    }

    /// Deletes a topic at one name server (216), in one cluster or everywhere.
    pub async fn delete_topic_at_name_server(
        &self,
        addr: &str,
        topic: &str,
        cluster: Option<&str>,
    ) -> Result<()> {
        let header = DeleteTopicFromNamesrvRequest {
            topic,
            cluster_name: cluster,
        };
        let request = Command::request_with(request::DELETE_TOPIC_IN_NAMESRV, &header);
        self.call(addr, request).await.map(drop)
    }

    /// Deletes a topic at all masters of a cluster and at all name servers.
    pub async fn delete_topic(&self, topic: &str, cluster: &str) -> Result<()> {
        for (_, addr) in self.masters_of_cluster(cluster).await? {
            self.delete_topic_at_broker(&addr, topic).await?;
        }
        for addr in self.name_servers() {
            self.delete_topic_at_name_server(&addr, topic, Some(cluster))
                .await?;
        }
        self.core.routes.forget(topic);
        Ok(())
    }

    /// All topics (206).
    pub async fn topics(&self) -> Result<Vec<String>> {
        self.topic_list(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            .await
    }

    /// Names that are no user topics, by the name server (304): clusters and brokers, and some broker's address.
    pub async fn system_topics(&self) -> Result<TopicList> {
        self.name_server(
            Command::request(request::GET_SYSTEM_TOPIC_LIST_FROM_NS),
            TopicList::from_json,
        )
        .await
    }

    /// Unit topics (311).
    pub async fn unit_topics(&self) -> Result<Vec<String>> {
        self.topic_list(request::GET_UNIT_TOPIC_LIST).await
    }

    /// Topics with a unit subscription (312).
    pub async fn unit_subscribed_topics(&self) -> Result<Vec<String>> {
        self.topic_list(request::GET_HAS_UNIT_SUB_TOPIC_LIST).await
    }

    /// Of those, the ones that are no unit topics (313).
    pub async fn unit_subscribed_plain_topics(&self) -> Result<Vec<String>> {
        self.topic_list(request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
            .await
    }

    async fn topic_list(&self, code: i32) -> Result<Vec<String>> {
        Ok(self
            .name_server(Command::request(code), TopicList::from_json)
            .await?
            .topic_list)
    }

    /// Topics of a cluster (224).
    pub async fn topics_of_cluster(&self, cluster: &str) -> Result<Vec<String>> {
        let request = Command::request_with(
            request::GET_TOPICS_BY_CLUSTER,
            &GetTopicsByClusterRequest { cluster },
        );
        Ok(self
            .name_server(request, TopicList::from_json)
            .await?
            .topic_list)
    }

    /// A broker's own topics (305).
    pub async fn system_topics_of_broker(&self, addr: &str) -> Result<Vec<String>> {
        let answer = self
            .call(
                addr,
                Command::request(request::GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
            )
            .await?;
        Ok(body(addr, &answer, TopicList::from_json)?.topic_list)
    }

    /// All topics of a broker with their settings (21).
    pub async fn topic_configs(&self, addr: &str) -> Result<TopicConfigWrapper> {
        let answer = self
            .call_long(addr, Command::request(request::GET_ALL_TOPIC_CONFIG))
            .await?;
        body(addr, &answer, TopicConfigWrapper::from_json)
    }

    /// One topic's settings at a broker.
    pub async fn topic_config(&self, addr: &str, topic: &str) -> Result<Option<TopicConfig>> {
        Ok(self
            .topic_configs(addr)
            .await?
            .topic_config_table
            .remove(topic))
    }

    /// The ends of a topic's queues at one broker (202).
    pub async fn topic_stats_at(&self, addr: &str, topic: &str) -> Result<TopicStatsTable> {
        let request = Command::request_with(
            request::GET_TOPIC_STATS_INFO,
            &GetTopicStatsInfoRequest { topic },
        );
        let answer = self.call(addr, request).await?;
        body(addr, &answer, TopicStatsTable::from_json)
    }

    /// The ends of all queues of a topic.
    pub async fn topic_stats(&self, topic: &str) -> Result<TopicStatsTable> {
        let mut all = TopicStatsTable::default();
        for (_, addr) in self.brokers_of(topic).await? {
            all.offset_table
                .extend(self.topic_stats_at(&addr, topic).await?.offset_table);
        }
        if all.offset_table.is_empty() {
            return Err(Error::NoQueue {
                topic: topic.to_owned(),
                wanted: "consume from",
            });
        }
        Ok(all)
    }

    /// Clusters that hold a topic.
    pub async fn clusters_of_topic(&self, topic: &str) -> Result<BTreeSet<String>> {
        let info = self.cluster_info().await?;
        let route = self.topic_route(topic).await?;
        let holds = |names: &Vec<String>| {
            let mut brokers = route.data.broker_datas.iter();
            brokers.any(|broker| names.contains(&broker.broker_name))
        };
        Ok(info
            .cluster_addr_table
            .into_iter()
            .filter(|(_, names)| holds(names))
            .map(|(cluster, _)| cluster)
            .collect())
    }

    /// Masters of a cluster: (broker name, address).
    pub async fn masters_of_cluster(&self, cluster: &str) -> Result<Vec<(String, String)>> {
        let info = self.cluster_info().await?;
        let names = info.cluster_addr_table.get(cluster).ok_or_else(|| {
            let known: Vec<_> = info.cluster_addr_table.keys().map(String::as_str).collect();
            Error::invalid(
                "cluster",
                format!("no cluster {cluster}; known: {}", known.join(", ")),
            )
        })?;
        Ok(masters(
            names
                .iter()
                .filter_map(|name| info.broker_addr_table.get(name)),
        ))
    }
}
