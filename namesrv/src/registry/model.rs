//! Random events against a naive model: plain tables changed step by step as the specification says (name server
//! spec 2, 5 to 8, 11), every answer computed anew. The registry must answer the same after each event, and its
//! invariants must hold.

use std::collections::{BTreeMap, BTreeSet};

use minimq_protocol::body::{
    BrokerData, ClusterInfo, DataVersion, Flavour, QueueData, TopicConfig, TopicRouteData,
};
use proptest::prelude::*;

use super::*;

const CLUSTERS: [&str; 2] = ["C1", "C2"];
const BROKERS: [&str; 3] = ["b1", "b2", "b3"];
const ADDRS: [&str; 4] = ["a1", "a2", "a3", "a4"];
const TOPICS: [&str; 4] = ["T1", "T2", "T3", "T4"];

#[derive(Debug, Clone)]
enum Event {
    Register {
        cluster: &'static str,
        broker: &'static str,
        addr: &'static str,
        id: i64,
        version: i64,
        topics: Vec<(&'static str, i32, i32)>,
        filter_servers: Option<Vec<String>>,
        connection: u64,
    },
    Unregister {
        addr: &'static str,
        connection: u64,
    },
    Query {
        addr: &'static str,
        version: i64,
    },
    Close(u64),
    Scan,
    Wipe(&'static str),
    Add(&'static str),
    Delete(&'static str, Option<&'static str>),
    Wait(i64),
}

fn one_of(names: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(names)
}

fn events() -> impl Strategy<Value = Event> {
    let topics = proptest::collection::vec(
        (
            one_of(&TOPICS),
            1..3,
            prop_oneof![Just(6), Just(7), Just(2), Just(4)],
        ),
        0..4,
    );
    let filters = proptest::option::of(proptest::collection::vec("f[12]", 0..3));
    let register = (
        one_of(&CLUSTERS),
        one_of(&BROKERS),
        one_of(&ADDRS),
        0..3i64,
        0..3i64,
        topics,
        filters,
        0..4u64,
    )
        .prop_map(
            |(cluster, broker, addr, id, version, topics, filter_servers, connection)| {
                Event::Register {
                    cluster,
                    broker,
                    addr,
                    id,
                    version,
                    topics,
                    filter_servers,
                    connection,
                }
            },
        );
    prop_oneof![
        6 => register,
        1 => (one_of(&ADDRS), 0..4u64).prop_map(|(addr, connection)| Event::Unregister { addr, connection }),
        1 => (one_of(&ADDRS), 0..3i64).prop_map(|(addr, version)| Event::Query { addr, version }),
        1 => (0..4u64).prop_map(Event::Close),
        1 => Just(Event::Scan),
        1 => one_of(&BROKERS).prop_map(Event::Wipe),
        1 => one_of(&BROKERS).prop_map(Event::Add),
        1 => (one_of(&TOPICS), proptest::option::of(one_of(&CLUSTERS))).prop_map(|(topic, cluster)| Event::Delete(topic, cluster)),
        2 => (0..80_000i64).prop_map(Event::Wait),
    ]
}

#[derive(Debug, Default)]
struct Model {
    now: i64,
    clusters: BTreeMap<String, BTreeSet<String>>,
    brokers: BTreeMap<String, (String, BTreeMap<i64, String>)>,
    topics: BTreeMap<String, BTreeMap<String, QueueData>>,
    live: BTreeMap<String, (i64, DataVersion, u64)>,
    filters: BTreeMap<String, Vec<String>>,
}

fn version(number: i64) -> DataVersion {
    DataVersion {
        counter: number / 2,
        timestamp: number % 2,
    }
}

fn topic_config(&(name, queues, perm): &(&'static str, i32, i32)) -> TopicConfig {
    TopicConfig {
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm,
        ..TopicConfig::new(name)
    }
}

impl Model {
    fn apply(&mut self, event: &Event) -> Option<(Option<String>, bool)> {
        match event {
            Event::Register {
                cluster,
                broker,
                addr,
                id,
                version: number,
                topics,
                filter_servers,
                connection,
            } => {
                let names = self.clusters.entry((*cluster).into()).or_default();
                names.insert((*broker).into());
                let mut first = !self.brokers.contains_key(*broker);
                let new = || ((*cluster).to_owned(), BTreeMap::new());
                let addrs = &mut self.brokers.entry((*broker).into()).or_insert_with(new).1;
                addrs.retain(|held, at| held == id || at != addr);
                first |= addrs.insert(*id, (*addr).into()).is_none();
                let version = version(*number);
                let changed = self.live.get(*addr).is_none_or(|live| live.1 != version);
                if *id == 0 && (first || changed) {
                    for topic in topics {
                        let config = topic_config(topic);
                        let queue = QueueData {
                            broker_name: (*broker).into(),
                            perm: config.perm,
                            read_queue_nums: config.read_queue_nums,
                            topic_sys_flag: 0,
                            write_queue_nums: config.write_queue_nums,
                        };
                        let brokers = self.topics.entry(topic.0.into()).or_default();
                        brokers.insert((*broker).into(), queue);
                    }
                }
                let live = (self.now, version, *connection);
                self.live.insert((*addr).into(), live);
                match filter_servers {
                    None => {}
                    Some(list) if list.is_empty() => _ = self.filters.remove(*addr),
                    Some(list) => _ = self.filters.insert((*addr).into(), list.clone()),
                }
                let master = self.brokers[*broker].1.get(&0).cloned();
                let master = master.filter(|at| *id != 0 && self.live.contains_key(at));
                return Some((master, false));
            }
            Event::Unregister { addr, connection } => {
                let newer = self
                    .live
                    .get(*addr)
                    .is_some_and(|live| live.2 > *connection);
                if !newer {
                    self.remove(addr);
                }
            }
            Event::Query {
                addr,
                version: number,
            } => {
                let live = self.live.get_mut(*addr);
                let changed = live.as_ref().is_none_or(|live| live.1 != version(*number));
                if let Some(live) = live.filter(|_| !changed) {
                    live.0 = self.now;
                }
                return Some((None, changed));
            }
            Event::Close(connection) => self.remove_where(|live| live.2 == *connection),
            Event::Scan => {
                let now = self.now;
                self.remove_where(|live| live.0 + 120_000 < now);
            }
            Event::Wipe(broker) => self.set_perm(broker, |perm| perm & !2),
            Event::Add(broker) => self.set_perm(broker, |_| 6),
            Event::Delete(topic, cluster) => {
                let none = BTreeSet::new();
                let names = cluster.map(|cluster| self.clusters.get(cluster).unwrap_or(&none));
                if let Some(brokers) = self.topics.get_mut(*topic) {
                    brokers.retain(|name, _| names.is_some_and(|names| !names.contains(name)));
                }
                self.topics.retain(|_, brokers| !brokers.is_empty());
            }
            Event::Wait(ms) => self.now += ms,
        }
        None
    }

    fn remove_where(&mut self, gone: impl Fn(&(i64, DataVersion, u64)) -> bool) {
        let addrs: Vec<String> = self
            .live
            .iter()
            .filter(|(_, live)| gone(live))
            .map(|(addr, _)| addr.clone())
            .collect();
        addrs.iter().for_each(|addr| self.remove(addr));
    }

    fn remove(&mut self, addr: &str) {
        self.live.remove(addr);
        self.filters.remove(addr);
        for (_, addrs) in self.brokers.values_mut() {
            addrs.retain(|_, at| at != addr);
        }
        self.brokers.retain(|_, (_, addrs)| !addrs.is_empty());
        for names in self.clusters.values_mut() {
            names.retain(|name| self.brokers.contains_key(name));
        }
        self.clusters.retain(|_, names| !names.is_empty());
        for brokers in self.topics.values_mut() {
            brokers.retain(|name, _| self.brokers.contains_key(name));
        }
        self.topics.retain(|_, brokers| !brokers.is_empty());
    }

    fn set_perm(&mut self, broker: &str, change: impl Fn(i32) -> i32) {
        for brokers in self.topics.values_mut() {
            if let Some(queue) = brokers.get_mut(broker) {
                queue.perm = change(queue.perm);
            }
        }
    }

    fn broker_data(&self, name: &str) -> BrokerData {
        let (cluster, addrs) = &self.brokers[name];
        BrokerData {
            broker_addrs: addrs.clone(),
            broker_name: name.into(),
            cluster: Some(cluster.clone()),
        }
    }

    fn route(&self, topic: &str) -> Option<TopicRouteData> {
        let brokers = self.topics.get(topic)?;
        let mut data = TopicRouteData {
            queue_datas: brokers.values().cloned().collect(),
            broker_datas: brokers.keys().map(|name| self.broker_data(name)).collect(),
            ..TopicRouteData::default()
        };
        for addr in data
            .broker_datas
            .iter()
            .flat_map(|b| b.broker_addrs.values())
        {
            if let Some(servers) = self.filters.get(addr) {
                let servers = servers.clone();
                data.filter_server_table.insert(addr.clone(), servers);
            }
        }
        Some(data)
    }

    fn cluster_info(&self) -> ClusterInfo {
        let names = |names: &BTreeSet<String>| names.iter().cloned().collect();
        ClusterInfo {
            broker_addr_table: self
                .brokers
                .keys()
                .map(|name| (name.clone(), self.broker_data(name)))
                .collect(),
            cluster_addr_table: self
                .clusters
                .iter()
                .map(|(cluster, all)| (cluster.clone(), names(all)))
                .collect(),
        }
    }
}

/// The same event at the registry; what it answers.
fn apply(registry: &mut Registry, event: &Event, now: i64) -> Option<(Option<String>, bool)> {
    match event {
        Event::Register {
            cluster,
            broker,
            addr,
            id,
            version: number,
            topics,
            filter_servers,
            connection,
        } => {
            // In the model the last of two entries with one name counts, as here.
            let topics = topics
                .iter()
                .map(|topic| (topic.0.to_owned(), topic_config(topic)))
                .collect();
            let registration = Registration {
                cluster,
                broker,
                addr,
                ha_server_addr: "ha",
                id: *id,
                version: version(*number),
                topics: &topics,
                filter_servers: filter_servers.as_deref(),
                connection: *connection,
            };
            let registered = registry.register(&registration, now).unwrap();
            let master = registered.master_addr.map(|addr| addr.to_string());
            assert_eq!(registered.ha_server_addr.is_some(), master.is_some());
            return Some((master, false));
        }
        Event::Unregister { addr, connection } => {
            registry.unregister(&Unregistration {
                addr,
                connection: *connection,
            });
        }
        Event::Query {
            addr,
            version: number,
        } => {
            let (changed, _) = registry.query_data_version(addr, version(*number), now);
            return Some((None, changed));
        }
        Event::Close(connection) => _ = registry.connection_closed(*connection),
        Event::Scan => _ = registry.scan(now),
        Event::Wipe(broker) => _ = registry.wipe_write_permission(broker),
        Event::Add(broker) => _ = registry.add_write_permission(broker),
        Event::Delete(topic, cluster) => _ = registry.delete_topic(topic, *cluster),
        Event::Wait(_) => {}
    }
    None
}

/// What always holds, whatever the events.
fn check_invariants(registry: &Registry) {
    let directory = registry.view.directory();
    for (name, broker) in &directory.brokers {
        let members = broker.members();
        assert!(!members.addrs.is_empty(), "{name} has no address");
        let different: BTreeSet<_> = members.addrs.values().collect();
        assert_eq!(
            different.len(),
            members.addrs.len(),
            "{name} has an address twice"
        );
        for addr in members.addrs.values() {
            assert!(
                registry.live.contains_key(addr),
                "{addr} of {name} is not alive"
            );
        }
        let listed = |names: &BTreeSet<Arc<str>>| names.contains(name);
        assert!(
            directory.clusters.values().any(listed),
            "{name} has no cluster"
        );
    }
    for (cluster, names) in &directory.clusters {
        assert!(!names.is_empty(), "{cluster} is empty");
        for name in names {
            assert!(
                directory.brokers.contains_key(name),
                "{name} in {cluster} is unknown"
            );
        }
    }
    for topic in &registry.view.topics {
        let queues = topic.queues();
        assert!(!queues.is_empty(), "{} is empty", topic.key());
        let names: Vec<_> = queues.iter().map(|queue| queue.broker.name()).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for queue in queues {
            let known = &directory.brokers[queue.broker.name()];
            assert!(
                Arc::ptr_eq(known, &queue.broker),
                "{} holds a broker that went",
                topic.key()
            );
        }
    }
    for addr in registry.filter_servers.keys() {
        assert!(
            registry.live.contains_key(addr),
            "filter servers of {addr}, which is not alive"
        );
    }
    let mut by_connection = BTreeSet::new();
    for (connection, addrs) in &registry.connections {
        assert!(!addrs.is_empty(), "connection {connection} is empty");
        for addr in addrs {
            assert_eq!(registry.live[addr].connection, *connection);
            assert!(
                by_connection.insert(addr.clone()),
                "{addr} on two connections"
            );
        }
    }
    assert_eq!(by_connection.len(), registry.live.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_events_leave_the_registry_as_the_naive_model(events in proptest::collection::vec(events(), 1..60)) {
        let mut registry = Registry::default();
        let mut model = Model::default();
        for event in &events {
            let expected = model.apply(event);
            prop_assert_eq!(apply(&mut registry, event, model.now), expected, "{:?}", event);
            check_invariants(&registry);
            for topic in TOPICS {
                let route = registry.view.route(topic);
                for flavour in [Flavour::Standard, Flavour::Fastjson] {
                    let body = route.as_ref().and_then(|route| route.body(flavour));
                    let data = body.map(|body| TopicRouteData::from_json(&body).unwrap());
                    prop_assert_eq!(data, model.route(topic), "{} after {:?}", topic, event);
                }
            }
            prop_assert_eq!(registry.view.cluster_info(), model.cluster_info(), "after {:?}", event);
            prop_assert_eq!(registry.live_count(), model.live.len());
            let topics: Vec<_> = model.topics.keys().cloned().collect();
            prop_assert_eq!(registry.view.all_topics().topic_list, topics);
        }
    }
}
