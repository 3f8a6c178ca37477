//! What can go wrong between two peers, and why a connection ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use minimq_protocol::FrameError;

/// Why a connection ended. The first reason counts.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed its side.
    #[error("closed by the peer")]
    Peer,
    /// Nothing was read or written for the idle time.
    #[error("idle: nothing received or sent for {}", seconds(*.after))]
    Idle {
        /// The idle time that ran out.
        after: Duration,
    },
    /// Bytes waited to be written and the peer took none.
    #[error("the peer took none of {waiting} waiting bytes for {}", seconds(*.after))]
    WriteStall {
        /// The time without progress.
        after: Duration,
        /// Bytes that waited.
        waiting: usize,
    },
    /// A frame was begun and not finished in time.
    #[error("a frame was begun and not finished within {}", seconds(*.after))]
    SlowFrame {
        /// The time a frame may take.
        after: Duration,
    },
    /// The peer sent something that is no frame.
    #[error("bad frame: {0}")]
    BadFrame(#[source] FrameError),
    /// There was no memory left for a large frame that had begun.
    #[error(
        "no room for a frame of {frame_len} bytes: begun frames of all connections already hold the {limit} bytes they may"
    )]
    NoRoom {
        /// Length the frame announced.
        frame_len: usize,
        /// The limit for all connections together.
        limit: usize,
    },
    /// More bytes waited for the peer than the outbox may hold.
    #[error("{queued} bytes wait for the peer, {limit} are allowed")]
    OutboxFull {
        /// Bytes that waited.
        queued: usize,
        /// The limit.
        limit: usize,
    },
    /// A call ran out of time and nothing at all came from the peer meanwhile.
    #[error("the peer was silent for the whole time of a call ({})", seconds(*.after))]
    Silent {
        /// Time-out of that call.
        after: Duration,
    },
    /// The socket failed.
    #[error("{0}")]
    Io(Arc<std::io::Error>),
    /// TLS could not be agreed on.
    #[error("TLS: {0}")]
    Tls(Arc<str>),
    /// The server or client shuts down.
    #[error("shutting down")]
    Shutdown,
    /// The service panicked while it handled a request.
    #[error("the service panicked: {0}")]
    Panic(Arc<str>),
    /// The role asked for it.
    #[error("{0}")]
    Requested(&'static str),
}

/// A frame was not accepted for sending.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The connection has ended.
    #[error("connection to {peer} has ended: {reason}")]
    Closed {
        /// The other side.
        peer: SocketAddr,
        /// Why.
        reason: CloseReason,
    },
    /// The peer takes bytes more slowly than they come.
    #[error("{queued} bytes wait for {peer} to take them, {limit} are allowed")]
    OutboxFull {
        /// The other side.
        peer: SocketAddr,
        /// Bytes waiting.
        queued: usize,
        /// Bytes that may wait.
        limit: usize,
    },
    /// All peers together take bytes more slowly than they come.
    #[error(
        "{queued} bytes wait for all peers together, {limit} are allowed; some already wait for {peer}"
    )]
    AllFull {
        /// The other side.
        peer: SocketAddr,
        /// Bytes waiting for all.
        queued: usize,
        /// Bytes that may wait for all.
        limit: usize,
    },
    /// No peer accepts such a frame.
    #[error("frame of {len} bytes for {peer} is longer than the {limit} a frame may have")]
    TooLong {
        /// The other side.
        peer: SocketAddr,
        /// Length of the frame.
        len: usize,
        /// Longest frame.
        limit: usize,
    },
}

/// A request got no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No connection could be made.
    #[error("cannot connect to {addr}: {reason}")]
    Connect {
        /// Address as given.
        addr: Arc<str>,
        /// What failed.
        reason: Arc<str>,
    },
    /// The last attempts to connect failed and it is too early for another.
    #[error("cannot connect to {addr}, next attempt in {} ms: {reason}", .wait.as_millis())]
    BackingOff {
        /// Address as given.
        addr: Arc<str>,
        /// Time until the next attempt.
        wait: Duration,
        /// What failed last.
        reason: Arc<str>,
    },
    /// The answer did not come in time.
    #[error("no answer to request code {code} from {peer} within {} ms", .timeout.as_millis())]
    Timeout {
        /// The other side, or the address that was being connected to.
        peer: Arc<str>,
        /// Request code.
        code: i32,
        /// The time-out.
        timeout: Duration,
    },
    /// Too many requests wait for answers on this connection.
    #[error("{limit} requests to {peer} already wait for their answers")]
    TooMany {
        /// The other side.
        peer: SocketAddr,
        /// How many may wait.
        limit: usize,
    },
    /// The request could not be sent, or the connection ended before the answer came.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl CallError {
    /// Is it certain that the peer never saw the request?
    pub fn never_sent(&self) -> bool {
        match self {
            CallError::Connect { .. }
            | CallError::BackingOff { .. }
            | CallError::TooMany { .. } => true,
            CallError::Send(error) => !matches!(error, SendError::Closed { .. }),
            CallError::Timeout { .. } => false,
        }
    }
}

fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(10) && time.subsec_millis() != 0 {
        format!("{} ms", time.as_millis())
    } else {
        format!("{} s", time.as_secs())
    }
}
