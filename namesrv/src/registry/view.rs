//! [`View`]: what is registered, as requests read it: without the registry's lock, so that no registration, however
//! large, keeps a reader waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use minimq_protocol::body::{ClusterInfo, TopicList};

use super::broker::Broker;
use super::route::{Route, TopicQueue};

/// Unit bit of `topicSysFlag`.
const UNIT: i32 = 1;
/// "Has a unit subscription" bit of `topicSysFlag`.
const HAS_UNIT_SUB: i32 = 2;

/// Topics, brokers and clusters. Changed by the [`Registry`](super::Registry) alone.
#[derive(Debug, Default)]
pub struct View {
    pub(super) topics: DashMap<Box<str>, Arc<Route>>,
    pub(super) directory: ArcSwap<Directory>,
}

/// Brokers and clusters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    /// Broker name → broker; each has at least one address.
    pub brokers: BTreeMap<Arc<str>, Arc<Broker>>,
    /// Cluster → broker names, at least one.
    pub clusters: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// Which topics a unit list holds (name server spec 8.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitList {
    /// 311: unit topics.
    Unit,
    /// 312: topics with a unit subscription.
    HasUnitSub,
    /// 313: those of 312 that are no unit topics.
    HasUnitSubUnunit,
}

impl View {
    /// The route of a topic.
    pub fn route(&self, topic: &str) -> Option<Arc<Route>> {
        self.topics.get(topic).map(|route| route.clone())
    }

    /// How many topics there are.
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// Brokers and clusters now.
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.load_full()
    }

    /// Answer 106.
    pub fn cluster_info(&self) -> ClusterInfo {
        let directory = self.directory();
        ClusterInfo {
            broker_addr_table: directory
                .brokers
                .iter()
                .map(|(name, broker)| (name.to_string(), broker.data()))
                .collect(),
            cluster_addr_table: directory
                .clusters
                .iter()
                .map(|(cluster, names)| {
                    let names = names.iter().map(ToString::to_string).collect();
                    (cluster.to_string(), names)
                })
                .collect(),
        }
    }

    /// Answer 206: all topics, sorted.
    pub fn all_topics(&self) -> TopicList {
        self.topics_with(|_| true)
    }

    /// Answer 224: topics with queues at a broker of the cluster. None for an unknown cluster.
    pub fn topics_of_cluster(&self, cluster: &str) -> TopicList {
        let directory = self.directory();
        let Some(names) = directory.clusters.get(cluster) else {
            return TopicList::default();
        };
        self.topics_with(|queues| {
            queues
                .iter()
                .any(|queue| names.contains(queue.broker.name()))
        })
    }

    /// Answers 311, 312, 313: by the flag of the topic's first broker.
    pub fn unit_topics(&self, list: UnitList) -> TopicList {
        self.topics_with(|queues| {
            let flag = queues.first().map_or(0, |queue| queue.topic_sys_flag);
            match list {
                UnitList::Unit => flag & UNIT != 0,
                UnitList::HasUnitSub => flag & HAS_UNIT_SUB != 0,
                UnitList::HasUnitSubUnunit => flag & UNIT == 0 && flag & HAS_UNIT_SUB != 0,
            }
        })
    }

    /// Answer 304: names of clusters and brokers, of which each broker makes topics, and some broker's address.
    pub fn system_topics(&self) -> TopicList {
        let directory = self.directory();
        let names: BTreeSet<&Arc<str>> = directory
            .clusters
            .iter()
            .flat_map(|(cluster, names)| std::iter::once(cluster).chain(names))
            .collect();
        let addr = |broker: &Arc<Broker>| broker.members().addrs.values().next().cloned();
        TopicList {
            broker_addr: directory
                .brokers
                .values()
                .find_map(addr)
                .map(|addr| addr.to_string()),
            topic_list: names.into_iter().map(ToString::to_string).collect(),
        }
    }

    fn topics_with(&self, wanted: impl Fn(&[TopicQueue]) -> bool) -> TopicList {
        let mut topic_list: Vec<String> = self
            .topics
            .iter()
            .filter(|entry| wanted(entry.value().queues()))
            .map(|entry| entry.key().to_string())
            .collect();
        topic_list.sort_unstable();
        TopicList {
            broker_addr: None,
            topic_list,
        }
    }
}
