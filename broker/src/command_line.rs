//! `mqbroker` as a program: options, start, signals, stop.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use minimq_common::config::{Config, Sources};
use minimq_common::shutdown::Shutdown;
use minimq_common::{limits, logging, ready};
use minimq_store::RecoveryProgress;

use crate::broker::Broker;
use crate::config::BrokerConfig;

/// Options of `mqbroker`.
#[derive(Debug, Parser)]
#[command(
    name = "mqbroker",
    version,
    about = "The mini-MQ broker: stores messages and hands them to consumers.",
    after_help = "Example:\n  mqbroker -n 127.0.0.1:9876 --set brokerName=broker-a --set brokerIP1=127.0.0.1 --set storePathRootDir=/tmp/store"
)]
struct Options {
    /// Properties file with RocketMQ's keys.
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Name servers, `host:port` separated by `;`; overrides the file.
    #[arg(short = 'n', long = "namesrvAddr", value_name = "ADDRS")]
    namesrv_addr: Option<String>,
    /// Prints every key and value, then ends.
    #[arg(short = 'p', long = "printConfigItem")]
    print_all: bool,
    /// Prints the important keys and values, then ends.
    #[arg(short = 'm', long = "printImportantConfig")]
    print_important: bool,
    /// Checks the configuration, then ends.
    #[arg(short = 't', long = "test")]
    test: bool,
    /// Sets one key; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Runs `mqbroker` with the process's arguments; the result is its exit status.
pub fn run() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            // Nothing is left to do when even that cannot be printed.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    match start(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("mqbroker: {message}");
            ExitCode::from(1)
        }
    }
}

fn load(options: &Options) -> Result<Config<BrokerConfig>, String> {
    let mut sources = Sources::default()
        .with_file(options.config_file.clone())
        .with_environment();
    for pair in &options.set {
        sources.set(pair).map_err(|error| error.to_string())?;
    }
    if let Some(addresses) = &options.namesrv_addr {
        sources.set_key("namesrvAddr", addresses);
    }
    let config: Config<BrokerConfig> = Config::load(&sources).map_err(|error| error.to_string())?;
    let keys = config.to_arc();
    keys.store_config()?;
    keys.bind_ip()?;
    if let Some(addresses) = &keys.broker.namesrv_addr {
        minimq_common::names::parse_list(addresses)
            .map_err(|error| format!("namesrvAddr: {error}"))?;
    }
    if keys.is_slave() && keys.broker.broker_id == 0 {
        return Err("brokerRole=SLAVE needs a brokerId above 0".to_owned());
    }
    if !keys.is_slave() && keys.broker.broker_id != 0 {
        return Err(format!(
            "brokerId={} belongs to a slave; a master has 0",
            keys.broker.broker_id
        ));
    }
    config.store_in(options.config_file.clone().unwrap_or_else(|| {
        keys.store
            .store_path_root_dir
            .join("config")
            .join("broker.properties")
    }));
    Ok(config)
}

fn start(options: &Options) -> Result<(), String> {
    let begin = Instant::now();
    let config = load(options)?;
    if options.print_all {
        print!("{}", config.print_all());
        return Ok(());
    }
    if options.print_important {
        print!("{}", config.print_important());
        return Ok(());
    }
    if options.test {
        for warning in config.warnings() {
            eprintln!("{warning}");
        }
        println!("the configuration is good");
        return Ok(());
    }
    let _logging =
        logging::init(&config.to_arc().logging, "mqbroker").map_err(|error| error.to_string())?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    if let Err(error) = limits::raise_open_files() {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("broker")
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    runtime.block_on(serve(config, begin))
}

async fn serve(config: Config<BrokerConfig>, begin: Instant) -> Result<(), String> {
    let shutdown = Shutdown::new();
    shutdown
        .on_signals()
        .map_err(|error| format!("cannot listen for signals: {error}"))?;
    let running = Broker::start(config, show_progress())
        .await
        .map_err(|error| error.to_string())?;
    let broker = &running.broker;
    let name_servers = broker.name_servers();
    let known = match name_servers.as_slice() {
        [] => String::new(),
        servers => format!(" and name server is {}", servers.join(";")),
    };
    ready::announce(format_args!(
        "The broker[{}, {}] boot success. serializeType=JSON{known} (ready in {} ms)",
        broker.identity.name,
        broker.identity.address,
        begin.elapsed().as_millis()
    ));
    let reason = shutdown.requested().await;
    tracing::info!(reason, "stopping");
    running
        .stop()
        .await
        .map_err(|error| format!("the store did not close cleanly: {error}"))
}

/// A log line a second while the store recovers.
fn show_progress() -> impl FnMut(RecoveryProgress) + Send + 'static {
    let mut last = Instant::now();
    move |progress| {
        if last.elapsed().as_secs() >= 1 {
            last = Instant::now();
            tracing::info!("recovering the store: {progress:?}");
        }
    }
}
