//! A send allocates nothing: its frame is a slice of the read buffer, its record is written where it stays, its answer
//! goes into a pooled buffer. The broker runs on this test's thread, whose allocations are counted; the sender on
//! another.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use minimq_broker::{Broker, BrokerConfig};
use minimq_common::config::{Config, Sources};
use minimq_common::temporary::TemporaryFolder;
use minimq_protocol::code::{request, response};
use minimq_protocol::frame::{self, Check, MAX_FRAME_LEN};
use minimq_protocol::header::{SendMessageRequest, SendMessageRequestV2};
use minimq_protocol::{Command, SerializeType};
use tokio::sync::oneshot;

fn config(folder: &TemporaryFolder) -> Config<BrokerConfig> {
    let mut sources = Sources::default();
    for (key, value) in [
        ("bindAddress", "127.0.0.1"),
        ("listenPort", "0"),
        ("mappedFileSizeCommitLog", "33554432"),
        ("diskSpaceWarningLevelRatio", "100"),
        ("diskSpaceCleanForciblyRatio", "100"),
    ] {
        sources.set_key(key, value);
    }
    sources.set_key("storePathRootDir", folder.path().to_str().unwrap());
    Config::load(&sources).unwrap()
}

/// Sends as a Java producer makes them: with properties, whose separators JSON escapes.
fn sends(serialize: SerializeType, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..count {
        let properties = format!(
            "UNIQ_KEY\u{1}7F0000010A2B18B4AAC200000000{number:04X}\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA\u{2}"
        );
        let header = SendMessageRequestV2(SendMessageRequest {
            producer_group: "producers",
            topic: "TopicTest",
            default_topic: "TBW102",
            default_topic_queue_nums: 4,
            queue_id: (number % 4) as i32,
            born_timestamp: 1_795_995_315_131,
            properties: Some(&properties),
            reconsume_times: Some(0),
            ..SendMessageRequest::default()
        });
        let mut command = Command::request_with(request::SEND_MESSAGE_V2, &header)
            .with_serialize(serialize)
            .with_body(vec![b'x'; 128]);
        command.opaque = number as i32;
        bytes.extend_from_slice(&command.to_frame());
    }
    bytes
}

/// Writes all at once and reads `count` answers; `rounds` times.
fn produce(stream: &mut TcpStream, requests: &[u8], count: usize, rounds: usize) {
    let mut buffer = vec![0; 64 * 1024];
    for _ in 0..rounds {
        stream.write_all(requests).unwrap();
        let (mut filled, mut answers) = (0, 0);
        while answers < count {
            let read = stream.read(&mut buffer[filled..]).unwrap();
            assert_ne!(read, 0, "the broker has closed");
            filled += read;
            while let Check::Whole { len } = frame::check(&buffer[..filled], MAX_FRAME_LEN).unwrap()
            {
                let answer = frame::parse(buffer[..len].to_vec().into()).unwrap();
                assert_eq!(answer.code, response::SUCCESS, "{answer:?}");
                buffer.copy_within(len..filled, 0);
                filled -= len;
                answers += 1;
            }
        }
    }
}

/// Has the sender do `rounds`, and counts what the broker allocates meanwhile.
fn allocations(
    runtime: &tokio::runtime::Runtime,
    broker: SocketAddr,
    (serialize, at_once, rounds): (SerializeType, usize, usize),
) -> u64 {
    let (warm, is_warm) = oneshot::channel();
    let (done, is_done) = oneshot::channel();
    let (go, may_go) = std::sync::mpsc::channel();
    let sender = std::thread::spawn(move || {
        let requests = sends(serialize, at_once);
        let mut stream = TcpStream::connect(broker).unwrap();
        stream.set_nodelay(true).unwrap();
        produce(&mut stream, &requests, at_once, 20);
        warm.send(()).unwrap();
        may_go.recv().unwrap();
        produce(&mut stream, &requests, at_once, rounds);
        done.send(()).unwrap();
    });
    runtime.block_on(is_warm).unwrap();
    let counted = allocation_counter::measure(|| {
        go.send(()).unwrap();
        runtime.block_on(is_done).unwrap();
    });
    sender.join().unwrap();
    counted.count_total
}

#[test]
fn a_send_allocates_nothing() {
    let folder = TemporaryFolder::new().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let running = runtime
        .block_on(Broker::start(config(&folder), |_| {}))
        .unwrap();
    for serialize in [SerializeType::Json, SerializeType::Rocketmq] {
        for (at_once, rounds) in [(1, 1000), (64, 50)] {
            let count = allocations(&runtime, running.local_addr(), (serialize, at_once, rounds));
            let sends = (at_once * rounds) as u64;
            eprintln!(
                "{}, {at_once} at once: {count} for {sends}",
                serialize.name()
            );
            assert!(
                count * 10 < sends,
                "{count} allocations for {sends} sends, {at_once} at once, {}",
                serialize.name()
            );
        }
    }
    runtime.block_on(running.stop()).unwrap();
}
