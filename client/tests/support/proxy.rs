//! A proxy that makes faults: everything before a server can be delayed, cut in mid-answer, or swallowed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Answers come that much later.
    Delay(Duration),
    /// Nothing comes through any more, connections stay open.
    BlackHole,
    /// Nothing comes through on connections that are open now; new ones work.
    Stale,
    /// After that many more bytes of answers a connection ends, wherever that is; new ones work alike.
    CutAfter(usize),
    /// Connections end, new ones are closed at once.
    Down,
}

/// Listens somewhere, passes on to `target`.
pub struct Proxy {
    addr: SocketAddr,
    fault: watch::Sender<Fault>,
    target: Arc<Mutex<SocketAddr>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Listens at `addr`; port 0 takes a free one.
    pub async fn start(addr: SocketAddr, target: SocketAddr) -> Self {
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (fault, watched) = watch::channel(Fault::None);
        let target = Arc::new(Mutex::new(target));
        let to = target.clone();
        let task = tokio::spawn(async move {
            while let Ok((inbound, _)) = listener.accept().await {
                let (watched, to) = (watched.clone(), *to.lock());
                tokio::spawn(async move {
                    if *watched.borrow() != Fault::Down
                        && let Ok(outbound) = TcpStream::connect(to).await
                    {
                        both_ways(inbound, outbound, watched).await;
                    }
                });
            }
        });
        Self {
            addr,
            fault,
            target,
            task,
        }
    }

    /// Where to connect instead of to the target.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where new connections go.
    pub fn to(&self, target: SocketAddr) {
        *self.target.lock() = target;
    }

    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.fault.send_replace(Fault::Down);
    }
}

async fn both_ways(inbound: TcpStream, outbound: TcpStream, watched: watch::Receiver<Fault>) {
    let fresh = *watched.borrow() == Fault::Stale;
    let (from_client, to_client) = inbound.into_split();
    let (from_server, to_server) = outbound.into_split();
    // When one direction ends both do: a connection is whole or gone.
    tokio::select! {
        () = pass(from_client, to_server, watched.clone(), (false, fresh)) => {}
        () = pass(from_server, to_client, watched, (true, fresh)) => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut watched: watch::Receiver<Fault>,
    (answers, fresh): (bool, bool),
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut left = None;
    loop {
        let fault = match *watched.borrow_and_update() {
            Fault::Stale if fresh => Fault::None,
            Fault::Stale => Fault::BlackHole,
            fault => fault,
        };
        let read = tokio::select! {
            changed = watched.changed() => {
                if changed.is_err() {
                    return;
                }
                left = None;
                continue;
            }
            read = from.read(&mut buffer), if !matches!(fault, Fault::BlackHole | Fault::Down) => read,
            () = std::future::ready(()), if fault == Fault::Down => return,
        };
        let Ok(read @ 1..) = read else { return };
        let mut passed = read;
        match fault {
            Fault::Delay(time) if answers => tokio::time::sleep(time).await,
            Fault::CutAfter(bytes) if answers => {
                let rest = left.unwrap_or(bytes);
                passed = read.min(rest);
                left = Some(rest - passed);
            }
            _ => {}
        }
        if to.write_all(&buffer[..passed]).await.is_err() || left == Some(0) {
            return;
        }
    }
}
