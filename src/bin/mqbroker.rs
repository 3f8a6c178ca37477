//! The broker as a process of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    minimq_broker::run()
}
