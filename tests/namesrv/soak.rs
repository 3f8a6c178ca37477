//! Random frames on many connections, with flat memory. `MINIMQ_SOAK_S` says for how long (seconds).

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use minimq_common::memory::Memory;
use minimq_protocol::{Command, SerializeType};

use crate::harness::{Broker, NameServer, Peer, with_fields};

/// Numbers that look random; the same each time for a seed (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

const CODES: [i32; 26] = [
    100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 218, 219, 224, 304, 311, 312, 313, 318,
    319, 322, 327, 10, 34, -5, 46000,
];
const FIELDS: [&str; 14] = [
    "topic",
    "namespace",
    "key",
    "value",
    "brokerName",
    "brokerAddr",
    "clusterName",
    "cluster",
    "haServerAddr",
    "brokerId",
    "compressed",
    "bodyCrc32",
    "acceptStandardJsonOnly",
    "x",
];
const VALUES: [&str; 12] = [
    "T1",
    "T2",
    "N",
    "k",
    "bx",
    "127.0.0.1:1001",
    "DefaultCluster",
    "0",
    "1",
    "true",
    "",
    "\u{1F600}\"\\\u{1}",
];

fn request(random: &mut Random) -> Vec<u8> {
    let code = *random.one_of(&CODES);
    let mut request = Command::request(code);
    for _ in 0..random.below(9) {
        let field: &str = FIELDS[random.below(FIELDS.len())];
        request = request.with_ext(field, VALUES[random.below(VALUES.len())]);
    }
    if code == 103 && random.below(2) == 0 {
        let mut broker = Broker::new(
            &format!("b{}", random.below(20)),
            &format!("127.0.0.1:{}", random.below(40)),
            0,
        );
        broker.compressed = random.below(2) == 0;
        for _ in 0..random.below(30) {
            broker = broker.topic(&format!("T{}", random.below(300)), 4, 4);
        }
        request = broker.version(1, random.below(5) as i64).request();
    } else if random.below(3) == 0 {
        let body: Vec<u8> = (0..random.below(400))
            .map(|_| random.next() as u8)
            .collect();
        request = request.with_body(body);
    }
    request.version = *random.one_of(&[0, 36, 37, 400, 401, 409, -1, i32::MAX]);
    request.serialize = *random.one_of(&[SerializeType::Json, SerializeType::Rocketmq]);
    if random.below(10) == 0 {
        request.mark_oneway();
    }
    let mut bytes = request.to_frame().to_vec();
    if random.below(3) == 0 {
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
    }
    if random.below(20) == 0 {
        bytes.truncate(random.below(bytes.len()));
    }
    bytes
}

/// Sends random requests on one connection after the other.
fn disturb(server: std::net::SocketAddr, seed: u64, end: &AtomicBool, sent: &AtomicU64) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    while !end.load(Ordering::Relaxed) {
        let Ok(stream) = TcpStream::connect(server) else {
            continue;
        };
        let reader = stream.try_clone().unwrap();
        // What is answered is read and dropped until the server closes or we do.
        let drain =
            std::thread::spawn(move || _ = std::io::copy(&mut &reader, &mut std::io::sink()));
        let mut peer = stream;
        for _ in 0..random.below(200) {
            let bytes = request(&mut random);
            if std::io::Write::write_all(&mut peer, &bytes).is_err() {
                break;
            }
            sent.fetch_add(1, Ordering::Relaxed);
        }
        let _ = peer.shutdown(std::net::Shutdown::Both);
        drain.join().unwrap();
    }
}

#[test]
fn random_frames_do_no_harm_and_memory_stays_flat() {
    let seconds = std::env::var("MINIMQ_SOAK_S").map_or(20, |text| text.parse().unwrap());
    let mut server = NameServer::start(&[
        "maxTopics=300",
        "maxBrokers=40",
        "maxKvConfigSize=16K",
        "logLevel=off",
    ]);
    let (end, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        for seed in 1..=32 {
            let (addr, end, sent) = (server.addr, &end, &sent);
            scope.spawn(move || disturb(addr, seed, end, sent));
        }
        let start = Instant::now();
        let period = Duration::from_secs(seconds) / 20;
        while start.elapsed() < Duration::from_secs(seconds) {
            std::thread::sleep(period);
            samples.push(Memory::of(server.pid()).unwrap().rss_anon);
            if !server.is_alive() {
                break;
            }
        }
        end.store(true, Ordering::Relaxed);
    });
    assert!(server.is_alive(), "{}", server.log());
    let mut peer: Peer = server.peer();
    let after = Broker::new("after", "127.0.0.1:9", 0)
        .version(77, 77)
        .topic("T1", 4, 4);
    // There is room once the brokers of all closed connections are forgotten.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = peer.register(&after);
        if answer.code == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{}", answer.remark());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(peer.call(with_fields(105, &[("topic", "T1")])).code, 0);
    let sent = sent.load(Ordering::Relaxed);
    let kib: Vec<u64> = samples.iter().map(|bytes| bytes >> 10).collect();
    println!("{sent} frames in {seconds} s; RssAnon in KiB: {kib:?}");
    assert!(sent > 1000, "only {sent} frames");
    // The last quarter against the one before: what is not given back would show. Until the tables and the threads' buffers are
    // as full as they get, memory grows for some millions of frames.
    let most = |part: &[u64]| part.iter().copied().max().unwrap_or_default();
    let quarter = samples.len() / 4;
    let (early, late) = (
        most(&samples[2 * quarter..samples.len() - quarter]),
        most(&samples[samples.len() - quarter..]),
    );
    assert!(
        late < early + (6 << 20),
        "grew from {early} to {late} bytes"
    );
}
