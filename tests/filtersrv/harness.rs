//! The program with its log, routes, and consumers that write down what they get.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command as Process, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minimq::Cluster;
use minimq_client::{Client, Filter, Message, PushConsumer, StartFrom};
use minimq_protocol::Command;
use minimq_protocol::body::{FilterServerStats, TopicConfig, TopicRouteData};
use minimq_protocol::code::request;
use rustix::process::{Pid, Signal, kill_process};

pub(crate) use crate::shared::*;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The program; ends with the test.
pub(crate) struct FilterServer {
    process: Child,
    pub(crate) address: String,
    log: Arc<Mutex<String>>,
}

impl FilterServer {
    /// Returns when it has registered with the broker.
    pub(crate) async fn start(broker: &str, settings: &[&str]) -> Self {
        let broker = broker.to_owned();
        let settings: Vec<String> = settings.iter().map(|set| format!("--set={set}")).collect();
        tokio::task::spawn_blocking(move || Self::start_now(&broker, &settings))
            .await
            .unwrap()
    }

    fn start_now(broker: &str, settings: &[String]) -> Self {
        let conf = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/filtersrv.conf");
        let mut process = Process::new(env!("CARGO_BIN_EXE_mqfiltersrv"))
            .args(["-c", conf, "--broker", broker, "--listen", "127.0.0.1:0"])
            .args(settings)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, written) = (
            BufReader::new(process.stderr.take().unwrap()).lines(),
            log.clone(),
        );
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut log = written.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let ready = lines
            .map(Result::unwrap)
            .find(|line| line.starts_with("The Filter Server boot success, "))
            .expect("it ended before it was ready");
        let address = ready.split([',', '(']).nth(1).unwrap().trim().to_owned();
        Self {
            process,
            address,
            log,
        }
    }

    /// Everything it has logged.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        tokio::task::spawn_blocking(move || self.process.wait().unwrap())
            .await
            .unwrap()
    }
}

impl Drop for FilterServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for a condition; says which one never came.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < TIMEOUT, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A client that looks at routes often.
pub(crate) async fn client(cluster: &Cluster) -> Client {
    let client = Client::builder()
        .name_servers(cluster.name_server())
        .route_refresh(Duration::from_millis(200))
        .heartbeat(Duration::from_millis(500));
    client.build().await.unwrap()
}

/// A topic of so many queues.
pub(crate) async fn topic(client: &Client, cluster: &Cluster, name: &str, queues: i32) {
    let config = TopicConfig {
        read_queue_nums: queues,
        write_queue_nums: queues,
        ..TopicConfig::new(name)
    };
    let broker = &cluster.brokers()[0];
    client.admin().create_topic(broker, &config).await.unwrap();
    until("the topic has a route", async || {
        client.route(name).await.is_ok()
    })
    .await;
}

/// Messages with these values of `SequenceId`.
pub(crate) async fn send(client: &Client, topic: &str, numbers: std::ops::Range<u32>) {
    let producer = client.producer("PG").build().await.unwrap();
    for n in numbers {
        let message = Message::new(topic, "body").property("SequenceId", n.to_string());
        producer.send(message).await.unwrap();
    }
}

/// The filter servers in the route of a topic; with what they say of themselves if they are not the wanted ones, so
/// that a stranger can be told.
pub(crate) async fn wait_for_route(client: &Client, topic: &str, wanted: &[&str]) {
    let begin = Instant::now();
    let mut wanted = wanted.to_vec();
    wanted.sort_unstable();
    loop {
        let route = client.admin().topic_route(topic).await.unwrap();
        let listed = listed(&route.data);
        if listed == wanted {
            return;
        }
        if begin.elapsed() > TIMEOUT {
            let mut strangers = Vec::new();
            for addr in listed
                .iter()
                .filter(|addr| !wanted.contains(&addr.as_str()))
            {
                let figures = client
                    .admin()
                    .raw(addr, Command::request(request::GET_FILTER_STATS))
                    .await
                    .map(|answer| FilterServerStats::from_json(&answer.body));
                strangers.push(format!("{addr} says {figures:?}"));
            }
            panic!(
                "the route is {:?} instead of {wanted:?}; {strangers:?}",
                route.data
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn listed(route: &TopicRouteData) -> Vec<String> {
    let mut listed: Vec<String> = route
        .filter_server_table
        .values()
        .flatten()
        .cloned()
        .collect();
    listed.sort_unstable();
    listed
}

/// What a consumer got.
#[derive(Clone, Default)]
pub(crate) struct Got(Arc<Mutex<Vec<u32>>>);

impl Got {
    pub(crate) fn add(&self, number: u32) {
        self.0.lock().unwrap().push(number);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn sorted(&self) -> Vec<u32> {
        let mut all = self.0.lock().unwrap().clone();
        all.sort_unstable();
        all
    }

    /// Waits until every one of these has come; nothing else may, and none twice.
    pub(crate) async fn exactly(&self, wanted: impl Iterator<Item = u32>) {
        let wanted: Vec<u32> = wanted.collect();
        let begin = Instant::now();
        while self.len() < wanted.len() {
            assert!(
                begin.elapsed() < TIMEOUT,
                "only {:?} of {wanted:?}",
                self.sorted()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(self.sorted(), wanted);
    }
}

/// How a test's consumer pulls.
#[derive(Clone, Copy, Default)]
pub(crate) struct How {
    pub(crate) broadcast: bool,
    /// Messages a pull; 0 for the usual number.
    pub(crate) batch: i32,
}

/// A consumer from the beginning of the topic; it writes `SequenceId` down.
pub(crate) async fn consumer(
    client: &Client,
    group: &str,
    topic: &str,
    module: &str,
    how: How,
) -> (PushConsumer, Got) {
    let got = Got::default();
    let log = got.clone();
    let mut consumer = client
        .push_consumer(group)
        .subscribe(topic, Filter::wasm(module.to_owned()))
        .broadcast(how.broadcast)
        .commit_every(Duration::from_millis(100))
        .start_from(StartFrom::Beginning);
    if how.batch > 0 {
        consumer = consumer.pull_batch(how.batch);
    }
    let consumer = consumer.run(move |message| {
        let number = message.property("SequenceId").unwrap().parse().unwrap();
        log.add(number);
        async {}
    });
    (consumer.await.unwrap(), got)
}

/// How many messages of the topic the group has not passed; `None` before it has stored anything.
pub(crate) async fn lag(client: &Client, group: &str, topic: &str) -> Option<i64> {
    let stats = client.admin().consume_stats(group, Some(topic)).await;
    let queues = stats.ok()?.offset_table.into_values();
    Some(
        queues
            .map(|queue| queue.broker_offset - queue.consumer_offset)
            .sum(),
    )
}
