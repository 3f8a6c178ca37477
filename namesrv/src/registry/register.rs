//! Registration (name server spec 5.2, 5.3): checked first, then applied as a whole.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use minimq_protocol::body::{DataVersion, TopicConfig};

use super::{Broker, Change, Live, MASTER_ID, Members, Queues, Registry, TopicQueue};

/// Names of topics a [`Change::Topics`] shows.
const NAMES_SHOWN: usize = 10;

/// What a broker says of itself (103).
#[derive(Debug, Clone, Copy)]
pub struct Registration<'a> {
    /// Its cluster.
    pub cluster: &'a str,
    /// Its name.
    pub broker: &'a str,
    /// Where clients reach it, `ip:port`.
    pub addr: &'a str,
    /// Where slaves fetch the log.
    pub ha_server_addr: &'a str,
    /// [`MASTER_ID`] or a slave's id.
    pub id: i64,
    /// Version of its topic table.
    pub version: DataVersion,
    /// Its topics. The names inside count, not the keys; one without a name is left out.
    pub topics: &'a BTreeMap<String, TopicConfig>,
    /// Its filter servers; `None`: not said, what is known stays.
    pub filter_servers: Option<&'a [String]>,
    /// The connection this comes on. Newer connections have higher numbers.
    pub connection: u64,
}

/// What a registration is answered with, and what it changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registered {
    /// To a slave: where its master serves the log.
    pub ha_server_addr: Option<Arc<str>>,
    /// To a slave: its master.
    pub master_addr: Option<Arc<str>>,
    /// What changed.
    pub changes: Vec<Change>,
}

/// Why a registration is refused. Nothing is changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A name that must be given is empty.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// A name is too long.
    #[error("the {what} has {len} bytes, {limit} are allowed")]
    NameTooLong {
        /// Which.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// There would be more broker addresses than allowed.
    #[error("{limit} brokers are registered, no more are allowed (maxBrokers)")]
    TooManyBrokers {
        /// The limit.
        limit: usize,
    },
    /// There would be more topics than allowed.
    #[error("there would be {count} topics, {limit} are allowed (maxTopics)")]
    TooManyTopics {
        /// How many there would be.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The broker names too many filter servers.
    #[error("{count} filter servers, {limit} are allowed (maxFilterServers)")]
    TooManyFilterServers {
        /// How many.
        count: usize,
        /// The limit.
        limit: usize,
    },
}

impl Registry {
    /// A broker registers.
    ///
    /// # Errors
    /// [`Refused`], by the limits of [`Rules`](super::Rules).
    pub fn register(
        &mut self,
        registration: &Registration<'_>,
        now_ms: i64,
    ) -> Result<Registered, Refused> {
        let &Registration { addr, id, .. } = registration;
        let directory = self.view.directory();
        let known = directory.brokers.get(registration.broker).cloned();
        let mut members = known
            .as_ref()
            .map_or_else(Members::default, |broker| (*broker.members()).clone());
        // A slave that became master keeps one entry only.
        members
            .addrs
            .retain(|other, held| *other == id || &**held != addr);
        let first = !members.addrs.contains_key(&id);
        let changed = first
            || self
                .live
                .get(addr)
                .is_none_or(|live| live.version != registration.version);
        let stores_topics = id == MASTER_ID && changed;
        self.check(registration, stores_topics)?;

        let addr: Arc<str> = addr.into();
        let broker = known.unwrap_or_else(|| {
            Arc::new(Broker::new(
                registration.broker.into(),
                registration.cluster.into(),
            ))
        });
        let mut changes = Vec::new();
        let before = members.addrs.insert(id, addr.clone());
        if id == MASTER_ID && before.as_ref() != Some(&addr) {
            changes.push(Change::Master {
                broker: broker.name().clone(),
                from: before.clone(),
                to: addr.clone(),
            });
        }
        let new = self.set_live(
            &addr,
            Live {
                last_update_ms: now_ms,
                version: registration.version,
                connection: registration.connection,
                ha_server_addr: registration.ha_server_addr.into(),
            },
        );
        if new {
            changes.push(Change::AddressUp {
                cluster: registration.cluster.into(),
                broker: broker.name().clone(),
                id,
                addr: addr.clone(),
                ha_server_addr: registration.ha_server_addr.into(),
            });
        }
        self.replace_filter_servers(&addr, registration.filter_servers, &mut changes);
        let answer = self.master_of(id, &members);
        // Addresses first, then the names, then the topics: no reader meets a topic without a broker.
        self.publish(&broker, members);
        self.enter(registration.cluster, &broker);
        if stores_topics {
            changes.extend(self.store_topics(&broker, registration.topics));
        }
        let (ha_server_addr, master_addr) = answer.unzip();
        Ok(Registered {
            ha_server_addr,
            master_addr,
            changes,
        })
    }

    fn check(&self, registration: &Registration<'_>, stores_topics: bool) -> Result<(), Refused> {
        let rules = &self.rules;
        let &Registration {
            cluster,
            broker,
            addr,
            ha_server_addr,
            topics,
            ..
        } = registration;
        let fits = |what, name: &str| match name.len() {
            len if len > rules.max_name_len => Err(Refused::NameTooLong {
                what,
                len,
                limit: rules.max_name_len,
            }),
            _ => Ok(()),
        };
        for (what, name) in [
            ("cluster name", cluster),
            ("broker name", broker),
            ("broker address", addr),
        ] {
            if name.is_empty() {
                return Err(Refused::Empty(what));
            }
            fits(what, name)?;
        }
        fits("HA address", ha_server_addr)?;
        for server in registration.filter_servers.into_iter().flatten() {
            fits("address of a filter server", server)?;
        }
        let count = registration.filter_servers.map_or(0, <[_]>::len);
        if count > rules.max_filter_servers {
            return Err(Refused::TooManyFilterServers {
                count,
                limit: rules.max_filter_servers,
            });
        }
        if self.live.len() >= rules.max_brokers && !self.live.contains_key(addr) {
            return Err(Refused::TooManyBrokers {
                limit: rules.max_brokers,
            });
        }
        if !stores_topics {
            return Ok(());
        }
        for topic in topics.values() {
            fits("topic name", &topic.topic_name)?;
        }
        let most = self.view.topic_count() + topics.len();
        if most > rules.max_topics {
            let new = |topic: &&TopicConfig| !self.view.topics.contains_key(&*topic.topic_name);
            let count = self.view.topic_count() + topics.values().filter(new).count();
            if count > rules.max_topics {
                return Err(Refused::TooManyTopics {
                    count,
                    limit: rules.max_topics,
                });
            }
        }
        Ok(())
    }

    /// Makes broker and cluster known.
    fn enter(&self, cluster: &str, broker: &Arc<Broker>) {
        let directory = self.view.directory();
        let listed = directory
            .clusters
            .get(cluster)
            .is_some_and(|names| names.contains(broker.name()));
        if listed && directory.brokers.contains_key(broker.name()) {
            return;
        }
        self.change_directory(|directory| {
            let names = match directory.clusters.get_mut(cluster) {
                Some(names) => names,
                None => directory.clusters.entry(cluster.into()).or_default(),
            };
            names.insert(broker.name().clone());
            directory
                .brokers
                .insert(broker.name().clone(), broker.clone());
        });
    }

    /// HA address and address of a slave's master, if it is alive.
    fn master_of(&self, id: i64, members: &Members) -> Option<(Arc<str>, Arc<str>)> {
        if id == MASTER_ID {
            return None;
        }
        let master = members.addrs.get(&MASTER_ID)?;
        let live = self.live.get(master)?;
        Some((live.ha_server_addr.clone(), master.clone()))
    }

    fn replace_filter_servers(
        &mut self,
        addr: &Arc<str>,
        servers: Option<&[String]>,
        changes: &mut Vec<Change>,
    ) {
        let Some(servers) = servers else {
            return;
        };
        let known = self.filter_servers.get(addr);
        if known.map_or(&[][..], |known| &known[..]) == servers {
            return;
        }
        if servers.is_empty() {
            self.filter_servers.remove(addr);
        } else {
            self.filter_servers.insert(addr.clone(), servers.into());
        }
        changes.push(Change::FilterServers {
            addr: addr.clone(),
            count: servers.len(),
        });
        // Another broker name may hold the same address.
        for broker in self.view.directory().brokers.values() {
            let members = broker.members();
            if members.addrs.values().any(|held| held == addr) {
                self.publish(broker, (*members).clone());
            }
        }
    }

    fn store_topics(
        &mut self,
        broker: &Arc<Broker>,
        topics: &BTreeMap<String, TopicConfig>,
    ) -> Option<Change> {
        let (mut created, mut changed) = (0, 0);
        let mut names = Vec::new();
        for topic in topics.values().filter(|topic| !topic.topic_name.is_empty()) {
            match self.store_queue(&topic.topic_name, TopicQueue::new(broker, topic)) {
                Stored::Same => continue,
                Stored::Created => created += 1,
                Stored::Changed => changed += 1,
            }
            if names.len() < NAMES_SHOWN {
                names.push(topic.topic_name.clone());
            }
        }
        let removed = if self.rules.mirror_deletions {
            self.remove_others(broker, topics)
        } else {
            0
        };
        (created + changed + removed > 0).then(|| Change::Topics {
            broker: broker.name().clone(),
            created,
            changed,
            removed,
            names,
        })
    }

    fn store_queue(&mut self, topic: &str, queue: TopicQueue) -> Stored {
        let mut queues = Queues::new();
        let Some(route) = self.view.route(topic) else {
            queues.push(queue);
            self.put_queues(topic, &queues);
            return Stored::Created;
        };
        let known = route.queues();
        let place = known.binary_search_by(|other| other.broker.name().cmp(queue.broker.name()));
        if let Ok(at) = place
            && known.get(at) == Some(&queue)
        {
            return Stored::Same;
        }
        queues.extend(known.iter().cloned());
        match place {
            Ok(at) => queues[at] = queue,
            Err(at) => queues.insert(at, queue),
        }
        self.put_queues(topic, &queues);
        Stored::Changed
    }

    /// Takes the broker out of all topics but these.
    fn remove_others(
        &mut self,
        broker: &Arc<Broker>,
        topics: &BTreeMap<String, TopicConfig>,
    ) -> usize {
        let kept: HashSet<&str> = topics
            .values()
            .map(|topic| topic.topic_name.as_str())
            .collect();
        self.change_queues(
            |topic, route| !kept.contains(topic) && route.queue_of(broker.name()).is_some(),
            |queue| (queue.broker.name() != broker.name()).then(|| queue.clone()),
        )
    }
}

enum Stored {
    Same,
    Created,
    Changed,
}
