//! [`Broker`]: one broker name with its addresses and filter servers, as readers see it. Routes hold brokers, not
//! addresses: a new filter-server list or a new slave counts the broker's generation up and rewrites no topic.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use minimq_protocol::body::BrokerData;

/// Broker id of a master; every other id is a slave's.
pub const MASTER_ID: i64 = 0;

/// A broker name: a master and its slaves.
#[derive(Debug)]
pub struct Broker {
    name: Arc<str>,
    cluster: Arc<str>,
    generation: AtomicU64,
    members: ArcSwap<Members>,
}

/// Who belongs to a broker name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Broker id → `ip:port`.
    pub addrs: BTreeMap<i64, Arc<str>>,
    /// Address → its filter servers, for the addresses that have some.
    pub filter_servers: BTreeMap<Arc<str>, Arc<[String]>>,
}

impl Broker {
    pub(super) fn new(name: Arc<str>, cluster: Arc<str>) -> Self {
        Self {
            name,
            cluster,
            generation: AtomicU64::new(0),
            members: ArcSwap::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Cluster of its first registration.
    pub fn cluster(&self) -> &Arc<str> {
        &self.cluster
    }

    /// Who belongs to it now.
    pub fn members(&self) -> Arc<Members> {
        self.members.load_full()
    }

    /// Counts the changes of its members.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Replaces the members. The generation is counted after that, so whoever sees the new number sees the new
    /// members.
    pub(super) fn publish(&self, members: Members) {
        if *self.members.load_full() != members {
            self.members.store(Arc::new(members));
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// The broker as answers 105 and 106 hold it.
    pub fn data(&self) -> BrokerData {
        self.data_of(&self.members())
    }

    pub(super) fn data_of(&self, members: &Members) -> BrokerData {
        BrokerData {
            broker_addrs: members
                .addrs
                .iter()
                .map(|(id, addr)| (*id, addr.to_string()))
                .collect(),
            broker_name: self.name.to_string(),
            cluster: Some(self.cluster.to_string()),
        }
    }
}
