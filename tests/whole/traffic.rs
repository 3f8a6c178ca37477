//! Mixed traffic and what must hold of it: every acknowledged message is delivered at least once to every group that
//! wants it, each queue in order, no delayed one early, no message of a transaction that was rolled back, none that a
//! filter drops, each question its own answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minimq_client::{
    Client, Delivery, Filter, Message, Producer, PushConsumer, StartFrom, TransactionState,
};
use minimq_protocol::body::TopicConfig;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::processes::Cluster;

/// After an outage everything flows again within 35 s; under load of a slow machine it may be more.
const LONG: Duration = Duration::from_secs(120);

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < LONG, "not within {LONG:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

/// The kinds of traffic; each has a topic of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Plain,
    Ordered,
    Delayed,
    Transaction,
    Filtered,
    Question,
}

const KINDS: [Kind; 6] = [
    Kind::Plain,
    Kind::Ordered,
    Kind::Delayed,
    Kind::Transaction,
    Kind::Filtered,
    Kind::Question,
];

impl Kind {
    fn topic(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Ordered => "ordered",
            Self::Delayed => "delayed",
            Self::Transaction => "transaction",
            Self::Filtered => "filtered",
            Self::Question => "question",
        }
    }
}

/// What was promised and what came.
#[derive(Debug, Default)]
struct Ledger {
    /// Numbers that a group must get, by kind.
    owed: BTreeMap<Kind, BTreeSet<u64>>,
    /// Numbers that it got.
    got: BTreeMap<Kind, BTreeSet<u64>>,
    /// Deliveries of numbers that were there already.
    repeated: u64,
    /// Largest offset delivered of each queue of the ordered topic.
    ordered: BTreeMap<String, i64>,
    /// What must not happen, in words.
    broken: Vec<String>,
}

type Book = Arc<Mutex<Ledger>>;

fn number(delivery: &Delivery) -> u64 {
    String::from_utf8_lossy(delivery.body()).parse().unwrap()
}

fn owe(book: &Book, kind: Kind, number: u64) {
    book.lock().owed.entry(kind).or_default().insert(number);
}

fn note(book: &Book, kind: Kind, delivery: &Delivery) {
    let mut book = book.lock();
    let number = number(delivery);
    let new = book.got.entry(kind).or_default().insert(number);
    book.repeated += u64::from(!new);
    match kind {
        Kind::Ordered => {
            let offset = delivery.queue_offset();
            let queue = delivery.queue().to_string();
            let last = book.ordered.entry(queue.clone()).or_insert(-1);
            let ahead = offset > *last + 1;
            *last = offset.max(*last);
            if ahead {
                let text = format!("{queue}: offset {offset} came before those under it");
                book.broken.push(text);
            }
        }
        Kind::Delayed => {
            // Level 1 is one second.
            let early = delivery.born_ms() + 1000 - now_ms();
            if early > 20 {
                let text = format!("message {number} came {early} ms before it was due");
                book.broken.push(text);
            }
        }
        Kind::Transaction if rolls_back(number) => {
            let text = format!("message {number} was rolled back and came");
            book.broken.push(text);
        }
        Kind::Filtered if !passes(number) => {
            let text = format!("message {number} came though the filter drops it");
            book.broken.push(text);
        }
        _ => {}
    }
}

/// One in four transactions is rolled back, one is left to the checker.
fn rolls_back(number: u64) -> bool {
    number % 4 == 3
}

fn state_of(number: u64) -> TransactionState {
    match number % 4 {
        3 => TransactionState::Rollback,
        _ => TransactionState::Commit,
    }
}

/// What the example filter keeps.
fn passes(number: u64) -> bool {
    number > 10 && number.is_multiple_of(3)
}

/// Traffic of all kinds, from its own clients.
pub(crate) struct Traffic {
    book: Book,
    stop: Arc<AtomicBool>,
    /// Each gives its producer back: while one lives, the broker can ask it how a transaction ended.
    senders: Vec<JoinHandle<Producer>>,
    consumers: Vec<PushConsumer>,
    clients: Vec<Client>,
}

pub(crate) async fn connect(name_server: &str) -> Client {
    Client::builder()
        .name_servers(name_server)
        .request_timeout(Duration::from_secs(3))
        .build()
        .await
        .unwrap()
}

pub(crate) async fn producer(client: &Client, group: &str) -> Producer {
    client
        .producer(group)
        .timeout(Duration::from_secs(3))
        .transaction_checker(|half| async move { state_of(number(&half)) })
        .build()
        .await
        .unwrap()
}

/// Sends one message of a kind; gives whether it was acknowledged, so that it is owed.
async fn send(producer: &Producer, kind: Kind, number: u64) -> bool {
    let message = Message::new(kind.topic(), number.to_string());
    match kind {
        Kind::Plain => producer.send(message).await.is_ok(),
        Kind::Ordered => {
            let key = format!("key-{}", number % 5);
            producer.send_keyed(&key, message).await.is_ok()
        }
        Kind::Delayed => producer.send(message.delay_level(1)).await.is_ok(),
        Kind::Transaction => {
            let state = match number % 4 {
                2 => TransactionState::Unknown,
                _ => state_of(number),
            };
            // Once the half message is stored, the checker's word holds, also if the end was not told.
            let Ok(transaction) = producer.begin(message).await else {
                return false;
            };
            let _ = transaction.end(state).await;
            !rolls_back(number)
        }
        Kind::Filtered => {
            let message = message.property("SequenceId", number.to_string());
            producer.send(message).await.is_ok() && passes(number)
        }
        Kind::Question => {
            let Ok(answer) = producer.request(message, Duration::from_secs(3)).await else {
                return false;
            };
            assert_eq!(answer.body(), format!("answer {number}").as_bytes());
            true
        }
    }
}

impl Traffic {
    /// Creates the topics on every broker, and starts to send and to consume.
    pub(crate) async fn start(cluster: &Cluster) -> Self {
        let name_server = cluster.name_server.address();
        let (asking, answering) = (connect(name_server).await, connect(name_server).await);
        let admin = asking.admin();
        for kind in KINDS {
            for broker in &cluster.brokers {
                let config = TopicConfig {
                    read_queue_nums: 4,
                    write_queue_nums: 4,
                    ..TopicConfig::new(kind.topic())
                };
                admin.create_topic(broker.address(), &config).await.unwrap();
            }
            eventually("every broker is in the route", async || {
                let route = admin.topic_route(kind.topic()).await;
                route.is_ok_and(|route| route.data.broker_datas.len() == cluster.brokers.len())
            })
            .await;
        }
        let book = Book::default();
        let stop = Arc::new(AtomicBool::new(false));
        let mut consumers = Vec::new();
        let answers = producer(&answering, "answers").await;
        for kind in KINDS {
            consumers.push(consume(&answering, kind, &book, &answers).await);
        }
        let mut senders = Vec::new();
        for kind in KINDS {
            let producer = producer(&asking, &format!("{}-producer", kind.topic())).await;
            let (book, stop) = (book.clone(), stop.clone());
            senders.push(tokio::spawn(async move {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    if send(&producer, kind, number).await {
                        owe(&book, kind, number);
                    }
                    number += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                producer
            }));
        }
        Self {
            book,
            stop,
            senders,
            consumers,
            clients: vec![asking, answering],
        }
    }

    /// Waits until messages that are sent from now on are sent and consumed, of every kind.
    pub(crate) async fn flows(&self) {
        let counts = |table: &BTreeMap<Kind, BTreeSet<u64>>| -> Vec<usize> {
            KINDS
                .map(|kind| table.get(&kind).map_or(0, BTreeSet::len))
                .to_vec()
        };
        let (owed, got) = {
            let book = self.book.lock();
            (counts(&book.owed), counts(&book.got))
        };
        let begin = Instant::now();
        loop {
            let now = {
                let book = self.book.lock();
                (counts(&book.owed), counts(&book.got))
            };
            let grew = |now: &[usize], before: &[usize]| {
                now.iter()
                    .zip(before)
                    .all(|(now, before)| *now > before + 10)
            };
            if grew(&now.0, &owed) && grew(&now.1, &got) {
                return;
            }
            assert!(
                begin.elapsed() < LONG,
                "no flow of {KINDS:?}: acknowledged {owed:?}, now {:?}; delivered {got:?}, now {:?}",
                now.0,
                now.1
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops sending, waits until all that is owed came, and checks the rest.
    pub(crate) async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut producers = Vec::new();
        for sender in self.senders {
            producers.push(sender.await.unwrap());
        }
        let missing = || -> BTreeMap<Kind, Vec<u64>> {
            let book = self.book.lock();
            book.owed
                .iter()
                .filter_map(|(kind, owed)| {
                    let none = BTreeSet::new();
                    let got = book.got.get(kind).unwrap_or(&none);
                    let missing: Vec<u64> = owed.difference(got).copied().collect();
                    (!missing.is_empty()).then_some((*kind, missing))
                })
                .collect()
        };
        let begin = Instant::now();
        while !missing().is_empty() {
            assert!(
                begin.elapsed() < LONG,
                "acknowledged and not delivered: {:?}",
                missing()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for consumer in &self.consumers {
            consumer.shutdown().await;
        }
        for client in &self.clients {
            client.shutdown().await;
        }
        let book = self.book.lock();
        assert!(book.broken.is_empty(), "{:#?}", book.broken);
        let sizes: Vec<_> = book
            .owed
            .iter()
            .map(|(kind, owed)| (*kind, owed.len()))
            .collect();
        println!("acknowledged {sizes:?}, repeated {}", book.repeated);
    }
}

async fn consume(client: &Client, kind: Kind, book: &Book, answers: &Producer) -> PushConsumer {
    let filter = match kind {
        Kind::Filtered => Filter::wasm(include_str!("../../filtersrv/examples/sequence_id.wat")),
        _ => Filter::all(),
    };
    let builder = client
        .push_consumer(format!("{}-consumer", kind.topic()))
        .subscribe(kind.topic(), filter)
        .start_from(StartFrom::Beginning);
    let book = book.clone();
    match kind {
        Kind::Ordered => {
            builder
                .run_ordered(move |message: Delivery| {
                    note(&book, kind, &message);
                    async { Ok::<_, std::convert::Infallible>(()) }
                })
                .await
        }
        Kind::Question => {
            let answers = answers.clone();
            builder
                .run(move |message: Delivery| {
                    note(&book, kind, &message);
                    let answers = answers.clone();
                    async move {
                        let body = format!("answer {}", number(&message));
                        // An answer that is lost is a question that is asked anew.
                        let _ = answers.reply(&message, body).await;
                    }
                })
                .await
        }
        _ => {
            builder
                .run(move |message: Delivery| {
                    note(&book, kind, &message);
                    async {}
                })
                .await
        }
    }
    .unwrap()
}
