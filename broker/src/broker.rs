//! The broker's state, and how it starts and stops.
//!
//! Lock order, outermost first; a thread that holds one takes only those after it:
//! client registry → topics → groups → offsets → queue locks → held pulls → a connection's outbox.
//! The store's locks are taken with none of these held. Nothing is awaited with a lock held.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use minimq_common::acl::{AccessControl, AclFileError};
use minimq_common::atomic_file::AtomicFileError;
use minimq_common::clock::Clock;
use minimq_common::config::Config;
use minimq_protocol::delay_level::DelayLevels;
use minimq_remoting::{Client, ClientConfig, Limits, Server, ServerConfig, ServerHandle, TlsError};
use minimq_store::{RecoveryProgress, Store, StoreError};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access;
use crate::client_registry::{ClientRegistry, Notices};
use crate::config::BrokerConfig;
use crate::delay::DelayQueue;
use crate::filter::registered::{RegisteredFilters, StoredBefore};
use crate::filter_server_registry::FilterServerRegistry;
use crate::offset::OffsetTable;
use crate::pull::{ArrivalListener, HeldPulls};
use crate::queue_lock::QueueLocks;
use crate::registration::Registration;
use crate::request::Refusal;
use crate::server::BrokerService;
use crate::stats::Stats;
use crate::subscription_group::GroupTable;
use crate::topic::TopicTable;
use crate::transaction::{Asker, CopiesWaiting};

/// How long in-flight requests may take when the broker stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Who this broker is, fixed at start.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Cluster.
    pub cluster: String,
    /// Name, shared by a master and its slaves.
    pub name: String,
    /// 0 for a master.
    pub id: i64,
    /// What clients and name servers are told: `host:port`.
    pub address: String,
    /// The address stored in messages.
    pub store_host: SocketAddr,
    /// Address of the replication port, told to slaves.
    pub ha_address: String,
}

/// Why a broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store does not open.
    #[error("cannot open the store: {0}")]
    Store(#[from] StoreError),
    /// A file of `config/` is damaged.
    #[error("{0}")]
    State(#[from] AtomicFileError),
    /// The files of access control are not in order.
    #[error("access control: {0}")]
    Access(#[from] AclFileError),
    /// A socket cannot be bound.
    #[error("{0}")]
    Listen(std::io::Error),
    /// A setting is wrong together with others, or the machine lacks what it needs.
    #[error("{0}")]
    Setting(String),
    /// Certificates.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
}

/// A running broker's state.
pub struct Broker {
    /// All keys, readable without a lock.
    pub config: Config<BrokerConfig>,
    /// Who this broker is.
    pub identity: Identity,
    /// Wall clock.
    pub clock: Clock,
    /// When it started, ms since 1970.
    pub started_ms: i64,
    /// Messages.
    pub store: Arc<Store>,
    /// Topics.
    pub topics: TopicTable,
    /// Consumer groups.
    pub groups: GroupTable,
    /// How far groups have consumed.
    pub offsets: OffsetTable,
    /// Who is connected.
    pub clients: ClientRegistry,
    /// Groups to be told of changes.
    pub notices: Notices,
    /// Pulls that wait.
    pub held: HeldPulls,
    /// Locks on queues.
    pub locks: QueueLocks,
    /// Positions of delayed messages.
    pub delay: DelayQueue,
    /// Delay levels.
    pub delay_levels: DelayLevels,
    /// SQL filters registered by heartbeats.
    pub registered_filters: Arc<RegisteredFilters>,
    /// Whose turn it is to be asked about transactions.
    pub asker: Asker,
    /// Half messages of which a copy waits.
    pub copies_waiting: CopiesWaiting,
    /// What went through.
    pub stats: Stats,
    /// Access control; `None` when it is off.
    pub access: Option<Arc<AccessControl>>,
    /// Filter servers beside this broker.
    pub filter_servers: FilterServerRegistry,
    /// Registration with the name servers.
    pub registration: Registration,
    /// Calls to name servers.
    pub client: Client,
    random: AtomicU64,
    /// Administration requests at work.
    pub admin_permits: Arc<Semaphore>,
    /// Settings changed: periods begin anew.
    pub settings_changed: Notify,
    /// Fires when the broker begins to stop.
    pub stopping: CancellationToken,
    /// Everything running beside the connections.
    pub tasks: TaskTracker,
}

/// A started broker: its state and its sockets.
pub struct Running {
    /// The state.
    pub broker: Arc<Broker>,
    server: ServerHandle,
    _ends: EndsTasks,
}

/// Ends the work beside the connections when a broker is dropped without having been stopped: threads that wait
/// would keep the runtime from ending.
struct EndsTasks(Arc<Broker>);

impl Drop for EndsTasks {
    fn drop(&mut self) {
        self.0.stopping.cancel();
        self.0.stop_delivery();
    }
}

impl Broker {
    /// Opens the store, binds the sockets, registers and serves. `listenPort=0` takes a free port for the main
    /// socket and none for the VIP socket.
    pub async fn start(
        config: Config<BrokerConfig>,
        progress: impl FnMut(RecoveryProgress) + Send + 'static,
    ) -> Result<Running, StartError> {
        let keys = config.to_arc();
        let clock = Clock::system();
        let delay_levels = DelayLevels::parse(&keys.store.message_delay_level)
            .map_err(|error| StartError::Setting(format!("messageDelayLevel: {error}")))?;
        let store_config = keys.store_config();
        let root = store_config.store_path_root_dir.clone();
        let opened =
            tokio::task::spawn_blocking(move || Store::open(&store_config, progress)).await;
        let store =
            opened.map_err(|e| StartError::Setting(format!("opening the store failed: {e}")))??;
        let now_ms = clock.now_ms();
        let stored_before = StoredBefore {
            newest_ms: store.dispatcher().store_timestamp(),
            file_is_newer: store.log_store().report().clean,
        };
        let topics = TopicTable::load(&root, &keys, now_ms)?;
        let groups = GroupTable::load(&root, now_ms)?;
        let access = access::open(&keys, clock.clone())?;

        let listeners = Listeners::bind(&keys)?;
        let identity = identity(&keys, listeners.port).await?;
        let broker = Arc::new(Self {
            identity,
            clock,
            started_ms: now_ms,
            store: Arc::new(store),
            topics,
            groups,
            offsets: OffsetTable::load(&root)?,
            clients: ClientRegistry::default(),
            notices: Notices::default(),
            held: HeldPulls::default(),
            locks: QueueLocks::default(),
            delay: DelayQueue::load(&root)?,
            registered_filters: Arc::new(RegisteredFilters::load(
                &root,
                &keys,
                now_ms,
                stored_before,
            )?),
            asker: Asker::default(),
            copies_waiting: CopiesWaiting::default(),
            stats: Stats::new(&keys.broker.broker_cluster_name, &delay_levels, now_ms),
            access,
            delay_levels,
            filter_servers: FilterServerRegistry::default(),
            registration: Registration::default(),
            client: Client::new(ClientConfig::default())?,
            random: AtomicU64::new(now_ms as u64),
            admin_permits: Arc::new(Semaphore::new(keys.admin_concurrency)),
            settings_changed: Notify::new(),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
            config,
        });
        if !keys.is_slave() {
            broker.make_transaction_topics();
        }
        let server = listeners.serve(&broker, &keys)?;
        broker.registration.changed();
        broker.start_tasks();
        broker.registered_at_start().await;
        Ok(Running {
            _ends: EndsTasks(broker.clone()),
            broker,
            server,
        })
    }

    fn start_tasks(self: &Arc<Self>) {
        self.tasks.spawn(self.clone().keep_registered());
        self.tasks.spawn(self.clone().expire_filter_servers());
        self.tasks.spawn(self.clone().send_notices());
        self.tasks.spawn(self.clone().expire_clients());
        self.tasks.spawn(self.clone().answer_due_pulls());
        self.tasks.spawn(self.clone().save_periodically());
        self.tasks.spawn(self.clone().sample_stats());
        self.tasks.spawn(self.clone().check_transactions());
        self.tasks.spawn(self.clone().watch_access());
        if self.config.get().broker.enable_calc_filter_bit_map {
            let filters = self.registered_filters.clone();
            self.store.set_filter_bits(Some(filters));
        }
        let runtime = tokio::runtime::Handle::current();
        self.store
            .on_dispatch(Some(Arc::new(ArrivalListener::new(self, runtime))));
        if !self.config.get().is_slave() {
            let broker = self.clone();
            self.tasks.spawn_blocking(move || broker.deliver_delayed());
        }
    }

    /// Saves what changes all the time; ends when the broker stops.
    async fn save_periodically(self: Arc<Self>) {
        loop {
            let period = self
                .config
                .get()
                .broker
                .flush_consumer_offset_interval
                .max(100) as u64;
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = self.settings_changed.notified() => continue,
                () = tokio::time::sleep(Duration::from_millis(period)) => {}
            }
            self.in_background(|broker| {
                broker.offsets.save();
                broker.save_filters();
            });
        }
    }

    fn save_filters(&self) {
        let keep_ms = self.config.get().broker.filter_data_clean_time_span;
        self.registered_filters.save(self.clock.now_ms(), keep_ms);
    }

    /// A number from 0 to `limit` − 1, for spreading load; 0 when `limit` is not positive.
    pub fn random_below(&self, limit: i32) -> i32 {
        // The finish of splitmix64 over a counter: even spread, no lock.
        let mut x = self
            .random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        match u64::try_from(limit) {
            Ok(limit @ 1..) => ((x ^ (x >> 31)) % limit) as i32,
            _ => 0,
        }
    }

    /// Runs `work` on the blocking pool; it is waited for when the broker stops.
    pub fn in_background(self: &Arc<Self>, work: impl FnOnce(&Self) + Send + 'static) {
        let broker = self.clone();
        self.tasks.spawn_blocking(move || work(&broker));
    }

    /// Refuses changes on a slave (broker spec 1.9).
    ///
    /// # Errors
    /// On a slave.
    pub fn refuse_on_slave(&self) -> Result<(), Refusal> {
        if self.config.get().is_slave() {
            return Err(Refusal::error(
                "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
            ));
        }
        Ok(())
    }
}

impl Running {
    /// The address the main socket listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// The server's sockets.
    pub fn server(&self) -> &ServerHandle {
        &self.server
    }

    /// Unregisters, stops accepting, finishes what is in flight, flushes and saves.
    pub async fn stop(self) -> Result<(), StoreError> {
        let broker = self.broker;
        broker.stopping.cancel();
        broker.stop_delivery();
        broker.unregister().await;
        broker.release_pulls();
        self.server.shutdown(DRAIN).await;
        broker.tasks.close();
        broker.tasks.wait().await;
        let closed = tokio::task::spawn_blocking(move || {
            broker.topics.save();
            broker.groups.save();
            broker.offsets.save();
            broker.delay.save();
            broker.save_filters();
            broker.store.on_dispatch(None);
            broker.store.close()
        });
        closed.await.unwrap_or(Ok(()))
    }
}

/// The bound sockets.
struct Listeners {
    addrs: Vec<SocketAddr>,
    port: u16,
}

impl Listeners {
    /// Which addresses to bind; a free main port is looked for here.
    fn bind(keys: &BrokerConfig) -> Result<Self, StartError> {
        let ip = keys.bind_ip().map_err(StartError::Setting)?;
        let main = SocketAddr::new(ip, keys.server.listen_port);
        if main.port() == 0 {
            // Found and let go: the server binds it again right away.
            let probe = std::net::TcpListener::bind(main).and_then(|l| l.local_addr());
            let addr = probe.map_err(|error| {
                StartError::Listen(minimq_remoting::cannot_listen(&main, &error))
            })?;
            return Ok(Self {
                addrs: vec![addr],
                port: addr.port(),
            });
        }
        let vip = SocketAddr::new(ip, main.port().saturating_sub(2).max(1));
        Ok(Self {
            addrs: vec![main, vip],
            port: main.port(),
        })
    }

    fn serve(self, broker: &Arc<Broker>, keys: &BrokerConfig) -> Result<ServerHandle, StartError> {
        let idle = u64::try_from(keys.server.server_channel_max_idle_time_seconds).unwrap_or(120);
        let mut config = ServerConfig::new(self.addrs[0]);
        config.addrs = self.addrs;
        config.limits = Limits {
            connections: keys.max_connections,
            idle: Duration::from_secs(idle.max(1)),
            ..Limits::default()
        };
        config.tls = crate::server::tls(&broker.config);
        let server = Server::bind(config, Arc::new(BrokerService::new(broker.clone())))
            .map_err(StartError::Listen)?;
        Ok(server.spawn())
    }
}

async fn identity(keys: &BrokerConfig, port: u16) -> Result<Identity, StartError> {
    let host = keys
        .broker
        .broker_ip1
        .clone()
        .unwrap_or_else(|| local_address(keys));
    let bracketed = |host: &str| {
        if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        }
    };
    let address = format!("{}:{port}", bracketed(&host));
    let resolved = tokio::net::lookup_host(&address)
        .await
        .ok()
        .and_then(|mut found| found.next());
    let store_host = resolved.ok_or_else(|| {
        StartError::Setting(format!(
            "brokerIP1: the host \"{host}\" has no address; set it to one that clients reach"
        ))
    })?;
    let ha_host = keys.broker.broker_ip2.clone().unwrap_or(host);
    Ok(Identity {
        cluster: keys.broker.broker_cluster_name.clone(),
        name: keys.broker.broker_name.clone(),
        id: keys.broker.broker_id,
        address,
        store_host,
        ha_address: format!("{}:{}", bracketed(&ha_host), port.saturating_add(1)),
    })
}

/// The address given to others when brokerIP1 is not set: the bound one, or that of the interface by which this
/// machine reaches others.
fn local_address(keys: &BrokerConfig) -> String {
    if let Some(ip) = keys.bind_ip().ok().filter(|ip| !ip.is_unspecified()) {
        return ip.to_string();
    }
    // No packet is sent: connecting a datagram socket only chooses the interface.
    let chosen = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket
            .connect("192.0.2.1:9")
            .and_then(|()| socket.local_addr())
    });
    chosen.map_or_else(|_| "127.0.0.1".to_owned(), |addr| addr.ip().to_string())
}
