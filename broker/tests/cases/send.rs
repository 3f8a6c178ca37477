//! What a send stores, and what it is answered.

use std::time::{Duration, Instant};

use minimq_protocol::Command;
use minimq_protocol::code::{request, response};
use minimq_protocol::properties::name as property;
use tokio::io::AsyncWriteExt;

use crate::support::*;

/// send-01: levels beyond the last count as the last, 0 and less are no delay, what is no number is refused.
#[tokio::test(flavor = "multi_thread")]
async fn delay_levels_out_of_range_do_not_lose_messages() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    ok(&wire
        .send(&Send::new("T", 0, b"late").with("DELAY\u{1}19\u{2}"))
        .await);
    broker.until_readable("SCHEDULE_TOPIC_XXXX", 17, 1).await;
    let stored = wire.pull(&Pull::new("SCHEDULE_TOPIC_XXXX", 17, 0)).await;
    let properties = stored.messages[0].properties();
    assert_eq!(properties.get(property::DELAY), Some("18"));
    assert_eq!(properties.get(property::REAL_TOPIC), Some("T"));
    for (at, level) in ["0", "-1"].iter().enumerate() {
        let properties = format!("DELAY\u{1}{level}\u{2}");
        ok(&wire
            .send(&Send::new("T", 0, b"now").with(&properties))
            .await);
        broker.until_readable("T", 0, at as i64 + 1).await;
    }
    for bad in ["abc", "99999999999"] {
        let properties = format!("DELAY\u{1}{bad}\u{2}");
        let answer = wire
            .send(&Send::new("T", 0, b"bad").with(&properties))
            .await;
        has_code(&answer, response::SYSTEM_ERROR);
    }
    let next = wire.send(&Send::new("T", 0, b"next")).await;
    ok(&next);
    assert_eq!(number(&next, "queueOffset"), 2);
}

/// send-02: every message of a batch keeps its own properties, with and without a separator at their end.
#[tokio::test(flavor = "multi_thread")]
async fn batched_messages_keep_their_own_properties() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    for (round, end) in ["", "\u{2}"].iter().enumerate() {
        let texts: Vec<String> = (0..3)
            .map(|i| format!("TAGS\u{1}T{i}\u{2}k\u{1}v{end}"))
            .collect();
        let bodies = [b"q2".as_slice(), b"b1", b"b2"];
        let messages: Vec<(&[u8], &str)> = bodies
            .into_iter()
            .zip(texts.iter().map(String::as_str))
            .collect();
        let body = batch_body(&messages);
        let mut send = Send::new("B", 1, &body);
        send.batch = true;
        let answer = wire.send(&send).await;
        ok(&answer);
        let first = 3 * round as i64;
        assert_eq!(number(&answer, "queueOffset"), first);
        let ids: Vec<&str> = answer.ext.get("msgId").unwrap().split(',').collect();
        assert_eq!(ids.len(), 3);
        broker.until_readable("B", 1, first + 3).await;
        let pulled = wire.pull(&Pull::new("B", 1, first)).await;
        assert_eq!(pulled.messages.len(), 3);
        for (i, message) in pulled.messages.iter().enumerate() {
            let mut properties: Vec<_> = message.properties().iter().collect();
            properties.sort_unstable();
            let tag = format!("T{i}");
            assert_eq!(
                properties,
                [("CLUSTER", "C1"), ("TAGS", tag.as_str()), ("k", "v")]
            );
            assert_eq!(message.queue_offset(), first + i as i64);
            assert_eq!(message.message_id().to_string(), ids[i]);
            assert!(message.body_crc_holds());
        }
        // wire-08: the checksum without its top bit, as Java stores it.
        assert_eq!(pulled.messages[0].body_crc(), 1_059_720_136);
    }
}

/// send-03: while a topic shrinks, its old queues stay readable as long as the settings say.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_shrinks_in_steps() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    ok(&wire.create_topic("S", 8, 8, 6).await);
    for queue in 0..8 {
        ok(&wire.send(&Send::new("S", queue, b"m")).await);
        broker.until_readable("S", queue, 1).await;
    }
    ok(&wire.create_topic("S", 8, 4, 6).await);
    assert_eq!(wire.pull(&Pull::new("S", 6, 0)).await.messages.len(), 1);
    ok(&wire.send(&Send::new("S", 6, b"m")).await);
    for _ in 0..64 {
        let answer = wire.send(&Send::new("S", -1, b"m")).await;
        ok(&answer);
        assert!((0..4).contains(&number(&answer, "queueId")));
    }
    ok(&wire.create_topic("S", 4, 4, 6).await);
    let refused = wire.send(&Send::new("S", 6, b"m")).await;
    has_code(&refused, response::SYSTEM_ERROR);
    let pulled = wire.pull(&Pull::new("S", 6, 0)).await;
    assert_eq!(pulled.code, response::SYSTEM_ERROR, "{}", pulled.remark);
}

/// wire-10: the limit is the body's; an empty body is a message. The limit changes at run time.
#[tokio::test(flavor = "multi_thread")]
async fn the_size_limit_is_that_of_the_body() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    let body = vec![b'x'; 4_194_305];
    ok(&wire.send(&Send::new("T", 0, &body[1..])).await);
    let refused = wire.send(&Send::new("T", 0, &body)).await;
    has_code(&refused, response::MESSAGE_ILLEGAL);
    ok(&wire.send(&Send::new("T", 0, b"")).await);
    broker.until_readable("T", 0, 2).await;
    let whole = wire.pull(&Pull::new("T", 0, 0)).await;
    assert_eq!(whole.messages[0].body().len(), 4_194_304);
    let empty = wire.pull(&Pull::new("T", 0, 1)).await;
    assert_eq!(empty.messages[0].body().len(), 0);
    let update = Command::request(request::UPDATE_BROKER_CONFIG);
    ok(&wire.call(&update.with_body("maxMessageSize=1048576")).await);
    ok(&wire.send(&Send::new("T", 0, &body[..1_048_576])).await);
    let refused = wire.send(&Send::new("T", 0, &body[..1_048_577])).await;
    has_code(&refused, response::MESSAGE_ILLEGAL);
}

/// wire-11: a topic's name has at most 127 characters of a small set, for creation and for sends.
#[tokio::test(flavor = "multi_thread")]
async fn topic_names_are_checked_alike_when_created_and_sent_to() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    ok(&wire.create_topic(&"a".repeat(127), 4, 4, 6).await);
    ok(&wire.send(&Send::new(&"a".repeat(127), 0, b"m")).await);
    ok(&wire.send(&Send::new(&"b".repeat(127), 0, b"m")).await);
    let long = "a".repeat(128);
    for bad in [long.as_str(), "a.b", "bad topic!", "тема", " ", ""] {
        let created = wire.create_topic(bad, 4, 4, 6).await;
        has_code(&created, response::SYSTEM_ERROR);
        let sent = wire.send(&Send::new(bad, 0, b"m")).await;
        has_code(&sent, response::SYSTEM_ERROR);
        assert!(!sent.remark().is_empty());
    }
}

/// Sends that come in one piece are each checked against their own topic.
#[tokio::test(flavor = "multi_thread")]
async fn sends_to_several_topics_in_one_write_do_not_share_checks() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    ok(&wire.create_topic("wide", 4, 4, 6).await);
    ok(&wire.create_topic("narrow", 1, 1, 6).await);
    let (refused, forbidden) = (response::SYSTEM_ERROR, response::NO_PERMISSION);
    let sends = [
        ("wide", 3, response::SUCCESS),
        ("wide", 2, response::SUCCESS),
        ("narrow", 2, refused),
        ("wide", 4, refused),
        ("narrow", 0, response::SUCCESS),
        ("SCHEDULE_TOPIC_XXXX", 0, forbidden),
        ("SCHEDULE_TOPIC_XXXX", 0, forbidden),
        ("wide", 3, response::SUCCESS),
    ];
    let mut frames = Vec::new();
    for (opaque, (topic, queue, _)) in sends.iter().enumerate() {
        let mut command = Send::new(topic, *queue, b"m").command();
        command.opaque = opaque as i32;
        frames.extend_from_slice(&command.to_frame());
    }
    wire.stream.write_all(&frames).await.unwrap();
    for _ in &sends {
        let answer = wire.next().await.unwrap();
        has_code(&answer, sends[answer.opaque as usize].2);
    }
    broker.until_readable("wide", 3, 2).await;
    broker.until_readable("wide", 2, 1).await;
    broker.until_readable("narrow", 0, 1).await;
}

/// ha-01: a synchronous master without a slave stores and says so at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_master_alone_says_that_no_slave_has_it() {
    let broker = TestBroker::start_with(&["brokerRole=SYNC_MASTER"]).await;
    let mut wire = broker.connect().await;
    ok(&wire
        .send(&Send::new("T", 0, b"warm").with("WAIT\u{1}false"))
        .await);
    let begin = Instant::now();
    let answer = wire.send(&Send::new("T", 0, b"m")).await;
    has_code(&answer, response::SLAVE_NOT_AVAILABLE);
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(number(&answer, "queueOffset"), 1);
    assert!(!answer.ext.get("msgId").unwrap().is_empty());
    broker.until_readable("T", 0, 2).await;
    assert_eq!(wire.pull(&Pull::new("T", 0, 0)).await.messages.len(), 2);
}

/// One-way sends are stored and nothing comes back.
#[tokio::test(flavor = "multi_thread")]
async fn one_way_sends_are_stored_without_an_answer() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    for _ in 0..10 {
        let mut send = Send::new("T", 0, b"m").command();
        send.mark_oneway();
        wire.write(&send).await;
    }
    broker.until_readable("T", 0, 10).await;
    let answer = wire.send(&Send::new("T", 0, b"m")).await;
    ok(&answer);
    assert_eq!(number(&answer, "queueOffset"), 10);
}

/// Messages are dispatched after their answers were written, and also when there is nobody left to answer.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_dispatched_though_its_sender_has_gone() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    ok(&wire.create_topic("T", 1, 1, 6).await);
    for _ in 0..100 {
        let mut gone = broker.connect().await;
        // Closing with answers unread resets the connection.
        gone.write(&Send::new("T", 0, b"m").command()).await;
        gone.write(&Send::new("T", 0, b"m").command()).await;
        drop(gone);
    }
    let state = broker.state();
    until("all connections are gone", || {
        broker.connections() == 1 && state.store.dispatch_behind_bytes() == 0
    })
    .await;
    let stored = state.store.log_store().next_queue_offset("T", 0).get();
    assert!(stored > 0);
    let readable = state.store.reader().max_offset("T", 0).get();
    assert_eq!(readable, stored);
}

/// A message given back comes again in the retry topic, and at last among the dead letters.
#[tokio::test(flavor = "multi_thread")]
async fn messages_given_back_come_again_and_then_go_to_the_dead_letters() {
    let broker = TestBroker::start_with(&["messageDelayLevel=0s 0s 0s 0s 0s"]).await;
    let mut wire = broker.connect().await;
    ok(&wire
        .send(&Send::new("T", 0, b"hard").with("TAGS\u{1}t"))
        .await);
    broker.until_readable("T", 0, 1).await;
    let mut message = wire
        .pull(&Pull::new("T", 0, 0))
        .await
        .messages
        .pop()
        .unwrap();
    let origin = message.message_id().to_string();
    for time in 0..3_i64 {
        let back = Command::request(request::CONSUMER_SEND_MSG_BACK)
            .with_ext("offset", &message.physical_offset().to_string())
            .with_ext("group", "G")
            .with_ext("delayLevel", "0")
            .with_ext("originTopic", "T")
            .with_ext("originMsgId", &origin)
            .with_ext("maxReconsumeTimes", "2");
        ok(&wire.call(&back).await);
        let (topic, offset) = if time < 2 {
            ("%RETRY%G", time)
        } else {
            ("%DLQ%G", 0)
        };
        broker.until_readable(topic, 0, offset + 1).await;
        let pulled = wire.pull(&Pull::new(topic, 0, offset)).await;
        message = pulled.messages.into_iter().next().unwrap();
        assert_eq!(message.body(), b"hard");
        assert_eq!(i64::from(message.reconsume_times()), time + 1);
        let properties = message.properties();
        assert_eq!(properties.get(property::RETRY_TOPIC), Some("T"));
        assert_eq!(
            properties.get(property::ORIGIN_MESSAGE_ID),
            Some(origin.as_str())
        );
        assert_eq!(properties.get("TAGS"), Some("t"));
    }
}
