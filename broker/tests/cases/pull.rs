//! What a pull is answered: offsets, refusals, budgets, tags.

use minimq_protocol::Command;
use minimq_protocol::code::{request, response};

use crate::support::*;

async fn fill(wire: &mut Wire, broker: &TestBroker, topic: &str, count: usize, body: &[u8]) {
    for _ in 0..count {
        ok(&wire.send(&Send::new(topic, 0, body)).await);
    }
    broker.until_readable(topic, 0, count as i64).await;
}

/// pull-01: an offset outside the queue is corrected, never to the queue's start from behind its end.
#[tokio::test(flavor = "multi_thread")]
async fn offsets_outside_the_queue_are_corrected() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    fill(&mut wire, &broker, "T", 10, b"m").await;
    for (offset, expected) in [
        (11, (21, 10, 0, 10)),
        (99_999, (21, 10, 0, 10)),
        (10, (19, 10, 0, 10)),
        (-5, (21, 0, 0, 10)),
    ] {
        let pulled = wire.pull(&Pull::new("T", 0, offset)).await;
        assert_eq!(pulled.numbers(), expected, "offset {offset}");
    }
    ok(&wire.create_topic("E", 4, 4, 6).await);
    for (offset, expected) in [(0, (19, 0, 0, 0)), (5, (21, 0, 0, 0))] {
        let pulled = wire.pull(&Pull::new("E", 0, offset)).await;
        assert_eq!(pulled.numbers(), expected, "empty queue, offset {offset}");
    }
}

/// pull-02: every check of permissions and existence has its own code.
#[tokio::test(flavor = "multi_thread")]
async fn refused_pulls_say_why_by_their_code() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    ok(&wire.create_topic("T", 4, 4, 6).await);
    ok(&wire.create_topic("WriteOnly", 4, 4, 2).await);
    for group in [
        r#"{"groupName":"Off","consumeEnable":false}"#,
        r#"{"groupName":"NoBroadcast","consumeEnable":true,"consumeBroadcastEnable":false}"#,
    ] {
        let update = Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP);
        ok(&wire.call(&update.with_body(group)).await);
    }
    ok(&wire
        .heartbeat(
            "c",
            &Consumer {
                group: "NoBroadcast",
                broadcasting: true,
                topics: &[("T", "*")],
            },
        )
        .await);
    let t = Pull::new("T", 0, 0);
    let by_heartbeat = Pull {
        subscription: None,
        ..t
    };
    for (pull, code) in [
        (Pull::new("Unknown", 0, 0), response::TOPIC_NOT_EXIST),
        (Pull::new("T", 4, 0), response::SYSTEM_ERROR),
        (Pull::new("T", -1, 0), response::SYSTEM_ERROR),
        (Pull::new("WriteOnly", 0, 0), response::NO_PERMISSION),
        (Pull { group: "Off", ..t }, response::NO_PERMISSION),
        (
            Pull {
                group: "NoBroadcast",
                ..by_heartbeat
            },
            response::NO_PERMISSION,
        ),
        (by_heartbeat, response::SUBSCRIPTION_NOT_EXIST),
        (t, response::PULL_NOT_FOUND),
    ] {
        let pulled = wire.pull(&pull).await;
        assert_eq!(pulled.code, code, "{}", pulled.remark);
        assert!(!pulled.remark.is_empty());
    }
}

/// pull-03: the budgets of bytes and counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_keeps_to_its_budgets() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    fill(&mut wire, &broker, "Large", 5, &vec![b'x'; 100_000]).await;
    let pulled = wire.pull(&Pull::new("Large", 0, 0)).await;
    assert_eq!((pulled.messages.len(), pulled.next), (2, 2));
    fill(&mut wire, &broker, "Huge", 1, &vec![b'x'; 600_000]).await;
    let pulled = wire.pull(&Pull::new("Huge", 0, 0)).await;
    assert_eq!((pulled.messages.len(), pulled.next), (1, 1));
    fill(&mut wire, &broker, "Small", 50, b"m").await;
    for (max_count, got) in [(1000, 32), (16, 16), (0, 1)] {
        let pull = Pull {
            max_count,
            ..Pull::new("Small", 0, 0)
        };
        let pulled = wire.pull(&pull).await;
        assert_eq!(pulled.messages.len(), got, "maxMsgNums {max_count}");
        assert_eq!(pulled.next, got as i64);
    }
    let pull = Pull {
        max_count: -1,
        ..Pull::new("Small", 0, 0)
    };
    assert_eq!(wire.pull(&pull).await.code, response::SYSTEM_ERROR);
}

/// pull-04: what a filter leaves out still moves the offset on.
#[tokio::test(flavor = "multi_thread")]
async fn filtered_pulls_make_progress() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    for i in 0..10 {
        let properties = format!("TAGS\u{1}{}\u{2}", if i % 2 == 0 { "A" } else { "B" });
        let body = format!("m{i}");
        ok(&wire
            .send(&Send::new("T", 0, body.as_bytes()).with(&properties))
            .await);
    }
    broker.until_readable("T", 0, 10).await;
    let b = Pull {
        subscription: Some("B"),
        ..Pull::new("T", 0, 0)
    };
    let two = wire.pull(&Pull { max_count: 2, ..b }).await;
    assert_eq!(
        (two.bodies(), two.next),
        (vec!["m1".into(), "m3".into()], 4)
    );
    let all = wire.pull(&b).await;
    assert_eq!((all.messages.len(), all.next), (5, 10));
    let z = Pull {
        subscription: Some("Z"),
        ..b
    };
    assert_eq!(wire.pull(&z).await.numbers(), (20, 10, 0, 10));
    let waiting = Pull {
        suspend_ms: Some(15_000),
        ..z
    };
    let begin = std::time::Instant::now();
    assert_eq!(wire.pull(&waiting).await.numbers(), (20, 10, 0, 10));
    assert!(begin.elapsed().as_secs() < 10);

    let body = batch_body(&vec![(b"m".as_slice(), "TAGS\u{1}A"); 200]);
    for _ in 0..10 {
        let mut send = Send::new("Many", 0, &body);
        send.batch = true;
        ok(&wire.send(&send).await);
    }
    broker.until_readable("Many", 0, 2000).await;
    let (mut offset, mut pulls) = (0, 0);
    while offset < 2000 {
        let pulled = wire
            .pull(&Pull {
                subscription: Some("Z"),
                ..Pull::new("Many", 0, offset)
            })
            .await;
        assert_eq!(pulled.code, response::PULL_RETRY_IMMEDIATELY);
        assert!(pulled.next > offset);
        offset = pulled.next;
        pulls += 1;
    }
    assert!(pulls <= 4, "{pulls} pulls");
}

/// A pull whose commit bit is set commits its group's offset; one without does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_commits_the_offset_it_brings() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    fill(&mut wire, &broker, "T", 3, b"m").await;
    let query = Command::request(request::QUERY_CONSUMER_OFFSET)
        .with_ext("consumerGroup", "G")
        .with_ext("topic", "T")
        .with_ext("queueId", "0");
    wire.pull(&Pull::new("T", 0, 2)).await;
    assert_eq!(number(&wire.call(&query).await, "offset"), 0);
    wire.pull(&Pull {
        commit: Some(2),
        ..Pull::new("T", 0, 2)
    })
    .await;
    assert_eq!(number(&wire.call(&query).await, "offset"), 2);
}
