//! Faults that RocketMQ had or has, each with the number of its case where it has one, over the wire.

use std::time::{Duration, Instant};

use minimq_protocol::body::{DataVersion, Flavour, TopicList};
use minimq_protocol::code::request;
use minimq_protocol::{Command, SerializeType};

use crate::harness::{Broker, NameServer, Peer, wait_for, with_fields};

const BOTH: [SerializeType; 2] = [SerializeType::Json, SerializeType::Rocketmq];

fn addrs(peer: &mut Peer, topic: &str) -> Vec<(i64, String)> {
    let route = peer.route(topic).unwrap();
    route.broker_datas[0]
        .broker_addrs
        .clone()
        .into_iter()
        .collect()
}

/// Read queues, write queues and permission at each broker.
fn queues(peer: &mut Peer, topic: &str) -> Vec<(i32, i32, i32)> {
    let route = peer.route(topic).unwrap_or_default();
    let queues = route.queue_datas.iter();
    queues
        .map(|q| (q.read_queue_nums, q.write_queue_nums, q.perm))
        .collect()
}

fn text(body: &[u8]) -> String {
    String::from_utf8(body.to_vec()).unwrap()
}

/// route-01
#[test]
fn a_promoted_slave_stands_under_one_id_only() {
    let server = NameServer::start(&[]);
    let (mut a, mut b) = (server.peer(), server.peer());
    a.register(&Broker::new("bx", "127.0.0.1:1001", 0).topic("TX", 4, 4));
    b.register(&Broker::new("bx", "127.0.0.1:1002", 1));
    b.register(&Broker::new("bx", "127.0.0.1:1002", 0).version(2, 2));
    assert_eq!(addrs(&mut a, "TX"), [(0, "127.0.0.1:1002".to_owned())]);
    let answer = a.register(&Broker::new("bx", "127.0.0.1:1001", 1));
    assert_eq!(answer.ext.get("masterAddr"), Some("127.0.0.1:1002"));
    assert_eq!(answer.ext.get("haServerAddr"), Some("127.0.0.1:10029"));
    let both = [
        (0, "127.0.0.1:1002".to_owned()),
        (1, "127.0.0.1:1001".to_owned()),
    ];
    assert_eq!(addrs(&mut a, "TX"), both);
}

/// route-02, route-03
#[test]
fn queues_follow_the_version_and_unnamed_topics_stay() {
    let server = NameServer::start(&[]);
    let mut peer = server.peer();
    let broker = |queues, timestamp, counter| {
        let broker = Broker::new("bx", "127.0.0.1:1001", 0).topic("TX", queues, queues);
        broker.version(timestamp, counter)
    };
    for (queues_sent, timestamp, counter, expected) in [
        (4, 3000, 3, 4),
        (8, 3000, 3, 4),
        (8, 3001, 3, 8),
        (2, 3001, 4, 2),
    ] {
        peer.register(&broker(queues_sent, timestamp, counter));
        assert_eq!(queues(&mut peer, "TX"), [(expected, expected, 6)]);
    }
    peer.register(
        &Broker::new("bx", "127.0.0.1:1001", 0)
            .topic("TX", 2, 1)
            .version(4000, 5),
    );
    assert_eq!(queues(&mut peer, "TX"), [(2, 1, 6)]);
    peer.register(&Broker::new("bx", "127.0.0.1:1001", 0).version(5000, 6));
    assert_eq!(queues(&mut peer, "TX"), [(2, 1, 6)]);
}

/// route-04
#[test]
fn a_wiped_write_permission_outlasts_heartbeats() {
    let server = NameServer::start(&[]);
    let mut peer = server.peer();
    let bx = Broker::new("bx", "127.0.0.1:1001", 0)
        .topic("TX", 4, 4)
        .topic("TY", 4, 4);
    peer.register(&bx);
    peer.register(&Broker::new("by", "127.0.0.1:1002", 0).topic("TX", 4, 4));
    let mut change = |code, broker, field: &str| {
        let answer = peer.call(with_fields(code, &[("brokerName", broker)]));
        assert_eq!(answer.code, 0);
        let count = answer.ext.get(field).unwrap().parse::<i32>().unwrap();
        (count, queues(&mut peer, "TX"), queues(&mut peer, "TY"))
    };
    let (wipe, add) = (
        request::WIPE_WRITE_PERM_OF_BROKER,
        request::ADD_WRITE_PERM_OF_BROKER,
    );
    let wiped = (2, vec![(4, 4, 4), (4, 4, 6)], vec![(4, 4, 4)]);
    assert_eq!(change(wipe, "bx", "wipeTopicCount"), wiped);
    assert_eq!(change(wipe, "nobody", "wipeTopicCount").0, 0);
    assert_eq!(change(add, "nobody", "addTopicCount").0, 0);
    peer.register(&bx);
    assert_eq!(queues(&mut peer, "TY"), [(4, 4, 4)]);
    peer.register(&bx.clone().version(9, 9));
    assert_eq!(queues(&mut peer, "TY"), [(4, 4, 6)]);
    peer.call(with_fields(wipe, &[("brokerName", "bx")]));
    let answer = peer.call(with_fields(add, &[("brokerName", "bx")]));
    assert_eq!(answer.ext.get("addTopicCount"), Some("2"));
    assert_eq!(queues(&mut peer, "TX"), [(4, 4, 6), (4, 4, 6)]);
}

/// wire-06 for the codes of a name server
#[test]
fn requests_with_missing_or_wrong_fields_are_answered() {
    let mut server = NameServer::start(&[]);
    let mut peer = server.peer();
    let fields: [(i32, &[&str]); 15] = [
        (100, &["namespace", "key", "value"]),
        (101, &["namespace", "key"]),
        (102, &["namespace", "key"]),
        (
            103,
            &[
                "brokerName",
                "brokerAddr",
                "clusterName",
                "haServerAddr",
                "brokerId",
            ],
        ),
        (
            104,
            &["brokerName", "brokerAddr", "clusterName", "brokerId"],
        ),
        (105, &["topic"]),
        (205, &["brokerName"]),
        (216, &["topic"]),
        (217, &["namespace", "key"]),
        (218, &["namespace", "key"]),
        (219, &["namespace"]),
        (224, &["cluster"]),
        (
            322,
            &["brokerName", "brokerAddr", "clusterName", "brokerId"],
        ),
        (327, &["brokerName"]),
        (999, &[]),
    ];
    for (code, names) in fields {
        for serialize in BOTH {
            let bare = Command::request(code).with_serialize(serialize);
            let answer = peer.call(bare.clone());
            let expected = match code {
                105 => 17,
                217 | 218 | 999 => 3,
                _ => 1,
            };
            assert_eq!(answer.code, expected, "{code}: {}", answer.remark());
            let unrelated = peer.call(bare.clone().with_ext("x", "y"));
            assert_eq!(unrelated.code, expected, "{code}: {}", unrelated.remark());
            for number in ["abc", "4294967296", "", "99999999999999999999"] {
                let all = |request: Command, name: &&str| request.with_ext(name, "v");
                let others = names.iter().filter(|name| **name != "brokerId");
                let request = others.fold(bare.clone(), all).with_ext("brokerId", number);
                let answer = peer.call(request.with_ext("bodyCrc32", number));
                let refused = names.contains(&"brokerId") && number != "4294967296";
                assert!(
                    !refused || answer.code == 1,
                    "{code} {number}: {}",
                    answer.code
                );
            }
        }
    }
    let answer = peer.call(with_fields(100, &[("key", "k"), ("value", "v")]));
    assert_eq!(answer.remark(), "namespace or key is null");
    peer.register(&Broker::new("bx", "127.0.0.1:1001", 0).topic("TX", 4, 4));
    assert!(peer.route("TX").is_some());
    assert!(server.is_alive());
}

/// wire-07
#[test]
fn routes_are_given_to_strange_clients_as_to_others() {
    let server = NameServer::start(&[]);
    let mut peer = server.peer();
    peer.register(&Broker::new("bx", "127.0.0.1:1001", 0).topic("TX", 4, 4));
    let ask = |serialize| {
        let request = with_fields(105, &[("topic", "TX"), ("unknown", "field")]);
        request.with_serialize(serialize)
    };
    let usual = peer.call(ask(SerializeType::Json));
    let header = r#"{"code":105,"flag":0,"language":"KLINGON","opaque":77,"version":409,"more":true,
        "serializeTypeCurrentRPC":"JSON","tlh":{"Qapla'":[1,"two",null]},"other":1.5,
        "extFields":{"topic":"TX","unknown":"field","another":"one"}}"#;
    let mut json = (header.len() as u32 + 4).to_be_bytes().to_vec();
    json.extend((header.len() as u32).to_be_bytes());
    json.extend(header.as_bytes());
    let mut binary = ask(SerializeType::Rocketmq).to_frame().to_vec();
    // Behind both lengths and the code.
    binary[10] = 99;
    for frame in [json, binary] {
        peer.send(&frame);
        let answer = peer.answer();
        assert_eq!((answer.code, &answer.body), (0, &usual.body));
    }
    assert!(text(&usual.body).contains("127.0.0.1:1001"));
}

/// wire-12
#[test]
fn each_client_gets_the_flavour_it_reads() {
    let server = NameServer::start(&[]);
    let mut peer = server.peer();
    peer.register(&Broker::new("bé", "127.0.0.1:1001", 0).topic("TX", 4, 4));
    let mut body = |version, flag: Option<&str>| {
        let mut request = with_fields(105, &[("topic", "TX")]);
        request.version = version;
        let request = flag.map_or(request.clone(), |flag| {
            request.with_ext("acceptStandardJsonOnly", flag)
        });
        text(&peer.call(request).body)
    };
    for (version, flag, standard) in [
        (401, None, true),
        (409, None, true),
        (613, None, true),
        (400, None, false),
        (399, None, false),
        (0, None, false),
        (399, Some("true"), true),
        (399, Some("false"), false),
    ] {
        let body = body(version, flag);
        assert_eq!(
            body.contains("\"brokerAddrs\":{\"0\":"),
            standard,
            "{version} {flag:?}: {body}"
        );
        assert_eq!(
            body.contains("\"brokerAddrs\":{0:"),
            !standard,
            "{version} {flag:?}: {body}"
        );
        assert_eq!(body.contains("\"b\\u00E9\""), standard, "{version}: {body}");
        assert!(body.contains("\"filterServerTable\":{}"), "{body}");
    }
}

#[test]
fn old_and_odd_registrations_are_understood() {
    let server = NameServer::start(&[]);
    let mut peer = server.peer();
    let broker = Broker::new("bx", "127.0.0.1:1001", 0).topic("TX", 4, 4);
    // Before 3.0.11: the table alone, the filter servers not said.
    let mut with_filters = broker.clone();
    with_filters.filter_servers = vec!["127.0.0.1:7777".into()];
    peer.register(&with_filters);
    let mut old = broker.request();
    old.version = 36;
    old.ext.remove("bodyCrc32");
    let old = old.with_body(
        r#"{"dataVersion":{"counter":7,"timestatmp":70},"topicConfigTable":{"x":{"topicName":"TOld","readQueueNums":3,"writeQueueNums":2}}}"#,
    );
    assert_eq!(peer.call(old.clone()).code, 0);
    assert_eq!(queues(&mut peer, "TOld"), [(3, 2, 6)]);
    let filters = peer.route("TX").unwrap().filter_server_table;
    assert_eq!(filters["127.0.0.1:1001"], ["127.0.0.1:7777"]);
    // The misspelt time counts: the same version is no change.
    let version = DataVersion {
        counter: 7,
        timestamp: 70,
    };
    let query = |version: DataVersion| {
        let fields = [
            ("brokerName", "bx"),
            ("brokerAddr", "127.0.0.1:1001"),
            ("clusterName", "DefaultCluster"),
            ("brokerId", "0"),
        ];
        with_fields(322, &fields).with_body(version.to_json(Flavour::Fastjson))
    };
    let answer = peer.call(query(version));
    assert_eq!(answer.ext.get("changed"), Some("false"));
    assert_eq!(DataVersion::from_json(&answer.body).unwrap(), version);
    let answer = peer.call(query(DataVersion {
        counter: 8,
        ..version
    }));
    assert_eq!(answer.ext.get("changed"), Some("true"));
    // Compressed, and compressed wrongly.
    let mut compressed = broker.clone().topic("TZ", 5, 5).version(8, 8);
    compressed.compressed = true;
    assert_eq!(peer.register(&compressed).code, 0);
    assert_eq!(queues(&mut peer, "TZ"), [(5, 5, 6)]);
    let mut cut = compressed.request();
    cut.ext.remove("bodyCrc32");
    cut.body = cut.body.slice(..cut.body.len() / 2);
    let answer = peer.call(cut);
    assert!(
        answer.code == 1
            && answer
                .remark()
                .contains("Failed to decode RegisterBrokerBody")
    );
    // A wrong checksum changes nothing.
    let mut wrong = broker.clone().topic("TW", 1, 1).version(9, 9).request();
    wrong.ext.set("bodyCrc32", "1");
    let answer = peer.call(wrong);
    assert_eq!((answer.code, answer.remark()), (1, "crc32 not match"));
    assert!(peer.route("TW").is_none());
    // No body at all: no topics, and no filter servers any more.
    let mut empty = broker.request().with_body("");
    empty.ext.remove("bodyCrc32");
    assert_eq!(peer.call(empty).code, 0);
    assert!(peer.route("TX").unwrap().filter_server_table.is_empty());
    // One-way: no answer, but done.
    let mut oneway = broker.clone().topic("TOne", 1, 1).version(10, 10).request();
    oneway.mark_oneway();
    peer.send(&oneway.to_frame());
    assert!(peer.route("TOne").is_some());
    let mut negative = broker.request();
    negative.version = -1;
    assert_eq!(peer.call(negative).code, 1);
}

#[test]
fn a_broker_goes_with_its_connection() {
    let server = NameServer::start(&[]);
    let mut reader = server.peer();
    let mut peer = server.peer();
    peer.register(&Broker::new("bx", "127.0.0.1:1001", 0).topic("TX", 4, 4));
    assert!(reader.route("TX").is_some());
    drop(peer);
    wait_for("the broker of a closed connection to go", || {
        reader.route("TX").is_none().then_some(())
    });
}

#[test]
fn a_silent_broker_goes_and_its_connection_is_closed() {
    let server = NameServer::start(&["brokerInactiveTime=300", "scanNotActiveBrokerInterval=20"]);
    let mut silent = server.peer();
    silent.register(&Broker::new("by", "127.0.0.1:1002", 0).topic("TY", 4, 4));
    assert!(silent.try_answer().is_none());
    assert!(server.peer().route("TY").is_none());
    wait_for("a line in the log", || {
        server.log().contains("was silent for").then_some(())
    });
}

#[test]
fn a_late_unregistration_does_not_wipe_a_fresh_registration() {
    let server = NameServer::start(&[]);
    let (mut before, mut after) = (server.peer(), server.peer());
    let broker = Broker::new("bx", "127.0.0.1:1001", 0).topic("TX", 4, 4);
    before.register(&broker);
    after.register(&broker);
    let fields = [
        ("brokerName", "bx"),
        ("brokerAddr", "127.0.0.1:1001"),
        ("clusterName", "DefaultCluster"),
        ("brokerId", "0"),
    ];
    assert_eq!(before.call(with_fields(104, &fields)).code, 0);
    assert!(after.route("TX").is_some());
    drop(before);
    assert_eq!(after.call(with_fields(104, &fields)).code, 0);
    assert!(after.route("TX").is_none());
}

/// What a read brings is answered in its order, whatever takes longer.
#[test]
fn answers_keep_the_order_of_their_requests() {
    let server = NameServer::start(&[]);
    let mut peer = server.peer();
    let mut broker = Broker::new("bx", "127.0.0.1:1001", 0);
    for topic in 0..3000 {
        broker = broker.topic(&format!("Topic{topic}"), 4, 4);
    }
    let mut requests = vec![broker.request()];
    for n in 0..20 {
        requests.push(with_fields(105, &[("topic", &format!("Topic{n}"))]));
        requests.push(with_fields(216, &[("topic", &format!("Topic{n}"))]));
        requests.push(with_fields(105, &[("topic", &format!("Topic{n}"))]));
        requests.push(with_fields(
            100,
            &[("namespace", "N"), ("key", "k"), ("value", &n.to_string())],
        ));
        requests.push(with_fields(101, &[("namespace", "N"), ("key", "k")]));
        requests.push(Command::request(206));
    }
    let mut bytes = Vec::new();
    for (opaque, request) in (0..).zip(&mut requests) {
        request.opaque = opaque;
        bytes.extend_from_slice(&request.to_frame());
    }
    peer.send(&bytes);
    for (opaque, request) in (0..).zip(&requests) {
        let answer = peer.answer();
        assert_eq!(answer.opaque, opaque, "code {}", request.code);
        let round = (opaque - 1) / 6;
        match (opaque - 1) % 6 {
            0 if opaque > 0 => assert_eq!(answer.code, 0),
            2 => assert_eq!(answer.code, 17),
            4 => assert_eq!(answer.ext.get("value"), Some(round.to_string().as_str())),
            5 => {
                let list = TopicList::from_json(&answer.body).unwrap().topic_list;
                assert_eq!(list.len(), 3000 - 1 - usize::try_from(round).unwrap());
            }
            _ => assert_eq!(answer.code, 0),
        }
    }
}

#[test]
fn frames_that_are_none_end_the_connection_and_only_that() {
    let mut server = NameServer::start(&[]);
    let mut good = server.peer();
    for bytes in [
        &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0][..],
        &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        &[0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0],
        &[0, 0, 0, 6, 7, 0, 0, 2, 0, 0],
        &[0, 0, 0, 6, 0, 0, 0, 2, b'{', b'['],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let mut bad = server.peer();
        bad.send(bytes);
        assert!(bad.try_answer().is_none(), "{bytes:?}");
        assert_eq!(good.call(Command::request(106)).code, 0);
    }
    assert!(server.is_alive());
}

/// Fifty thousand topics arrive while others read; the longest wait is printed, not judged: other tests run too.
#[test]
fn a_large_registration_does_not_stop_readers() {
    let server = NameServer::start(&[]);
    let mut reader = server.peer();
    reader.register(&Broker::new("by", "127.0.0.1:1002", 0).topic("TX", 4, 4));
    let mut broker = Broker::new("bx", "127.0.0.1:1001", 0);
    for topic in 0..50_000 {
        broker = broker.topic(&format!("SomewhatLongerTopicName{topic}"), 8, 8);
    }
    broker.compressed = true;
    let request = broker.request();
    let mut writer = server.peer();
    let working = std::thread::spawn(move || {
        let start = Instant::now();
        let answer = writer.call(request);
        assert_eq!(answer.code, 0, "{}", answer.remark());
        (writer, start.elapsed())
    });
    let (mut longest, mut count) = (Duration::ZERO, 0);
    while !working.is_finished() {
        let start = Instant::now();
        assert!(reader.route("TX").is_some());
        longest = longest.max(start.elapsed());
        count += 1;
    }
    let (_writer, took) = working.join().unwrap();
    println!("registration {took:?}; {count} routes meanwhile, the longest took {longest:?}");
    assert!(reader.route("SomewhatLongerTopicName49999").is_some());
    assert!(count > 0);
}

/// While a large registration has the only turn, another large request is refused at once instead of piling up.
#[test]
fn too_many_large_requests_are_answered_busy() {
    let server = NameServer::start(&["maxSlowRequests=1", "maxWaitingRequests=1"]);
    let (mut large, mut other) = (server.peer(), server.peer());
    for attempt in 1.. {
        let mut broker = Broker::new("bx", "127.0.0.1:1001", 0).version(attempt, 1);
        for topic in 0..20_000 {
            broker = broker.topic(&format!("Topic{attempt}of{topic}"), 4, 4);
        }
        large.send(&broker.request().to_frame());
        // Its first topic shows that it is being worked on; it may be done before the next request comes.
        let first = format!("Topic{attempt}of0");
        wait_for("the registration to begin", || {
            other.route(&first).map(|_| ())
        });
        let put = [("namespace", "N"), ("key", "k"), ("value", "v")];
        let answer = other.call(with_fields(100, &put));
        assert_eq!(large.answer().code, 0);
        if answer.code == 2 {
            assert_eq!(
                answer.remark(),
                "[OVERLOAD]system busy, start flow control for a while"
            );
            break;
        }
        assert!(attempt < 30, "never busy: {}", answer.code);
    }
    assert_eq!(other.call(with_fields(206, &[])).code, 0);
}
