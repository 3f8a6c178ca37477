//! The code on the project's pages is what it says: shell blocks are run as they stand, Rust blocks stand here word for
//! word and are run, Java blocks stand in the programs of tests/interop.

use std::path::{Path, PathBuf};
use std::process::Command as Process;

use minimq_client::{Client, Filter, Message, StartFrom};
use minimq_filter_sdk::filter;

/// Blocks of a page in one language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once(&format!("```{language}\n")) {
        let (block, after) = after.split_once("```").expect("a block ends");
        blocks.push(block.to_owned());
        rest = after;
    }
    blocks
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// Whether `block` stands in `source`, apart from how its lines are broken.
fn stands_in(block: &str, source: &str) -> bool {
    let text = |text: &str| {
        text.split_whitespace()
            .collect::<String>()
            .replace(",)", ")")
    };
    text(source).contains(&text(block))
}

#[test]
fn rust_and_java_blocks_are_those_that_are_run() {
    let here = page("tests/readme.rs");
    let blocks_here = blocks(&page("README.md"), "rust");
    assert_eq!(blocks_here.len(), 5);
    for block in blocks_here {
        // The address is the only thing that differs.
        let block = block.replace("\"127.0.0.1:9876\"", "name_server");
        assert!(stands_in(&block, &here), "not run here:\n{block}");
    }
    let java = page("tests/interop/java/src/main/java/minimq/interop/Basic.java");
    let blocks_java = blocks(&page("README.md"), "java");
    assert_eq!(blocks_java.len(), 1);
    for block in blocks_java {
        let block = block.replace("\"127.0.0.1:9876\"", "c.namesrv");
        assert!(stands_in(&block, &java), "not run there:\n{block}");
    }
}

#[filter]
fn affordable(message: &minimq_filter_sdk::Message) -> bool {
    message
        .property_f64("price")
        .is_ok_and(|price| price <= 100.0)
}

async fn produce(name_server: &str) -> minimq_client::Result<()> {
    let client = Client::connect(name_server).await?;
    let producer = client.producer("my-producers").build().await?;
    let receipt = producer
        .send(Message::new("Orders", "hello").tag("TagA"))
        .await?;
    println!("stored as {}", receipt.id);
    Ok(())
}

async fn consume(name_server: &str, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect(name_server).await?;
    let orders = client
        .push_consumer("my-consumers")
        .subscribe("Orders", Filter::tags("TagA || TagB"));
    let orders = orders
        .start_from(StartFrom::Beginning)
        .run(|order| async move { println!("{}: {:?}", order.id(), order.body()) })
        .await?;
    while orders.unfinished() > 0 || orders.assignment().is_empty() {
        tokio::task::yield_now().await;
    }
    orders.shutdown().await;

    let sdk = minimq_filter_sdk::Message::new("Orders").with_property("price", "99.5");
    assert!(
        affordable(&sdk),
        "the function runs in a test like this one"
    );
    // What `affordable` is compiled to differs; the server takes any module.
    let text = include_str!("../filtersrv/examples/price.wat");
    std::fs::write(folder.join("affordable.wasm"), text)?;
    std::env::set_current_dir(folder)?;
    let filter = Filter::wasm_file("affordable.wasm")?;
    let bargains = client
        .push_consumer("bargain-hunters")
        .subscribe("Orders", filter);
    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    let bargains = bargains
        .start_from(StartFrom::Beginning)
        .run(move |order| {
            let _ = told.send(order.body().clone());
            async {}
        })
        .await?;
    let producer = client.producer("sellers").build().await?;
    for price in [200, 50] {
        let order = Message::new("Orders", price.to_string());
        producer
            .send(order.property("price", price.to_string()))
            .await?;
    }
    assert_eq!(tells.recv().await.unwrap(), "50");
    bargains.shutdown().await;
    client.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rust_blocks_of_the_readme_run() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = minimq::Cluster::builder().start().await?; // free ports, a temporary folder
    let name_server = cluster.name_server(); // "127.0.0.1:PORT", for any client; dropped = gone
    produce(name_server).await?;
    let folder = tempfile::tempdir()?;
    consume(name_server, folder.path()).await?;
    Ok(())
}

/// `cargo` is taken for what it would have built; programs that stay are waited for until they serve.
const PRELUDE: &str = r#"
set -euo pipefail
trap 'jobs -p | xargs -r kill 2>/dev/null; wait' EXIT
export NAMESRV_ADDR=127.0.0.1:9876
started=0
wait_ready() {
  started=$((started + 1))
  for _ in $(seq 600); do
    [ "$(cat logs/* 2>/dev/null | grep -cE 'boot success|is ready')" -ge $started ] && return 0
    sleep 0.1
  done
  echo "not ready:"; tail -n 5 logs/*; exit 1
}
cargo() {
  case "$*" in
    "run --release") target/release/minimq --memory --port-base 9876 & wait_ready ;;
    "test --workspace" | "build --release --bins") ;;
    *) echo "cargo $*: this test does not know what that does"; exit 1 ;;
  esac
}
"#;

/// A folder as the pages assume it: `target/release` with the programs, `conf`. Ports are replaced by free ones.
fn checkout(folder: &Path, ports: &dyn Fn(&str) -> String) {
    let programs = folder.join("target/release");
    std::fs::create_dir_all(&programs).unwrap();
    std::fs::create_dir_all(folder.join("conf")).unwrap();
    std::fs::create_dir_all(folder.join("logs")).unwrap();
    for (name, binary) in [
        ("minimq", env!("CARGO_BIN_EXE_minimq")),
        ("mqadmin", env!("CARGO_BIN_EXE_mqadmin")),
        ("mqnamesrv", env!("CARGO_BIN_EXE_mqnamesrv")),
        ("mqbroker", env!("CARGO_BIN_EXE_mqbroker")),
        ("mqfiltersrv", env!("CARGO_BIN_EXE_mqfiltersrv")),
    ] {
        // What it says is kept, so that it can be waited for. A check of a configuration ends at once.
        let log = match name {
            "mqadmin" => String::new(),
            _ => format!(" >logs/{name}.$$"),
        };
        let script = format!("#!/bin/sh\nexec {binary} \"$@\"{log}\n");
        let path = programs.join(name);
        std::fs::write(&path, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    for entry in std::fs::read_dir(root().join("conf")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let text = std::fs::read_to_string(&path).unwrap();
            let copy = folder.join("conf").join(path.file_name().unwrap());
            std::fs::write(copy, ports(&text)).unwrap();
        }
    }
}

/// A run of `count` ports that are free now.
fn free_ports(count: u16) -> u16 {
    let bind = |port| std::net::TcpListener::bind(("127.0.0.1", port));
    loop {
        let first = bind(0).unwrap().local_addr().unwrap().port();
        if first < u16::MAX - count && (first..first + count).all(|port| bind(port).is_ok()) {
            return first;
        }
    }
}

#[test]
fn the_shell_blocks_run() {
    for name in ["README.md", "docs/running.md"] {
        let folder = tempfile::tempdir().unwrap();
        // `minimq` takes its brokers' ports from that of the name server.
        let base = free_ports(60);
        let ports = |text: &str| {
            let mut text = text.replace("9876", &base.to_string());
            for (usual, above) in [("10911", 10), ("10921", 20), ("10931", 30)] {
                text = text.replace(usual, &(base + above).to_string());
            }
            text
        };
        checkout(folder.path(), &ports);
        let mut script = ports(PRELUDE);
        for line in blocks(&page(name), "sh").concat().lines() {
            script.push_str(&ports(line));
            script.push('\n');
            if line.ends_with(" &") {
                script.push_str("wait_ready\n");
            }
        }
        let output = Process::new("bash")
            .args(["-c", &script])
            .current_dir(folder.path())
            .env("HOME", folder.path())
            // Whatever this machine's disk says.
            .env("MINIMQ_DISKSPACEWARNINGLEVELRATIO", "100")
            .env("MINIMQ_DISKSPACECLEANFORCIBLYRATIO", "100")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{name}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn the_units_name_programs_and_files_that_exist() {
    for entry in std::fs::read_dir(root().join("conf/systemd")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let start = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let words: Vec<&str> = start.expect("a unit starts something").split(' ').collect();
        let [program, "-c", file] = words[..] else {
            panic!("{words:?}");
        };
        let role = program.strip_prefix("/usr/local/bin/mq").unwrap();
        assert!(
            root().join(format!("src/bin/mq{role}.rs")).exists(),
            "{program}"
        );
        assert_eq!(file, format!("/etc/minimq/{role}.conf"));
        assert!(root().join(format!("conf/{role}.conf")).exists(), "{file}");
    }
}
