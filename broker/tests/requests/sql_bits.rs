//! Bits of registered filters in the queue's extension: a pull passes over what they rule out, and over nothing else.
//! `filterSupportRetry`.

use std::sync::Arc;

use minimq_protocol::code::response;
use minimq_protocol::header::PullMessageResponse;
use minimq_store::{DispatchRecord, FilterBits};

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
