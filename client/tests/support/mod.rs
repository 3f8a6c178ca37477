//! A name server and a broker in this process, on free ports and in a temporary folder.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use minimq_broker::{Broker, BrokerConfig};
use minimq_client::Client;
use minimq_common::config::{Config, Sources};
use minimq_namesrv::{NameServer, NamesrvConfig};
use parking_lot::Mutex;
use tempfile::TempDir;

pub struct Cluster {
    pub name_server: minimq_namesrv::Running,
    broker: Option<minimq_broker::broker::Running>,
    port: u16,
    dir: TempDir,
}

fn config<T: minimq_common::config::Section>(settings: &[(&str, &str)]) -> Config<T> {
    let mut sources = Sources::default();
    for (key, value) in settings {
        sources.set_key(key, value);
    }
    Config::load(&sources).expect("settings of a test are right")
}

impl Cluster {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kv = dir.path().join("kv.json");
        let settings = [
            ("bindAddress", "127.0.0.1"),
            ("listenPort", "0"),
            ("kvConfigPath", kv.to_str().unwrap()),
        ];
        let name_server = NameServer::start(Arc::new(config::<NamesrvConfig>(&settings))).unwrap();
        let mut cluster = Self {
            name_server,
            broker: None,
            port: 0,
            dir,
        };
        cluster.start_broker().await;
        cluster
    }

    pub async fn start_broker(&mut self) {
        let store = self.dir.path().join("store");
        let (names, port) = (
            self.name_server.local_addr().to_string(),
            self.port.to_string(),
        );
        let settings = [
            ("bindAddress", "127.0.0.1"),
            ("brokerIP1", "127.0.0.1"),
            ("brokerIP2", "127.0.0.1"),
            ("listenPort", &port),
            ("namesrvAddr", &names),
            ("brokerName", "broker-a"),
            ("storePathRootDir", store.to_str().unwrap()),
            ("mapedFileSizeCommitLog", "16777216"),
            ("mapedFileSizeConsumeQueue", "600000"),
            ("diskSpaceWarningLevelRatio", "100"),
            ("diskSpaceCleanForciblyRatio", "100"),
        ];
        let running = Broker::start(config::<BrokerConfig>(&settings), |_| ())
            .await
            .unwrap();
        self.port = running.local_addr().port();
        self.broker = Some(running);
    }

    pub async fn stop_broker(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.stop().await.unwrap();
        }
    }

    pub fn broker_addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub async fn client(&self) -> Client {
        Client::builder()
            .name_servers(self.name_server.local_addr().to_string())
            .offset_dir(self.dir.path().join("offsets"))
            .build()
            .await
            .unwrap()
    }

    /// Creates a topic with that many queues and waits until the name server knows it.
    pub async fn topic(&self, topic: &str, queues: i32) {
        let admin = self.client().await.admin();
        let config = minimq_protocol::body::TopicConfig {
            read_queue_nums: queues,
            write_queue_nums: queues,
            ..minimq_protocol::body::TopicConfig::new(topic)
        };
        eventually("the topic is created", async || {
            admin
                .create_topic(&self.broker_addr(), &config)
                .await
                .is_ok()
                && admin.topic_route(topic).await.is_ok()
        })
        .await;
    }
}

/// Waits for a condition; fails after 40 seconds.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(40);
    while !condition().await {
        assert!(std::time::Instant::now() < end, "not within 40 s: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Counts deliveries by body.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<BTreeMap<String, usize>>>);

impl Seen {
    pub fn add(&self, delivery: &minimq_client::Delivery) {
        let body = String::from_utf8(delivery.body().to_vec()).unwrap();
        *self.0.lock().entry(body).or_default() += 1;
    }

    pub fn bodies(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub fn count(&self, body: &str) -> usize {
        self.0.lock().get(body).copied().unwrap_or(0)
    }
}
