//! The program `minimq-bench`.
#![forbid(unsafe_code)]

use std::sync::atomic::AtomicBool;

use clap::Parser;
use minimq_bench::options::{Mode, Options};
use minimq_bench::{ReaderGone, cold, e2e, echo, filter, pull, send, tell};

fn main() -> anyhow::Result<()> {
    match run(Options::parse()) {
        // Whoever reads the figures has seen enough.
        Err(error) if error.is::<ReaderGone>() => Ok(()),
        result => result,
    }
}

fn run(options: Options) -> anyhow::Result<()> {
    let (report, json) = match options.mode {
        Mode::AppendEcho(echo) => {
            let server = echo::AppendEcho::bind(&echo)?;
            tell(format_args!("append-echo serves {}", server.address()))?;
            // Ends with its process.
            return server.run(&AtomicBool::new(false));
        }
        Mode::Suite(suite) => return minimq_bench::suite::run(&suite),
        Mode::Filter(load) => return filter::run(&load),
        Mode::Send(load) => (send::run(&load)?, load.common.json),
        Mode::Pull(load) => (pull::run(&load)?, load.common.json),
        Mode::E2e(load) => (e2e::run(&load)?, load.common.json),
        Mode::Cold(load) => {
            let done = cold::run(&load)?;
            if !load.alone {
                eprintln!("read meanwhile: {} old messages", done.read);
            }
            (done.report, load.common.json)
        }
    };
    if json {
        tell(format_args!("{}", report.to_json()))?;
    } else {
        tell(format_args!("{report}"))?;
    }
    Ok(())
}
