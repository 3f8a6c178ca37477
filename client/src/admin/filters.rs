//! Filter servers: where they are, and giving them a filter without consuming.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::future::join_all;
use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_protocol::crc::body_crc;
use minimq_protocol::header::RegisterMessageFilterClassRequest;

use super::Admin;
use crate::error::{Error, Result};

impl Admin {
    /// Filter servers of all brokers, by the broker's address. Routes tell of them: every topic is looked up until each
    /// broker has been seen.
    pub async fn filter_servers(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let info = self.cluster_info().await?;
        let mut unseen: BTreeSet<&String> = info.broker_addr_table.keys().collect();
        let mut found = BTreeMap::new();
        // Every broker has a topic of its own name; the others are for brokers that have not.
        let own: Vec<String> = info.broker_addr_table.keys().cloned().collect();
        for topics in [own, self.topics().await?] {
            for topic in topics {
                if unseen.is_empty() {
                    return Ok(found);
                }
                let Ok(route) = self.topic_route(&topic).await else {
                    continue;
                };
                for broker in &route.data.broker_datas {
                    unseen.remove(&broker.broker_name);
                }
                found.extend(route.data.filter_server_table);
            }
        }
        Ok(found)
    }

    /// Gives a filter to every filter server of a topic (302); what each said. A connection that ends takes its use of the
    /// filter with it: a group's consumers bring their own.
    pub async fn push_filter(
        &self,
        topic: &str,
        group: &str,
        class_name: &str,
        module: &Bytes,
    ) -> Result<Vec<(String, Result<()>)>> {
        let route = self.topic_route(topic).await?;
        let servers: BTreeSet<&String> =
            route.data.filter_server_table.values().flatten().collect();
        if servers.is_empty() {
            let brokers = route.each_broker().map(|(_, addr)| addr);
            return Err(Error::NoFilterServer {
                topic: topic.to_owned(),
                broker_addr: brokers.collect::<Vec<_>>().join(", "),
            });
        }
        let header = RegisterMessageFilterClassRequest {
            consumer_group: group,
            topic,
            class_name,
            class_crc: body_crc(module),
        };
        let pushed = servers.into_iter().map(|addr| {
            let request = Command::request_with(request::REGISTER_MESSAGE_FILTER_CLASS, &header)
                .with_body(module.clone());
            async move { (addr.clone(), self.call_long(addr, request).await.map(drop)) }
        });
        Ok(join_all(pushed).await)
    }
}
