//! A name server and a broker in this process, on free ports and in a temporary folder.
#![allow(dead_code, unreachable_pub)]

pub mod applications;
pub mod fake;
pub mod invariants;
pub mod proxy;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use minimq_broker::{Broker, BrokerConfig};
use minimq_client::{Client, ClientBuilder};
use minimq_common::clock::Clock;
use minimq_common::config::{Config, Sources};
use minimq_common::temporary::TemporaryFolder;
use minimq_filtersrv::{FilterServer, FiltersrvConfig};
use minimq_namesrv::{NameServer, NamesrvConfig};
use parking_lot::Mutex;

pub struct Cluster {
    pub name_server: minimq_namesrv::Running,
    broker: Option<minimq_broker::broker::Running>,
    port: u16,
    second: Option<minimq_broker::broker::Running>,
    second_port: u16,
    name_server_port: u16,
    dir: TemporaryFolder,
    /// Further settings of the broker.
    settings: Vec<(String, String)>,
    /// The address the broker is known by.
    host: &'static str,
}

fn config<T: minimq_common::config::Section>(settings: &[(&str, &str)]) -> Config<T> {
    let mut sources = Sources::default();
    for (key, value) in settings {
        sources.set_key(key, value);
    }
    Config::load(&sources).expect("settings of a test are right")
}

/// Where a broker behind a proxy is reached.
const BEHIND: &str = "127.0.0.2";

async fn name_server(dir: &std::path::Path, port: u16) -> minimq_namesrv::Running {
    let (kv, port) = (dir.join("kv.json"), port.to_string());
    let settings = [
        ("bindAddress", "127.0.0.1"),
        ("listenPort", &*port),
        ("kvConfigPath", kv.to_str().unwrap()),
    ];
    NameServer::start(Arc::new(config::<NamesrvConfig>(&settings))).unwrap()
}

impl Cluster {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With further settings of the broker.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_known_by("127.0.0.1", settings).await
    }

    /// A broker that clients reach at its port, but at another loopback address: through what the test puts there.
    pub async fn start_behind_proxy() -> (Self, proxy::Proxy) {
        let cluster = Self::start_known_by(BEHIND, &[]).await;
        let (outer, inner) = (cluster.broker_addr(), format!("127.0.0.1:{}", cluster.port));
        let proxy = proxy::Proxy::start(outer.parse().unwrap(), inner.parse().unwrap()).await;
        (cluster, proxy)
    }

    async fn start_known_by(host: &'static str, settings: &[(&str, &str)]) -> Self {
        let dir = TemporaryFolder::new().unwrap();
        let name_server = name_server(dir.path(), 0).await;
        let mut cluster = Self {
            name_server_port: name_server.local_addr().port(),
            name_server,
            broker: None,
            port: 0,
            second: None,
            second_port: 0,
            dir,
            settings: settings
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            host,
        };
        cluster.start_broker().await;
        cluster
    }

    pub async fn stop_name_server(&mut self) {
        self.name_server.stop(Duration::ZERO).await;
    }

    /// Again, at the same port, knowing nothing.
    pub async fn start_name_server(&mut self) {
        self.name_server = name_server(self.dir.path(), self.name_server_port).await;
    }

    pub async fn start_broker(&mut self) {
        let running = self.run_broker("broker-a", self.port).await;
        self.port = running.local_addr().port();
        self.broker = Some(running);
    }

    /// Ends the broker and starts it on the same store at another port.
    pub async fn move_broker(&mut self) {
        self.stop_broker().await;
        self.port = 0;
        self.start_broker().await;
    }

    /// Beside the first one.
    pub async fn start_second_broker(&mut self) {
        let running = self.run_broker("broker-b", self.second_port).await;
        self.second_port = running.local_addr().port();
        self.second = Some(running);
    }

    pub async fn stop_second_broker(&mut self) {
        if let Some(broker) = self.second.take() {
            broker.stop().await.unwrap();
        }
    }

    async fn run_broker(&self, name: &str, port: u16) -> minimq_broker::broker::Running {
        let store = self.dir.path().join(name);
        let (names, port) = (self.name_server_addr(), port.to_string());
        let mut settings = vec![
            ("bindAddress", "127.0.0.1"),
            ("brokerIP1", self.host),
            ("brokerIP2", self.host),
            ("listenPort", &port),
            ("namesrvAddr", &names),
            ("registerNameServerPeriod", "10000"),
            ("brokerName", name),
            ("storePathRootDir", store.to_str().unwrap()),
            ("mapedFileSizeCommitLog", "16777216"),
            ("mapedFileSizeConsumeQueue", "600000"),
            ("diskSpaceWarningLevelRatio", "100"),
            ("diskSpaceCleanForciblyRatio", "100"),
        ];
        let further = self.settings.iter();
        settings.extend(further.map(|(key, value)| (key.as_str(), value.as_str())));
        Broker::start(config::<BrokerConfig>(&settings), |_| ())
            .await
            .unwrap()
    }

    pub async fn stop_broker(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.stop().await.unwrap();
        }
    }

    pub fn broker_addr(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub fn name_server_addr(&self) -> String {
        self.name_server.local_addr().to_string()
    }

    /// Where everything is kept; goes with the cluster.
    pub fn folder(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub fn client_builder(&self) -> ClientBuilder {
        Client::builder()
            .name_servers(self.name_server_addr())
            .offset_dir(self.dir.path().join("offsets"))
    }

    pub async fn client(&self) -> Client {
        self.client_builder().build().await.unwrap()
    }

    /// A filter server that the broker knows, on a free port.
    pub async fn filter_server(&self) -> minimq_filtersrv::Running {
        self.filter_server_at(0).await
    }

    /// The same on that port.
    pub async fn filter_server_at(&self, port: u16) -> minimq_filtersrv::Running {
        let mut sources = Sources::default();
        sources.set_key("bindAddress", "127.0.0.1");
        sources.set_key("listenPort", &port.to_string());
        sources.set_key("connectWhichBroker", &self.broker_addr());
        // Debug builds of filters are slow, and test machines busy.
        for key in [
            "filterMessageTimeout",
            "filterStartTimeout",
            "filterBatchTimeout",
        ] {
            sources.set_key(key, "10000");
        }
        let config: Config<FiltersrvConfig> =
            Config::load_with(&sources, FiltersrvConfig::finish, Clock::system()).unwrap();
        // Somebody else may have the port for a moment.
        let started = Mutex::new(None);
        eventually("the filter server has its port", async || {
            *started.lock() = FilterServer::start(&config).ok();
            started.lock().is_some()
        })
        .await;
        let running = started.into_inner().unwrap();
        tokio::time::timeout(Duration::from_secs(40), running.registered())
            .await
            .unwrap();
        running
    }

    /// Creates a topic with that many queues and waits until the name server knows it.
    pub async fn topic(&self, topic: &str, queues: i32) {
        let admin = self.client().await.admin();
        let config = minimq_protocol::body::TopicConfig {
            read_queue_nums: queues,
            write_queue_nums: queues,
            ..minimq_protocol::body::TopicConfig::new(topic)
        };
        let mut brokers = vec![self.broker_addr()];
        brokers.extend(
            self.second
                .as_ref()
                .map(|second| second.local_addr().to_string()),
        );
        eventually("the topic is created", async || {
            for broker in &brokers {
                if admin.create_topic(broker, &config).await.is_err() {
                    return false;
                }
            }
            let route = admin.topic_route(topic).await;
            route.is_ok_and(|route| route.each_broker().count() == brokers.len())
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
