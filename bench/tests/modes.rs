//! Every mode for a moment against a broker in this process, and against the yardstick.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use minimq_bench::echo::AppendEcho;
use minimq_bench::measure::Report;
use minimq_bench::options::{Mode, Options};
use minimq_bench::{cold, e2e, pull, send};
use minimq_broker::{Broker, BrokerConfig};
use minimq_common::config::{Config, Sources};

/// Longer than a moment if the machine is so busy that nothing came in one.
fn run(line: &str) -> Report {
    let report = run_for(line, 0.2);
    match report.messages {
        0 => run_for(line, 10.0),
        _ => report,
    }
}

fn run_for(line: &str, seconds: f64) -> Report {
    let line = format!("minimq-bench {line} --warmup 0.05 --seconds {seconds}");
    let options = Options::try_parse_from(line.split(' ')).unwrap();
    let report = match options.mode {
        Mode::Send(load) => send::run(&load),
        Mode::Pull(load) => pull::run(&load),
        Mode::E2e(load) => e2e::run(&load),
        Mode::Cold(load) => cold::run(&load).map(|done| {
            assert_eq!(done.read > 0, !load.alone);
            done.report
        }),
        Mode::AppendEcho(_) | Mode::Suite(_) | Mode::Filter(_) => panic!("no load"),
    };
    report.unwrap()
}

fn is_sound(line: &str, report: &Report) {
    assert!(report.messages > 0, "{line}: {report}");
    assert_eq!(report.failures, 0, "{line}: {report}");
    assert!(!report.latencies.is_empty(), "{line}: {report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mode_loads_a_broker() {
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    let mut sources = Sources::default();
    for (key, value) in [
        ("bindAddress", "127.0.0.1"),
        ("brokerIP1", "127.0.0.1"),
        ("listenPort", "0"),
        ("mappedFileSizeCommitLog", "33554432"),
        ("diskSpaceWarningLevelRatio", "100"),
        ("diskSpaceCleanForciblyRatio", "100"),
        ("storePathRootDir", folder.path().to_str().unwrap()),
    ] {
        sources.set_key(key, value);
    }
    let config: Config<BrokerConfig> = Config::load(&sources).unwrap();
    let running = Broker::start(config, |_| {}).await.unwrap();
    let (addr, pid) = (running.local_addr(), std::process::id());
    let store = folder.path().to_owned();
    let loading = tokio::task::spawn_blocking(move || {
        for headers in ["json", "rocketmq"] {
            for mode in [
                "send --connections 3 --in-flight 4 --size 100",
                "send --batch 8 --size 50 --topics 3 --topic Many",
                "send --rate 200",
                "e2e --rate 200 --queues 2 --topic Waiting",
            ] {
                let line = format!("{mode} --addr {addr} --pid {pid} --headers {headers}");
                let report = run(&line);
                is_sound(&line, &report);
                assert!(report.server.unwrap().memory.rss_anon > 0);
            }
        }
        for alone in ["", " --alone"] {
            let line = format!(
                "cold --rate 500 --prefill 1000 --queues 2 --addr {addr} --topic Old --store {}{alone}",
                store.display()
            );
            is_sound(&line, &run(&line));
        }
        // One sender's answers all come, so the queues hold what was asked for at least.
        let line = format!("pull --prefill 500 --queues 4 --addr {addr} --topic Filled --size 200");
        let report = run(&line);
        is_sound(&line, &report);
        assert!(report.messages >= 32);
    });
    loading.await.unwrap();
    running.stop().await.unwrap();
}

#[test]
fn the_yardstick_takes_the_same_loads() {
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    for option in ["", " --fdatasync"] {
        let line = format!(
            "minimq-bench append-echo --listen 127.0.0.1:0 --file {}{option}",
            folder.path().join("bodies").display()
        );
        let Mode::AppendEcho(options) = Options::try_parse_from(line.split(' ')).unwrap().mode
        else {
            panic!("not the yardstick");
        };
        let server = AppendEcho::bind(&options).unwrap();
        let addr = server.address();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let serving = std::thread::spawn(move || server.run(&stopping));
        for mode in [
            "send --connections 3 --in-flight 4",
            "send --batch 8 --headers rocketmq",
            "pull --prefill 100",
            "pull --prefill 0 --headers rocketmq --connections 2",
        ] {
            let line = format!("{mode} --addr {addr}");
            is_sound(&line, &run(&line));
        }
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap().unwrap();
    }
}
