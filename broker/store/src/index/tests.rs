//! The index as a whole: 4.9.8's files answer as it answered, and equal records give equal bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minimq_protocol::message::RecordRef;
use serde_json::Value;

use super::*;
use crate::config::StoreConfig;
use crate::delay_level::DelayLevels;
use crate::dispatch_record::DispatchRecord;
use crate::golden::{GoldenStore, rows};
use crate::io::RealDisk;

fn levels() -> DelayLevels {
    DelayLevels::parse("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h").unwrap()
}

fn empty(config: &StoreConfig, root: &Path) -> Index {
    let mut config = config.clone();
    config.store_path_root_dir = root.to_path_buf();
    Index::new(&config, Arc::new(RealDisk))
}

fn put_all<'a>(index: &Index, records: impl IntoIterator<Item = &'a Vec<u8>>) {
    let levels = levels();
    for bytes in records {
        let record = RecordRef::parse_slice(bytes).unwrap();
        index.put(&DispatchRecord::of(&record, &levels)).unwrap();
    }
}

fn check_queries(index: &Index, manifest: &Value) {
    for row in rows(&manifest["queryByKey"]) {
        let number = |key: &str| row[key].as_i64().unwrap();
        let (topic, key) = (row["topic"].as_str().unwrap(), row["key"].as_str().unwrap());
        let max = number("maxNum") as usize;
        let mut found = index
            .query(topic, key, max, number("begin"), number("end"))
            .unwrap();
        found.physical_offsets.sort_unstable();
        let expected: Vec<i64> = rows_or_none(&row["physicalOffsets"]);
        assert_eq!(found.physical_offsets, expected, "{topic}#{key}");
        if !expected.is_empty() {
            assert_eq!(
                found.last_update_timestamp,
                number("indexLastUpdateTimestamp")
            );
            assert_eq!(
                found.last_update_physical,
                number("indexLastUpdatePhyoffset")
            );
        }
    }
}

/// Records found, each once: what 4.9.8 adds again after a crash it finds twice.
fn rows_or_none(list: &Value) -> Vec<i64> {
    let mut found: Vec<i64> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_i64().unwrap())
        .collect();
    found.dedup();
    found
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(root.join("index"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    files
}

fn assert_same_files(golden: &Path, ours: &Path) {
    let (theirs, ours) = (files(golden), files(ours));
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert!(
            std::fs::read(theirs).unwrap() == std::fs::read(ours).unwrap(),
            "{} differs",
            theirs.display()
        );
    }
}

#[test]
fn recorded_files_answer_as_java() {
    for name in ["clean", "cqext"] {
        let golden = GoldenStore::unpack(name);
        let index = empty(&golden.config(), &golden.root());
        index.load(true, 0).unwrap();
        check_queries(&index, &golden.manifest);
    }
}

#[test]
fn the_same_records_give_the_recorded_bytes_and_answers() {
    for name in ["clean", "cqext"] {
        let golden = GoldenStore::unpack(name);
        let folder = tempfile::tempdir().unwrap();
        let index = empty(&golden.config(), folder.path());
        let records = golden.records();
        put_all(&index, &records);
        check_queries(&index, &golden.manifest);
        index.flush().unwrap();
        check_queries(&index, &golden.manifest);
        assert_same_files(&golden.root(), folder.path());
        // Putting them again changes nothing.
        put_all(&index, &records);
        index.flush().unwrap();
        assert_same_files(&golden.root(), folder.path());
    }
}

#[test]
fn an_index_goes_on_after_any_record_without_doubles_or_gaps() {
    let golden = GoldenStore::unpack("clean");
    let records = golden.records();
    let folder = tempfile::tempdir().unwrap();
    // Each time a stop, and a start that gives the last records again.
    for (i, end) in (0..records.len())
        .step_by(9)
        .chain([records.len()])
        .enumerate()
    {
        let index = empty(&golden.config(), folder.path());
        let clean = i % 2 == 0;
        index.load(clean, i64::MAX).unwrap();
        put_all(&index, &records[end.saturating_sub(15)..end]);
        index.flush().unwrap();
    }
    assert_same_files(&golden.root(), folder.path());
}

#[test]
fn what_was_not_flushed_is_dropped_after_a_crash_and_comes_back_from_the_log() {
    let golden = GoldenStore::unpack("killed");
    let checkpoint = std::fs::read(golden.root().join("checkpoint")).unwrap();
    let flushed = i64::from_be_bytes(checkpoint[16..24].try_into().unwrap());
    let index = empty(&golden.config(), &golden.root());
    index.load(false, flushed).unwrap();
    let left = files(&golden.root()).len();
    assert!(left < 5, "the newest file was not flushed by 4.9.8");
    assert!(index.needed_from() > 0);
    put_all(&index, &golden.records());
    check_queries(&index, &golden.manifest);
}

#[test]
fn a_torn_file_is_not_believed() {
    let golden = GoldenStore::unpack("clean");
    let last = files(&golden.root()).pop().unwrap();
    let mut bytes = std::fs::read(&last).unwrap();
    bytes[440 + 20 * 50..440 + 20 * 60].fill(0);
    std::fs::write(&last, bytes).unwrap();
    let index = empty(&golden.config(), &golden.root());
    index.load(false, i64::MAX).unwrap();
    assert!(!last.exists());
    put_all(&index, &golden.records());
    check_queries(&index, &golden.manifest);
}

#[test]
fn cleaning_and_truncation_follow_the_log() {
    let golden = GoldenStore::unpack("clean");
    let index = empty(&golden.config(), &golden.root());
    index.load(true, 0).unwrap();
    assert_eq!(
        index.clean(0x13bef).unwrap(),
        0,
        "the first file ends there"
    );
    assert_eq!(index.clean(0x13bf0).unwrap(), 1);
    assert_eq!(index.clean(i64::MAX).unwrap(), 1, "never the last");
    index.truncate(0x31bce).unwrap();
    assert_eq!(files(&golden.root()).len(), 0);
    assert_eq!(index.needed_from(), 0);
}

#[test]
fn keys_are_pieces_between_single_blanks() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = StoreConfig::new(folder.path());
    (config.max_hash_slot_num, config.max_index_num) = (50, 100);
    let index = empty(&config, folder.path());
    let mut record = DispatchRecord {
        topic: "t",
        queue_id: 0,
        physical_offset: crate::PhysicalOffset(70),
        size: 100,
        tags_code: 0,
        store_timestamp: 5_000_000,
        queue_offset: crate::QueueOffset(0),
        keys: " lead o1 o2  o3 中文",
        uniq_key: Some("u"),
        sys_flag: 0,
        prepared_transaction_offset: 0,
        properties: &[],
        damaged: false,
    };
    index.put(&record).unwrap();
    let query = |key: &str| {
        index
            .query("t", key, 32, 0, i64::MAX)
            .unwrap()
            .physical_offsets
    };
    for key in ["u", "lead", "o1", "o2", "o3", "中文"] {
        assert_eq!(query(key), [70], "{key}");
    }
    for key in ["", "o1 o2", "x"] {
        assert_eq!(query(key), [0; 0], "{key}");
    }
    record.physical_offset = crate::PhysicalOffset(170);
    record.sys_flag = 0xC;
    index.put(&record).unwrap();
    assert_eq!(query("u"), [70], "a rolled-back record is not indexed");
    // Hashes collide and keys are not compared, as in 4.9.8: the client compares.
    (record.sys_flag, record.keys) = (0x4, "AaAa");
    index.put(&record).unwrap();
    assert_eq!(query("BBBB"), [170]);
}
