//! The name server as a program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    minimq_namesrv::run(std::env::args_os())
}
