//! Faults under traffic: connections cut in mid-answer, swallowed or slow, brokers and name servers that go and come back,
//! consumers that come and go. Whatever happens, what was acknowledged is delivered.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use minimq_client::{Client, Delivery, Producer, PushConsumer};
use support::applications::reading;
use support::invariants::{Invariants, one_owner_each};
use support::proxy::{Fault, Proxy};
use support::{Cluster, eventually};

/// Sends until told to stop.
struct Traffic {
    stop: Arc<AtomicBool>,
    sending: tokio::task::JoinHandle<()>,
}

impl Traffic {
    fn start(producer: Producer, topic: &'static str, invariants: &Invariants) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, invariants) = (stop.clone(), invariants.clone());
        let sending = tokio::spawn(async move {
            while !stopping.load(Ordering::Relaxed) {
                invariants.send(&producer, topic).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        Self { stop, sending }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.sending.await.unwrap();
    }
}

async fn producer(client: &Client) -> Producer {
    client
        .producer("faults-producer")
        .timeout(Duration::from_secs(2))
        .build()
        .await
        .unwrap()
}

async fn consumer(client: &Client, topic: &str, invariants: &Invariants) -> PushConsumer {
    let invariants = invariants.clone();
    reading(client, "faults-consumer", topic)
        .run(move |message| {
            invariants.deliver(&message);
            async {}
        })
        .await
        .unwrap()
}

/// Waits until some more messages have gone all the way.
async fn flows(invariants: &Invariants) {
    let (acknowledged, delivered) = (invariants.acknowledged(), invariants.delivered());
    eventually("messages flow", async || {
        invariants.acknowledged() >= acknowledged + 20 && invariants.delivered() >= delivered + 20
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_slow_swallowed_or_refused_loses_nothing() {
    let (cluster, proxy) = Cluster::start_behind_proxy().await;
    cluster.topic("cut", 4).await;
    let invariants = Invariants::default();
    let client = cluster.client().await;
    let consumer = consumer(&client, "cut", &invariants).await;
    let other = cluster.client().await;
    let traffic = Traffic::start(producer(&other).await, "cut", &invariants);
    flows(&invariants).await;
    // Cut wherever it comes: in the length, in a header, in a record.
    for bytes in [1, 3, 4, 30, 150, 700, 3000] {
        proxy.set(Fault::CutAfter(bytes));
        tokio::time::sleep(Duration::from_millis(150)).await;
        proxy.set(Fault::None);
        flows(&invariants).await;
    }
    proxy.set(Fault::Delay(Duration::from_millis(50)));
    flows(&invariants).await;
    proxy.set(Fault::Down);
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.set(Fault::None);
    flows(&invariants).await;
    proxy.set(Fault::BlackHole);
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.set(Fault::None);
    flows(&invariants).await;
    traffic.end().await;
    invariants.hold().await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_died_without_a_word_is_made_anew() {
    let (cluster, proxy) = Cluster::start_behind_proxy().await;
    cluster.topic("stale", 2).await;
    let invariants = Invariants::default();
    let client = cluster.client().await;
    let consumer = consumer(&client, "stale", &invariants).await;
    let other = cluster.client().await;
    let traffic = Traffic::start(producer(&other).await, "stale", &invariants);
    flows(&invariants).await;
    // What is open now is dead from here on, and nobody says so.
    proxy.set(Fault::Stale);
    flows(&invariants).await;
    traffic.end().await;
    invariants.hold().await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_and_comes_back_gets_its_consumers_back() {
    let (mut cluster, proxy) = Cluster::start_behind_proxy().await;
    cluster.topic("killed", 4).await;
    let invariants = Invariants::default();
    let client = cluster.client().await;
    let consumer = consumer(&client, "killed", &invariants).await;
    let other = cluster.client().await;
    let traffic = Traffic::start(producer(&other).await, "killed", &invariants);
    for _ in 0..2 {
        flows(&invariants).await;
        // For its clients a kill: connections end with answers under way, and nothing is told.
        proxy.set(Fault::Down);
        cluster.stop_broker().await;
        cluster.start_broker().await;
        proxy.set(Fault::None);
    }
    flows(&invariants).await;
    traffic.end().await;
    invariants.hold().await;
    one_owner_each(std::slice::from_ref(&consumer), "killed", 4).await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_comes_back_at_another_address_is_found() {
    let mut cluster = Cluster::start().await;
    cluster.topic("moved", 4).await;
    let invariants = Invariants::default();
    let client = cluster.client().await;
    let consumer = consumer(&client, "moved", &invariants).await;
    let other = cluster.client().await;
    let traffic = Traffic::start(producer(&other).await, "moved", &invariants);
    flows(&invariants).await;
    let before = cluster.broker_addr();
    cluster.move_broker().await;
    assert_ne!(before, cluster.broker_addr());
    flows(&invariants).await;
    traffic.end().await;
    invariants.hold().await;
    one_owner_each(std::slice::from_ref(&consumer), "moved", 4).await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_name_servers_everything_known_goes_on() {
    let mut cluster = Cluster::start().await;
    cluster.topic("names", 2).await;
    let invariants = Invariants::default();
    let client = cluster
        .client_builder()
        .route_refresh(Duration::from_millis(100))
        .build()
        .await
        .unwrap();
    let consumer = consumer(&client, "names", &invariants).await;
    let traffic = Traffic::start(producer(&client).await, "names", &invariants);
    flows(&invariants).await;
    cluster.stop_name_server().await;
    flows(&invariants).await;
    // A new member needs a route; it comes with the name server, and with the broker's registration at that.
    let waiting = cluster.client().await;
    assert!(waiting.route("names").await.is_err());
    cluster.start_name_server().await;
    eventually("the broker is there again", async || {
        waiting.route("names").await.is_ok()
    })
    .await;
    flows(&invariants).await;
    traffic.end().await;
    invariants.hold().await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_server_that_swallows_everything_is_left_for_the_next() {
    let cluster = Cluster::start().await;
    cluster.topic("hole", 1).await;
    let target = cluster.name_server_addr().parse().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let (first, second) = (
        Proxy::start(any, target).await,
        Proxy::start(any, target).await,
    );
    let client = Client::builder()
        .name_servers(format!("{};{}", first.addr(), second.addr()))
        .request_timeout(Duration::from_millis(500))
        .build()
        .await
        .unwrap();
    for (hole, open) in [(&first, &second), (&second, &first), (&first, &second)] {
        hole.set(Fault::BlackHole);
        open.set(Fault::None);
        eventually("the other one is asked", async || {
            client.route("hole").await.is_ok()
        })
        .await;
    }
    // One alone, whose connection died without a word.
    let alone = Client::builder()
        .name_servers(second.addr().to_string())
        .request_timeout(Duration::from_millis(500))
        .build()
        .await
        .unwrap();
    alone.route("hole").await.unwrap();
    second.set(Fault::Stale);
    eventually("it is asked on a new connection", async || {
        alone.route("hole").await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_consumers_that_come_and_go_share_every_queue() {
    let cluster = Cluster::start().await;
    cluster.topic("churn", 16).await;
    let invariants = Invariants::default();
    let traffic = Traffic::start(
        producer(&cluster.client().await).await,
        "churn",
        &invariants,
    );
    let mut clients = Vec::new();
    let mut consumers = Vec::new();
    for n in 0..20 {
        let client = cluster.client().await;
        consumers.push(consumer(&client, "churn", &invariants).await);
        clients.push(client);
        // Every third one leaves again: half of these in order, half dropped.
        if n % 3 == 2 {
            let leaving = consumers.remove(0);
            if n % 2 == 0 {
                leaving.shutdown().await;
            }
        }
    }
    one_owner_each(&consumers, "churn", 16).await;
    flows(&invariants).await;
    let rest = consumers.split_off(5);
    drop(rest);
    one_owner_each(&consumers, "churn", 16).await;
    traffic.end().await;
    invariants.hold().await;
    for client in clients {
        client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ordered_handlers_never_run_side_by_side_while_queues_change_hands() {
    let cluster = Cluster::start().await;
    cluster.topic("orderly", 6).await;
    let invariants = Invariants::default();
    let traffic = Traffic::start(
        producer(&cluster.client().await).await,
        "orderly",
        &invariants,
    );
    let run = async |client: &Client| {
        let invariants = invariants.clone();
        reading(client, "orderly-consumer", "orderly")
            .run_ordered(move |message: Delivery| {
                let invariants = invariants.clone();
                async move {
                    invariants.begin(&message);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    invariants.end(&message);
                }
            })
            .await
            .unwrap()
    };
    let mut members = Vec::new();
    for _ in 0..4 {
        let client = cluster.client().await;
        members.push((run(&client).await, client));
        flows(&invariants).await;
    }
    for _ in 0..3 {
        let (leaving, _) = members.remove(0);
        leaving.shutdown().await;
        flows(&invariants).await;
    }
    let consumers: Vec<PushConsumer> = members.iter().map(|(one, _)| one.clone()).collect();
    one_owner_each(&consumers, "orderly", 6).await;
    traffic.end().await;
    invariants.hold().await;
}
