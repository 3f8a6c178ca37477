//! The line a role prints once it serves: scripts and tests wait for it on standard output.

use std::fmt::Display;
use std::io::Write as _;

/// Writes one line to standard output at once. A closed output is no reason to stop a server, so
/// the line is lost then (`println!` would panic).
pub fn announce(line: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
