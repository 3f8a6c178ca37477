//! Which filter serves which pull: what each connection uploaded for a topic and group, and what all of them uploaded.
//! Time is passed in; nothing waits here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minimq_filter_engine::{Filter, FilterHash};

use crate::active_filter::{ActiveFilter, Key};

/// Members of a group upload every 30 s: what none of them uploaded in this time is nobody's choice now.
const RECENT: Duration = Duration::from_secs(60);
/// An instance that nobody uses for so long is given back.
const IDLE: Duration = Duration::from_secs(60);

/// One filter of a topic and group.
#[derive(Debug)]
struct Upload {
    filter: Arc<ActiveFilter>,
    crc: i32,
    uploaded: Instant,
    used: Instant,
}

/// All filters of a topic and group, the one uploaded last at the end.
#[derive(Debug)]
struct Entry {
    uploads: Vec<Upload>,
    /// Repository mode: the name that was registered.
    class_name: Option<Arc<str>>,
    /// Why the last upload brought no filter.
    refusal: Option<String>,
    used: Instant,
}

/// The table.
#[derive(Debug)]
pub(crate) struct FilterRegistry {
    entries: HashMap<Key, Entry>,
    /// What each connection uploaded.
    connections: HashMap<u64, HashMap<Key, Arc<ActiveFilter>>>,
    limit: usize,
}

/// What an upload says about itself.
#[derive(Debug, Clone)]
pub(crate) struct UploadHead {
    pub(crate) key: Key,
    pub(crate) class_name: Arc<str>,
    /// As sent; 0: not given.
    pub(crate) crc: i32,
    pub(crate) hash: FilterHash,
    /// The connection it came on, unless that has ended, or none did.
    pub(crate) connection: Option<u64>,
}

/// Which filter serves a pull.
#[derive(Debug)]
pub(crate) enum Choice {
    /// This one.
    Filter(Arc<ActiveFilter>),
    /// Members of the group use different ones, and this connection has not said which.
    Ambiguous,
    /// There is none; perhaps it is known why.
    None(Option<String>),
    /// Its name is registered, and the repository has not given it yet; perhaps it is known why.
    NoClass(Option<String>),
}

/// As many filters as there may be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} filters are in use, that is the limit (maxFilters)")]
pub(crate) struct RegistryFull(usize);

impl FilterRegistry {
    /// For at most so many filters.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            connections: HashMap::new(),
            limit,
        }
    }

    /// Takes an upload that brings nothing new: the filter is known, or, by the original's rule, checksum 0 does not
    /// replace what serves this connection. `false`: it has to be compiled and installed.
    pub(crate) fn repeat(&mut self, head: &UploadHead, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&head.key) else {
            return false;
        };
        let same = |upload: &Upload| {
            upload.filter.hash() == head.hash && upload.filter.class_name == head.class_name
        };
        let Some(at) = entry.uploads.iter().position(same) else {
            let filled = !entry.uploads.is_empty();
            let is_served =
                |connection| matches!(self.choose(connection, &head.key, now), Choice::Filter(_));
            return head.crc == 0 && head.connection.map_or(filled, is_served);
        };
        let mut upload = entry.uploads.remove(at);
        upload.uploaded = now;
        upload.used = now;
        if head.crc != 0 {
            upload.crc = head.crc;
        }
        bind(&mut self.connections, head, &upload.filter);
        entry.uploads.push(upload);
        entry.refusal = None;
        entry.used = now;
        true
    }

    /// Puts a compiled filter in use. Pulls that run go on with the filter they began with.
    pub(crate) fn install(
        &mut self,
        head: &UploadHead,
        filter: &Arc<Filter>,
        now: Instant,
    ) -> Result<(), RegistryFull> {
        if self.repeat(head, now) {
            return Ok(());
        }
        let in_use: usize = self
            .entries
            .values()
            .map(|entry| entry.uploads.len().max(1))
            .sum();
        if in_use >= self.limit {
            return Err(RegistryFull(in_use));
        }
        let filter = Arc::new(ActiveFilter::new(
            head.key.clone(),
            head.class_name.clone(),
            filter.clone(),
        ));
        bind(&mut self.connections, head, &filter);
        let entry = self
            .entries
            .entry(head.key.clone())
            .or_insert_with(|| Entry::new(now));
        entry.uploads.push(Upload {
            filter,
            crc: head.crc,
            uploaded: now,
            used: now,
        });
        entry.refusal = None;
        entry.used = now;
        Ok(())
    }

    /// Repository mode: puts a compiled filter in use as the only one of its topic and group.
    pub(crate) fn replace(
        &mut self,
        head: &UploadHead,
        filter: &Arc<Filter>,
        now: Instant,
    ) -> Result<(), RegistryFull> {
        let mut old = Vec::new();
        if let Some(entry) = self.entries.get_mut(&head.key)
            && !entry
                .uploads
                .iter()
                .any(|upload| upload.filter.hash() == head.hash)
        {
            old = std::mem::take(&mut entry.uploads);
        }
        let installed = self.install(head, filter, now);
        if installed.is_err()
            && let Some(entry) = self.entries.get_mut(&head.key)
        {
            entry.uploads.append(&mut old);
        }
        installed
    }

    /// Repository mode: whether a topic and group has no filter.
    pub(crate) fn lacks_filter(&self, key: &Key) -> bool {
        self.entries
            .get(key)
            .is_none_or(|entry| entry.uploads.is_empty())
    }

    /// Remembers why an upload brought no filter. What is in use stays so.
    pub(crate) fn refused(&mut self, key: &Key, why: String, now: Instant) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.refusal = Some(why);
        } else if self.entries.len() < self.limit {
            let mut entry = Entry::new(now);
            entry.refusal = Some(why);
            self.entries.insert(key.clone(), entry);
        }
    }

    /// Repository mode: a group wants the class of this name. The first name counts. `true`: it is a new one.
    pub(crate) fn register_class(
        &mut self,
        key: &Key,
        class_name: &str,
        now: Instant,
    ) -> Result<bool, RegistryFull> {
        if !self.entries.contains_key(key) && self.entries.len() >= self.limit {
            return Err(RegistryFull(self.entries.len()));
        }
        let entry = self
            .entries
            .entry(key.clone())
            .or_insert_with(|| Entry::new(now));
        entry.used = now;
        for upload in &mut entry.uploads {
            upload.used = now;
        }
        let new = entry.class_name.is_none();
        entry.class_name.get_or_insert_with(|| class_name.into());
        Ok(new)
    }

    /// Repository mode: the registered names, with those who want them.
    pub(crate) fn classes(&self) -> HashMap<Arc<str>, Vec<Key>> {
        let mut classes: HashMap<Arc<str>, Vec<Key>> = HashMap::new();
        for (key, entry) in &self.entries {
            if let Some(name) = &entry.class_name {
                classes.entry(name.clone()).or_default().push(key.clone());
            }
        }
        classes
    }

    /// Which filter serves a pull that comes on this connection: the one uploaded there; else the newest, if all that
    /// were uploaded lately are one.
    pub(crate) fn choose(&mut self, connection: u64, key: &Key, now: Instant) -> Choice {
        let own = self
            .connections
            .get(&connection)
            .and_then(|own| own.get(key))
            .cloned();
        let Some(entry) = self.entries.get_mut(key) else {
            return Choice::None(None);
        };
        entry.used = now;
        let chosen = match (own, entry.uploads.last()) {
            (Some(own), _) => own,
            (None, Some(newest)) => {
                let newest = newest.filter.clone();
                let recent =
                    |upload: &&Upload| now.saturating_duration_since(upload.uploaded) < RECENT;
                let one = entry
                    .uploads
                    .iter()
                    .filter(recent)
                    .all(|upload| Arc::ptr_eq(&upload.filter, &newest));
                if !one {
                    return Choice::Ambiguous;
                }
                newest
            }
            (None, None) if entry.class_name.is_some() => {
                return Choice::NoClass(entry.refusal.clone());
            }
            (None, None) => return Choice::None(entry.refusal.clone()),
        };
        for upload in &mut entry.uploads {
            if Arc::ptr_eq(&upload.filter, &chosen) {
                upload.used = now;
            }
        }
        Choice::Filter(chosen)
    }

    /// What a connection uploaded is nobody's own choice any more.
    pub(crate) fn connection_closed(&mut self, connection: u64) {
        self.connections.remove(&connection);
    }

    /// Forgets filters unused for `expiry`, and has those that rest give their instances back.
    pub(crate) fn expire(&mut self, expiry: Duration, now: Instant) -> Vec<Arc<ActiveFilter>> {
        let mut gone = Vec::new();
        for entry in self.entries.values_mut() {
            entry.uploads.retain(|upload| {
                let unused = now.saturating_duration_since(upload.used);
                if unused >= IDLE.min(expiry) {
                    upload.filter.rest();
                }
                let keep = unused < expiry;
                if !keep {
                    gone.push(upload.filter.clone());
                }
                keep
            });
        }
        self.entries.retain(|_, entry| {
            !entry.uploads.is_empty() || now.saturating_duration_since(entry.used) < expiry
        });
        for own in self.connections.values_mut() {
            own.retain(|_, filter| !gone.iter().any(|g| Arc::ptr_eq(g, filter)));
        }
        self.connections.retain(|_, own| !own.is_empty());
        gone
    }

    /// All filters, by topic and group, each with the number of connections that uploaded it.
    pub(crate) fn list(&self) -> Vec<(Arc<ActiveFilter>, usize)> {
        let mut users: HashMap<*const ActiveFilter, usize> = HashMap::new();
        for filter in self.connections.values().flat_map(HashMap::values) {
            *users.entry(Arc::as_ptr(filter)).or_default() += 1;
        }
        let uploads = self.entries.values().flat_map(|entry| &entry.uploads);
        let mut list: Vec<_> = uploads
            .map(|upload| {
                let users = users
                    .get(&Arc::as_ptr(&upload.filter))
                    .copied()
                    .unwrap_or(0);
                (upload.filter.clone(), users)
            })
            .collect();
        list.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        list
    }

    /// Whether a topic and group had more than one filter lately: their hashes, for a warning.
    pub(crate) fn differing(&self, key: &Key, now: Instant) -> Vec<FilterHash> {
        let uploads = self
            .entries
            .get(key)
            .map(|entry| entry.uploads.as_slice())
            .unwrap_or_default();
        let recent = uploads
            .iter()
            .filter(|upload| now.saturating_duration_since(upload.uploaded) < RECENT);
        recent.map(|upload| upload.filter.hash()).collect()
    }
}

impl Entry {
    fn new(now: Instant) -> Self {
        Self {
            uploads: Vec::new(),
            class_name: None,
            refusal: None,
            used: now,
        }
    }
}

fn bind(
    connections: &mut HashMap<u64, HashMap<Key, Arc<ActiveFilter>>>,
    head: &UploadHead,
    filter: &Arc<ActiveFilter>,
) {
    if let Some(connection) = head.connection {
        connections
            .entry(connection)
            .or_default()
            .insert(head.key.clone(), filter.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minimq_filter_engine::{Engine, EngineConfig};

    struct Setting {
        engine: Engine,
        registry: FilterRegistry,
        now: Instant,
        held: Vec<Arc<Filter>>,
    }

    fn module(n: u32) -> String {
        format!(
            "(module (memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\"))
               (func (export \"filter\") (result i32) i32.const {n}))"
        )
    }

    impl Setting {
        fn new(limit: usize) -> Self {
            Self {
                engine: Engine::new(EngineConfig::default()).unwrap(),
                registry: FilterRegistry::new(limit),
                now: Instant::now(),
                held: Vec::new(),
            }
        }

        fn head(connection: u64, n: u32, crc: i32) -> UploadHead {
            UploadHead {
                key: key(),
                class_name: "C".into(),
                crc,
                hash: FilterHash::of(module(n).as_bytes()),
                connection: Some(connection),
            }
        }

        /// Whether it was compiled anew.
        fn upload(&mut self, connection: u64, n: u32, crc: i32) -> bool {
            let head = Self::head(connection, n, crc);
            if self.registry.repeat(&head, self.now) {
                return false;
            }
            let filter = self.engine.compile(module(n).as_bytes()).unwrap();
            self.registry.install(&head, &filter, self.now).unwrap();
            self.held.push(filter);
            true
        }

        fn chosen(&mut self, connection: u64) -> Result<u32, Choice> {
            match self.registry.choose(connection, &key(), self.now) {
                Choice::Filter(filter) => Ok((0..9)
                    .find(|n| FilterHash::of(module(*n).as_bytes()) == filter.hash())
                    .unwrap()),
                other => Err(other),
            }
        }

        fn wait(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }
    }

    fn key() -> Key {
        Key {
            topic: "T".into(),
            group: "G".into(),
        }
    }

    const EXPIRY: Duration = Duration::from_secs(600);

    #[test]
    fn each_connection_has_the_filter_it_uploaded() {
        let mut s = Setting::new(10);
        assert!(matches!(s.chosen(1), Err(Choice::None(None))));
        assert!(s.upload(1, 1, 11));
        assert_eq!(s.chosen(2).unwrap(), 1, "one filter only: it is meant");
        assert!(s.upload(2, 2, 12));
        assert_eq!((s.chosen(1).unwrap(), s.chosen(2).unwrap()), (1, 2));
        assert!(matches!(s.chosen(3), Err(Choice::Ambiguous)));
        assert_eq!(s.registry.differing(&key(), s.now).len(), 2);
        // Flips compile nothing.
        for _ in 0..3 {
            assert!(!s.upload(1, 1, 11));
            assert!(!s.upload(2, 2, 12));
        }
        // The second member is gone for a minute: the other filter is meant again.
        s.registry.connection_closed(2);
        s.wait(59);
        assert!(!s.upload(1, 1, 11));
        assert!(matches!(s.chosen(3), Err(Choice::Ambiguous)));
        s.wait(1);
        assert_eq!(s.chosen(3).unwrap(), 1);
    }

    #[test]
    fn checksum_zero_never_replaces() {
        let mut s = Setting::new(10);
        assert!(s.upload(1, 1, 0), "but is the first if there is none");
        assert!(!s.upload(1, 2, 0));
        assert_eq!(s.chosen(1).unwrap(), 1);
        assert!(s.upload(1, 2, 5));
        assert_eq!(s.chosen(1).unwrap(), 2);
        // A connection for which it is not clear what is there replaces nothing.
        assert!(matches!(s.chosen(3), Err(Choice::Ambiguous)));
        assert!(s.upload(3, 3, 0));
        assert_eq!((s.chosen(1).unwrap(), s.chosen(3).unwrap()), (2, 3));
    }

    #[test]
    fn filters_expire_after_their_last_use_or_upload() {
        let mut s = Setting::new(10);
        s.upload(1, 1, 1);
        s.wait(599);
        assert!(s.registry.expire(EXPIRY, s.now).is_empty());
        s.chosen(1).unwrap();
        s.wait(599);
        assert!(s.registry.expire(EXPIRY, s.now).is_empty());
        s.wait(1);
        assert_eq!(s.registry.expire(EXPIRY, s.now).len(), 1);
        assert!(matches!(s.chosen(1), Err(Choice::None(None))));
        assert!(s.registry.connections.is_empty() && s.registry.entries.is_empty());
    }

    #[test]
    fn the_number_of_filters_is_bounded() {
        let mut s = Setting::new(2);
        s.upload(1, 1, 1);
        s.upload(1, 2, 2);
        let filter = s.engine.compile(module(3).as_bytes()).unwrap();
        let refused = s.registry.install(&Setting::head(1, 3, 3), &filter, s.now);
        assert_eq!(refused, Err(RegistryFull(2)));
        assert_eq!(s.chosen(1).unwrap(), 2);
    }

    #[test]
    fn a_failed_upload_is_remembered_and_replaces_nothing() {
        let mut s = Setting::new(10);
        s.registry.refused(&key(), "bad".into(), s.now);
        assert!(matches!(s.chosen(1), Err(Choice::None(Some(why))) if why == "bad"));
        s.upload(1, 1, 1);
        s.registry.refused(&key(), "bad".into(), s.now);
        assert_eq!(s.chosen(1).unwrap(), 1);
    }

    #[test]
    fn in_repository_mode_the_first_name_counts() {
        let mut s = Setting::new(10);
        assert_eq!(s.registry.register_class(&key(), "a.B", s.now), Ok(true));
        assert_eq!(s.registry.register_class(&key(), "c.D", s.now), Ok(false));
        assert!(matches!(s.chosen(1), Err(Choice::NoClass(None))));
        let classes = s.registry.classes();
        assert_eq!(
            classes.keys().map(|name| &**name).collect::<Vec<_>>(),
            ["a.B"]
        );
        let filter = s.engine.compile(module(4).as_bytes()).unwrap();
        let head = UploadHead {
            connection: None,
            ..Setting::head(1, 4, 0)
        };
        s.registry.install(&head, &filter, s.now).unwrap();
        assert_eq!(s.chosen(9).unwrap(), 4);
    }
}
