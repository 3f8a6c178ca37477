//! What each setting of a consumer does, seen from the server that it pulls from.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use minimq_client::rebalance::{Allocation, Rooms};
use minimq_client::{Client, Delivery, MessageQueue, PushConsumer, StartFrom};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    GetMaxOffsetResponse, QueryConsumerOffsetResponse, SearchOffsetResponse,
};
use minimq_protocol::{Command, Header};
use parking_lot::Mutex;
use support::applications::{reading, writing};
use support::fake::{Fake, Reply};
use support::{Seen, eventually};
use tokio::sync::Semaphore;

/// Far longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(60);
const TOPIC: &str = "topic";

async fn start() -> (Fake, Client) {
    let fake = Fake::start("broker-a").await;
    let client = fake.client_of(fake.client_builder()).await;
    (fake, client)
}

fn queue(id: i32) -> MessageQueue {
    MessageQueue::new(TOPIC, "broker-a", id)
}

/// The pulls of queue 0 so far.
fn pulls(fake: &Fake) -> Vec<Command> {
    let own = |pull: &Command| {
        pull.ext.get("topic") == Some(TOPIC) && pull.ext.get("queueId") == Some("0")
    };
    let all = fake.requests(request::PULL_MESSAGE).into_iter();
    all.filter(own).collect()
}

/// Lets some time pass, as time passes here: by requests and their answers.
async fn a_while(client: &Client) {
    for _ in 0..200 {
        client.route(TOPIC).await.unwrap();
    }
}

/// A success with that header, as a script gives it.
fn header(header: impl Header<'static> + 'static) -> Reply {
    Reply::With(Box::new(move |done| done.with_header(&header)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_group_begins_at_the_end_at_the_beginning_or_at_a_time() {
    let (fake, client) = start().await;
    fake.script(request::QUERY_CONSUMER_OFFSET, |_| {
        Reply::Refusal(response::QUERY_NOT_FOUND, "no offset of this group")
    });
    fake.script(request::GET_MAX_OFFSET, |_| {
        header(GetMaxOffsetResponse { offset: 17 })
    });
    fake.script(request::SEARCH_OFFSET_BY_TIMESTAMP, |asked| {
        assert_eq!(asked.ext.get("timestamp"), Some("1700000000000"));
        header(SearchOffsetResponse { offset: 9 })
    });
    for (from, expected) in [
        (None, "17"),
        (Some(StartFrom::End), "17"),
        (Some(StartFrom::Beginning), "0"),
        (Some(StartFrom::Time(1_700_000_000_000)), "9"),
    ] {
        let before = fake.requests(request::PULL_MESSAGE).len();
        let mut builder = client.push_consumer("begins").subscribe(TOPIC, "*");
        if let Some(from) = from {
            builder = builder.start_from(from);
        }
        let consumer = builder.run(|_| async {}).await.unwrap();
        let new = || fake.requests(request::PULL_MESSAGE).split_off(before);
        eventually("all queues are pulled", async || new().len() == 5).await;
        for pull in new() {
            let retries = pull.ext.get("topic") == Some("%RETRY%begins");
            let expected = if retries { "0" } else { expected };
            assert_eq!(pull.ext.get("queueOffset"), Some(expected), "{from:?}");
        }
        consumer.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_offset_is_not_known_for_sure_does_not_begin() {
    let (fake, client) = start().await;
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    fake.script(request::QUERY_CONSUMER_OFFSET, move |_| {
        match count.fetch_add(1, Ordering::Relaxed) {
            0..8 => Reply::Refusal(response::SYSTEM_ERROR, "not now"),
            _ => header(QueryConsumerOffsetResponse { offset: 5 }),
        }
    });
    let builder = client.push_consumer("unsure").subscribe(TOPIC, "*");
    let consumer = builder.run(|_| async {}).await.unwrap();
    eventually("it is pulled once that is known", async || {
        !pulls(&fake).is_empty()
    })
    .await;
    assert!(refused.load(Ordering::Relaxed) > 8);
    assert_eq!(pulls(&fake)[0].ext.get("queueOffset"), Some("5"));
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_ask_for_as_much_and_wait_as_long_as_is_set() {
    let (fake, client) = start().await;
    let consumer = reading(&client, "asking", TOPIC)
        .pull_batch(7)
        .pull_hold(Duration::from_millis(1234));
    let consumer = consumer.run(|_| async {}).await.unwrap();
    let pull = fake.first("a pull", request::PULL_MESSAGE, |_| true).await;
    assert_eq!(pull.ext.get("maxMsgNums"), Some("7"));
    assert_eq!(pull.ext.get("suspendTimeoutMillis"), Some("1234"));
    consumer.shutdown().await;
    for wrong in [
        reading(&client, "wrong", TOPIC).pull_batch(0),
        reading(&client, "wrong", TOPIC).concurrency(0),
        reading(&client, "wrong", TOPIC).max_held_messages(0),
        reading(&client, "wrong", TOPIC).max_held_bytes(0),
    ] {
        let error = wrong.run(|_| async {}).await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
    }
}

/// A queue with more than enough messages, whose handlers wait: how many of them are held, and how many handlers run.
async fn held(limits: impl FnOnce(Limited) -> Limited) -> (usize, usize) {
    let (fake, client) = start().await;
    let gate = Arc::new(Semaphore::new(0));
    let running = Arc::new(AtomicUsize::new(0));
    let (waiting, handlers) = (gate.clone(), running.clone());
    let limited = limits(Limited(
        reading(&client, "limited", TOPIC).allocation(Allocation::Fixed(vec![queue(0)])),
    ));
    let consumer = limited.0.run(move |_| {
        let (waiting, handlers) = (waiting.clone(), handlers.clone());
        async move {
            handlers.fetch_add(1, Ordering::SeqCst);
            waiting.acquire().await.unwrap().forget();
        }
    });
    let consumer = consumer.await.unwrap();
    let bodies = ["a body of twenty byte"; 4];
    let mut delivered = 0;
    fake.first("a pull", request::PULL_MESSAGE, |_| true).await;
    // As long as it pulls it gets four more.
    loop {
        eventually("all are held", async || consumer.unfinished() == delivered).await;
        a_while(&client).await;
        if pulls(&fake).len() * 4 == delivered {
            break;
        }
        fake.deliver(TOPIC, &bodies).await;
        delivered += 4;
        assert!(delivered < 200, "nothing holds it back");
    }
    let seen = (consumer.unfinished(), running.load(Ordering::SeqCst));
    // It goes on where it was when there is room again.
    gate.add_permits(1000);
    eventually("it pulls on", async || {
        pulls(&fake).len() * 4 == delivered + 4
    })
    .await;
    let next = pulls(&fake).pop().unwrap();
    assert_eq!(next.ext.get("queueOffset"), Some(&*delivered.to_string()));
    eventually("all are done", async || consumer.unfinished() == 0).await;
    consumer.shutdown().await;
    seen
}

struct Limited(minimq_client::PushConsumerBuilder);

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_messages_holds_pulls_back() {
    let limits = |limited: Limited| Limited(limited.0.max_held_messages(10).concurrency(3));
    assert_eq!(held(limits).await, (12, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_messages_hold_pulls_back() {
    let limits = |limited: Limited| Limited(limited.0.max_held_bytes(21 * 15).concurrency(2));
    assert_eq!(held(limits).await, (16, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_distance_of_messages_holds_pulls_back() {
    let limits = |limited: Limited| Limited(limited.0.max_span(17).concurrency(1));
    assert_eq!(held(limits).await, (20, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_is_not_pulled_and_nothing_is_lost() {
    let (fake, client) = start().await;
    let consumer = client.pull_consumer("pausing").assign([queue(0)]);
    let consumer = consumer.start().await.unwrap();
    let own = [queue(0)];
    fake.deliver(TOPIC, &["0", "1"]).await;
    let poll = async || {
        let polled = consumer.poll(LONG).await.unwrap();
        polled
            .iter()
            .map(Delivery::queue_offset)
            .collect::<Vec<_>>()
    };
    assert_eq!(poll().await, [0, 1]);
    eventually("a pull waits", async || pulls(&fake).len() == 2).await;
    consumer.pause(&own).unwrap();
    // What a pull under way brings is still returned; then there is no other.
    fake.deliver(TOPIC, &["2", "3"]).await;
    assert_eq!(poll().await, [2, 3]);
    a_while(&client).await;
    assert_eq!(pulls(&fake).len(), 2);
    let nothing = consumer.poll(Duration::from_millis(50)).await.unwrap();
    assert!(nothing.is_empty());
    consumer.resume(&own).unwrap();
    fake.deliver(TOPIC, &["4"]).await;
    assert_eq!(poll().await, [4]);
    let other = queue(1);
    assert!(consumer.pause(&[other]).is_err(), "it is not assigned");
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_consumer_pulls_nothing_until_it_goes_on() {
    let (fake, client) = start().await;
    let seen = Seen::default();
    let consumer =
        reading(&client, "suspended", TOPIC).allocation(Allocation::Fixed(vec![queue(0)]));
    let consumer = consumer.run(writing(&seen)).await.unwrap();
    fake.deliver(TOPIC, &["0"]).await;
    eventually("a pull waits", async || pulls(&fake).len() == 2).await;
    consumer.suspend();
    fake.deliver(TOPIC, &["1"]).await;
    eventually("what is here is handled", async || seen.count("1") == 1).await;
    a_while(&client).await;
    assert_eq!(pulls(&fake).len(), 2);
    assert_eq!(consumer.assignment(), [queue(0)], "it stays a member");
    consumer.resume();
    fake.deliver(TOPIC, &["2"]).await;
    eventually("it goes on", async || seen.count("2") == 1).await;
    assert_eq!(seen.len(), 3);
    consumer.shutdown().await;
}

/// The offsets of queue 0 that were committed, in their order.
fn commits(fake: &Fake) -> Vec<String> {
    let all = fake.requests(request::UPDATE_CONSUMER_OFFSET);
    let own = all.iter().filter(|one| one.ext.get("topic") == Some(TOPIC));
    own.filter(|one| one.ext.get("queueId") == Some("0"))
        .map(|one| one.ext.get("commitOffset").unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_committed_by_time_on_demand_and_at_the_end() {
    let (fake, client) = start().await;
    let run = async |every| {
        let seen = Seen::default();
        let builder = reading(&client, "committing", TOPIC).commit_every(every);
        let consumer = builder.run(writing(&seen)).await.unwrap();
        fake.deliver(TOPIC, &["0"]).await;
        eventually("it is done", async || {
            seen.count("0") == 1 && consumer.unfinished() == 0
        })
        .await;
        consumer
    };
    let consumer = run(LONG).await;
    a_while(&client).await;
    assert!(commits(&fake).is_empty());
    consumer.commit().await;
    assert_eq!(commits(&fake), ["1"]);
    fake.deliver(TOPIC, &["1", "2"]).await;
    eventually("they are done", async || {
        pulls(&fake).len() == 3 && consumer.unfinished() == 0
    })
    .await;
    assert_eq!(commits(&fake), ["1"]);
    consumer.shutdown().await;
    assert_eq!(commits(&fake), ["1", "3"]);
    let consumer = run(Duration::from_millis(20)).await;
    eventually("it is committed", async || commits(&fake).len() == 3).await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_handlers_as_long_as_is_set() {
    let (fake, client) = start().await;
    let gate = Arc::new(Semaphore::new(0));
    let run = async |drain| {
        let (waiting, begun) = (gate.clone(), Arc::new(Semaphore::new(0)));
        let running = begun.clone();
        let builder = reading(&client, "draining", TOPIC).drain(drain);
        let consumer = builder.run(move |_| {
            let (waiting, running) = (waiting.clone(), running.clone());
            async move {
                running.add_permits(1);
                waiting.acquire().await.unwrap().forget();
            }
        });
        let consumer = consumer.await.unwrap();
        fake.deliver(TOPIC, &["0"]).await;
        begun.acquire().await.unwrap().forget();
        consumer
    };
    let consumer = run(LONG).await;
    let ending = tokio::spawn(async move { consumer.shutdown().await });
    a_while(&client).await;
    assert!(!ending.is_finished(), "it waits");
    gate.add_permits(1);
    ending.await.unwrap();
    assert_eq!(commits(&fake), ["1"]);
    let consumer = run(Duration::from_millis(20)).await;
    consumer.shutdown().await;
    assert_eq!(commits(&fake), ["1"], "what is not done is not committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_application_hears_which_queues_it_has() {
    let (fake, client) = start().await;
    type Heard = Mutex<Vec<(String, Vec<i32>)>>;
    let heard: Arc<Heard> = Arc::default();
    let log = heard.clone();
    let consumer = reading(&client, "hearing", TOPIC)
        .rebalance_every(Duration::from_millis(20))
        .on_assignment(move |topic, queues| {
            let ids = queues.iter().map(|queue| queue.queue_id).collect();
            log.lock().push((topic.to_owned(), ids));
        });
    let consumer = consumer.run(|_| async {}).await.unwrap();
    let last = || {
        let heard = heard.lock();
        let own = heard.iter().rev().find(|(topic, _)| topic == TOPIC);
        own.map(|(_, ids)| ids.clone()).unwrap_or_default()
    };
    eventually("it has all", async || last() == [0, 1, 2, 3]).await;
    // Greater than any address: the other one gets the second half.
    fake.members(&[client.client_id(), "~"]);
    eventually("it has half of them", async || last() == [0, 1]).await;
    fake.member(client.client_id());
    eventually("it has all again", async || last() == [0, 1, 2, 3]).await;
    consumer.unsubscribe(TOPIC).await;
    eventually("it has none", async || {
        consumer
            .assignment()
            .iter()
            .all(|queue| queue.topic != TOPIC)
    })
    .await;
    consumer.subscribe(TOPIC, "*").await.unwrap();
    eventually("and all again", async || consumer.assignment().len() == 5).await;
    consumer.shutdown().await;
}

/// Rooms are told by what stands before the `@` of a broker's name and behind that of a client id.
struct ByName;

impl Rooms for ByName {
    fn of_broker(&self, broker_name: &str) -> Option<String> {
        Some(broker_name.split('@').next()?.to_owned())
    }

    fn of_client(&self, client_id: &str) -> Option<String> {
        Some(client_id.split('@').nth(1)?.split('-').next()?.to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_members_share_the_queues_by_each_strategy() {
    let (one, two) = (Fake::start("r1@a").await, Fake::start("r2@b").await);
    one.beside(&two);
    let mut clients = Vec::new();
    for instance in ["r1-x", "r2-y"] {
        let builder = one.client_builder().instance(instance);
        clients.push(builder.build().await.unwrap());
    }
    let ids: Vec<&str> = clients.iter().map(Client::client_id).collect();
    assert!(ids[0].ends_with("@r1-x"));
    one.members(&ids);
    two.members(&ids);
    let of = |broker: &str, ids: &[i32]| -> Vec<MessageQueue> {
        let queue = |id: &i32| MessageQueue::new(TOPIC, broker, *id);
        ids.iter().map(queue).collect()
    };
    let (room1, room2) = (of("r1@a", &[0, 1, 2, 3]), of("r2@b", &[0, 1, 2, 3]));
    let all = [&*room1, &*room2].concat();
    let ring = Allocation::ConsistentHash { virtual_nodes: 10 };
    let on_ring = |own| {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        ring.allocate(own, &all, &ids).unwrap()
    };
    let alternate = |odd: &[i32]| [of("r1@a", odd), of("r2@b", odd)].concat();
    let same = |allocation: Allocation| [allocation.clone(), allocation];
    let nearby = Allocation::Nearby {
        inner: Box::default(),
        rooms: Arc::new(ByName),
    };
    let cases = [
        (same(Allocation::Average), [room1.clone(), room2.clone()]),
        (
            same(Allocation::AverageByCircle),
            [alternate(&[0, 2]), alternate(&[1, 3])],
        ),
        (same(ring.clone()), [on_ring(ids[0]), on_ring(ids[1])]),
        (
            [
                Allocation::Fixed(of("r2@b", &[0])),
                Allocation::Fixed(of("r1@a", &[3])),
            ],
            [of("r2@b", &[0]), of("r1@a", &[3])],
        ),
        (
            same(Allocation::MachineRoom(BTreeSet::from(["r2".to_owned()]))),
            [of("r2@b", &[0, 1]), of("r2@b", &[2, 3])],
        ),
        (same(nearby), [room1.clone(), room2.clone()]),
    ];
    for (n, (allocations, parts)) in cases.into_iter().enumerate() {
        let name = allocations[0].name();
        let group = format!("sharing-{n}");
        let mut consumers: Vec<PushConsumer> = Vec::new();
        for (client, allocation) in clients.iter().zip(allocations) {
            let builder = reading(client, &group, TOPIC).allocation(allocation);
            consumers.push(builder.run(|_| async {}).await.unwrap());
        }
        for (consumer, part) in consumers.iter().zip(parts) {
            let mut part = part;
            part.sort();
            eventually(&format!("{name}: {part:?}"), async || {
                let mut own = consumer.assignment();
                own.retain(|queue| queue.topic == TOPIC);
                own == part
            })
            .await;
        }
        for consumer in consumers {
            consumer.shutdown().await;
        }
    }
}
