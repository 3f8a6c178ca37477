//! The filter server: stands beside one broker, takes filters that consumers upload (WebAssembly), pulls messages for
//! them and passes on those their filter wants, byte for byte. It keeps nothing on disk; filters come back with the
//! consumers' next uploads.
//!
//! Reading path: [`server`] (start and stop), `handler` (from a request to its function), `upload` with `compiler`
//! (302), `filter_registry` (which filter serves which pull), `pull` (11) with `batch` (messages through a filter).
//! `registration` keeps the broker informed, `repository` fetches modules by HTTP, [`config`] has the keys; [`run`]
//! is the program `mqfiltersrv`. What a module may do is the business of `minimq_filter_engine`.
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

mod active_filter;
mod batch;
mod command_line;
mod compiler;
pub mod config;
mod filter_registry;
mod flow;
mod handler;
mod pull;
mod registration;
mod repository;
pub mod server;
mod statistics;
mod upload;

pub use command_line::run;
pub use config::FiltersrvConfig;
pub use server::{FilterServer, Running, StartError};
