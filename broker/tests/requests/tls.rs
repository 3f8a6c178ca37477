//! TLS on the main port, by the keys `tls.server.*`.

use std::time::Duration;

use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_remoting::{Client, ClientConfig, ClientTls};

use crate::support::{Harness, TIMEOUT};

fn client(tls: bool) -> Client {
    let config = ClientConfig {
        tls: ClientTls {
            enable: tls,
            ..Default::default()
        },
        backoff_min: Duration::ZERO,
        ..Default::default()
    };
    Client::new(config).unwrap()
}

async fn is_served(broker: &Harness, tls: bool) -> bool {
    let ask = Command::request(request::GET_ALL_TOPIC_CONFIG);
    let answer = client(tls).call(&broker.addr, ask, TIMEOUT).await;
    answer.is_ok_and(|answer| answer.code == 0)
}

async fn start(mode: &str) -> Harness {
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let settings = [
        format!("tls.server.mode={mode}"),
        format!("tls.server.certPath={}", cert.display()),
        format!("tls.server.keyPath={}", key.display()),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    Harness::start_in(folder, &settings).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mode_serves_what_it_says() {
    for (mode, plain, encrypted) in [
        ("permissive", true, true),
        ("enforcing", false, true),
        ("disabled", true, false),
    ] {
        let broker = start(mode).await;
        assert_eq!(is_served(&broker, false).await, plain, "{mode}, plain");
        assert_eq!(is_served(&broker, true).await, encrypted, "{mode}, TLS");
        broker.stop().await;
    }
}
