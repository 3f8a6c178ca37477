//! What counting and access control add to a send, and what a transaction costs in plain sends:
//! `cargo bench -p minimq-broker --bench send_path [-- statistics|transaction|access]`.
//!
//! What is compared takes turns, and the best round of each counts: what else runs on the machine only ever slows down.
//! `MINIMQ_BENCH_DIR` names the folder of the store.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use minimq_broker::broker::Running;
use minimq_broker::stats::{PutCache, Stored};
use minimq_broker::{Broker, BrokerConfig};
use minimq_common::config::{Config, Sources};
use minimq_protocol::code::request;
use minimq_protocol::header::{
    EndTransactionRequest, SendMessageRequest, SendMessageRequestV2, SendMessageResponse,
    TRANSACTION_COMMIT,
};
use minimq_protocol::message_id::OffsetId;
use minimq_protocol::{Command, acl_signature, frame};
use minimq_store::{AppendMessage, AppendOutcome, Appended};

const ROUNDS: usize = 7;
/// Requests written at once, as a producer with many callers writes them.
const TOGETHER: usize = 64;
const PROPERTIES: &str =
    "UNIQ_KEY\u{1}7F0000010C395FFD2B27955118E8010E\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA";

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'))
        .unwrap_or_default();
    let folder = match std::env::var_os("MINIMQ_BENCH_DIR") {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    }
    .expect("a folder");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let open = runtime.block_on(start(&folder.path().join("open"), false));
    let inside = runtime.enter();
    if "statistics".contains(&filter) {
        statistics(&open, 1, 100);
        statistics(&open, TOGETHER, 100);
        statistics(&open, TOGETHER, 1024);
    }
    if "transaction".contains(&filter) {
        transaction(open.local_addr(), 1);
        transaction(open.local_addr(), TOGETHER);
    }
    if "access".contains(&filter) {
        let guarded = runtime.block_on(start(&folder.path().join("guarded"), true));
        access(open.local_addr(), guarded.local_addr());
        runtime.block_on(guarded.stop()).expect("a clean stop");
    }
    drop(inside);
    runtime.block_on(open.stop()).expect("a clean stop");
}

const ACCOUNTS: &str =
    "accounts:\n- {accessKey: orderUser, secretKey: orderSecret, topicPerms: [BENCH_TX=PUB]}\n";

async fn start(folder: &Path, guarded: bool) -> Running {
    std::fs::create_dir_all(folder).expect("a folder");
    let accounts = folder.join("plain_acl.yml");
    std::fs::write(&accounts, ACCOUNTS).expect("the accounts");
    let mut sources = Sources::default();
    sources.set_key("aclEnable", if guarded { "true" } else { "false" });
    sources.set_key("aclFile", &accounts.display().to_string());
    for pair in [
        "bindAddress=127.0.0.1",
        "brokerIP1=127.0.0.1",
        "listenPort=0",
        "mappedFileSizeCommitLog=67108864",
        "messageIndexEnable=false",
        "transactionCheckInterval=600000",
        "diskSpaceWarningLevelRatio=100",
        "diskSpaceCleanForciblyRatio=100",
    ] {
        sources.set(pair).expect("a setting");
    }
    sources.set_key(
        "storePathRootDir",
        &folder.join("store").display().to_string(),
    );
    let config: Config<BrokerConfig> = Config::load(&sources).expect("settings");
    Broker::start(config, |_| {}).await.expect("a broker")
}

/// Appends of `together` messages of one read, without and with what a send counts.
fn statistics(running: &Running, together: usize, body_len: usize) {
    let body = vec![7; body_len];
    let host = running.broker.identity.store_host;
    let message = AppendMessage {
        topic: "BENCH",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &body,
        properties: PROPERTIES.as_bytes(),
        appended_properties: &[],
        joins_previous: false,
    };
    let messages = vec![message; together];
    // Short rounds, many of them: some are not interrupted.
    let reads = 512 / together;
    let mut best = [Duration::MAX; 2];
    for _ in 0..100_000 / body_len.max(200) {
        for (counts, best) in [false, true].into_iter().zip(&mut best) {
            let mut cache = PutCache::default();
            let mut outcomes = Vec::with_capacity(together);
            let begun = Instant::now();
            for _ in 0..reads {
                outcomes.clear();
                if counts {
                    let begun = Instant::now();
                    append(running, &messages, &mut outcomes);
                    let stats = &running.broker.stats;
                    stats.store.put_took(together as u64, begun.elapsed());
                    let bytes = outcomes.iter().flatten().map(|o| i64::from(o.size)).sum();
                    let stored = Stored {
                        topic: "BENCH",
                        queue_id: 0,
                        count: together as i64,
                        calls: together as i64,
                        bytes,
                    };
                    cache.count(stats, &stored);
                } else {
                    append(running, &messages, &mut outcomes);
                }
            }
            *best = (*best).min(begun.elapsed());
        }
    }
    let each = |time: Duration| time.as_nanos() as f64 / (reads * together) as f64;
    let [without, with] = best.map(each);
    println!(
        "statistics, {together} sends of {body_len} B a read: {without:.1} ns an append without, {with:.1} ns with, {:+.2} %",
        (with / without - 1.0) * 100.0
    );
}

fn append(running: &Running, messages: &[AppendMessage<'_>], outcomes: &mut Vec<AppendOutcome>) {
    let store = &running.broker.store;
    if let Appended::Waiting(_) = store.append(messages, outcomes) {
        let rest = &messages[outcomes.len()..];
        store.append_blocking(rest, outcomes);
    }
}

/// A connection that writes requests together and waits for all answers.
struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).expect("the broker");
        stream.set_nodelay(true).expect("a socket");
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Time from the write to the last answer; the answers.
    fn call(&mut self, frames: &[u8], count: usize) -> (Duration, Vec<Command>) {
        self.buffer.clear();
        let begun = Instant::now();
        self.stream.write_all(frames).expect("a write");
        let mut ends = Vec::with_capacity(count);
        let mut at = 0;
        let mut chunk = [0; 65_536];
        while ends.len() < count {
            let read = self.stream.read(&mut chunk).expect("answers");
            assert!(read > 0, "the broker closed the connection");
            self.buffer.extend_from_slice(&chunk[..read]);
            while let Some(len) = self.buffer.get(at..).and_then(|rest| rest.first_chunk()) {
                let end = at + 4 + u32::from_be_bytes(*len) as usize;
                if end > self.buffer.len() {
                    break;
                }
                ends.push((at, end));
                at = end;
            }
        }
        let time = begun.elapsed();
        let answers = ends.into_iter().map(|(from, to)| {
            let bytes = self.buffer[from..to].to_vec();
            let answer = frame::parse(bytes.into()).expect("an answer");
            assert_eq!(answer.code, 0, "{}", answer.remark());
            answer
        });
        (time, answers.collect())
    }
}

fn frames(count: usize, command: impl Fn(usize) -> Command) -> Vec<u8> {
    let mut all = Vec::new();
    for n in 0..count {
        let mut command = command(n);
        command.opaque = n as i32;
        all.extend_from_slice(&command.to_frame());
    }
    all
}

fn send(properties: &str, body: &[u8]) -> Command {
    let header = SendMessageRequest {
        producer_group: "PG",
        topic: "BENCH_TX",
        default_topic: "TBW102",
        default_topic_queue_nums: 1,
        queue_id: 0,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        flag: 0,
        properties: Some(properties),
        reconsume_times: Some(0),
        unit_mode: false,
        max_reconsume_times: None,
        batch: false,
        bname: None,
    };
    let command = Command::request_with(request::SEND_MESSAGE_V2, &SendMessageRequestV2(header));
    command.with_body(body.to_vec())
}

/// A half message and its commit, both answered, against a plain send; `together` of them in flight.
fn transaction(addr: SocketAddr, together: usize) {
    let body = vec![7; 1024];
    let half = format!("{PROPERTIES}\u{2}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}PG");
    let plain = frames(together, |_| send(PROPERTIES, &body));
    let halves = frames(together, |_| send(&half, &body));
    let mut wire = Wire::connect(addr);
    let times = (2_000 / together).max(30);
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        let mut sums = [Duration::ZERO; 2];
        for _ in 0..times {
            sums[0] += wire.call(&plain, together).0;
            let (time, answers) = wire.call(&halves, together);
            sums[1] += time;
            let ends = frames(together, |n| end(&answers[n]));
            sums[1] += wire.call(&ends, together).0;
        }
        for (best, sum) in best.iter_mut().zip(sums) {
            *best = (*best).min(sum);
        }
    }
    let each = |time: Duration| time.as_nanos() as f64 / (times * together) as f64 / 1000.0;
    let [plain, transaction] = best.map(each);
    println!(
        "transaction, {together} in flight, 1 KiB: {plain:.2} µs a plain send, {transaction:.2} µs a transaction, {:.2} sends",
        transaction / plain
    );
}

fn end(half: &Command) -> Command {
    let sent: SendMessageResponse<'_> = half.header().expect("an answer to a send");
    let id: OffsetId = sent.msg_id.parse().expect("an offset id");
    let header = EndTransactionRequest {
        producer_group: "PG",
        tran_state_table_offset: sent.queue_offset,
        commit_log_offset: id.physical_offset,
        commit_or_rollback: TRANSACTION_COMMIT,
        from_transaction_check: false,
        msg_id: "7F0000010C395FFD2B27955118E8010E",
        transaction_id: None,
        bname: None,
    };
    Command::request_with(request::END_TRANSACTION, &header)
}

/// Signed sends to a broker that checks them, against the same to one that does not.
fn access(open: SocketAddr, guarded: SocketAddr) {
    for body_len in [100, 1024, 4096] {
        let body = vec![7; body_len];
        let signed = frames(TOGETHER, |_| {
            let mut command = send(PROPERTIES, &body);
            command.ext.push(acl_signature::ACCESS_KEY, "orderUser");
            let signature = acl_signature::sign("orderSecret", command.ext.iter(), &command.body);
            command.ext.push(acl_signature::SIGNATURE, &signature);
            command
        });
        let times = 100;
        let mut wires = [Wire::connect(open), Wire::connect(guarded)];
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (wire, best) in wires.iter_mut().zip(&mut best) {
                let sum = (0..times).map(|_| wire.call(&signed, TOGETHER).0).sum();
                *best = (*best).min(sum);
            }
        }
        let each = |time: Duration| time.as_nanos() as f64 / (times * TOGETHER) as f64 / 1000.0;
        let [without, with] = best.map(each);
        println!(
            "access, {TOGETHER} signed sends of {body_len} B in flight: {without:.2} µs a send without, {with:.2} µs with, {:+.2} µs",
            with - without
        );
    }
}
