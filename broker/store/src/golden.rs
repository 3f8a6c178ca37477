//! For tests: the stores recorded from RocketMQ 4.9.8 (tests/golden/store), unpacked, and what Java read in them.

use std::path::{Path, PathBuf};
use std::process::Command;

use minimq_protocol::message::RecordRef;
use serde_json::Value;

use crate::config::StoreConfig;

/// A recorded store, unpacked into a folder of its own.
pub(crate) struct GoldenStore {
    folder: tempfile::TempDir,
    pub(crate) manifest: Value,
}

fn golden_file(name: &str) -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/store"
    ))
    .join(name)
}

/// What Java read in a store.
pub(crate) fn manifest(name: &str) -> Value {
    let path = golden_file(&format!("{name}.manifest.json"));
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).expect("a manifest is JSON")
}

impl GoldenStore {
    pub(crate) fn unpack(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the store");
        let archive = golden_file(&format!("{name}.tar.gz"));
        let status = Command::new("tar")
            .arg("xzf")
            .arg(&archive)
            .arg("-C")
            .arg(folder.path())
            .status()
            .expect("tar runs");
        assert!(status.success(), "{} unpacks", archive.display());
        Self {
            folder,
            manifest: manifest(name),
        }
    }

    /// The store's root.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Settings with the sizes the store was written with.
    pub(crate) fn config(&self) -> StoreConfig {
        let used = &self.manifest["configUsed"];
        let number = |key: &str| used[key].as_u64();
        let mut config = StoreConfig::new(self.root());
        // Whatever this machine's disk says.
        config.disk_space_clean_forcibly_ratio = 100;
        config.disk_space_warning_level_ratio = 100;
        config.mapped_file_size_commit_log = number("mappedFileSizeCommitLog").expect("a size");
        config.mapped_file_size_consume_queue =
            number("mappedFileSizeConsumeQueue").expect("a size");
        config.max_hash_slot_num = number("maxHashSlotNum").expect("a number") as u32;
        config.max_index_num = number("maxIndexNum").expect("a number") as u32;
        if let Some(len) = number("mappedFileSizeConsumeQueueExt") {
            config.enable_consume_queue_ext = true;
            config.mapped_file_size_consume_queue_ext = len;
        }
        config
    }

    /// The bytes of each record of the log, in order.
    pub(crate) fn records(&self) -> Vec<Vec<u8>> {
        const BLANK: [u8; 4] = [0xcb, 0xd4, 0x31, 0x94];
        let mut paths: Vec<_> = std::fs::read_dir(self.root().join("commitlog"))
            .expect("a log")
            .map(|e| e.expect("an entry").path())
            .collect();
        paths.sort();
        let mut records = Vec::new();
        for path in paths {
            let bytes = std::fs::read(path).expect("a log file");
            let mut rest = &bytes[..];
            while let Ok(record) = RecordRef::parse_slice(rest) {
                if rest[4..8] == BLANK {
                    break;
                }
                records.push(record.raw().to_vec());
                rest = &rest[record.size()..];
            }
        }
        assert_eq!(
            records.len() as u64,
            self.manifest["messages"].as_u64().expect("a number")
        );
        records
    }

    /// Store times of all records, by physical offset.
    pub(crate) fn store_times(&self) -> std::collections::HashMap<i64, i64> {
        rows(&self.manifest["commitLog"])
            .filter_map(|r| Some((r["physicalOffset"].as_i64()?, r["storeTimestamp"].as_i64()?)))
            .collect()
    }
}

/// The elements of a JSON list that must be there and hold something.
pub(crate) fn rows(list: &Value) -> impl Iterator<Item = &Value> {
    let rows = list.as_array().expect("a list in the manifest");
    assert!(!rows.is_empty());
    rows.iter()
}
