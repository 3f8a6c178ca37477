//! What was acknowledged is there: under synchronous flush, across the ends of files, with consumers and a broker that
//! come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use minimq_protocol::Command;
use minimq_protocol::code::{request, response};
use parking_lot::Mutex;

use crate::invariants::Ledger;
use crate::support::*;

const QUEUES: i32 = 4;

/// A producer that keeps `in_flight` sends under way until it has sent `count`, or its connection ends.
async fn produce(
    addr: std::net::SocketAddr,
    name: String,
    count: usize,
    len: usize,
    ledger: Arc<Mutex<Ledger>>,
) {
    const IN_FLIGHT: usize = 16;
    let mut wire = Wire::connect(addr).await;
    let mut under_way = std::collections::HashMap::new();
    let mut sent = 0;
    loop {
        while sent < count && under_way.len() < IN_FLIGHT {
            let queue = sent as i32 % QUEUES;
            let mut body = format!("{name}-{sent}-");
            body.push_str(&"x".repeat(len.saturating_sub(body.len())));
            let opaque = wire
                .write(&Send::new("T", queue, body.as_bytes()).command())
                .await;
            under_way.insert(opaque, (queue, body));
            sent += 1;
        }
        if under_way.is_empty() {
            return;
        }
        let Some(answer) = wire.next().await else {
            return;
        };
        let (queue, body) = under_way.remove(&answer.opaque).expect("asked for");
        ok(&answer);
        let offset = number(&answer, "queueOffset");
        ledger
            .lock()
            .acknowledged(&name, &("T".to_owned(), queue), offset, &body);
    }
}

/// Pulls every queue to its end, one connection.
async fn drain(broker: &TestBroker, group: &str, ledger: &Mutex<Ledger>) {
    let mut wire = broker.connect().await;
    for queue in 0..QUEUES {
        let mut offset = 0;
        loop {
            let pulled = wire
                .pull(&Pull {
                    group,
                    ..Pull::new("T", queue, offset)
                })
                .await;
            note(&mut ledger.lock(), group, queue, &pulled);
            if pulled.code == response::PULL_NOT_FOUND {
                break;
            }
            assert_eq!(pulled.code, response::SUCCESS, "{}", pulled.remark);
            offset = pulled.next;
        }
    }
}

fn note(ledger: &mut Ledger, group: &str, queue: i32, pulled: &Pulled) {
    for (message, body) in pulled.messages.iter().zip(pulled.bodies()) {
        assert!(message.body_crc_holds());
        let queue = ("T".to_owned(), queue);
        ledger.delivered(group, &queue, message.queue_offset(), &body);
    }
}

fn no_faults(ledger: &Mutex<Ledger>, groups: &[&str]) {
    let faults = ledger.lock().faults(groups);
    assert!(
        faults.is_empty(),
        "{} faults, the first: {:#?}",
        faults.len(),
        &faults[..faults.len().min(10)]
    );
}

async fn produce_with(
    broker: &TestBroker,
    producers: usize,
    count: usize,
    len: usize,
) -> Arc<Mutex<Ledger>> {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let mut setup = broker.connect().await;
    ok(&setup.create_topic("T", QUEUES, QUEUES, 6).await);
    let all: Vec<_> = (0..producers)
        .map(|p| {
            tokio::spawn(produce(
                broker.addr(),
                format!("p{p}"),
                count,
                len,
                ledger.clone(),
            ))
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    assert_eq!(ledger.lock().count(), producers * count);
    ledger
}

async fn until_all_readable(broker: &TestBroker) {
    until("everything stored can be pulled", || {
        broker.state().store.dispatch_behind_bytes() == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn synchronous_flush_answers_every_send_of_many_producers() {
    let broker = TestBroker::start_with(&["flushDiskType=SYNC_FLUSH"]).await;
    let ledger = produce_with(&broker, 8, 100, 1_000).await;
    let log = broker.state().store.log();
    assert_eq!(log.flushed_offset(), log.max_offset());
    until_all_readable(&broker).await;
    drain(&broker, "G", &ledger).await;
    no_faults(&ledger, &["G"]);
}

/// Files of 256 KiB: the log goes on to the next one every 60 messages.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_where_the_log_goes_on_to_the_next_file() {
    for flush in ["flushDiskType=ASYNC_FLUSH", "flushDiskType=SYNC_FLUSH"] {
        let mut broker = TestBroker::start_with(&["mappedFileSizeCommitLog=262144", flush]).await;
        let ledger = produce_with(&broker, 4, 150, 4_000).await;
        until_all_readable(&broker).await;
        drain(&broker, "G", &ledger).await;
        broker.restart().await;
        drain(&broker, "H", &ledger).await;
        no_faults(&ledger, &["G", "H"]);
        let folder = &broker.state().config.get().store.store_path_commit_log;
        assert!(std::fs::read_dir(folder).unwrap().count() >= 9);
    }
}

/// A consumer of one group that commits now and then, crashes now and then, and begins again at what was committed.
async fn consume(
    addr: std::net::SocketAddr,
    group: &'static str,
    queue: i32,
    crash_every: usize,
    ledger: Arc<Mutex<Ledger>>,
    done: Arc<AtomicBool>,
) {
    loop {
        let mut wire = Wire::connect(addr).await;
        let query = Command::request(request::QUERY_CONSUMER_OFFSET)
            .with_ext("consumerGroup", group)
            .with_ext("topic", "T")
            .with_ext("queueId", &queue.to_string());
        let mut offset = number(&wire.call(&query).await, "offset");
        for turn in 1..=crash_every {
            let pull = Pull {
                group,
                suspend_ms: Some(500),
                max_count: 10,
                // What was got in the last turns is not yet committed when it crashes.
                commit: turn.is_multiple_of(3).then_some(offset),
                ..Pull::new("T", queue, offset)
            };
            let pulled = wire.pull(&pull).await;
            note(&mut ledger.lock(), group, queue, &pulled);
            match pulled.code {
                response::SUCCESS => offset = pulled.next,
                response::PULL_NOT_FOUND if done.load(Ordering::SeqCst) => return,
                response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY => {}
                code => panic!("{code} {}", pulled.remark),
            }
        }
    }
}

/// Consumers that crash and return, and one that lags: every group gets everything, in order. As long as
/// `MINIMQ_SOAK_S` says, otherwise a short while.
#[tokio::test(flavor = "multi_thread")]
async fn consumers_that_crash_and_return_miss_nothing() {
    let soak = std::env::var("MINIMQ_SOAK_S")
        .ok()
        .and_then(|s| s.parse().ok());
    let end = Instant::now() + Duration::from_secs(soak.unwrap_or(3));
    let mut broker = TestBroker::start().await;
    let mut setup = broker.connect().await;
    ok(&setup.create_topic("T", QUEUES, QUEUES, 6).await);
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let done = Arc::new(AtomicBool::new(false));
    let mut consumers = Vec::new();
    for (group, crash_every) in [("Steady", usize::MAX), ("Crashing", 7)] {
        for queue in 0..QUEUES {
            let (ledger, done) = (ledger.clone(), done.clone());
            consumers.push(tokio::spawn(consume(
                broker.addr(),
                group,
                queue,
                crash_every,
                ledger,
                done,
            )));
        }
    }
    let mut round = 0;
    while Instant::now() < end {
        let producing = (0..2).map(|p| {
            tokio::spawn(produce(
                broker.addr(),
                format!("p{p}r{round}"),
                50,
                200,
                ledger.clone(),
            ))
        });
        for one in producing.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        round += 1;
    }
    until_all_readable(&broker).await;
    done.store(true, Ordering::SeqCst);
    for consumer in consumers {
        consumer.await.unwrap();
    }
    drain(&broker, "Lagging", &ledger).await;
    broker.restart().await;
    drain(&broker, "AfterRestart", &ledger).await;
    no_faults(&ledger, &["Steady", "Crashing", "Lagging", "AfterRestart"]);
    println!("{} messages", ledger.lock().count());
}
