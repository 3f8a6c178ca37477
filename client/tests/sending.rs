//! Every way of sending, and what consumers get of it.

mod support;

use std::time::Duration;

use minimq_client::{Batching, CompressionType, Error, Filter, Message, StartFrom};
use support::applications::{reading, writing};
use support::{Cluster, Seen, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_send_arrives_once() {
    let cluster = Cluster::start().await;
    cluster.topic("kinds", 4).await;
    let client = cluster.client().await;
    let seen = Seen::default();
    let consumer = reading(&client, "kinds-consumer", "kinds").run(writing(&seen));
    let consumer = consumer.await.unwrap();
    let batching = Batching {
        linger: Duration::from_millis(20),
        ..Batching::default()
    };
    let producer = client
        .producer("kinds-producer")
        .batching(batching)
        .compress_from(64);
    let producer = producer
        .compression(CompressionType::Lz4, 1)
        .build()
        .await
        .unwrap();
    let message = |body: &str| Message::new("kinds", body.to_owned());

    let receipt = producer
        .send(message("plain").tag("t").key("k").property("p", "v"))
        .await
        .unwrap();
    assert_eq!(
        (receipt.queue.topic.as_str(), receipt.id.len()),
        ("kinds", 32)
    );
    let queues = producer.queues("kinds").await.unwrap();
    assert_eq!(queues.len(), 4);
    assert_eq!(
        producer
            .send_to(&queues[3], message("to"))
            .await
            .unwrap()
            .queue,
        queues[3]
    );
    let one = producer
        .send_keyed("key", message("keyed-1"))
        .await
        .unwrap();
    let two = producer
        .send_keyed("key", message("keyed-2"))
        .await
        .unwrap();
    assert_eq!(
        (one.queue, one.queue_offset + 1),
        (two.queue, two.queue_offset)
    );
    let selected = producer
        .send_selected(message("selected"), |queues| queues.len() - 1)
        .await
        .unwrap();
    assert_eq!(selected.queue, queues[3]);
    producer.send_oneway(message("oneway")).await.unwrap();
    let batch = producer
        .send_batch(vec![message("batch-1"), message("batch-2")])
        .await
        .unwrap();
    assert_eq!(
        (
            batch.id.split(',').count(),
            batch.offset_id.split(',').count()
        ),
        (2, 2)
    );
    let long = "x".repeat(5000);
    producer.send(message(&long)).await.unwrap();
    let batched: Vec<_> = (0..20)
        .map(|n| {
            let (producer, message) = (producer.clone(), message(&format!("batched-{n}")));
            tokio::spawn(async move { producer.send_batched(message).await.unwrap() })
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for one in batched {
        let receipt = one.await.unwrap();
        assert!(!receipt.id.contains(','));
        ids.insert((receipt.queue.queue_id, receipt.queue_offset));
    }
    assert_eq!(ids.len(), 20, "each message has its own place");

    eventually("all messages arrive", async || seen.len() == 29).await;
    assert_eq!(seen.count(&long), 1);
    assert!(seen.bodies().iter().all(|body| seen.count(body) == 1));
    consumer.shutdown().await;
    client.shutdown().await;
    assert!(matches!(
        producer.send(message("late")).await,
        Err(Error::Closed)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_is_an_error_that_says_so() {
    let cluster = Cluster::start().await;
    let client = cluster.client().await;
    let producer = client
        .producer("errors")
        .max_message_size(100)
        .build()
        .await
        .unwrap();
    assert!(matches!(
        producer.send(Message::new("t", vec![1; 101])).await,
        Err(Error::Message { .. })
    ));
    assert!(matches!(
        producer
            .send(Message::new("SCHEDULE_TOPIC_XXXX", "x"))
            .await,
        Err(Error::Name(_))
    ));
    assert!(matches!(
        client.producer("errors").build().await,
        Err(Error::GroupTaken { .. })
    ));
    drop(producer);
    client.producer("errors").build().await.unwrap();

    let nobody = minimq_client::Client::connect("127.0.0.1:1").await.unwrap();
    let producer = nobody
        .producer("nobody")
        .timeout(Duration::from_millis(300))
        .build()
        .await
        .unwrap();
    let error = producer.send(Message::new("t", "x")).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_created_by_sending_to_it() {
    let cluster = Cluster::start().await;
    let client = cluster.client().await;
    let producer = client.producer("creator").build().await.unwrap();
    let receipt = producer.send(Message::new("new-topic", "x")).await.unwrap();
    assert_eq!(receipt.queue_offset, 0);
    eventually("the name server knows it", async || {
        client
            .route("new-topic")
            .await
            .is_ok_and(|route| route.writable.len() == 4)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_messages_come_later() {
    let cluster = Cluster::start().await;
    cluster.topic("delays", 1).await;
    let client = cluster.client().await;
    let producer = client.producer("delays-producer").build().await.unwrap();
    let consumer = client
        .pull_consumer("delays-consumer")
        .subscribe("delays", Filter::all())
        .start_from(StartFrom::Beginning);
    let consumer = consumer.start().await.unwrap();
    producer
        .send(Message::new("delays", "later").delay_level(1))
        .await
        .unwrap();
    producer.send(Message::new("delays", "now")).await.unwrap();
    let mut stream = consumer.messages();
    let first = stream.next().await.unwrap();
    assert_eq!(&first.body()[..], b"now");
    let second = stream.next().await.unwrap();
    assert_eq!(&second.body()[..], b"later");
    assert!(second.stored_ms() - second.born_ms() >= 900, "{second:?}");
}
