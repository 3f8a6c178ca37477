//! Brokers, filter servers and members of consumer groups for the tests.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_broker::{Broker, BrokerConfig};
use minimq_common::clock::Clock;
use minimq_common::config::{Config, Sources};
use minimq_filtersrv::{FilterServer, FiltersrvConfig, Running};
use minimq_protocol::Command;
use minimq_protocol::body::FilterServerStats;
use minimq_protocol::code::{request, response};
use minimq_protocol::crc::body_crc;
use minimq_protocol::header::{
    PullMessageRequest, PullMessageResponse, RegisterFilterServerResponse,
    RegisterMessageFilterClassRequest, SendMessageRequest,
};
use minimq_protocol::message::{MessageView, split_records};
use minimq_protocol::properties::PropertiesBuf;
use minimq_protocol::sys_flag::pull as pull_flag;
use minimq_remoting::{
    Answers, Client, ClientConfig, Connection, Server, ServerConfig, ServerHandle, Service,
};

pub(crate) use crate::shared::*;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits for a condition; says which one never came.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < TIMEOUT, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a future made again and again gives something.
pub(crate) async fn until_some<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = attempt().await {
            return value;
        }
        assert!(begin.elapsed() < TIMEOUT, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn client() -> Client {
    Client::new(ClientConfig::default()).unwrap()
}

/// A broker; stops when dropped, so that a failing test ends.
pub(crate) struct TestBroker(Option<minimq_broker::broker::Running>);

impl TestBroker {
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.0.as_ref().unwrap().local_addr()
    }

    /// The filter servers it lists.
    pub(crate) fn filter_servers(&self) -> Vec<String> {
        self.0.as_ref().unwrap().broker.filter_servers.addresses()
    }

    pub(crate) async fn stop(mut self) {
        self.0.take().unwrap().stop().await.unwrap();
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        if let Some(running) = &self.0 {
            running.broker.stopping.cancel();
        }
    }
}

/// A broker on a folder; port 0 takes a free one.
pub(crate) async fn broker(folder: &Path, port: u16, sets: &[String]) -> TestBroker {
    let mut sources = Sources::default();
    let own = [
        "brokerIP1=127.0.0.1".to_owned(),
        "bindAddress=127.0.0.1".to_owned(),
        format!("listenPort={port}"),
        format!("storePathRootDir={}", folder.display()),
        "mappedFileSizeCommitLog=4194304".to_owned(),
        "diskSpaceWarningLevelRatio=100".to_owned(),
        "diskSpaceCleanForciblyRatio=100".to_owned(),
    ];
    for set in own.iter().chain(sets) {
        sources.set(set).unwrap();
    }
    let config: Config<BrokerConfig> = Config::load(&sources).unwrap();
    TestBroker(Some(Broker::start(config, |_| ()).await.unwrap()))
}

pub(crate) fn config(broker: &str, sets: &[&str]) -> Config<FiltersrvConfig> {
    let mut sources = Sources::default();
    sources.set("bindAddress=127.0.0.1").unwrap();
    sources.set_key("connectWhichBroker", broker);
    for set in sets {
        sources.set(set).unwrap();
    }
    Config::load_with(&sources, FiltersrvConfig::finish, Clock::system()).unwrap()
}

/// A filter server that has registered.
pub(crate) async fn filter_server(broker: &str, sets: &[&str]) -> Running {
    let running = FilterServer::start(&config(broker, sets)).unwrap();
    tokio::time::timeout(TIMEOUT, running.registered())
        .await
        .unwrap();
    running
}

/// Broker, filter server and their folder.
pub(crate) struct Setting {
    pub(crate) folder: minimq_common::temporary::TemporaryFolder,
    pub(crate) broker: Option<TestBroker>,
    pub(crate) broker_addr: SocketAddr,
    pub(crate) server: Running,
}

impl Setting {
    pub(crate) async fn start(sets: &[&str]) -> Self {
        let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
        let broker = broker(folder.path(), 0, &[]).await;
        let broker_addr = broker.local_addr();
        let server = filter_server(&broker_addr.to_string(), sets).await;
        Self {
            folder,
            broker: Some(broker),
            broker_addr,
            server,
        }
    }

    pub(crate) fn member(&self, group: &str, topic: &str) -> Member {
        Member::new(self.server.local_addr(), group, topic)
    }

    pub(crate) async fn send(&self, topic: &str, properties: &[(&str, &str)], body: &[u8]) {
        send(&client(), self.broker_addr, topic, properties, body).await;
    }

    /// Messages `SequenceId` 0 … `count` − 1.
    pub(crate) async fn send_sequence(&self, topic: &str, count: u32) {
        let client = client();
        for n in 0..count {
            send(
                &client,
                self.broker_addr,
                topic,
                &[("SequenceId", &n.to_string())],
                b"body",
            )
            .await;
        }
    }
}

pub(crate) async fn send(
    client: &Client,
    broker: SocketAddr,
    topic: &str,
    properties: &[(&str, &str)],
    body: &[u8],
) {
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
        born_timestamp: 1_700_000_000_000,
        properties: Some(text.as_str()),
        ..SendMessageRequest::default()
    };
    let command = Command::request_with(request::SEND_MESSAGE, &header).with_body(body.to_vec());
    let answer = client
        .call(&broker.to_string(), command, TIMEOUT)
        .await
        .unwrap();
    assert_eq!(answer.code, response::SUCCESS, "{}", answer.remark());
}

/// What a pull brought.
#[derive(Debug)]
pub(crate) struct Pulled {
    pub(crate) code: i32,
    pub(crate) remark: String,
    pub(crate) header: Option<PullMessageResponse>,
    pub(crate) records: Vec<MessageView>,
}

impl Pulled {
    pub(crate) fn next(&self) -> i64 {
        self.header.as_ref().unwrap().next_begin_offset
    }

    pub(crate) fn sequence(&self) -> Vec<u32> {
        self.records.iter().map(sequence_id).collect()
    }
}

pub(crate) fn sequence_id(record: &MessageView) -> u32 {
    record
        .properties()
        .get("SequenceId")
        .unwrap()
        .parse()
        .unwrap()
}

/// One member of a group with a connection of its own.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) client: Client,
    pub(crate) server: String,
    pub(crate) group: String,
    pub(crate) topic: String,
}

impl Member {
    pub(crate) fn new(server: SocketAddr, group: &str, topic: &str) -> Self {
        Self {
            client: client(),
            server: server.to_string(),
            group: group.to_owned(),
            topic: topic.to_owned(),
        }
    }

    pub(crate) async fn call(&self, command: Command) -> Command {
        self.client
            .call(&self.server, command, TIMEOUT)
            .await
            .unwrap()
    }

    pub(crate) async fn upload_as(&self, class_name: &str, crc: i32, body: &[u8]) -> (i32, String) {
        let header = RegisterMessageFilterClassRequest {
            consumer_group: &self.group,
            topic: &self.topic,
            class_name,
            class_crc: crc,
        };
        let command = Command::request_with(request::REGISTER_MESSAGE_FILTER_CLASS, &header)
            .with_body(body.to_vec());
        let answer = self.call(command).await;
        (answer.code, answer.remark().to_owned())
    }

    /// As stock clients upload.
    pub(crate) async fn upload(&self, body: impl AsRef<[u8]>) -> (i32, String) {
        let body = body.as_ref();
        self.upload_as("org.example.Filter", body_crc(body), body)
            .await
    }

    pub(crate) async fn uploaded(&self, body: impl AsRef<[u8]>) {
        let (code, remark) = self.upload(body).await;
        assert_eq!(code, response::SUCCESS, "{remark}");
    }

    pub(crate) fn pull_header(&self, offset: i64, suspend: Duration) -> PullMessageRequest<'_> {
        PullMessageRequest {
            consumer_group: &self.group,
            topic: &self.topic,
            queue_id: 0,
            queue_offset: offset,
            max_msg_nums: 32,
            sys_flag: pull_flag::build(false, !suspend.is_zero(), false, true, false),
            commit_offset: 0,
            suspend_timeout_millis: suspend.as_millis() as i64,
            sub_version: 7,
            ..PullMessageRequest::default()
        }
    }

    pub(crate) async fn pull_with(&self, header: &PullMessageRequest<'_>) -> Pulled {
        pulled(
            self.call(Command::request_with(request::PULL_MESSAGE, header))
                .await,
        )
    }

    pub(crate) async fn pull(&self, offset: i64) -> Pulled {
        self.pull_with(&self.pull_header(offset, Duration::ZERO))
            .await
    }

    /// Pulls as a consumer does until nothing is left behind `end`; the records.
    pub(crate) async fn consume(&self, mut offset: i64, end: i64) -> Vec<MessageView> {
        let mut all = Vec::new();
        while offset < end {
            let mut pulled = self.pull(offset).await;
            assert!([0, 20].contains(&pulled.code), "{pulled:?}");
            assert!(pulled.next() > offset, "{pulled:?}");
            offset = pulled.next();
            all.append(&mut pulled.records);
        }
        all
    }

    pub(crate) async fn figures(&self) -> FilterServerStats {
        let answer = self.call(Command::request(request::GET_FILTER_STATS)).await;
        assert_eq!(answer.code, response::SUCCESS, "{}", answer.remark());
        FilterServerStats::from_json(&answer.body).unwrap()
    }
}

pub(crate) fn pulled(answer: Command) -> Pulled {
    Pulled {
        code: answer.code,
        remark: answer.remark().to_owned(),
        header: answer.header().ok(),
        records: split_records(answer.body).map(Result::unwrap).collect(),
    }
}

/// A filter whose body is `code`, with one page of memory.
pub(crate) fn module(code: &str) -> String {
    format!(
        "(module (memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\"))
           (func (export \"filter\") (result i32) {code}))"
    )
}

/// Traps, loops or answers its own error at the message whose `SequenceId` is `at`, and keeps the others.
pub(crate) fn fails_at(at: u32, how: &str) -> String {
    format!(
        r#"(module (import "minimq" "property_i64" (func $i64 (param i32 i32 i32) (result i32)))
          (memory (export "memory") 1) (data (i32.const 0) "SequenceId")
          (func (export "minimq_filter_abi_1"))
          (func (export "filter") (result i32)
            (drop (call $i64 (i32.const 0) (i32.const 10) (i32.const 16)))
            (if (i64.eq (i64.load (i32.const 16)) (i64.const {at})) (then {how}))
            i32.const 1))"#
    )
}

/// A broker that answers pulls as a test wants.
pub(crate) struct FakeBroker {
    pub(crate) server: ServerHandle,
}

type Script = Box<dyn Fn(&PullMessageRequest<'_>) -> Option<Command> + Send + Sync>;

struct Scripted {
    script: Script,
    look: Box<dyn Fn(&Command) + Send + Sync>,
    /// So many registrations are refused at first.
    refusals: AtomicUsize,
}

impl Service for Scripted {
    type Session = Vec<minimq_remoting::Responder>;

    fn open(&self, _connection: &Connection) -> Self::Session {
        Vec::new()
    }

    fn request(&self, held: &mut Self::Session, command: Command, answers: &mut Answers<'_>) {
        let id = command.id();
        (self.look)(&command);
        match command.code {
            request::REGISTER_FILTER_SERVER if self.refuses() => {
                answers.refuse(id, response::SYSTEM_ERROR, "not now");
            }
            request::REGISTER_FILTER_SERVER => {
                let header = RegisterFilterServerResponse {
                    broker_name: "fake",
                    broker_id: 0,
                };
                answers.answer(id, Command::response_to(&command, 0).with_header(&header));
            }
            _ => match (self.script)(&command.header().unwrap()) {
                Some(answer) => answers.answer(id, answer),
                None => held.push(answers.later(id)),
            },
        }
    }
}

impl Scripted {
    fn refuses(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        self.refusals
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok()
    }
}

impl FakeBroker {
    /// `script` makes the answer of each pull; `None` holds it for ever.
    pub(crate) fn start(
        script: impl Fn(&PullMessageRequest<'_>) -> Option<Command> + Send + Sync + 'static,
    ) -> Self {
        Self::serve(Scripted {
            script: Box::new(script),
            look: Box::new(|_| ()),
            refusals: AtomicUsize::new(0),
        })
    }

    /// Has nothing new, and shows each request as it comes.
    pub(crate) fn start_raw(look: impl Fn(&Command) + Send + Sync + 'static) -> Self {
        Self::start_refusing(0, look)
    }

    /// As [`Self::start_raw`], but refuses the first registrations.
    pub(crate) fn start_refusing(
        refusals: usize,
        look: impl Fn(&Command) + Send + Sync + 'static,
    ) -> Self {
        let script = |_: &PullMessageRequest<'_>| Some(answer(19, 0, Bytes::new()));
        Self::serve(Scripted {
            script: Box::new(script),
            look: Box::new(look),
            refusals: AtomicUsize::new(refusals),
        })
    }

    fn serve(service: Scripted) -> Self {
        let service = Arc::new(service);
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        Self {
            server: Server::bind(config, service).unwrap().spawn(),
        }
    }

    pub(crate) fn addr(&self) -> String {
        self.server.local_addr().to_string()
    }
}

/// An answer to a pull.
pub(crate) fn answer(code: i32, next: i64, body: impl Into<Bytes>) -> Command {
    let header = PullMessageResponse {
        suggest_which_broker_id: 1,
        next_begin_offset: next,
        min_offset: 3,
        max_offset: 1000,
    };
    Command::request(code).with_header(&header).with_body(body)
}
