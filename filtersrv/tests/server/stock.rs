//! Stock consumers' own bytes (recorded frames), and bytes that nobody meant (filter server spec 19, T11 and T12).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use minimq_protocol::code::{request, response};
use minimq_protocol::crc::body_crc;
use minimq_protocol::header::{PullMessageRequest, RegisterMessageFilterClassRequest};
use minimq_protocol::sys_flag::pull as pull_flag;
use minimq_protocol::{Command, frame};

use crate::support::*;

/// All recorded requests of one code that a stock consumer sent.
fn recorded(code: &str) -> Vec<(String, Command)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/frames");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("recorded frames") {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with(code) && name.contains(".request.java") {
            let bytes = std::fs::read(&path).unwrap();
            all.push((name, frame::parse(Bytes::from(bytes)).unwrap()));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Sends a request as it is and reads its answer.
fn exchange(stream: &mut TcpStream, command: &Command) -> Command {
    let mut bytes = BytesMut::new();
    command.encode(&mut bytes);
    stream.write_all(&bytes).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = length.to_vec();
    answer.resize(4 + u32::from_be_bytes(length) as usize, 0);
    stream.read_exact(&mut answer[4..]).unwrap();
    frame::parse(Bytes::from(answer)).unwrap()
}

/// With a module instead of the recorded Java class.
fn with_module(recorded: &Command) -> Command {
    let module = module("i32.const 1");
    let mut header: RegisterMessageFilterClassRequest<'_> = recorded.header().unwrap();
    header.class_crc = body_crc(module.as_bytes());
    let mut command = Command::request_with(request::REGISTER_MESSAGE_FILTER_CLASS, &header)
        .with_serialize(recorded.serialize)
        .with_body(module.clone());
    command.opaque = recorded.opaque;
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_and_pulls_of_stock_consumers_are_served_as_they_were_recorded() {
    let broker = FakeBroker::start(|pull| {
        assert_eq!((pull.topic, pull.consumer_group), ("FilterF", "CGfilter"));
        Some(answer(19, pull.queue_offset, Bytes::new()))
    });
    let server = filter_server(&broker.addr(), &[]).await;
    let addr = server.local_addr();
    let served = move || {
        let uploads = recorded("302-");
        assert_eq!(uploads.len(), 2, "one in each encoding");
        let pulls: Vec<_> = recorded("011-")
            .into_iter()
            .filter(|(_, pull)| {
                let header = pull.header::<PullMessageRequest<'_>>();
                header.is_ok_and(|pull| pull_flag::has(pull.sys_flag, pull_flag::CLASS_FILTER))
            })
            .collect();
        assert!(!pulls.is_empty());
        let mut stream = TcpStream::connect(addr).unwrap();
        for (name, upload) in &uploads {
            // A Java class is no module, and the uploader is told so.
            let refused = exchange(&mut stream, upload);
            assert_eq!(
                (refused.code, refused.opaque, refused.serialize),
                (response::SYSTEM_ERROR, upload.opaque, upload.serialize),
                "{name}"
            );
            assert!(
                refused.remark().contains("not a WebAssembly module"),
                "{}",
                refused.remark()
            );
            let taken = exchange(&mut stream, &with_module(upload));
            assert_eq!(taken.code, response::SUCCESS, "{name}: {}", taken.remark());
            assert!(taken.ext.is_empty(), "{name}");
            assert_eq!(taken.serialize, upload.serialize);
        }
        for (name, pull) in &pulls {
            let asked: PullMessageRequest<'_> = pull.header().unwrap();
            let answer = exchange(&mut stream, pull);
            assert_eq!(
                (answer.code, answer.opaque, answer.serialize),
                (response::PULL_NOT_FOUND, pull.opaque, pull.serialize),
                "{name}"
            );
            assert_eq!(
                answer.ext.get("nextBeginOffset"),
                Some(asked.queue_offset.to_string().as_str()),
                "{name}"
            );
            assert_eq!(answer.ext.get("suggestWhichBrokerId"), Some("0"), "{name}");
        }
    };
    tokio::task::spawn_blocking(served).await.unwrap();
}

/// The same numbers every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

fn disturb(addr: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(addr).unwrap();
    // It may be closed while this is written.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let _ = stream.read(&mut [0; 256]);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_at_the_port_harm_no_other_connection() {
    let broker = FakeBroker::start(|_| Some(answer(19, 0, Bytes::new())));
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    member.uploaded(SEQUENCE_ID).await;
    let addr = server.local_addr();
    let whole: Vec<Vec<u8>> = recorded("302-")
        .iter()
        .chain(&recorded("011-")[..2])
        .map(|(_, command)| {
            let mut bytes = BytesMut::new();
            command.encode(&mut bytes);
            bytes.to_vec()
        })
        .collect();
    for round in 0..40 {
        let whole = whole.clone();
        let attack = move || {
            let mut numbers = Numbers(round);
            // Nothing but noise.
            let length = numbers.next() % 300;
            disturb(addr, &numbers.bytes(length));
            // A frame with some bytes changed, or cut, but its length word as it was.
            let mut bytes = whole[round as usize % whole.len()].clone();
            for _ in 0..=numbers.next() % 8 {
                let at = 4 + numbers.next() % (bytes.len() - 4);
                bytes[at] = numbers.next() as u8;
            }
            if round % 3 == 0 {
                bytes.truncate(numbers.next() % bytes.len());
            }
            disturb(addr, &bytes);
        };
        tokio::task::spawn_blocking(attack).await.unwrap();
        assert_eq!(member.pull(0).await.code, 19, "round {round}");
    }
}
