//! Recorded conversations with a 4.9.8 name server (golden/frames). Every recorded request is sent as it was, byte by
//! byte; every recorded answer is asked for again, after a state has been built from which it must come out. What may
//! differ stands in `mask.tsv`, with reasons. The files of golden/bodies are the bodies of these frames.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use minimq_protocol::body::{
    ClusterInfo, DataVersion, RegisterBrokerBody, TopicConfig, TopicList, TopicRouteData,
};
use minimq_protocol::code::request;
use minimq_protocol::header::RegisterBrokerRequest;
use minimq_protocol::json::{Value, read};
use minimq_protocol::{Command, SerializeType, frame};
use serde_json::Value as Index;

use crate::harness::{Broker, NameServer, Peer, golden, with_fields};

/// All codes of the name server of which anything was recorded.
const CODES: [i64; 20] = [
    100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322,
    327,
];

struct Recorded {
    file: String,
    request_code: i32,
    is_answer: bool,
    client: String,
    serialize: SerializeType,
    bytes: Bytes,
    command: Command,
    /// Ext fields of the request that an answer belongs to.
    asked: Vec<(String, String)>,
}

fn recorded() -> Vec<Recorded> {
    let index = std::fs::read(golden("frames/index.json")).unwrap();
    let index: Vec<Index> = serde_json::from_slice(&index).unwrap();
    index.iter().filter_map(one).collect()
}

fn one(entry: &Index) -> Option<Recorded> {
    let code = entry["requestCode"].as_i64()?;
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let with_name_server = text("from") == "namesrv" || text("to") == "namesrv";
    if !CODES.contains(&code) || !with_name_server {
        return None;
    }
    let file = text("file");
    let bytes = Bytes::from(std::fs::read(golden(&format!("frames/{file}"))).unwrap());
    let asked = entry["answerTo"]["extFields"].as_object();
    Some(Recorded {
        request_code: code.try_into().unwrap(),
        is_answer: text("direction") == "response",
        // `105-name.json.response.CLIENT.2.bin`
        client: file.split('.').nth(3).unwrap().to_owned(),
        serialize: match text("serializeType").as_str() {
            "JSON" => SerializeType::Json,
            _ => SerializeType::Rocketmq,
        },
        command: frame::parse(bytes.clone()).unwrap(),
        asked: asked
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
            .collect(),
        bytes,
        file,
    })
}

/// The entries of the mask file, and those that were needed.
struct Mask {
    entries: BTreeSet<(String, String)>,
    used: RefCell<BTreeSet<(String, String)>>,
}

impl Mask {
    fn read() -> Self {
        let mut entries = BTreeSet::new();
        for line in include_str!("mask.tsv").lines().skip(1) {
            let parts: Vec<&str> = line.split('\t').collect();
            let [code, what, reason] = parts[..] else {
                panic!("mask.tsv: `{line}` has not three parts");
            };
            assert!(
                !reason.trim().is_empty(),
                "mask.tsv: {code} {what} has no reason"
            );
            entries.insert((code.to_owned(), what.to_owned()));
        }
        Self {
            entries,
            used: RefCell::default(),
        }
    }

    /// Whether a difference is allowed; only to be asked when there is one.
    fn allows(&self, code: i32, what: &str) -> bool {
        let exact = (code.to_string(), what.to_owned());
        let any = ("*".to_owned(), what.to_owned());
        let found = [exact, any]
            .into_iter()
            .find(|entry| self.entries.contains(entry));
        if let Some(entry) = &found {
            self.used.borrow_mut().insert(entry.clone());
        }
        found.is_some()
    }
}

#[test]
fn recorded_requests_are_answered_as_recorded() {
    let mut replayed = 0;
    for recorded in recorded().iter().filter(|recorded| !recorded.is_answer) {
        let server = NameServer::start(&[]);
        let mut peer = server.peer();
        let broker = Broker::new("broker-b", "127.0.0.1:12911", 0);
        let broker = ["TopicA", "TBW102", "GoT", "AclT", "DelT"]
            .iter()
            .fold(broker, |broker, topic| broker.topic(topic, 4, 4));
        peer.register(&broker);
        peer.call(with_fields(
            request::PUT_KV_CONFIG,
            &[("namespace", "GOLD_NS"), ("key", "k2"), ("value", "x")],
        ));
        peer.send(&recorded.bytes);
        let sent = &recorded.command;
        let file = &recorded.file;
        if sent.is_oneway() {
            // 4.9.8 brokers tell of a change without waiting: the next answer is that of the next request.
            assert_eq!(recorded.request_code, request::REGISTER_BROKER, "{file}");
            assert_registered(&mut peer, sent, file);
            replayed += 1;
            continue;
        }
        let answer = peer.answer();
        let expected = match recorded.request_code {
            request::GET_ROUTEINFO_BY_TOPIC if sent.ext.get("topic").is_none() => 17,
            _ => 0,
        };
        assert_eq!(answer.code, expected, "{file}: {}", answer.remark());
        assert_eq!(answer.opaque, sent.opaque, "{file}");
        assert_eq!(answer.serialize, recorded.serialize, "{file}");
        if recorded.request_code == request::REGISTER_BROKER {
            assert_registered(&mut peer, sent, file);
        }
        replayed += 1;
    }
    assert!(replayed > 60, "only {replayed} recorded requests");
}

/// All topics of a recorded registration are routable with their queues, and its filter servers stand beside them.
fn assert_registered(peer: &mut Peer, sent: &Command, file: &str) {
    let header: RegisterBrokerRequest<'_> = sent.header().unwrap();
    let body =
        RegisterBrokerBody::from_registration(&sent.body, header.compressed, sent.version).unwrap();
    let topics = &body.topic_config_serialize_wrapper.topic_config_table;
    assert!(topics.len() >= 6, "{file}");
    for topic in topics.values() {
        let route = peer.route(&topic.topic_name).unwrap();
        let here = |name: &String| name == header.broker_name;
        let queue = route
            .queue_datas
            .iter()
            .find(|queue| here(&queue.broker_name));
        let queue = queue.unwrap_or_else(|| panic!("{file}: {} not here", topic.topic_name));
        let numbers = (
            queue.read_queue_nums,
            queue.write_queue_nums,
            queue.perm,
            queue.topic_sys_flag,
        );
        let wanted = (
            topic.read_queue_nums,
            topic.write_queue_nums,
            topic.perm,
            topic.topic_sys_flag,
        );
        assert_eq!(numbers, wanted, "{file}: {}", topic.topic_name);
        let servers = route.filter_server_table.get(header.broker_addr).cloned();
        assert_eq!(
            servers.unwrap_or_default(),
            body.filter_server_list.clone().unwrap_or_default()
        );
    }
}

#[test]
fn recorded_answers_come_out_of_a_state_built_for_them() {
    let mask = Mask::read();
    let all = recorded();
    let mut replayed = BTreeMap::<i32, usize>::new();
    for recorded in all.iter().filter(|recorded| recorded.is_answer) {
        let server = NameServer::start(&[]);
        let mut peer = server.peer();
        build_state(&mut peer, recorded, &all);
        let actual = peer.call(asked_again(recorded));
        compare(recorded, &actual, &mask);
        *replayed.entry(recorded.request_code).or_default() += 1;
    }
    let codes: Vec<i64> = replayed.keys().map(|code| i64::from(*code)).collect();
    assert_eq!(codes, CODES, "not every code has a recorded answer");
    let unused: Vec<_> = mask
        .entries
        .difference(&mask.used.borrow())
        .cloned()
        .collect();
    assert!(
        unused.is_empty(),
        "entries of mask.tsv that nothing needs: {unused:?}"
    );
}

/// The request that a recorded answer belongs to. Its fields were recorded, its body and version follow from them.
fn asked_again(recorded: &Recorded) -> Command {
    let fields: Vec<(&str, &str)> = recorded
        .asked
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .filter(|(key, _)| *key != "bodyCrc32")
        .collect();
    let mut request =
        with_fields(recorded.request_code, &fields).with_serialize(recorded.serialize);
    request.version = match recorded.client.as_str() {
        "go" => 317,
        "broker42" | "filtersrv42" => 252,
        _ => 409,
    };
    match recorded.request_code {
        request::QUERY_DATA_VERSION => request.with_body(recorded.command.body.clone()),
        request::UPDATE_NAMESRV_CONFIG if recorded.command.code == 16 => {
            request.with_body("kvConfigPath=/tmp/x\n")
        }
        request::UPDATE_NAMESRV_CONFIG => request.with_body("orderMessageEnable=false\n"),
        _ => request,
    }
}

/// Registers what the recorded answer tells of, and sets what it holds.
fn build_state(peer: &mut Peer, recorded: &Recorded, all: &[Recorded]) {
    let asked = |key: &str| {
        let field = recorded.asked.iter().find(|(name, _)| name == key);
        field.map_or("", |(_, value)| value.as_str())
    };
    let body = &recorded.command.body;
    match recorded.request_code {
        request::GET_KV_CONFIG => {
            if let Some(value) = recorded.command.ext.get("value") {
                put(peer, asked("namespace"), asked("key"), value);
            } else {
                put(peer, asked("namespace"), "another", "x");
            }
        }
        request::GET_KVLIST_BY_NAMESPACE if !body.is_empty() => {
            let table = minimq_protocol::body::KvTable::from_json(body)
                .unwrap()
                .table;
            for (key, value) in table {
                put(peer, asked("namespace"), &key, &value);
            }
        }
        request::REGISTER_BROKER => {
            if let Some(master) = recorded.command.ext.get("masterAddr") {
                let mut broker = Broker::new(asked("brokerName"), master, 0);
                broker.ha = recorded.command.ext.get("haServerAddr").unwrap().to_owned();
                peer.register(&broker);
            }
            if !body.is_empty() {
                put(
                    peer,
                    "ORDER_TOPIC_CONFIG",
                    "OrderT",
                    "broker-a:4;broker-b:4",
                );
            }
        }
        request::UNREGISTER_BROKER | request::DELETE_TOPIC_IN_NAMESRV => {
            let broker = Broker::new("broker-b", "127.0.0.1:12911", 0);
            peer.register(&broker.topic(asked("topic"), 4, 4));
        }
        request::GET_ROUTEINFO_BY_TOPIC if !body.is_empty() => {
            let route = TopicRouteData::from_json(body).unwrap();
            register_route(peer, asked("topic"), &route);
        }
        request::WIPE_WRITE_PERM_OF_BROKER | request::ADD_WRITE_PERM_OF_BROKER => {
            let fields = &recorded.command.ext;
            let count = fields
                .get("wipeTopicCount")
                .or(fields.get("addTopicCount"))
                .unwrap();
            let broker = Broker::new(asked("brokerName"), "127.0.0.1:12911", 0);
            let topics = 0..count.parse().unwrap();
            peer.register(&topics.fold(broker, |broker, n| broker.topic(&format!("T{n}"), 4, 4)));
        }
        request::QUERY_DATA_VERSION => {
            let mut broker = Broker::new(asked("brokerName"), asked("brokerAddr"), 0);
            broker.version = DataVersion::from_json(body).unwrap();
            peer.register(&broker);
        }
        206 | 224 | 304 | 106 | 311 | 312 | 313 => register_lab(peer, recorded, all),
        _ => {}
    }
}

fn put(peer: &mut Peer, namespace: &str, key: &str, value: &str) {
    let fields = [("namespace", namespace), ("key", key), ("value", value)];
    assert_eq!(
        peer.call(with_fields(request::PUT_KV_CONFIG, &fields)).code,
        0
    );
}

/// Registers the brokers of a route with the topic; a slave without it.
fn register_route(peer: &mut Peer, topic: &str, route: &TopicRouteData) {
    for data in &route.broker_datas {
        let queue = route
            .queue_datas
            .iter()
            .find(|queue| queue.broker_name == data.broker_name);
        let queue = queue.unwrap();
        for (id, addr) in &data.broker_addrs {
            let mut broker = Broker::new(&data.broker_name, addr, *id);
            broker.cluster = data.cluster.clone().unwrap();
            broker.filter_servers = route
                .filter_server_table
                .get(addr)
                .cloned()
                .unwrap_or_default();
            let broker = broker.config(TopicConfig {
                perm: queue.perm,
                read_queue_nums: queue.read_queue_nums,
                write_queue_nums: queue.write_queue_nums,
                topic_sys_flag: queue.topic_sys_flag,
                ..TopicConfig::new(topic)
            });
            assert_eq!(peer.register(&broker).code, 0);
        }
    }
}

/// The lab cluster by its recorded table of brokers (106), with all topics of the recorded list: those of the list by
/// cluster (224) at broker-a and broker-b, the others at broker-c.
fn register_lab(peer: &mut Peer, recorded: &Recorded, all: &[Recorded]) {
    let body_of = |code, client: &str| {
        let found = all
            .iter()
            .find(|other| other.is_answer && other.request_code == code && other.client == client);
        found.unwrap().command.body.clone()
    };
    let topics = |body: &[u8]| TopicList::from_json(body).unwrap().topic_list;
    let in_default: BTreeSet<String> = topics(&body_of(224, "java")).into_iter().collect();
    let client = if recorded.request_code == 206 {
        &recorded.client
    } else {
        "java"
    };
    let every = topics(&body_of(206, client));
    let info = ClusterInfo::from_json(&body_of(106, "java")).unwrap();
    for data in info.broker_addr_table.values() {
        for (id, addr) in &data.broker_addrs {
            let mut broker = Broker::new(&data.broker_name, addr, *id);
            broker.cluster = data.cluster.clone().unwrap();
            let here = |topic: &&String| {
                in_default.contains(*topic) == (broker.cluster == "DefaultCluster")
            };
            let here: Vec<&String> = every.iter().filter(here).collect();
            let broker = here.into_iter().fold(broker, |broker, topic| {
                let topic_sys_flag = match topic.as_str() {
                    "UnitT" => 3,
                    "UnitSubT" => 2,
                    _ => 0,
                };
                broker.config(TopicConfig {
                    topic_sys_flag,
                    ..TopicConfig::new(topic)
                })
            });
            assert_eq!(peer.register(&broker).code, 0);
        }
    }
}

fn compare(recorded: &Recorded, actual: &Command, mask: &Mask) {
    let (file, code) = (&recorded.file, recorded.request_code);
    let expected = &recorded.command;
    assert_eq!(actual.code, expected.code, "{file}: {}", actual.remark());
    assert_eq!(actual.remark(), expected.remark(), "{file}");
    assert_eq!(actual.flag, expected.flag, "{file}");
    assert_eq!(actual.version, expected.version, "{file}");
    assert_eq!(actual.language, expected.language, "{file}");
    let fields = |command: &Command| -> BTreeMap<String, String> {
        let fields = command.ext.iter();
        fields
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    };
    assert_eq!(fields(actual), fields(expected), "{file}");
    if actual.ext.is_present() != expected.ext.is_present() {
        assert!(
            mask.allows(code, "empty-fields"),
            "{file}: extFields present or not"
        );
    }
    if code == request::GET_NAMESRV_CONFIG {
        compare_settings(&expected.body, &actual.body, file, mask);
    } else if actual.body != expected.body {
        compare_bodies(&expected.body, &actual.body, code, file, mask);
    }
}

/// Two JSON bodies of the same length with the same content, but for the order of lists and what else is masked.
fn compare_bodies(expected: &[u8], actual: &[u8], code: i32, file: &str, mask: &Mask) {
    let text = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
    let (expected, actual) = (text(expected), text(actual));
    let expected_value = read(&expected).unwrap();
    let actual_value = read(&actual).unwrap();
    let mut differences = BTreeSet::new();
    let (mut left, mut right) = (canonical(&expected_value), canonical(&actual_value));
    if left != right && code == request::GET_SYSTEM_TOPIC_LIST_FROM_NS {
        for list in [&mut left, &mut right] {
            *list = list
                .replace("127.0.0.1:12911", "ADDR")
                .replace("127.0.0.1:10911", "ADDR");
        }
        differences.insert("brokerAddr");
    }
    assert_eq!(left, right, "{file}");
    // Members stand in the same order: only lists and tables may be ordered otherwise.
    assert_eq!(actual.len(), expected.len(), "{file}: {actual}");
    let mut unordered = (expected.clone(), actual.clone());
    if differences.contains("brokerAddr") {
        unordered.0 = unordered.0.replace("127.0.0.1:12911", "ADDR");
        unordered.1 = unordered.1.replace("127.0.0.1:10911", "ADDR");
    }
    if unordered.0 != unordered.1 {
        differences.insert("order");
    }
    for what in differences {
        assert!(mask.allows(code, what), "{file}: {what} differs: {actual}");
    }
    // The flavour shows in the keys that are numbers.
    for form in ["{0:", "{\"0\":"] {
        assert_eq!(
            actual.contains(form),
            expected.contains(form),
            "{file}: {actual}"
        );
    }
}

/// The value with lists and members sorted.
fn canonical(value: &Value<'_>) -> String {
    let sorted = |mut parts: Vec<String>| {
        parts.sort();
        parts.join(",")
    };
    match value {
        Value::Array(items) => format!("[{}]", sorted(items.iter().map(canonical).collect())),
        Value::Object(members) => {
            let member = |(key, value): &(Value<'_>, Value<'_>)| {
                format!("{}:{}", canonical(key), canonical(value))
            };
            format!("{{{}}}", sorted(members.iter().map(member).collect()))
        }
        Value::Text(text) => format!("{text:?}"),
        other => format!("{other:?}"),
    }
}

fn compare_settings(expected: &[u8], actual: &[u8], file: &str, mask: &Mask) {
    let settings = |body: &[u8]| -> BTreeMap<String, String> {
        let text = String::from_utf8(body.to_vec()).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    };
    let (expected, actual) = (settings(expected), settings(actual));
    assert!(expected.len() > 15, "{file}");
    for (key, value) in &expected {
        if actual.get(key) != Some(value) {
            let got = actual.get(key);
            assert!(
                mask.allows(319, key),
                "{file}: {key} is {got:?}, was {value}"
            );
        }
    }
    if actual.len() != expected.len() {
        assert!(mask.allows(319, "lines"), "{file}");
    }
}
