//! What applications rely on, one test a feature, against a real broker.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use minimq_client::hooks::{ConsumeHook, Consuming, HandlerEnd, SendHook, Sending, Sent};
use minimq_client::rebalance::Allocation;
use minimq_client::{
    Client, CompressionType, Delivery, Error, Message, StartFrom, TransactionState,
};
use parking_lot::Mutex;
use support::applications::{reading, writing};
use support::{Cluster, Seen, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn the_broker_asks_the_checker_about_transactions_left_open() {
    let settings = [
        ("transactionTimeOut", "100"),
        ("transactionCheckInterval", "100"),
    ];
    let cluster = Cluster::start_with(&settings).await;
    cluster.topic("checked", 1).await;
    let client = cluster.client().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let producer = client
        .producer("checked-producer")
        .transaction_checker(move |message| {
            counter.fetch_add(1, Ordering::Relaxed);
            async move {
                match &message.body()[..] {
                    b"panic" if message.property("TRANSACTION_CHECK_TIMES") == Some("1") => {
                        panic!("a checker that panics is asked again")
                    }
                    b"no" => TransactionState::Rollback,
                    _ => TransactionState::Commit,
                }
            }
        })
        .build()
        .await
        .unwrap();
    let seen = Seen::default();
    let consumer = reading(&client, "checked-consumer", "checked")
        .run(writing(&seen))
        .await
        .unwrap();
    for body in ["yes", "no", "panic"] {
        let open = producer
            .send_in_transaction(Message::new("checked", body), async |_| {
                TransactionState::Unknown
            })
            .await
            .unwrap();
        assert_eq!(open.1, TransactionState::Unknown);
    }
    eventually("both committed ones come", async || {
        seen.bodies() == ["panic", "yes"]
    })
    .await;
    assert!(asked.load(Ordering::Relaxed) >= 3);
    consumer.shutdown().await;
    assert_eq!(seen.bodies(), ["panic", "yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_gets_its_reply_or_ends_in_time() {
    let cluster = Cluster::start().await;
    cluster.topic("questions", 1).await;
    let client = cluster.client().await;
    let answering = client.producer("answers").build().await.unwrap();
    let consumer = reading(&client, "questions-consumer", "questions");
    let consumer = consumer
        .run(move |question: Delivery| {
            let answering = answering.clone();
            async move {
                if &question.body()[..] != b"silence" {
                    let text = format!("to {}", String::from_utf8_lossy(question.body()));
                    answering.reply(&question, text).await.unwrap();
                }
            }
        })
        .await
        .unwrap();
    let other = cluster.client().await;
    let asking = other.producer("questions").build().await.unwrap();
    let ask = async |body: &'static str, timeout| {
        let question = Message::new("questions", body);
        asking.request(question, timeout).await
    };
    let (one, two) = tokio::join!(
        ask("one", Duration::from_secs(30)),
        ask("two", Duration::from_secs(30))
    );
    assert_eq!(&one.unwrap().body()[..], b"to one");
    assert_eq!(&two.unwrap().body()[..], b"to two");
    let late = ask("silence", Duration::from_millis(300)).await;
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_see_and_forbid_and_traces_tell_of_everything() {
    #[derive(Default, Clone)]
    struct Log(Arc<Mutex<Vec<String>>>);
    impl SendHook for Log {
        fn before(&self, sending: &Sending<'_>) -> Result<(), String> {
            match sending.properties.get("secret") {
                Some(_) => Err("it has a secret".into()),
                None => Ok(()),
            }
        }
        fn after(&self, sending: &Sending<'_>, sent: &Sent<'_>) {
            let topic = &sending.queue.topic;
            self.0
                .lock()
                .push(format!("sent {topic} {}", sent.result.is_ok()));
        }
    }
    impl ConsumeHook for Log {
        fn after(&self, consuming: &Consuming<'_>, end: HandlerEnd, _: Duration) {
            self.0
                .lock()
                .push(format!("consumed {} {end:?}", consuming.deliveries.len()));
        }
    }
    let cluster = Cluster::start().await;
    cluster.topic("hooked", 1).await;
    cluster.topic("traces", 1).await;
    let client = cluster.client().await;
    let log = Log::default();
    let producer = client
        .producer("hooked-producer")
        .hook(log.clone())
        .trace_to("traces")
        .build()
        .await
        .unwrap();
    let consumer = reading(&client, "hooked-consumer", "hooked")
        .hook(log.clone())
        .trace_to("traces")
        .run(|_| async {})
        .await
        .unwrap();
    let message = Message::new("hooked", "body").tag("tag").key("key");
    let receipt = producer.send(message.clone()).await.unwrap();
    let refused = producer.send(message.property("secret", "x")).await;
    assert!(
        matches!(&refused, Err(Error::Forbidden { reason, .. }) if reason == "it has a secret"),
        "{refused:?}"
    );
    eventually("it is consumed", async || log.0.lock().len() == 2).await;
    assert_eq!(*log.0.lock(), ["sent hooked true", "consumed 1 Done"]);
    // The end of the client sends what was written down.
    client.shutdown().await;
    let reader = cluster.client().await;
    let found: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let records = found.clone();
    let reading = reading(&reader, "traces-consumer", "traces")
        .run(move |message: Delivery| {
            let text = String::from_utf8(message.body().to_vec()).unwrap();
            assert!(message.keys().any(|key| key == "key"));
            records.lock().extend(
                text.split_terminator('\u{2}')
                    .map(|record| record.split('\u{1}').map(str::to_owned).collect()),
            );
            async {}
        })
        .await
        .unwrap();
    eventually("three records", async || found.lock().len() == 3).await;
    let find = |kind: &str| {
        let all = found.lock();
        all.iter().find(|record| record[0] == kind).unwrap().clone()
    };
    let sent = find("Pub");
    assert_eq!(sent.len(), 14);
    assert_eq!(sent[3..9].join(" "), {
        let id = &receipt.id;
        format!(
            "hooked-producer hooked {id} tag key {}",
            cluster.broker_addr()
        )
    });
    assert_eq!((&*sent[9], &*sent[11], &*sent[13]), ("4", "0", "true"));
    assert_eq!(sent[12], receipt.offset_id);
    let (before, after) = (find("SubBefore"), find("SubAfter"));
    assert_eq!((before.len(), after.len()), (8, 9));
    assert_eq!((&*before[3], &before[5]), ("hooked-consumer", &receipt.id));
    assert_eq!((&before[4], &before[5]), (&after[1], &after[2]));
    assert_eq!((&*after[4], &*after[6]), ("true", "0"));
    reading.shutdown().await;
    drop((producer, consumer));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_compression_is_read_by_every_consumer() {
    let cluster = Cluster::start().await;
    cluster.topic("small", 1).await;
    let client = cluster.client().await;
    let seen = Seen::default();
    let consumer = reading(&client, "small-consumer", "small")
        .run(writing(&seen))
        .await
        .unwrap();
    let kinds = [
        (CompressionType::Zlib, "z"),
        (CompressionType::Lz4, "l"),
        (CompressionType::Zstd, "s"),
    ];
    for (kind, letter) in kinds {
        let producer = client
            .producer(format!("small-{letter}"))
            .compress_from(100)
            .compression(kind, 5);
        let producer = producer.build().await.unwrap();
        let body = letter.repeat(10_000);
        producer.send(Message::new("small", body)).await.unwrap();
    }
    eventually("all come whole", async || {
        kinds
            .iter()
            .all(|(_, letter)| seen.count(&letter.repeat(10_000)) == 1)
    })
    .await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_takes_too_long_is_stopped_and_its_message_comes_again() {
    let cluster = Cluster::start().await;
    cluster.topic("slow", 1).await;
    let client = cluster.client().await;
    let attempts: Arc<Mutex<Vec<i32>>> = Arc::default();
    let log = attempts.clone();
    let consumer = reading(&client, "slow-consumer", "slow")
        .handler_timeout(Duration::from_millis(200))
        .run(move |message: Delivery| {
            log.lock().push(message.attempts());
            async move {
                if message.attempts() == 0 {
                    std::future::pending::<()>().await;
                }
            }
        })
        .await
        .unwrap();
    let producer = client.producer("slow-producer").build().await.unwrap();
    producer.send(Message::new("slow", "x")).await.unwrap();
    eventually("it comes again", async || *attempts.lock() == [0, 1]).await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_a_handler_end_one_by_one() {
    use minimq_client::Outcome;
    let cluster = Cluster::start().await;
    cluster.topic("many", 1).await;
    let client = cluster.client().await;
    let producer = client.producer("many-producer").build().await.unwrap();
    let messages = (0..6).map(|n| Message::new("many", format!("{n}")));
    producer.send_batch(messages.collect()).await.unwrap();
    let seen = Seen::default();
    let (written, sizes) = (seen.clone(), Arc::new(Mutex::new(Vec::new())));
    let log = sizes.clone();
    let consumer = reading(&client, "many-consumer", "many")
        .run_batched(4, move |batch: Vec<Delivery>| {
            let first = batch.iter().all(|message| message.attempts() == 0);
            if first {
                log.lock().push(batch.len());
            }
            batch.iter().for_each(|message| written.add(message));
            let outcomes: Vec<Outcome> = batch
                .iter()
                .map(|message| match message.attempts() {
                    0 if &message.body()[..] == b"3" => Outcome::RetryAtLevel(1),
                    _ => Outcome::Done,
                })
                .collect();
            async move { outcomes }
        })
        .await
        .unwrap();
    eventually("one comes twice", async || {
        seen.len() == 6 && seen.count("3") == 2
    })
    .await;
    assert!((0..6).all(|n| n == 3 || seen.count(&n.to_string()) == 1));
    assert!(sizes.lock().iter().all(|size| *size <= 4));
    assert_eq!(sizes.lock().iter().sum::<usize>(), 6);
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_begins_where_it_is_told() {
    let cluster = Cluster::start().await;
    cluster.topic("begin", 1).await;
    let client = cluster.client().await;
    let queue = client.route("begin").await.unwrap().readable[0].clone();
    let producer = client.producer("begin-producer").build().await.unwrap();
    producer.send(Message::new("begin", "old")).await.unwrap();
    let between = loop {
        let receipt = producer.send(Message::new("begin", "gap")).await.unwrap();
        let admin = client.admin();
        let message = admin.message("begin", &receipt.offset_id).await.unwrap();
        let first = admin.search_offset(&queue, message.stored_ms()).await;
        if first.unwrap() > 0 {
            break message.stored_ms();
        }
    };
    producer.send(Message::new("begin", "new")).await.unwrap();
    let seen = Seen::default();
    let consumer = reading(&client, "begin-consumer", "begin")
        .start_from(StartFrom::Time(between))
        .run(writing(&seen))
        .await
        .unwrap();
    eventually("the new one comes", async || seen.count("new") == 1).await;
    consumer.shutdown().await;
    // A young queue is read from its first message on by every group (the broker says so); that group goes on where it was.
    let again = Seen::default();
    let consumer = reading(&client, "begin-consumer", "begin")
        .run(writing(&again))
        .await
        .unwrap();
    producer.send(Message::new("begin", "newer")).await.unwrap();
    eventually("the newer one comes", async || again.count("newer") == 1).await;
    assert_eq!(again.len(), 1, "nothing else");
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_consumer_rests_and_goes_on() {
    let cluster = Cluster::start().await;
    cluster.topic("rest", 1).await;
    let client = cluster.client().await;
    let seen = Seen::default();
    let consumer = reading(&client, "rest-consumer", "rest")
        .pull_hold(Duration::from_millis(200))
        .run(writing(&seen))
        .await
        .unwrap();
    let producer = client.producer("rest-producer").build().await.unwrap();
    producer.send(Message::new("rest", "first")).await.unwrap();
    eventually("it consumes", async || seen.count("first") == 1).await;
    eventually("it has all queues", async || {
        consumer.assignment().len() == 2
    })
    .await;
    consumer.suspend();
    let id = client.client_id();
    let pulled = async || {
        let info = client
            .admin()
            .running_info("rest-consumer", id, false)
            .await;
        let queues = info.unwrap().mq_table;
        queues
            .iter()
            .filter(|(queue, _)| queue.topic == "rest")
            .map(|(_, state)| state.last_pull_timestamp)
            .next()
    };
    // The pull under way ends within 200 ms; then the time of the last one stays.
    let last = Mutex::new((None, 0));
    eventually("no more pulls", async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = pulled().await;
        let mut last = last.lock();
        *last = if now == last.0 {
            (now, last.1 + 1)
        } else {
            (now, 0)
        };
        last.1 >= 6
    })
    .await;
    producer.send(Message::new("rest", "second")).await.unwrap();
    assert_eq!(seen.count("second"), 0);
    consumer.resume();
    eventually("it goes on", async || seen.count("second") == 1).await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_see_the_state_and_run_the_handler() {
    let cluster = Cluster::start().await;
    cluster.topic("seen", 2).await;
    let client = cluster.client().await;
    let seen = Seen::default();
    let consumer = reading(&client, "seen-consumer", "seen")
        .allocation(Allocation::AverageByCircle)
        .run(writing(&seen))
        .await
        .unwrap();
    let producer = client.producer("seen-producer").build().await.unwrap();
    let receipt = producer.send(Message::new("seen", "x")).await.unwrap();
    eventually("it is consumed", async || seen.count("x") == 1).await;
    eventually("it has all queues", async || {
        consumer.assignment().len() == 3
    })
    .await;
    let admin = client.admin();
    let info = admin
        .running_info("seen-consumer", client.client_id(), true)
        .await
        .unwrap();
    let property = |key: &str| info.properties.get(key).map(String::as_str);
    assert_eq!(property("PROP_CONSUME_TYPE"), Some("CONSUME_PASSIVELY"));
    assert_eq!(property("PROP_CONSUMEORDERLY"), Some("false"));
    assert_eq!(info.mq_table.len(), 3, "two queues and that of retries");
    assert!(info.jstack.is_some());
    let run = admin
        .consume_directly(
            "seen-consumer",
            client.client_id(),
            "seen",
            &receipt.offset_id,
        )
        .await
        .unwrap();
    assert_eq!(
        run.consume_result,
        Some(minimq_protocol::body::ConsumeMessageResult::Success)
    );
    assert_eq!(seen.count("x"), 2);
    let status = admin.consumer_status("seen", "seen-consumer", None).await;
    let status: BTreeMap<_, _> = status.unwrap();
    assert_eq!(status[client.client_id()].len(), 2);
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_wait_for_their_turn_instead_of_piling_up() {
    let cluster = Cluster::start().await;
    cluster.topic("turns", 1).await;
    let client = cluster.client().await;
    let producer = client.producer("turns-producer").max_in_flight(2);
    let producer = producer
        .timeout(Duration::from_secs(30))
        .build()
        .await
        .unwrap();
    producer.send(Message::new("turns", "x")).await.unwrap();
    let sends = (0..100).map(|n| {
        let (producer, client) = (producer.clone(), client.clone());
        tokio::spawn(async move {
            let sent = producer.send(Message::new("turns", format!("{n}"))).await;
            drop(client);
            sent
        })
    });
    let sends: Vec<_> = sends.collect();
    for send in sends {
        send.await.unwrap().unwrap();
    }
    // Shut down with sends under way: each ends, stored or refused.
    let last = (0..20).map(|n| {
        let producer = producer.clone();
        tokio::spawn(async move { producer.send(Message::new("turns", format!("{n}"))).await })
    });
    let last: Vec<_> = last.collect();
    producer.shutdown().await;
    for send in last {
        let ended = send.await.unwrap();
        assert!(matches!(ended, Ok(_) | Err(Error::Closed)), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queues_hold_pulls_back_and_nothing_sticks() {
    let cluster = Cluster::start().await;
    cluster.topic("full", 2).await;
    let client = cluster.client().await;
    let producer = client.producer("full-producer").build().await.unwrap();
    for n in 0..60 {
        let message = Message::new("full", format!("{n}"));
        producer.send(message).await.unwrap();
    }
    let (gate, seen) = (Arc::new(tokio::sync::Semaphore::new(0)), Seen::default());
    let (waiting, written) = (gate.clone(), seen.clone());
    let consumer = reading(&client, "full-consumer", "full")
        .max_held_messages(5)
        .max_held_bytes(1000)
        .max_span(8)
        .pull_batch(4)
        .concurrency(3)
        .run(move |message: Delivery| {
            let (waiting, written) = (waiting.clone(), written.clone());
            async move {
                waiting.acquire().await.unwrap().forget();
                written.add(&message);
            }
        })
        .await
        .unwrap();
    // A pull of four may come while four are held, so eight a queue at most.
    eventually("queues are full", async || consumer.unfinished() >= 10).await;
    assert!(consumer.unfinished() <= 16, "{}", consumer.unfinished());
    gate.add_permits(60);
    eventually("all come", async || seen.len() == 60).await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_fails_is_passed_over() {
    let mut cluster = Cluster::start().await;
    cluster.start_second_broker().await;
    let client = cluster.client().await;
    for (by_latency, topic) in [(false, "either-1"), (true, "either-2")] {
        cluster.topic(topic, 2).await;
        let producer = client
            .producer(format!("{topic}-producer"))
            .avoid_slow_brokers(by_latency);
        let producer = producer.build().await.unwrap();
        let used = Mutex::new(std::collections::BTreeSet::new());
        eventually("both brokers are used", async || {
            let receipt = producer.send(Message::new(topic, "x")).await.unwrap();
            let mut used = used.lock();
            used.insert(receipt.queue.broker_name);
            used.len() == 2
        })
        .await;
        cluster.stop_second_broker().await;
        for _ in 0..20 {
            let receipt = producer.send(Message::new(topic, "x")).await.unwrap();
            assert_eq!(receipt.queue.broker_name, "broker-a");
        }
        cluster.start_second_broker().await;
    }
}

/// Everything can be held across an await on any thread.
#[test]
fn handles_and_futures_are_send() {
    fn send_sync<T: Send + Sync>() {}
    fn send<T: Send>(_: T) {}
    send_sync::<Client>();
    send_sync::<minimq_client::Producer>();
    send_sync::<minimq_client::PushConsumer>();
    send_sync::<minimq_client::PullConsumer>();
    send_sync::<minimq_client::Admin>();
    send_sync::<Delivery>();
    send_sync::<minimq_client::Received>();
    send_sync::<minimq_client::Transaction>();
    send_sync::<Error>();
    let _ = |producer: minimq_client::Producer| {
        send(async move { producer.send(Message::new("t", "x")).await });
    };
    let _ = |consumer: minimq_client::PullConsumer| {
        send(async move { consumer.messages().next().await });
    };
}
