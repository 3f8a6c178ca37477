//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use minimq_protocol::SerializeType;

/// Load for a broker, from one thread.
#[derive(Debug, Parser)]
#[command(
    name = "minimq-bench",
    version,
    about,
    after_help = "Example:\n  minimq-bench send --addr 127.0.0.1:10911 --connections 64 --in-flight 8 --size 1024 --pid $(pidof mqbroker)"
)]
pub struct Options {
    /// What to do.
    #[command(subcommand)]
    pub mode: Mode,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Mode {
    /// Serves as the yardstick: appends the bodies of all requests to a file and answers each with a small frame.
    AppendEcho(EchoOptions),
    /// Sends messages, as many as are answered or at a fixed rate.
    Send(SendOptions),
    /// Fills queues and then pulls them empty.
    Pull(PullOptions),
    /// Measures a broker beside the yardstick: the whole table.
    Suite(SuiteOptions),
    /// Sends at a fixed rate and measures when the messages reach a consumer that waits for them.
    E2e(E2eOptions),
    /// Sends at a fixed rate beside a consumer that reads old messages.
    Cold(ColdOptions),
    /// Measures a filter server beside a broker.
    Filter(FilterOptions),
}

/// Options of `append-echo`.
#[derive(Debug, Args)]
pub struct EchoOptions {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:10999")]
    pub listen: SocketAddr,
    /// File the bodies are appended to; removed when it is open.
    #[arg(long)]
    pub file: PathBuf,
    /// Waits for the disk before answering; once for all that was read in one go.
    #[arg(long)]
    pub fdatasync: bool,
    /// Body length of the 32 messages every pull is answered with.
    #[arg(long, default_value_t = 1024)]
    pub record: usize,
}

/// How headers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Headers {
    /// JSON.
    Json,
    /// RocketMQ's binary header.
    Rocketmq,
}

impl From<Headers> for SerializeType {
    fn from(headers: Headers) -> Self {
        match headers {
            Headers::Json => Self::Json,
            Headers::Rocketmq => Self::Rocketmq,
        }
    }
}

/// Options of every load.
#[derive(Debug, Args)]
pub struct Common {
    /// The broker, or append-echo.
    #[arg(long, default_value = "127.0.0.1:10911")]
    pub addr: SocketAddr,
    /// Topic; with several, each has its number behind this name.
    #[arg(long, default_value = "Bench")]
    pub topic: String,
    /// Connections.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: u16,
    /// Queues of each topic.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub queues: u16,
    /// Body length of a message in bytes.
    #[arg(long, default_value_t = 1024)]
    pub size: usize,
    /// How headers are written.
    #[arg(long, value_enum, default_value = "json")]
    pub headers: Headers,
    /// Length of the measured part.
    #[arg(long, default_value = "5", value_parser = seconds)]
    pub seconds: Duration,
    /// Load before it that is not counted.
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub warmup: Duration,
    /// Process whose processor time and memory are told.
    #[arg(long)]
    pub pid: Option<u32>,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `send`.
#[derive(Debug, Args)]
pub struct SendOptions {
    /// Options of every load.
    #[command(flatten)]
    pub common: Common,
    /// Requests under way on each connection.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub in_flight: u32,
    /// Messages of a request; more than one are sent as a batch.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub batch: u32,
    /// Topics.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub topics: u32,
    /// Requests a second; latencies count from the time a request was meant to go. Without it: as fast as answered.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: Option<u32>,
}

/// Options of `pull`.
#[derive(Debug, Args)]
pub struct PullOptions {
    /// Options of every load. `seconds` is the longest time the drain may take.
    #[command(flatten)]
    pub common: Common,
    /// Messages of a pull at most.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub max: u16,
    /// Messages sent before; 0 to pull what is there.
    #[arg(long, default_value_t = 500_000)]
    pub prefill: u64,
}

/// Options of `e2e`.
#[derive(Debug, Args)]
pub struct E2eOptions {
    /// Options of every load. `connections` are those that send; each queue is pulled on a connection of its own.
    #[command(flatten)]
    pub common: Common,
    /// Messages a second.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rate: u32,
}

/// Options of `cold`.
#[derive(Debug, Args)]
pub struct ColdOptions {
    /// Options of every load.
    #[command(flatten)]
    pub common: Common,
    /// Messages sent a second.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rate: u32,
    /// Old messages, sent before; more than the broker keeps in memory.
    #[arg(long, default_value_t = 200_000)]
    pub prefill: u64,
    /// Folder of the broker's store: the kernel is made to forget what it keeps of its files, before and after each
    /// pass.
    #[arg(long)]
    pub store: Option<PathBuf>,
    /// Without the consumer, to compare with.
    #[arg(long)]
    pub alone: bool,
}

/// Options of `suite`.
#[derive(Debug, Clone, Args)]
pub struct SuiteOptions {
    /// The program mqbroker.
    #[arg(long)]
    pub broker: PathBuf,
    /// Where stores are made and removed again.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("minimq-bench"))]
    pub folder: PathBuf,
    /// How often each load is run against each server.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Length of each measured part.
    #[arg(long, default_value = "3", value_parser = seconds)]
    pub seconds: Duration,
    /// Load before it that is not counted.
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub warmup: Duration,
    /// Only loads with this in their name.
    #[arg(long)]
    pub only: Option<String>,
    /// Connections held while memory is looked at.
    #[arg(long, default_value_t = 5000)]
    pub idle_connections: u32,
    /// Another broker that runs already, `name,address,pid`; with `,sync` behind it, one that flushes synchronously.
    #[arg(long, value_parser = other_server)]
    pub also: Option<OtherServer>,
    /// Where the yardstick listens, while it is measured.
    #[arg(skip)]
    pub yardstick: Option<SocketAddr>,
}

impl SuiteOptions {
    /// The server is the yardstick, whose pulls never come to an end.
    pub fn yardstick_pulls(&self, addr: SocketAddr) -> bool {
        self.yardstick == Some(addr)
    }
}

/// Options of `filter`.
#[derive(Debug, Clone, Args)]
pub struct FilterOptions {
    /// The program mqbroker.
    #[arg(long)]
    pub broker: PathBuf,
    /// The program mqfiltersrv.
    #[arg(long)]
    pub filter_server: PathBuf,
    /// Where the store is made and removed again.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("minimq-bench"))]
    pub folder: PathBuf,
    /// Topic.
    #[arg(long, default_value = "Bench")]
    pub topic: String,
    /// Messages to filter.
    #[arg(long, default_value_t = 400_000)]
    pub messages: u64,
    /// Queues they are in; each is pulled on a connection of its own.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub queues: u16,
    /// Body length of a message in bytes.
    #[arg(long, default_value_t = 1024)]
    pub size: usize,
    /// Filters loaded at once.
    #[arg(long, default_value_t = 1000)]
    pub filters: u32,
    /// Length of the parts that measure latencies.
    #[arg(long, default_value = "3", value_parser = seconds)]
    pub seconds: Duration,
}

/// A broker that runs already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherServer {
    /// What it is called in the table.
    pub name: String,
    /// Where it listens.
    pub addr: SocketAddr,
    /// Its process.
    pub pid: u32,
    /// It flushes synchronously.
    pub sync: bool,
}

fn other_server(text: &str) -> Result<OtherServer, String> {
    let wrong = || format!("\"{text}\" is not name,address,pid");
    let mut parts = text.split(',');
    let mut next = || parts.next().ok_or_else(wrong);
    Ok(OtherServer {
        name: next()?.to_owned(),
        addr: next()?.parse().map_err(|_| wrong())?,
        pid: next()?.parse().map_err(|_| wrong())?,
        sync: parts.next() == Some("sync"),
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is no number of seconds, like 5 or 0.2");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Mode, clap::Error> {
        Options::try_parse_from(line.split(' ')).map(|options| options.mode)
    }

    #[test]
    fn a_send_has_its_defaults_and_takes_what_is_given() {
        let Mode::Send(send) = parsed("minimq-bench send").unwrap() else {
            panic!("not a send");
        };
        assert_eq!((send.common.connections, send.in_flight), (8, 32));
        assert_eq!((send.common.size, send.batch, send.rate), (1024, 1, None));
        assert_eq!(send.common.headers, Headers::Json);
        let line = "minimq-bench send --connections 64 --in-flight 8 --headers rocketmq --rate 2000 --seconds 0.2";
        let Mode::Send(send) = parsed(line).unwrap() else {
            panic!("not a send");
        };
        assert_eq!((send.common.connections, send.in_flight), (64, 8));
        assert_eq!(send.common.headers, Headers::Rocketmq);
        assert_eq!(send.rate, Some(2000));
        assert_eq!(send.common.seconds, Duration::from_millis(200));
    }

    #[test]
    fn wrong_numbers_are_refused() {
        for line in [
            "minimq-bench send --connections 0",
            "minimq-bench send --in-flight 0",
            "minimq-bench send --seconds -1",
            "minimq-bench send --seconds abc",
            "minimq-bench e2e --rate 0",
            "minimq-bench append-echo",
            "minimq-bench",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
        Options::command_is_sound();
    }

    impl Options {
        fn command_is_sound() {
            <Self as clap::CommandFactory>::command().debug_assert();
        }
    }
}
