//! `mqbroker` as a program: options, start, signals, stop.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use minimq_common::clock::Clock;
use minimq_common::config::{Config, Sources};
use minimq_common::shutdown::Shutdown;
use minimq_common::{limits, logging, ready};
use minimq_protocol::delay_level::DelayLevels;
use minimq_store::RecoveryProgress;

use crate::access;
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
    keys.bind_ip()?;
    if let Some(addresses) = &keys.broker.namesrv_addr {
        minimq_common::names::parse_list(addresses)
            .map_err(|error| format!("namesrvAddr: {error}"))?;
    }
    DelayLevels::parse(&keys.store.message_delay_level)
        .map_err(|error| format!("messageDelayLevel: {error}"))?;
    keys.store_config()
        .check()
        .map_err(|error| error.to_string())?;
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
        access::open(&config.to_arc(), Clock::system())
            .map_err(|error| format!("access control: {error}"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        Options::try_parse_from(["mqbroker"].iter().chain(arguments)).unwrap()
    }

    fn with_file(text: &str, more: &[&str]) -> Result<Config<BrokerConfig>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("broker.conf");
        std::fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let mut arguments = vec!["-c", &file];
        arguments.extend(more);
        load(&options(&arguments))
    }

    #[test]
    fn the_command_line_overrides_the_file_and_unknown_keys_are_named_with_their_line() {
        let text = "# mine\nbrokerName=b1\nnamesrvAddr=127.0.0.1:1\nbrokerNme=b2\n";
        let config = with_file(text, &["-n", "127.0.0.1:2", "--set", "brokerId=0"]).unwrap();
        let keys = config.to_arc();
        assert_eq!(keys.broker.broker_name, "b1");
        assert_eq!(keys.broker.namesrv_addr.as_deref(), Some("127.0.0.1:2"));
        let warnings: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("broker.conf:4") && warnings[0].contains("brokerNme"),
            "{warnings:?}"
        );
    }

    #[test]
    fn what_cannot_work_is_refused_by_key_value_and_line() {
        for (text, parts) in [
            (
                "\nlistenPort=many\n",
                &["broker.conf", "2", "listenPort", "many"][..],
            ),
            ("namesrvAddr=nowhere\n", &["namesrvAddr", "nowhere"]),
            ("bindAddress=here\n", &["bindAddress", "here"]),
            ("brokerRole=SLAVE\n", &["brokerRole", "brokerId"]),
            ("brokerId=3\n", &["brokerId=3"]),
            ("deleteWhen=25\n", &["deleteWhen", "25"]),
            ("messageDelayLevel=1s 5x\n", &["messageDelayLevel", "5x"]),
            (
                "mappedFileSizeCommitLog=100\n",
                &["mappedFileSizeCommitLog", "100", "512"],
            ),
        ] {
            let Err(error) = with_file(text, &[]) else {
                panic!("{text}");
            };
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }

    #[test]
    fn the_shipped_file_is_good_also_with_its_commented_keys() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../conf/broker.conf");
        let text = std::fs::read_to_string(path).unwrap();
        let uncommented: String = text
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(key) if key.split_once('=').is_some_and(|(k, _)| !k.contains(' ')) => key,
                _ => line,
            })
            .map(|line| format!("{line}\n"))
            .collect();
        assert_ne!(uncommented, text);
        for text in [&text, &uncommented] {
            let config = with_file(text, &[]).unwrap();
            let warnings: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
            assert!(warnings.is_empty(), "{warnings:?}");
        }
    }

    #[test]
    fn a_check_of_the_configuration_starts_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let set = format!("storePathRootDir={}", store.display());
        for what in ["-t", "-p", "-m"] {
            start(&options(&[what, "--set", &set])).unwrap();
        }
        assert!(!store.exists());
        assert!(start(&options(&["-t", "--set", "listenPort=x"])).is_err());
    }
}
