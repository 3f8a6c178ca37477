//! Pulls that wait: who is woken by a message, and when the others are answered.

use std::time::{Duration, Instant};

use minimq_protocol::code::response;

use crate::support::*;

const CONNECTIONS: usize = 20;
const QUEUES: usize = 8;
const TAGS: usize = 10;

/// Which pulls wait where: number `i` waits on queue `i % 8` for tag `i % 10`, every 13th for all tags.
fn subscription(i: usize) -> String {
    if i.is_multiple_of(13) {
        "*".to_owned()
    } else {
        format!("T{}", i % TAGS)
    }
}

/// Of 10,000 held pulls one message wakes exactly those that wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_wakes_exactly_the_pulls_it_matches() {
    let pulls = 10_000;
    let broker = TestBroker::start().await;
    let mut sender = broker.connect().await;
    ok(&sender.create_topic("T", 8, 8, 6).await);
    let mut wires = Vec::new();
    for _ in 0..CONNECTIONS {
        wires.push((broker.connect().await, Vec::new()));
    }
    let begin = Instant::now();
    for i in 0..pulls {
        let subscription = subscription(i);
        let pull = Pull {
            subscription: Some(&subscription),
            suspend_ms: Some(60_000),
            ..Pull::new("T", (i % QUEUES) as i32, 0)
        };
        let (wire, opaques) = &mut wires[i % CONNECTIONS];
        let opaque = wire.write(&pull.command()).await;
        opaques.push((opaque, i));
    }
    until("all pulls are held", || broker.state().held.len() == pulls).await;
    let matches = |i: usize| i % QUEUES == 3 && (i % TAGS == 5 || i.is_multiple_of(13));
    let sent = Instant::now();
    ok(&sender
        .send(&Send::new("T", 3, b"wake").with("TAGS\u{1}T5"))
        .await);
    for (wire, opaques) in &mut wires {
        let mut expected: Vec<i32> = opaques
            .iter()
            .filter(|(_, i)| matches(*i))
            .map(|(opaque, _)| *opaque)
            .collect();
        while !expected.is_empty() {
            let answer = wire.next().await.expect("an answer");
            let at = expected.iter().position(|opaque| *opaque == answer.opaque);
            let pulled = Pulled::of(answer.clone());
            match at {
                Some(at) => {
                    expected.swap_remove(at);
                    assert_eq!(pulled.bodies(), ["wake"]);
                }
                // After five seconds the others of the queue are told to move on.
                None => assert!(
                    pulled.code == response::PULL_RETRY_IMMEDIATELY
                        && begin.elapsed() > Duration::from_secs(5),
                    "woken for nothing: {answer:?}"
                ),
            }
        }
    }
    let matching = (0..pulls).filter(|i| matches(*i)).count();
    assert!(matching > pulls / QUEUES / TAGS);
    let held = broker.state().held.len();
    assert!(
        held == pulls - matching || begin.elapsed() > Duration::from_secs(5),
        "{held} still wait, {matching} of {pulls} match"
    );
    println!("{matching} of {pulls} woken in {:?}", sent.elapsed());
}

/// A pull whose time is up is answered 19; a closed connection leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn held_pulls_end_with_their_time_or_their_connection() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    ok(&wire.create_topic("T", 4, 4, 6).await);
    let pull = |ms| Pull {
        suspend_ms: Some(ms),
        ..Pull::new("T", 0, 0)
    };
    let begin = Instant::now();
    let pulled = wire.pull(&pull(1_000)).await;
    assert_eq!(pulled.numbers(), (19, 0, 0, 0));
    assert!(begin.elapsed() >= Duration::from_millis(1_000));
    let mut other = broker.connect().await;
    for _ in 0..5 {
        other.write(&pull(60_000).command()).await;
    }
    until("five wait", || broker.state().held.len() == 5).await;
    drop(other);
    until("none waits", || broker.state().held.is_empty()).await;
}

/// A pull held while messages arrive for it at the same time never sleeps over one.
#[tokio::test(flavor = "multi_thread")]
async fn no_message_is_slept_over() {
    let broker = TestBroker::start().await;
    let mut producer = broker.connect().await;
    ok(&producer.create_topic("T", 1, 1, 6).await);
    let mut consumer = broker.connect().await;
    const COUNT: i64 = 300;
    let producing = tokio::spawn(async move {
        for i in 0..COUNT {
            ok(&producer.send(&Send::new("T", 0, b"m")).await);
            if i % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
    });
    let mut offset = 0;
    while offset < COUNT {
        let begin = Instant::now();
        let pull = Pull {
            suspend_ms: Some(15_000),
            max_count: 1,
            ..Pull::new("T", 0, offset)
        };
        let pulled = consumer.pull(&pull).await;
        assert_eq!(
            pulled.code,
            response::SUCCESS,
            "after {:?}",
            begin.elapsed()
        );
        offset = pulled.next;
    }
    producing.await.unwrap();
}
