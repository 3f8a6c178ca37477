//! What consumers of the client crate get through their filters.

use std::time::Duration;

use minimq::Cluster;
use minimq_client::{Filter, Message, StartFrom};

use crate::harness::*;

/// The fault case filter-01.
#[tokio::test(flavor = "multi_thread")]
async fn filter_01_a_consumer_without_any_filter_server_waits_and_then_gets_all_from_the_old_offset()
 {
    let cluster = Cluster::builder().filter_servers(0).start().await.unwrap();
    let client = client(&cluster).await;
    topic(&client, &cluster, "TopicA", 2).await;
    send(&client, "TopicA", 0..60).await;
    let (consumer, got) = consumer(&client, "CG", "TopicA", SEQUENCE_ID, How::default()).await;
    let queues = || {
        let mut queues = consumer.assignment();
        queues.retain(|queue| queue.topic == "TopicA");
        queues
    };
    until("it has its queues", async || queues().len() == 2).await;
    send(&client, "TopicA", 60..100).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(got.len(), 0, "nothing passes by the filter");
    for queue in queues() {
        let offset = client.admin().consumer_offset("CG", &queue).await.unwrap();
        assert!(offset.unwrap_or(0) == 0, "{queue} moved to {offset:?}");
    }
    let server = FilterServer::start(&cluster.brokers()[0], &[]).await;
    wait_for_route(&client, "TopicA", &[&server.address]).await;
    got.exactly((12..100).step_by(3)).await;
    consumer.shutdown().await;
    assert_eq!(lag(&client, "CG", "TopicA").await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_broadcasting_two_members_get_each_what_their_own_filter_wants() {
    let cluster = Cluster::builder().filter_servers(0).start().await.unwrap();
    let broker = &cluster.brokers()[0];
    let servers = [
        FilterServer::start(broker, &[]).await,
        FilterServer::start(broker, &[]).await,
    ];
    let sending = client(&cluster).await;
    topic(&sending, &cluster, "TopicA", 4).await;
    send(&sending, "TopicA", 0..100).await;
    wait_for_route(
        &sending,
        "TopicA",
        &[&servers[0].address, &servers[1].address],
    )
    .await;
    let mut members = Vec::new();
    for (n, module) in [SEQUENCE_ID.to_owned(), modulo(2, 1)].iter().enumerate() {
        let client = minimq_client::Client::builder()
            .name_servers(cluster.name_server())
            .offset_dir(cluster.data().join(format!("member-{n}")))
            .build()
            .await
            .unwrap();
        let how = How {
            broadcast: true,
            batch: 0,
        };
        let (consumer, got) = consumer(&client, "CG", "TopicA", module, how).await;
        members.push((client, consumer, got));
    }
    members[0].2.exactly((12..100).step_by(3)).await;
    members[1].2.exactly((1..100).step_by(2)).await;
    for (client, consumer, _) in members {
        consumer.shutdown().await;
        client.shutdown().await;
    }
}

/// Filter server spec 19, T7.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_filter_wants_nothing_reaches_the_end_and_commits_it() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = client(&cluster).await;
    topic(&client, &cluster, "TopicA", 2).await;
    send(&client, "TopicA", 0..200).await;
    wait_for_route(&client, "TopicA", &[&cluster.filter_servers()[0]]).await;
    let (consumer, got) =
        consumer(&client, "CG", "TopicA", &modulo(1000, 999), How::default()).await;
    until("the offsets are at the end", async || {
        lag(&client, "CG", "TopicA").await == Some(0)
    })
    .await;
    assert_eq!(got.len(), 0);
    consumer.shutdown().await;
}

/// Filter server spec 19, T6, with this project's client; `tests/interop` has the stock one.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_around_8_kib_arrive_as_they_were_compressed_or_not() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = client(&cluster).await;
    topic(&client, &cluster, "TopicA", 1).await;
    let mut sent = Vec::new();
    for (group, from) in [("Plain", usize::MAX), ("Compressed", 1)] {
        let producer = client.producer(group).compress_from(from);
        let producer = producer.build().await.unwrap();
        for size in [8191, 8192, 8193] {
            let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let number = sent.len().to_string();
            let message = Message::new("TopicA", body.clone()).property("SequenceId", number);
            producer.send(message).await.unwrap();
            sent.push(body);
        }
    }
    wait_for_route(&client, "TopicA", &[&cluster.filter_servers()[0]]).await;
    // Keeps what begins with 0, 1, 2: the filter sees the plain body.
    let module = r#"(module (import "minimq" "body" (func $body (param i32 i32 i32) (result i32)))
        (memory (export "memory") 1) (func (export "minimq_filter_abi_1"))
        (func (export "filter") (result i32)
          (drop (call $body (i32.const 0) (i32.const 16) (i32.const 3)))
          (i32.eq (i32.and (i32.load (i32.const 16)) (i32.const 0xffffff)) (i32.const 0x020100))))"#;
    let consumer = client
        .pull_consumer("CG")
        .subscribe("TopicA", Filter::wasm(module))
        .start_from(StartFrom::Beginning);
    let consumer = consumer.start().await.unwrap();
    let mut got = Vec::new();
    while got.len() < sent.len() {
        let polled = consumer.poll(TIMEOUT).await.unwrap();
        assert!(!polled.is_empty(), "only {} came", got.len());
        got.extend(polled.iter().map(|message| message.body().to_vec()));
    }
    assert!(got == sent, "a body has changed");
    consumer.shutdown().await;
}
