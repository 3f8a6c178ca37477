//! mini-MQ in one process: a whole cluster (name server, brokers, filter servers) for trying, developing and for
//! other people's tests.
//!
//! ```no_run
//! # async fn test() -> Result<(), minimq::ClusterError> {
//! let cluster = minimq::Cluster::builder().start().await?;
//! // Producers and consumers connect to this:
//! println!("{}", cluster.name_server());
//! // Free ports, a temporary folder; all of it is gone when `cluster` is dropped.
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod cluster;
pub mod command_line;
mod data;
mod demo;

pub use cluster::{Cluster, ClusterBuilder, ClusterError, Ports};
pub use data::{Data, DataError};
