//! Which brokers there are and which topics they hold (name server spec 2, 5 to 8, 11), as a state machine: an event
//! and the time go in, what changed comes out. No sockets, no clock, no log.
//!
//! * [`Registry`]: the writing side, one at a time: `register`, then `removal` and `permission`
//! * [`View`]: the reading side, without a lock · [`Route`]: the queues of a topic and the answer made of them
//! * [`Broker`]: addresses and filter servers of a broker name, shared by all its routes
//!
//! What always holds: every address of a broker is alive; a broker has an address, a cluster a broker, a topic a
//! queue; topics belong to known brokers; only masters add topics.

mod broker;
mod change;
mod permission;
mod register;
mod removal;
mod route;
mod view;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use minimq_protocol::body::DataVersion;

pub use broker::{Broker, MASTER_ID, Members};
pub use change::Change;
pub use register::{Refused, Registered, Registration};
pub use removal::Unregistration;
pub use route::{Route, TopicQueue};
pub use view::{Directory, UnitList, View};

use route::{Queues, Routes};

/// What the registry allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Topics of all brokers together.
    pub max_topics: usize,
    /// Broker addresses.
    pub max_brokers: usize,
    /// Filter servers of one broker.
    pub max_filter_servers: usize,
    /// Length of a name or address, bytes.
    pub max_name_len: usize,
    /// A broker that has not been heard of for so long goes, ms.
    pub inactive_ms: i64,
    /// Whether a changed registration takes away the topics it does not hold.
    pub mirror_deletions: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_topics: 1_000_000,
            max_brokers: 10_000,
            max_filter_servers: 256,
            max_name_len: 1024,
            inactive_ms: 120_000,
            mirror_deletions: false,
        }
    }
}

/// The writing side. Whoever holds it changes what the [`View`] shows.
#[derive(Debug, Default)]
pub struct Registry {
    view: Arc<View>,
    routes: Routes,
    live: HashMap<Arc<str>, Live>,
    filter_servers: HashMap<Arc<str>, Arc<[String]>>,
    /// Connection → addresses of which it brought the last registration.
    connections: HashMap<u64, BTreeSet<Arc<str>>>,
    rules: Rules,
}

/// An address that is heard of.
#[derive(Debug, Clone)]
struct Live {
    last_update_ms: i64,
    version: DataVersion,
    connection: u64,
    ha_server_addr: Arc<str>,
}

impl Registry {
    /// An empty registry.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// The reading side.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Changes what is allowed from now on; what there is stays.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Addresses that are alive.
    pub fn live_count(&self) -> usize {
        self.live.len()
    }

    /// Whether a broker should register (322), and the version it registered last. If it need not, this counts as a
    /// sign of life.
    pub fn query_data_version(
        &mut self,
        addr: &str,
        version: DataVersion,
        now_ms: i64,
    ) -> (bool, Option<DataVersion>) {
        let Some(live) = self.live.get_mut(addr) else {
            return (true, None);
        };
        let changed = live.version != version;
        if !changed {
            live.last_update_ms = now_ms;
        }
        (changed, Some(live.version))
    }

    /// Changes brokers and clusters as one.
    fn change_directory(&self, change: impl FnOnce(&mut Directory)) {
        let mut directory = (*self.view.directory()).clone();
        change(&mut directory);
        self.view.directory.store(Arc::new(directory));
    }

    /// Shows these addresses of a broker, with the filter servers they have.
    fn publish(&self, broker: &Broker, mut members: Members) {
        members.filter_servers = members
            .addrs
            .values()
            .filter_map(|addr| {
                let servers = self.filter_servers.get(addr)?;
                Some((addr.clone(), servers.clone()))
            })
            .collect();
        broker.publish(members);
    }

    fn set_live(&mut self, addr: &Arc<str>, live: Live) -> bool {
        let connection = live.connection;
        let before = self.live.insert(addr.clone(), live);
        if let Some(before) = &before
            && before.connection != connection
        {
            self.leave_connection(before.connection, addr);
        }
        self.connections
            .entry(connection)
            .or_default()
            .insert(addr.clone());
        before.is_none()
    }

    fn leave_connection(&mut self, connection: u64, addr: &str) {
        if let Some(addrs) = self.connections.get_mut(&connection) {
            addrs.remove(addr);
            if addrs.is_empty() {
                self.connections.remove(&connection);
            }
        }
    }

    /// Gives a topic these queues; none removes it.
    fn put_queues(&mut self, topic: &str, queues: &[TopicQueue]) {
        if queues.is_empty() {
            self.view.topics.remove(topic);
            return;
        }
        let route = self.routes.get(queues);
        if let Some(mut place) = self.view.topics.get_mut(topic) {
            *place = route;
        } else {
            self.view.topics.insert(topic.into(), route);
        }
    }

    /// Changes or removes the queues of the topics that are picked; says how many those were. Readers are not kept
    /// waiting: what is picked is collected first.
    fn change_queues(
        &mut self,
        pick: impl Fn(&str, &Route) -> bool,
        change: impl Fn(&TopicQueue) -> Option<TopicQueue>,
    ) -> usize {
        let picked: Vec<(Box<str>, Arc<Route>)> = self
            .view
            .topics
            .iter()
            .filter(|entry| pick(entry.key(), entry.value()))
            .map(|entry| (entry.key().clone(), entry.value().clone()))
            .collect();
        for (topic, route) in &picked {
            let queues: Queues = route.queues().iter().filter_map(&change).collect();
            self.put_queues(topic, &queues);
        }
        picked.len()
    }
}
