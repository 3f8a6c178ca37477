//! WASM filters through real filter servers: uploads, fail-over, and consumers that have none.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use minimq_client::{Client, Filter, Message, PushConsumer};
use support::applications::{reading, writing};
use support::{Cluster, Seen, eventually};

/// Keeps messages whose body has an even length.
const EVEN: &str = r#"(module
  (import "minimq" "number" (func $number (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "minimq_filter_abi_1"))
  (func (export "filter") (result i32)
    (drop (call $number (i32.const 8) (i32.const 0)))
    (i32.xor (i32.and (i32.wrap_i64 (i64.load (i32.const 0))) (i32.const 1)) (i32.const 1))))"#;

async fn send(client: &Client, topic: &str, lengths: std::ops::Range<usize>) {
    let producer = client.producer("filter-producer").build().await.unwrap();
    for length in lengths {
        let message = Message::new(topic, "x".repeat(length));
        producer.send(message).await.unwrap();
    }
    producer.shutdown().await;
}

async fn consume(client: &Client, topic: &str, filter: Filter, seen: &Seen) -> PushConsumer {
    reading(client, "filter-consumer", topic)
        .subscribe(topic, filter)
        .pull_hold(Duration::from_secs(2))
        .run(writing(seen))
        .await
        .unwrap()
}

fn lengths(seen: &Seen) -> BTreeSet<usize> {
    seen.bodies().iter().map(String::len).collect()
}

fn even(upto: usize) -> BTreeSet<usize> {
    (1..upto).filter(|length| length % 2 == 0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_uploaded_before_the_first_pull_and_to_servers_that_come_later() {
    let cluster = Cluster::start().await;
    cluster.topic("even", 2).await;
    let first = cluster.filter_server().await;
    let client = cluster.client().await;
    send(&client, "even", 1..11).await;
    let seen = Seen::default();
    let consumer = consume(&client, "even", Filter::wasm(EVEN), &seen).await;
    eventually("five pass", async || lengths(&seen) == even(11)).await;
    let figures = first.figures();
    let own = figures.filters.iter().find(|one| one.topic == "even");
    let own = own.expect("it was uploaded");
    assert_eq!(own.consumer_group, "filter-consumer");
    // A second one joins, the first one goes: nothing is lost, nothing passes that should not.
    let second = cluster.filter_server().await;
    eventually("both are in the route", async || {
        let route = client.route("even").await.unwrap();
        route.filter_servers(&cluster.broker_addr()).len() == 2
    })
    .await;
    first.stop(Duration::ZERO).await;
    send(&client, "even", 11..31).await;
    eventually("the other one filters", async || lengths(&seen) == even(31)).await;
    assert!(
        second
            .figures()
            .filters
            .iter()
            .any(|one| one.topic == "even")
    );
    consumer.shutdown().await;
    second.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_filter_server_nothing_moves_and_nothing_is_lost() {
    let cluster = Cluster::start().await;
    cluster.topic("none", 1).await;
    let client = cluster.client().await;
    let queue = client.route("none").await.unwrap().readable[0].clone();
    send(&client, "none", 1..7).await;
    let seen = Seen::default();
    let consumer = consume(&client, "none", Filter::wasm(EVEN), &seen).await;
    eventually("it has the queue", async || {
        consumer.assignment().contains(&queue)
    })
    .await;
    consumer.commit().await;
    assert_eq!(seen.len(), 0);
    let stored = client
        .admin()
        .consumer_offset("filter-consumer", &queue)
        .await
        .unwrap();
    assert!(stored.unwrap_or(0) <= 0, "the offset moved to {stored:?}");
    let server = cluster.filter_server().await;
    eventually("all that match come", async || lengths(&seen) == even(7)).await;
    consumer.shutdown().await;
    server.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_can_be_a_file_and_a_missing_file_is_named() {
    let cluster = Cluster::start().await;
    cluster.topic("file", 1).await;
    let server = cluster.filter_server().await;
    let client = cluster.client().await;
    send(&client, "file", 1..7).await;
    let text = cluster.folder().join("even.wat");
    let binary = cluster.folder().join("even.wasm");
    std::fs::write(&text, EVEN).unwrap();
    std::fs::write(&binary, wat::parse_str(EVEN).unwrap()).unwrap();
    for path in [text, binary] {
        let seen = Seen::default();
        let filter = Filter::wasm_file(&path).unwrap();
        let own = path.extension().unwrap().to_str().unwrap();
        let consumer = reading(&client, own, "file").subscribe("file", filter);
        let consumer = consumer.run(writing(&seen)).await.unwrap();
        eventually("three pass", async || lengths(&seen) == even(7)).await;
        consumer.shutdown().await;
    }
    let missing = cluster.folder().join("none.wasm");
    let error = Filter::wasm_file(&missing).unwrap_err();
    assert!(
        error.to_string().contains(missing.to_str().unwrap()),
        "{error}"
    );
    assert!(!error.is_retryable());
    server.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_server_that_forgot_gets_the_filter_again_at_once() {
    let cluster = Cluster::start().await;
    cluster.topic("again", 1).await;
    let server = cluster.filter_server().await;
    let port = server.local_addr().port();
    let client = cluster.client().await;
    let seen = Seen::default();
    let consumer = consume(&client, "again", Filter::wasm(EVEN), &seen).await;
    send(&client, "again", 1..5).await;
    eventually("it filters", async || lengths(&seen) == even(5)).await;
    // The same address, an empty memory: `upload first` is its answer to pulls.
    server.stop(Duration::ZERO).await;
    let server = cluster.filter_server_at(port).await;
    send(&client, "again", 5..9).await;
    eventually("it filters again", async || lengths(&seen) == even(9)).await;
    consumer.shutdown().await;
    server.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_is_none_lets_nothing_through() {
    let cluster = Cluster::start().await;
    cluster.topic("broken", 1).await;
    let server = cluster.filter_server().await;
    let client = cluster.client().await;
    send(&client, "broken", 1..5).await;
    let seen = Seen::default();
    let consumer = consume(&client, "broken", Filter::wasm("no module"), &seen).await;
    // Another filter for the same topic takes over.
    consumer
        .subscribe("broken", Filter::wasm(EVEN))
        .await
        .unwrap();
    eventually("now it filters", async || lengths(&seen) == even(5)).await;
    consumer.shutdown().await;
    server.stop(Duration::ZERO).await;
}
