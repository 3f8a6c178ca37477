//! The values of a running role: read without a lock, changed as a whole, stored in the file.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::sources::Given;
use super::{
    ConfigError, Invalid, Key, Origin, Problem, Reading, Section, Sources, UpdateError, Warning,
    find_key,
};
use crate::atomic_file;
use crate::clock::Clock;
use crate::properties_file::{PropertiesFile, append_pair};

/// The values at one moment; cheap to take, not to be kept across an await.
pub type Snapshot<T> = Guard<Arc<T>>;

/// A role's own rules over all values: computes what follows from several keys, and says which do
/// not go together. Runs at start and on every change.
pub type Finish<T> = fn(&mut T) -> Result<(), Invalid>;

/// The configuration of a running role.
pub struct Config<T: Section> {
    values: ArcSwap<T>,
    state: Mutex<State>,
    finish: Finish<T>,
    warnings: Vec<Warning>,
    clock: Clock,
}

struct State {
    /// Known keys that were given, with the origin that counts.
    given: HashMap<&'static str, Origin>,
    /// Unknown keys, in the order in which they were met.
    unknown: Vec<(String, String)>,
    /// The properties file that keeps changes.
    store: Option<PathBuf>,
    version: Version,
}

/// Counts changes, as the header of code 26 shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// When the last change was made (start time if none).
    pub timestamp_ms: i64,
    /// Number of changes since start.
    pub counter: i64,
}

/// One value that is different now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its key.
    pub key: &'static str,
    /// The text before; `None` if it was not set.
    pub old: Option<String>,
    /// The text now.
    pub new: Option<String>,
}

/// What an update did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// Values that are different now, derived ones included, in order of declaration.
    pub changed: Vec<Change>,
    /// Keys that were set by environment or command line at start, which will override the stored
    /// change at the next start. Worth a warning in the log.
    pub overridden_at_start: Vec<(&'static str, Origin)>,
}

impl Update {
    /// Whether the value of this key is different now.
    #[must_use]
    pub fn changed(&self, key: &str) -> bool {
        self.changed.iter().any(|change| change.key == key)
    }
}

impl<T: Section> Config<T> {
    /// Reads all sources.
    ///
    /// # Errors
    /// [`ConfigError`]; wrong values are collected, so that one try shows them all.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        Self::load_with(sources, |_| Ok(()), Clock::system())
    }

    /// [`Config::load`] with a role's own rules over all values, and its clock.
    ///
    /// # Errors
    /// As [`Config::load`]; what the rules refuse is reported at the place where its key was set.
    pub fn load_with(
        sources: &Sources,
        finish: Finish<T>,
        clock: Clock,
    ) -> Result<Self, ConfigError> {
        let mut warnings = Vec::new();
        let mut values = T::default();
        let mut given: HashMap<&'static str, Origin> = HashMap::new();
        let mut unknown: Vec<(String, String)> = Vec::new();
        let mut last: Vec<(Option<&'static Key>, Given)> = Vec::new();
        // Only the value that counts is read: one that is overridden cannot be wrong.
        for one in sources.given::<T>(&mut warnings)? {
            let key = find_key::<T>(&one.key);
            let name = |key: Option<&'static Key>, one: &Given| {
                key.map_or(one.key.clone(), |key| key.name.to_owned())
            };
            last.retain(|(other_key, other)| name(*other_key, other) != name(key, &one));
            last.push((key, one));
        }
        let mut problems = Vec::new();
        for (
            key,
            Given {
                key: spelling,
                value,
                origin,
            },
        ) in last
        {
            let Some(key) = key else {
                let similar = most_similar::<T>(&spelling);
                warnings.push(Warning::Unknown {
                    origin,
                    key: spelling.clone(),
                    similar,
                });
                unknown.push((spelling, value));
                continue;
            };
            if let Some(reason) = key.ignored {
                warnings.push(Warning::Ignored {
                    origin: origin.clone(),
                    key: key.name,
                    reason,
                });
            }
            if let Err(expected) = values.set(key.name, &value, Reading::Start) {
                problems.push(problem(key, &value, expected, origin.clone()));
            }
            given.insert(key.name, origin);
        }
        if problems.is_empty() {
            values.derive(&|name| given.contains_key(name));
            if let Err(invalid) = finish(&mut values) {
                let origin = given.get(invalid.key).cloned().unwrap_or(Origin::Default);
                problems.push(problem_of(&values, invalid, origin));
            }
        }
        if !problems.is_empty() {
            return Err(ConfigError::Values(problems));
        }
        let version = Version {
            timestamp_ms: clock.now_ms(),
            counter: 0,
        };
        let state = State {
            given,
            unknown,
            store: sources.file().map(PathBuf::from),
            version,
        };
        Ok(Self {
            values: ArcSwap::from_pointee(values),
            state: Mutex::new(state),
            finish,
            warnings,
            clock,
        })
    }

    /// These values, unchecked and stored nowhere: for tests and embedded roles.
    #[must_use]
    pub fn from_values(values: T) -> Self {
        let clock = Clock::system();
        let version = Version {
            timestamp_ms: clock.now_ms(),
            counter: 0,
        };
        // As if every key had been given: derived defaults stay what they are.
        let mut given = HashMap::new();
        T::keys(&mut |key| {
            given.insert(key.name, Origin::Default);
        });
        let state = State {
            given,
            unknown: Vec::new(),
            store: None,
            version,
        };
        Self {
            values: ArcSwap::from_pointee(values),
            state: Mutex::new(state),
            finish: |_| Ok(()),
            warnings: Vec::new(),
            clock,
        }
    }

    /// The values now. Takes no lock and touches no shared counter: fit for hot paths.
    #[must_use]
    pub fn get(&self) -> Snapshot<T> {
        self.values.load()
    }

    /// The values now, to keep.
    #[must_use]
    pub fn to_arc(&self) -> Arc<T> {
        self.values.load_full()
    }

    /// What the user should know after the start.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Counts changes.
    #[must_use]
    pub fn version(&self) -> Version {
        self.state.lock().version
    }

    /// Where the value of this key came from.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        self.state
            .lock()
            .given
            .get(key)
            .cloned()
            .unwrap_or(Origin::Default)
    }

    /// Stores changes in this file from now on; without it they go to the file of `-c`, or nowhere.
    pub fn store_in(&self, path: PathBuf) {
        self.state.lock().store = Some(path);
    }

    /// Changes values at run time by a properties text, the body of codes 25 and 318.
    ///
    /// # Errors
    /// As [`Config::update`], and a text that is not in the dialect.
    pub fn update_text(&self, text: &[u8]) -> Result<Update, UpdateError> {
        self.update(&PropertiesFile::parse(text)?)
    }

    /// Changes values at run time: all of them or none. They are stored in the file first, whose
    /// other lines stay as they are.
    ///
    /// # Errors
    /// [`UpdateError`]: a key that is unknown or not mutable, a value its key does not take, values
    /// that do not go together, a file that could not be written.
    pub fn update(&self, wanted: &PropertiesFile) -> Result<Update, UpdateError> {
        let mut state = self.state.lock();
        let old = self.values.load_full();
        let mut new = T::clone(&old);
        let mut keys: Vec<&'static Key> = Vec::new();
        for entry in wanted.entries() {
            let key = find_key::<T>(entry.key)
                .ok_or_else(|| UpdateError::Unknown(entry.key.to_owned()))?;
            if !key.mutable {
                return Err(UpdateError::NotMutable {
                    key: key.name,
                    reason: key.ignored,
                });
            }
            new.set(key.name, entry.value, Reading::RunTime)
                .map_err(|expected| {
                    UpdateError::Value(problem(key, entry.value, expected, Origin::RunTime))
                })?;
            if !keys.iter().any(|known| known.name == key.name) {
                keys.push(key);
            }
        }
        if keys.is_empty() {
            return Ok(Update::default());
        }
        new.derive(&|name| {
            state.given.contains_key(name) || keys.iter().any(|key| key.name == name)
        });
        (self.finish)(&mut new)
            .map_err(|invalid| UpdateError::Value(problem_of(&new, invalid, Origin::RunTime)))?;
        if let Some(path) = &state.store {
            store(path, &new, &keys)?;
        }

        let mut update = Update {
            changed: differences(&*old, &new),
            ..Update::default()
        };
        self.values.store(Arc::new(new));
        state.version = Version {
            timestamp_ms: self.clock.now_ms(),
            counter: state.version.counter + 1,
        };
        for key in keys {
            let before = state.given.insert(key.name, Origin::RunTime);
            if let Some(before @ (Origin::Environment(_) | Origin::CommandLine)) = before {
                update.overridden_at_start.push((key.name, before));
            }
        }
        Ok(update)
    }

    /// `-p`: every key as `key=value`, a line each, unknown ones last. Secrets are hidden.
    #[must_use]
    pub fn print_all(&self) -> String {
        self.print(|_| true, true)
    }

    /// `-m`: the important keys as `key=value`.
    #[must_use]
    pub fn print_important(&self) -> String {
        self.print(|key| key.important, false)
    }

    /// The body of codes 26 and 319: every set key, and the unknown ones of the start, as
    /// properties text (wire spec 6.16). Secrets are hidden.
    #[must_use]
    pub fn export(&self) -> String {
        let mut out = String::new();
        self.each_once(|key, value| {
            if let Some(value) = hidden(key, value) {
                append_pair(&mut out, key.name, &value);
            }
        });
        for (key, value) in &self.state.lock().unknown {
            append_pair(&mut out, key, value);
        }
        out
    }

    fn print(&self, wanted: impl Fn(&Key) -> bool, unknown: bool) -> String {
        let mut out = String::new();
        let mut line = |key: &str, value: &str| {
            out.push_str(key);
            out.push('=');
            out.push_str(value);
            out.push('\n');
        };
        self.each_once(|key, value| {
            if wanted(key) {
                line(key.name, &hidden(key, value).unwrap_or_default());
            }
        });
        if unknown {
            self.state
                .lock()
                .unknown
                .iter()
                .for_each(|(key, value)| line(key, value));
        }
        out
    }

    /// Each key once, though several sections may declare it.
    fn each_once(&self, mut visit: impl FnMut(&'static Key, Option<String>)) {
        let mut seen = HashSet::new();
        self.values.load().show(&mut |key, value| {
            if seen.insert(key.name) {
                visit(key, value);
            }
        });
    }
}

impl<T: Section> std::fmt::Debug for Config<T> {
    /// Without values: some are secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Config")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

fn store<T: Section>(
    path: &std::path::Path,
    values: &T,
    keys: &[&'static Key],
) -> Result<(), UpdateError> {
    let not_properties = |source| UpdateError::StoreNotProperties {
        path: path.into(),
        source,
    };
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let error = atomic_file::AtomicFileError::Io {
                step: "read",
                path: path.into(),
                source: error,
            };
            return Err(UpdateError::NotStored(error));
        }
        other => other.unwrap_or_default(),
    };
    let mut file = PropertiesFile::parse(&bytes).map_err(not_properties)?;
    values.show(&mut |key, value| {
        if keys.iter().any(|changed| changed.name == key.name) {
            key.aliases.iter().for_each(|alias| _ = file.remove(alias));
            file.set(key.name, &value.unwrap_or_default());
        }
    });
    // Private if new: some keys are secret.
    Ok(atomic_file::write_private_with_backup(
        path,
        &file.to_bytes(),
    )?)
}

const HIDDEN: &str = "******";

fn hidden(key: &Key, value: Option<String>) -> Option<String> {
    value.map(|value| {
        if key.secret && !value.is_empty() {
            HIDDEN.to_owned()
        } else {
            value
        }
    })
}

fn problem(key: &Key, value: &str, expected: String, origin: Origin) -> Problem {
    let value = if key.secret { HIDDEN } else { value };
    Problem {
        origin,
        key: key.name.into(),
        value: value.into(),
        expected,
    }
}

fn problem_of<T: Section>(values: &T, invalid: Invalid, origin: Origin) -> Problem {
    let mut shown = None;
    values.show(&mut |key, value| {
        if key.name == invalid.key {
            shown = hidden(key, value);
        }
    });
    Problem {
        origin,
        key: invalid.key.into(),
        value: shown.unwrap_or_default(),
        expected: invalid.expected,
    }
}

fn differences<T: Section>(old: &T, new: &T) -> Vec<Change> {
    let mut before = HashMap::new();
    old.show(&mut |key, value| {
        before.entry(key.name).or_insert(value);
    });
    let mut changed = Vec::new();
    new.show(&mut |key, value| {
        if let Some(old) = before.remove(key.name)
            && old != value
        {
            changed.push(Change {
                key: key.name,
                old: hidden(key, old),
                new: hidden(key, value),
            });
        }
    });
    changed
}

/// The known key that a misspelt one most likely stands for.
fn most_similar<T: Section>(name: &str) -> Option<&'static str> {
    let mut best: Option<(usize, &'static str)> = None;
    T::keys(&mut |key| {
        let distance = edit_distance(&name.to_lowercase(), &key.name.to_lowercase());
        if distance <= 1 + name.len() / 6 && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, key.name));
        }
    });
    best.map(|(_, name)| name)
}

/// Levenshtein distance of two short names.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(ca != *cb))
                .min(above + 1)
                .min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}
