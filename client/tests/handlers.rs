//! How handlers end, and what follows: hooks, deliveries again, dead letters.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use minimq_client::hooks::{ConsumeHook, Consuming, HandlerEnd, SendHook, TransactionEnd};
use minimq_client::{Client, Delivery, Message, OrderedOutcome, Outcome, TransactionState};
use minimq_protocol::code::request;
use parking_lot::Mutex;
use support::applications::{producer, reading, writing};
use support::fake::Fake;
use support::{Cluster, Seen, eventually};

fn text(message: &Delivery) -> String {
    String::from_utf8(message.body().to_vec()).unwrap()
}

/// How many dead letters a group has.
async fn dead_letters(client: &Client, group: &str) -> i64 {
    let stats = client.admin().topic_stats(&format!("%DLQ%{group}")).await;
    stats.map_or(0, |stats| {
        let queues = stats.offset_table.values();
        queues
            .map(|queue| queue.max_offset - queue.min_offset)
            .sum()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_message_that_failed_often_enough_becomes_a_dead_letter() {
    let cluster = Cluster::start().await;
    cluster.topic("stuck", 1).await;
    let client = cluster.client().await;
    let producer = producer(&client, "stuck-producer").await;
    for body in ["before", "bad", "after"] {
        producer.send(Message::new("stuck", body)).await.unwrap();
    }
    let attempts: Arc<Mutex<Vec<(String, i32)>>> = Arc::default();
    let log = attempts.clone();
    let consumer = reading(&client, "stuck-consumer", "stuck")
        .max_retries(3)
        .suspend_for(Duration::from_millis(10))
        .run_ordered(move |message: Delivery| {
            let body = text(&message);
            log.lock().push((body.clone(), message.attempts()));
            async move {
                match body.as_str() {
                    "bad" => Err("it never works"),
                    _ => Ok(()),
                }
            }
        });
    let consumer = consumer.await.unwrap();
    eventually("the next one is consumed", async || {
        attempts.lock().contains(&("after".to_owned(), 0))
    })
    .await;
    let expected = [
        ("before", 0),
        ("bad", 0),
        ("bad", 1),
        ("bad", 2),
        ("bad", 3),
        ("after", 0),
    ];
    let expected = expected.map(|(body, attempt)| (body.to_owned(), attempt));
    assert_eq!(*attempts.lock(), expected);
    eventually("it is a dead letter", async || {
        dead_letters(&client, "stuck-consumer").await == 1
    })
    .await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_failed_often_enough_becomes_a_dead_letter() {
    let settings = [(
        "messageDelayLevel",
        "1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s",
    )];
    let cluster = Cluster::start_with(&settings).await;
    cluster.topic("fails", 1).await;
    let client = cluster.client().await;
    let producer = producer(&client, "fails-producer").await;
    producer.send(Message::new("fails", "bad")).await.unwrap();
    let attempts: Arc<Mutex<Vec<i32>>> = Arc::default();
    let log = attempts.clone();
    let consumer = reading(&client, "fails-consumer", "fails").max_retries(2);
    let consumer = consumer
        .run(move |message: Delivery| {
            assert_eq!(message.topic(), "fails");
            log.lock().push(message.attempts());
            async { Outcome::Retry }
        })
        .await
        .unwrap();
    eventually("it is a dead letter", async || {
        dead_letters(&client, "fails-consumer").await == 1
    })
    .await;
    assert_eq!(*attempts.lock(), [0, 1, 2]);
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_queue_rests_as_long_as_its_handler_says() {
    let cluster = Cluster::start().await;
    cluster.topic("rests", 1).await;
    let client = cluster.client().await;
    let producer = producer(&client, "rests-producer").await;
    producer.send(Message::new("rests", "x")).await.unwrap();
    let times: Arc<Mutex<Vec<std::time::Instant>>> = Arc::default();
    let log = times.clone();
    // Its own rest would be an hour.
    let consumer =
        reading(&client, "rests-consumer", "rests").suspend_for(Duration::from_secs(3600));
    let consumer = consumer
        .run_ordered(move |message: Delivery| {
            log.lock().push(std::time::Instant::now());
            async move {
                match message.attempts() {
                    0 => OrderedOutcome::SuspendFor(Duration::from_millis(300)),
                    _ => OrderedOutcome::Done,
                }
            }
        })
        .await
        .unwrap();
    eventually("it comes again", async || times.lock().len() == 2).await;
    let times = times.lock().clone();
    assert!(times[1] - times[0] >= Duration::from_millis(300));
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_are_told_how_handlers_ended_in_the_order_they_were_added() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);
    struct Named(&'static str, Log);
    impl ConsumeHook for Named {
        fn before(&self, consuming: &Consuming<'_>) {
            let body = text(&consuming.deliveries[0]);
            self.1.0.lock().push(format!("{} before {body}", self.0));
        }
        fn after(&self, consuming: &Consuming<'_>, end: HandlerEnd, _: Duration) {
            assert_eq!(consuming.group, "ends-consumer");
            assert!(!consuming.id.is_empty());
            let body = text(&consuming.deliveries[0]);
            self.1.0.lock().push(format!("{} {body} {end:?}", self.0));
        }
    }
    let fake = Fake::start("broker-a").await;
    let client = fake.client().await;
    let log = Log::default();
    let consumer = reading(&client, "ends-consumer", "ends")
        .hook(Named("first", log.clone()))
        .hook(Named("second", log.clone()))
        .concurrency(1)
        .handler_timeout(Duration::from_millis(100))
        .run(|message: Delivery| async move {
            match text(&message).as_str() {
                "panics" => panic!("a handler that panics"),
                "hangs" => std::future::pending().await,
                "fails" => Err("no"),
                _ => Ok(()),
            }
        });
    let consumer = consumer.await.unwrap();
    let bodies = ["works", "fails", "panics", "hangs"];
    fake.deliver("ends", &bodies).await;
    eventually("all ended", async || log.0.lock().len() == 16).await;
    let ends = ["Done", "Failed", "Panicked", "TimedOut"];
    let expected: Vec<String> = bodies
        .iter()
        .zip(ends)
        .flat_map(|(body, end)| {
            [
                format!("first before {body}"),
                format!("second before {body}"),
                format!("first {body} {end}"),
                format!("second {body} {end}"),
            ]
        })
        .collect();
    assert_eq!(*log.0.lock(), expected);
    // Those that did not work went back to the broker.
    eventually("three came back", async || {
        fake.requests(request::CONSUMER_SEND_MSG_BACK).len() == 3
    })
    .await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_are_told_how_transactions_ended() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<(String, TransactionState, bool)>>>);
    impl SendHook for Log {
        fn transaction_ended(&self, end: &TransactionEnd<'_>) {
            assert_eq!((end.group, end.topic), ("deals", "deals-topic"));
            let key = end.properties.get("KEYS").unwrap().to_owned();
            self.0.lock().push((key, end.state, end.checked));
        }
    }
    let fake = Fake::start("broker-a").await;
    let client = fake.client().await;
    let log = Log::default();
    let plain = client.producer("plain").build().await.unwrap();
    let message = |key: &str| Message::new("deals-topic", "x").key(key);
    assert!(plain.begin(message("none")).await.is_err(), "no checker");
    let producer = client
        .producer("deals")
        .hook(log.clone())
        .transaction_checker(|_| async { TransactionState::Unknown })
        .build()
        .await
        .unwrap();
    let begin = async |key: &str| producer.begin(message(key)).await.unwrap();
    begin("commit").await.commit().await.unwrap();
    begin("rollback").await.rollback().await.unwrap();
    drop(begin("dropped").await);
    let sent = producer.send_in_transaction(message("unknown"), async |receipt| {
        assert_eq!(receipt.id.len(), 32);
        TransactionState::Unknown
    });
    assert_eq!(sent.await.unwrap().1, TransactionState::Unknown);
    let ends = || fake.requests(request::END_TRANSACTION);
    eventually("the broker is told of three", async || ends().len() == 3).await;
    let told: Vec<String> = ends()
        .iter()
        .map(|end| end.ext.get("commitOrRollback").unwrap().to_owned())
        .collect();
    assert_eq!(told, ["8", "12", "0"]);
    let expected = [
        ("commit", TransactionState::Commit),
        ("rollback", TransactionState::Rollback),
        ("unknown", TransactionState::Unknown),
    ];
    let expected = expected.map(|(key, state)| (key.to_owned(), state, false));
    assert_eq!(*log.0.lock(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_handlers_run_at_a_time_than_allowed() {
    let cluster = Cluster::start().await;
    cluster.topic("crowd", 4).await;
    let client = cluster.client().await;
    let producer = producer(&client, "crowd-producer").await;
    for n in 0..40 {
        let message = Message::new("crowd", n.to_string());
        producer.send(message).await.unwrap();
    }
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Seen::default();
    let (now, top, written) = (running, most.clone(), seen.clone());
    let consumer = reading(&client, "crowd-consumer", "crowd").concurrency(3);
    let consumer = consumer
        .run(move |message: Delivery| {
            let (now, top, written) = (now.clone(), top.clone(), written.clone());
            async move {
                top.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                written.add(&message);
            }
        })
        .await
        .unwrap();
    eventually("all come", async || seen.len() == 40).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_tells_all_there_is_to_know() {
    let cluster = Cluster::start().await;
    cluster.topic("told", 1).await;
    let client = cluster.client().await;
    let producer = producer(&client, "told-producer").await;
    let sent = Message::new("told", "body").tag("tag").key("k1").key("k2");
    let receipt = producer
        .send(sent.flag(9).property("colour", "red"))
        .await
        .unwrap();
    let got: Arc<Mutex<Option<Delivery>>> = Arc::default();
    let slot = got.clone();
    let consumer = reading(&client, "told-consumer", "told");
    let consumer = consumer
        .run(move |message: Delivery| {
            *slot.lock() = Some(message);
            async {}
        })
        .await
        .unwrap();
    eventually("it comes", async || got.lock().is_some()).await;
    let message = got.lock().take().unwrap();
    assert_eq!(
        (message.topic(), &message.body()[..]),
        ("told", &b"body"[..])
    );
    assert_eq!(
        (message.id(), message.offset_id()),
        (receipt.id, receipt.offset_id)
    );
    assert_eq!(message.queue(), &receipt.queue);
    assert_eq!(message.tag(), Some("tag"));
    assert_eq!(message.keys().collect::<Vec<_>>(), ["k1", "k2"]);
    assert_eq!(message.property("colour"), Some("red"));
    let all: BTreeMap<_, _> = message.properties().iter().collect();
    assert_eq!(all["colour"], "red");
    assert_eq!((message.flag(), message.attempts()), (9, 0));
    assert_eq!(message.queue_offset(), receipt.queue_offset);
    assert_eq!(
        (message.queue_min_offset(), message.queue_max_offset()),
        (0, 1)
    );
    assert!(message.stored_ms() >= message.born_ms() && message.born_ms() > 0);
    assert!(message.born_host().ip().is_loopback());
    assert_eq!(message.record().topic(), "told");
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_would_become_too_large_is_left_out() {
    let cluster = Cluster::start().await;
    cluster.topic("bombs", 1).await;
    let client = cluster.client_builder().max_plain_body(50_000);
    let client = client.build().await.unwrap();
    let producer = producer(&client, "bombs-producer").await;
    for body in ["x".repeat(50_001), "y".repeat(50_000)] {
        producer.send(Message::new("bombs", body)).await.unwrap();
    }
    let seen = Seen::default();
    let consumer = reading(&client, "bombs-consumer", "bombs");
    let consumer = consumer.run(writing(&seen)).await.unwrap();
    eventually("the other one comes", async || seen.len() == 1).await;
    assert!(seen.bodies()[0].starts_with('y'));
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_wait_for_nothing_share_a_task() {
    let fake = Fake::start("broker-a").await;
    let client = fake.client().await;
    let tasks: Arc<Mutex<Vec<tokio::task::Id>>> = Arc::default();
    let log = tasks.clone();
    let consumer = reading(&client, "quick", "topic").run(move |_| {
        let log = log.clone();
        async move { log.lock().push(tokio::task::id()) }
    });
    let consumer = consumer.await.unwrap();
    // Not all do: one that was interrupted is taken for slow.
    eventually("some share one", async || {
        tasks.lock().clear();
        fake.deliver("topic", &["x"; 10]).await;
        eventually("all are handled", async || tasks.lock().len() == 10).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        let tasks = tasks.lock();
        tasks.windows(2).any(|two| two[0] == two[1])
    })
    .await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_that_hold_their_thread_up_run_on_several() {
    let fake = Fake::start("broker-a").await;
    let client = fake.client().await;
    let (running, most, ended) = (
        AtomicUsize::new(0),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (seen, done) = (most.clone(), ended.clone());
    let consumer = reading(&client, "slow", "topic").run(move |_| {
        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
        seen.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(50));
        running.fetch_sub(1, Ordering::SeqCst);
        done.fetch_add(1, Ordering::SeqCst);
        async {}
    });
    let consumer = consumer.await.unwrap();
    fake.deliver("topic", &["x"; 12]).await;
    eventually("all are handled", async || {
        ended.load(Ordering::SeqCst) == 12
    })
    .await;
    assert!(most.load(Ordering::SeqCst) > 1);
    consumer.shutdown().await;
}
