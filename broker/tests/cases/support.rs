//! A broker in this process on a free port with a store of its own, requests to it, and a socket that speaks frames.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use minimq_broker::broker::Running;
use minimq_broker::{Broker, BrokerConfig};
use minimq_common::config::{Config, Sources};
use minimq_protocol::batch::BatchRecord;
use minimq_protocol::code::{request, response};
use minimq_protocol::frame::{self, Check, MAX_FRAME_LEN};
use minimq_protocol::header::{PullMessageRequest, SendMessageRequest, SendMessageRequestV2};
use minimq_protocol::message::{MessageView, split_records};
use minimq_protocol::{Command, sys_flag::pull as pull_flag};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than any answer takes.
pub const LONG: Duration = Duration::from_secs(20);

/// A broker `b0` of cluster `C1`.
pub struct TestBroker {
    running: Option<Running>,
    folder: minimq_common::temporary::TemporaryFolder,
    settings: Vec<String>,
}

impl TestBroker {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With settings `key=value` of its own.
    pub async fn start_with(settings: &[&str]) -> Self {
        let mut broker = Self {
            running: None,
            folder: minimq_common::temporary::TemporaryFolder::new().unwrap(),
            settings: settings.iter().map(ToString::to_string).collect(),
        };
        broker.open().await;
        broker
    }

    async fn open(&mut self) {
        let mut sources = Sources::default();
        for (key, value) in [
            ("brokerClusterName", "C1"),
            ("brokerName", "b0"),
            ("bindAddress", "127.0.0.1"),
            ("brokerIP1", "127.0.0.1"),
            ("listenPort", "0"),
            ("mappedFileSizeCommitLog", "33554432"),
            ("diskSpaceWarningLevelRatio", "100"),
            ("diskSpaceCleanForciblyRatio", "100"),
        ] {
            sources.set_key(key, value);
        }
        sources.set_key("storePathRootDir", self.folder.path().to_str().unwrap());
        for pair in &self.settings {
            sources.set(pair).unwrap();
        }
        let config: Config<BrokerConfig> = Config::load(&sources).unwrap();
        self.running = Some(Broker::start(config, |_| {}).await.unwrap());
    }

    /// Stops it and starts it again on the same store.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.open().await;
    }

    pub async fn stop(&mut self) {
        self.running.take().unwrap().stop().await.unwrap();
    }

    pub fn addr(&self) -> SocketAddr {
        self.running.as_ref().unwrap().local_addr()
    }

    pub fn state(&self) -> &Broker {
        &self.running.as_ref().unwrap().broker
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.running.as_ref().unwrap().server().connection_count()
    }

    pub async fn connect(&self) -> Wire {
        Wire::connect(self.addr()).await
    }

    /// Waits until so many messages of a queue can be pulled.
    pub async fn until_readable(&self, topic: &str, queue_id: i32, count: i64) {
        until("all messages can be pulled", || {
            let reader = self.state().store.reader();
            reader.max_offset(topic, queue_id).get() >= count
        })
        .await;
    }
}

/// A connection that speaks frames and nothing else.
pub struct Wire {
    pub stream: TcpStream,
    buffer: BytesMut,
    opaque: i32,
}

impl Wire {
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: BytesMut::new(),
            opaque: 100,
        }
    }

    /// Writes a request, with an opaque of its own, which is given back.
    pub async fn write(&mut self, command: &Command) -> i32 {
        self.opaque += 1;
        let mut command = command.clone();
        command.opaque = self.opaque;
        self.stream.write_all(&command.to_frame()).await.unwrap();
        self.opaque
    }

    /// The next frame; `None` when the broker has closed.
    pub async fn next(&mut self) -> Option<Command> {
        let next = async {
            loop {
                if let Check::Whole { len } = frame::check(&self.buffer, MAX_FRAME_LEN).unwrap() {
                    return Some(frame::parse(self.buffer.split_to(len).freeze()).unwrap());
                }
                match self.stream.read_buf(&mut self.buffer).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        };
        tokio::time::timeout(LONG, next)
            .await
            .expect("an answer, or the end, within 20 s")
    }

    /// A request and its answer. Requests that the broker sends meanwhile are passed over.
    pub async fn call(&mut self, command: &Command) -> Command {
        let opaque = self.write(command).await;
        self.answer(opaque).await
    }

    pub async fn answer(&mut self, opaque: i32) -> Command {
        loop {
            let answer = self.next().await.expect("the connection stays open");
            if answer.is_response() {
                assert_eq!(answer.opaque, opaque, "{answer:?}");
                return answer;
            }
        }
    }

    /// Whether nothing comes for so long.
    pub async fn is_silent(&mut self, time: Duration) -> bool {
        let mut byte = [0; 1];
        self.buffer.is_empty()
            && tokio::time::timeout(time, self.stream.peek(&mut byte))
                .await
                .is_err()
    }

    pub async fn send(&mut self, send: &Send<'_>) -> Command {
        self.call(&send.command()).await
    }

    pub async fn pull(&mut self, pull: &Pull<'_>) -> Pulled {
        Pulled::of(self.call(&pull.command()).await)
    }

    pub async fn create_topic(&mut self, topic: &str, read: i32, write: i32, perm: i32) -> Command {
        let number = |n: i32| n.to_string();
        let request = Command::request(request::UPDATE_AND_CREATE_TOPIC)
            .with_ext("topic", topic)
            .with_ext("defaultTopic", "TBW102")
            .with_ext("readQueueNums", &number(read))
            .with_ext("writeQueueNums", &number(write))
            .with_ext("perm", &number(perm))
            .with_ext("topicFilterType", "SINGLE_TAG");
        self.call(&request).await
    }

    /// One consumer of a group, subscribed to topics with an expression each.
    pub async fn heartbeat(&mut self, client: &str, consumer: &Consumer<'_>) -> Command {
        let body = consumer.heartbeat(client);
        self.call(&Command::request(request::HEART_BEAT).with_body(body))
            .await
    }

    pub async fn consumers(&mut self, group: &str) -> Command {
        let request =
            Command::request(request::GET_CONSUMER_LIST_BY_GROUP).with_ext("consumerGroup", group);
        self.call(&request).await
    }
}

/// A consumer as heartbeats tell of it.
#[derive(Clone, Copy)]
pub struct Consumer<'a> {
    pub group: &'a str,
    pub broadcasting: bool,
    pub topics: &'a [(&'a str, &'a str)],
}

impl Consumer<'_> {
    pub fn heartbeat(&self, client: &str) -> String {
        let subscriptions: Vec<_> = self
            .topics
            .iter()
            .map(|(topic, expression)| {
                serde_json::json!({
                    "classFilterMode": false, "codeSet": [], "expressionType": "TAG", "subString": expression,
                    "subVersion": 1, "tagsSet": [], "topic": topic,
                })
            })
            .collect();
        let model = if self.broadcasting {
            "BROADCASTING"
        } else {
            "CLUSTERING"
        };
        serde_json::json!({
            "clientID": client,
            "consumerDataSet": [{
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
                "groupName": self.group, "messageModel": model, "subscriptionDataSet": subscriptions,
                "unitMode": false,
            }],
            "producerDataSet": [],
        })
        .to_string()
    }
}

/// One send.
#[derive(Clone, Copy)]
pub struct Send<'a> {
    pub topic: &'a str,
    pub queue_id: i32,
    pub body: &'a [u8],
    pub properties: &'a str,
    /// The body is a batch, and the code is that of batches.
    pub batch: bool,
    /// Times the message was consumed before.
    pub reconsumed: i32,
}

impl<'a> Send<'a> {
    pub fn new(topic: &'a str, queue_id: i32, body: &'a [u8]) -> Self {
        Self {
            topic,
            queue_id,
            body,
            properties: "",
            batch: false,
            reconsumed: 0,
        }
    }

    pub fn with(mut self, properties: &'a str) -> Self {
        self.properties = properties;
        self
    }

    pub fn command(&self) -> Command {
        let header = SendMessageRequest {
            producer_group: "P",
            topic: self.topic,
            default_topic: "TBW102",
            default_topic_queue_nums: 4,
            queue_id: self.queue_id,
            sys_flag: 0,
            born_timestamp: 1_700_000_000_000,
            flag: 7,
            properties: Some(self.properties),
            reconsume_times: Some(self.reconsumed),
            unit_mode: false,
            max_reconsume_times: None,
            batch: self.batch,
            bname: None,
        };
        let code = if self.batch {
            request::SEND_BATCH_MESSAGE
        } else {
            request::SEND_MESSAGE_V2
        };
        Command::request_with(code, &SendMessageRequestV2(header))
            .with_body(Bytes::copy_from_slice(self.body))
    }
}

/// The body of a batch of messages with their properties.
pub fn batch_body(messages: &[(&[u8], &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (body, properties) in messages {
        let record = BatchRecord {
            flag: 0,
            body,
            properties: properties.as_bytes(),
        };
        record.encode(&mut out).unwrap();
    }
    out
}

/// One pull; brings its subscription along unless it is `None`.
#[derive(Clone, Copy)]
pub struct Pull<'a> {
    pub group: &'a str,
    pub topic: &'a str,
    pub queue_id: i32,
    pub offset: i64,
    pub max_count: i32,
    pub subscription: Option<&'a str>,
    /// Waits so long for messages.
    pub suspend_ms: Option<i64>,
    /// Commits this offset.
    pub commit: Option<i64>,
}

impl<'a> Pull<'a> {
    pub fn new(topic: &'a str, queue_id: i32, offset: i64) -> Self {
        Self {
            group: "G",
            topic,
            queue_id,
            offset,
            max_count: 32,
            subscription: Some("*"),
            suspend_ms: None,
            commit: None,
        }
    }

    pub fn command(&self) -> Command {
        let bit = |set: bool, bit: i32| if set { bit } else { 0 };
        let header = PullMessageRequest {
            consumer_group: self.group,
            topic: self.topic,
            queue_id: self.queue_id,
            queue_offset: self.offset,
            max_msg_nums: self.max_count,
            sys_flag: bit(self.subscription.is_some(), pull_flag::SUBSCRIPTION)
                | bit(self.suspend_ms.is_some(), pull_flag::SUSPEND)
                | bit(self.commit.is_some(), pull_flag::COMMIT_OFFSET),
            commit_offset: self.commit.unwrap_or(0),
            suspend_timeout_millis: self.suspend_ms.unwrap_or(0),
            subscription: self.subscription,
            sub_version: 0,
            expression_type: None,
            max_msg_bytes: None,
            bname: None,
        };
        Command::request_with(request::PULL_MESSAGE, &header)
    }
}

/// What a pull brought.
#[derive(Debug)]
pub struct Pulled {
    pub code: i32,
    pub next: i64,
    pub min: i64,
    pub max: i64,
    pub remark: String,
    pub messages: Vec<MessageView>,
}

impl Pulled {
    pub fn of(answer: Command) -> Self {
        assert!(answer.is_response());
        let number = |field| {
            answer
                .ext
                .get(field)
                .map_or(i64::MIN, |value| value.parse().unwrap())
        };
        Self {
            code: answer.code,
            next: number("nextBeginOffset"),
            min: number("minOffset"),
            max: number("maxOffset"),
            remark: answer.remark().to_owned(),
            messages: split_records(answer.body.clone())
                .map(|record| record.unwrap())
                .collect(),
        }
    }

    /// Code, next, min and max offset.
    pub fn numbers(&self) -> (i32, i64, i64, i64) {
        (self.code, self.next, self.min, self.max)
    }

    pub fn bodies(&self) -> Vec<String> {
        let text = |m: &MessageView| String::from_utf8_lossy(m.body()).into_owned();
        self.messages.iter().map(text).collect()
    }
}

/// An ext field as a number.
pub fn number(answer: &Command, field: &str) -> i64 {
    let value = answer.ext.get(field);
    value
        .unwrap_or_else(|| panic!("no {field} in {answer:?}"))
        .parse()
        .unwrap()
}

/// Asserts an answer's code.
#[track_caller]
pub fn has_code(answer: &Command, code: i32) {
    assert!(answer.is_response(), "{answer:?}");
    assert_eq!(answer.code, code, "{:?}", answer.remark());
}

/// Asserts success.
#[track_caller]
pub fn ok(answer: &Command) {
    has_code(answer, response::SUCCESS);
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..4_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("still not so after 20 s: {what}");
}
