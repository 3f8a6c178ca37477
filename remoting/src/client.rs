//! [`Client`]: one pipelined connection for each address, made when it is first needed and shared by all callers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dashmap::DashMap;
use minimq_protocol::{Command, SerializeType};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::connection::{Connection, Origin, RequestSerialize, RequestSigner};
use crate::error::{CallError, CloseReason};
use crate::limits::Limits;
use crate::registry::Registry;
use crate::service::{ClientSide, NoServerRequests, ServerRequests};
use crate::stream::Stream;
use crate::task::Task;
use crate::tls::{ClientTls, Connector, TlsError};

/// How a client connects and what it allows.
#[derive(Clone)]
pub struct ClientConfig {
    /// Limits of its connections.
    pub limits: Limits,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// After a failed attempt the next one waits so long, twice as long after each further failure.
    pub backoff_min: Duration,
    /// The longest such wait.
    pub backoff_max: Duration,
    /// Encoding of all requests; `None`: each as it says itself.
    pub serialize: Option<SerializeType>,
    /// Are connections encrypted, and how?
    pub tls: ClientTls,
    /// Signs each request.
    pub signer: Option<Arc<dyn RequestSigner>>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            connect_timeout: Duration::from_secs(3),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            serialize: None,
            tls: ClientTls::default(),
            signer: None,
        }
    }
}

/// A pool of connections by address. A cheap clone; when the last one is dropped the connections end.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    config: ClientConfig,
    side: Arc<ClientSide>,
    registry: Arc<Registry>,
    connector: Option<Connector>,
    peers: DashMap<Arc<str>, Arc<Peer>>,
}

/// One address and what is known of it.
struct Peer {
    addr: Arc<str>,
    live: Mutex<Option<Connection>>,
    /// Held by the one who connects; the others wait for it.
    connecting: tokio::sync::Mutex<Failures>,
}

#[derive(Default)]
struct Failures {
    in_a_row: u32,
    last: Option<(Instant, Arc<str>)>,
}

impl Client {
    /// A client that refuses all requests of servers. Needs a running tokio runtime; fails only by its TLS settings.
    pub fn new(config: ClientConfig) -> Result<Self, TlsError> {
        Self::with_requests(config, Arc::new(NoServerRequests))
    }

    /// A client that hands requests of servers to `requests`.
    pub fn with_requests(
        config: ClientConfig,
        requests: Arc<dyn ServerRequests>,
    ) -> Result<Self, TlsError> {
        let connector = Connector::new(&config.tls)?;
        let registry = Registry::new(config.limits.clone());
        tokio::spawn(Registry::watch(Arc::downgrade(&registry)));
        let inner = Inner {
            side: Arc::new(ClientSide(requests)),
            registry,
            connector,
            config,
            peers: DashMap::new(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A request to an address (`host:port`) and its answer, whatever its code. `timeout` includes connecting.
    pub async fn call(
        &self,
        addr: &str,
        request: Command,
        timeout: Duration,
    ) -> Result<Command, CallError> {
        if let Some(connection) = self.inner.live(addr) {
            return connection.call(request, timeout).await;
        }
        let code = request.code;
        let deadline = Instant::now() + timeout;
        match tokio::time::timeout_at(deadline, Box::pin(self.connect(addr))).await {
            Ok(connection) => {
                let left = deadline.saturating_duration_since(Instant::now());
                connection?.call(request, left).await
            }
            Err(_) => Err(CallError::Timeout {
                peer: addr.into(),
                code,
                timeout,
            }),
        }
    }

    /// A request without an answer. Returns when it is queued; connects first if need be.
    pub async fn oneway(&self, addr: &str, request: Command) -> Result<(), CallError> {
        let connection = match self.inner.live(addr) {
            Some(connection) => connection,
            None => Box::pin(self.connect(addr)).await?,
        };
        Ok(connection.oneway(request)?)
    }

    /// The open connection to an address, if there is one.
    pub fn connection(&self, addr: &str) -> Option<Connection> {
        self.inner.live(addr)
    }

    /// The connection to an address, made if there is none.
    pub async fn connect(&self, addr: &str) -> Result<Connection, CallError> {
        let peer = self.inner.peer(addr);
        if let Some(connection) = peer.live() {
            return Ok(connection);
        }
        let mut failures = peer.connecting.lock().await;
        if let Some(connection) = peer.live() {
            return Ok(connection);
        }
        if let Some((at, reason)) = &failures.last {
            let config = &self.inner.config;
            let wait = config
                .backoff_min
                .saturating_mul(1 << failures.in_a_row.min(16))
                .min(config.backoff_max);
            let wait = wait.saturating_sub(at.elapsed());
            if !wait.is_zero() {
                return Err(CallError::BackingOff {
                    addr: peer.addr.clone(),
                    wait,
                    reason: reason.clone(),
                });
            }
        }
        match self.inner.connect(&peer.addr).await {
            Ok(connection) => {
                *failures = Failures::default();
                *peer.live.lock() = Some(connection.clone());
                Ok(connection)
            }
            Err(reason) => {
                failures.in_a_row = failures
                    .in_a_row
                    .saturating_add(u32::from(failures.last.is_some()));
                failures.last = Some((Instant::now(), reason.clone()));
                Err(CallError::Connect {
                    addr: peer.addr.clone(),
                    reason,
                })
            }
        }
    }

    /// Closes the connection to an address; calls that wait on it fail at once. The next request connects anew.
    pub fn close(&self, addr: &str) {
        if let Some((_, peer)) = self.inner.peers.remove(addr)
            && let Some(connection) = peer.live.lock().take()
        {
            connection.close(CloseReason::Requested("closed by this side"));
        }
    }

    /// Closes all connections.
    pub fn close_all(&self) {
        self.inner.close_all();
    }

    /// Open connections.
    pub fn connections(&self) -> Vec<Connection> {
        self.inner.registry.connections()
    }
}

impl Peer {
    fn live(&self) -> Option<Connection> {
        let mut live = self.live.lock();
        if live.as_ref().is_some_and(Connection::is_closed) {
            *live = None;
        }
        live.clone()
    }
}

impl Inner {
    fn peer(&self, addr: &str) -> Arc<Peer> {
        if let Some(peer) = self.peers.get(addr) {
            return peer.clone();
        }
        let addr: Arc<str> = addr.into();
        let peer = || {
            Arc::new(Peer {
                addr: addr.clone(),
                live: Mutex::default(),
                connecting: Default::default(),
            })
        };
        self.peers.entry(addr.clone()).or_insert_with(peer).clone()
    }

    fn live(&self, addr: &str) -> Option<Connection> {
        self.peers.get(addr)?.live()
    }

    async fn connect(&self, addr: &Arc<str>) -> Result<Connection, Arc<str>> {
        let connecting = async {
            let stream = TcpStream::connect(&**addr).await?;
            stream.set_nodelay(true)?;
            let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
            // The kernel may choose the very port that is asked for as this side's: then the connection leads to itself,
            // and whoever is awaited there finds the port taken.
            if peer == local {
                return Err(std::io::ErrorKind::ConnectionRefused.into());
            }
            let stream = match &self.connector {
                Some(connector) => connector.connect(addr, stream).await?,
                None => Stream::Plain(stream),
            };
            Ok((stream, peer, local))
        };
        let timeout = self.config.connect_timeout;
        let connected: std::io::Result<(Stream, SocketAddr, SocketAddr)> =
            match tokio::time::timeout(timeout, connecting).await {
                Ok(connected) => connected,
                Err(_) => {
                    return Err(format!("no connection within {} ms", timeout.as_millis()).into());
                }
            };
        let (stream, peer, local) = connected.map_err(|error| Arc::from(error.to_string()))?;
        let connection = Connection::new(Origin {
            id: self.registry.next_id(),
            peer,
            local,
            listener: 0,
            limits: self.registry.limits().clone(),
            budgets: self.registry.budgets().clone(),
            serialize: self
                .config
                .serialize
                .map_or(RequestSerialize::AsIs, RequestSerialize::Always),
            signer: self.config.signer.clone(),
        });
        connection
            .shared
            .secure
            .store(self.connector.is_some(), Ordering::Relaxed);
        let Some(membership) = self.registry.add(&connection) else {
            return Err(format!(
                "{} connections are open, no more are allowed",
                self.config.limits.connections
            )
            .into());
        };
        let task = Task::new(connection.clone(), self.side.clone(), stream);
        tokio::spawn(async move {
            task.run().await;
            drop(membership);
        });
        Ok(connection)
    }

    fn close_all(&self) {
        for connection in self.registry.connections() {
            connection.close(CloseReason::Requested("the client was closed"));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close_all();
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("connections", &self.inner.registry.len())
            .finish()
    }
}
