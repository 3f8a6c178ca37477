//! A broker in this process, with a folder and a free port of its own, and raw requests to it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minimq_broker::broker::Running;
use minimq_broker::{Broker, BrokerConfig};
use minimq_common::config::{Config, Sources};
use minimq_common::temporary::TemporaryFolder;
use minimq_protocol::body::{ConsumerData, HeartbeatData, ProducerData, SubscriptionData};
use minimq_protocol::code::request;
use minimq_protocol::header::*;
use minimq_protocol::message::{MessageView, split_records};
use minimq_protocol::properties::PropertiesBuf;
use minimq_protocol::{Command, acl_signature};
use minimq_remoting::{Answers, Client, ClientConfig, ServerRequests};

/// How long an answer may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// A running broker and a client of it.
pub(crate) struct Harness {
    pub(crate) broker: Arc<Broker>,
    pub(crate) folder: Arc<TemporaryFolder>,
    pub(crate) client: Client,
    pub(crate) addr: String,
    /// Requests of the broker to the client, with what it answers to each.
    pub(crate) received: Arc<Received>,
    running: Running,
    settings: Vec<String>,
    _stops: StopOnDrop,
}

/// Ends the broker's threads when a test fails, or the failed test would wait for them.
struct StopOnDrop(Arc<Broker>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stopping.cancel();
    }
}

fn now_ms() -> i64 {
    minimq_common::clock::Clock::system().now_ms()
}

/// What the broker sent to the client.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) requests: Mutex<Vec<Command>>,
    /// Code of the answers.
    pub(crate) answer: Mutex<i32>,
}

impl ServerRequests for Received {
    fn request(&self, request: Command, answers: &mut Answers<'_>) {
        let answer = Command::response_to(&request, *self.answer.lock().unwrap())
            .with_body(request.body.clone());
        answers.answer(request.id(), answer);
        self.requests.lock().unwrap().push(request);
    }
}

impl Received {
    pub(crate) fn of_code(&self, code: i32) -> Vec<Command> {
        let all = self.requests.lock().unwrap();
        all.iter()
            .filter(|request| request.code == code)
            .cloned()
            .collect()
    }
}

pub(crate) fn new_client() -> (Client, Arc<Received>) {
    let received = Arc::new(Received::default());
    let client = Client::with_requests(ClientConfig::default(), received.clone()).unwrap();
    (client, received)
}

async fn start_broker(folder: &Path, settings: &[String]) -> Running {
    let mut sources = Sources::default();
    for pair in [
        "bindAddress=127.0.0.1",
        "brokerIP1=127.0.0.1",
        "listenPort=0",
        "brokerName=b0",
        "brokerClusterName=C1",
        "mapedFileSizeCommitLog=8388608",
        "maxHashSlotNum=1000",
        "maxIndexNum=4000",
        "diskSpaceWarningLevelRatio=100",
        "diskSpaceCleanForciblyRatio=100",
    ] {
        sources.set(pair).unwrap();
    }
    sources
        .set(&format!(
            "storePathRootDir={}",
            folder.join("store").display()
        ))
        .unwrap();
    sources
        .set(&format!(
            "aclFile={}",
            folder.join("conf/plain_acl.yml").display()
        ))
        .unwrap();
    for pair in settings {
        sources.set(pair).unwrap();
    }
    let config: Config<BrokerConfig> = Config::load(&sources).unwrap();
    config.store_in(folder.join("broker.conf"));
    Broker::start(config, |_| {}).await.unwrap()
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

impl Harness {
    pub(crate) async fn start(settings: &[&str]) -> Self {
        Self::start_in(TemporaryFolder::new().unwrap(), settings).await
    }

    pub(crate) async fn start_in(folder: TemporaryFolder, settings: &[&str]) -> Self {
        let settings = settings.iter().map(|pair| (*pair).to_owned()).collect();
        Self::start_with(Arc::new(folder), settings).await
    }

    async fn start_with(folder: Arc<TemporaryFolder>, settings: Vec<String>) -> Self {
        let running = start_broker(folder.path(), &settings).await;
        let (client, received) = new_client();
        Self {
            broker: running.broker.clone(),
            addr: running.local_addr().to_string(),
            folder,
            client,
            received,
            _stops: StopOnDrop(running.broker.clone()),
            running,
            settings,
        }
    }

    pub(crate) async fn stop(self) {
        self.client.close_all();
        drop(self.broker);
        self.running.stop().await.unwrap();
    }

    pub(crate) async fn restart(self) -> Self {
        let (folder, settings) = (self.folder.clone(), self.settings.clone());
        self.stop().await;
        Self::start_with(folder, settings).await
    }

    /// What a power cut leaves that reached the log at `end`: another broker, with other settings, on a copy of the
    /// store as it lies there now, without the log from there on.
    pub(crate) async fn cut_at(self, end: i64, settings: &[&str]) -> Self {
        let folder = TemporaryFolder::new().unwrap();
        copy_folder(self.folder.path(), folder.path());
        let log = folder.path().join("store/commitlog/00000000000000000000");
        let mut bytes = std::fs::read(&log).unwrap();
        bytes[usize::try_from(end).unwrap()..].fill(0);
        std::fs::write(&log, bytes).unwrap();
        assert!(
            folder.path().join("store/abort").exists(),
            "it was running when it was cut"
        );
        self.stop().await;
        Self::start_in(folder, settings).await
    }

    pub(crate) async fn call(&self, request: Command) -> Command {
        self.client
            .call(&self.addr, request, TIMEOUT)
            .await
            .unwrap()
    }

    pub(crate) async fn create_topic(&self, topic: &str, queues: i32) {
        let header = CreateTopicRequest {
            topic,
            default_topic: "TBW102",
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: 6,
            topic_filter_type: "SINGLE_TAG",
            topic_sys_flag: Some(0),
            order: false,
            attributes: None,
        };
        let made = Command::request_with(request::UPDATE_AND_CREATE_TOPIC, &header);
        assert_eq!(self.call(made).await.code, 0);
    }

    pub(crate) async fn send(
        &self,
        topic: &str,
        properties: &[(&str, &str)],
        body: &str,
    ) -> Command {
        let answer = self.call(send_request(topic, properties, body)).await;
        assert_eq!(answer.code, 0, "{}", answer.remark());
        answer
    }

    /// Pulls from queue 0 at an offset, with an expression.
    pub(crate) async fn pull(&self, topic: &str, offset: i64, filter: (&str, &str)) -> Command {
        self.call(pull_request("G", topic, offset, filter)).await
    }

    /// Messages of queue 0 from an offset on.
    pub(crate) async fn messages(&self, topic: &str, offset: i64) -> Vec<MessageView> {
        let answer = self.pull(topic, offset, ("TAG", "*")).await;
        records(&answer)
    }

    pub(crate) async fn heartbeat(&self, heartbeat: &HeartbeatData) -> Command {
        let beat = Command::request(request::HEART_BEAT).with_body(heartbeat.to_wire());
        self.call(beat).await
    }

    pub(crate) async fn register_producer(&self, group: &str, client_id: &str) {
        let data = HeartbeatData {
            client_id: client_id.into(),
            producer_data_set: vec![ProducerData {
                group_name: group.into(),
            }],
            ..Default::default()
        };
        assert_eq!(self.heartbeat(&data).await.code, 0);
    }

    pub(crate) async fn register_consumer(
        &self,
        group: &str,
        topic: &str,
        filter: (&str, &str),
        version: i64,
    ) {
        assert_eq!(
            self.heartbeat(&consumer(group, topic, filter, version))
                .await
                .code,
            0
        );
    }
}

pub(crate) fn consumer(
    group: &str,
    topic: &str,
    filter: (&str, &str),
    version: i64,
) -> HeartbeatData {
    HeartbeatData {
        client_id: "client".into(),
        consumer_data_set: vec![ConsumerData {
            group_name: group.into(),
            subscription_data_set: vec![SubscriptionData {
                topic: topic.into(),
                expression_type: filter.0.into(),
                sub_string: filter.1.into(),
                sub_version: version,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub(crate) fn records(answer: &Command) -> Vec<MessageView> {
    split_records(answer.body.clone())
        .map(Result::unwrap)
        .collect()
}

pub(crate) fn send_request(topic: &str, properties: &[(&str, &str)], body: &str) -> Command {
    send_request_with(request::SEND_MESSAGE, topic, properties, body)
}

pub(crate) fn send_request_with(
    code: i32,
    topic: &str,
    properties: &[(&str, &str)],
    body: &str,
) -> Command {
    let mut text = PropertiesBuf::new();
    for (name, value) in properties {
        text.push(name, value);
    }
    let header = SendMessageRequest {
        producer_group: "PG",
        topic,
        default_topic: "TBW102",
        default_topic_queue_nums: 1,
        queue_id: 0,
        sys_flag: 0,
        born_timestamp: now_ms(),
        flag: 7,
        properties: Some(text.as_str()),
        reconsume_times: Some(0),
        unit_mode: false,
        max_reconsume_times: None,
        batch: false,
        bname: None,
    };
    let command = match code {
        request::SEND_MESSAGE | request::SEND_REPLY_MESSAGE => Command::request_with(code, &header),
        _ => Command::request_with(code, &SendMessageRequestV2(header)),
    };
    command.with_body(body.to_owned())
}

pub(crate) fn pull_request(group: &str, topic: &str, offset: i64, filter: (&str, &str)) -> Command {
    let header = PullMessageRequest {
        consumer_group: group,
        topic,
        queue_id: 0,
        queue_offset: offset,
        max_msg_nums: 32,
        sys_flag: minimq_protocol::sys_flag::pull::SUBSCRIPTION,
        commit_offset: 0,
        suspend_timeout_millis: 0,
        subscription: Some(filter.1),
        sub_version: 0,
        expression_type: Some(filter.0),
        max_msg_bytes: None,
        bname: None,
    };
    Command::request_with(request::PULL_MESSAGE, &header)
}

/// Warnings and errors that this process has logged since this was first called.
pub(crate) fn warnings() -> &'static Mutex<Vec<String>> {
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    static LISTENS: std::sync::Once = std::sync::Once::new();
    LISTENS.call_once(|| tracing::subscriber::set_global_default(Warnings(&LINES)).unwrap());
    &LINES
}

struct Warnings(&'static Mutex<Vec<String>>);

struct Line(String);

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _span: &tracing::span::Id) {}

    fn exit(&self, _span: &tracing::span::Id) {}
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !so().await {
        assert!(begun.elapsed() < TIMEOUT, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Signs a request for an account.
pub(crate) fn signed(mut command: Command, access_key: &str, secret: &str) -> Command {
    command.ext.push(acl_signature::ACCESS_KEY, access_key);
    let signature = acl_signature::sign(secret, command.ext.iter(), &command.body);
    command.ext.push(acl_signature::SIGNATURE, &signature);
    command
}
