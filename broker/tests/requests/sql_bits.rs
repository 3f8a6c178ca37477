//! Bits of registered filters in the queue's extension: a pull passes over what they rule out, and over nothing else.
//! `filterSupportRetry`.

use std::path::Path;
use std::sync::Arc;

use minimq_broker::filter::bloom::{BloomParameters, set_bits};
use minimq_broker::filter::sql::Selector;
use minimq_protocol::code::response;
use minimq_protocol::header::PullMessageResponse;
use minimq_protocol::message::MessageView;
use minimq_store::{Blocking, DispatchRecord, FilterBits, PhysicalOffset};

use crate::support::{Harness, pull_request, records, until};

const ON: [&str; 2] = ["enableCalcFilterBitMap=true", "enableConsumeQueueExt=true"];

/// Says of every message that no filter takes it.
struct NoBits(usize);

impl FilterBits for NoBits {
    fn bits_of(&self, _record: &DispatchRecord<'_>, out: &mut Vec<u8>) {
        out.resize(out.len() + self.0, 0);
    }
}

async fn stored(broker: &Harness, topic: &str, count: i64) {
    until("the messages", async || {
        broker.broker.store.reader().max_offset(topic, 0).get() == count
    })
    .await;
}

/// Pulls from the start, by what the group's heartbeat said; gives code, bodies, and where to go on.
async fn by_heartbeat(broker: &Harness, topic: &str) -> (i32, Vec<String>, i64) {
    let mut pull = pull_request("G", topic, 0, ("", ""));
    pull.ext.set("sysFlag", "0");
    let answer = broker.call(pull).await;
    let body = |message: &minimq_protocol::message::MessageView| {
        String::from_utf8_lossy(message.body()).into_owned()
    };
    let bodies = records(&answer).iter().map(body).collect();
    let header: PullMessageResponse = answer.header().unwrap();
    (answer.code, bodies, header.next_begin_offset)
}

/// Waits until what is stored from now on is later than what was registered before.
async fn next_millisecond(broker: &Harness) {
    let now_ms = broker.broker.clock.now_ms();
    until("the next millisecond", async || {
        broker.broker.clock.now_ms() > now_ms
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_bits_change_no_result() {
    let broker = Harness::start(&ON).await;
    broker.create_topic("T", 1).await;
    broker.send("T", &[("a", "5")], "before").await;
    stored(&broker, "T", 1).await;
    broker
        .register_consumer("G", "T", ("SQL92", "a > 1"), 5)
        .await;
    next_millisecond(&broker).await;
    for (a, body) in [("1", "one"), ("2", "two"), ("x", "no number")] {
        broker.send("T", &[("a", a)], body).await;
    }
    broker.send("T", &[], "without").await;
    stored(&broker, "T", 5).await;
    let expected = (0, vec!["before".to_owned(), "two".to_owned()], 5);
    assert_eq!(by_heartbeat(&broker, "T").await, expected);
    let broker = broker.restart().await;
    broker
        .register_consumer("G", "T", ("SQL92", "a > 1"), 5)
        .await;
    assert_eq!(by_heartbeat(&broker, "T").await, expected);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_bits_are_believed_for_the_filter_they_were_computed_for_and_no_other() {
    let broker = Harness::start(&ON).await;
    broker.create_topic("T", 1).await;
    broker
        .register_consumer("G", "T", ("SQL92", "a > 1"), 5)
        .await;
    next_millisecond(&broker).await;
    // Bits that lie show where bits are looked at.
    broker
        .broker
        .store
        .set_filter_bits(Some(Arc::new(NoBits(14))));
    broker.send("T", &[("a", "2")], "two").await;
    stored(&broker, "T", 1).await;
    let (code, bodies, next) = by_heartbeat(&broker, "T").await;
    assert_eq!(
        (code, bodies.len(), next),
        (response::PULL_RETRY_IMMEDIATELY, 0, 1),
        "passed over by its bits"
    );
    let found = async |group, expression| {
        let pull = pull_request(group, "T", 0, ("SQL92", expression));
        records(&broker.call(pull).await).len()
    };
    assert_eq!(
        found("G", "a > 0").await,
        1,
        "an expression of the pull's own"
    );
    assert_eq!(found("OTHER", "a > 1").await, 1, "a group without a filter");
    // The group subscribes anew: the bits are those of another expression.
    broker
        .register_consumer("G", "T", ("SQL92", "a > 1 OR a > 0"), 6)
        .await;
    assert_eq!(by_heartbeat(&broker, "T").await.1, ["two"]);

    // And bits of another length are those of other parameters.
    broker
        .broker
        .store
        .set_filter_bits(Some(Arc::new(NoBits(13))));
    next_millisecond(&broker).await;
    broker.send("T", &[("a", "3")], "three").await;
    stored(&broker, "T", 2).await;
    assert_eq!(by_heartbeat(&broker, "T").await.1, ["two", "three"]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_topic_is_filtered_by_the_filter_of_the_topic_before_when_its_key_is_set() {
    for (settings, expected) in [
        (vec!["filterSupportRetry=true"], vec!["two", "elsewhere"]),
        (vec![], vec!["one", "two", "elsewhere"]),
    ] {
        let broker = Harness::start(&settings).await;
        broker.create_topic("T", 1).await;
        broker
            .register_consumer("G", "T", ("SQL92", "a > 1"), 5)
            .await;
        for (topic, a, body) in [
            ("T", "1", "one"),
            ("T", "2", "two"),
            ("U", "1", "elsewhere"),
        ] {
            let properties = [("RETRY_TOPIC", topic), ("a", a)];
            broker.send("%RETRY%G", &properties, body).await;
        }
        stored(&broker, "%RETRY%G", 3).await;
        let answer = broker
            .call(pull_request("G", "%RETRY%G", 0, ("TAG", "*")))
            .await;
        let found = records(&answer);
        let bodies: Vec<_> = found
            .iter()
            .map(|message| String::from_utf8_lossy(message.body()))
            .collect();
        assert_eq!(bodies, expected);
        broker.stop().await;
    }
}

/// Topic and group of each filter of the recorded store, and its expression.
const RECORDED: [(&str, &str, &str); 4] = [
    ("StoreA", "CGsql1", "n > 10 AND color = 'red'"),
    (
        "StoreA",
        "CGsql2",
        "price BETWEEN 1.5 AND 3 OR color IS NULL",
    ),
    (
        "StoreA",
        "CGsql3",
        "color IN ('red','blue') AND NOT (n = 3)",
    ),
    (
        "StoreB",
        "CGsql2",
        "price BETWEEN 1.5 AND 3 OR color IS NULL",
    ),
];

/// Every message of a queue with the bits stored beside its entry.
fn messages_and_bits(broker: &Harness, topic: &str, queue_id: i32) -> Vec<(MessageView, Vec<u8>)> {
    let store = &broker.broker.store;
    let queue = store.queues().get(topic, queue_id).unwrap();
    (queue.min_offset()..queue.max_offset())
        .map(|number| {
            let entry = queue.entry(number).unwrap().unwrap();
            let unit = queue.ext_unit(entry.tags_code, Blocking::Allowed).unwrap();
            let at = PhysicalOffset(entry.physical_offset);
            let record = store.reader().record(at, Blocking::Allowed).unwrap();
            let message = MessageView::parse(record.unwrap()).unwrap();
            (message, unit.unwrap().bit_map)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_that_a_4_9_8_broker_stored_are_ours_and_spare_no_message_too_many() {
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/store/cqext.tar.gz");
    let unpacked = std::process::Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .arg("-C")
        .arg(folder.path())
        .status();
    assert!(unpacked.unwrap().success());
    let broker = Harness::start_in(
        folder,
        &[
            ON[0],
            ON[1],
            "mapedFileSizeCommitLog=65536",
            "mappedFileSizeConsumeQueue=20000",
            "mappedFileSizeConsumeQueueExt=100000",
            "maxHashSlotNum=100",
            "maxIndexNum=400",
            "fileReservedTime=1000000",
        ],
    )
    .await;
    let bloom = BloomParameters::new(20, 32).unwrap();
    let (mut seen, mut ruled_out) = (0, 0);
    for topic in ["StoreA", "StoreB"] {
        for queue_id in 0..4 {
            for (message, stored) in messages_and_bits(&broker, topic, queue_id) {
                let mut bits = bloom.empty_bits();
                for (_, group, expression) in RECORDED.iter().filter(|f| f.0 == topic) {
                    let selector = Selector::parse(expression).unwrap();
                    if selector.matches_properties(message.properties()) {
                        set_bits(&mut bits, &bloom.positions(&format!("{group}#{topic}")));
                    }
                }
                assert_eq!(
                    bits,
                    stored,
                    "{topic} {queue_id} {}",
                    message.queue_offset()
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 60, "{seen}");

    for (topic, group, expression) in RECORDED {
        let data = broker.broker.registered_filters.get(topic, group).unwrap();
        assert_eq!(data.expression.as_deref(), Some(expression));
        let version = data.client_version;
        broker
            .register_consumer(group, topic, ("SQL92", expression), version)
            .await;
        let selector = Arc::new(Selector::parse(expression).unwrap());
        let registered = &broker.broker.registered_filters;
        let bits = registered.stored_bits(topic, group, &selector).unwrap();
        for queue_id in 0..4 {
            let all = messages_and_bits(&broker, topic, queue_id);
            let takes = |message: &&MessageView| selector.matches_properties(message.properties());
            let expected: Vec<i64> = all
                .iter()
                .map(|(message, _)| message)
                .filter(takes)
                .map(|message| message.queue_offset())
                .collect();
            let mut pull = pull_request(group, topic, 0, ("", ""));
            pull.ext.set("sysFlag", "0");
            pull.ext.set("queueId", &queue_id.to_string());
            let answer = broker.call(pull).await;
            let found: Vec<i64> = records(&answer)
                .iter()
                .map(MessageView::queue_offset)
                .collect();
            assert_eq!(found, expected, "{topic} {queue_id} {group}");
            let queue = broker.broker.store.queues().get(topic, queue_id).unwrap();
            for number in queue.min_offset()..queue.max_offset() {
                let code = queue.entry(number).unwrap().unwrap().tags_code;
                let unit = queue.ext_unit(code, Blocking::Allowed).unwrap().unwrap();
                ruled_out += usize::from(bits.rule_out(&unit));
            }
        }
    }
    assert!(ruled_out > 60, "bits spare reading: {ruled_out}");
    broker.stop().await;
}
