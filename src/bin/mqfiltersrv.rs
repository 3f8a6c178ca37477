//! The filter server as a program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    minimq_filtersrv::run(std::env::args_os())
}
