//! Load for brokers, and the yardstick they are measured with.
//!
//! Reading path: [`options`] (what can be asked for), [`echo`] (the yardstick: a bare server that appends what comes to
//! a file), [`send`], [`pull`], [`e2e`] and [`cold`] (the four loads), [`suite`] (all of
//! them in turn, as a table), [`filter`] (filter server and broker together), [`measure`] (what is told of a run). Below them [`frames`]
//! makes requests once and stamps them for each use, and [`peer`] is a socket of the one thread that does everything.
//!
//! The generator shares the machine with the server it measures, so it is written to be cheap: one thread, no
//! allocation for a message, answers looked at only as far as needed.
#![forbid(unsafe_code)]

pub mod cold;
pub mod e2e;
pub mod echo;
pub mod filter;
pub mod frames;
pub mod measure;
pub mod options;
pub mod peer;
pub mod pull;
pub mod send;
pub mod suite;

use std::io::{self, Write};

/// Nobody reads the figures any more.
#[derive(Debug, Clone, Copy)]
pub struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("whoever read the output has closed it")
    }
}

impl std::error::Error for ReaderGone {}

/// Prints a line of figures.
///
/// # Errors
/// [`ReaderGone`], or what else is wrong with the output.
pub fn tell(line: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        result => Ok(result?),
    }
}
