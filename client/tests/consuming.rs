//! Consumers against a real broker: order, retries, sharing out, restarts, filters, polling.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use minimq_client::{Client, Delivery, Filter, Message, Outcome, PushConsumer};
use parking_lot::Mutex;
use support::applications::{counting, producer, reading, writing};
use support::{Cluster, Seen, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn ordered_consumption_keeps_order_through_failures() {
    let cluster = Cluster::start().await;
    cluster.topic("ordered", 4).await;
    let client = cluster.client().await;
    let producer = producer(&client, "test-producer").await;
    let order: Arc<Mutex<BTreeMap<i32, Vec<i64>>>> = Arc::default();
    let (log, running, failed) = (
        order.clone(),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
    );
    let consumer = reading(&client, "ordered-consumer", "ordered");
    let consumer =
        consumer
            .suspend_for(Duration::from_millis(20))
            .run_ordered(move |message: Delivery| {
                let (log, running, failed) = (log.clone(), running.clone(), failed.clone());
                async move {
                    assert!(
                        running.fetch_add(1, Ordering::SeqCst) < 4,
                        "no more handlers than queues"
                    );
                    tokio::task::yield_now().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    if message.queue_offset() == 5 && failed.fetch_add(1, Ordering::SeqCst) < 3 {
                        return Err("not yet");
                    }
                    log.lock()
                        .entry(message.queue().queue_id)
                        .or_default()
                        .push(message.queue_offset());
                    Ok(())
                }
            });
    let consumer = consumer.await.unwrap();
    for n in 0..80 {
        producer
            .send_keyed(
                &format!("key-{}", n % 7),
                Message::new("ordered", format!("{n}")),
            )
            .await
            .unwrap();
    }
    eventually("all are consumed", async || {
        order.lock().values().map(Vec::len).sum::<usize>() == 80
    })
    .await;
    for offsets in order.lock().values() {
        let expected: Vec<i64> = (0..offsets.len() as i64).collect();
        assert_eq!(*offsets, expected);
    }
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_messages_come_again_and_rejected_ones_do_not() {
    let cluster = Cluster::start().await;
    cluster.topic("retries", 2).await;
    let client = cluster.client().await;
    let producer = producer(&client, "test-producer").await;
    let attempts: Arc<Mutex<Vec<(String, i32, String)>>> = Arc::default();
    let log = attempts.clone();
    let consumer = reading(&client, "retries-consumer", "retries");
    let consumer = consumer.run(move |message: Delivery| {
        let log = log.clone();
        async move {
            let body = String::from_utf8_lossy(message.body()).into_owned();
            log.lock()
                .push((body.clone(), message.attempts(), message.topic().to_owned()));
            match (body.as_str(), message.attempts()) {
                ("again", 0) => Outcome::RetryAtLevel(1),
                ("panic", 0) => panic!("a handler that panics"),
                ("reject", _) => Outcome::Reject,
                _ => Outcome::Done,
            }
        }
    });
    let consumer = consumer.await.unwrap();
    for body in ["again", "reject", "fine"] {
        producer.send(Message::new("retries", body)).await.unwrap();
    }
    eventually("the message comes again", async || {
        attempts
            .lock()
            .contains(&("again".into(), 1, "retries".into()))
    })
    .await;
    let admin = client.admin();
    eventually("the rejected one is a dead letter", async || {
        let stats = admin.topic_stats("%DLQ%retries-consumer").await;
        stats.is_ok_and(|stats| {
            stats
                .offset_table
                .values()
                .map(|queue| queue.max_offset)
                .sum::<i64>()
                == 1
        }) || client.route("%DLQ%retries-consumer").await.is_ok()
    })
    .await;
    assert_eq!(
        attempts
            .lock()
            .iter()
            .filter(|(body, ..)| body == "reject")
            .count(),
        1
    );
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_consumers_share_all_queues_and_take_over() {
    let cluster = Cluster::start().await;
    cluster.topic("shared", 8).await;
    let seen = Seen::default();
    let mut clients = Vec::new();
    let mut consumers = Vec::new();
    for _ in 0..3 {
        let client = cluster.client().await;
        consumers.push(counting(&client, "shared-consumer", "shared", Filter::all(), &seen).await);
        clients.push(client);
    }
    let counts = |consumers: &[PushConsumer]| -> Vec<usize> {
        let own = |consumer: &PushConsumer| {
            consumer
                .assignment()
                .iter()
                .filter(|queue| queue.topic == "shared")
                .count()
        };
        consumers.iter().map(own).collect()
    };
    eventually("each has its part", async || {
        let mut counts = counts(&consumers);
        counts.sort_unstable();
        counts == [2, 3, 3]
    })
    .await;
    let producer = producer(&clients[0], "test-producer").await;
    for n in 0..40 {
        producer
            .send(Message::new("shared", format!("first-{n}")))
            .await
            .unwrap();
    }
    eventually("all are consumed", async || seen.len() == 40).await;
    consumers.remove(1).shutdown().await;
    eventually("the others take over", async || {
        counts(&consumers) == [4, 4]
    })
    .await;
    for n in 0..40 {
        producer
            .send(Message::new("shared", format!("second-{n}")))
            .await
            .unwrap();
    }
    eventually("all are consumed", async || seen.len() == 80).await;
    assert!(
        seen.bodies().iter().all(|body| seen.count(body) == 1),
        "nothing twice: offsets were handed over"
    );
    for client in clients {
        client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_restarts_under_traffic_loses_nothing() {
    let mut cluster = Cluster::start().await;
    cluster.topic("restart", 4).await;
    let client = cluster.client().await;
    let seen = Seen::default();
    let consumer = counting(&client, "restart-consumer", "restart", Filter::all(), &seen).await;
    let producer = producer(&client, "test-producer").await;
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    let sending = tokio::spawn(async move {
        let mut stored = Vec::new();
        let mut n = 0;
        while !stopping.load(Ordering::Relaxed) {
            let body = format!("{n}");
            n += 1;
            if producer
                .send(Message::new("restart", body.clone()))
                .await
                .is_ok()
            {
                stored.push(body);
            }
        }
        stored
    });
    eventually("traffic flows", async || seen.len() > 50).await;
    cluster.stop_broker().await;
    cluster.start_broker().await;
    let before = seen.len();
    eventually("traffic flows again", async || seen.len() > before + 50).await;
    stop.store(true, Ordering::Relaxed);
    let stored = sending.await.unwrap();
    eventually("every stored message is consumed", async || {
        stored.iter().all(|body| seen.count(body) > 0)
    })
    .await;
    consumer.shutdown().await;
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_let_through_what_they_say() {
    let cluster = Cluster::start().await;
    cluster.topic("filtered", 2).await;
    let client = cluster.client().await;
    let (tags, sql) = (Seen::default(), Seen::default());
    let by_tag = counting(&client, "by-tag", "filtered", Filter::tags("a || b"), &tags).await;
    let by_sql = counting(
        &client,
        "by-sql",
        "filtered",
        Filter::sql("price > 10"),
        &sql,
    )
    .await;
    let wrong = client
        .push_consumer("wrong")
        .subscribe("filtered", Filter::sql("price >"))
        .run(|_| async {})
        .await;
    assert!(
        wrong.is_err(),
        "an expression that does not parse fails the start"
    );
    let producer = producer(&client, "test-producer").await;
    for (tag, price) in [("a", 5), ("b", 20), ("c", 30)] {
        let message = Message::new("filtered", format!("{tag}-{price}"))
            .tag(tag)
            .property("price", price.to_string());
        producer.send(message).await.unwrap();
    }
    eventually("both get theirs", async || {
        tags.len() == 2 && sql.len() == 2
    })
    .await;
    assert_eq!(tags.bodies(), ["a-5", "b-20"]);
    assert_eq!(sql.bodies(), ["b-20", "c-30"]);
    by_tag.shutdown().await;
    by_sql.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broadcast_reaches_everybody_and_goes_on_where_it_was() {
    let cluster = Cluster::start().await;
    cluster.topic("news", 2).await;
    let client = cluster.client().await;
    let producer = producer(&client, "test-producer").await;
    let consume = async |client: &Client, group: &'static str, seen: &Seen| {
        let builder = reading(client, group, "news").broadcast(true);
        builder.run(writing(seen)).await.unwrap()
    };
    let (one, two) = (Seen::default(), Seen::default());
    let other = cluster.client().await;
    let first = consume(&client, "news-1", &one).await;
    let second = consume(&other, "news-2", &two).await;
    for n in 0..6 {
        producer
            .send(Message::new("news", format!("{n}")))
            .await
            .unwrap();
    }
    eventually("both get all", async || one.len() == 6 && two.len() == 6).await;
    first.shutdown().await;
    producer.send(Message::new("news", "new")).await.unwrap();
    let again = Seen::default();
    let first = consume(&client, "news-1", &again).await;
    eventually("the new one comes", async || again.len() == 1).await;
    assert_eq!(again.bodies(), ["new"]);
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_see_and_move_a_running_consumer() {
    let cluster = Cluster::start().await;
    cluster.topic("tools", 2).await;
    let client = cluster.client().await;
    let seen = Seen::default();
    let consumer = counting(&client, "tools-consumer", "tools", Filter::all(), &seen).await;
    let producer = producer(&client, "test-producer").await;
    for n in 0..6 {
        producer
            .send(Message::new("tools", format!("{n}")))
            .await
            .unwrap();
    }
    eventually("all are consumed", async || {
        seen.len() == 6 && consumer.unfinished() == 0
    })
    .await;
    consumer.commit().await;
    let admin = client.admin();
    let connections = admin
        .consumer_connections("tools-consumer", Some(&cluster.broker_addr()))
        .await
        .unwrap();
    assert_eq!(connections.connection_set.len(), 1);
    assert_eq!(connections.connection_set[0].client_id, client.client_id());
    let mut committed = 0;
    for queue in client.route("tools").await.unwrap().readable.iter() {
        committed += admin
            .consumer_offset("tools-consumer", queue)
            .await
            .unwrap()
            .unwrap_or(0);
        assert_eq!(admin.min_offset(queue).await.unwrap(), 0);
    }
    assert_eq!(committed, 6);
    let moved = admin
        .reset_offsets("tools", "tools-consumer", 0, true)
        .await
        .unwrap();
    assert_eq!(moved.values().sum::<i64>(), 0);
    eventually("all are consumed again", async || {
        (0..6).all(|n| seen.count(&n.to_string()) == 2)
    })
    .await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_handles_leave_their_groups() {
    let cluster = Cluster::start().await;
    cluster.topic("dropped", 2).await;
    let admin = cluster.client().await.admin();
    let broker = cluster.broker_addr();
    let members = async |group: &str| {
        let found = admin.consumer_connections(group, Some(&broker)).await;
        found.map_or(0, |found| found.connection_set.len())
    };
    let producers = async |group: &str| {
        let found = admin.producer_connections(group, "dropped").await;
        found.map_or(0, |found| found.connection_set.len())
    };
    let client = cluster.client().await;
    for inside in [true, false] {
        let pushed = counting(&client, "push", "dropped", Filter::all(), &Seen::default()).await;
        let polled = client
            .pull_consumer("pull")
            .subscribe("dropped", Filter::all());
        let polled = polled.start().await.unwrap();
        let sending = client.producer("send").build().await.unwrap();
        sending.send(Message::new("dropped", "x")).await.unwrap();
        eventually("all are known", async || {
            members("push").await == 1 && members("pull").await == 1 && producers("send").await == 1
        })
        .await;
        if inside {
            drop((pushed, polled, sending));
        } else {
            let elsewhere = std::thread::spawn(move || drop((pushed, polled, sending)));
            elsewhere.join().unwrap();
        }
        eventually("all have left", async || {
            members("push").await == 0 && members("pull").await == 0 && producers("send").await == 0
        })
        .await;
    }
    // The group is free at once, and an end that is still under way does not take the new member out.
    let first = counting(&client, "push", "dropped", Filter::all(), &Seen::default()).await;
    first.shutdown().await;
    let second = counting(&client, "push", "dropped", Filter::all(), &Seen::default()).await;
    drop(first);
    drop(second);
    let seen = Seen::default();
    let third = counting(&client, "push", "dropped", Filter::all(), &seen).await;
    eventually("it consumes", async || third.assignment().len() == 3).await;
    let sending = client.producer("send").build().await.unwrap();
    sending
        .send(Message::new("dropped", "again"))
        .await
        .unwrap();
    eventually("the new message comes", async || seen.count("again") == 1).await;
    assert_eq!(members("push").await, 1);
}
