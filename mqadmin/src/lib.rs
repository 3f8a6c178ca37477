//! `mqadmin`: the tool with which people run a cluster, with the stock tool's commands and option letters.
//!
//! A command is data ([`command::CommandSpec`]: name, options, an example) and a function from what was given to a
//! [`report::Report`]: tables for people, JSON for scripts. Requests are the client crate's: none is encoded here.
//! To read it, begin with `run`, go on to `given`, then to a family of `commands`.
#![forbid(unsafe_code)]

mod arguments;
mod command;
mod commands;
mod credentials;
mod failure;
mod given;
mod plan;
mod report;
mod run;
mod text;

pub use run::run;
