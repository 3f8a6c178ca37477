//! [`Server`]: listens, accepts within limits, runs one task a connection, and ends in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Origin, RequestSerialize};
use crate::error::CloseReason;
use crate::limits::Limits;
use crate::registry::{Membership, Registry};
use crate::service::Service;
use crate::stream::Stream;
use crate::task::Task;
use crate::tls::{Acceptor, ServerTls};

/// Connections the kernel holds for us until they are accepted.
const BACKLOG: i32 = 1024;
/// First and longest wait after accepting failed (no descriptors left, for example).
const ACCEPT_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// Refused connections are logged at most once in this time.
const REFUSAL_LOG: Duration = Duration::from_secs(5);

/// Where a server listens and what it allows.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// Addresses to listen on; port 0 takes a free one. All share one service;
    /// [`Connection::listener`] tells them apart.
    pub addrs: Vec<SocketAddr>,
    /// Limits of its connections.
    pub limits: Limits,
    /// Which of them are encrypted, and how.
    pub tls: ServerTls,
}

impl ServerConfig {
    /// One address, default limits.
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            addrs: vec![addr],
            ..Self::default()
        }
    }
}

/// A server that has its ports and serves nobody yet.
pub struct Server<S: Service> {
    inner: Arc<Inner<S>>,
    listeners: Vec<TcpListener>,
    local: Vec<SocketAddr>,
}

/// A serving server. Dropped, it goes on serving; end it with [`shutdown`](Self::shutdown).
pub struct ServerHandle {
    registry: Arc<Registry>,
    counters: Arc<Counters>,
    local: Vec<SocketAddr>,
    stop: CancellationToken,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

struct Inner<S> {
    service: Arc<S>,
    registry: Arc<Registry>,
    acceptor: Option<Arc<Acceptor>>,
    counters: Arc<Counters>,
    refusal_logged: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Counters {
    accepted: AtomicU64,
    refused: AtomicU64,
}

impl<S: Service> Server<S> {
    /// Takes the ports and reads the certificates. Needs a running tokio runtime. An error names the address or the file.
    pub fn bind(config: ServerConfig, service: Arc<S>) -> io::Result<Self> {
        let listeners = config
            .addrs
            .iter()
            .map(|addr| listen(*addr))
            .collect::<io::Result<Vec<_>>>()?;
        let local = listeners
            .iter()
            .map(TcpListener::local_addr)
            .collect::<io::Result<Vec<_>>>()?;
        let acceptor = Acceptor::new(config.tls).map_err(io::Error::other)?;
        let inner = Inner {
            service,
            acceptor,
            registry: Registry::new(config.limits),
            counters: Arc::default(),
            refusal_logged: Mutex::new(None),
        };
        Ok(Self {
            inner: Arc::new(inner),
            listeners,
            local,
        })
    }

    /// The addresses it listens on, in the order of the configuration.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local
    }

    /// Begins to serve, on tasks of its own.
    pub fn spawn(self) -> ServerHandle {
        let Self {
            inner,
            listeners,
            local,
        } = self;
        let stop = CancellationToken::new();
        let mut tasks = vec![tokio::spawn(Registry::watch(Arc::downgrade(
            &inner.registry,
        )))];
        if let Some(acceptor) = &inner.acceptor {
            tasks.push(tokio::spawn(Acceptor::reload(Arc::downgrade(acceptor))));
        }
        for (index, listener) in listeners.into_iter().enumerate() {
            let inner = inner.clone();
            let stop = stop.clone();
            tasks.push(tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = inner.accept(index, &listener) => {}
                }
            }));
        }
        ServerHandle {
            registry: inner.registry.clone(),
            counters: inner.counters.clone(),
            local,
            stop,
            tasks: Mutex::new(tasks),
        }
    }
}

impl ServerHandle {
    /// The first address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addrs()[0]
    }

    /// The addresses it listens on, in the order of the configuration.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local
    }

    /// Open connections.
    pub fn connections(&self) -> Vec<Connection> {
        self.registry.connections()
    }

    /// How many connections are open.
    pub fn connection_count(&self) -> usize {
        self.registry.len()
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.counters.accepted.load(Ordering::Relaxed)
    }

    /// Connections closed as they came because the limit was reached.
    pub fn refused(&self) -> u64 {
        self.counters.refused.load(Ordering::Relaxed)
    }

    /// Stops accepting at once, lets each connection finish what it has begun for at most `drain`, then closes
    /// what is left. Says how many connections were cut off.
    pub async fn shutdown(&self, drain: Duration) -> usize {
        self.stop.cancel();
        let deadline = Instant::now() + drain;
        let connections = self.registry.connections();
        for connection in &connections {
            connection.drain();
        }
        let mut cut_off = 0;
        for connection in &connections {
            if tokio::time::timeout_at(deadline, connection.closed())
                .await
                .is_err()
            {
                cut_off += 1;
                connection.close(CloseReason::Shutdown);
            }
        }
        // One may have been accepted while the list was made.
        for connection in self.registry.connections() {
            connection.close(CloseReason::Shutdown);
            connection.closed().await;
        }
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        cut_off
    }
}

impl<S: Service> Inner<S> {
    async fn accept(self: &Arc<Self>, index: usize, listener: &TcpListener) {
        let mut pause = ACCEPT_PAUSE.0;
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    pause = ACCEPT_PAUSE.0;
                    if let Err(error) = self.open(index, stream, peer) {
                        tracing::debug!(%peer, %error, "connection lost as it was accepted");
                    }
                }
                // The peer has gone again: nothing to do with us.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections, next attempt in {} ms", pause.as_millis());
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE.1);
                }
            }
        }
    }

    fn open(
        self: &Arc<Self>,
        listener: usize,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let connection = Connection::new(Origin {
            id: self.registry.next_id(),
            peer,
            local: stream.local_addr()?,
            listener,
            limits: self.registry.limits().clone(),
            budgets: self.registry.budgets().clone(),
            serialize: RequestSerialize::AsPeer,
            signer: None,
        });
        let Some(membership) = self.registry.add(&connection) else {
            self.refuse(peer);
            return Ok(());
        };
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(self.clone().serve(connection, membership, stream));
        Ok(())
    }

    async fn serve(
        self: Arc<Self>,
        connection: Connection,
        membership: Membership,
        stream: TcpStream,
    ) {
        match self.secure(&connection, stream).await {
            Ok(stream) => {
                let task = Task::new(connection.clone(), self.service.clone(), stream);
                task.run().await;
            }
            Err(reason) => {
                tracing::debug!(peer = %connection.peer(), %reason, "connection ended before its first frame");
                connection.end(&reason);
            }
        }
        drop(membership);
    }

    /// Finds out whether the connection is to be encrypted, and agrees on it.
    async fn secure(
        &self,
        connection: &Connection,
        stream: TcpStream,
    ) -> Result<Stream, CloseReason> {
        let Some(acceptor) = &self.acceptor else {
            return Ok(Stream::Plain(stream));
        };
        tokio::select! {
            reason = connection.close_asked() => Err(reason),
            accepted = acceptor.accept(stream, connection.limits().handshake) => {
                let stream = accepted.map_err(|error| CloseReason::Tls(error.to_string().into()))?;
                connection.shared.secure.store(matches!(stream, Stream::Tls(_)), Ordering::Relaxed);
                Ok(stream)
            }
        }
    }

    fn refuse(&self, peer: SocketAddr) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut logged = self.refusal_logged.lock();
        if logged.is_none_or(|last| now.duration_since(last) >= REFUSAL_LOG) {
            *logged = Some(now);
            let limit = self.registry.limits().connections;
            tracing::warn!(%peer, "{limit} connections are open, no more are allowed: the new one is closed");
        }
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let bind = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    bind().map_err(|error| cannot_listen(&addr, &error))
}

/// Why an address cannot be listened on, and what to do about it; `addr` as the user knows it.
pub fn cannot_listen(addr: &impl std::fmt::Display, error: &io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process uses this port: stop it, or choose another: --listen, key listenPort, or --port-base of minimq"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this machine does not have that address: see bindAddress"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need root: choose one above",
        _ => "",
    };
    io::Error::new(
        error.kind(),
        format!("cannot listen on {addr}: {error}{remedy}"),
    )
}
