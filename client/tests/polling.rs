//! Consumers that the application polls or reads as a stream.

mod support;

use std::time::Duration;

use minimq_client::{Client, Delivery, Message, MessageQueue, StartFrom};
use support::applications::producer;
use support::{Cluster, eventually};

const WAIT: Duration = Duration::from_secs(20);

/// A topic of so many queues with so many messages in each.
async fn filled(cluster: &Cluster, client: &Client, topic: &str, queues: i32, messages: i64) {
    cluster.topic(topic, queues).await;
    let producer = producer(client, "polling-producer").await;
    let queues = producer.queues(topic).await.unwrap();
    for n in 0..messages {
        for queue in &queues {
            let message = Message::new(topic, format!("{n}"));
            producer.send_to(queue, message).await.unwrap();
        }
    }
    let admin = client.admin();
    for queue in &queues {
        eventually("all are in the queue", async || {
            admin.max_offset(queue).await.unwrap() == messages
        })
        .await;
    }
    producer.shutdown().await;
}

fn offsets(messages: &[Delivery]) -> Vec<i64> {
    messages.iter().map(Delivery::queue_offset).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polled_consumer_commits_and_seeks() {
    let cluster = Cluster::start().await;
    let client = cluster.client().await;
    filled(&cluster, &client, "polled", 1, 10).await;
    let queue = client.route("polled").await.unwrap().readable[0].clone();
    let consumer = client
        .pull_consumer("polled-consumer")
        .assign([queue.clone()])
        .start_from(StartFrom::Beginning);
    let consumer = consumer
        .auto_commit(false)
        .max_polled(4)
        .start()
        .await
        .unwrap();
    assert_eq!(consumer.poll(WAIT).await.unwrap().len(), 4);
    assert_eq!(
        consumer.positions()[&queue],
        0,
        "nothing is finished before it is committed"
    );
    consumer.commit().await.unwrap();
    assert_eq!(consumer.committed(&queue).await.unwrap(), Some(4));
    consumer.seek(&queue, 8).await.unwrap();
    let next = consumer.poll(WAIT).await.unwrap();
    assert_eq!((next[0].queue_offset(), next.len()), (8, 2));
    assert!(consumer.seek(&queue, 11).await.is_err());
    consumer.seek_to_begin(&queue).await.unwrap();
    assert_eq!(consumer.poll(WAIT).await.unwrap()[0].queue_offset(), 0);
    consumer.shutdown().await;
    assert!(consumer.poll(WAIT).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_commits_only_what_was_acknowledged() {
    let cluster = Cluster::start().await;
    let client = cluster.client().await;
    filled(&cluster, &client, "stream", 1, 5).await;
    let start = async || {
        let builder = client
            .pull_consumer("stream-consumer")
            .subscribe("stream", "*");
        builder
            .start_from(StartFrom::Beginning)
            .start()
            .await
            .unwrap()
    };
    let consumer = start().await;
    let mut stream = consumer.messages();
    stream.next().await.unwrap().ack();
    let kept = stream.next().await.unwrap();
    stream.next().await.unwrap().ack();
    assert_eq!(kept.queue_offset(), 1);
    consumer.shutdown().await;
    assert!(stream.next().await.is_none());
    let consumer = start().await;
    let next = consumer.messages().next().await.unwrap();
    assert_eq!(next.queue_offset(), 1, "the unacknowledged one comes again");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_poll_finishes_the_one_before_and_the_shutdown_the_last() {
    let cluster = Cluster::start().await;
    let client = cluster.client().await;
    filled(&cluster, &client, "auto", 1, 10).await;
    let start = async || {
        let builder = client.pull_consumer("auto-consumer").max_polled(3);
        let builder = builder.subscribe("auto", "*");
        builder
            .start_from(StartFrom::Beginning)
            .start()
            .await
            .unwrap()
    };
    let consumer = start().await;
    assert_eq!(offsets(&consumer.poll(WAIT).await.unwrap()), [0, 1, 2]);
    let queue = consumer.assignment().remove(0);
    assert_eq!(consumer.positions()[&queue], 0);
    assert_eq!(offsets(&consumer.poll(WAIT).await.unwrap()), [3, 4, 5]);
    assert_eq!(consumer.positions()[&queue], 3);
    consumer.shutdown().await;
    let admin = client.admin();
    let stored = admin.consumer_offset("auto-consumer", &queue).await;
    assert_eq!(stored.unwrap(), Some(6));
    let consumer = start().await;
    assert_eq!(offsets(&consumer.poll(WAIT).await.unwrap()), [6, 7, 8]);
    // Dropped it ends in the same way, but what was not finished by a poll comes again.
    drop(consumer);
    eventually("it has left", async || {
        let broker = cluster.broker_addr();
        let members = admin.consumer_ids("auto-consumer", Some(&broker)).await;
        members.map_or(true, |ids| ids.is_empty())
    })
    .await;
    let consumer = start().await;
    assert_eq!(offsets(&consumer.poll(WAIT).await.unwrap()), [6, 7, 8]);
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_can_be_assigned_anew_and_looked_up() {
    let cluster = Cluster::start().await;
    let client = cluster.client().await;
    filled(&cluster, &client, "given", 3, 4).await;
    let queue = |id| MessageQueue::new("given", "broker-a", id);
    let consumer = client
        .pull_consumer("given-consumer")
        .assign([queue(0)])
        .start_from(StartFrom::Beginning);
    let consumer = consumer.start().await.unwrap();
    assert_eq!(
        consumer.queues("given").await.unwrap(),
        [queue(0), queue(1), queue(2)]
    );
    let polled = consumer.poll(WAIT).await.unwrap();
    assert!(polled.iter().all(|message| *message.queue() == queue(0)));
    consumer.assign([queue(1), queue(2)]).unwrap();
    eventually("it has the others", async || {
        consumer.assignment() == [queue(1), queue(2)]
    })
    .await;
    // Of several messages of one millisecond any may be found.
    let before = polled[0].stored_ms() - 1;
    let first = consumer.offset_for_time(&queue(0), before).await;
    assert_eq!(first.unwrap(), 0);
    let late = consumer.offset_for_time(&queue(0), i64::MAX / 2).await;
    assert_eq!(late.unwrap(), 3, "where all are older it is the last one");
    consumer.seek_to_end(&queue(1)).await.unwrap();
    assert_eq!(consumer.positions()[&queue(1)], 4);
    consumer.seek_to_begin(&queue(1)).await.unwrap();
    let mut got = Vec::new();
    while got.len() < 8 {
        got.extend(consumer.poll(WAIT).await.unwrap());
    }
    assert_eq!(
        got.iter().filter(|one| *one.queue() == queue(1)).count(),
        4,
        "{got:?}"
    );
    let error = consumer.seek(&queue(0), 0).await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_can_be_subscribed_to_while_running() {
    let cluster = Cluster::start().await;
    let client = cluster.client().await;
    filled(&cluster, &client, "early", 1, 1).await;
    filled(&cluster, &client, "late", 1, 1).await;
    let consumer = client
        .pull_consumer("adding-consumer")
        .subscribe("early", "*")
        .start_from(StartFrom::Beginning);
    let consumer = consumer.start().await.unwrap();
    assert_eq!(consumer.poll(WAIT).await.unwrap()[0].topic(), "early");
    consumer.subscribe("late", "*").await.unwrap();
    assert_eq!(consumer.poll(WAIT).await.unwrap()[0].topic(), "late");
    assert!(consumer.assign([]).is_err(), "it shares queues");
    consumer.shutdown().await;
}

/// A broker that says of every message that it is on disk knows no young queues, which all groups read from the first
/// message on.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_group_begins_at_the_end() {
    let cluster = Cluster::start_with(&[("accessMessageInMemoryMaxRatio", "0")]).await;
    let client = cluster.client().await;
    filled(&cluster, &client, "end", 1, 3).await;
    let consumer = client.pull_consumer("end-consumer").subscribe("end", "*");
    let consumer = consumer.start().await.unwrap();
    eventually("it has the queue", async || {
        consumer.assignment().len() == 1
    })
    .await;
    let producer = producer(&client, "end-producer").await;
    producer.send(Message::new("end", "new")).await.unwrap();
    let polled = consumer.poll(WAIT).await.unwrap();
    assert_eq!(
        (offsets(&polled), &polled[0].body()[..]),
        (vec![3], &b"new"[..])
    );
    consumer.shutdown().await;
}
