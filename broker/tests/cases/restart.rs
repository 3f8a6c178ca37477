//! What outlives a stop: offsets, topics, groups, delayed messages.

use std::time::{Duration, Instant};

use minimq_protocol::Command;
use minimq_protocol::code::{request, response};

use crate::support::*;

fn offset_request(code: i32) -> Command {
    Command::request(code)
        .with_ext("consumerGroup", "G")
        .with_ext("topic", "T")
        .with_ext("queueId", "0")
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_topics_groups_and_messages_outlive_a_restart() {
    let mut broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    ok(&wire.create_topic("Made", 3, 2, 4).await);
    for i in 0..5 {
        let body = format!("m{i}");
        ok(&wire.send(&Send::new("T", 0, body.as_bytes())).await);
    }
    broker.until_readable("T", 0, 5).await;
    let group = r#"{"groupName":"Strict","consumeEnable":false,"retryMaxTimes":3}"#;
    let update = Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP);
    ok(&wire.call(&update.with_body(group)).await);
    let commit = offset_request(request::UPDATE_CONSUMER_OFFSET).with_ext("commitOffset", "3");
    ok(&wire.call(&commit).await);
    drop(wire);
    broker.restart().await;
    let mut wire = broker.connect().await;
    let query = offset_request(request::QUERY_CONSUMER_OFFSET);
    assert_eq!(number(&wire.call(&query).await, "offset"), 3);
    let made = broker.state().topics.get("Made").unwrap();
    assert_eq!(
        (made.read_queue_nums, made.write_queue_nums, made.perm),
        (3, 2, 4)
    );
    let strict = broker.state().groups.get("Strict").unwrap();
    assert_eq!((strict.consume_enable, strict.retry_max_times), (false, 3));
    let pulled = wire.pull(&Pull::new("T", 0, 3)).await;
    assert_eq!(pulled.bodies(), ["m3", "m4"]);
    let next = wire.send(&Send::new("T", 0, b"m5")).await;
    assert_eq!(number(&next, "queueOffset"), 5);
    let refused = wire
        .pull(&Pull {
            group: "Strict",
            ..Pull::new("T", 0, 0)
        })
        .await;
    assert_eq!(refused.code, response::NO_PERMISSION);
}

/// A delayed message comes when it is due, not before, though the broker is restarted meanwhile, and only once.
#[tokio::test(flavor = "multi_thread")]
async fn delayed_messages_come_once_and_in_time_across_restarts() {
    let mut broker = TestBroker::start_with(&["messageDelayLevel=1s 3s"]).await;
    let mut wire = broker.connect().await;
    let sent = Instant::now();
    ok(&wire
        .send(&Send::new("T", 2, b"late").with("DELAY\u{1}2\u{2}k\u{1}v"))
        .await);
    drop(wire);
    broker.restart().await;
    let reader = |broker: &TestBroker| broker.state().store.reader().max_offset("T", 2).get();
    if sent.elapsed() < Duration::from_millis(2_900) {
        assert_eq!(reader(&broker), 0, "not before its time");
    }
    broker.until_readable("T", 2, 1).await;
    assert!(sent.elapsed() >= Duration::from_millis(2_990));
    let mut wire = broker.connect().await;
    let pulled = wire.pull(&Pull::new("T", 2, 0)).await;
    let message = &pulled.messages[0];
    assert_eq!(message.body(), b"late");
    assert_eq!(message.properties().get("k"), Some("v"));
    assert_eq!(message.topic(), "T");
    drop(wire);
    broker.restart().await;
    let mut wire = broker.connect().await;
    // Another one behind it in the same level shows that the level was gone through again.
    ok(&wire
        .send(&Send::new("T", 3, b"second").with("DELAY\u{1}2"))
        .await);
    broker.until_readable("T", 3, 1).await;
    assert_eq!(reader(&broker), 1);
}

/// Under light load a delayed message is due within a few ms of its time; the broker does not look only now and then.
#[tokio::test(flavor = "multi_thread")]
async fn delayed_messages_are_on_time() {
    let broker = TestBroker::start_with(&["messageDelayLevel=1s"]).await;
    let mut wire = broker.connect().await;
    let mut late = Vec::new();
    for i in 0..3 {
        ok(&wire
            .send(&Send::new("T", 0, b"m").with("DELAY\u{1}1"))
            .await);
        let pull = Pull {
            suspend_ms: Some(15_000),
            ..Pull::new("T", 0, i)
        };
        let pulled = wire.pull(&pull).await;
        let delayed = wire.pull(&Pull::new("SCHEDULE_TOPIC_XXXX", 0, i)).await;
        let stored = delayed.messages[0].store_timestamp();
        late.push(pulled.messages[0].store_timestamp() - stored - 1_000);
    }
    late.sort_unstable();
    assert!(late[0] >= 0, "before their time: {late:?} ms");
    // The best of three, as the machine may be busy.
    assert!(late[0] <= 20, "late by {late:?} ms");
}
