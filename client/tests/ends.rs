//! How handles end: by a shutdown, by being dropped, by the end of the runtime. No task is left, nothing panics, and what
//! was under way is lost for nobody else.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use minimq_client::rebalance::Allocation;
use minimq_client::{Batching, Client, Delivery, Filter, Message, MessageQueue, TransactionState};
use minimq_protocol::code::request;
use support::applications::reading;
use support::eventually;
use support::fake::{Fake, Reply};
use tokio::sync::Semaphore;

const LONG: Duration = Duration::from_secs(60);
const TOPIC: &str = "topic";

/// Counts the panics of this process from the first call on.
fn panics() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            COUNT.fetch_add(1, Ordering::SeqCst);
            usual(info);
        }));
    });
    COUNT.load(Ordering::SeqCst)
}

fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// One of everything, at work.
struct Everything {
    client: Client,
    producer: minimq_client::Producer,
    transaction: minimq_client::Transaction,
    concurrent: minimq_client::PushConsumer,
    ordered: minimq_client::PushConsumer,
    filtered: minimq_client::PushConsumer,
    polled: minimq_client::PullConsumer,
    stream: minimq_client::MessageStream,
    /// Handlers wait here.
    gate: Arc<Semaphore>,
}

impl Everything {
    async fn start(fake: &Fake) -> Self {
        let client = fake.client().await;
        let producer = client
            .producer("producer")
            .batching(Batching::default())
            .trace(true)
            .transaction_checker(|_| async { TransactionState::Commit })
            .build()
            .await
            .unwrap();
        producer.send(Message::new(TOPIC, "x")).await.unwrap();
        let transaction = producer.begin(Message::new(TOPIC, "half")).await.unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let waiting = |begun: &Arc<Semaphore>| {
            let (gate, begun) = (gate.clone(), begun.clone());
            move |_: Delivery| {
                let (gate, begun) = (gate.clone(), begun.clone());
                async move {
                    begun.add_permits(1);
                    let _ = gate.acquire().await;
                }
            }
        };
        let begun = Arc::new(Semaphore::new(0));
        let own = |topic: &str| Allocation::Fixed(vec![MessageQueue::new(topic, "broker-a", 0)]);
        let concurrent = reading(&client, "concurrent", "one").trace(true);
        let concurrent = concurrent.run(waiting(&begun)).await.unwrap();
        let ordered = reading(&client, "ordered", "two").allocation(own("two"));
        let ordered = ordered.run_ordered(waiting(&begun)).await.unwrap();
        let filtered = reading(&client, "filtered", "three");
        let filtered = filtered.subscribe("three", Filter::wasm("(module)"));
        let filtered = filtered.run(|_| async {}).await.unwrap();
        let polled = client.pull_consumer("polled").subscribe(TOPIC, "*");
        let polled = polled.start().await.unwrap();
        let mut stream = polled.messages();
        assert!(stream.next().now_or_never().is_none());
        fake.deliver("one", &["a handler runs", "one waits"]).await;
        fake.deliver("two", &["a handler runs", "one waits"]).await;
        begun.acquire_many(3).await.unwrap().forget();
        Self {
            client,
            producer,
            transaction,
            concurrent,
            ordered,
            filtered,
            polled,
            stream,
            gate,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_dropped_leaves_no_task_behind() {
    assert_eq!(panics(), 0);
    let fake = Fake::start("broker-a").await;
    let before = tasks();
    for way in 0..4 {
        let all = Everything::start(&fake).await;
        let gate = all.gate.clone();
        assert!(tasks() > before + 10);
        match way {
            // The client first, or last; in order; from a thread of its own.
            0 => {
                drop(all.client);
                drop((all.stream, all.polled, all.filtered));
                drop((all.transaction, all.producer));
                drop((all.ordered, all.concurrent));
            }
            1 => drop(all),
            2 => {
                gate.add_permits(1000);
                all.client.shutdown().await;
                drop(all);
            }
            _ => std::thread::spawn(move || drop(all)).join().unwrap(),
        }
        gate.add_permits(1000);
        eventually("all tasks have ended", async || tasks() == before).await;
    }
    assert_eq!(panics(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_goes_while_it_takes_its_first_queues_leaves_none_behind() {
    let fake = Fake::start("broker-a").await;
    let before = tasks();
    let client = fake.client().await;
    for round in 0..60 {
        let group = format!("short-{round}");
        let polled = client.pull_consumer(&group).subscribe(TOPIC, "*");
        let polled = polled.start().await.unwrap();
        // At another moment each time.
        let wanted = [
            request::GET_CONSUMER_LIST_BY_GROUP,
            request::LOCK_BATCH_MQ,
            request::QUERY_CONSUMER_OFFSET,
        ][round % 3];
        let own = |one: &minimq_protocol::Command| {
            one.ext.get("consumerGroup") == Some(&*group)
                || String::from_utf8_lossy(&one.body).contains(&*group)
        };
        while !fake.requests(wanted).iter().any(own) {
            tokio::task::yield_now().await;
        }
        for _ in 0..round / 3 {
            tokio::task::yield_now().await;
        }
        drop(polled);
    }
    drop(client);
    eventually("all tasks have ended", async || tasks() == before).await;
}

#[test]
fn handles_may_outlive_their_runtime() {
    assert_eq!(panics(), 0);
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let first = runtime();
    let (all, fake) = first.block_on(async {
        let fake = Fake::start("broker-a").await;
        (Everything::start(&fake).await, fake)
    });
    first.shutdown_timeout(LONG);
    // From another runtime they are errors, not panics, and nothing waits for ever.
    let short = Duration::from_millis(200);
    runtime().block_on(async {
        let send = tokio::time::timeout(LONG, all.producer.send(Message::new(TOPIC, "x")));
        assert!(send.await.unwrap().is_err());
        let polled = tokio::time::timeout(LONG, all.polled.poll(short))
            .await
            .unwrap();
        assert!(polled.map_or(true, |messages| messages.is_empty()));
        assert!(all.client.route(TOPIC).await.is_err());
    });
    drop(all);
    drop(fake);
    assert_eq!(panics(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_given_up_loses_no_message() {
    let fake = Fake::start("broker-a").await;
    let client = fake.client().await;
    let queue = MessageQueue::new(TOPIC, "broker-a", 0);
    let consumer = client.pull_consumer("giving-up").assign([queue]);
    let consumer = consumer.max_polled(1).start().await.unwrap();
    let mut stream = consumer.messages();
    let mut offsets = Vec::new();
    for round in 0..20 {
        // Given up while nothing is there, and at any moment while something comes.
        assert!(stream.next().now_or_never().is_none());
        fake.deliver(TOPIC, &["x"]).await;
        while offsets.len() <= round {
            let next = tokio::time::timeout(Duration::from_micros(50), stream.next());
            if let Ok(Some(message)) = next.await {
                offsets.push(message.queue_offset());
                message.ack();
            }
        }
    }
    drop(stream);
    for round in 20..40 {
        let nothing = consumer.poll(LONG).now_or_never();
        assert!(nothing.is_none());
        fake.deliver(TOPIC, &["x"]).await;
        while offsets.len() <= round {
            let polling = consumer.poll(LONG);
            let polled = tokio::time::timeout(Duration::from_micros(50), polling).await;
            for message in polled.map_or_else(|_| Vec::new(), Result::unwrap) {
                offsets.push(message.queue_offset());
            }
        }
    }
    assert_eq!(offsets, (0..40).collect::<Vec<i64>>());
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_that_is_given_up_gives_its_place_back() {
    let fake = Fake::start("broker-a").await;
    let client = fake.client().await;
    let mut waits = 5;
    fake.script(request::SEND_MESSAGE_V2, move |_| match waits {
        0 => Reply::Usual,
        _ => {
            waits -= 1;
            Reply::Wait
        }
    });
    let producer = client.producer("giving-up").max_in_flight(1);
    let producer = producer.timeout(LONG).build().await.unwrap();
    for n in 1..=5 {
        let sending = producer.send(Message::new(TOPIC, "x"));
        let given_up = async {
            eventually("it is under way", async || fake.waiting() == n).await;
        };
        tokio::select! {
            sent = sending => panic!("{sent:?}"),
            () = given_up => {}
        }
    }
    producer.send(Message::new(TOPIC, "x")).await.unwrap();
    producer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_shutdown_everything_says_so() {
    let fake = Fake::start("broker-a").await;
    let all = Everything::start(&fake).await;
    all.gate.add_permits(1000);
    all.client.shutdown().await;
    // Again, and each for itself: nothing is left to do.
    all.client.shutdown().await;
    all.producer.shutdown().await;
    all.concurrent.shutdown().await;
    all.polled.shutdown().await;
    let closed = |error: minimq_client::Error| {
        assert!(matches!(error, minimq_client::Error::Closed), "{error:?}");
        assert!(!error.is_retryable());
    };
    let message = || Message::new(TOPIC, "x");
    closed(all.producer.send(message()).await.unwrap_err());
    closed(all.producer.send_oneway(message()).await.unwrap_err());
    closed(all.producer.send_batched(message()).await.unwrap_err());
    closed(all.polled.poll(LONG).await.unwrap_err());
    closed(all.client.producer("new").build().await.unwrap_err());
    let consumer = reading(&all.client, "new", TOPIC).run(|_| async {});
    closed(consumer.await.unwrap_err());
    let mut stream = all.stream;
    assert!(stream.next().await.is_none());
    let left = fake.requests(request::UNREGISTER_CLIENT);
    let groups: Vec<_> = left
        .iter()
        .filter_map(|one| one.ext.get("consumerGroup"))
        .collect();
    for group in ["concurrent", "ordered", "filtered", "polled"] {
        assert!(groups.contains(&group), "{groups:?}");
    }
}
