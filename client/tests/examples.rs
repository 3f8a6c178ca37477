//! Every example runs against a cluster, shows what it is for, and ends by itself.

mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use support::{Cluster, eventually};

const NAMES: [&str; 12] = [
    "batch",
    "broadcast",
    "delay",
    "lite_pull",
    "ordered",
    "quickstart",
    "request_reply",
    "sql_filter",
    "stream",
    "tag_filter",
    "transaction",
    "wasm_filter",
];

/// Examples are built with the tests, into a folder beside theirs.
fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(2).unwrap();
    target.join("examples").join(name)
}

async fn run(name: &str, cluster: &Cluster) {
    let mut command = Command::new(program(name));
    command
        .env("NAMESRV_ADDR", cluster.name_server_addr())
        .env("HOME", cluster.folder())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let started = command.spawn();
    let process = started.unwrap_or_else(|error| panic!("example {name}: {error}"));
    let process = Mutex::new(Some(process));
    eventually(&format!("example {name} ends"), async || {
        let mut process = process.lock();
        process.as_mut().unwrap().try_wait().unwrap().is_some()
    })
    .await;
    let output = process.lock().take().unwrap().wait_with_output().unwrap();
    let (said, failed) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "example {name}: {}\n{said}\n{failed}",
        output.status
    );
    assert!(!said.trim().is_empty(), "example {name} shows nothing");
}

#[test]
fn every_example_is_run() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .filter(|name| name != "interop")
        .collect();
    found.sort();
    assert_eq!(found, NAMES);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_shows_its_point_and_ends() {
    let cluster = Cluster::start().await;
    let filter_server = cluster.filter_server().await;
    for name in NAMES {
        run(name, &cluster).await;
    }
    filter_server.stop(Duration::ZERO).await;
}
