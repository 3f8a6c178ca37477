//! The name server: the cluster's phone book. Brokers tell it who they are and what they hold, clients ask it where a
//! topic is. Everything is in memory and comes back with the brokers' next registrations; only the KV configuration
//! and changed settings are on disk. Several name servers know nothing of each other.
//!
//! To read it, begin with [`registry`] (the state, without sockets or clocks), go on to `handler` (from a request to
//! its answer) and [`server`] (start, timers, stop). [`kv_config`] and [`config`] are on their own; [`run`] is the
//! program `mqnamesrv`.
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

mod command_line;
pub mod config;
mod handler;
pub mod kv_config;
pub mod registry;
pub mod server;

pub use command_line::run;
pub use config::NamesrvConfig;
pub use handler::OnUpdate;
pub use server::{NameServer, Running, StartError};
