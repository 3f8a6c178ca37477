//! Message filters as uploaded WebAssembly: what a module may contain, how it is compiled, and how it
//! runs over messages within limits of time and memory. No network, no files, no role.
//!
//! Reading path: [`module`](crate::Engine::compile) (what is accepted, with the reason when it is not),
//! [`abi`] (the functions between host and guest), [`Instance`] (one sandbox), [`Batch`] (messages through it).
#![forbid(unsafe_code)]

pub mod abi;
mod budget;
mod effort;
mod engine;
mod host;
mod instance;
mod module;
mod property_index;
mod ticker;
mod time_limit;

pub use engine::{Engine, EngineConfig, Filter, FilterHash};
pub use instance::{Batch, Failure, FilterContext, Instance, InstanceError};
pub use module::CompileError;
