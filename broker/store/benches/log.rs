//! How fast the log is, each figure beside the limit measured in the same run:
//! `cargo bench -p minimq-store --bench log [-- FILTER]`.
//!
//! `MINIMQ_BENCH_DIR` names the folder (default: the temporary one). Limit and store take turns; the best round of each
//! counts, because what else runs on the machine only ever slows down.

mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use minimq_store::io::{Disk, DiskFile, RealDisk};
use minimq_store::region::Populate;
use minimq_store::{LogStore, StoreClock, StoreConfig};
use support::{Counting, MIB, config, folder, message, record_len};

const ROUNDS: usize = 5;

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'))
        .unwrap_or_default();
    let benches: [(&str, fn()); 4] = [
        ("append_1k", append_1k),
        ("append_128", append_128),
        ("roll", roll),
        ("recovery", recovery),
    ];
    for (name, bench) in benches {
        if name.contains(&filter) {
            bench();
        }
    }
}

fn open(config: &StoreConfig) -> LogStore {
    LogStore::open(
        config,
        Arc::new(RealDisk),
        StoreClock::System,
        &mut Counting::default(),
        |_| {},
    )
    .unwrap()
}

/// Appends `count` messages, `at_once` a call, waiting for room as a broker does; gives the rate a second.
fn append_rate(log: &LogStore, body: &[u8], count: usize, at_once: usize) -> f64 {
    let messages = vec![message(body); at_once];
    let mut outcomes = Vec::with_capacity(at_once);
    let begun = Instant::now();
    for _ in 0..count / at_once {
        outcomes.clear();
        log.append_blocking(black_box(&messages), &mut outcomes);
        assert!(outcomes.iter().all(Result::is_ok));
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Copies records into a mapped file and sums their bodies.
struct Memcpy {
    file: Arc<dyn DiskFile>,
    record: Vec<u8>,
    body: usize,
}

impl Memcpy {
    fn new(folder: &tempfile::TempDir, body: usize, count: usize) -> Self {
        let file = RealDisk.create(&folder.path().join("memcpy")).unwrap();
        file.allocate(0, (record_len(body) * count) as u64).unwrap();
        Self {
            file,
            record: vec![0x5A; record_len(body)],
            body,
        }
    }

    /// Copies `count` records behind what was copied; gives nanoseconds each. The file is mapped anew every time.
    fn nanos(&self, from: usize, count: usize, populate: bool) -> f64 {
        let len = self.record.len();
        let region = self.file.map(from * len).unwrap();
        if populate {
            region
                .populate(from * len..(from + count) * len, Populate::ForWriting)
                .unwrap();
        }
        let mut writer = region.writer().unwrap();
        let begun = Instant::now();
        for _ in 0..count {
            let record = black_box(&self.record);
            black_box(crc32fast::hash(&record[..self.body]));
            writer.next(len).unwrap().copy_from_slice(record);
            writer.advance(len);
            writer.publish();
        }
        begun.elapsed().as_nanos() as f64 / count as f64
    }
}

/// Limit and store take turns in slices of some milliseconds; the best slice of each counts.
fn append(name: &str, body: usize, slice: usize) {
    const SLICES: usize = 12;
    const SETS: usize = 4;
    let bytes = vec![0x5A; body];
    let best = |best: &mut f64, nanos: f64| *best = best.min(nanos);
    let (mut ready, mut faults, mut single, mut many) = (f64::MAX, f64::MAX, f64::MAX, f64::MAX);
    let (mut waits, mut hold) = (0, 0.0);
    for _ in 0..SETS {
        let folder = folder();
        let memcpy = Memcpy::new(&folder, body, 2 * SLICES * slice);
        let log = open(&config(&folder, 512 * MIB));
        append_rate(&log, &bytes, slice, 1);
        for index in 0..SLICES {
            best(&mut ready, memcpy.nanos(2 * index * slice, slice, true));
            best(
                &mut faults,
                memcpy.nanos((2 * index + 1) * slice, slice, false),
            );
            best(&mut single, 1e9 / append_rate(&log, &bytes, slice, 1));
            best(&mut many, 1e9 / append_rate(&log, &bytes, slice, 32));
        }
        waits = log.counters().room_waits.load(Ordering::Relaxed);
        let timed = log
            .counters()
            .append_holds_timed
            .load(Ordering::Relaxed)
            .max(1);
        hold = log.counters().append_hold_nanos.load(Ordering::Relaxed) as f64 / timed as f64;
        log.close().unwrap();
    }
    let told = |what: &str, nanos: f64| {
        let (rate, of_ready, of_faults) =
            (1e9 / nanos, 100.0 * ready / nanos, 100.0 * faults / nanos);
        println!(
            "{name}, {what:<40} {nanos:>6.0} ns {rate:>10.0}/s  {of_ready:>4.0} %  {of_faults:>4.0} %"
        );
    };
    told("limit: memcpy + CRC, pages made ready", ready);
    told("limit: memcpy + CRC into a mapped file", faults);
    told("store, one a call", single);
    told("store, 32 a call", many);
    println!("{name}, last set: {waits} waits for pages, the lock held {hold:.0} ns on average");
}

fn append_1k() {
    append("append 1 KiB", 1024, 9_600);
}

fn append_128() {
    append("append 128 B", 128, 32_000);
}

/// Latency of appends around the change of files.
fn roll() {
    const AROUND: usize = 500;
    let folder = folder();
    let log = open(&config(&folder, 32 * MIB));
    let body = vec![0x5A; 1024];
    let messages = [message(&body)];
    let mut outcomes = Vec::with_capacity(1);
    let (mut times, mut rolls) = (Vec::new(), Vec::new());
    let mut file = 0;
    // A fast producer: 100,000 messages a second.
    let begun = Instant::now();
    let count: usize = 600_000;
    for index in 0..count {
        let due = Duration::from_micros(10) * index as u32;
        while begun.elapsed() < due {
            std::hint::spin_loop();
        }
        outcomes.clear();
        let start = Instant::now();
        log.append_blocking(&messages, &mut outcomes);
        times.push(start.elapsed());
        let at = outcomes[0].as_ref().unwrap().physical_offset.get();
        if at / (32 * MIB as i64) != file {
            file = at / (32 * MIB as i64);
            rolls.push(index);
        }
    }
    let mut near: Vec<_> = rolls
        .iter()
        .flat_map(|roll| {
            times
                .get(roll.saturating_sub(AROUND)..roll + AROUND)
                .unwrap_or_default()
                .iter()
                .copied()
        })
        .collect();
    let mut at_roll: Vec<_> = rolls.iter().map(|roll| times[*roll]).collect();
    let quantile = |times: &mut Vec<Duration>, share: f64| {
        times.sort_unstable();
        times[((times.len() - 1) as f64 * share) as usize]
    };
    println!(
        "roll-over: {} files; {AROUND} appends before and after each: p50 {:?}, p99.9 {:?}, max {:?}; limit 1 ms",
        rolls.len(),
        quantile(&mut near, 0.5),
        quantile(&mut near, 0.999),
        quantile(&mut near, 1.0)
    );
    println!(
        "roll-over: the append that changes files: p50 {:?}, max {:?}",
        quantile(&mut at_roll, 0.5),
        quantile(&mut at_roll, 1.0)
    );
    println!(
        "roll-over: all {count} appends: p99.9 {:?}, max {:?}",
        quantile(&mut times, 0.999),
        quantile(&mut times, 1.0)
    );
    log.close().unwrap();
}

fn recovery() {
    for body in [1024, 128] {
        let folder = folder();
        let config = config(&folder, 256 * MIB);
        let log = open(&config);
        append_rate(
            &log,
            &vec![0x5A; body],
            512 * MIB as usize / record_len(body),
            32,
        );
        log.flush().unwrap();
        drop(log);
        let mut best = Duration::MAX;
        let (mut bytes, mut records) = (0, 0);
        for _ in 0..ROUNDS {
            // Dropped, not closed: each start is one after a crash.
            let log = open(&config);
            let report = log.report();
            assert_eq!(
                (report.clean, report.scanned_from.get(), &report.cut),
                (false, 0, &None)
            );
            (bytes, records) = (report.end.get(), report.records);
            best = best.min(report.elapsed);
        }
        let path = folder.path().join("commitlog/00000000000000000000");
        let file = RealDisk.open(&path).unwrap();
        let mut read = Duration::MAX;
        let mut buffer = vec![0; 1 << 20];
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            for at in (0..256 * MIB).step_by(1 << 20) {
                file.read_at(&mut buffer, at).unwrap();
                black_box(crc32fast::hash(&buffer));
            }
            read = read.min(begun.elapsed());
        }
        println!(
            "recovery, bodies of {body}: {records} records, {:.2} GB/s (goal 1); reading and CRC alone {:.2} GB/s",
            bytes as f64 / best.as_secs_f64() / 1e9,
            256.0 * MIB as f64 / read.as_secs_f64() / 1e9
        );
    }
}
