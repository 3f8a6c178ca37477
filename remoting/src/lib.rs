//! Transport of mini-MQ: remoting servers and clients on tokio (wire spec 1, 2, 9, 10).
//!
//! To read it, begin with [`service`] (what a role implements), go on to `task` (one connection at work) with
//! `reader` and [`FrameBuffer`] before and behind it, then [`server`] and [`client`]. What the frames mean is the
//! business of `minimq_protocol` and the roles.
#![forbid(unsafe_code)]

mod answers;
mod budget;
mod buffer_pool;
mod calls;
pub mod client;
pub mod connection;
pub mod error;
mod frame_buffer;
pub mod limits;
mod reader;
mod registry;
pub mod server;
pub mod service;
mod stream;
mod task;
pub mod tls;

pub use answers::{Answers, DeferredAnswers, Responder};
pub use client::{Client, ClientConfig};
pub use connection::{Connection, PendingCall, RequestSigner};
pub use error::{CallError, CloseReason, SendError};
pub use frame_buffer::FrameBuffer;
pub use limits::Limits;
pub use server::{Server, ServerConfig, ServerHandle};
pub use service::{NoServerRequests, ServerRequests, Service};
pub use tls::{ClientAuth, ClientTls, ServerTls, TlsError, TlsMode};
