//! A cluster in this process, on threads of its own: started, asked where it listens, stopped or dropped.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use minimq_broker::Broker;
use minimq_common::config::{Config, ConfigError, Section, Sources};
use minimq_filtersrv::FilterServer;
use minimq_namesrv::NameServer;
use tokio::sync::oneshot;

use crate::data::{Data, DataError, DataFolder};

/// How long open requests have when the cluster stops.
const DRAIN: Duration = Duration::from_secs(2);

/// Which ports a cluster listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// 9876 for the name server, 10911, 10921, … for the brokers.
    Usual,
    /// The name server here, the brokers 10, 20, … above.
    From(u16),
    /// Free ones.
    Free,
}

impl Ports {
    fn name_server(self) -> u16 {
        match self {
            Self::Usual => 9876,
            Self::From(base) => base,
            Self::Free => 0,
        }
    }

    fn broker(self, index: usize) -> u16 {
        let step = u16::try_from(index).unwrap_or(u16::MAX).saturating_mul(10);
        match self {
            Self::Usual => 10_911u16.saturating_add(step),
            Self::From(base) => base.saturating_add(10).saturating_add(step),
            Self::Free => 0,
        }
    }
}

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The data folder.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A key or value.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The name server.
    #[error("the name server does not start: {0}")]
    NameServer(#[from] minimq_namesrv::StartError),
    /// A broker.
    #[error("broker {name} does not start: {source}")]
    Broker {
        /// Its name.
        name: String,
        /// The reason.
        source: minimq_broker::StartError,
    },
    /// A filter server.
    #[error("the filter server does not start: {0}")]
    FilterServer(#[from] minimq_filtersrv::StartError),
    /// The machine gives no thread.
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
    /// Something impossible.
    #[error("the cluster ended while starting")]
    Ended,
}

/// What a cluster is made of; begin with [`Cluster::builder`].
#[derive(Debug, Clone)]
pub struct ClusterBuilder {
    data: Data,
    host: IpAddr,
    ports: Ports,
    brokers: usize,
    filter_servers: usize,
    config_file: Option<PathBuf>,
    settings: Vec<(String, String)>,
}

impl ClusterBuilder {
    /// Keeps the files here instead of in a temporary folder.
    #[must_use]
    pub fn data(mut self, data: Data) -> Self {
        self.data = data;
        self
    }

    /// Listens on this address instead of 127.0.0.1.
    #[must_use]
    pub fn host(mut self, host: IpAddr) -> Self {
        self.host = host;
        self
    }

    /// Listens on these ports instead of free ones.
    #[must_use]
    pub fn ports(mut self, ports: Ports) -> Self {
        self.ports = ports;
        self
    }

    /// So many brokers instead of one.
    #[must_use]
    pub fn brokers(mut self, brokers: usize) -> Self {
        self.brokers = brokers.max(1);
        self
    }

    /// So many filter servers beside each broker instead of one; each has a free port.
    #[must_use]
    pub fn filter_servers(mut self, filter_servers: usize) -> Self {
        self.filter_servers = filter_servers;
        self
    }

    /// Reads broker keys from this file.
    #[must_use]
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.config_file = Some(path.into());
        self
    }

    /// Sets a broker key.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Starts it; ready for clients when this returns.
    ///
    /// # Errors
    /// What stands in the way, in one sentence.
    pub async fn start(self) -> Result<Cluster, ClusterError> {
        let folder = DataFolder::open(&self.data)?;
        let (told, tells) = oneshot::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let path = folder.path().to_owned();
        let thread = std::thread::Builder::new()
            .name("minimq".to_owned())
            .spawn(move || run(&self, &path, told, &stopped))
            .map_err(ClusterError::Threads)?;
        let addresses = tells.await.unwrap_or(Err(ClusterError::Ended));
        let mut cluster = Cluster {
            addresses: Addresses::default(),
            folder,
            stop: Some(stop),
            thread: Some(thread),
        };
        cluster.addresses = addresses?;
        Ok(cluster)
    }

    fn load<T: Section>(&self, given: &[(&str, String)]) -> Result<Config<T>, ClusterError> {
        let mut sources = Sources::default().with_file(self.config_file.clone());
        for (key, value) in given {
            sources.set_key(key, value);
        }
        for (key, value) in &self.settings {
            sources.set_key(key, value);
        }
        Ok(Config::load(&sources)?)
    }

    fn segment_size(&self) -> u64 {
        match self.data {
            Data::Temporary => 16 << 20,
            Data::Folder(_) => 64 << 20,
        }
    }

    async fn start_roles(&self, folder: &Path) -> Result<Roles, ClusterError> {
        let name_server_config = {
            let mut sources = Sources::default();
            sources.set_key("listenPort", &self.ports.name_server().to_string());
            sources.set_key("bindAddress", &self.host.to_string());
            let own = folder.join("namesrv");
            sources.set_key(
                "kvConfigPath",
                &own.join("kvConfig.json").display().to_string(),
            );
            sources.set_key(
                "configStorePath",
                &own.join("namesrv.properties").display().to_string(),
            );
            Config::load(&sources)?
        };
        let name_server = NameServer::start(Arc::new(name_server_config))?;
        let mut roles = Roles {
            name_server,
            brokers: Vec::new(),
            filter_servers: Vec::new(),
        };
        let name_server = roles.addresses(self.host).name_server;
        for index in 0..self.brokers {
            let name = broker_name(index);
            let advertised = if self.host.is_unspecified() {
                Ipv4Addr::LOCALHOST.into()
            } else {
                self.host
            };
            let root = folder.join(&name);
            let config = self.load(&[
                ("brokerName", name.clone()),
                ("namesrvAddr", name_server.clone()),
                ("bindAddress", self.host.to_string()),
                ("brokerIP1", advertised.to_string()),
                ("listenPort", self.ports.broker(index).to_string()),
                ("storePathRootDir", root.display().to_string()),
                ("mappedFileSizeCommitLog", self.segment_size().to_string()),
                ("traceTopicEnable", "true".to_owned()),
                // A cluster for trying things out lives beside other work: the disk may be nearly full, and its
                // own rule is the least free space it starts with.
                ("diskSpaceWarningLevelRatio", "100".to_owned()),
                ("diskSpaceCleanForciblyRatio", "100".to_owned()),
            ])?;
            config.store_in(root.join("config").join("broker.properties"));
            match Broker::start(config, |_| {}).await {
                Ok(running) => {
                    let broker = SocketAddr::new(advertised, running.local_addr().port());
                    roles.brokers.push(running);
                    if let Err(error) = self.start_filter_servers(&mut roles, broker) {
                        roles.stop().await;
                        return Err(error);
                    }
                }
                Err(source) => {
                    roles.stop().await;
                    return Err(ClusterError::Broker { name, source });
                }
            }
        }
        Ok(roles)
    }
}

impl ClusterBuilder {
    fn start_filter_servers(
        &self,
        roles: &mut Roles,
        broker: SocketAddr,
    ) -> Result<(), ClusterError> {
        for _ in 0..self.filter_servers {
            let mut sources = Sources::default();
            sources.set_key("connectWhichBroker", &broker.to_string());
            sources.set_key("bindAddress", &self.host.to_string());
            sources.set_key("filterServerIP", &broker.ip().to_string());
            let running = FilterServer::start(&Config::load(&sources)?)?;
            roles.filter_servers.push(running);
        }
        Ok(())
    }
}

/// `broker-a`, `broker-b`, …, then by number.
fn broker_name(index: usize) -> String {
    match u8::try_from(index) {
        Ok(index @ 0..26) => format!("broker-{}", char::from(b'a' + index)),
        _ => format!("broker-{index}"),
    }
}

/// What runs.
struct Roles {
    name_server: minimq_namesrv::Running,
    brokers: Vec<minimq_broker::broker::Running>,
    filter_servers: Vec<minimq_filtersrv::Running>,
}

impl Roles {
    fn addresses(&self, host: IpAddr) -> Addresses {
        let told = |port: u16| {
            let host = if host.is_unspecified() {
                Ipv4Addr::LOCALHOST.into()
            } else {
                host
            };
            SocketAddr::new(host, port).to_string()
        };
        Addresses {
            name_server: told(self.name_server.local_addr().port()),
            filter_servers: self
                .filter_servers
                .iter()
                .map(|server| server.advertised().to_owned())
                .collect(),
            brokers: self
                .brokers
                .iter()
                .map(|broker| told(broker.local_addr().port()))
                .collect(),
        }
    }

    async fn stop(self) {
        for filter_server in self.filter_servers {
            filter_server.stop(DRAIN).await;
        }
        for broker in self.brokers {
            if let Err(error) = broker.stop().await {
                tracing::error!(%error, "a broker did not close cleanly");
            }
        }
        self.name_server.stop(DRAIN).await;
    }
}

#[derive(Debug, Default)]
struct Addresses {
    name_server: String,
    brokers: Vec<String>,
    filter_servers: Vec<String>,
}

/// The cluster's thread: starts the roles, waits to be told to stop, stops them.
fn run(
    builder: &ClusterBuilder,
    folder: &Path,
    told: oneshot::Sender<Result<Addresses, ClusterError>>,
    stopped: &mpsc::Receiver<()>,
) {
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("minimq")
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = told.send(Err(ClusterError::Threads(error)));
            return;
        }
    };
    match runtime.block_on(builder.start_roles(folder)) {
        Err(error) => {
            let _ = told.send(Err(error));
        }
        Ok(roles) => {
            if told.send(Ok(roles.addresses(builder.host))).is_ok() {
                // Ends when the cluster is stopped or dropped.
                let _ = stopped.recv();
            }
            runtime.block_on(roles.stop());
        }
    }
}

/// A running cluster. Dropped, it stops and its temporary folder is removed.
#[derive(Debug)]
pub struct Cluster {
    addresses: Addresses,
    folder: DataFolder,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// One broker, free ports on 127.0.0.1, a temporary folder.
    #[must_use]
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder {
            data: Data::Temporary,
            host: Ipv4Addr::LOCALHOST.into(),
            ports: Ports::Free,
            brokers: 1,
            filter_servers: 1,
            config_file: None,
            settings: Vec::new(),
        }
    }

    /// `host:port` of the name server: what clients are given.
    #[must_use]
    pub fn name_server(&self) -> &str {
        &self.addresses.name_server
    }

    /// `host:port` of each broker.
    #[must_use]
    pub fn brokers(&self) -> &[String] {
        &self.addresses.brokers
    }

    /// `host:port` of each filter server.
    #[must_use]
    pub fn filter_servers(&self) -> &[String] {
        &self.addresses.filter_servers
    }

    /// Where its files are.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.folder.path()
    }

    /// Stops it in order: what is in flight is finished, everything is on disk.
    pub async fn stop(mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends by itself now; waiting for it must not block this runtime.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
