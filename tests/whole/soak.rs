//! A soak: consumers that crash, that lag, that leave and return. Every group gets every acknowledged message, and the
//! broker's memory stays where it was.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use minimq_client::{Client, Delivery, Filter, Message, PushConsumer, StartFrom};
use minimq_protocol::body::TopicConfig;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::processes::Cluster;
use super::roles::soak_or;
use super::traffic::{connect, eventually, producer};

const TOPIC: &str = "soak";
/// What the broker's own memory may be larger in the second half than in the first.
const SLACK_KIB: u64 = 8 * 1024;
/// Senders, each of which sends the next message when the last was answered and a little time has passed.
const SENDERS: u64 = 4;

type Numbers = Arc<Mutex<HashSet<u64>>>;

/// How the members of a group end.
#[derive(Clone, Copy)]
enum Leaves {
    /// Never, before the end.
    Not,
    /// As a process that is killed: nothing is said to the broker, what was got is forgotten.
    Crashing,
    /// As one that is stopped, to be away for a while.
    Lagging,
}

/// A consumer group with one member at a time.
struct Group {
    got: Numbers,
    stop: Arc<AtomicBool>,
    /// Members there were.
    lives: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Group {
    fn start(name: &'static str, leaves: Leaves, name_server: &str) -> Self {
        let (got, stop) = (Numbers::default(), Arc::<AtomicBool>::default());
        let lives = Arc::<AtomicU64>::default();
        let thread = std::thread::spawn({
            let (got, stop, lives) = (Arc::clone(&got), Arc::clone(&stop), Arc::clone(&lives));
            let name_server = name_server.to_owned();
            move || {
                while !live(name, leaves, &name_server, &got, &stop) {
                    lives.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self {
            got,
            stop,
            lives,
            thread,
        }
    }
}

/// One life of a group's member, on threads of its own. Gives whether it was the last.
fn live(
    name: &'static str,
    leaves: Leaves,
    name_server: &str,
    got: &Numbers,
    stop: &AtomicBool,
) -> bool {
    let (up, down) = match leaves {
        Leaves::Not => (Duration::MAX, Duration::ZERO),
        // Longer than the locks of the one that died are waited for.
        Leaves::Crashing => (Duration::from_secs(5), Duration::ZERO),
        Leaves::Lagging => (Duration::from_secs(1), Duration::from_secs(2)),
    };
    let runtime = Runtime::new().unwrap();
    let begin = Instant::now();
    let (client, consumer) = runtime.block_on(async {
        let client = connect(name_server).await;
        let consumer = member(&client, name, got).await;
        while begin.elapsed() < up && !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        (client, consumer)
    });
    let last = stop.load(Ordering::Relaxed);
    if matches!(leaves, Leaves::Crashing) && !last {
        // Its tasks and sockets are gone before it could say a word.
        runtime.shutdown_timeout(Duration::from_secs(10));
        drop((client, consumer));
    } else {
        runtime.block_on(async {
            consumer.shutdown().await;
            client.shutdown().await;
        });
        drop((client, consumer));
    }
    let away = Instant::now();
    while away.elapsed() < down && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    last
}

async fn member(client: &Client, group: &str, got: &Numbers) -> PushConsumer {
    let got = got.clone();
    client
        .push_consumer(group)
        .subscribe(TOPIC, Filter::all())
        .start_from(StartFrom::Beginning)
        .run(move |message: Delivery| {
            let number = String::from_utf8_lossy(message.body());
            let number = number.trim_start().parse().unwrap();
            got.lock().insert(number);
            async { Ok::<_, Infallible>(()) }
        })
        .await
        .unwrap()
}

/// A process's own memory, KiB.
fn rss_anon(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_crash_lag_and_return_and_the_brokers_memory_stays_flat() {
    let cluster = Cluster::start(1);
    let name_server = cluster.name_server.address();
    let client = connect(name_server).await;
    let config = TopicConfig {
        read_queue_nums: 4,
        write_queue_nums: 4,
        ..TopicConfig::new(TOPIC)
    };
    let broker = &cluster.brokers[0];
    let admin = client.admin();
    admin.create_topic(broker.address(), &config).await.unwrap();

    let acknowledged = Numbers::default();
    let stop = Arc::new(AtomicBool::new(false));
    let mut senders = Vec::new();
    for first in 0..SENDERS {
        let producer = producer(&client, &format!("soak-producer-{first}")).await;
        let (acknowledged, stop) = (acknowledged.clone(), stop.clone());
        senders.push(tokio::spawn(async move {
            let mut number = first;
            while !stop.load(Ordering::Relaxed) {
                let message = Message::new(TOPIC, format!("{number:200}"));
                if producer.send(message).await.is_ok() {
                    acknowledged.lock().insert(number);
                }
                number += SENDERS;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
    }
    let groups = [
        Group::start("steady", Leaves::Not, name_server),
        Group::start("crashing", Leaves::Crashing, name_server),
        Group::start("lagging", Leaves::Lagging, name_server),
    ];
    eventually("every group gets messages", async || {
        groups.iter().all(|group| !group.got.lock().is_empty())
    })
    .await;

    let (length, begin) = (soak_or(20), Instant::now());
    let mut most = [0; 2];
    while begin.elapsed() < length {
        let half = usize::from(begin.elapsed() > length / 2);
        most[half] = most[half].max(rss_anon(broker.pid()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for sender in senders {
        sender.await.unwrap();
    }
    let acknowledged = acknowledged.lock().clone();
    eventually("every group has every acknowledged message", async || {
        groups
            .iter()
            .all(|group| acknowledged.is_subset(&group.got.lock()))
    })
    .await;
    let lives = groups
        .each_ref()
        .map(|group| group.lives.load(Ordering::Relaxed));
    println!(
        "{} messages, lives {lives:?}, the broker's RssAnon {} and {} KiB",
        acknowledged.len(),
        most[0],
        most[1]
    );
    assert!(lives[1] > 1 && lives[2] > 1, "{lives:?}");
    assert!(
        most[1] <= most[0] + SLACK_KIB,
        "the broker's own memory grew from {} to {} KiB",
        most[0],
        most[1]
    );
    for group in &groups {
        group.stop.store(true, Ordering::Relaxed);
    }
    for group in groups {
        group.thread.join().unwrap();
    }
    client.shutdown().await;
}
