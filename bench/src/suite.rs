//! The suite: every load of the table against the yardstick and a broker, in turn, each with an empty store, several
//! times over; and what a broker uses while it does nothing. Prints a table in Markdown.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;

use crate::measure::{Memory, Report};
use crate::options::{Mode, Options, SuiteOptions};
use crate::{cold, e2e, pull, send, tell};

/// One line of the table.
struct Row {
    name: &'static str,
    load: &'static str,
    /// Synchronous flush, and fdatasync in the yardstick.
    sync: bool,
    /// The yardstick can do it too.
    compared: bool,
}

const fn row(name: &'static str, load: &'static str) -> Row {
    Row {
        name,
        load,
        sync: false,
        compared: true,
    }
}

const ROWS: [Row; 13] = [
    row("send 1 KiB, 8×32", "send --connections 8 --in-flight 32"),
    row("send 1 KiB, 64×8", "send --connections 64 --in-flight 8"),
    row(
        "send 1 KiB, 8×32, binary headers",
        "send --connections 8 --in-flight 32 --headers rocketmq",
    ),
    row(
        "send 128 B, 8×32",
        "send --connections 8 --in-flight 32 --size 128",
    ),
    row(
        "send 128 B, 64×8",
        "send --connections 64 --in-flight 8 --size 128",
    ),
    row("send 1 KiB, 1×1", "send --connections 1 --in-flight 1"),
    row(
        "batches of 32 × 1 KiB, 8×4",
        "send --connections 8 --in-flight 4 --batch 32",
    ),
    row("pull drain 1 KiB", "pull --connections 8 --queues 8"),
    Row {
        sync: true,
        ..row(
            "synchronous flush 1 KiB, 64×8",
            "send --connections 64 --in-flight 8",
        )
    },
    row(
        "send 1 KiB, 8×32, 1,000 topics",
        "send --connections 8 --in-flight 32 --topics 1000 --queues 1",
    ),
    Row {
        compared: false,
        ..row(
            "end to end, 2,000/s",
            "e2e --rate 2000 --queues 4 --connections 4",
        )
    },
    Row {
        compared: false,
        ..row("send 1 KiB, 10,000/s", "cold --rate 10000 --alone")
    },
    Row {
        compared: false,
        ..row(
            "send 1 KiB, 10,000/s, beside a consumer of old messages",
            "cold --rate 10000",
        )
    },
];

/// A server in a process of its own, stopped when dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) addr: SocketAddr,
    pub(crate) ready: Duration,
    folder: Folder,
}

/// A folder that is removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind is only a temporary file more.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    pub(crate) fn start(mut command: Command, folder: Folder) -> anyhow::Result<Self> {
        let begin = Instant::now();
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let output = process.stdout.take().context("no output")?;
        let mut lines = BufReader::new(output).lines();
        let addr = loop {
            let line = lines.next().context("the server ended")??;
            // The only address in its first lines.
            let mut words = line.split(|c: char| c.is_whitespace() || "[],;".contains(c));
            if let Some(addr) = words.find_map(|word| word.parse().ok()) {
                break addr;
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            process,
            addr,
            ready: begin.elapsed(),
            folder,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    fn yardstick(folder: &Path, sync: bool) -> anyhow::Result<Self> {
        let folder = Folder(folder.join("append-echo"));
        std::fs::create_dir_all(&folder.0)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["append-echo", "--listen", "127.0.0.1:0", "--file"]);
        command.arg(folder.0.join("bodies"));
        if sync {
            command.arg("--fdatasync");
        }
        Self::start(command, folder)
    }

    fn broker(options: &SuiteOptions, sync: bool) -> anyhow::Result<Self> {
        let folder = Folder(options.folder.join("broker"));
        std::fs::create_dir_all(&folder.0)?;
        let mut command = Command::new(&options.broker);
        let flush = if sync { "SYNC_FLUSH" } else { "ASYNC_FLUSH" };
        for pair in [
            "bindAddress=127.0.0.1",
            "brokerIP1=127.0.0.1",
            "listenPort=0",
            "diskSpaceWarningLevelRatio=100",
            "diskSpaceCleanForciblyRatio=100",
            &format!("flushDiskType={flush}"),
            &format!("storePathRootDir={}", folder.0.display()),
        ] {
            command.args(["--set", pair]);
        }
        Self::start(command, folder)
    }
}

/// Runs a row's load; `store`: where the server's files are, if that is known.
fn load(
    row: &Row,
    options: &SuiteOptions,
    (addr, pid): (SocketAddr, u32),
    store: Option<&Path>,
) -> anyhow::Result<Report> {
    let seconds = options.seconds.as_secs_f64();
    let warmup = options.warmup.as_secs_f64();
    let drains = row.load.starts_with("pull");
    let line = format!(
        "minimq-bench {} --addr {addr} --pid {pid} --warmup {warmup} --seconds {}",
        row.load,
        // A drain ends by itself.
        if drains { 60.0 } else { seconds }
    );
    let line = match (drains, options.yardstick_pulls(addr)) {
        (true, true) => line.replace("--seconds 60", &format!("--prefill 0 --seconds {seconds}")),
        _ => line,
    };
    let parsed = Options::try_parse_from(line.split(' ')).with_context(|| line.clone())?;
    let report = match parsed.mode {
        Mode::Send(load) => send::run(&load),
        Mode::Pull(load) => pull::run(&load),
        Mode::E2e(load) => e2e::run(&load),
        Mode::Cold(mut load) => {
            load.store = store.map(Path::to_owned);
            cold::run(&load).map(|done| done.report)
        }
        Mode::AppendEcho(_) | Mode::Suite(_) | Mode::Filter(_) => bail!("{line}: no load"),
    }
    .with_context(|| line.clone())?;
    if report.failures > 0 {
        bail!("{line}: {report}");
    }
    Ok(report)
}

/// The middle of some numbers and their range.
fn spread(mut numbers: Vec<f64>, digits: usize) -> String {
    numbers.sort_by(f64::total_cmp);
    let at = |i: usize| numbers.get(i).copied().unwrap_or(0.0);
    let (low, high) = (at(0), at(numbers.len().saturating_sub(1)));
    let middle = at(numbers.len() / 2);
    format!("{middle:.digits$} ({low:.digits$}–{high:.digits$})")
}

fn cells(reports: &[Report]) -> String {
    let all = |of: &dyn Fn(&Report) -> f64| reports.iter().map(of).collect::<Vec<f64>>();
    let server = |r: &Report| r.server.map_or(0.0, |s| s.cpu_per_million);
    format!(
        "{} | {} | {} | {} | {}",
        spread(all(&|r| r.rate() / 1e3), 0),
        spread(all(&server), 2),
        spread(all(&|r| r.micros(50.0)), 0),
        spread(all(&|r| r.micros(99.0)), 0),
        spread(all(&|r| r.micros(99.9)), 0)
    )
}

/// Runs everything; prints lines as they are known.
pub fn run(options: &SuiteOptions) -> anyhow::Result<()> {
    tell(format_args!(
        "| load | server | 1000 messages/s | CPU s a million | p50 µs | p99 µs | p99.9 µs |"
    ))?;
    tell(format_args!("|---|---|---|---|---|---|---|"))?;
    for row in ROWS {
        if !options
            .only
            .as_ref()
            .is_none_or(|only| row.name.contains(only.as_str()))
        {
            continue;
        }
        let mut by_server: Vec<(String, Vec<Report>)> = Vec::new();
        let mut add = |name: &str, report: Report| match by_server
            .iter_mut()
            .find(|(known, _)| known == name)
        {
            Some((_, reports)) => reports.push(report),
            None => by_server.push((name.to_owned(), vec![report])),
        };
        for _ in 0..options.rounds {
            if row.compared {
                let server = Server::yardstick(&options.folder, row.sync)?;
                let options = SuiteOptions {
                    yardstick: Some(server.addr),
                    ..options.clone()
                };
                let report = load(&row, &options, (server.addr, server.pid()), None)?;
                add("append-echo", report);
            }
            let server = Server::broker(options, row.sync)?;
            add(
                "mini-MQ",
                load(
                    &row,
                    options,
                    (server.addr, server.pid()),
                    Some(&server.folder.0),
                )?,
            );
            drop(server);
            if let Some(also) = options.also.as_ref().filter(|also| also.sync == row.sync) {
                add(
                    &also.name,
                    load(&row, options, (also.addr, also.pid), None)?,
                );
            }
        }
        for (server, reports) in &by_server {
            tell(format_args!(
                "| {} | {server} | {} |",
                row.name,
                cells(reports)
            ))?;
        }
    }
    if options.only.is_none() {
        tell(format_args!("\n{}", idle(options)?))?;
    }
    Ok(())
}

/// Time to start, and memory without load and with many connections.
fn idle(options: &SuiteOptions) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut ready = Vec::new();
    for _ in 0..options.rounds {
        let server = Server::broker(options, false)?;
        ready.push(server.ready.as_secs_f64() * 1e3);
    }
    writeln!(text, "ready on an empty store: {} ms", spread(ready, 0))?;
    let server = Server::broker(options, false)?;
    let pid = server.process.id();
    // Its first seconds are over: what it makes ready ahead is ready.
    std::thread::sleep(Duration::from_secs(2));
    let mib = |memory: Memory| memory.rss_anon as f64 / 1024.0;
    writeln!(text, "idle: RssAnon {:.1} MiB", mib(Memory::of(pid)?))?;
    let mut connections = Vec::new();
    for _ in 0..options.idle_connections {
        match TcpStream::connect(server.addr) {
            Ok(connection) => connections.push(connection),
            Err(error) => {
                writeln!(text, "no more connections: {error}")?;
                break;
            }
        }
    }
    std::thread::sleep(Duration::from_secs(2));
    let count = connections.len();
    writeln!(
        text,
        "{count} idle connections: RssAnon {:.1} MiB",
        mib(Memory::of(pid)?)
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_of_the_table_can_be_parsed() {
        for row in ROWS {
            let line = format!("minimq-bench {} --warmup 0.5 --seconds 2", row.load);
            assert!(Options::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_spread_shows_the_middle_and_the_range() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0], 0), "2 (1–3)");
        assert_eq!(spread(vec![], 1), "0.0 (0.0–0.0)");
    }
}
