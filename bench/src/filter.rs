//! The filter server beside a broker, both started here: messages filtered a second when one in ten passes and when all
//! do, with the processor time of each process; from an upload to the first match; many filters at once; and what a
//! group notices of another one's endless loops.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command as Process;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use hdrhistogram::Histogram;
use minimq_protocol::batch::BatchRecord;
use minimq_protocol::code::{request, response};
use minimq_protocol::crc::body_crc;
use minimq_protocol::frame::{self, Check, MAX_FRAME_LEN};
use minimq_protocol::header::{
    PullMessageRequest, PullMessageResponse, RegisterMessageFilterClassRequest, SendMessageRequest,
    SendMessageRequestV2,
};
use minimq_protocol::sys_flag::pull as pull_flag;
use minimq_protocol::{Command, SerializeType};

use crate::frames::{Requests, count_records};
use crate::measure::{Memory, cpu_seconds};
use crate::options::FilterOptions;
use crate::peer::{Peer, Poller, call_once};
use crate::suite::{Folder, Server};
use crate::tell;

/// Messages of a batch that fills the queues.
const BATCH: u64 = 64;
/// Messages of a pull.
const PULL: i32 = 32;
/// Groups that loop without end.
const HOSTILE: usize = 4;

/// Broker and filter server.
struct Servers {
    broker: Server,
    filters: Server,
}

impl Servers {
    fn start(options: &FilterOptions) -> anyhow::Result<Self> {
        let folder = Folder(options.folder.join("filter"));
        std::fs::create_dir_all(&folder.0)?;
        let mut command = Process::new(&options.broker);
        for pair in [
            "bindAddress=127.0.0.1",
            "brokerIP1=127.0.0.1",
            "listenPort=0",
            "diskSpaceWarningLevelRatio=100",
            "diskSpaceCleanForciblyRatio=100",
            &format!("storePathRootDir={}", folder.0.display()),
        ] {
            command.args(["--set", pair]);
        }
        let broker = Server::start(command, folder)?;
        let mut command = Process::new(&options.filter_server);
        let addr = broker.addr.to_string();
        command.args(["--broker", &addr, "--listen", "127.0.0.1:0"]);
        let filters = Server::start(command, Folder(options.folder.join("none")))?;
        Ok(Self { broker, filters })
    }
}

/// Keeps a message if both properties are there and `SequenceId` can be divided by `by`.
fn two_properties(by: u32) -> String {
    format!(
        r#"(module
          (import "minimq" "property_i64" (func $i64 (param i32 i32 i32) (result i32)))
          (import "minimq" "property_f64" (func $f64 (param i32 i32 i32) (result i32)))
          (memory (export "memory") 1)
          (data (i32.const 0) "SequenceIdprice")
          (func (export "minimq_filter_abi_1"))
          (func (export "filter") (result i32)
            (if (call $i64 (i32.const 0) (i32.const 10) (i32.const 32)) (then (return (i32.const 0))))
            (if (call $f64 (i32.const 10) (i32.const 5) (i32.const 40)) (then (return (i32.const 0))))
            (i32.and
              (i64.eqz (i64.rem_s (i64.load (i32.const 32)) (i64.const {by})))
              (f64.ge (f64.load (i32.const 40)) (f64.const 0)))))"#
    )
}

/// A module of about 20 KB in its binary form, another one for each number; keeps everything.
fn of_20_kb(number: usize) -> anyhow::Result<Vec<u8>> {
    let mut functions = String::new();
    for n in 0..60 {
        write!(functions, "(func (param i32) (result i32) local.get 0")?;
        for step in 0..80 {
            write!(functions, " i32.const {} i32.mul", 64 + n + step)?;
        }
        functions.push(')');
    }
    let text = format!(
        "(module (memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\")) {functions}
          (func (export \"filter\") (result i32) (i32.ne (i32.const {}) (i32.const 0))))",
        number + 1
    );
    Ok(wat::parse_str(text)?)
}

/// A connection with one request at a time.
struct Caller(TcpStream);

impl Caller {
    fn connect(addr: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self(stream))
    }

    fn call(&mut self, command: &Command) -> anyhow::Result<Command> {
        self.0.write_all(&command.to_frame())?;
        let mut input = vec![0; frame::PREFIX_LEN];
        self.0.read_exact(&mut input)?;
        let need = match frame::check(&input, MAX_FRAME_LEN)? {
            Check::Incomplete { need } => need,
            Check::Whole { len } => len,
        };
        input.resize(need, 0);
        let rest = input
            .get_mut(frame::PREFIX_LEN..)
            .context("a short frame")?;
        self.0.read_exact(rest)?;
        Ok(frame::parse(Bytes::from(input))?)
    }

    fn upload(&mut self, group: &str, topic: &str, module: &[u8]) -> anyhow::Result<()> {
        let header = RegisterMessageFilterClassRequest {
            consumer_group: group,
            topic,
            class_name: "bench.Filter",
            class_crc: body_crc(module),
        };
        let command = Command::request_with(request::REGISTER_MESSAGE_FILTER_CLASS, &header)
            .with_body(module.to_vec());
        let answer = self.call(&command)?;
        if answer.code != response::SUCCESS {
            bail!("the filter was refused: {}", answer.remark());
        }
        Ok(())
    }
}

fn pull(group: &str, topic: &str, queue: i32, offset: i64, max: i32) -> Command {
    let header = PullMessageRequest {
        consumer_group: group,
        topic,
        queue_id: queue,
        queue_offset: offset,
        max_msg_nums: max,
        sys_flag: pull_flag::build(false, false, false, true, false),
        ..PullMessageRequest::default()
    };
    Command::request_with(request::PULL_MESSAGE, &header).with_serialize(SerializeType::Rocketmq)
}

/// Fills the queues: numbered messages with two properties that matter, and some that do not.
fn fill(options: &FilterOptions, broker: SocketAddr) -> anyhow::Result<()> {
    let requests = Requests {
        serialize: SerializeType::Rocketmq,
        queues: options.queues,
        size: options.size,
    };
    call_once(broker, &requests.create_topic(&options.topic))?;
    let body = vec![b'x'; options.size];
    let per_queue = options.messages.div_ceil(u64::from(options.queues));
    for queue in 0..i32::from(options.queues) {
        let mut caller = Caller::connect(broker)?;
        let mut number = 0;
        while number < per_queue {
            let mut records = Vec::new();
            let end = per_queue.min(number + BATCH);
            for n in number..end {
                let properties = format!(
                    "KEYS\u{1}order-{n}\u{2}UNIQ_KEY\u{1}7F0000010A2B0000{n:016X}\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA\
                     \u{2}region\u{1}eu-west\u{2}SequenceId\u{1}{n}\u{2}price\u{1}{}.25",
                    n % 500
                );
                let record = BatchRecord {
                    flag: 0,
                    body: &body,
                    properties: properties.as_bytes(),
                };
                record.encode(&mut records)?;
            }
            number = end;
            let header = SendMessageRequestV2(SendMessageRequest {
                producer_group: "BenchProducer",
                topic: &options.topic,
                default_topic: "TBW102",
                default_topic_queue_nums: i32::from(options.queues),
                queue_id: queue,
                born_timestamp: 1_700_000_000_000,
                batch: true,
                ..SendMessageRequest::default()
            });
            let command =
                Command::request_with(request::SEND_BATCH_MESSAGE, &header).with_body(records);
            let answer = caller.call(&command)?;
            if answer.code != response::SUCCESS {
                bail!("a batch was answered {}: {}", answer.code, answer.remark());
            }
        }
    }
    Ok(())
}

/// What one drain came to.
#[derive(Debug, Clone, Copy)]
pub struct Drained {
    /// Messages the filter looked at.
    pub filtered: u64,
    /// Messages that came.
    pub kept: u64,
    /// Seconds.
    pub seconds: f64,
    /// Processor time, s a million messages looked at, of filter server and broker.
    pub cpu: (f64, f64),
}

/// Pulls all queues empty through the filter server, each queue on a connection of its own.
fn drain(options: &FilterOptions, servers: &Servers, group: &str) -> anyhow::Result<Drained> {
    let pids = (servers.filters.pid(), servers.broker.pid());
    let before = (cpu_seconds(pids.0)?, cpu_seconds(pids.1)?);
    let begin = Instant::now();
    let mut poller = Poller::new()?;
    let mut peers = Vec::new();
    for queue in 0..i32::from(options.queues) {
        let mut peer = Peer::connect(servers.filters.addr)?;
        poller.add_peer(&peer, peers.len())?;
        let first = pull(group, &options.topic, queue, 0, PULL).to_frame();
        peer.output.extend_from_slice(&first);
        peer.flush()?;
        peers.push((peer, 0_i64, false));
    }
    let mut kept = 0;
    let mut ready = Vec::new();
    while peers.iter().any(|(_, _, ended)| !ended) {
        ready.clear();
        ready.extend(poller.wait(Duration::from_secs(1))?);
        for number in &ready {
            let Some((peer, offset, ended)) = peers.get_mut(*number) else {
                continue;
            };
            let open = peer.read_frames(|frame, out| {
                let answer = frame::parse(Bytes::copy_from_slice(frame))?;
                match answer.code {
                    response::SUCCESS => kept += count_records(&answer.body),
                    response::PULL_RETRY_IMMEDIATELY => {}
                    response::PULL_NOT_FOUND => {
                        *ended = true;
                        return Ok(());
                    }
                    code => bail!("a pull was answered {code}: {}", answer.remark()),
                }
                let header: PullMessageResponse = answer.header()?;
                *offset = header.next_begin_offset;
                let queue = i32::try_from(*number)?;
                let next = pull(group, &options.topic, queue, *offset, PULL).to_frame();
                out.extend_from_slice(&next);
                Ok(())
            })?;
            if !open {
                bail!("the filter server closed a connection");
            }
            peer.flush()?;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let filtered = peers.iter().map(|(_, offset, _)| *offset as u64).sum();
    let per_million = |pid, before| -> anyhow::Result<f64> {
        Ok((cpu_seconds(pid)? - before) * 1e6 / filtered as f64)
    };
    Ok(Drained {
        filtered,
        kept,
        seconds,
        cpu: (
            per_million(pids.0, before.0)?,
            per_million(pids.1, before.1)?,
        ),
    })
}

/// From the begin of an upload to the answer with the first match, for modules not seen before; ms, sorted.
fn first_matches(options: &FilterOptions, addr: SocketAddr) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::new();
    for number in 0..5 {
        let module = of_20_kb(number)?;
        let group = format!("First{number}");
        let mut caller = Caller::connect(addr)?;
        let begin = Instant::now();
        caller.upload(&group, &options.topic, &module)?;
        let answer = caller.call(&pull(&group, &options.topic, 0, 0, 1))?;
        if answer.code != response::SUCCESS {
            bail!("no match: {} {}", answer.code, answer.remark());
        }
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// So many filters, each of a group of its own that has pulled once; memory of the process before and after.
fn many_filters(
    options: &FilterOptions,
    servers: &Servers,
) -> anyhow::Result<(Memory, Memory, f64)> {
    let pid = servers.filters.pid();
    let before = Memory::of(pid)?;
    let begin = Instant::now();
    let mut caller = Caller::connect(servers.filters.addr)?;
    for number in 0..options.filters {
        let group = format!("Many{number}");
        let module = two_properties(number + 1);
        caller.upload(&group, &options.topic, module.as_bytes())?;
        let answer = caller.call(&pull(&group, &options.topic, 0, 0, 1))?;
        if answer.code != response::SUCCESS {
            bail!("no match: {} {}", answer.code, answer.remark());
        }
    }
    Ok((before, Memory::of(pid)?, begin.elapsed().as_secs_f64()))
}

/// Latencies of one group's pulls, one at a time.
fn latencies(options: &FilterOptions, caller: &mut Caller) -> anyhow::Result<Histogram<u64>> {
    let mut times = Histogram::new_with_bounds(1, 100_000_000_000, 3)?;
    let end = Instant::now() + options.seconds;
    let mut offset = 0;
    while Instant::now() < end {
        let begin = Instant::now();
        let answer = caller.call(&pull("All", &options.topic, 0, offset, PULL))?;
        times.saturating_record(begin.elapsed().as_nanos() as u64);
        let header: PullMessageResponse = answer.header()?;
        offset = match answer.code {
            response::PULL_NOT_FOUND => 0,
            _ => header.next_begin_offset,
        };
    }
    Ok(times)
}

/// A group's latencies alone, and while others' filters loop without end.
fn beside_loops(
    options: &FilterOptions,
    addr: SocketAddr,
) -> anyhow::Result<(Histogram<u64>, Histogram<u64>)> {
    let mut caller = Caller::connect(addr)?;
    let alone = latencies(options, &mut caller)?;
    let looping = "(module (memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\"))
        (func (export \"filter\") (result i32) (loop (br 0)) i32.const 1))";
    let end = Instant::now() + options.seconds;
    let mut hostile = Vec::new();
    for number in 0..HOSTILE {
        let (topic, group) = (options.topic.clone(), format!("Loop{number}"));
        let mut caller = Caller::connect(addr)?;
        caller.upload(&group, &topic, looping.as_bytes())?;
        hostile.push(std::thread::spawn(move || {
            while Instant::now() < end {
                // Each is refused, most of them at once.
                let _ = caller.call(&pull(&group, &topic, 0, 0, PULL));
                std::thread::sleep(Duration::from_millis(5));
            }
        }));
    }
    let beside = latencies(options, &mut caller)?;
    for one in hostile {
        let _ = one.join();
    }
    Ok((alone, beside))
}

/// Runs everything; prints lines as they are known.
pub fn run(options: &FilterOptions) -> anyhow::Result<()> {
    let servers = Servers::start(options)?;
    tell(format_args!(
        "filter server ready: {:.0} ms",
        servers.filters.ready.as_secs_f64() * 1e3
    ))?;
    fill(options, servers.broker.addr)?;
    let mut setting = Caller::connect(servers.filters.addr)?;
    for (group, by, name) in [("Tenth", 10, "one in ten passes"), ("All", 1, "all pass")] {
        setting.upload(group, &options.topic, two_properties(by).as_bytes())?;
        // Once to warm up.
        drain(options, &servers, group)?;
        let one = drain(options, &servers, group)?;
        tell(format_args!(
            "{name}: {:.0} messages/s filtered ({} of {} came), CPU s a million: filter server {:.2}, broker {:.2}",
            one.filtered as f64 / one.seconds,
            one.kept,
            one.filtered,
            one.cpu.0,
            one.cpu.1
        ))?;
    }
    let first = first_matches(options, servers.filters.addr)?;
    tell(format_args!(
        "from the upload of a module of {} bytes to its first match: {:.1} ms (median of {}, longest {:.1})",
        of_20_kb(0)?.len(),
        first.get(first.len() / 2).unwrap_or(&0.0),
        first.len(),
        first.last().unwrap_or(&0.0)
    ))?;
    let (alone, beside) = beside_loops(options, servers.filters.addr)?;
    let ms = |times: &Histogram<u64>, quantile| times.value_at_quantile(quantile) as f64 / 1e6;
    tell(format_args!(
        "a pull alone: p50 {:.2} ms, p99 {:.2} ms; beside {HOSTILE} groups whose filters loop: p50 {:.2} ms, p99 {:.2} ms",
        ms(&alone, 0.5),
        ms(&alone, 0.99),
        ms(&beside, 0.5),
        ms(&beside, 0.99)
    ))?;
    let (before, after, seconds) = many_filters(options, &servers)?;
    tell(format_args!(
        "{} filters in use after {seconds:.1} s: RssAnon {:.1} MiB, {:.1} before",
        options.filters,
        after.rss_anon as f64 / 1024.0,
        before.rss_anon as f64 / 1024.0
    ))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_are_what_they_are_called() {
        let len = of_20_kb(3).unwrap().len();
        assert!((18_000..23_000).contains(&len), "{len}");
        assert!(wat::parse_str(two_properties(7)).is_ok());
    }
}
