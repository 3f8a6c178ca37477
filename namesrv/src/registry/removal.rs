//! How brokers go (name server spec 6, 11) and topics are deleted (8.1, 8.2). An address goes as a whole: out of the
//! live table, the filter-server table, and every broker that holds it.

use std::sync::Arc;

use super::{Broker, Change, Members, Registry, TopicQueue};

/// A broker says that it goes (104). Its address alone decides: an id that another address has taken over stays.
#[derive(Debug, Clone, Copy)]
pub struct Unregistration<'a> {
    /// Its address.
    pub addr: &'a str,
    /// The connection this comes on.
    pub connection: u64,
}

impl Registry {
    /// A broker unregisters. One whose address has registered on a newer connection meanwhile has been restarted:
    /// the late word of the process before must not take it away.
    pub fn unregister(&mut self, unregistration: &Unregistration<'_>) -> Vec<Change> {
        let &Unregistration { addr, connection } = unregistration;
        let late = self
            .live
            .get(addr)
            .is_some_and(|live| live.connection > connection);
        if late {
            return vec![Change::LateUnregistration { addr: addr.into() }];
        }
        self.remove_address(addr)
    }

    /// A connection has ended: the addresses that registered on it last go.
    pub fn connection_closed(&mut self, connection: u64) -> Vec<Change> {
        let addrs = self.connections.remove(&connection).unwrap_or_default();
        addrs
            .iter()
            .flat_map(|addr| self.remove_address(addr))
            .collect()
    }

    /// Addresses that have not been heard of for too long go. To be called every few seconds.
    pub fn scan(&mut self, now_ms: i64) -> Vec<Change> {
        let mut expired: Vec<(Arc<str>, u64, i64)> = self
            .live
            .iter()
            .map(|(addr, live)| {
                let silent_ms = now_ms.saturating_sub(live.last_update_ms);
                (addr.clone(), live.connection, silent_ms)
            })
            .filter(|(_, _, silent_ms)| *silent_ms > self.rules.inactive_ms)
            .collect();
        expired.sort_unstable();
        let mut changes = Vec::new();
        for (addr, connection, silent_ms) in expired {
            changes.push(Change::Expired {
                addr: addr.clone(),
                connection,
                silent_ms,
            });
            changes.extend(self.remove_address(&addr));
        }
        self.routes.sweep();
        changes
    }

    /// Deletes a topic, with `cluster` only at its brokers. Nothing changes if there is none.
    pub fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) -> Vec<Change> {
        let Some(route) = self.view.route(topic) else {
            return Vec::new();
        };
        let directory = self.view.directory();
        let kept = match cluster {
            None => Vec::new(),
            Some(cluster) => {
                let Some(names) = directory.clusters.get(cluster) else {
                    return Vec::new();
                };
                let stays = |queue: &&TopicQueue| !names.contains(queue.broker.name());
                route.queues().iter().filter(stays).cloned().collect()
            }
        };
        if kept.len() == route.queues().len() {
            return Vec::new();
        }
        self.put_queues(topic, &kept);
        vec![Change::TopicDeleted {
            topic: topic.into(),
            cluster: cluster.map(Into::into),
        }]
    }

    fn remove_address(&mut self, addr: &str) -> Vec<Change> {
        let Some((addr, live)) = self.live.remove_entry(addr) else {
            return Vec::new();
        };
        self.leave_connection(live.connection, &addr);
        self.filter_servers.remove(&addr);
        let mut was = Vec::new();
        let mut empty = Vec::new();
        for broker in self.view.directory().brokers.values() {
            let mut members = (*broker.members()).clone();
            let ids = members.addrs.iter().filter(|(_, held)| **held == addr);
            let ids: Vec<i64> = ids.map(|(id, _)| *id).collect();
            if ids.is_empty() {
                continue;
            }
            members.addrs.retain(|_, held| *held != addr);
            if members.addrs.is_empty() {
                empty.push(broker.clone());
            } else {
                self.publish(broker, members);
            }
            was.extend(ids.into_iter().map(|id| (broker.name().clone(), id)));
        }
        let mut changes = vec![Change::AddressDown { addr, was }];
        for broker in empty {
            changes.push(self.remove_broker(&broker));
        }
        changes
    }

    /// Topics first, then the names: no reader meets a topic without a broker.
    fn remove_broker(&mut self, broker: &Arc<Broker>) -> Change {
        let name = broker.name();
        let topics = self.change_queues(
            |_, route| route.queue_of(name).is_some(),
            |queue| (queue.broker.name() != name).then(|| queue.clone()),
        );
        self.change_directory(|directory| {
            directory.brokers.remove(name);
            directory.clusters.retain(|_, names| {
                names.remove(name);
                !names.is_empty()
            });
        });
        broker.publish(Members::default());
        self.routes.sweep();
        Change::BrokerDown {
            broker: name.clone(),
            topics,
        }
    }
}
