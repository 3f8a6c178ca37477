//! The KV configuration (name server spec 9): namespace → key → value, kept in one file that is written before a
//! change is seen. Reads take no lock.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use minimq_common::atomic_file::{self, AtomicFileError, Origin};
use minimq_protocol::body::{BodyError, Flavour, KvConfigTable, KvTable};
use parking_lot::Mutex;

/// Namespace of order configurations, `broker:queues;…` by topic.
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

type Namespace = Arc<BTreeMap<String, String>>;

/// The table and its file.
#[derive(Debug)]
pub struct KvConfig {
    path: PathBuf,
    max_bytes: usize,
    table: ArcSwap<Table>,
    /// One change at a time.
    writing: Mutex<()>,
}

#[derive(Debug, Clone, Default)]
struct Table {
    namespaces: BTreeMap<String, Namespace>,
    /// What brokers are told at registration: [`ORDER_TOPIC_CONFIG`] as a body.
    order_topics: Option<Bytes>,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// The file could not be read or written.
    #[error(transparent)]
    File(#[from] AtomicFileError),
    /// There is too much already.
    #[error("the KV configuration would have {len} bytes, {limit} are allowed (maxKvConfigSize)")]
    TooLarge {
        /// Size of names, keys and values.
        len: usize,
        /// The limit.
        limit: usize,
    },
}

/// A file that is not a KV configuration.
#[derive(Debug, thiserror::Error)]
enum NotATable {
    #[error(transparent)]
    Json(#[from] BodyError),
    #[error("it has no configTable")]
    NoTable,
}

impl KvConfig {
    /// Reads the file. A missing one is an empty table; one that is broken is replaced by its backup.
    ///
    /// # Errors
    /// There is content and none of it is a KV configuration, or it cannot be read.
    pub fn load(path: PathBuf, max_bytes: usize) -> Result<Self, AtomicFileError> {
        let read = atomic_file::read_with_fallback(&path, |bytes| {
            KvConfigTable::from_json(bytes)?
                .config_table
                .ok_or(NotATable::NoTable)
        })?;
        let mut table = Table::default();
        if let Some(read) = read {
            if let Origin::Backup(reason) = read.origin {
                tracing::warn!(
                    "{} is broken ({reason}), its backup is used",
                    path.display()
                );
            }
            table.namespaces = read
                .value
                .into_iter()
                .map(|(name, items)| (name, Arc::new(items)))
                .collect();
            table.make_order_topics();
        }
        Ok(Self {
            path,
            max_bytes,
            table: ArcSwap::from_pointee(table),
            writing: Mutex::new(()),
        })
    }

    /// One value.
    pub fn get(&self, namespace: &str, key: &str) -> Option<String> {
        let table = self.table.load();
        table.namespaces.get(namespace)?.get(key).cloned()
    }

    /// A whole namespace, as answer 219. `None` if there is none of that name.
    pub fn list(&self, namespace: &str) -> Option<KvTable> {
        let table = self.table.load();
        let items = table.namespaces.get(namespace)?;
        Some(KvTable {
            table: (**items).clone(),
        })
    }

    /// The keys with this value, joined by `;` (217). `None` if there is no such namespace.
    pub fn keys_with_value(&self, namespace: &str, value: &str) -> Option<String> {
        let table = self.table.load();
        let items = table.namespaces.get(namespace)?.iter();
        let keys: Vec<&str> = items
            .filter(|(_, held)| *held == value)
            .map(|(key, _)| key.as_str())
            .collect();
        Some(keys.join(";"))
    }

    /// The order configurations as the body of a registration's answer.
    pub fn order_topics(&self) -> Option<Bytes> {
        self.table.load().order_topics.clone()
    }

    /// Sets a value. Blocks until it is on the disk.
    ///
    /// # Errors
    /// [`KvError`]; the table is as before then.
    pub fn put(&self, namespace: &str, key: &str, value: &str) -> Result<(), KvError> {
        self.change(|namespaces| {
            let items = namespaces.entry(namespace.to_owned()).or_default();
            Arc::make_mut(items).insert(key.to_owned(), value.to_owned());
        })
    }

    /// Deletes a key; its namespace stays, even empty. Blocks until that is on the disk.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&self, namespace: &str, key: &str) -> Result<(), KvError> {
        self.change(|namespaces| {
            if let Some(items) = namespaces.get_mut(namespace) {
                Arc::make_mut(items).remove(key);
            }
        })
    }

    /// Deletes all keys of a namespace that have this value (218).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete_value(&self, namespace: &str, value: &str) -> Result<(), KvError> {
        self.change(|namespaces| {
            if let Some(items) = namespaces.get_mut(namespace) {
                Arc::make_mut(items).retain(|_, held| held != value);
            }
        })
    }

    /// Writes the whole table to the log.
    pub fn log(&self) {
        let table = self.table.load();
        tracing::info!("--------------------------------------------------------");
        tracing::info!("configTable SIZE: {}", table.namespaces.len());
        for (namespace, items) in &table.namespaces {
            for (key, value) in &**items {
                tracing::info!("configTable NS: {namespace} Key: {key} Value: {value}");
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Namespace>)) -> Result<(), KvError> {
        let _one_at_a_time = self.writing.lock();
        let mut table = (**self.table.load()).clone();
        let before = table.len();
        change(&mut table.namespaces);
        let len = table.len();
        if len > self.max_bytes && len > before {
            return Err(KvError::TooLarge {
                len,
                limit: self.max_bytes,
            });
        }
        atomic_file::write_with_backup(&self.path, &table.to_json())?;
        table.make_order_topics();
        self.table.store(Arc::new(table));
        Ok(())
    }
}

impl Table {
    /// Bytes of all names, keys and values.
    fn len(&self) -> usize {
        let item = |(key, value): (&String, &String)| key.len() + value.len();
        let all = self.namespaces.iter();
        all.map(|(name, items)| name.len() + items.iter().map(item).sum::<usize>())
            .sum()
    }

    fn to_json(&self) -> Vec<u8> {
        let namespaces = self.namespaces.iter();
        let config_table = namespaces
            .map(|(name, items)| (name.clone(), (**items).clone()))
            .collect();
        KvConfigTable {
            config_table: Some(config_table),
        }
        .to_json(Flavour::Fastjson)
    }

    fn make_order_topics(&mut self) {
        self.order_topics = self.namespaces.get(ORDER_TOPIC_CONFIG).map(|items| {
            let table = (**items).clone();
            KvTable { table }.to_wire().into()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &tempfile::TempDir) -> KvConfig {
        KvConfig::load(folder.path().join("ns/kvConfig.json"), 1000).unwrap()
    }

    #[test]
    fn values_are_found_again_after_a_restart_and_an_emptied_namespace_stays() {
        let folder = tempfile::tempdir().unwrap();
        let kv = open(&folder);
        kv.put("NS", "ключ", "väl;=\u{1F600}").unwrap();
        kv.put("NS", "b", "2").unwrap();
        kv.put("EMPTY", "x", "1").unwrap();
        kv.delete("EMPTY", "x").unwrap();
        kv.delete("NEVER", "x").unwrap();
        let kv = open(&folder);
        assert_eq!(kv.get("NS", "ключ").as_deref(), Some("väl;=\u{1F600}"));
        assert_eq!(kv.list("NS").unwrap().table.len(), 2);
        assert!(kv.list("EMPTY").unwrap().table.is_empty());
        assert!(kv.list("NEVER").is_none());
        assert_eq!(kv.get("NS", "none"), None);
    }

    #[test]
    fn keys_are_found_and_deleted_by_their_value() {
        let folder = tempfile::tempdir().unwrap();
        let kv = open(&folder);
        for (key, value) in [("10.0.0.1", "p1"), ("10.0.0.2", "p2"), ("10.0.0.3", "p1")] {
            kv.put("PROJECT_CONFIG", key, value).unwrap();
        }
        let keys = |value| kv.keys_with_value("PROJECT_CONFIG", value);
        assert_eq!(keys("p1").as_deref(), Some("10.0.0.1;10.0.0.3"));
        assert_eq!(keys("p3").as_deref(), Some(""));
        assert_eq!(kv.keys_with_value("OTHER", "p1"), None);
        kv.delete_value("PROJECT_CONFIG", "p1").unwrap();
        assert_eq!(kv.list("PROJECT_CONFIG").unwrap().table.len(), 1);
    }

    #[test]
    fn the_order_topics_are_a_body_as_long_as_their_namespace_exists() {
        let folder = tempfile::tempdir().unwrap();
        let kv = open(&folder);
        assert_eq!(kv.order_topics(), None);
        kv.put(ORDER_TOPIC_CONFIG, "T", "a:4;b:4").unwrap();
        let body = kv.order_topics().unwrap();
        assert_eq!(&body[..], br#"{"table":{"T":"a:4;b:4"}}"#);
        assert_eq!(open(&folder).order_topics(), Some(body));
        kv.delete(ORDER_TOPIC_CONFIG, "T").unwrap();
        assert_eq!(&kv.order_topics().unwrap()[..], br#"{"table":{}}"#);
    }

    #[test]
    fn a_change_that_cannot_be_stored_or_is_too_much_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let kv = open(&folder);
        kv.put("NS", "k", "1").unwrap();
        let error = kv.put("NS", "big", &"x".repeat(1000)).unwrap_err();
        assert!(
            matches!(error, KvError::TooLarge { limit: 1000, .. }),
            "{error}"
        );
        std::fs::remove_dir_all(folder.path().join("ns")).unwrap();
        std::fs::write(folder.path().join("ns"), "a file where the folder was").unwrap();
        let error = kv.put("NS", "k", "2").unwrap_err();
        assert!(matches!(error, KvError::File(_)), "{error}");
        assert_eq!(kv.get("NS", "k").as_deref(), Some("1"));
        assert_eq!(kv.get("NS", "big"), None);
    }

    #[test]
    fn a_file_that_is_no_table_is_refused_unless_its_backup_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvConfig.json");
        for broken in ["{", "{}", "[1]", "\u{1}"] {
            std::fs::write(&path, broken).unwrap();
            let error = KvConfig::load(path.clone(), 1000).unwrap_err();
            assert!(error.to_string().contains("kvConfig.json"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
        }
        std::fs::write(
            folder.path().join("kvConfig.json.bak"),
            r#"{"configTable":{"N":{"k":"v"}}}"#,
        )
        .unwrap();
        let kv = KvConfig::load(path, 1000).unwrap();
        assert_eq!(kv.get("N", "k").as_deref(), Some("v"));
    }
}
