//! After restarts and outages no queue stays unpulled for more than 35 seconds, with the settings a client has by default:
//! counted from the moment when everything is there again, for each queue by a message of its own.

mod support;

use std::time::{Duration, Instant};

use minimq_client::{Client, Message, MessageQueue, Producer, PushConsumer};
use support::applications::{reading, writing};
use support::proxy::{Fault, Proxy};
use support::{Cluster, Seen, eventually};

const MOST: Duration = Duration::from_secs(35);
const QUEUES: i32 = 4;

/// A consumer with default settings, and a producer with a client of its own: its troubles help nobody else.
struct Ends {
    topic: &'static str,
    seen: Seen,
    consumer: PushConsumer,
    producer: Producer,
    rounds: usize,
    clients: [Client; 2],
}

impl Ends {
    async fn start(cluster: &Cluster, topic: &'static str, names: &str) -> Self {
        cluster.topic(topic, QUEUES).await;
        let client = async || {
            let builder = Client::builder().name_servers(names);
            builder.build().await.unwrap()
        };
        let (sending, consuming) = (client().await, client().await);
        let seen = Seen::default();
        let consumer = reading(&consuming, "unpulled-consumer", topic);
        let producer = sending.producer("unpulled-producer");
        let producer = producer.timeout(Duration::from_secs(2));
        let mut ends = Self {
            topic,
            consumer: consumer.run(writing(&seen)).await.unwrap(),
            seen,
            producer: producer.build().await.unwrap(),
            rounds: 0,
            clients: [sending, consuming],
        };
        ends.all_pulled(Instant::now()).await;
        ends
    }

    /// Every queue is pulled, in time.
    async fn all_pulled(&mut self, since: Instant) {
        self.rounds += 1;
        for id in 0..QUEUES {
            let queue = MessageQueue::new(self.topic, "broker-a", id);
            let body = format!("{}-{id}", self.rounds);
            eventually("a message is stored in each queue", async || {
                let message = Message::new(self.topic, body.clone());
                self.producer.send_to(&queue, message).await.is_ok()
            })
            .await;
        }
        let all = || (0..QUEUES).all(|id| self.seen.count(&format!("{}-{id}", self.rounds)) > 0);
        while !all() {
            assert!(
                since.elapsed() < MOST,
                "unpulled after {MOST:?}; consumed: {:?}",
                self.seen.bodies()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end(self) {
        self.consumer.shutdown().await;
        for client in self.clients {
            client.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_restarts_moves_and_outages_every_queue_is_pulled_in_time() {
    let mut cluster = Cluster::start().await;
    let names = cluster.name_server_addr();
    let mut ends = Ends::start(&cluster, "restarts", &names).await;
    // At the same address, at another one.
    cluster.stop_broker().await;
    cluster.start_broker().await;
    ends.all_pulled(Instant::now()).await;
    cluster.move_broker().await;
    ends.all_pulled(Instant::now()).await;
    // A name server that was away, alone, and while the broker moved.
    cluster.stop_name_server().await;
    ends.all_pulled(Instant::now()).await;
    cluster.start_name_server().await;
    ends.all_pulled(Instant::now()).await;
    cluster.stop_name_server().await;
    cluster.move_broker().await;
    cluster.start_name_server().await;
    ends.all_pulled(Instant::now()).await;
    ends.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_die_without_a_word_keep_no_queue_unpulled() {
    let (cluster, proxy) = Cluster::start_behind_proxy().await;
    let (target, any) = (cluster.name_server_addr(), "127.0.0.1:0".parse().unwrap());
    let names = Proxy::start(any, target.parse().unwrap()).await;
    let addr = names.addr().to_string();
    let mut ends = Ends::start(&cluster, "silent", &addr).await;
    // Both at once, and neither end is told.
    names.set(Fault::Stale);
    proxy.set(Fault::Stale);
    ends.all_pulled(Instant::now()).await;
    ends.end().await;
}
