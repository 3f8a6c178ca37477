//! Where values come from at start, and the order in which they count.

use std::path::{Path, PathBuf};

use super::{ConfigError, Key, Origin, Section, Warning};
use crate::properties_file::PropertiesFile;

/// The sources of a start. The environment is empty unless [`Sources::with_environment`] is called, so
/// that tests do not depend on it.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    file: Option<PathBuf>,
    environment: Vec<(String, String)>,
    command_line: Vec<(String, String)>,
}

impl Sources {
    /// The file of `-c`.
    #[must_use]
    pub fn with_file(mut self, path: Option<PathBuf>) -> Self {
        self.file = path;
        self
    }

    /// The process's environment.
    #[must_use]
    pub fn with_environment(self) -> Self {
        // Variables that are not Unicode cannot be ours.
        let all = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        self.with_variables(all)
    }

    /// These variables as the environment.
    #[must_use]
    pub fn with_variables(mut self, all: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment = all
            .into_iter()
            .filter(|(name, _)| name.starts_with(PREFIX))
            .collect();
        self
    }

    /// An argument of `--set`.
    ///
    /// # Errors
    /// [`ConfigError::NotAPair`] when it holds no `=`.
    pub fn set(&mut self, pair: &str) -> Result<(), ConfigError> {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| ConfigError::NotAPair(pair.to_owned()))?;
        self.set_key(key.trim(), value);
        Ok(())
    }

    /// An option that stands for a key, as `-n` does for `namesrvAddr`.
    pub fn set_key(&mut self, key: &str, value: &str) {
        self.command_line.push((key.to_owned(), value.to_owned()));
    }

    /// The file of `-c`, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Everything that is given, in the order in which it counts: later ones override.
    pub(super) fn given<T: Section>(
        &self,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<Given>, ConfigError> {
        let mut given = Vec::new();
        if let Some(path) = &self.file {
            let bytes = std::fs::read(path).map_err(|source| ConfigError::Unreadable {
                path: path.clone(),
                source,
            })?;
            let file =
                PropertiesFile::parse(&bytes).map_err(|source| ConfigError::NotProperties {
                    path: path.clone(),
                    source,
                })?;
            let mut seen = std::collections::HashSet::new();
            for entry in file.entries() {
                let origin = Origin::File(path.clone(), entry.line);
                if !seen.insert(entry.key.to_owned()) {
                    warnings.push(Warning::Repeated {
                        origin: origin.clone(),
                        key: entry.key.into(),
                    });
                }
                given.push(Given {
                    key: entry.key.into(),
                    value: entry.value.into(),
                    origin,
                });
            }
        }
        T::keys(&mut |key: &'static Key| {
            for name in key.aliases.iter().chain(std::iter::once(&key.name)) {
                let variable = environment_name(name);
                if let Some((_, value)) =
                    self.environment.iter().find(|(name, _)| *name == variable)
                {
                    let origin = Origin::Environment(variable);
                    given.push(Given {
                        key: key.name.into(),
                        value: value.clone(),
                        origin,
                    });
                }
            }
        });
        given.extend(self.command_line.iter().map(|(key, value)| Given {
            key: key.clone(),
            value: value.clone(),
            origin: Origin::CommandLine,
        }));
        Ok(given)
    }
}

/// One given value.
pub(super) struct Given {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) origin: Origin,
}

const PREFIX: &str = "MINIMQ_";

/// The environment variable of a key: `MINIMQ_` and the key in upper case, with `_` for every
/// character that is neither letter nor digit.
#[must_use]
pub fn environment_name(key: &str) -> String {
    let upper = key.chars().map(|c| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    });
    PREFIX.chars().chain(upper).collect()
}
