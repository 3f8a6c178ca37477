//! The program `mqfiltersrv` beside a cluster, with the client crate's consumers: what they get through their filters
//! while filter servers come, go, fall silent or are cut off.

mod failures;
mod harness;
mod program;
#[path = "../../filtersrv/tests/server/shared.rs"]
mod shared;
mod subscriptions;
