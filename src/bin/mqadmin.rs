//! The tool with which people run the cluster.

use std::process::ExitCode;

fn main() -> ExitCode {
    minimq_mqadmin::run(std::env::args())
}
