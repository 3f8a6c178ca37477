//! Log output by `tracing`: text or JSON, to standard error or to rolling files. Writing happens
//! on a thread of its own; when it cannot keep up, lines are dropped and counted rather than
//! making requests wait.

mod rolling;

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use tracing::Subscriber;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, WorkerGuard};
use tracing_appender::rolling::Rotation;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::{Registry, reload};

use crate::config::{ByteSize, Reading, Value};

crate::config_enum! {
    /// How a log line looks.
    pub enum LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

crate::config_enum! {
    /// When a new log file begins.
    pub enum LogRotation {
        /// When the file has reached `logMaxFileSize`.
        Size = "size",
        /// At midnight UTC.
        Daily = "daily",
    }
}

crate::config! {
    /// Keys of log output, the same for every role.
    pub struct LogConfig {
        /// Least level that is written: off, error, warn, info, debug or trace; several parts by
        /// comma set single modules, as in info,minimq_store=debug.
        level: LogFilter = LogFilter("info".to_owned()), "logLevel", mutable;
        /// Form of a line: text or json.
        format: LogFormat = LogFormat::Text, "logFormat";
        /// Folder of log files; standard error if not set.
        folder: Option<PathBuf> = None, "logDir";
        /// When a new file begins: size or daily.
        rotation: LogRotation = LogRotation::Size, "logRotation";
        /// Size at which a new file begins.
        max_file_size: ByteSize = ByteSize::mib(64), "logMaxFileSize", range(ByteSize(4096)..=ByteSize(1 << 40));
        /// Number of files that are kept.
        max_files: u32 = 10, "logMaxFiles", range(1..=10_000);
    }
}

/// A checked filter text, as in `info,minimq_store=debug`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for LogFilter {
    const EXPECTED: &'static str =
        "off, error, warn, info, debug or trace, or parts as in info,minimq_store=debug";

    fn parse(text: &str, _reading: Reading) -> Result<Self, String> {
        let text = text.trim();
        // A bare word that is no level would be read as the name of a module, and silence the rest.
        let fine = |part: &str| match part.split_once('=') {
            Some((module, level)) => !module.trim().is_empty() && is_level(level),
            None => is_level(part),
        };
        if text.is_empty() || !text.split(',').all(fine) || EnvFilter::try_new(text).is_err() {
            return Err(Self::EXPECTED.to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    fn show(&self) -> Option<String> {
        Some(self.0.clone())
    }
}

fn is_level(text: &str) -> bool {
    ["off", "error", "warn", "info", "debug", "trace"]
        .iter()
        .any(|level| text.trim().eq_ignore_ascii_case(level))
}

/// Why log output could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The folder or file of `logDir`.
    #[error("cannot write log files (logDir={}): {reason}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// [`init`] was called twice in one process.
    #[error("log output is already set up in this process")]
    Twice,
    /// The filter was refused.
    #[error("logLevel={0} is not a filter")]
    Filter(String),
}

/// Log output of the process; keep it until the end of `main`: dropping it writes what is queued.
#[must_use = "log lines are lost once this is dropped"]
pub struct Logging {
    filter: reload::Handle<EnvFilter, Registry>,
    dropped: ErrorCounter,
    _worker: WorkerGuard,
}

impl Logging {
    /// Changes the level while running (`logLevel` is mutable).
    ///
    /// # Errors
    /// [`LoggingError::Filter`]; the old one stays.
    pub fn set_level(&self, level: &LogFilter) -> Result<(), LoggingError> {
        let refused = || LoggingError::Filter(level.0.clone());
        let filter = EnvFilter::try_new(&level.0).map_err(|_| refused())?;
        self.filter.reload(filter).map_err(|_| refused())
    }

    /// Lines dropped because they came faster than they could be written.
    #[must_use]
    pub fn dropped_lines(&self) -> usize {
        self.dropped.dropped_lines()
    }
}

/// The filter of the process's log output.
static PROCESS: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Changes the level of the process's log output, if [`init`] set it up.
///
/// # Errors
/// [`LoggingError::Filter`]; the old one stays.
pub fn set_level(level: &LogFilter) -> Result<(), LoggingError> {
    let refused = || LoggingError::Filter(level.0.clone());
    let filter = EnvFilter::try_new(&level.0).map_err(|_| refused())?;
    PROCESS.get().map_or(Ok(()), |handle| {
        handle.reload(filter).map_err(|_| refused())
    })
}

/// Sets the process's log output up; files are named `PREFIX.log…`.
///
/// # Errors
/// [`LoggingError`].
pub fn init(config: &LogConfig, prefix: &str) -> Result<Logging, LoggingError> {
    let (subscriber, logging) = build(config, prefix)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError::Twice)?;
    let _ = PROCESS.set(logging.filter.clone());
    Ok(logging)
}

/// A subscriber that is not the process's, for tests and embedded roles.
///
/// # Errors
/// As [`init`], without [`LoggingError::Twice`].
pub fn build(
    config: &LogConfig,
    prefix: &str,
) -> Result<(impl Subscriber + Send + Sync + 'static + use<>, Logging), LoggingError> {
    let (writer, worker, colours) = open(config, prefix)?;
    let dropped = writer.error_counter();
    let filter = EnvFilter::try_new(&config.level.0)
        .map_err(|_| LoggingError::Filter(config.level.0.clone()))?;
    let (filter, handle) = reload::Layer::new(filter);
    let lines = match config.format {
        LogFormat::Text => fmt::layer().with_ansi(colours).with_writer(writer).boxed(),
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(writer)
            .boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    Ok((
        subscriber,
        Logging {
            filter: handle,
            dropped,
            _worker: worker,
        },
    ))
}

fn open(
    config: &LogConfig,
    prefix: &str,
) -> Result<(NonBlocking, WorkerGuard, bool), LoggingError> {
    let Some(folder) = &config.folder else {
        let colours = io::IsTerminal::is_terminal(&io::stderr());
        let (writer, worker) = tracing_appender::non_blocking(io::stderr());
        return Ok((writer, worker, colours));
    };
    let refused = |reason: String| LoggingError::Folder {
        folder: folder.clone(),
        reason,
    };
    std::fs::create_dir_all(folder).map_err(|error| refused(error.to_string()))?;
    let max_files = usize::try_from(config.max_files).unwrap_or(usize::MAX);
    let (writer, worker) = match config.rotation {
        LogRotation::Daily => {
            let file = tracing_appender::rolling::Builder::new()
                .rotation(Rotation::DAILY)
                .filename_prefix(prefix)
                .filename_suffix("log")
                .max_log_files(max_files)
                .build(folder)
                .map_err(|error| refused(error.to_string()))?;
            tracing_appender::non_blocking(file)
        }
        LogRotation::Size => {
            let file = rolling::BySize::open(folder, prefix, config.max_file_size.0, max_files)
                .map_err(|error| refused(error.to_string()))?;
            tracing_appender::non_blocking(file)
        }
    };
    Ok((writer, worker, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::Sources;
    use std::fs;
    use tempfile::tempdir;

    fn config(pairs: &[&str]) -> LogConfig {
        let mut sources = Sources::default();
        pairs.iter().for_each(|pair| sources.set(pair).unwrap());
        let config: Config<LogConfig> = Config::load(&sources).unwrap();
        config.get().as_ref().clone()
    }

    #[test]
    fn lines_above_the_level_reach_the_file_and_the_level_can_change() {
        let folder = tempdir().unwrap();
        let config = config(&[&format!("logDir={}", folder.path().display())]);
        let (subscriber, logging) = build(&config, "broker").unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(topic = "orders", "created");
            tracing::debug!("too detailed");
            logging
                .set_level(&LogFilter::parse("debug", Reading::RunTime).unwrap())
                .unwrap();
            tracing::debug!("now wanted");
        });
        assert_eq!(logging.dropped_lines(), 0);
        drop(logging);
        let text = fs::read_to_string(folder.path().join("broker.log")).unwrap();
        assert!(
            text.contains("INFO") && text.contains("created topic=\"orders\""),
            "{text}"
        );
        assert!(
            text.contains("now wanted") && !text.contains("too detailed"),
            "{text}"
        );
        assert!(!text.contains('\x1b'), "no colours in a file");
    }

    #[test]
    fn json_lines_are_one_object_each() {
        let folder = tempdir().unwrap();
        let config = config(&[
            &format!("logDir={}", folder.path().display()),
            "logFormat=JSON",
            "logRotation=daily",
        ]);
        let (subscriber, logging) = build(&config, "namesrv").unwrap();
        tracing::subscriber::with_default(subscriber, || tracing::warn!(broker = "a\"b", "lost"));
        drop(logging);
        let file = fs::read_dir(folder.path())
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let name = file.file_name().into_string().unwrap();
        assert!(
            name.starts_with("namesrv.20") && name.ends_with(".log"),
            "{name}"
        );
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(text.starts_with('{') && text.ends_with("}\n"), "{text}");
        assert!(
            text.contains(r#""level":"WARN""#) && text.contains(r#""broker":"a\"b""#),
            "{text}"
        );
    }

    #[test]
    fn filters_are_checked() {
        for fine in ["info", "WARN", "off", "info,minimq_store=debug", " debug "] {
            assert!(LogFilter::parse(fine, Reading::Start).is_ok(), "{fine}");
        }
        for wrong in [
            "",
            "loud",
            "info,loud",
            "minimq_store=loud",
            "=debug",
            "info,,debug",
        ] {
            assert_eq!(
                LogFilter::parse(wrong, Reading::Start),
                Err(LogFilter::EXPECTED.to_owned()),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempdir().unwrap();
        let blocked = folder.path().join("file");
        fs::write(&blocked, "").unwrap();
        let config = config(&[&format!("logDir={}/logs", blocked.display())]);
        let Err(error) = build(&config, "x") else {
            panic!("accepted")
        };
        assert!(
            error
                .to_string()
                .contains(&format!("logDir={}/logs", blocked.display())),
            "{error}"
        );
    }
}
