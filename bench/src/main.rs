//! The program `minimq-bench`.
#![forbid(unsafe_code)]

use std::sync::atomic::AtomicBool;

use clap::Parser;
use minimq_bench::options::{Mode, Options};
use minimq_bench::{cold, e2e, echo, filter, pull, send};

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let (report, json) = match options.mode {
        Mode::AppendEcho(echo) => {
            let server = echo::AppendEcho::bind(&echo)?;
            println!("append-echo serves {}", server.address());
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
        println!("{}", report.to_json());
    } else {
        println!("{report}");
    }
    Ok(())
}
