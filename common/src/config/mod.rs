//! Configuration: every key is declared once, by [`config!`](crate::config!), with its spelling,
//! type, default, description and flags; that declaration makes the typed struct, the reader, the
//! listing and the rules for changes at run time.
//!
//! Values come, each overriding the ones before, from: the declared default, the properties file
//! of `-c`, the environment (`MINIMQ_` and the key in upper case, other characters as `_`:
//! `MINIMQ_LISTENPORT`, `MINIMQ_TLS_SERVER_MODE`), and `--set key=value` with the options that
//! stand for keys. Unknown keys of file and command line are reported, kept and listed; unknown
//! variables are not reported, since all roles on a machine share them.
//!
//! * [`Value`]: the types a key may have · [`Key`]: a declaration as data
//! * [`Sources`]: where values come from · [`Config`]: the values, readable without a lock
//!
//! ```
//! use minimq_common::config::{Config, Invalid, Sources};
//!
//! minimq_common::config! {
//!     /// Keys of an example role.
//!     pub struct ExampleConfig {
//!         /// Port that clients connect to.
//!         listen_port: u16 = 9876, "listenPort", important, range(1..=65535);
//!         /// Folder of all files.
//!         root: std::path::PathBuf = "/var/lib/minimq".into(), "storePathRootDir", important;
//!         /// Folder of the log; below the root unless set.
//!         log: std::path::PathBuf = Default::default(), "storePathCommitLog", derived(|c| c.root.join("commitlog"));
//!         /// Whether topics appear by themselves.
//!         auto_create: bool = true, "autoCreateTopicEnable", mutable, important;
//!         /// Selector threads.
//!         selectors: i32 = 3, "serverSelectorThreads", ignored("tokio shares its threads among all sockets");
//!     }
//!     with {
//!         /// Where log lines go.
//!         logging: minimq_common::logging::LogConfig,
//!     }
//! }
//!
//! let mut sources = Sources::default();
//! sources.set("listenPort=10911")?;
//! let config: Config<ExampleConfig> = Config::load(&sources)?;
//! for warning in config.warnings() {
//!     eprintln!("{warning}");
//! }
//! assert_eq!(config.get().listen_port, 10911);
//! assert_eq!(config.get().log.to_str(), Some("/var/lib/minimq/commitlog"));
//! config.update_text(b"autoCreateTopicEnable=FALSE")?;
//! assert!(!config.get().auto_create);
//! assert!(config.update_text(b"listenPort=1").is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod live;
mod macros;
mod sources;
mod value;

#[cfg(test)]
mod tests;

pub use error::{ConfigError, Invalid, Origin, Problem, UpdateError, Warning};
pub use live::{Change, Config, Finish, Snapshot, Update, Version};
pub use sources::{Sources, environment_name};
pub use value::{ByteSize, Reading, Value};

#[doc(hidden)]
pub use value::check_range;

/// One declared key, as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The key as RocketMQ spells it.
    pub name: &'static str,
    /// Other spellings that are read (never written).
    pub aliases: &'static [&'static str],
    /// What it means, from the declaration's comment.
    pub doc: &'static str,
    /// The values it takes, as in "a number".
    pub expected: &'static str,
    /// May be changed at run time; takes effect at once.
    pub mutable: bool,
    /// Listed by `-m`.
    pub important: bool,
    /// Never shown.
    pub secret: bool,
    /// Why the key is accepted but has no effect here.
    pub ignored: Option<&'static str>,
}

impl Key {
    #[doc(hidden)]
    #[must_use]
    pub const fn declare(name: &'static str, expected: &'static str, doc: &'static str) -> Self {
        Self {
            name,
            aliases: &[],
            doc,
            expected,
            mutable: false,
            important: false,
            secret: false,
            ignored: None,
        }
    }

    /// Whether `name` is this key or one of its other spellings.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// A struct made by [`config!`](crate::config!); not meant to be implemented by hand.
pub trait Section: Default + Clone + Send + Sync + 'static {
    /// Every key, those of nested sections included, in the order of declaration.
    fn keys(visit: &mut dyn FnMut(&'static Key));

    /// Gives `name` (its own spelling) a value, in every section that has it. False if none has.
    ///
    /// # Errors
    /// What would have been right, as in "a number from 1 to 65535".
    fn set(&mut self, name: &str, text: &str, reading: Reading) -> Result<bool, String>;

    /// Every key with its value; `None` is a value that is not set.
    fn show(&self, visit: &mut dyn FnMut(&'static Key, Option<String>));

    /// Computes the defaults that follow from other keys, for keys of which `given` is false.
    fn derive(&mut self, given: &dyn Fn(&str) -> bool);
}

/// The declaration of `name`, which may be another spelling.
#[must_use]
pub fn find_key<T: Section>(name: &str) -> Option<&'static Key> {
    let mut found = None;
    T::keys(&mut |key| {
        if found.is_none() && key.is(name) {
            found = Some(key);
        }
    });
    found
}

/// Faults of a declaration that the compiler does not see: a name with two meanings, two keys with
/// one environment variable, a key without description. For a unit test in each role.
#[must_use]
pub fn faults<T: Section>() -> Vec<String> {
    let mut faults = Vec::new();
    let mut names = std::collections::HashMap::new();
    let mut variables = std::collections::HashMap::new();
    T::keys(&mut |key| {
        if key.doc.trim().is_empty() {
            faults.push(format!("{} has no description", key.name));
        }
        for name in std::iter::once(key.name).chain(key.aliases.iter().copied()) {
            if let Some(other) = names.insert(name, key.name)
                && other != key.name
            {
                faults.push(format!("{name} means both {other} and {}", key.name));
            }
        }
        if let Some(other) = variables.insert(environment_name(key.name), key.name)
            && other != key.name
        {
            faults.push(format!(
                "{other} and {} share an environment variable",
                key.name
            ));
        }
    });
    faults
}
