//! What goes wrong in a new user's first hour: docs/first-hour.md lists the mistakes with the sentence each gets. Each
//! is made here, and what is said is compared with the page.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use minimq::Cluster;
use minimq_client::{Client, Filter, Message, PushConsumer};
use parking_lot::Mutex;

const PATIENCE: Duration = Duration::from_secs(60);

/// All that this process logs: the cluster's roles and clients run in it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn capture() -> Self {
        let log = Self::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .init();
        log
    }

    /// Waits until it has a line that the page promises.
    async fn until(&self, promise: &Promise) -> String {
        let begin = Instant::now();
        loop {
            let text = String::from_utf8_lossy(&self.0.lock()).into_owned();
            if promise.is_kept_by(&text) || begin.elapsed() > PATIENCE {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What a row of the page says: any of these, `…` standing for whatever.
#[derive(Debug)]
struct Promise(Vec<String>);

impl Promise {
    fn is_kept_by(&self, text: &str) -> bool {
        self.0.iter().any(|sentence| {
            let mut rest = text;
            sentence.split('…').all(|piece| match rest.find(piece) {
                Some(at) => {
                    rest = &rest[at + piece.len()..];
                    true
                }
                None => false,
            })
        })
    }
}

fn page() -> BTreeMap<String, Promise> {
    let text = include_str!("../docs/first-hour.md");
    let rows = text.lines().filter(|line| line.starts_with("| "));
    rows.skip(1)
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert_eq!(cells.len(), 4, "{row}");
            // What stands between backticks.
            let sentences = cells[2].split('`').skip(1).step_by(2).map(str::to_owned);
            let id = cells[0].trim_start_matches("| ").to_owned();
            (id, Promise(sentences.collect()))
        })
        .collect()
}

/// Runs a program to its end, or until it said what the page promises; gives what it said.
fn says(promise: &Promise, binary: &str, arguments: &[&str]) -> String {
    let mut child: Child = Process::new(binary)
        .args(arguments)
        .env_remove("NAMESRV_ADDR")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        text.push_str(&line.unwrap());
        text.push('\n');
        if promise.is_kept_by(&text) {
            break;
        }
    }
    let _ = child.kill();
    child.wait().unwrap();
    text
}

const MQBROKER: &str = env!("CARGO_BIN_EXE_mqbroker");
const MQADMIN: &str = env!("CARGO_BIN_EXE_mqadmin");

async fn subscribe(client: &Client, group: &str, topic: &str, filter: Filter) -> PushConsumer {
    let consumer = client.push_consumer(group).subscribe(topic, filter);
    consumer.run(|_| async {}).await.unwrap()
}

/// Mistakes that need a cluster and a client.
async fn with_a_client(id: &str, promise: &Promise, log: &Log) -> Option<String> {
    let builder = Cluster::builder().filter_servers(0);
    let cluster = builder.set("autoCreateTopicEnable", "false");
    let cluster = cluster.start().await.unwrap();
    let client = Client::connect(cluster.name_server()).await.unwrap();
    let admin = client.admin();
    let make = async |topic: &str| {
        let config = minimq_protocol::body::TopicConfig::new(topic);
        let broker = &cluster.brokers()[0];
        admin.create_topic(broker, &config).await.unwrap();
        while client.route(topic).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let producer = client.producer("producers").build().await.unwrap();
    let text = match id {
        "topic-not-created" => {
            let sent = producer.send(Message::new("NoSuchTopic", "x")).await;
            sent.unwrap_err().to_string()
        }
        "too-large" => {
            let message = Message::new("T", vec![0; (4 << 20) + 1]);
            producer.send(message).await.unwrap_err().to_string()
        }
        "filter-expression" => {
            make("T").await;
            let consumer = client
                .push_consumer("c")
                .subscribe("T", Filter::sql("a =="));
            consumer.run(|_| async {}).await.unwrap_err().to_string()
        }
        "filter-nobody" => {
            make("T").await;
            let module = include_str!("../filtersrv/examples/sequence_id.wat");
            let consumer = subscribe(&client, "c", "T", Filter::wasm(module)).await;
            let text = log.until(promise).await;
            consumer.shutdown().await;
            text
        }
        "mixed-group" => {
            make("T").await;
            let other = Client::connect(cluster.name_server()).await.unwrap();
            let one = subscribe(&client, "c", "T", Filter::tags("a")).await;
            let two = subscribe(&other, "c", "T", Filter::tags("b")).await;
            let text = log.until(promise).await;
            one.shutdown().await;
            two.shutdown().await;
            text
        }
        _ => return None,
    };
    client.shutdown().await;
    cluster.stop().await;
    Some(text)
}

/// Mistakes with the programs.
async fn with_a_program(id: &str, promise: &Promise, folder: &Path) -> Option<String> {
    let at = |name: &str| folder.join(name).display().to_string();
    let data = minimq::Data::Folder(folder.join(format!("cluster-{id}")));
    let cluster = Cluster::builder().data(data).filter_servers(0);
    let cluster = cluster.start().await.unwrap();
    let name_server = cluster.name_server().to_owned();
    let store = cluster.data().join("broker-a");
    let store = format!("storePathRootDir={}", store.display());
    let local = [
        "--set",
        "bindAddress=127.0.0.1",
        "--set",
        "brokerIP1=127.0.0.1",
    ];
    let free = ["--set", "listenPort=0"];
    let own = format!("storePathRootDir={}", at("own"));
    let port = format!(
        "listenPort={}",
        cluster.brokers()[0].rsplit(':').next().unwrap()
    );
    let conf = |text: &str| {
        std::fs::write(folder.join("broker.conf"), text).unwrap();
        at("broker.conf")
    };
    let broker = |more: &[&str]| says(promise, MQBROKER, &[&local[..], more].concat());
    let mqadmin = |arguments: &[&str]| {
        let name_server = ["-n", name_server.as_str()];
        says(promise, MQADMIN, &[arguments, &name_server[..]].concat())
    };
    let text = match id {
        "wrong-port" => says(promise, MQADMIN, &["clusterList", "-n", "127.0.0.1:1"]),
        "topic-missing" => mqadmin(&["topicRoute", "-t", "NoSuchTopic"]),
        "topic-name" => mqadmin(&["updateTopic", "-c", "DefaultCluster", "-t", "bad topic!"]),
        "unknown-command" => mqadmin(&["updateTopik"]),
        "missing-option" => mqadmin(&["updateTopic", "-t", "T"]),
        "unknown-cluster" => mqadmin(&["updateTopic", "-t", "T", "-c", "NoCluster"]),
        "broker-alone" => broker(&[&free[..], &["--set", &own]].concat()),
        "store-locked" => broker(&[&free[..], &["--set", &store]].concat()),
        "port-in-use" => broker(&["--set", &port, "--set", &own]),
        "unknown-key" => {
            let conf = conf("flushDiskTipe=SYNC_FLUSH\n");
            broker(&[&free[..], &["-c", &conf, "--set", &own]].concat())
        }
        "wrong-value" => broker(&["-c", &conf("flushDiskType=SOMETIMES\n")]),
        "no-such-file" => broker(&["-c", &at("none.conf")]),
        "foreign-folder" => {
            std::fs::create_dir_all(folder.join("foreign/thing")).unwrap();
            let minimq = env!("CARGO_BIN_EXE_minimq");
            says(promise, minimq, &["--port", "0", "--data", &at("foreign")])
        }
        "filter-server-alone" => {
            let arguments = ["--broker", "127.0.0.1:1", "--listen", "127.0.0.1:0"];
            says(promise, env!("CARGO_BIN_EXE_mqfiltersrv"), &arguments)
        }
        _ => return None,
    };
    cluster.stop().await;
    Some(text)
}

/// Uploads what is no module to a filter server.
async fn upload_nonsense() -> String {
    use minimq_protocol::Command;
    use minimq_protocol::header::RegisterMessageFilterClassRequest;
    let cluster = Cluster::builder().start().await.unwrap();
    let header = RegisterMessageFilterClassRequest {
        consumer_group: "c",
        topic: "T",
        class_name: "C",
        class_crc: 0,
    };
    let code = minimq_protocol::code::request::REGISTER_MESSAGE_FILTER_CLASS;
    let upload = Command::request_with(code, &header).with_body("class C {}");
    let client = minimq_remoting::Client::new(Default::default()).unwrap();
    let server = &cluster.filter_servers()[0];
    let answer = client.call(server, upload, PATIENCE).await.unwrap();
    let text = answer.remark().to_owned();
    cluster.stop().await;
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_gets_the_sentence_of_the_page() {
    let log = Log::capture();
    let folder = tempfile::tempdir().unwrap();
    for (id, promise) in page() {
        let text = match id.as_str() {
            "client-no-name-server" => Client::connect("").await.unwrap_err().to_string(),
            "filter-refused" => upload_nonsense().await,
            _ => match with_a_program(&id, &promise, folder.path()).await {
                Some(text) => text,
                None => with_a_client(&id, &promise, &log)
                    .await
                    .unwrap_or_else(|| panic!("nobody makes the mistake {id} of the page")),
            },
        };
        assert!(
            promise.is_kept_by(&text),
            "{id}: the page promises {promise:?}; said was:\n{text}"
        );
    }
}
