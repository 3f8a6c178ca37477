//! What the examples share: the cluster's address, names that are new with each run, waiting with an end.
#![allow(dead_code, unreachable_pub)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use minimq_client::{Client, StartFrom};

/// A client of `NAMESRV_ADDR`, or of a cluster on this machine.
pub async fn client() -> Result<Client> {
    let addr = std::env::var("NAMESRV_ADDR").unwrap_or_else(|_| "127.0.0.1:9876".to_owned());
    Ok(Client::connect(addr).await?)
}

/// ms since 1970.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

/// A name of this run's own, so that an example finds nothing of the run before.
pub fn own(name: &str) -> String {
    format!("{name}-{}-{}", std::process::id(), now_ms())
}

/// Consumes everything of this run's topic.
pub const START: StartFrom = StartFrom::Beginning;

/// Waits until something holds, at most 30 s.
pub async fn wait_for(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    for _ in 0..3000 {
        if holds() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("not within 30 s: {what}")
}
