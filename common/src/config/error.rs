//! What can be wrong with configuration, said so that its author can repair it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::atomic_file::AtomicFileError;
use crate::properties_file::PropertiesError;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The declaration.
    Default,
    /// A properties file, with the line counted from 1.
    File(PathBuf, usize),
    /// An environment variable of this name.
    Environment(String),
    /// `--set`, or an option that stands for a key.
    CommandLine,
    /// A change at run time.
    RunTime,
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => out.write_str("default"),
            Self::File(path, line) => write!(out, "{}:{line}", path.display()),
            Self::Environment(name) => write!(out, "environment {name}"),
            Self::CommandLine => out.write_str("command line"),
            Self::RunTime => out.write_str("change at run time"),
        }
    }
}

/// A value that its key does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands.
    pub origin: Origin,
    /// The key.
    pub key: String,
    /// The value; hidden for secret keys.
    pub value: String,
    /// What would have been right.
    pub expected: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            origin,
            key,
            value,
            expected,
        } = self;
        write!(out, "{origin}: {key}={value} is wrong: expected {expected}")
    }
}

/// Values that do not go together, found by a role's own check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {expected}")]
pub struct Invalid {
    /// The key to change.
    pub key: &'static str,
    /// What would have been right, and why.
    pub expected: String,
}

impl Invalid {
    /// `expected` completes "is wrong: expected …".
    pub fn new(key: &'static str, expected: impl Into<String>) -> Self {
        Self {
            key,
            expected: expected.into(),
        }
    }
}

/// Why no configuration could be made at start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file of `-c` could not be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file of `-c` is not a properties file.
    #[error("configuration file {}: {source}", path.display())]
    NotProperties {
        /// The file.
        path: PathBuf,
        /// Line and reason.
        source: PropertiesError,
    },
    /// An argument of `--set` without `=`.
    #[error("`--set {0}` is wrong: expected key=value")]
    NotAPair(String),
    /// Wrong values, all of them at once.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Values(Vec<Problem>),
}

/// Something at start that the user should know and that does not stop it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// No key has this name. It is kept and listed.
    Unknown {
        /// Where it stands.
        origin: Origin,
        /// The name.
        key: String,
        /// The known key that looks most like it.
        similar: Option<&'static str>,
    },
    /// The key is accepted and has no effect here.
    Ignored {
        /// Where it stands.
        origin: Origin,
        /// The key.
        key: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// A file sets a key twice; the last one counts.
    Repeated {
        /// Where it counts.
        origin: Origin,
        /// The key.
        key: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown {
                origin,
                key,
                similar,
            } => {
                write!(out, "{origin}: there is no key {key}; it has no effect")?;
                similar.map_or(Ok(()), |similar| write!(out, " (did you mean {similar}?)"))
            }
            Self::Ignored {
                origin,
                key,
                reason,
            } => write!(out, "{origin}: {key} has no effect here: {reason}"),
            Self::Repeated { origin, key } => write!(
                out,
                "{origin}: {key} is set more than once; this one counts"
            ),
        }
    }
}

/// Why a change at run time was refused. Nothing is changed then.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The text is not a properties text.
    #[error("{0}")]
    NotProperties(#[from] PropertiesError),
    /// No key has this name.
    #[error("there is no key {0}")]
    Unknown(String),
    /// The key cannot be changed while the role runs.
    #[error("{key} cannot be changed at run time{}", reason.map(|r| format!(": it has no effect here, {r}")).unwrap_or_default())]
    NotMutable {
        /// The key.
        key: &'static str,
        /// Why it has no effect here, if so.
        reason: Option<&'static str>,
    },
    /// The key does not take this value.
    #[error("{0}")]
    Value(Problem),
    /// The change could not be stored.
    #[error("the change could not be stored: {0}")]
    NotStored(#[from] AtomicFileError),
    /// The file in which changes are stored is not a properties file.
    #[error("the change could not be stored: {}: {source}", path.display())]
    StoreNotProperties {
        /// The file.
        path: PathBuf,
        /// Line and reason.
        source: PropertiesError,
    },
}
