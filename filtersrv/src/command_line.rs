//! `mqfiltersrv`: options, start, one line when ready, SIGTERM (filter server spec 2, 3).

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use minimq_common::clock::Clock;
use minimq_common::config::{Config, Sources};
use minimq_common::shutdown::{Shutdown, Stages};
use minimq_common::{limits, logging, ready};

use crate::config::FiltersrvConfig;
use crate::server::FilterServer;

/// Beyond the time of the drain.
const GRACE: Duration = Duration::from_secs(5);

/// The filter server of a mini-MQ or RocketMQ 4.x broker: runs the WebAssembly filters that consumers upload.
#[derive(Debug, Parser)]
#[command(
    name = "mqfiltersrv",
    version,
    after_help = "Example:\n  mqfiltersrv --broker 127.0.0.1:10911 --listen 127.0.0.1:30911\n\n\
                  Keys come from the file, then the environment (MINIMQ_LISTENPORT=…), then these options."
)]
struct Arguments {
    /// Properties file with RocketMQ's keys
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config_file: Option<PathBuf>,

    /// Print every key with its value and end
    #[arg(short = 'p', long = "printConfigItem")]
    print: bool,

    /// Print the important keys with their values and end
    #[arg(short = 'm', long = "printImportantConfig")]
    print_important: bool,

    /// Name servers, `host:port` separated by `;` (shown only: the broker tells them of this filter server)
    #[arg(short = 'n', long = "namesrvAddr", value_name = "LIST")]
    namesrv_addr: Option<String>,

    /// The broker to filter for (key connectWhichBroker)
    #[arg(long, value_name = "HOST:PORT")]
    broker: Option<String>,

    /// Set a key (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Address to listen on: IP:PORT, IP, or :PORT
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

/// The program: all of it, from its arguments to its exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("mqfiltersrv: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &Arguments) -> Result<(), String> {
    let begin = Instant::now();
    let config = load(arguments)?;
    if arguments.print || arguments.print_important {
        let shown = if arguments.print {
            config.print_all()
        } else {
            config.print_important()
        };
        ready::announce(shown.trim_end());
        return Ok(());
    }
    let _logging = logging::init(&config.get().logging, "filtersrv").map_err(text)?;
    if let Some(file) = &arguments.config_file {
        ready::announce(format_args!(
            "load config properties file OK, {}",
            file.display()
        ));
    }
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    if let Err(error) = limits::raise_open_files() {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
    let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.clamp(2, 8))
        .max_blocking_threads(config.get().threads() + 8)
        .thread_name("filtersrv")
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    let result = runtime.block_on(serve(&config, begin));
    runtime.shutdown_timeout(GRACE);
    result
}

fn load(arguments: &Arguments) -> Result<Config<FiltersrvConfig>, String> {
    let mut sources = Sources::default()
        .with_file(arguments.config_file.clone())
        .with_environment();
    for pair in &arguments.set {
        sources.set(pair).map_err(text)?;
    }
    if let Some(list) = arguments
        .namesrv_addr
        .clone()
        .or_else(minimq_common::names::from_environment)
    {
        sources.set_key("namesrvAddr", &list);
    }
    if let Some(broker) = &arguments.broker {
        sources.set_key("connectWhichBroker", broker);
    }
    if let Some(listen) = &arguments.listen {
        set_listen(&mut sources, listen)?;
    }
    Config::load_with(&sources, FiltersrvConfig::finish, Clock::system()).map_err(text)
}

fn set_listen(sources: &mut Sources, listen: &str) -> Result<(), String> {
    if let Some(port) = listen
        .strip_prefix(':')
        .filter(|port| port.parse::<u16>().is_ok())
    {
        sources.set_key("listenPort", port);
    } else if let Ok(addr) = listen.parse::<SocketAddr>() {
        sources.set_key("bindAddress", &addr.ip().to_string());
        sources.set_key("listenPort", &addr.port().to_string());
    } else if let Ok(ip) = listen.parse::<IpAddr>() {
        sources.set_key("bindAddress", &ip.to_string());
    } else {
        return Err(format!(
            "--listen {listen} is wrong: expected IP:PORT, IP or :PORT, as in 127.0.0.1:30911"
        ));
    }
    Ok(())
}

async fn serve(config: &Config<FiltersrvConfig>, begin: Instant) -> Result<(), String> {
    let shutdown = Shutdown::new();
    shutdown.on_signals().map_err(text)?;
    let running = FilterServer::start(config).map_err(text)?;
    tracing::info!(
        address = running.advertised(),
        "listening on {}",
        running.local_addr()
    );
    // Ready means that pulls are served, so not before the broker was reached.
    let registered = tokio::select! {
        () = running.registered() => true,
        _ = shutdown.requested() => false,
    };
    if registered {
        ready::announce(format_args!(
            "The Filter Server boot success, {} (ready in {} ms)",
            running.advertised(),
            begin.elapsed().as_millis()
        ));
    }
    let reason = shutdown.requested().await;
    tracing::info!(reason, "stopping");
    let drain = Duration::from_millis(config.get().shutdown_drain_time.into());
    Stages::new()
        .stage("connections", drain + GRACE, async {
            let cut_off = running.stop(drain).await;
            if cut_off > 0 {
                tracing::warn!("{cut_off} connections were cut off with open requests");
            }
        })
        .run()
        .await;
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
