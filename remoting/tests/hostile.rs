//! Bytes of peers that mean harm or are broken: they cost their own connection and next to no memory.
//!
//! One test, so that the memory measured is its own.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use common::*;
use minimq_protocol::{Command, SerializeType};
use minimq_remoting::Limits;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Anonymous memory of this process in KiB.
fn rss_anon() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How many connections this process can have at both ends, at most `wanted`.
fn affordable(wanted: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as usize;
    let affordable = wanted.min(files.saturating_sub(300) / 2);
    if affordable < wanted {
        eprintln!("{files} open files allow {affordable} connections instead of {wanted}");
    }
    affordable
}

struct Honest(Raw, i32);

impl Honest {
    async fn is_served(&mut self) {
        self.1 += 1;
        let request = request(ECHO, self.1, b"honest");
        let call = self.0.call(&request);
        let answer = tokio::time::timeout(Duration::from_secs(5), call)
            .await
            .expect("served all the time");
        assert_eq!(answer.body, "honest");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_peers_cost_little_and_the_others_are_served() {
    let limits = Limits {
        connections: 20_000,
        write_stall: Duration::from_secs(3),
        pause_bytes: 1 << 20,
        ..Default::default()
    };
    let (probe, server) = serve(limits);
    probe
        .forgetful
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let addr = server.local_addr();
    let mut honest = Honest(Raw::connect(addr).await, 0);
    honest.is_served().await;

    garbage(addr, &mut honest).await;
    damaged(addr, &mut honest).await;
    until("all garbage is gone", || server.connection_count() == 1).await;
    oversize(addr, &mut honest).await;
    never_reading(addr, &mut honest, &probe).await;
    until("the one that never reads is gone", || {
        server.connection_count() == 1
    })
    .await;

    let files = open_files();
    let count = affordable(5_000);
    let before = rss_anon();
    idle(addr, &mut honest, count, before).await;
    begun(addr, &mut honest, count, &server, before).await;
    until("all are gone", || server.connection_count() == 1).await;
    until("no socket is left over", || open_files() <= files).await;
    honest.is_served().await;
}

/// wire-02, wire-03
async fn garbage(addr: SocketAddr, honest: &mut Honest) {
    let broken_json = [&[0, 0, 0, 13, 0, 0, 0, 9][..], b"{not json"].concat();
    let mut unknown_type = Command::request(105).to_frame().to_vec();
    unknown_type[4] = 7;
    let all: [&[u8]; 10] = [
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        &(-1_i32).to_be_bytes(),
        &[0, 0, 0, 0],
        &[0, 0, 0, 20, 0, 0, 3, 232],
        &broken_json,
        &unknown_type,
        &[0, 0, 0, 2, 0, 0],
        &[0, 0, 0, 4, 0, 0, 0, 5],
        &[0, 0, 0, 4, 0, 0, 0, 0],
        &[
            0, 0, 0, 25, 1, 0, 0, 21, 0, 105, 0, 1, 153, 0, 0, 0, 1, 0, 0, 0, 0, 127, 255, 255,
            255, 0, 0, 0, 0,
        ],
    ];
    let mut before = 0;
    for round in 0..200 {
        for bytes in all {
            let mut raw = Raw::connect(addr).await;
            raw.write(bytes).await;
            assert_eq!(raw.rest().await, 0, "closed without an answer: {bytes:?}");
        }
        honest.is_served().await;
        if round == 50 {
            before = rss_anon();
        }
    }
    let after = rss_anon();
    assert!(
        after < before + 4096,
        "garbage: {before} KiB before, {after} KiB after"
    );
}

/// Good frames with a few bytes changed: answered or closed, whatever comes out.
async fn damaged(addr: SocketAddr, honest: &mut Honest) {
    let mut random = 1_u64;
    let mut below = |limit: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % limit
    };
    for round in 0..500 {
        let serialize = if round % 2 == 0 {
            SerializeType::Json
        } else {
            SerializeType::Rocketmq
        };
        let request = request(ECHO, round, b"a body")
            .with_serialize(serialize)
            .with_ext("topic", "T1")
            .with_ext("queueId", "3");
        let mut bytes = request.to_frame().repeat(3);
        for _ in 0..1 + below(4) {
            let at = below(bytes.len());
            bytes[at] = below(256) as u8;
        }
        let mut raw = Raw::connect(addr).await;
        let _ = raw.stream.write_all(&bytes).await;
        let _ = raw.stream.shutdown().await;
        raw.rest().await;
        honest.is_served().await;
    }
}

/// wire-01 b: announced lengths cost nothing, allowed or not.
async fn oversize(addr: SocketAddr, honest: &mut Honest) {
    let before = rss_anon();
    for length in [16_777_213_i32, i32::MAX, i32::MIN] {
        let mut raw = Raw::connect(addr).await;
        raw.write(&length.to_be_bytes()).await;
        // What is sent behind it is not read.
        let _ = raw.stream.write_all(&vec![0; 1 << 20]).await;
        assert_eq!(raw.rest().await, 0);
    }
    let mut announced = Vec::new();
    for _ in 0..200 {
        let mut raw = Raw::connect(addr).await;
        raw.write(&[0, 0xff, 0xff, 0xfc, 0, 0, 0, 2]).await;
        announced.push(raw);
    }
    honest.is_served().await;
    let after = rss_anon();
    assert!(
        after < before + (8 << 10),
        "oversize: {before} KiB before, {after} KiB after"
    );
}

/// Asks for gigabytes and takes none of them.
async fn never_reading(addr: SocketAddr, honest: &mut Honest, probe: &Probe) {
    let before = rss_anon();
    let mut raw = Raw::connect(addr).await;
    let mut asks = BytesMut::new();
    for opaque in 0..4000 {
        request(LARGE, opaque, b"").encode(&mut asks);
    }
    let _ = tokio::time::timeout(Duration::from_secs(1), raw.stream.write_all(&asks)).await;
    for _ in 0..50 {
        honest.is_served().await;
    }
    let after = rss_anon();
    assert!(
        after < before + (16 << 10),
        "a reader that never reads: {before} KiB before, {after} KiB after"
    );
    let closed = || {
        probe
            .closed
            .lock()
            .iter()
            .any(|(_, reason)| reason.to_string().contains("took none of"))
    };
    until("it is closed", closed).await;
}

/// Connections that have spoken once and say nothing more.
async fn idle(addr: SocketAddr, honest: &mut Honest, count: usize, before: usize) {
    let mut idle = Vec::with_capacity(count);
    for opaque in 0..count as i32 {
        let mut raw = Raw::connect(addr).await;
        raw.call(&request(ECHO, opaque, b"once")).await;
        idle.push(raw.stream);
        if opaque % 500 == 0 {
            honest.is_served().await;
        }
    }
    let used = rss_anon().saturating_sub(before);
    // Both ends are in this process: the client's end of each is a bare tokio socket.
    eprintln!(
        "{count} idle connections: {used} KiB RssAnon, {} bytes each with the client's end",
        used * 1024 / count
    );
    assert!(
        used * 1024 / count < 5000,
        "{used} KiB for {count} idle connections"
    );
}

/// Connections that begin a frame and do not go on.
async fn begun(
    addr: SocketAddr,
    honest: &mut Honest,
    count: usize,
    server: &minimq_remoting::ServerHandle,
    before: usize,
) {
    let frame = request(ECHO, 1, &[0; 600]).to_frame();
    let mut begun: Vec<TcpStream> = Vec::with_capacity(count);
    for index in 0..count {
        let mut raw = Raw::connect(addr).await;
        raw.write(&frame[..1 + index % (frame.len() - 1)]).await;
        begun.push(raw.stream);
    }
    until("all have come", || server.connection_count() > count).await;
    let came = || {
        server
            .connections()
            .iter()
            .filter(|connection| connection.received_bytes() > 0)
            .count()
            > count
    };
    until("all have begun", came).await;
    honest.is_served().await;
    let used = rss_anon().saturating_sub(before);
    eprintln!("{count} begun frames: {used} KiB RssAnon");
    assert!(
        used * 1024 / count < 6000,
        "{used} KiB for {count} begun frames"
    );
}
