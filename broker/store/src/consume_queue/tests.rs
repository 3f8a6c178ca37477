//! Consume queues as a whole: what 4.9.8 left on disk reads as it read it, and equal dispatch gives equal bytes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use proptest::prelude::*;
use serde_json::Value;

use super::entry::entries;
use super::*;
use crate::dispatch_record::DispatchRecord;
use crate::golden::{GoldenStore, rows};
use crate::io::RealDisk;
use crate::offset::{PhysicalOffset, QueueOffset};

fn loaded(config: &StoreConfig) -> ConsumeQueues {
    let queues = ConsumeQueues::new(config, Arc::new(RealDisk));
    queues.load(true, i64::MAX).expect("the queues load");
    queues
}

fn all_entries(queue: &ConsumeQueue) -> Vec<QueueEntry> {
    let mut read = Vec::new();
    let mut bytes = Vec::new();
    while (read.len() as i64) < queue.max_offset() {
        let from = read.len() as i64;
        queue
            .read(from, 1000, &mut bytes, Blocking::Allowed)
            .unwrap();
        assert!(!bytes.is_empty());
        read.extend(entries(&bytes));
    }
    read
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

/// The queue of a row; one Java was asked for but that never had a message is empty.
fn queue_of(queues: &ConsumeQueues, row: &Value) -> Arc<ConsumeQueue> {
    let topic = row["topic"].as_str().expect("a topic");
    queues.get_or_create(topic, number(&row["queueId"]) as i32)
}

fn check_queues(name: &str) {
    let golden = GoldenStore::unpack(name);
    let queues = loaded(&golden.config());
    queues.raise_min(0).unwrap();
    for row in rows(&golden.manifest["queues"]) {
        let queue = queue_of(&queues, row);
        assert_eq!(queue.min_offset(), number(&row["minOffset"]), "{row}");
        assert_eq!(queue.max_offset(), number(&row["maxOffset"]), "{row}");
        assert_eq!(
            queue.physical_end(),
            number(&row["maxPhysicOffset"]).max(0),
            "{row}"
        );
        let expected = row["entries_queueOffset_physicalOffset_size_tagsCode"]
            .as_array()
            .unwrap();
        let found = all_entries(&queue);
        assert_eq!(found.len(), expected.len());
        for (entry, expected) in found.iter().zip(expected) {
            assert_eq!(entry.physical_offset, number(&expected[1]));
            assert_eq!(i64::from(entry.size), number(&expected[2]));
            assert_eq!(entry.tags_code, number(&expected[3]));
            let unit = queue.ext_unit(entry.tags_code, Blocking::Allowed).unwrap();
            match (&expected[4], unit) {
                (Value::Null, None) => {}
                (expected, Some(unit)) => check_unit(expected, &unit),
                (expected, None) => panic!("no unit, but {expected}"),
            }
        }
    }
}

fn check_unit(expected: &Value, unit: &ExtUnit) {
    assert_eq!(unit.tags_code, number(&expected["tagsCode"]));
    assert_eq!(unit.store_timestamp, number(&expected["msgStoreTime"]));
    assert_eq!(20 + unit.bit_map.len() as i64, number(&expected["size"]));
    let hex: String = unit.bit_map.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(
        hex,
        expected["bitMap"]
            .as_str()
            .unwrap_or_default()
            .to_lowercase()
    );
}

#[test]
fn every_entry_of_a_recorded_store_reads_as_java_read_it() {
    check_queues("clean");
}

#[test]
fn every_extension_unit_of_a_recorded_store_reads_as_java_read_it() {
    check_queues("cqext");
}

#[test]
fn search_by_time_answers_as_java() {
    let mut asked = 0;
    for name in ["clean", "cqext", "killed"] {
        let golden = GoldenStore::unpack(name);
        let queues = loaded(&golden.config());
        let times = golden.store_times();
        for row in rows(&golden.manifest["offsetByTime"]) {
            let queue = queue_of(&queues, row);
            for pair in rows(&row["timestamp_offset"]) {
                let timestamp = number(&pair[0]);
                let mut time_of = |at, _| times.get(&at).copied();
                let found = queue.offset_by_time(timestamp, 0, &mut time_of).unwrap();
                assert_eq!(
                    found,
                    number(&pair[1]),
                    "{name} {} at {timestamp}",
                    row["topic"]
                );
                asked += 1;
            }
        }
    }
    assert!(asked > 1000, "{asked}");
}

/// Gives every entry of a store to new queues, in the order of the log, and compares the files.
fn rebuild_and_compare(name: &str) {
    let golden = GoldenStore::unpack(name);
    let config = golden.config();
    let recorded = loaded(&config);
    let mut records: Vec<(Arc<ConsumeQueue>, i64, QueueEntry)> = recorded
        .all()
        .into_iter()
        .flat_map(|queue| {
            let entries = all_entries(&queue);
            entries
                .into_iter()
                .zip(0..)
                .map(move |(entry, number)| (Arc::clone(&queue), number, entry))
                .collect::<Vec<_>>()
        })
        .collect();
    records.sort_by_key(|(_, _, entry)| entry.physical_offset);
    let folder = tempfile::tempdir().unwrap();
    let mut own = config.clone();
    own.store_path_root_dir = folder.path().to_path_buf();
    let queues = ConsumeQueues::new(&own, Arc::new(RealDisk));
    let times = golden.store_times();
    for (i, (queue, number, entry)) in records.iter().enumerate() {
        let unit = queue.ext_unit(entry.tags_code, Blocking::Allowed).unwrap();
        let mut record = record(
            queue.topic(),
            queue.queue_id(),
            *number,
            entry.physical_offset,
            entry.size,
        );
        record.tags_code = unit.as_ref().map_or(entry.tags_code, |u| u.tags_code);
        record.store_timestamp = times[&entry.physical_offset];
        let target = queues.get_or_create(queue.topic(), queue.queue_id());
        let bit_map = unit.map(|u| u.bit_map).unwrap_or_default();
        assert!(matches!(
            target.push(&record, &bit_map).unwrap(),
            Pushed::Added
        ));
        assert_eq!(
            target.push(&record, &bit_map).unwrap(),
            Pushed::Present,
            "a second time changes nothing"
        );
        if i % 7 == 0 {
            target.write_out().unwrap();
        }
    }
    queues.all().iter().try_for_each(|q| q.write_out()).unwrap();
    queues.flush(0).unwrap();
    let mut compared = 0;
    for part in ["consumequeue", "consumequeue_ext"] {
        for file in files_below(&golden.root().join(part)) {
            let ours = folder
                .path()
                .join(file.strip_prefix(golden.root()).unwrap());
            assert!(
                std::fs::read(&file).unwrap() == std::fs::read(&ours).unwrap(),
                "{} differs",
                ours.display()
            );
            compared += 1;
        }
    }
    assert!(compared >= recorded.all().len());
}

fn files_below(folder: &std::path::Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for path in entries.map(|e| e.unwrap().path()) {
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

#[test]
fn the_same_entries_give_the_recorded_bytes() {
    rebuild_and_compare("clean");
    rebuild_and_compare("cqext");
}

fn record(topic: &str, queue_id: i32, number: i64, at: i64, size: i32) -> DispatchRecord<'_> {
    DispatchRecord {
        topic,
        queue_id,
        physical_offset: PhysicalOffset(at),
        size,
        tags_code: at % 7,
        store_timestamp: 1_000 + at,
        queue_offset: QueueOffset(number),
        keys: "",
        uniq_key: None,
        sys_flag: 0,
        prepared_transaction_offset: 0,
        properties: &[],
        damaged: false,
    }
}

fn small_config(root: &std::path::Path) -> StoreConfig {
    let mut config = StoreConfig::new(root);
    config.mapped_file_size_consume_queue = 200; // 10 entries
    // Whatever this machine's disk says.
    config.disk_space_clean_forcibly_ratio = 100;
    config.disk_space_warning_level_ratio = 100;
    config
}

/// Entries `numbers` of queue t/0, each record 100 bytes long at 100 times its number.
fn fill(queues: &ConsumeQueues, numbers: Range<i64>) {
    let queue = queues.get_or_create("t", 0);
    for n in numbers {
        assert!(matches!(
            queue.push(&record("t", 0, n, n * 100, 100), &[]).unwrap(),
            Pushed::Added
        ));
    }
    queue.write_out().unwrap();
}

#[test]
fn entries_are_readable_before_they_are_written_and_across_the_border() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_config(folder.path());
    config.mapped_file_size_consume_queue = 20_000;
    let queues = loaded(&config);
    let queue = queues.get_or_create("t", 0);
    for n in 0..500 {
        queue.push(&record("t", 0, n, n * 100, 100), &[]).unwrap();
        let mut bytes = Vec::new();
        for from in [0, n / 2, n - n % 64, n] {
            queue
                .read(from, 1000, &mut bytes, Blocking::Allowed)
                .unwrap();
            let numbers: Vec<_> = entries(&bytes).map(|e| e.physical_offset / 100).collect();
            assert_eq!(numbers, (from..=n).collect::<Vec<_>>(), "{n}");
        }
    }
    queues.rest();
    queue.write_out().unwrap();
    queues.rest();
    queues.rest();
    assert_eq!(
        all_entries(&queue).len(),
        500,
        "also when nothing is in memory"
    );
}

#[test]
fn a_queue_that_begins_in_the_middle_starts_with_filler() {
    let folder = tempfile::tempdir().unwrap();
    let queues = loaded(&small_config(folder.path()));
    fill(&queues, 23..25);
    let check = |queue: &ConsumeQueue| {
        assert_eq!((queue.min_offset(), queue.max_offset()), (23, 25));
        assert!(queue.entry(22).unwrap().unwrap().is_filler());
        assert_eq!(queue.entry(23).unwrap().unwrap().physical_offset, 2300);
    };
    check(&queues.get("t", 0).unwrap());
    // 4.9.8 would take the filler for the first message when the log begins at 0.
    let again = loaded(&small_config(folder.path()));
    again.raise_min(0).unwrap();
    check(&again.get("t", 0).unwrap());
}

#[test]
fn missing_entries_are_padded_so_that_numbers_stay_true() {
    let folder = tempfile::tempdir().unwrap();
    let queues = loaded(&small_config(folder.path()));
    fill(&queues, 0..3);
    fill(&queues, 15..16);
    let queue = queues.get("t", 0).unwrap();
    assert_eq!(queue.max_offset(), 16);
    assert!(queue.entry(9).unwrap().unwrap().is_filler());
    assert_eq!(queue.entry(15).unwrap().unwrap().physical_offset, 1500);
    let absurd = record("t", 0, i64::MAX / 2, 1600, 100);
    assert_eq!(queue.push(&absurd, &[]).unwrap(), Pushed::Refused);
    let mut damaged = record("t", 0, 16, 1600, 100);
    damaged.damaged = true;
    queue.push(&damaged, &[]).unwrap();
    queue.write_out().unwrap();
    assert!(
        queue.entry(16).unwrap().unwrap().is_filler(),
        "a damaged record keeps its number"
    );
    fill(&queues, 17..18);
}

#[test]
fn truncation_drops_what_the_log_lost_and_leaves_no_stale_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_config(folder.path());
    fill(&loaded(&config), 0..35);
    for (end, left) in [(3500, 35), (3450, 34), (2000, 20), (1, 0)] {
        let queues = ConsumeQueues::new(&config, Arc::new(RealDisk));
        queues.load(false, i64::MAX).unwrap();
        queues.truncate(end).unwrap();
        let queue = queues.get("t", 0).unwrap();
        assert_eq!(queue.max_offset(), left, "log ends at {end}");
        assert_eq!(queue.physical_end(), left * 100);
        // What a later start would find without any truncation.
        assert_eq!(loaded(&config).get("t", 0).unwrap().max_offset(), left);
    }
    let queues = loaded(&config);
    fill(&queues, 0..12);
    assert_eq!(queues.get("t", 0).unwrap().max_offset(), 12);
}

#[test]
fn after_a_rewind_records_can_be_entered_again_and_the_old_entries_still_tell_where_they_begin() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_config(folder.path());
    fill(&loaded(&config), 0..35);
    let queues = ConsumeQueues::new(&config, Arc::new(RealDisk));
    queues.load(false, i64::MAX).unwrap();
    queues.rewind(1200).unwrap();
    let queue = queues.get("t", 0).unwrap();
    assert_eq!((queue.max_offset(), queue.physical_end()), (12, 1200));
    let places = queues
        .record_starts(&(PhysicalOffset(2950)..PhysicalOffset(3200)))
        .unwrap();
    assert_eq!(
        places
            .iter()
            .map(|p| (p.at.get(), p.size))
            .collect::<Vec<_>>(),
        [(3000, 100), (3100, 100)]
    );
    fill(&queues, 12..20);
    queues.truncate(2000).unwrap();
    assert_eq!(loaded(&config).get("t", 0).unwrap().max_offset(), 20);
}

#[test]
fn a_hole_left_by_a_power_cut_ends_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_config(folder.path());
    fill(&loaded(&config), 0..29);
    let path = folder.path().join("consumequeue/t/0/00000000000000000200");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60..100].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let queues = ConsumeQueues::new(&config, Arc::new(RealDisk));
    queues.load(false, i64::MAX).unwrap();
    let queue = queues.get("t", 0).unwrap();
    assert_eq!(queue.max_offset(), 13);
    queues.truncate(2900).unwrap();
    fill(&queues, 13..15);
    assert_eq!(
        loaded(&config).get("t", 0).unwrap().max_offset(),
        15,
        "nothing stale joins the new entries"
    );
}

#[test]
fn cleaning_deletes_files_below_the_first_live_message_and_numbers_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_config(folder.path());
    let queues = loaded(&config);
    fill(&queues, 0..35);
    let queue = queues.get("t", 0).unwrap();
    assert_eq!(queue.clean(1550).unwrap(), 1);
    assert_eq!(queue.min_offset(), 16);
    let first_file = folder.path().join("consumequeue/t/0/00000000000000000000");
    assert!(!first_file.exists());
    assert_eq!(queue.clean(10_000).unwrap(), 2, "never the last file");
    assert_eq!((queue.min_offset(), queue.max_offset()), (35, 35));
    let again = loaded(&config);
    again.raise_min(10_000).unwrap();
    let queue = again.get("t", 0).unwrap();
    assert_eq!((queue.min_offset(), queue.max_offset()), (35, 35));
    fill(&again, 35..36);
    assert_eq!(queue.min_offset(), 35);
}

#[test]
fn a_deleted_topic_is_gone_from_disk_and_its_old_handle_writes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let queues = loaded(&small_config(folder.path()));
    fill(&queues, 0..3);
    let old = queues.get("t", 0).unwrap();
    assert_eq!(queues.delete_topics(&[("t", i64::MAX)]).unwrap(), 1);
    assert_eq!(
        old.push(&record("t", 0, 3, 300, 100), &[]).unwrap(),
        Pushed::Deleted
    );
    assert!(!folder.path().join("consumequeue/t").exists());
    assert!(queues.get("t", 0).is_none());
}

#[test]
fn what_was_found_out_about_entries_is_void_once_the_queue_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let queues = loaded(&small_config(folder.path()));
    fill(&queues, 0..30);
    let queue = queues.get("t", 0).unwrap();
    // A flush is at work while the topic's first new message comes.
    let written = queue.write_for_flush().unwrap();
    queue.push(&record("t", 0, 0, 9_000, 100), &[]).unwrap();
    queue.set_flushed(written);
    assert!(queue.has_unflushed(1));
    queue.flush().unwrap();
    assert!(!queue.has_unflushed(1));
    assert_eq!(
        loaded(&small_config(folder.path()))
            .get("t", 0)
            .unwrap()
            .max_offset(),
        1
    );
}

#[test]
fn a_queue_that_begins_again_while_it_is_read_cleaned_and_flushed_has_all_its_entries_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_config(folder.path());
    let queues = loaded(&config);
    fill(&queues, 0..30);
    let queue = queues.get("t", 0).unwrap();
    let (stop, log_min) = (AtomicBool::new(false), AtomicI64::new(0));
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let (stop, log_min, queue) = (&stop, &log_min, &*queue);
        let others: [Box<dyn Fn() + Send + '_>; 3] = [
            Box::new(|| drop(queue.entry(3))),
            Box::new(|| drop(queue.clean(log_min.load(Ordering::Acquire)))),
            Box::new(|| drop(queue.flush())),
        ];
        for other in others {
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    other();
                }
            });
        }
        for round in 1..=100 {
            let from = round * 100_000;
            for n in 0..30 {
                let pushed = queue.push(&record("t", 0, n, from + n * 100, 100), &[]);
                assert_eq!(pushed.unwrap(), Pushed::Added);
            }
            queue.flush().unwrap();
            let expected: Vec<_> = (0..30).map(|n| from + n * 100).collect();
            let places = |queue: &ConsumeQueue| -> Vec<i64> {
                all_entries(queue)
                    .iter()
                    .map(|e| e.physical_offset)
                    .collect()
            };
            assert_eq!(places(queue), expected, "round {round}");
            let again = loaded(&config).get("t", 0).unwrap();
            assert_eq!(places(&again), expected, "round {round}");
            log_min.store(from, Ordering::Release);
        }
    });
}

#[test]
fn only_the_queue_that_was_deleted_leaves_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let queues = loaded(&small_config(folder.path()));
    fill(&queues, 0..3);
    let old = queues.get("t", 0).unwrap();
    queues.delete_queue("t", 0, i64::MAX).unwrap();
    fill(&queues, 0..2);
    let new = queues.get("t", 0).unwrap();
    queues.leave_out(&old);
    assert!(Arc::ptr_eq(&new, &queues.get("t", 0).unwrap()));
    // It has a record from after the deletion.
    queues.delete_queue("t", 0, 150).unwrap();
    assert_eq!(queues.get("t", 0).unwrap().max_offset(), 2);
}

#[test]
fn thousands_of_queues_keep_a_bounded_number_of_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let queues = loaded(&small_config(folder.path()));
    let descriptors = || {
        std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(Result::ok)
            .filter(|e| std::fs::read_link(e.path()).is_ok_and(|p| p.starts_with(folder.path())))
            .count()
    };
    for round in 0..2 {
        for queue_id in 0..2000 {
            let queue = queues.get_or_create("many", queue_id);
            let at = (round * 2000 + i64::from(queue_id)) * 100;
            queue
                .push(&record("many", queue_id, round, at, 100), &[])
                .unwrap();
            queue.write_out().unwrap();
        }
        assert!(descriptors() <= 1024, "{}", descriptors());
    }
    assert!(queues.open_files() <= 1024);
    for queue_id in [0, 1, 777, 1999] {
        assert_eq!(
            queues
                .get("many", queue_id)
                .unwrap()
                .entry(1)
                .unwrap()
                .unwrap()
                .size,
            100
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the order of batches, restarts and truncations, a queue holds exactly the messages that were entered
    /// and not cut, at their numbers.
    #[test]
    fn a_queue_holds_what_was_entered(steps in prop::collection::vec((0..4u8, 1..40i64), 1..20)) {
        let folder = tempfile::tempdir().unwrap();
        let config = small_config(folder.path());
        let mut queues = loaded(&config);
        let mut model = 0i64;
        for (step, amount) in steps {
            match step {
                0 | 1 => {
                    fill(&queues, model..model + amount);
                    model += amount;
                }
                2 => queues = loaded(&config),
                _ => {
                    let end = (model - amount).max(0);
                    queues.truncate(end * 100).unwrap();
                    model = end;
                }
            }
            let queue = queues.get_or_create("t", 0);
            prop_assert_eq!(queue.max_offset(), model);
            for (n, entry) in all_entries(&queue).iter().enumerate() {
                prop_assert_eq!(entry.physical_offset, n as i64 * 100);
            }
            let mut one_by_one = Vec::new();
            for n in (model - 70).max(0)..model {
                queue.read(n, 3, &mut one_by_one, Blocking::Allowed).unwrap();
                prop_assert_eq!(entries(&one_by_one).next().unwrap().physical_offset, n * 100);
            }
        }
    }
}
