//! The mini-MQ broker as a library.
//!
//! Reading path: [`broker`] (the state, one noun a field), [`server`] (from a request code to its handler),
//! then the folder of the noun: `topic/`, `send/`, `pull/`, ….
#![recursion_limit = "256"]
#![forbid(unsafe_code)]

pub mod access;
pub mod admin;
pub mod broker;
pub mod client_registry;
mod command_line;
pub mod config;
pub mod delay;
pub mod filter;
pub mod filter_server_registry;
pub mod offset;
pub mod pull;
pub mod query;
pub mod queue_lock;
pub mod registration;
pub mod request;
mod saved;
pub mod send;
pub mod server;
pub mod stats;
pub mod subscription_group;
pub mod topic;
pub mod transaction;

pub use broker::{Broker, StartError};
pub use command_line::run;
pub use config::BrokerConfig;
