//! A process that dies at any moment: 200 times under load, by SIGKILL. What it had said was stored is stored.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use minimq_protocol::message::MessageView;
use minimq_store::{FlushDiskType, FlushOutcome, LogRead, PhysicalOffset, Store, StoreConfig};
use support::{message, small_config};

const KILLS: u32 = 200;
/// Kills before a new store is begun, so that looking at all of it stays quick.
const KILLS_A_STORE: u32 = 10;
const CHILD: &str = "MINIMQ_STORE_KILL_CHILD";
const TOPICS: [&str; 2] = ["TopicA", "TopicB"];

fn config(root: &Path, round: u32) -> StoreConfig {
    let sync = round.is_multiple_of(2);
    StoreConfig {
        mapped_file_size_commit_log: 128 * 1024,
        flush_disk_type: if sync {
            FlushDiskType::SyncFlush
        } else {
            FlushDiskType::AsyncFlush
        },
        flush_interval_commit_log_ms: 2,
        flush_interval_consume_queue_ms: 2,
        ..small_config(root)
    }
}

/// The process that is killed: appends from two threads and prints what was acknowledged, a line a message.
#[test]
#[ignore = "run by the test below, as a process of its own"]
fn child() {
    let Ok(argument) = std::env::var(CHILD) else {
        return;
    };
    let (round, root) = argument.split_once(' ').unwrap();
    let config = config(Path::new(root), round.parse().unwrap());
    let store = Store::open(&config, |_| {}).unwrap();
    let out = Mutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        for (thread, topic) in TOPICS.iter().enumerate() {
            let (store, out) = (&store, &out);
            scope.spawn(move || {
                for number in 0_u64.. {
                    let len = (number * 7919 % 700) as usize + 8;
                    let body: Vec<u8> =
                        number.to_be_bytes().into_iter().cycle().take(len).collect();
                    let mut outcomes = Vec::new();
                    store.append_blocking(
                        &[message(topic, thread as i32, &body, "KEYS\u{1}k")],
                        &mut outcomes,
                    );
                    let result = outcomes.remove(0).unwrap();
                    if store.log_store().is_sync_flush() {
                        let outcome = support::wait_flushed(store.log_store(), result.end());
                        assert_eq!(outcome, FlushOutcome::Flushed);
                    }
                    let mut out = out.lock().unwrap();
                    writeln!(
                        out,
                        "\u{1}{} {} {thread} {} {number}",
                        result.physical_offset, result.size, result.queue_offset
                    )
                    .unwrap();
                    out.flush().unwrap();
                }
            });
        }
    });
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Acknowledged {
    size: usize,
    topic: usize,
    queue_offset: i64,
    number: u64,
}

fn parse(line: &str) -> Option<(i64, Acknowledged)> {
    // A test harness prints to the same pipe; and the last line may be cut.
    let line = line.split('\u{1}').nth(1)?.strip_suffix('\n')?;
    let mut words = line.split(' ').map(|word| word.parse::<i64>().ok());
    let mut next = || words.next().flatten();
    let at = next()?;
    let (size, topic) = (next()? as usize, next()? as usize);
    Some((
        at,
        Acknowledged {
            size,
            topic,
            queue_offset: next()?,
            number: next()? as u64,
        },
    ))
}

/// Lets a process append until it is killed, and gives what it acknowledged.
fn run_and_kill(root: &Path, round: u32, after: Duration) -> Vec<(i64, Acknowledged)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(CHILD, format!("{round} {}", root.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let (mut acknowledged, mut line) = (Vec::new(), String::new());
        let mut first = true;
        while out.read_line(&mut line).unwrap_or(0) > 0 {
            acknowledged.extend(parse(&line));
            line.clear();
            if first && !acknowledged.is_empty() {
                first = false;
                FIRST.lock().unwrap().take().map(|sender| sender.send(()));
            }
        }
        acknowledged
    });
    let (sender, begun) = std::sync::mpsc::channel();
    *FIRST.lock().unwrap() = Some(sender);
    // Killed at a random moment of its work; if it did not begin at all there is nothing to see.
    let _ = begun.recv_timeout(Duration::from_secs(60));
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

static FIRST: Mutex<Option<std::sync::mpsc::Sender<()>>> = Mutex::new(None);

#[test]
fn what_was_acknowledged_survives_two_hundred_kills_under_load() {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut total = 0;
    for first in (0..KILLS).step_by(KILLS_A_STORE as usize) {
        let folder = folder();
        let mut all = BTreeMap::new();
        for round in first..first + KILLS_A_STORE {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let after = Duration::from_micros((random >> 40) % 30_000);
            let acknowledged = run_and_kill(folder.path(), round, after);
            assert!(!acknowledged.is_empty(), "round {round} stored nothing");
            total += acknowledged.len();
            for (at, record) in acknowledged {
                assert_eq!(all.insert(at, record), None, "a place was given twice");
            }
            check(folder.path(), round, &all);
        }
    }
    println!("{total} messages acknowledged");
}

/// What a killed process wrote is in the page cache, whatever the disk: one in memory makes 200 starts quick.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Opens what the killed process left.
fn check(root: &Path, round: u32, all: &BTreeMap<i64, Acknowledged>) {
    let store = Store::open(&config(root, round), |_| {}).unwrap();
    let report = store.log_store().report();
    // A record that was being copied may be cut; nothing before it is touched.
    assert!(
        !report.clean && report.damaged.is_empty(),
        "round {round}: {report:?}"
    );
    assert!(
        store
            .dispatcher()
            .wait_for(store.log().max_offset(), Duration::from_secs(60))
    );
    let mut next = [0; TOPICS.len()];
    for (at, acknowledged) in all {
        let read = store
            .log()
            .read(PhysicalOffset(*at), acknowledged.size, true)
            .unwrap();
        let LogRead::Found(bytes) = read else {
            panic!("round {round}: {at} is gone: {report:?}")
        };
        let record = MessageView::parse(bytes).unwrap();
        assert_eq!(
            (record.topic(), record.queue_offset()),
            (TOPICS[acknowledged.topic], acknowledged.queue_offset)
        );
        assert!(
            record
                .body()
                .starts_with(&acknowledged.number.to_be_bytes())
        );
        assert!(record.body_crc_holds());
        next[acknowledged.topic] = acknowledged.queue_offset + 1;
    }
    for (topic, next) in next.into_iter().enumerate() {
        let max = store.reader().max_offset(TOPICS[topic], topic as i32).get();
        assert!(
            max >= next,
            "round {round}: the queue of {} ends at {max}, not {next}",
            TOPICS[topic]
        );
    }
    // Now and then what is killed next was stopped cleanly before.
    if round.is_multiple_of(5) {
        store.close().unwrap();
    }
}
