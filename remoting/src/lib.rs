//! Transport of mini-MQ: remoting servers and clients on tokio (wire spec 1, 2, 9, 10).
//!
//! To read it, begin with [`service`] (what a role implements), go on to `task` (one connection at work) with
//! `reader` and [`FrameBuffer`] before and behind it, then [`server`] and [`client`]. What the frames mean is the
//! business of `minimq_protocol` and the roles.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use minimq_protocol::{Command, NoHeader};
//! use minimq_remoting::{Answers, Client, ClientConfig, Connection, Server, ServerConfig, Service};
//!
//! struct Echo;
//!
//! impl Service for Echo {
//!     type Session = ();
//!     fn open(&self, _connection: &Connection) {}
//!     fn request(&self, _session: &mut (), request: Command, answers: &mut Answers<'_>) {
//!         match request.code {
//!             1 => answers.answer_head(request.id(), 0, None, None::<&NoHeader>, &[request.body.clone()]),
//!             _ => answers.unknown_code(&request),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse()?), Arc::new(Echo))?.spawn();
//! let client = Client::new(ClientConfig::default())?;
//! let request = Command::request(1).with_body("hello");
//! let answer = client.call(&server.local_addr().to_string(), request, Duration::from_secs(3)).await?;
//! assert_eq!(answer.body, "hello");
//! server.shutdown(Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```
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
pub use server::{Server, ServerConfig, ServerHandle, cannot_listen};
pub use service::{NoServerRequests, ServerRequests, Service};
pub use tls::{ClientAuth, ClientTls, ServerTls, TlsError, TlsMode};
