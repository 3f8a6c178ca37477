//! `mqnamesrv`: options, start, one line when ready, SIGTERM (name server spec 12).

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use minimq_common::clock::Clock;
use minimq_common::config::{Config, Origin, Sources};
use minimq_common::logging::{self, Logging};
use minimq_common::shutdown::{Shutdown, Stages};
use minimq_common::{limits, ready};

use crate::config::NamesrvConfig;
use crate::server::NameServer;

/// Beyond the time that open requests have.
const GRACE: Duration = Duration::from_secs(2);

/// The name server of a mini-MQ or RocketMQ 4.x cluster: brokers register with it, clients ask it for routes.
#[derive(Debug, Parser)]
#[command(
    name = "mqnamesrv",
    version,
    after_help = "Example:\n  mqnamesrv --listen 127.0.0.1:9876 --set orderMessageEnable=true\n\n\
                  Keys come from the file, then the environment (MINIMQ_LISTENPORT=…), then these options."
)]
struct Arguments {
    /// Properties file; changes made at run time are kept in it
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config_file: Option<PathBuf>,

    /// Print every key with its value and end
    #[arg(short = 'p', long = "printConfigItem")]
    print: bool,

    /// Print the important keys with their values and end
    #[arg(short = 'm', long = "printImportantConfig")]
    print_important: bool,

    /// Accepted for scripts; name servers do not know each other
    #[arg(short = 'n', long = "namesrvAddr", value_name = "LIST")]
    _namesrv_addr: Option<String>,

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
            eprintln!("mqnamesrv: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &Arguments) -> Result<(), String> {
    let config = load(arguments)?;
    if arguments.print || arguments.print_important {
        let text = if arguments.print {
            config.print_all()
        } else {
            config.print_important()
        };
        ready::announce(text.trim_end());
        return Ok(());
    }
    let logging = logging::init(&config.get().logging, "namesrv").map_err(text)?;
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
        .max_blocking_threads(config.get().max_slow_requests + 8)
        .thread_name("namesrv")
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    let result = runtime.block_on(serve(Arc::new(config), logging));
    runtime.shutdown_timeout(GRACE);
    result
}

fn load(arguments: &Arguments) -> Result<Config<NamesrvConfig>, String> {
    let mut sources = Sources::default()
        .with_file(arguments.config_file.clone())
        .with_environment();
    for pair in &arguments.set {
        sources.set(pair).map_err(text)?;
    }
    if let Some(listen) = &arguments.listen {
        set_listen(&mut sources, listen)?;
    }
    let config =
        Config::load_with(&sources, NamesrvConfig::finish, Clock::system()).map_err(text)?;
    // As in RocketMQ the file of -c keeps changes, unless another one is named.
    if arguments.config_file.is_none() || config.origin("configStorePath") != Origin::Default {
        config.store_in(config.get().config_store_path.clone());
    }
    Ok(config)
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
            "--listen {listen} is wrong: expected IP:PORT, IP or :PORT, as in 127.0.0.1:9876"
        ));
    }
    Ok(())
}

async fn serve(config: Arc<Config<NamesrvConfig>>, logging: Logging) -> Result<(), String> {
    let shutdown = Shutdown::new();
    shutdown.on_signals().map_err(text)?;
    // Lives as long as the server, which may change its level.
    let logging = Arc::new(logging);
    let level = logging.clone();
    let running = NameServer::start_with(
        config.clone(),
        Box::new(move |update, keys| {
            if update.changed("logLevel")
                && let Err(error) = level.set_level(&keys.logging.level)
            {
                tracing::error!("{error}");
            }
        }),
    )
    .map_err(text)?;
    let addr = running.local_addr();
    tracing::info!("listening on {addr}");
    ready::announce(format_args!(
        "The Name Server boot success. serializeType=JSON, address {addr}"
    ));

    let reason = shutdown.requested().await;
    tracing::info!("stopping: {reason}");
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
    drop(logging);
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
