//! `minimq` as a program: the whole cluster with one command.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use minimq_common::config::{Reading, Value};
use minimq_common::logging::{self, LogConfig, LogFilter};
use minimq_common::shutdown::Shutdown;
use minimq_common::{limits, ready};

use crate::{Cluster, ClusterBuilder, Data, Ports, demo};

/// Options of `minimq`.
#[derive(Debug, Parser)]
#[command(
    name = "minimq",
    version,
    about = "A whole mini-MQ cluster in one process: name server and brokers, on loopback.",
    args_conflicts_with_subcommands = true,
    after_help = "Example:\n  minimq --memory --port-base 20000"
)]
struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    /// Folder of all files.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "minimq-data",
        conflicts_with = "memory"
    )]
    data: PathBuf,
    /// Keeps the files in a temporary folder that is removed at the end.
    #[arg(long)]
    memory: bool,
    /// Address to listen on; beyond loopback everybody there may use the cluster.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port of the name server; the brokers take those 10, 20, … above. Without it: 9876, and 10911, 10921, ….
    #[arg(long, value_name = "PORT", conflicts_with = "port")]
    port_base: Option<u16>,
    /// 0 takes free ports.
    #[arg(long, value_name = "0", value_parser = clap::value_parser!(u16).range(0..=0))]
    port: Option<u16>,
    /// Properties file with broker keys.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sets a broker key; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Filter servers to start beside each broker, on free ports.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=20))]
    filter_servers: u8,
    /// Brokers to start.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=20))]
    brokers: u8,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows what a cluster does, step by step, on free ports and in a temporary folder. Status 0: all was right.
    Demo,
}

/// Runs `minimq` with the process's arguments; the result is its exit status.
#[must_use]
pub fn run() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            // Nothing is left to do when even that cannot be printed.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    let done = match options.action {
        Some(Action::Demo) => show(),
        None => start(&options).map(|()| true),
    };
    match done {
        Ok(right) => ExitCode::from(u8::from(!right)),
        Err(message) => {
            eprintln!("minimq: {message}");
            ExitCode::from(1)
        }
    }
}

fn builder(options: &Options) -> Result<ClusterBuilder, String> {
    let ports = match (options.port, options.port_base) {
        (Some(_), _) => Ports::Free,
        (None, Some(base)) => Ports::From(base),
        (None, None) => Ports::Usual,
    };
    let data = if options.memory {
        Data::Temporary
    } else {
        Data::Folder(options.data.clone())
    };
    let mut builder = Cluster::builder()
        .data(data)
        .host(options.host)
        .ports(ports)
        .brokers(usize::from(options.brokers))
        .filter_servers(usize::from(options.filter_servers));
    if let Some(file) = &options.config {
        builder = builder.config_file(file);
    }
    for pair in &options.set {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("--set {pair}: expected KEY=VALUE"))?;
        builder = builder.set(key.trim(), value.trim());
    }
    Ok(builder)
}

fn log_config(level: &str) -> Result<LogConfig, String> {
    Ok(LogConfig {
        level: LogFilter::parse(level, Reading::Start)?,
        ..LogConfig::default()
    })
}

/// The tour; whether all was right.
fn show() -> Result<bool, String> {
    // What goes wrong is in the tour's own lines.
    let _logging =
        logging::init(&log_config("error")?, "minimq").map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        shutdown
            .on_signals()
            .map_err(|error| format!("cannot listen for signals: {error}"))?;
        // Interrupted, the cluster stops and its folder goes with the tour.
        tokio::select! {
            right = demo::run() => right,
            _ = shutdown.requested() => Err("interrupted".to_owned()),
        }
    })
}

fn start(options: &Options) -> Result<(), String> {
    let begin = Instant::now();
    let builder = builder(options)?;
    let log = log_config("warn")?;
    let _logging = logging::init(&log, "minimq").map_err(|error| error.to_string())?;
    if let Err(error) = limits::raise_open_files() {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        shutdown.on_signals().map_err(|error| format!("cannot listen for signals: {error}"))?;
        let cluster = builder.start().await.map_err(|error| error.to_string())?;
        if options.host != IpAddr::V4(Ipv4Addr::LOCALHOST) && !options.host.is_loopback() {
            eprintln!("warning: listening on {} without access control: everybody there may use the cluster", options.host);
        }
        ready::announce(describe(&cluster, begin));
        shutdown.requested().await;
        println!("stopping");
        cluster.stop().await;
        Ok(())
    })
}

fn describe(cluster: &Cluster, begin: Instant) -> String {
    let name_server = cluster.name_server();
    format!(
        "mini-MQ is ready after {} ms\n  name server  {name_server}\n  brokers      {}\n  filters      {}\n  data         {}\n\
         Try in another terminal:\n  mqadmin sendMessage -n {name_server} -t Hello -p world\n  \
         mqadmin consumeMessage -n {name_server} -t Hello\n  mqadmin clusterList -n {name_server}\nStop it with Ctrl-C.",
        begin.elapsed().as_millis(),
        cluster.brokers().join(", "),
        cluster.filter_servers().join(", "),
        cluster.data().display(),
    )
}
