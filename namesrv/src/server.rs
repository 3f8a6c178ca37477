//! A running name server: start, timers, stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use minimq_common::acl::{AccessControl, AclFileError};
use minimq_common::atomic_file::AtomicFileError;
use minimq_common::clock::Clock;
use minimq_common::config::{Config, Invalid};
use minimq_remoting::{Server, ServerConfig, ServerHandle};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::config::NamesrvConfig;
use crate::handler::{Handler, OnUpdate, State};
use crate::kv_config::KvConfig;
use crate::registry::{Registry, View};

/// The first look for silent brokers, after the start.
const FIRST_SCAN: Duration = Duration::from_secs(5);
/// When the KV configuration is logged: first, and then again and again.
const KV_LOG: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(600));
/// Time between two looks at the accounts' file.
const ACCOUNTS: Duration = Duration::from_secs(5);

/// Why a name server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting.
    #[error("{0}")]
    Config(#[from] Invalid),
    /// The file of the KV configuration.
    #[error("kvConfigPath: {0}")]
    Kv(#[from] AtomicFileError),
    /// The file of accounts.
    #[error("aclFile: {0}")]
    Accounts(#[from] AclFileError),
    /// The port, or a file of TLS.
    #[error("{0}")]
    Listen(io::Error),
}

/// The name server; see [`NameServer::start`].
#[derive(Debug, Clone, Copy)]
pub struct NameServer;

/// A serving name server. Dropped, it goes on serving.
pub struct Running {
    server: ServerHandle,
    state: Arc<State>,
    stop: CancellationToken,
}

impl NameServer {
    /// Reads the KV configuration, takes the port and serves. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: Arc<Config<NamesrvConfig>>) -> Result<Running, StartError> {
        Self::start_with(config, Box::new(|_, _| ()))
    }

    /// As [`start`](Self::start); `on_update` is called with each change of settings made by a request.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_with(
        config: Arc<Config<NamesrvConfig>>,
        on_update: OnUpdate,
    ) -> Result<Running, StartError> {
        let keys = config.to_arc();
        let most = usize::try_from(keys.max_kv_config_size.0).unwrap_or(usize::MAX);
        let kv = KvConfig::load(keys.kv_config_path.clone(), most)?;
        let access = if keys.acl_enable {
            let settings = crate::handler::access_settings(&keys);
            Some(Arc::new(AccessControl::open(settings, Clock::system())?))
        } else {
            None
        };
        let registry = Registry::new(keys.rules());
        let state = Arc::new(State {
            view: registry.view().clone(),
            registry: Mutex::new(registry),
            kv,
            access,
            registered: DashMap::new(),
            slow: Semaphore::new(keys.max_slow_requests),
            waiting: AtomicUsize::new(0),
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            on_update,
            config,
        });
        let server = ServerConfig {
            addrs: vec![keys.listen_addr()?],
            limits: keys.limits(),
            tls: keys.tls(),
        };
        let handler = Arc::new(Handler(state.clone()));
        let server = Server::bind(server, handler).map_err(StartError::Listen)?;
        let running = Running {
            server: server.spawn(),
            state,
            stop: CancellationToken::new(),
        };
        running.warn_if_open();
        running.spawn_timers(&keys);
        Ok(running)
    }
}

impl Running {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// What is registered, to look at.
    pub fn view(&self) -> &Arc<View> {
        &self.state.view
    }

    /// Open connections.
    pub fn connection_count(&self) -> usize {
        self.server.connection_count()
    }

    /// Stops accepting, lets open requests end within `drain`, closes all connections. Says how many connections
    /// were cut off.
    pub async fn stop(&self, drain: Duration) -> usize {
        self.state.stopping.store(true, Ordering::Relaxed);
        self.stop.cancel();
        self.server.shutdown(drain).await
    }

    fn warn_if_open(&self) {
        let addr = self.local_addr();
        if self.state.access.is_none() && !addr.ip().is_loopback() {
            tracing::warn!(
                "aclEnable=false: whoever reaches {addr} can register brokers, delete topics and change settings"
            );
        }
        if let Some(access) = &self.state.access
            && access.is_empty()
        {
            tracing::warn!(
                "aclFile has no accounts: nobody can register a broker or change anything"
            );
        }
    }

    fn spawn_timers(&self, keys: &NamesrvConfig) {
        let period = Duration::from_millis(keys.scan_not_active_broker_interval);
        let state = self.state.clone();
        self.every(FIRST_SCAN.min(period), period, move || state.scan());
        let state = self.state.clone();
        self.every(KV_LOG.0, KV_LOG.1, move || state.kv.log());
        if let Some(access) = &self.state.access {
            tokio::spawn(access.clone().watch(ACCOUNTS, self.stop.clone()));
        }
    }

    /// Does something off the runtime's threads, first after a time and then again and again until the end.
    fn every(&self, first: Duration, period: Duration, work: impl Fn() + Send + Sync + 'static) {
        let stop = self.stop.clone();
        let work = Arc::new(work);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval_at(Instant::now() + first, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                let work = work.clone();
                if tokio::task::spawn_blocking(move || work()).await.is_err() {
                    tracing::error!("a timer's work failed; it is tried again in time");
                }
            }
        });
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Running")
            .field("local_addr", &self.local_addr())
            .finish_non_exhaustive()
    }
}
