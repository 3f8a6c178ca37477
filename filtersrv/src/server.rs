//! A running filter server: start, housekeeping, stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minimq_common::acl::{AccessControl, AclFileError};
use minimq_common::clock::Clock;
use minimq_common::config::{Config, Invalid};
use minimq_filter_engine::{CompileError, Engine};
use minimq_protocol::body::FilterServerStats;
use minimq_remoting::{Client, ClientConfig, Server, ServerConfig, ServerHandle, TlsError};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::active_filter::Key;
use crate::batch::BatchRunner;
use crate::compiler::Compiler;
use crate::config::FiltersrvConfig;
use crate::filter_registry::FilterRegistry;
use crate::flow::{Flow, FlowLimits};
use crate::handler::Handler;
use crate::registration::{Registration, Signer};
use crate::repository::{Repository, is_class_name};
use crate::upload;

/// Filters' figures go to the log so often.
const LOG: Duration = Duration::from_secs(60);
/// Time between two looks at the accounts' file.
const ACCOUNTS: Duration = Duration::from_secs(5);
/// Open requests have so long once nothing new is taken.
const FINISH: Duration = Duration::from_secs(2);

/// Why a filter server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting.
    #[error("{0}")]
    Config(#[from] Invalid),
    /// The file of accounts.
    #[error("aclFile: {0}")]
    Accounts(#[from] AclFileError),
    /// The WebAssembly engine.
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(#[from] CompileError),
    /// Certificates.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The port, a file of TLS, or a thread.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The filter server; see [`FilterServer::start`].
#[derive(Debug, Clone, Copy)]
pub struct FilterServer;

/// A serving filter server. Dropped, it goes on serving.
pub struct Running {
    server: ServerHandle,
    state: Arc<State>,
    unlist: CancellationToken,
    registering: tokio::task::JoinHandle<()>,
}

/// Everything a filter server knows.
pub(crate) struct State {
    pub(crate) config: Arc<FiltersrvConfig>,
    pub(crate) access: Option<Arc<AccessControl>>,
    engine: Engine,
    pub(crate) compiler: Compiler,
    pub(crate) registry: Mutex<FilterRegistry>,
    /// Wakes pulls that wait for an upload.
    pub(crate) uploaded: Notify,
    /// Bytes of uploads under way.
    pub(crate) uploads: Arc<Semaphore>,
    pub(crate) batches: BatchRunner,
    pub(crate) flow: Arc<Flow>,
    /// Pulls go out by it.
    pub(crate) client: Client,
    pub(crate) registration: Arc<Registration>,
    repository: Option<Arc<Repository>>,
    /// Fires when pulls have to end.
    pub(crate) stop: CancellationToken,
}

impl FilterServer {
    /// Takes the port, serves, and registers with the broker as soon as that can be reached. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]. A broker that is away is none.
    pub fn start(config: &Config<FiltersrvConfig>) -> Result<Running, StartError> {
        let keys = config.to_arc();
        let access = if keys.acl_enable {
            Some(Arc::new(AccessControl::open(keys.acl(), Clock::system())?))
        } else {
            None
        };
        let engine = Engine::new(keys.engine())?;
        let compiler = Compiler::start(engine.clone(), keys.max_compile_queue)?;
        let client = || {
            let config = ClientConfig {
                signer: Signer::of(&keys),
                ..ClientConfig::default()
            };
            Client::new(config)
        };
        let bytes =
            |size: minimq_common::config::ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        let limits = FlowLimits {
            pulls_per_group: keys.max_pulls_per_group,
            pulls: keys.max_pulls,
            bytes_per_group: bytes(keys.max_pulled_bytes_per_group),
            bytes: bytes(keys.max_pulled_bytes),
        };
        let budget = Duration::from_millis(keys.filter_batch_timeout);
        let repository = if keys.client_upload_filter_class_enable {
            None
        } else {
            Some(Arc::new(Repository::new(&keys)?))
        };
        let state = Arc::new(State {
            registration: Arc::new(Registration::new(&keys, client()?)),
            batches: BatchRunner::new(keys.threads(), keys.error_policy()?, budget),
            registry: Mutex::new(FilterRegistry::new(keys.max_filters)),
            uploaded: Notify::new(),
            uploads: Arc::new(Semaphore::new(upload::PERMITS)),
            flow: Flow::new(limits),
            client: client()?,
            repository,
            stop: CancellationToken::new(),
            access,
            engine,
            compiler,
            config: keys.clone(),
        });
        let server = ServerConfig {
            addrs: vec![keys.listen_addr()?],
            limits: keys.limits(),
            tls: keys.tls(),
        };
        // The port is known once it is taken, and told before anything is served.
        let server = Server::bind(server, Arc::new(Handler(state.clone())))?;
        let port = server.local_addrs().first().map_or(0, SocketAddr::port);
        state.registration.set_address(keys.advertised(port));
        let server = server.spawn();
        state.spawn_tasks();
        let unlist = CancellationToken::new();
        let registering = tokio::spawn(state.registration.clone().keep(unlist.clone()));
        let running = Running {
            server,
            state,
            unlist,
            registering,
        };
        running.warn_if_open();
        Ok(running)
    }
}

impl State {
    fn spawn_tasks(self: &Arc<Self>) {
        if let Some(access) = &self.access {
            tokio::spawn(access.clone().watch(ACCOUNTS, self.stop.clone()));
        }
        if let Some(repository) = &self.repository {
            tokio::spawn(repository.clone().keep(self.clone()));
        }
        let state = self.clone();
        tokio::spawn(async move { state.stop.run_until_cancelled(state.keep_house()).await });
        let state = self.clone();
        tokio::spawn(async move { state.stop.run_until_cancelled(state.keep_log()).await });
    }

    /// Forgets what is unused.
    async fn keep_house(&self) {
        let expiry = Duration::from_millis(self.config.filter_expiry);
        let period = (expiry / 4).clamp(Duration::from_millis(25), Duration::from_secs(15));
        loop {
            tokio::time::sleep(period).await;
            for filter in self.registry.lock().expire(expiry, Instant::now()) {
                tracing::info!(key = %filter.key, class = %filter.class_name, hash = %filter.hash(), "filter unused, forgotten");
            }
        }
    }

    async fn keep_log(&self) {
        loop {
            tokio::time::sleep(LOG).await;
            let list = self.registry.lock().list();
            for (filter, users) in list {
                filter.log_news(users, Instant::now());
            }
        }
    }

    /// Repository mode: a group wants the class of this name. The error is the remark.
    pub(crate) fn want_class(&self, key: &Key, name: &str) -> Result<(), String> {
        if !is_class_name(name) {
            return Err(format!(
                "className {name:?} is no name of the repository: letters, digits, . _ - $"
            ));
        }
        let registered = self
            .registry
            .lock()
            .register_class(key, name, Instant::now());
        if registered.map_err(|error| error.to_string())?
            && let Some(repository) = &self.repository
        {
            repository.wanted.notify_one();
        }
        Ok(())
    }

    /// Repository mode: whether a group waits for its filter.
    pub(crate) fn lacks_filter(&self, key: &Key) -> bool {
        self.registry.lock().lacks_filter(key)
    }

    /// All figures.
    pub(crate) fn figures(&self) -> FilterServerStats {
        let list = self.registry.lock().list();
        let now = Instant::now();
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        FilterServerStats {
            broker_addr: self.config.connect_which_broker.clone(),
            broker_name: self.registration.broker().map(|broker| broker.name),
            filters: list
                .iter()
                .map(|(filter, users)| filter.figures(*users, now))
                .collect(),
            instance_memory: number(self.engine.instance_memory()),
            instances: number(self.engine.instances()),
            pulls: number(self.flow.pulls()),
        }
    }
}

impl Running {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// The address the broker is told, and consumers by it.
    pub fn advertised(&self) -> &str {
        self.state.registration.address()
    }

    /// Waits for the first registration with the broker: from then on pulls are served.
    pub async fn registered(&self) {
        self.state.registration.registered().await;
    }

    /// Figures of all filters.
    pub fn figures(&self) -> FilterServerStats {
        self.state.figures()
    }

    /// Open connections.
    pub fn connection_count(&self) -> usize {
        self.server.connection_count()
    }

    /// Has the broker take this server off its list, serves on for `drain` or until nobody is connected any more, lets
    /// open requests end, closes all connections. Says how many connections were cut off.
    pub async fn stop(self, drain: Duration) -> usize {
        self.unlist.cancel();
        let _ = self.registering.await;
        let deadline = tokio::time::Instant::now() + drain;
        while self.server.connection_count() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20).min(drain)).await;
        }
        self.state.stop.cancel();
        let cut_off = self.server.shutdown(FINISH).await;
        self.state.client.close_all();
        cut_off
    }

    fn warn_if_open(&self) {
        let addr = self.local_addr();
        if self.state.access.is_none() && !addr.ip().is_loopback() {
            tracing::warn!(
                "aclEnable=false: whoever reaches {addr} can upload filters and read every topic of the broker"
            );
        }
        if self
            .state
            .access
            .as_ref()
            .is_some_and(|access| access.is_empty())
        {
            tracing::warn!("aclFile has no accounts: nobody can upload filters or pull");
        }
        if self.state.config.acl_enable && self.state.config.access_key.is_none() {
            tracing::warn!(
                "aclEnable=true without accessKey: a broker with access control refuses this filter server"
            );
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Running")
            .field("local_addr", &self.local_addr())
            .finish_non_exhaustive()
    }
}
