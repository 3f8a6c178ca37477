//! Scenarios, each opening with what it shows. Random sequences are in `model`.

use std::collections::BTreeMap;

use minimq_protocol::body::{DataVersion, Flavour, TopicConfig, TopicRouteData};

use super::*;

/// One broker process: what it says when it registers.
#[derive(Debug, Clone)]
struct Process {
    broker: &'static str,
    addr: &'static str,
    id: i64,
    version: DataVersion,
    topics: BTreeMap<String, TopicConfig>,
    filter_servers: Option<Vec<String>>,
    connection: u64,
}

impl Process {
    fn new(broker: &'static str, addr: &'static str, id: i64) -> Self {
        Self {
            broker,
            addr,
            id,
            version: version(1, 1),
            topics: BTreeMap::new(),
            filter_servers: Some(Vec::new()),
            connection: 1,
        }
    }

    fn topic(mut self, name: &str, read: i32, write: i32) -> Self {
        let topic = TopicConfig {
            read_queue_nums: read,
            write_queue_nums: write,
            ..TopicConfig::new(name)
        };
        self.topics.insert(name.to_owned(), topic);
        self
    }

    fn version(mut self, timestamp: i64, counter: i64) -> Self {
        self.version = version(timestamp, counter);
        self
    }

    fn on(mut self, connection: u64) -> Self {
        self.connection = connection;
        self
    }

    fn registration(&self) -> Registration<'_> {
        Registration {
            cluster: "C",
            broker: self.broker,
            addr: self.addr,
            ha_server_addr: "ha",
            id: self.id,
            version: self.version,
            topics: &self.topics,
            filter_servers: self.filter_servers.as_deref(),
            connection: self.connection,
        }
    }

    fn registers(&self, registry: &mut Registry) -> Registered {
        registry.register(&self.registration(), 0).unwrap()
    }
}

fn version(timestamp: i64, counter: i64) -> DataVersion {
    DataVersion { counter, timestamp }
}

fn route(registry: &Registry, topic: &str) -> Option<TopicRouteData> {
    let body = registry.view().route(topic)?.body(Flavour::Standard)?;
    Some(TopicRouteData::from_json(&body).unwrap())
}

/// Read and write queues and permission of a topic, by broker.
fn queues(registry: &Registry, topic: &str) -> Vec<(String, i32, i32, i32)> {
    let data = route(registry, topic).unwrap_or_default();
    data.queue_datas
        .into_iter()
        .map(|q| (q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm))
        .collect()
}

fn addrs(registry: &Registry, broker: &str) -> Vec<(i64, String)> {
    let info = registry.view().cluster_info();
    let broker = info.broker_addr_table.get(broker).cloned();
    broker
        .unwrap_or_default()
        .broker_addrs
        .into_iter()
        .collect()
}

fn row(broker: &str, read: i32, write: i32, perm: i32) -> (String, i32, i32, i32) {
    (broker.to_owned(), read, write, perm)
}

fn at(id: i64, addr: &str) -> (i64, String) {
    (id, addr.to_owned())
}

/// route-01: a slave that becomes master stands under one id only, and the former master learns of it.
#[test]
fn a_promoted_slave_stands_under_one_id() {
    let mut registry = Registry::default();
    Process::new("bx", ":1001", 0)
        .on(1)
        .registers(&mut registry);
    Process::new("bx", ":1002", 1)
        .on(2)
        .registers(&mut registry);
    let promoted = Process::new("bx", ":1002", 0).version(2, 2).on(2);
    promoted.registers(&mut registry);
    assert_eq!(addrs(&registry, "bx"), [at(0, ":1002")]);
    let answer = Process::new("bx", ":1001", 1)
        .on(1)
        .registers(&mut registry);
    assert_eq!(answer.master_addr.as_deref(), Some(":1002"));
    assert_eq!(answer.ha_server_addr.as_deref(), Some("ha"));
    assert_eq!(addrs(&registry, "bx"), [at(0, ":1002"), at(1, ":1001")]);
}

/// route-02: both members of the data version count.
#[test]
fn topics_are_taken_again_when_any_member_of_the_version_differs() {
    let mut registry = Registry::default();
    let with = |queues, timestamp, counter| {
        let process = Process::new("b", "a", 0).topic("TX", queues, queues);
        process.version(timestamp, counter)
    };
    with(4, 3000, 3).registers(&mut registry);
    with(8, 3000, 3).registers(&mut registry);
    assert_eq!(queues(&registry, "TX"), [row("b", 4, 4, 6)]);
    with(8, 3001, 3).registers(&mut registry);
    assert_eq!(queues(&registry, "TX"), [row("b", 8, 8, 6)]);
    with(2, 3001, 4).registers(&mut registry);
    assert_eq!(queues(&registry, "TX"), [row("b", 2, 2, 6)]);
}

/// route-03: changed queue counts replace the old ones; a topic that is no longer named stays.
#[test]
fn changed_queues_replace_the_old_ones_and_unnamed_topics_stay() {
    let mut registry = Registry::default();
    let process = Process::new("b", "a", 0);
    process.clone().topic("TX", 8, 8).registers(&mut registry);
    let fewer = process.clone().topic("TX", 2, 1).version(2, 2);
    fewer.registers(&mut registry);
    assert_eq!(queues(&registry, "TX"), [row("b", 2, 1, 6)]);
    process.version(3, 3).registers(&mut registry);
    assert_eq!(queues(&registry, "TX"), [row("b", 2, 1, 6)]);
}

/// The same with `deleteTopicWithBrokerRegistration`: only this broker's queues go.
#[test]
fn unnamed_topics_go_where_deletions_are_mirrored() {
    let mut registry = Registry::new(Rules {
        mirror_deletions: true,
        ..Rules::default()
    });
    let process = Process::new("b", "a", 0);
    let other = Process::new("c", "d", 0).topic("TX", 1, 1);
    other.registers(&mut registry);
    let both = process.clone().topic("TX", 8, 8).topic("TY", 8, 8);
    both.registers(&mut registry);
    process.version(2, 2).registers(&mut registry);
    assert_eq!(queues(&registry, "TX"), [row("c", 1, 1, 6)]);
    assert_eq!(route(&registry, "TY"), None);
}

/// route-04: wiped permissions outlast heartbeats, not changed registrations.
#[test]
fn a_wiped_permission_stays_until_a_changed_registration() {
    let mut registry = Registry::default();
    let process = Process::new("bx", "a", 0)
        .topic("TX", 4, 4)
        .topic("TY", 4, 4);
    process.registers(&mut registry);
    Process::new("by", "z", 0)
        .topic("TX", 4, 4)
        .registers(&mut registry);
    assert_eq!(registry.wipe_write_permission("bx").0, 2);
    let wiped = [row("bx", 4, 4, 4), row("by", 4, 4, 6)];
    assert_eq!(queues(&registry, "TX"), wiped);
    process.registers(&mut registry);
    assert_eq!(queues(&registry, "TX"), wiped);
    assert_eq!(registry.wipe_write_permission("bx").0, 2);
    process.clone().version(2, 2).registers(&mut registry);
    assert_eq!(queues(&registry, "TY"), [row("bx", 4, 4, 6)]);
    assert_eq!(registry.wipe_write_permission("nobody").0, 0);
    registry.wipe_write_permission("bx");
    assert_eq!(registry.add_write_permission("bx").0, 2);
    assert_eq!(queues(&registry, "TY"), [row("bx", 4, 4, 6)]);
}

/// Adding gives exactly read and write; the inherit bit of TBW102 is lost, as in the original.
#[test]
fn adding_the_write_permission_drops_other_bits() {
    let mut registry = Registry::default();
    let mut process = Process::new("b", "a", 0).topic("TBW102", 8, 8);
    process.topics.values_mut().for_each(|topic| topic.perm = 7);
    process.registers(&mut registry);
    registry.wipe_write_permission("b");
    assert_eq!(queues(&registry, "TBW102"), [row("b", 8, 8, 5)]);
    registry.add_write_permission("b");
    assert_eq!(queues(&registry, "TBW102"), [row("b", 8, 8, 6)]);
}

/// A slave that comes first knows no master; topics of slaves do not count.
#[test]
fn a_slave_before_its_master_brings_no_topics_and_hears_of_no_master() {
    let mut registry = Registry::default();
    let slave = Process::new("b", "s", 1).topic("T", 4, 4);
    assert_eq!(slave.registers(&mut registry).master_addr, None);
    assert_eq!(route(&registry, "T"), None);
    let master = Process::new("b", "m", 0).topic("T", 4, 4);
    assert_eq!(master.registers(&mut registry).master_addr, None);
    let answer = slave.registers(&mut registry);
    assert_eq!(answer.master_addr.as_deref(), Some("m"));
    assert_eq!(route(&registry, "T").unwrap().broker_datas.len(), 1);
}

/// Two masters of one name: the last one stands in the route, the other falls out unnoticed.
#[test]
fn of_two_masters_with_one_name_the_last_counts() {
    let mut registry = Registry::default();
    let one = Process::new("b", "m1", 0).topic("T", 4, 4).on(1);
    one.registers(&mut registry);
    let two = Process::new("b", "m2", 0).topic("T", 4, 4).on(2);
    two.registers(&mut registry);
    assert_eq!(addrs(&registry, "b"), [at(0, "m2")]);
    assert_eq!(registry.live_count(), 2);
    registry.connection_closed(1);
    assert_eq!(addrs(&registry, "b"), [at(0, "m2")]);
    assert!(route(&registry, "T").is_some());
}

/// A master that goes leaves its slave readable; the slave that goes takes the topics along.
#[test]
fn topics_stay_as_long_as_a_slave_is_there() {
    let mut registry = Registry::default();
    Process::new("b", "m", 0)
        .topic("T", 4, 4)
        .on(1)
        .registers(&mut registry);
    Process::new("b", "s", 1).on(2).registers(&mut registry);
    registry.connection_closed(1);
    assert_eq!(addrs(&registry, "b"), [at(1, "s")]);
    assert_eq!(queues(&registry, "T"), [row("b", 4, 4, 6)]);
    let changes = registry.connection_closed(2);
    assert!(
        changes.contains(&Change::BrokerDown {
            broker: "b".into(),
            topics: 1
        }),
        "{changes:?}"
    );
    assert_eq!(route(&registry, "T"), None);
    let info = registry.view().cluster_info();
    assert!(info.broker_addr_table.is_empty() && info.cluster_addr_table.is_empty());
    assert_eq!(registry.routes.len(), 0);
}

/// An old connection that ends after the broker came back on a new one changes nothing.
#[test]
fn an_old_connection_ends_without_effect() {
    let mut registry = Registry::default();
    let process = Process::new("b", "a", 0).topic("T", 4, 4);
    process.clone().on(1).registers(&mut registry);
    process.on(2).registers(&mut registry);
    assert_eq!(registry.connection_closed(1), []);
    assert!(route(&registry, "T").is_some());
    assert!(!registry.connection_closed(2).is_empty());
}

/// All brokers of a connection go with it, not only the first.
#[test]
fn all_brokers_of_a_connection_go_with_it() {
    let mut registry = Registry::default();
    for (broker, addr) in [("b1", "a1"), ("b2", "a2"), ("b3", "a3")] {
        Process::new(broker, addr, 0).on(7).registers(&mut registry);
    }
    registry.connection_closed(7);
    assert_eq!(registry.live_count(), 0);
    assert!(registry.view().directory().brokers.is_empty());
}

/// The word of the process before must not take the restarted broker away.
#[test]
fn a_late_unregistration_is_ignored() {
    let mut registry = Registry::default();
    let process = Process::new("b", "a", 0).topic("T", 4, 4);
    process.clone().on(1).registers(&mut registry);
    process.on(2).registers(&mut registry);
    let word = |connection| Unregistration {
        addr: "a",
        connection,
    };
    let changes = registry.unregister(&word(1));
    assert_eq!(changes, [Change::LateUnregistration { addr: "a".into() }]);
    assert!(route(&registry, "T").is_some());
    registry.unregister(&word(3));
    assert_eq!(route(&registry, "T"), None);
    assert_eq!(registry.unregister(&word(3)), []);
}

/// The former master unregisters after another address took its id over.
#[test]
fn an_unregistration_takes_only_its_own_address() {
    let mut registry = Registry::default();
    Process::new("b", "m1", 0).on(1).registers(&mut registry);
    Process::new("b", "m2", 0).on(2).registers(&mut registry);
    registry.unregister(&Unregistration {
        addr: "m1",
        connection: 1,
    });
    assert_eq!(addrs(&registry, "b"), [at(0, "m2")]);
}

/// 120 s and not a millisecond less; 322 and registrations are signs of life, a changed version in 322 is none.
#[test]
fn a_silent_broker_goes_after_two_minutes() {
    let mut registry = Registry::default();
    let process = Process::new("b", "a", 0).topic("T", 4, 4).on(9);
    process.registers(&mut registry);
    assert_eq!(registry.scan(120_000), []);
    let (changed, stored) = registry.query_data_version("a", version(1, 1), 50_000);
    assert_eq!((changed, stored), (false, Some(version(1, 1))));
    let (changed, stored) = registry.query_data_version("a", version(1, 2), 90_000);
    assert_eq!((changed, stored), (true, Some(version(1, 1))));
    assert_eq!(
        registry.query_data_version("x", version(1, 1), 90_000),
        (true, None)
    );
    assert_eq!(registry.scan(170_000), []);
    let changes = registry.scan(170_001);
    let expired = Change::Expired {
        addr: "a".into(),
        connection: 9,
        silent_ms: 120_001,
    };
    assert!(changes.contains(&expired), "{changes:?}");
    assert_eq!(route(&registry, "T"), None);
}

/// Filter servers: not said, said, replaced, taken away, gone with the broker. No topic is rewritten for it.
#[test]
fn filter_servers_follow_the_registrations_and_rewrite_no_topic() {
    let mut registry = Registry::default();
    let mut process = Process::new("b", "a", 0).topic("T", 4, 4);
    process.registers(&mut registry);
    let topic = registry.view().route("T").unwrap();
    let table = |registry: &Registry| route(registry, "T").unwrap().filter_server_table;
    assert!(table(&registry).is_empty());
    process.filter_servers = Some(vec!["f1".into(), "f2".into()]);
    process.registers(&mut registry);
    assert_eq!(table(&registry)["a"], ["f1", "f2"]);
    process.filter_servers = None;
    process.registers(&mut registry);
    assert_eq!(table(&registry)["a"], ["f1", "f2"]);
    process.filter_servers = Some(Vec::new());
    process.registers(&mut registry);
    assert!(table(&registry).is_empty());
    let same = registry.view().route("T").unwrap();
    assert!(Arc::ptr_eq(&topic, &same), "the topic was rewritten");
}

/// Topics with the same queues at the same brokers share a route; an unused one is forgotten.
#[test]
fn equal_routes_are_one() {
    let mut registry = Registry::default();
    let mut process = Process::new("b", "a", 0);
    for topic in 0..100 {
        process = process.topic(&format!("T{topic}"), 4, 4);
    }
    process.clone().registers(&mut registry);
    assert_eq!(registry.routes.len(), 1);
    let one = registry.view().route("T0").unwrap().body(Flavour::Standard);
    let other = registry
        .view()
        .route("T99")
        .unwrap()
        .body(Flavour::Standard);
    assert_eq!(one.unwrap().as_ptr(), other.unwrap().as_ptr());
    process
        .topic("T0", 8, 8)
        .version(2, 2)
        .registers(&mut registry);
    assert_eq!(registry.routes.len(), 2);
    registry.delete_topic("T0", None);
    registry.scan(0);
    assert_eq!(registry.routes.len(), 1);
}

/// A topic that changes all the time leaves no more routes behind than a look for unused ones is put off for.
#[test]
fn routes_of_the_past_are_forgotten_as_they_add_up() {
    let mut registry = Registry::default();
    for n in 1..10_000 {
        let process = Process::new("b", "a", 0).topic("T", n, n);
        process.version(1, n.into()).registers(&mut registry);
        assert!(
            registry.routes.len() <= 1030,
            "{} after {n}",
            registry.routes.len()
        );
    }
}

/// With a cluster only its brokers lose the topic; without one all do; the unknown changes nothing.
#[test]
fn a_topic_is_deleted_in_a_cluster_or_everywhere() {
    let mut registry = Registry::default();
    Process::new("b", "a", 0)
        .topic("T", 4, 4)
        .registers(&mut registry);
    let elsewhere = Process::new("d", "e", 0).topic("T", 4, 4);
    let in_other = Registration {
        cluster: "D",
        ..elsewhere.registration()
    };
    registry.register(&in_other, 0).unwrap();
    assert_eq!(registry.delete_topic("T", Some("nowhere")), []);
    assert_eq!(registry.delete_topic("none", None), []);
    registry.delete_topic("T", Some("C"));
    assert_eq!(queues(&registry, "T"), [row("d", 4, 4, 6)]);
    registry.delete_topic("T", None);
    assert_eq!(route(&registry, "T"), None);
    let again = Process::new("b", "a", 0).topic("T", 4, 4).version(9, 9);
    again.registers(&mut registry);
    assert_eq!(queues(&registry, "T"), [row("b", 4, 4, 6)]);
}

/// Past a limit a registration is refused by name, and nothing of it is taken.
#[test]
fn what_is_too_much_is_refused_as_a_whole() {
    let mut registry = Registry::new(Rules {
        max_topics: 2,
        max_brokers: 2,
        max_filter_servers: 1,
        max_name_len: 8,
        ..Rules::default()
    });
    let process = Process::new("b", "a", 0)
        .topic("T1", 1, 1)
        .topic("T2", 1, 1);
    process.registers(&mut registry);
    let mut refused = |process: Process| {
        let error = registry.register(&process.registration(), 0).unwrap_err();
        assert_eq!(registry.view().topic_count(), 2, "{error}");
        assert_eq!(registry.live_count(), 1, "{error}");
        error
    };
    let three = Process::new("c", "x", 0)
        .topic("T2", 1, 1)
        .topic("T3", 1, 1);
    assert_eq!(
        refused(three),
        Refused::TooManyTopics { count: 3, limit: 2 }
    );
    let long = Process::new("c", "x", 0).topic("T23456789", 1, 1);
    assert!(matches!(
        refused(long),
        Refused::NameTooLong {
            what: "topic name",
            len: 9,
            ..
        }
    ));
    assert_eq!(
        refused(Process::new("", "x", 0)),
        Refused::Empty("broker name")
    );
    let mut filters = Process::new("c", "x", 0);
    filters.filter_servers = Some(vec!["f".into(), "g".into()]);
    assert!(matches!(
        refused(filters),
        Refused::TooManyFilterServers { count: 2, limit: 1 }
    ));
    Process::new("c", "x", 0)
        .topic("T2", 1, 1)
        .registers(&mut registry);
    let third = Process::new("d", "y", 0);
    let error = registry.register(&third.registration(), 0).unwrap_err();
    assert_eq!(error, Refused::TooManyBrokers { limit: 2 });
}

/// Both flavours are made of the same data, and made again when a broker changes.
#[test]
fn each_flavour_has_its_own_body() {
    let mut registry = Registry::default();
    Process::new("b", "a", 0)
        .topic("T", 4, 4)
        .registers(&mut registry);
    let body = |registry: &Registry, flavour| {
        let body = registry.view().route("T").unwrap().body(flavour).unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    };
    let standard = body(&registry, Flavour::Standard);
    assert!(
        standard.contains(r#""brokerAddrs":{"0":"a"}"#),
        "{standard}"
    );
    assert!(standard.contains(r#""filterServerTable":{}"#), "{standard}");
    let fastjson = body(&registry, Flavour::Fastjson);
    assert!(fastjson.contains(r#""brokerAddrs":{0:"a"}"#), "{fastjson}");
    Process::new("b", "s", 1).on(2).registers(&mut registry);
    let fastjson = body(&registry, Flavour::Fastjson);
    assert!(fastjson.contains(r#"{0:"a",1:"s"}"#), "{fastjson}");
}

/// Unit lists look at the flag of the topic's first broker.
#[test]
fn unit_lists_are_told_by_the_flag() {
    let mut registry = Registry::default();
    let mut process = Process::new("b", "a", 0);
    for (name, flag) in [("none", 0), ("unit", 1), ("sub", 2), ("both", 3)] {
        process = process.topic(name, 1, 1);
        process.topics.get_mut(name).unwrap().topic_sys_flag = flag;
    }
    process.registers(&mut registry);
    let list = |list| registry.view().unit_topics(list).topic_list;
    assert_eq!(list(UnitList::Unit), ["both", "unit"]);
    assert_eq!(list(UnitList::HasUnitSub), ["both", "sub"]);
    assert_eq!(list(UnitList::HasUnitSubUnunit), ["sub"]);
    let system = registry.view().system_topics();
    assert_eq!(system.topic_list, ["C", "b"]);
    assert_eq!(system.broker_addr.as_deref(), Some("a"));
    assert_eq!(registry.view().topics_of_cluster("C").topic_list.len(), 4);
    assert!(registry.view().topics_of_cluster("D").topic_list.is_empty());
}
