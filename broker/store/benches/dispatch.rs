//! How fast messages go from the log into queues and index, and from there to readers, beside how fast they are appended
//! in the same run. `cargo bench -p minimq-store --bench dispatch`; `MINIMQ_BENCH_MIB` bytes of log a case (default 512).

mod support;

use std::time::{Duration, Instant};

use minimq_store::{
    AppendMessage, Blocking, DispatchListener, Dispatched, GetRequest, NoFilter, PhysicalOffset,
    QueueOffset, Store,
};
use support::{MIB, message};

const LONG: Duration = Duration::from_secs(600);
const BATCH: usize = 32;

struct Case {
    name: &'static str,
    body: usize,
    queues: i32,
    topics: usize,
    properties: &'static str,
}

const KEYED: &str = "KEYS\u{1}order-4711\u{2}UNIQ_KEY\u{1}7F0000010C395FFD2B27955106CD0001\u{2}TAGS\u{1}TagA\u{2}WAIT\u{1}true";
const UNIQUE: &str = "UNIQ_KEY\u{1}7F0000010C395FFD2B27955106CD0001\u{2}TAGS\u{1}TagA";

const CASES: [Case; 5] = [
    Case {
        name: "128 B, 4 queues, no properties",
        body: 128,
        queues: 4,
        topics: 1,
        properties: "",
    },
    Case {
        name: "128 B, 4 queues, unique key and tag",
        body: 128,
        queues: 4,
        topics: 1,
        properties: UNIQUE,
    },
    Case {
        name: "1 KiB, 4 queues, keys and tag",
        body: 1024,
        queues: 4,
        topics: 1,
        properties: KEYED,
    },
    Case {
        name: "1 KiB, 1,000 topics of 4 queues, keys and tag",
        body: 1024,
        queues: 4,
        topics: 1000,
        properties: KEYED,
    },
    Case {
        name: "1 KiB, 10,000 topics of 1 queue, keys and tag",
        body: 1024,
        queues: 1,
        topics: 10_000,
        properties: KEYED,
    },
];

fn main() {
    let mib = std::env::var("MINIMQ_BENCH_MIB")
        .ok()
        .and_then(|m| m.parse().ok())
        .unwrap_or(512);
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    for case in CASES
        .iter()
        .filter(|c| wanted.is_empty() || wanted.iter().any(|w| c.name.contains(w)))
    {
        run(case, mib * MIB as i64);
    }
}

struct Everyone;

impl DispatchListener for Everyone {
    fn is_waiting(&self) -> bool {
        true
    }

    fn dispatched(&self, message: &Dispatched<'_>) {
        std::hint::black_box(message.tags_code);
    }
}

/// Seconds the whole process was on a core.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds that the threads of this name were on a core.
fn thread_seconds(name: &str) -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a list of threads");
    let nanos = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let comm = std::fs::read_to_string(path.join("comm")).ok()?;
        let stat = std::fs::read_to_string(path.join("schedstat")).ok()?;
        (comm.trim_end() == name).then(|| stat.split(' ').next()?.parse::<f64>().ok())?
    });
    nanos.sum::<f64>() / 1e9
}

/// Wall clock and processor time since it was made.
struct Stopwatch(Instant, f64);

impl Stopwatch {
    fn start() -> Self {
        Self(Instant::now(), cpu_seconds())
    }

    fn elapsed(&self) -> (Duration, f64) {
        (self.0.elapsed(), cpu_seconds() - self.1)
    }
}

fn rate(name: &str, messages: usize, bytes: i64, (elapsed, cpu): (Duration, f64)) {
    let seconds = elapsed.as_secs_f64();
    println!(
        "  {name:<44} {:>9.0} messages/s {:>6.0} MiB/s {:>6.0} ns each, {:>6.2} CPU s a million",
        messages as f64 / seconds,
        bytes as f64 / seconds / MIB as f64,
        seconds * 1e9 / messages as f64,
        cpu * 1e6 / messages as f64
    );
}

fn run(case: &Case, bytes: i64) {
    println!("{}", case.name);
    let folder = support::folder();
    let mut config = support::config(&folder, 256 * MIB);
    config.hot_window_bytes = 4 << 30;
    let body = vec![b'x'; case.body];
    let topics: Vec<String> = (0..case.topics).map(|n| format!("topic-{n}")).collect();
    let size = 91 + 7 + case.body + case.properties.len();
    let count = (bytes as usize / size).next_multiple_of(BATCH);
    let messages: Vec<AppendMessage<'_>> = (0..case.topics.max(64) * case.queues as usize)
        .map(|n| AppendMessage {
            topic: &topics[n % topics.len()],
            queue_id: (n / topics.len()) as i32 % case.queues,
            properties: case.properties.as_bytes(),
            ..message(&body)
        })
        .collect();
    let append = |store: &Store| {
        let mut outcomes = Vec::new();
        let mut left = count;
        for batch in messages.chunks(BATCH).cycle() {
            if left == 0 {
                break;
            }
            let batch = &batch[..batch.len().min(left)];
            outcomes.clear();
            store.append_blocking(batch, &mut outcomes);
            outcomes.iter().for_each(|o| assert!(o.is_ok()));
            left -= batch.len();
        }
    };

    // Apart: first only appended, then only dispatched and indexed.
    let store = Store::open(&config, |_| {}).expect("the store opens");
    store.log().set_dispatch_cap(Some(PhysicalOffset(0)));
    let begun = Stopwatch::start();
    append(&store);
    let end = store.log().max_offset();
    rate(
        "append alone, one thread",
        count,
        end.get(),
        begun.elapsed(),
    );
    let begun = Stopwatch::start();
    store.log().set_dispatch_cap(None);
    assert!(store.dispatcher().wait_for(end, LONG));
    rate("dispatch into queues", count, end.get(), begun.elapsed());
    assert!(store.indexer().expect("an index").wait_for(end, LONG));
    rate(
        "... and into the index, beside it",
        count,
        end.get(),
        begun.elapsed(),
    );
    println!(
        "    of the CPU seconds a million: dispatch {:.2}, index {:.2}",
        thread_seconds("store-dispatch") * 1e6 / count as f64,
        thread_seconds("store-index") * 1e6 / count as f64
    );

    // Together, and a consumer of every queue waiting for messages.
    store.on_dispatch(Some(std::sync::Arc::new(Everyone)));
    let begun = Stopwatch::start();
    append(&store);
    let (both, appended) = (store.log().max_offset(), begun.elapsed());
    assert!(store.dispatcher().wait_for(both, LONG));
    let dispatched = begun.elapsed();
    assert!(store.indexer().expect("an index").wait_for(both, LONG));
    let indexed = begun.elapsed();
    rate(
        "append while dispatched, told and indexed",
        count,
        both.get() - end.get(),
        appended,
    );
    rate(
        "... until dispatched",
        count,
        both.get() - end.get(),
        dispatched,
    );
    rate("... until indexed", count, both.get() - end.get(), indexed);

    reads(&store, case, "get 32, hot");
    let begun = Instant::now();
    store.close().expect("it closes");
    println!("  close {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    config.hot_window_bytes = 1 << 20;
    let begun = Instant::now();
    let store = Store::open(&config, |_| {}).expect("it opens");
    println!("  open  {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    reads(&store, case, "get 32, cold, in the page cache");
    let begun = Instant::now();
    for _ in 0..1000 {
        let found = store
            .query(
                &topics[0],
                "7F0000010C395FFD2B27955106CD0001",
                32,
                0,
                i64::MAX,
            )
            .expect("it reads");
        assert!(case.properties.is_empty() || found.records.len() == 32);
    }
    println!(
        "  query by key, 32 results {:.1} us",
        begun.elapsed().as_secs_f64() * 1e3
    );
    store.close().expect("it closes");
}

/// Reads every queue from its beginning to its end.
fn reads(store: &Store, case: &Case, name: &str) {
    let (mut messages, mut bytes, mut gets, mut would_block) = (0, 0, 0_u32, 0_u32);
    let mut records = Vec::new();
    let begun = Stopwatch::start();
    'all: for topic in 0..case.topics {
        let topic = format!("topic-{topic}");
        for queue_id in 0..case.queues {
            let mut offset = QueueOffset(0);
            while offset < store.reader().max_offset(&topic, queue_id) {
                records.clear();
                let request = GetRequest {
                    topic: &topic,
                    queue_id,
                    offset,
                    max_count: 32,
                    max_bytes: usize::MAX,
                };
                let result = store
                    .reader()
                    .get(&request, &mut NoFilter, Blocking::Refused, &mut records)
                    .or_else(|_| {
                        would_block += 1;
                        store
                            .reader()
                            .get(&request, &mut NoFilter, Blocking::Allowed, &mut records)
                    });
                let result = result.expect("it reads");
                messages += result.count;
                bytes += result.bytes as i64;
                gets += 1;
                offset = result.next_begin_offset;
                if begun.0.elapsed() > Duration::from_secs(5) {
                    break 'all;
                }
            }
        }
    }
    let elapsed = begun.elapsed();
    rate(name, messages, bytes, elapsed);
    println!(
        "    {gets} gets of {:.1} us, {would_block} of them on a thread that may wait",
        elapsed.0.as_secs_f64() * 1e6 / f64::from(gets)
    );
}
