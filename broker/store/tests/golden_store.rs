//! Stores recorded from RocketMQ 4.9.8, opened whole: every message, offset, query and time look-up answers as Java's.

mod support;

use std::collections::HashMap;
use std::path::Path;

use minimq_store::{
    Blocking, GetRequest, GetStatus, NoFilter, PhysicalOffset, QueueOffset, Store, StoreConfig,
    StoreError,
};
use serde_json::Value;
use support::{golden, golden_config, manifest, message};

fn number(value: &Value) -> i64 {
    value
        .as_i64()
        .unwrap_or_else(|| panic!("a number, not {value}"))
}

fn rows(list: &Value) -> impl Iterator<Item = &Value> {
    let rows = list.as_array().expect("a list in the manifest");
    assert!(!rows.is_empty());
    rows.iter()
}

fn config(root: &Path, manifest: &Value) -> StoreConfig {
    let mut config = golden_config(root);
    if let Some(len) = manifest["configUsed"]["mappedFileSizeConsumeQueueExt"].as_u64() {
        config.enable_consume_queue_ext = true;
        config.mapped_file_size_consume_queue_ext = len;
    }
    config
}

fn open(config: &StoreConfig) -> Store {
    Store::open(config, |_| {}).unwrap()
}

/// All messages of a queue, got in pieces: queue offset, place, size.
fn consume(store: &Store, topic: &str, queue_id: i32) -> Vec<(i64, i64, i64)> {
    let mut messages = Vec::new();
    let mut offset = store.reader().min_offset(topic, queue_id);
    let mut records = Vec::new();
    while offset < store.reader().max_offset(topic, queue_id) {
        let request = GetRequest {
            topic,
            queue_id,
            offset,
            max_count: 7,
            max_bytes: usize::MAX,
        };
        records.clear();
        let result = store
            .reader()
            .get(&request, &mut NoFilter, Blocking::Allowed, &mut records)
            .unwrap();
        assert_eq!(
            result.status,
            GetStatus::Found,
            "{topic}/{queue_id} at {offset}"
        );
        assert_eq!(result.count, records.len());
        for (record, n) in records.iter().zip(offset.get()..) {
            let record = minimq_protocol::message::MessageView::parse(record.clone()).unwrap();
            assert_eq!(
                (record.topic(), record.queue_id(), record.queue_offset()),
                (topic, queue_id, n)
            );
            assert!(record.body_crc_holds());
            messages.push((n, record.physical_offset(), record.size() as i64));
        }
        offset = result.next_begin_offset;
    }
    messages
}

/// Queues, and messages got through them, are those of the manifest; delayed messages have their delivery time.
fn check_queues(store: &Store, manifest: &Value) {
    let mut messages = 0;
    for row in rows(&manifest["queues"]) {
        let (topic, queue_id) = (
            row["topic"].as_str().unwrap(),
            number(&row["queueId"]) as i32,
        );
        assert_eq!(
            store.reader().min_offset(topic, queue_id).get(),
            number(&row["minOffset"]),
            "{topic}/{queue_id}"
        );
        assert_eq!(
            store.reader().max_offset(topic, queue_id).get(),
            number(&row["maxOffset"]),
            "{topic}/{queue_id}"
        );
        let expected = row["entries_queueOffset_physicalOffset_size_tagsCode"]
            .as_array()
            .unwrap();
        let wanted: Vec<_> = expected
            .iter()
            .map(|e| (number(&e[0]), number(&e[1]), number(&e[2])))
            .collect();
        assert_eq!(
            consume(store, topic, queue_id),
            wanted,
            "{topic}/{queue_id}"
        );
        let queue = store.queues().get_or_create(topic, queue_id);
        for entry in expected {
            let ours = queue.entry(number(&entry[0])).unwrap().unwrap();
            let unit = queue.ext_unit(ours.tags_code, Blocking::Allowed).unwrap();
            let wanted = if entry[4].is_null() {
                &entry[3]
            } else {
                &entry[4]["tagsCode"]
            };
            assert_eq!(
                unit.map_or(ours.tags_code, |u| u.tags_code),
                number(wanted),
                "{topic}/{queue_id} {entry}"
            );
        }
        messages += wanted.len();
        let earliest = store.reader().earliest_time(topic, queue_id).unwrap();
        assert_eq!(earliest.unwrap_or(-1), number(&row["earliestMessageTime"]));
    }
    assert!(messages > 200);
    assert_eq!(
        store.log().max_offset().get(),
        number(&manifest["maxPhyOffset"])
    );
    assert_eq!(
        store.log().min_offset().get(),
        number(&manifest["minPhyOffset"])
    );
}

fn check_queries(store: &Store, manifest: &Value) {
    // It may have to be made again; a query by itself waits a little only.
    let indexed = store.indexer().unwrap();
    let minute = std::time::Duration::from_secs(60);
    assert!(indexed.wait_for(store.dispatcher().position(), minute));
    let mut found = 0;
    for row in rows(&manifest["queryByKey"]) {
        let (topic, key) = (row["topic"].as_str().unwrap(), row["key"].as_str().unwrap());
        let (max, begin, end) = (
            number(&row["maxNum"]),
            number(&row["begin"]),
            number(&row["end"]),
        );
        let result = store.query(topic, key, max as usize, begin, end).unwrap();
        let mut expected: Vec<i64> = row["physicalOffsets"]
            .as_array()
            .unwrap()
            .iter()
            .map(number)
            .collect();
        // What 4.9.8 put into the index again after a crash it finds twice.
        expected.dedup();
        assert_eq!(result.physical_offsets, expected, "{topic}#{key}");
        assert_eq!(result.records.len(), expected.len());
        assert_eq!(
            result.index_last_update_timestamp,
            number(&row["indexLastUpdateTimestamp"]),
            "{topic}#{key}"
        );
        assert_eq!(
            result.index_last_update_physical_offset,
            number(&row["indexLastUpdatePhyoffset"])
        );
        found += expected.len();
    }
    assert!(found > 100);
}

fn check_times(store: &Store, manifest: &Value) {
    for row in rows(&manifest["offsetByTime"]) {
        let (topic, queue_id) = (
            row["topic"].as_str().unwrap(),
            number(&row["queueId"]) as i32,
        );
        for pair in rows(&row["timestamp_offset"]) {
            let offset = store
                .reader()
                .offset_by_time(topic, queue_id, number(&pair[0]))
                .unwrap();
            assert_eq!(
                offset.get(),
                number(&pair[1]),
                "{topic}/{queue_id} at {}",
                pair[0]
            );
        }
    }
}

fn check_records(store: &Store, manifest: &Value) {
    let mut earliest = None;
    for row in rows(&manifest["commitLog"]).filter(|r| r["filler"].is_null()) {
        let at = number(&row["physicalOffset"]);
        let record = store
            .reader()
            .record(PhysicalOffset(at), Blocking::Allowed)
            .unwrap()
            .expect("a record");
        let record = minimq_protocol::message::MessageView::parse(record).unwrap();
        assert_eq!(record.size() as i64, number(&row["size"]));
        assert_eq!(record.store_timestamp(), number(&row["storeTimestamp"]));
        assert_eq!(
            record.message_id().to_string(),
            row["offsetMsgId"].as_str().unwrap()
        );
        earliest.get_or_insert(record.store_timestamp());
        assert_eq!(
            store
                .reader()
                .record(PhysicalOffset(at + 1), Blocking::Allowed)
                .unwrap(),
            None
        );
    }
    assert_eq!(store.reader().earliest_time_of_all().unwrap(), earliest);
}

fn check_all(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let manifest = manifest(name);
    let config = config(&golden(name, folder.path()), &manifest);
    for _ in 0..2 {
        let store = open(&config);
        check_queues(&store, &manifest);
        check_queries(&store, &manifest);
        check_times(&store, &manifest);
        check_records(&store, &manifest);
        store.close().unwrap();
    }
    // It goes on where Java stopped.
    let store = open(&config);
    let mut outcomes = Vec::new();
    store.append_blocking(
        &[message(
            "StoreA",
            1,
            b"one more",
            "KEYS\u{1}onemore\u{2}UNIQ_KEY\u{1}om1",
        )],
        &mut outcomes,
    );
    let appended = outcomes.remove(0).unwrap();
    let a1 = rows(&manifest["queues"])
        .find(|r| r["topic"] == "StoreA" && r["queueId"] == 1)
        .unwrap();
    assert_eq!(appended.queue_offset.get(), number(&a1["maxOffset"]));
    assert!(
        store
            .dispatcher()
            .wait_for(appended.end(), std::time::Duration::from_secs(60))
    );
    let found = store.query("StoreA", "onemore", 32, 0, i64::MAX).unwrap();
    assert_eq!(found.physical_offsets, [appended.physical_offset.get()]);
}

#[test]
fn a_clean_store_answers_as_java() {
    check_all("clean");
}

#[test]
fn a_store_with_queue_extensions_answers_as_java() {
    check_all("cqext");
}

#[test]
fn a_killed_store_answers_as_java() {
    check_all("killed");
}

/// Queues and index removed, as the archive of `killed-nocq` would be.
fn without_queues(folder: &Path) -> StoreConfig {
    let root = golden("killed", folder);
    std::fs::remove_dir_all(root.join("consumequeue")).unwrap();
    std::fs::remove_dir_all(root.join("index")).unwrap();
    golden_config(&root)
}

#[test]
fn lost_queues_and_index_are_built_again_with_the_delivery_times_java_loses() {
    for abort in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let config = without_queues(folder.path());
        if !abort {
            std::fs::remove_file(config.store_path_root_dir.join("abort")).unwrap();
        }
        let store = open(&config);
        let killed = manifest("killed");
        check_queues(&store, &killed);
        check_queries(&store, &killed);
        check_times(&store, &killed);
        let differing = &manifest("killed-nocq")["entriesThatDifferFromKilled"];
        for row in rows(differing) {
            let queue = store
                .queues()
                .get(
                    row["topic"].as_str().unwrap(),
                    number(&row["queueId"]) as i32,
                )
                .unwrap();
            let entry = queue.entry(number(&row["killed"][0])).unwrap().unwrap();
            assert_eq!(entry.tags_code, number(&row["killed"][3]));
        }
    }
}

#[test]
fn a_checkpoint_that_is_missing_or_nonsense_loses_nothing() {
    let contents: [Option<Vec<u8>>; 3] = [
        None,
        Some(vec![0; 4096]),
        Some([[0x10_u8, 0, 0, 0, 0, 0, 0, 0]; 3].concat()),
    ];
    for content in contents {
        for abort in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let config = golden_config(&golden("killed", folder.path()));
            let root = &config.store_path_root_dir;
            match &content {
                None => std::fs::remove_file(root.join("checkpoint")).unwrap(),
                Some(bytes) => std::fs::write(root.join("checkpoint"), bytes).unwrap(),
            }
            if !abort {
                std::fs::remove_file(root.join("abort")).unwrap();
            }
            check_queues(&open(&config), &manifest("killed"));
        }
    }
}

#[test]
fn one_lost_queue_is_built_again_and_its_numbers_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = manifest("clean");
    let config = golden_config(&golden("clean", folder.path()));
    let folder_of = |queue: &str| config.store_path_root_dir.join("consumequeue").join(queue);
    open(&config).close().unwrap();
    for queue in ["StoreA/2", "%RETRY%CGdlq/0", "SCHEDULE_TOPIC_XXXX/14"] {
        std::fs::remove_dir_all(folder_of(queue)).unwrap();
    }
    let store = open(&config);
    check_queues(&store, &manifest);
    store.close().unwrap();
}

#[test]
fn queue_files_of_another_size_are_refused_by_name_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = golden_config(&golden("clean", folder.path()));
    config.mapped_file_size_consume_queue = 6_000_000;
    let error = Store::open(&config, |_| {}).unwrap_err();
    assert!(
        matches!(
            &error,
            StoreError::FileSize {
                key: "mappedFileSizeConsumeQueue",
                ..
            }
        ),
        "{error}"
    );
    config.mapped_file_size_consume_queue = 20_000;
    check_queues(&open(&config), &manifest("clean"));
}

#[test]
fn queue_folders_hold_what_they_held_when_a_recorded_store_was_only_opened() {
    let folder = tempfile::tempdir().unwrap();
    let config = golden_config(&golden("clean", folder.path()));
    let contents = || -> HashMap<_, _> {
        let mut files = HashMap::new();
        for topic in std::fs::read_dir(config.store_path_root_dir.join("consumequeue")).unwrap() {
            for queue in std::fs::read_dir(topic.unwrap().path()).unwrap() {
                for file in std::fs::read_dir(queue.unwrap().path()).unwrap() {
                    let path = file.unwrap().path();
                    files.insert(path.clone(), std::fs::read(path).unwrap());
                }
            }
        }
        for file in std::fs::read_dir(config.store_path_root_dir.join("index")).unwrap() {
            let path = file.unwrap().path();
            files.insert(path.clone(), std::fs::read(path).unwrap());
        }
        files
    };
    let before = contents();
    open(&config).close().unwrap();
    let after = contents();
    assert_eq!(before.len(), after.len());
    for (path, bytes) in &before {
        assert!(after.get(path) == Some(bytes), "{} changed", path.display());
    }
}

#[test]
fn a_get_stops_at_the_end_of_a_queue_file_and_says_where_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = support::small_config(folder.path());
    config.mapped_file_size_consume_queue = 600;
    let store = open(&config);
    let mut outcomes = Vec::new();
    for _ in 0..70 {
        store.append_blocking(&[message("t", 0, b"x", "")], &mut outcomes);
    }
    assert!(
        store
            .dispatcher()
            .wait_for(store.log().max_offset(), std::time::Duration::from_secs(60))
    );
    let get = |offset| {
        let request = GetRequest {
            topic: "t",
            queue_id: 0,
            offset: QueueOffset(offset),
            max_count: 32,
            max_bytes: usize::MAX,
        };
        let mut records = Vec::new();
        let result = store
            .reader()
            .get(&request, &mut NoFilter, Blocking::Allowed, &mut records)
            .unwrap();
        (records.len(), result.next_begin_offset.get())
    };
    assert_eq!(get(0), (30, 30));
    assert_eq!(get(30), (30, 60));
    assert_eq!(get(60), (10, 70));
}
