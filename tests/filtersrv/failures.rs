//! Filter servers that are killed, fall silent, or lose their connections while they are pulled from.

use minimq::Cluster;
use rustix::process::Signal;

use crate::harness::*;

/// The fault case filter-02: one of two is killed.
#[tokio::test(flavor = "multi_thread")]
async fn filter_02_a_filter_server_killed_while_pulled_from_loses_nothing_and_is_forgotten() {
    let cluster = Cluster::builder().filter_servers(0).start().await.unwrap();
    let broker = &cluster.brokers()[0];
    let staying = FilterServer::start(broker, &[]).await;
    let killed = FilterServer::start(broker, &[]).await;
    let client = client(&cluster).await;
    topic(&client, &cluster, "TopicA", 2).await;
    send(&client, "TopicA", 0..1000).await;
    wait_for_route(&client, "TopicA", &[&staying.address, &killed.address]).await;
    let how = How {
        broadcast: false,
        batch: 1,
    };
    let (consumer, got) = consumer(&client, "CG", "TopicA", &modulo(2, 0), how).await;
    until("it is pulled from", async || got.len() > 20).await;
    killed.signal(Signal::KILL);
    got.exactly((0..1000).step_by(2)).await;
    wait_for_route(&client, "TopicA", &[&staying.address]).await;
    consumer.shutdown().await;
    assert!(!killed.ended().await.success());
}

/// The fault case filter-02 and filter server spec 19, T1: its connection is open, but it says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn filter_02_a_silent_filter_server_is_forgotten_and_comes_back_when_it_speaks_again() {
    let cluster = Cluster::builder()
        .filter_servers(0)
        .set("filterServerExpiry", "2000")
        .start()
        .await
        .unwrap();
    let broker = &cluster.brokers()[0];
    let server = FilterServer::start(broker, &["registerInterval=200"]).await;
    let client = client(&cluster).await;
    topic(&client, &cluster, "TopicA", 1).await;
    wait_for_route(&client, "TopicA", &[&server.address]).await;
    server.signal(Signal::STOP);
    wait_for_route(&client, "TopicA", &[]).await;
    server.signal(Signal::CONT);
    wait_for_route(&client, "TopicA", &[&server.address]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_between_members_with_different_filters_lose_no_message_of_either() {
    let cluster = Cluster::builder().filter_servers(0).start().await.unwrap();
    // Consumers are told another address of this machine, where the relay is.
    let mut server =
        FilterServer::start(&cluster.brokers()[0], &["filterServerIP=127.0.0.2"]).await;
    let port = server.address.rsplit(':').next().unwrap();
    let (relay, _) = Relay::start(
        server.address.parse().unwrap(),
        format!("127.0.0.1:{port}").parse().unwrap(),
    )
    .await;
    let sending = client(&cluster).await;
    topic(&sending, &cluster, "TopicA", 2).await;
    send(&sending, "TopicA", 0..400).await;
    wait_for_route(&sending, "TopicA", &[&server.address]).await;
    let mut members = Vec::new();
    for rest in 0..2 {
        let client = minimq_client::Client::builder()
            .name_servers(cluster.name_server())
            .offset_dir(cluster.data().join(format!("member-{rest}")))
            .build()
            .await
            .unwrap();
        let how = How {
            broadcast: true,
            batch: 2,
        };
        let (consumer, got) = consumer(&client, "CG", "TopicA", &modulo(2, rest), how).await;
        members.push((client, consumer, got));
    }
    let mut cut = 0;
    for round in 1..=3 {
        until("both go on", async || {
            members.iter().all(|(_, _, got)| got.len() >= 20 * round)
        })
        .await;
        cut += relay.cut();
    }
    assert!(cut >= 2, "{cut} connections were cut");
    for (rest, (client, consumer, got)) in members.into_iter().enumerate() {
        got.exactly((rest as u32..400).step_by(2)).await;
        consumer.shutdown().await;
        client.shutdown().await;
    }
    assert!(server.is_running());
}
