//! What each setting of a producer does, seen from the server that gets its requests.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use minimq_client::{Batching, Client, Error, Message, ProducerBuilder, SendStatus};
use minimq_protocol::Command;
use minimq_protocol::code::{request, response};
use minimq_protocol::properties::Properties;
use support::eventually;
use support::fake::{Fake, Reply};

/// Far longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(60);

async fn start() -> (Fake, Client) {
    let fake = Fake::start("broker-a").await;
    let client = fake.client_of(fake.client_builder()).await;
    (fake, client)
}

fn message(body: &str) -> Message {
    Message::new("topic", body.to_owned())
}

/// A field of a send, by the letter it has on the wire.
fn field<'a>(send: &'a Command, letter: &str) -> &'a str {
    send.ext.get(letter).unwrap()
}

fn property(send: &Command, name: &str) -> Option<String> {
    let properties = Properties::new(field(send, "i"));
    properties.get(name).map(str::to_owned)
}

fn sends(fake: &Fake) -> Vec<Command> {
    fake.requests(request::SEND_MESSAGE_V2)
}

/// Sends one message and gives what came of it and how many attempts the server saw.
async fn attempts(
    fake: &Fake,
    builder: ProducerBuilder,
) -> (minimq_client::Result<SendStatus>, usize) {
    let before = sends(fake).len();
    let producer = builder.build().await.unwrap();
    let sent = producer.send(message("x")).await;
    producer.shutdown().await;
    (
        sent.map(|receipt| receipt.status),
        sends(fake).len() - before,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_takes_too_long_is_followed_by_another() {
    let (fake, client) = start().await;
    let mut first = true;
    fake.script(request::SEND_MESSAGE_V2, move |_| {
        match std::mem::take(&mut first) {
            true => Reply::Wait,
            false => Reply::Usual,
        }
    });
    let producer = client
        .producer("patient")
        .timeout(LONG)
        .attempt_timeout(Duration::from_secs(1));
    let (sent, count) = attempts(&fake, producer).await;
    assert_eq!((sent.unwrap(), count), (SendStatus::Stored, 2));
    let keys: BTreeSet<_> = sends(&fake)
        .iter()
        .map(|send| property(send, "UNIQ_KEY"))
        .collect();
    assert_eq!(keys.len(), 1, "the same message: {keys:?}");
    // Without it one attempt may take all the time there is.
    fake.script(request::SEND_MESSAGE_V2, |_| Reply::Wait);
    let short = client.producer("short").timeout(Duration::from_millis(100));
    let (sent, count) = attempts(&fake, short).await;
    let error = sent.unwrap_err();
    assert!(
        matches!(&error, Error::SendFailed { attempts: 1, brokers, .. } if brokers == "broker-a"),
        "{error:?}"
    );
    assert_eq!(count, 1);
    assert!(error.is_retryable() && !error.never_sent());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unconfirmed_message_is_sent_again_only_if_that_is_wanted() {
    let (fake, client) = start().await;
    let unconfirmed = [
        (response::FLUSH_DISK_TIMEOUT, SendStatus::FlushTimeout),
        (response::FLUSH_SLAVE_TIMEOUT, SendStatus::SlaveTimeout),
        (response::SLAVE_NOT_AVAILABLE, SendStatus::NoSlave),
    ];
    let producer = || client.producer("unconfirmed").timeout(LONG);
    for (code, status) in unconfirmed {
        fake.script(request::SEND_MESSAGE_V2, move |_| Reply::Code(code));
        let (sent, count) = attempts(&fake, producer()).await;
        assert_eq!((sent.unwrap(), count), (status, 1));
        let (sent, count) = attempts(&fake, producer().retry_if_unconfirmed(true)).await;
        assert_eq!((sent.unwrap(), count), (status, 3), "it is stored at least");
        let mut first = true;
        fake.script(request::SEND_MESSAGE_V2, move |_| {
            match std::mem::take(&mut first) {
                true => Reply::Code(code),
                false => Reply::Usual,
            }
        });
        let (sent, count) = attempts(&fake, producer().retry_if_unconfirmed(true)).await;
        assert_eq!((sent.unwrap(), count), (SendStatus::Stored, 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_message_is_tried_again_so_often_and_after_the_codes_that_are_set() {
    let (fake, client) = start().await;
    let producer = || client.producer("again").timeout(LONG);
    for (code, again) in [
        (response::SYSTEM_BUSY, true),
        (response::MESSAGE_ILLEGAL, false),
    ] {
        fake.script(request::SEND_MESSAGE_V2, move |_| {
            Reply::Refusal(code, "no")
        });
        for (builder, expected) in [
            (producer(), if again { 3 } else { 1 }),
            (producer().retries(0), 1),
            (producer().retries(4).retry_codes([code]), 5),
            (producer().retry_codes([]), 1),
        ] {
            let (sent, count) = attempts(&fake, builder).await;
            let error = sent.unwrap_err();
            assert_eq!(count, expected, "{error}");
            assert_eq!((error.code(), error.is_retryable()), (Some(code), again));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_broker_refuses_another_one_stores() {
    let (fake, client) = start().await;
    let other = Fake::start("broker-b").await;
    fake.beside(&other);
    fake.script(request::SEND_MESSAGE_V2, |_| {
        Reply::Refusal(response::SERVICE_NOT_AVAILABLE, "its disk is full")
    });
    let producer = client.producer("either").timeout(LONG);
    let producer = producer.build().await.unwrap();
    let queues = producer.queues("topic").await.unwrap();
    assert_eq!(queues.len(), 8);
    for _ in 0..8 {
        let receipt = producer.send(message("x")).await.unwrap();
        assert_eq!(receipt.queue.broker_name, "broker-b");
    }
    assert!(!sends(&fake).is_empty(), "both were tried");
    // A message that must go to a queue goes nowhere else.
    let error = producer.send_to(&queues[0], message("x")).await;
    let error = error.unwrap_err();
    assert_eq!(error.code(), Some(response::SERVICE_NOT_AVAILABLE));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_sends_are_under_way_than_allowed() {
    let (fake, client) = start().await;
    fake.script(request::SEND_MESSAGE_V2, |_| Reply::Wait);
    let producer = client.producer("bounded").max_in_flight(3).timeout(LONG);
    let producer = producer.build().await.unwrap();
    let tasks: Vec<_> = (0..10)
        .map(|n| {
            let producer = producer.clone();
            tokio::spawn(async move { producer.send(message(&n.to_string())).await })
        })
        .collect();
    for answered in 0..10 {
        eventually("the next ones are sent", async || {
            sends(&fake).len() == (answered + 3).min(10)
        })
        .await;
        fake.answer_one();
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    // Who waits in vain is told what for.
    let full = client.producer("full").max_in_flight(1);
    let full = full.timeout(Duration::from_millis(200)).build().await;
    let full = full.unwrap();
    let (one, two) = tokio::join!(full.send(message("one")), full.send(message("two")));
    assert!(matches!(one, Err(Error::SendFailed { .. })), "{one:?}");
    let error = two.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert!(error.is_retryable());
    assert!(
        client
            .producer("none")
            .max_in_flight(0)
            .build()
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_given_together_go_as_one_at_size_number_or_time() {
    let (fake, client) = start().await;
    let batches = || fake.requests(request::SEND_BATCH_MESSAGE).len();
    let many = |producer: minimq_client::Producer, count: usize| async move {
        let sends = (0..count).map(|n| {
            let producer = producer.clone();
            async move { producer.send_batched(message(&format!("{n:0100}"))).await }
        });
        let sent = futures_util::future::join_all(sends).await;
        sent.into_iter().for_each(|one| drop(one.unwrap()));
    };
    let with = async |group: &str, batching| {
        let builder = client.producer(group).batching(batching);
        builder.build().await.unwrap()
    };
    let never = Batching {
        max_bytes: 1 << 20,
        max_messages: 1000,
        linger: LONG,
    };
    let by_number = Batching {
        max_messages: 5,
        ..never
    };
    many(with("number", by_number).await, 15).await;
    assert_eq!(batches(), 3);
    // 174 bytes each with their properties: five in a batch.
    let by_size = Batching {
        max_bytes: 1000,
        ..never
    };
    let producer = with("size", by_size).await;
    let waiting = tokio::spawn(many(producer.clone(), 20));
    eventually("full ones go", async || batches() >= 3 + 3).await;
    // What is left waits for its time, or for the end: a shutdown sends it.
    producer.shutdown().await;
    waiting.await.unwrap();
    let by_time = Batching {
        linger: Duration::from_millis(20),
        ..never
    };
    let before = batches();
    many(with("time", by_time).await, 3).await;
    assert_eq!(batches(), before + 1);
    // One alone goes as it is.
    assert!(sends(&fake).is_empty());
    many(with("alone", by_time).await, 1).await;
    assert_eq!((batches(), sends(&fake).len()), (before + 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_sends_what_waits_for_its_batch() {
    let (fake, client) = start().await;
    let batching = Batching {
        linger: LONG,
        ..Batching::default()
    };
    for whole_client in [false, true] {
        let producer = client.producer("last").batching(batching);
        let producer = producer.build().await.unwrap();
        let end = async {
            match whole_client {
                true => client.shutdown().await,
                false => producer.shutdown().await,
            }
        };
        let (one, two, ()) = tokio::join!(
            producer.send_batched(message("one")),
            producer.send_batched(message("two")),
            end
        );
        assert_eq!(one.unwrap().queue_offset + 1, two.unwrap().queue_offset);
        let late = producer.send_batched(message("late")).await;
        assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    }
    assert_eq!(fake.requests(request::SEND_BATCH_MESSAGE).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_the_sends_under_way() {
    let (fake, client) = start().await;
    fake.script(request::SEND_MESSAGE_V2, |_| Reply::Wait);
    let producer = client.producer("last").timeout(LONG).build().await.unwrap();
    let sending = {
        let producer = producer.clone();
        tokio::spawn(async move { producer.send(message("x")).await })
    };
    eventually("it is under way", async || fake.waiting() == 1).await;
    let ending = {
        let producer = producer.clone();
        tokio::spawn(async move { producer.shutdown().await })
    };
    for _ in 0..20 {
        client.route("topic").await.unwrap();
    }
    assert!(!ending.is_finished(), "it waits");
    fake.answer_one();
    sending.await.unwrap().unwrap();
    ending.await.unwrap();
    let left = fake.requests(request::UNREGISTER_CLIENT);
    assert_eq!(left[0].ext.get("producerGroup"), Some("last"));
    assert!(matches!(
        producer.send(message("x")).await,
        Err(Error::Closed)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_exist_gets_the_queues_that_are_set() {
    let (fake, client) = start().await;
    fake.script(request::GET_ROUTEINFO_BY_TOPIC, |command| {
        match command.ext.get("topic") {
            Some("TBW102") => Reply::Usual,
            _ => Reply::Refusal(response::TOPIC_NOT_EXIST, "no such topic"),
        }
    });
    let producer = client.producer("creator").new_topic_queues(2);
    let producer = producer.build().await.unwrap();
    producer.send(message("x")).await.unwrap();
    assert_eq!(producer.queues("topic").await.unwrap().len(), 2);
    assert_eq!(field(&sends(&fake)[0], "d"), "2");
    // Where no broker makes topics, it is an error that says so.
    fake.script(request::GET_ROUTEINFO_BY_TOPIC, |_| {
        Reply::Refusal(response::TOPIC_NOT_EXIST, "no such topic")
    });
    let error = producer.send(Message::new("other", "x")).await.unwrap_err();
    assert!(
        matches!(&error, Error::TopicNotFound { topic, .. } if topic == "other"),
        "{error:?}"
    );
    assert!(error.never_sent());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_carries_what_it_was_given() {
    let (fake, client) = start().await;
    let producer = client.producer("carrier").build().await.unwrap();
    let full = message("x").tag("t").key("k1").key("k2").flag(7);
    producer
        .send(full.property("p", "v").delay_level(3).no_wait())
        .await
        .unwrap();
    producer.send(message("x")).await.unwrap();
    let sent = sends(&fake);
    let of = |name| property(&sent[0], name);
    assert_eq!(field(&sent[0], "h"), "7");
    for (name, value) in [
        ("TAGS", "t"),
        ("KEYS", "k1 k2"),
        ("p", "v"),
        ("DELAY", "3"),
        ("WAIT", "false"),
    ] {
        assert_eq!(of(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(property(&sent[1], "WAIT").as_deref(), Some("true"));
    assert_eq!(property(&sent[1], "DELAY"), None);
    assert_eq!(field(&sent[1], "h"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_compressed_from_the_size_that_is_set_and_where_it_helps() {
    let (fake, client) = start().await;
    let zeros = |length: usize| Message::new("topic", vec![0; length]);
    // Numbers that no compression makes shorter.
    let mut state = 1u64;
    let noise: Vec<u8> = (0..500)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let producer = client.producer("small").compress_from(100);
    let producer = producer.build().await.unwrap();
    for plain in [zeros(99), Message::new("topic", noise)] {
        let body = plain.body().clone();
        producer.send(plain).await.unwrap();
        let sent = sends(&fake).pop().unwrap();
        assert_eq!((field(&sent, "f"), &sent.body), ("0", &body));
    }
    producer.send(zeros(100)).await.unwrap();
    let sent = sends(&fake).pop().unwrap();
    assert_ne!(field(&sent, "f"), "0");
    assert!(sent.body.len() < 100);
    let never = client.producer("never").compress_from(usize::MAX);
    let never = never.build().await.unwrap();
    never.send(zeros(100_000)).await.unwrap();
    assert_eq!(sends(&fake).pop().unwrap().body.len(), 100_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_warm_up_a_send_asks_nobody_else() {
    let (fake, client) = start().await;
    let producer = client.producer("warm").build().await.unwrap();
    producer.warm_up(&["topic"]).await.unwrap();
    let beat = &fake.requests(request::HEART_BEAT)[0];
    assert!(String::from_utf8_lossy(&beat.body).contains(r#""groupName":"warm""#));
    let routes = || fake.requests(request::GET_ROUTEINFO_BY_TOPIC).len();
    let before = routes();
    producer.send(message("x")).await.unwrap();
    assert_eq!(routes(), before);
}
