//! The broker as a process that dies at any moment: what it has acknowledged under SYNC_FLUSH is there when it is back,
//! under the same offset, and nothing is there twice.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use minimq_protocol::code::{request, response};
use minimq_protocol::frame::{self, Check, MAX_FRAME_LEN};
use minimq_protocol::header::{
    PullMessageRequest, PullMessageResponse, SendMessageRequest, SendMessageRequestV2,
    SendMessageResponse,
};
use minimq_protocol::message::split_records;
use minimq_protocol::{Command, sys_flag};

const KILLS: usize = 8;
const QUEUES: i32 = 3;

/// A broker process on a free port; killed when dropped.
struct Broker {
    process: Child,
    address: String,
}

impl Broker {
    fn start(store: &Path) -> Self {
        let mut process = Process::new(env!("CARGO_BIN_EXE_mqbroker"))
            .env_remove("MINIMQ_NAMESRV_ADDR")
            .args(["--set", "bindAddress=127.0.0.1"])
            .args(["--set", "brokerIP1=127.0.0.1"])
            .args(["--set", "listenPort=0"])
            .args(["--set", "brokerName=b0"])
            .args(["--set", "flushDiskType=SYNC_FLUSH"])
            .args(["--set", "mappedFileSizeCommitLog=1048576"])
            .args(["--set", "diskSpaceWarningLevelRatio=100"])
            .args(["--set", "diskSpaceCleanForciblyRatio=100"])
            .arg("--set")
            .arg(format!("storePathRootDir={}", store.display()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("mqbroker starts");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines
                .next()
                .expect("the broker says that it serves")
                .unwrap();
            // "The broker[b0, 127.0.0.1:1234] boot success. …"
            if let Some((_, rest)) = line.split_once("The broker[b0, ") {
                break rest.split(']').next().unwrap().to_owned();
            }
        };
        // Its output is read on, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection that ends with its broker.
struct Wire {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Wire {
    fn connect(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self {
            stream,
            buffer: BytesMut::new(),
        })
    }

    fn next(&mut self) -> std::io::Result<Command> {
        loop {
            if let Check::Whole { len } = frame::check(&self.buffer, MAX_FRAME_LEN).unwrap() {
                return Ok(frame::parse(self.buffer.split_to(len).freeze()).unwrap());
            }
            let mut part = [0; 16 * 1024];
            match self.stream.read(&mut part)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => self.buffer.extend_from_slice(&part[..read]),
            }
        }
    }

    fn send(&mut self, opaque: i32, queue_id: i32, body: String) -> std::io::Result<()> {
        let header = SendMessageRequest {
            producer_group: "P",
            topic: "T",
            default_topic: "TBW102",
            default_topic_queue_nums: QUEUES,
            queue_id,
            ..SendMessageRequest::default()
        };
        let mut command =
            Command::request_with(request::SEND_MESSAGE_V2, &SendMessageRequestV2(header))
                .with_body(body);
        command.opaque = opaque;
        self.stream.write_all(&command.to_frame())
    }

    fn pull(&mut self, queue_id: i32, offset: i64) -> Command {
        let header = PullMessageRequest {
            consumer_group: "G",
            topic: "T",
            queue_id,
            queue_offset: offset,
            max_msg_nums: 32,
            sys_flag: sys_flag::pull::SUBSCRIPTION,
            subscription: Some("*"),
            ..PullMessageRequest::default()
        };
        let command = Command::request_with(request::PULL_MESSAGE, &header);
        self.stream.write_all(&command.to_frame()).unwrap();
        self.next().unwrap()
    }
}

/// Queue and offset → body.
type Messages = BTreeMap<(i32, i64), String>;

/// Sends until the broker is gone; gives what was acknowledged. Tells `begun` of its first answer.
fn produce(address: &str, name: &str, begun: &mpsc::Sender<()>) -> Messages {
    let mut acknowledged = Messages::new();
    let mut under_way = BTreeMap::new();
    let mut number = 0;
    let mut wire = Wire::connect(address).unwrap();
    loop {
        while under_way.len() < 8 {
            let queue_id = number % QUEUES;
            let body = format!(
                "{name}-{number}-{}",
                "x".repeat((number * 37 % 900) as usize)
            );
            if wire.send(number, queue_id, body.clone()).is_err() {
                return acknowledged;
            }
            under_way.insert(number, (queue_id, body));
            number += 1;
        }
        let Ok(answer) = wire.next() else {
            return acknowledged;
        };
        assert_eq!(answer.code, response::SUCCESS, "{}", answer.remark());
        let header: SendMessageResponse<'_> = answer.header().unwrap();
        let (queue_id, body) = under_way.remove(&answer.opaque).unwrap();
        assert_eq!(header.queue_id, queue_id);
        let known = acknowledged.insert((queue_id, header.queue_offset), body);
        assert_eq!(known, None, "one offset, two messages");
        // Nobody listens any more when the kill has been decided.
        let _ = begun.send(());
    }
}

/// Everything that can be pulled.
fn pull_all(broker: &Broker) -> Messages {
    let mut wire = Wire::connect(&broker.address).unwrap();
    let mut found = Messages::new();
    for queue_id in 0..QUEUES {
        let mut offset = 0;
        loop {
            let answer = wire.pull(queue_id, offset);
            if answer.code == response::PULL_NOT_FOUND {
                break;
            }
            assert_eq!(answer.code, response::SUCCESS, "{}", answer.remark());
            let header: PullMessageResponse = answer.header().unwrap();
            for record in split_records(Bytes::clone(&answer.body)) {
                let record = record.unwrap();
                assert!(record.body_crc_holds());
                assert_eq!(record.queue_offset(), offset, "offsets without a gap");
                offset += 1;
                let body = String::from_utf8(record.body().to_vec()).unwrap();
                found.insert((queue_id, record.queue_offset()), body);
            }
            assert_eq!(header.next_begin_offset, offset);
        }
    }
    found
}

#[test]
fn a_killed_broker_keeps_what_it_acknowledged_under_synchronous_flush() {
    let store = tempfile::tempdir().unwrap();
    let mut acknowledged = Messages::new();
    let mut downtime = Vec::new();
    for round in 0..KILLS {
        let begin = Instant::now();
        let broker = Broker::start(store.path());
        downtime.push(begin.elapsed());
        let (begun, first) = mpsc::channel();
        let producers: Vec<_> = (0..2)
            .map(|p| {
                let (address, begun) = (broker.address.clone(), begun.clone());
                std::thread::spawn(move || produce(&address, &format!("r{round}p{p}"), &begun))
            })
            .collect();
        // Killed after so many answers, so that every round dies at another place of its work.
        for _ in 0..=(round * 61) {
            first
                .recv_timeout(Duration::from_secs(20))
                .expect("an answer");
        }
        broker.kill();
        for producer in producers {
            for (place, body) in producer.join().unwrap() {
                let known = acknowledged.insert(place, body);
                assert_eq!(known, None, "acknowledged twice: {place:?}");
            }
        }
        let broker = Broker::start(store.path());
        let found = pull_all(&broker);
        for (place, body) in &acknowledged {
            assert_eq!(found.get(place), Some(body), "round {round}, {place:?}");
        }
        broker.kill();
    }
    println!("{} messages, starts {downtime:?}", acknowledged.len());
    assert!(acknowledged.len() > KILLS);
}
