//! The whole cluster in one process.

use std::process::ExitCode;

fn main() -> ExitCode {
    minimq::command_line::run()
}
