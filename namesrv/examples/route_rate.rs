//! How many routes a second a name server answers: registers brokers with topics, then asks for routes on several
//! connections with several requests in flight each, and prints the rate and the server's CPU time.
//!
//! ```sh
//! cargo run --release -p minimq-namesrv --example route_rate -- 127.0.0.1:9876 PID TOPICS CONNECTIONS IN_FLIGHT SECONDS
//! ```
//! Works against any name server of the protocol; `PID` is the server's process on this machine.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use minimq_common::memory::Memory;
use minimq_protocol::Command;
use minimq_protocol::body::{DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigWrapper};
use minimq_protocol::code::request;
use minimq_protocol::crc::body_crc;
use minimq_protocol::header::{GetRouteInfoRequest, RegisterBrokerRequest};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Ticks of `/proc/PID/stat` a second, as every Linux has them for user space.
const TICKS: f64 = 100.0;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [addr, pid, topics, connections, in_flight, seconds] = arguments.as_slice() else {
        return Err("route_rate ADDR PID TOPICS CONNECTIONS IN_FLIGHT SECONDS".into());
    };
    let (pid, topics): (u32, usize) = (pid.parse()?, topics.parse()?);
    let (connections, in_flight): (usize, usize) = (connections.parse()?, in_flight.parse()?);
    let time = Duration::from_secs_f64(seconds.parse()?);

    // The registrations live as long as their connections.
    let mut brokers = Vec::new();
    for broker in ["broker-a", "broker-b"] {
        let mut stream = TcpStream::connect(addr)?;
        let begin = Instant::now();
        stream.write_all(&registration(broker, topics).to_frame())?;
        read_frame(&mut stream, &mut Vec::new())?;
        println!(
            "{broker}: {topics} topics registered in {:.1} ms",
            begin.elapsed().as_secs_f64() * 1e3
        );
        brokers.push(stream);
    }
    let memory = Memory::of(pid)?;
    println!(
        "server RssAnon with them: {:.1} MiB",
        memory.rss_anon as f64 / 1_048_576.0
    );

    let (answered, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (cpu, begin) = (cpu_seconds(pid)?, Instant::now());
    std::thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for first in 0..connections {
            let (answered, stop) = (&answered, &stop);
            threads.push(scope.spawn(move || ask(addr, topics, first, in_flight, answered, stop)));
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a connection failed")?)
    })?;
    let (elapsed, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds(pid)? - cpu);
    let routes = answered.load(Ordering::Relaxed) as f64;
    println!(
        "{topics} topics, {connections} x {in_flight}: {:.0} routes a second, {:.2} server CPU seconds a million",
        routes / elapsed,
        cpu / (routes / 1e6)
    );
    Ok(())
}

fn topic(number: usize) -> String {
    format!("Topic-{number:06}")
}

fn registration(broker: &str, topics: usize) -> Command {
    let table = (0..topics).map(|number| {
        let name = topic(number);
        (
            name.clone(),
            TopicConfig {
                read_queue_nums: 8,
                write_queue_nums: 8,
                ..TopicConfig::new(name)
            },
        )
    });
    let wrapper = TopicConfigWrapper {
        data_version: DataVersion {
            counter: 1,
            timestamp: 1,
        },
        topic_config_table: table.collect(),
    };
    let body = RegisterBrokerBody {
        filter_server_list: Some(Vec::new()),
        topic_config_serialize_wrapper: wrapper,
    };
    let body = body.to_compressed();
    let header = RegisterBrokerRequest {
        broker_name: broker,
        broker_addr: if broker == "broker-a" {
            "127.0.0.1:10911"
        } else {
            "127.0.0.1:10921"
        },
        cluster_name: "DefaultCluster",
        ha_server_addr: "127.0.0.1:10912",
        broker_id: 0,
        compressed: true,
        body_crc32: body_crc(&body),
    };
    Command::request_with(request::REGISTER_BROKER, &header).with_body(body)
}

/// Keeps `in_flight` requests on their way on one connection until told to stop.
fn ask(
    addr: &str,
    topics: usize,
    first: usize,
    in_flight: usize,
    answered: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_nodelay(true)?;
    // Frames are made once: the generator must cost little beside the server.
    let frames: Vec<Vec<u8>> = (0..64)
        .map(|step| {
            let topic = topic((first * 7919 + step * 104_729) % topics.max(1));
            let header = GetRouteInfoRequest {
                topic: &topic,
                accept_standard_json_only: None,
            };
            Command::request_with(request::GET_ROUTEINFO_BY_TOPIC, &header)
                .to_frame()
                .to_vec()
        })
        .collect();
    let mut next = frames.iter().cycle();
    let mut out = Vec::new();
    let mut input = vec![0; 1 << 18];
    let (mut filled, mut owed) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        out.clear();
        while owed < in_flight {
            out.extend(next.next().into_iter().flatten());
            owed += 1;
        }
        stream.write_all(&out)?;
        let read = stream.read(&mut input[filled..])?;
        if read == 0 {
            return Err("the server closed the connection".into());
        }
        filled += read;
        let (mut at, mut frames) = (0, 0);
        while let Some(prefix) = input[at..filled].first_chunk::<4>() {
            let end = at + 4 + u32::from_be_bytes(*prefix) as usize;
            if end > filled {
                break;
            }
            (at, frames) = (end, frames + 1);
        }
        input.copy_within(at..filled, 0);
        filled -= at;
        owed -= frames;
        answered.fetch_add(frames as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn read_frame(stream: &mut TcpStream, frame: &mut Vec<u8>) -> Result<()> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix)?;
    frame.resize(u32::from_be_bytes(prefix) as usize, 0);
    Ok(stream.read_exact(frame)?)
}

/// User and system time of a process so far.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind = stat.rsplit_once(')').ok_or("no stat")?.1;
    let mut fields = behind.split_whitespace().skip(11);
    let mut ticks = || {
        fields
            .next()
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    Ok((ticks() + ticks()) / TICKS)
}
