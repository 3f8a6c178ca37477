//! What the log tells of mistakes that nobody else would notice.

use minimq_protocol::Command;
use minimq_protocol::code::request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{Harness, consumer, new_client, until, warnings};

/// Waits for a line that holds all of these.
async fn logged(parts: &[&str]) {
    until("the line in the log", async || {
        let lines = warnings().lock().unwrap();
        lines
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    })
    .await;
}

/// A connection from another address of this machine.
async fn from_elsewhere(broker: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    socket.connect(broker.parse().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_id_that_lives_at_two_addresses_is_told() {
    let lines = warnings();
    let broker = Harness::start(&[]).await;
    let mut beat = consumer("Twins", "T", ("TAG", "*"), 1);
    beat.client_id = "twin-id".into();
    assert_eq!(broker.heartbeat(&beat).await.code, 0);
    // Again, and by another connection from the same address: that is how clients come back.
    assert_eq!(broker.heartbeat(&beat).await.code, 0);
    let (again, _received) = new_client();
    let request = Command::request(request::HEART_BEAT).with_body(beat.to_wire());
    let answer = again.call(&broker.addr, request.clone(), crate::support::TIMEOUT);
    assert_eq!(answer.await.unwrap().code, 0);
    let told = |line: &String| line.contains("twin-id") && line.contains("another address");
    assert!(!lines.lock().unwrap().iter().any(told));

    let mut elsewhere = from_elsewhere(&broker.addr).await;
    elsewhere.write_all(&request.to_frame()).await.unwrap();
    elsewhere.read_u32().await.unwrap();
    logged(&["twin-id", "Twins", "127.0.0.2", "another address"]).await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_subscribe_differently_are_told() {
    warnings();
    let broker = Harness::start(&[]).await;
    broker
        .register_consumer("Mixed", "T", ("TAG", "A"), 1)
        .await;
    let (second, _received) = new_client();
    let mut other = consumer("Mixed", "T", ("TAG", "B"), 2);
    other.client_id = "second".into();
    let request = Command::request(request::HEART_BEAT).with_body(other.to_wire());
    let answer = second.call(&broker.addr, request, crate::support::TIMEOUT);
    assert_eq!(answer.await.unwrap().code, 0);
    logged(&["Mixed", "second", "subscribe differently"]).await;
    broker.stop().await;
}

/// The address told to clients is tried once by the broker itself, beside the start. It may be a host's name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_advertised_address_that_does_not_answer_is_told() {
    let lines = warnings();
    // Nobody is there to register with, which is no reason not to look.
    let nobody = "namesrvAddr=127.0.0.1:1";
    let good = Harness::start(&[nobody, "brokerIP1=localhost"]).await;
    assert!(good.broker.identity.address.starts_with("localhost:"));
    assert!(good.broker.identity.store_host.ip().is_loopback());
    let bad = Harness::start(&[nobody, "brokerIP1=127.0.0.2"]).await;
    let address = bad.broker.identity.address.clone();
    logged(&[&address, "does not answer", "brokerIP1"]).await;
    let good_address = good.broker.identity.address.clone();
    let wrong = |line: &String| line.contains(&good_address) && line.contains("brokerIP1");
    assert!(!lines.lock().unwrap().iter().any(wrong));
    good.stop().await;
    bad.stop().await;
}
