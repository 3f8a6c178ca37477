//! The limits of a server's or client's connections in one table.

use std::time::Duration;

use minimq_protocol::frame::MAX_FRAME_LEN;

/// What one connection may use, and all of them together. Past a limit there is a named error, never growth.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Open connections; one more is closed as it comes.
    pub connections: usize,
    /// Longest frame in either direction, length word included.
    pub max_frame_len: usize,
    /// Requests of one peer that wait for an answer; one more is answered "system busy" (2).
    pub in_flight: usize,
    /// Our own requests to one peer that wait for an answer; one more fails.
    pub calls: usize,
    /// Bytes that wait to be taken by one peer; what does not fit is refused.
    pub outbox_bytes: usize,
    /// With so many bytes waiting for it, no further requests of a peer are read.
    pub pause_bytes: usize,
    /// Bytes that frames which have begun and are not whole may take, all connections together.
    pub begun_bytes_all: usize,
    /// Bytes that may wait to be taken, all connections together. Beyond it, peers for which something waits are
    /// read no further and nothing more is queued for them.
    pub outbox_bytes_all: usize,
    /// A connection that neither receives nor sends anything for so long is closed.
    pub idle: Duration,
    /// A connection that takes nothing of what waits for it for so long is closed.
    pub write_stall: Duration,
    /// A frame has to be whole so long after it began.
    pub frame_time: Duration,
    /// Time for the TLS handshake.
    pub handshake: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            max_frame_len: MAX_FRAME_LEN,
            in_flight: 65_536,
            calls: 65_536,
            outbox_bytes: 64 << 20,
            pause_bytes: 2 << 20,
            begun_bytes_all: 512 << 20,
            outbox_bytes_all: 2 << 30,
            idle: Duration::from_secs(120),
            write_stall: Duration::from_secs(30),
            frame_time: Duration::from_secs(120),
            handshake: Duration::from_secs(10),
        }
    }
}
