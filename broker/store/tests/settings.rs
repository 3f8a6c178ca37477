//! Settings that may change while a store is open act at once.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use minimq_store::io::{Disk, SimulatedDisk};
use minimq_store::{
    Blocking, FlushDiskType, FlushOutcome, GetRequest, NoFilter, QueueOffset, Store, StoreClock,
    StoreConfig,
};
use support::store::LONG;
use support::{message, small_config};

const HOUR_MS: u64 = 3_600_000;

fn open(config: &StoreConfig) -> (SimulatedDisk, Store) {
    let disk = SimulatedDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = Store::open_on(config, shared, StoreClock::System, |_| {}).unwrap();
    (disk, store)
}

fn append(store: &Store) -> Result<(), String> {
    let mut outcomes = Vec::new();
    store.append_blocking(&[message("t", 0, &[1; 1_000], "")], &mut outcomes);
    outcomes.remove(0).map(|_| ()).map_err(|e| e.to_string())
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "never: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn the_budgets_of_a_read_and_the_longest_message() {
    let mut config = small_config("/s");
    let (_disk, store) = open(&config);
    for _ in 0..6 {
        append(&store).unwrap();
    }
    assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
    let count = || {
        let request = GetRequest {
            topic: "t",
            queue_id: 0,
            offset: QueueOffset(0),
            max_count: 32,
            max_bytes: usize::MAX,
        };
        let mut records = Vec::new();
        let reader = store.reader();
        let got = reader.get(&request, &mut NoFilter, Blocking::Allowed, &mut records);
        got.unwrap().count
    };
    assert_eq!(count(), 6);
    config.max_transfer_count_on_message_in_memory = 2;
    store.reconfigure(&config);
    assert_eq!(count(), 2);
    config.max_transfer_count_on_message_in_memory = 32;
    config.max_transfer_bytes_on_message_in_memory = 4_000;
    store.reconfigure(&config);
    assert_eq!(count(), 3);
    // Nothing counts as in memory: the budgets of the disk.
    config.access_message_in_memory_max_ratio = 0;
    config.max_transfer_count_on_message_in_disk = 1;
    store.reconfigure(&config);
    assert_eq!(count(), 1);

    config.max_message_size = 999;
    store.reconfigure(&config);
    let refused = append(&store).unwrap_err();
    assert!(refused.contains("999"), "{refused}");
}

#[test]
fn how_often_log_and_queues_are_flushed() {
    let mut config = StoreConfig {
        flush_interval_commit_log_ms: HOUR_MS,
        flush_interval_consume_queue_ms: HOUR_MS,
        flush_consume_queue_thorough_interval_ms: HOUR_MS,
        ..small_config("/s")
    };
    let (_disk, store) = open(&config);
    append(&store).unwrap();
    let end = store.log().max_offset();
    assert!(store.dispatcher().wait_for(end, LONG));
    assert!(store.log().flushed_offset() < end);
    config.flush_interval_commit_log_ms = 1;
    config.flush_commit_log_thorough_interval_ms = 0;
    store.reconfigure(&config);
    until("the log is flushed", || store.log().flushed_offset() == end);

    let dispatched = || store.log_store().checkpoint().content().dispatched_offset;
    assert_ne!(dispatched(), Some(end.get()));
    config.flush_interval_consume_queue_ms = 1;
    config.flush_consume_queue_thorough_interval_ms = 0;
    store.reconfigure(&config);
    until("queues are flushed", || dispatched() == Some(end.get()));

    // Not by time, but with each append.
    config.flush_interval_commit_log_ms = HOUR_MS;
    config.flush_commit_log_timed = false;
    config.flush_commit_log_least_pages = 0;
    store.reconfigure(&config);
    append(&store).unwrap();
    let end = store.log().max_offset();
    until("the append is flushed", || {
        store.log().flushed_offset() == end
    });
}

#[test]
fn how_long_a_flush_is_waited_for() {
    let mut config = StoreConfig {
        flush_disk_type: FlushDiskType::SyncFlush,
        sync_flush_timeout_ms: HOUR_MS,
        ..small_config("/s")
    };
    let (disk, store) = open(&config);
    append(&store).unwrap();
    store.log_store().flush().unwrap();
    disk.hold_syncs(true);
    append(&store).unwrap();
    let end = store.log().max_offset();
    let (sender, outcomes) = std::sync::mpsc::channel();
    let wait = |name: &'static str| {
        let sender = sender.clone();
        let tell = move |outcome| sender.send((name, outcome)).unwrap();
        store.wait_flushed(end, Box::new(tell));
    };
    wait("long");
    config.sync_flush_timeout_ms = 1;
    store.reconfigure(&config);
    wait("short");
    assert_eq!(
        outcomes.recv_timeout(LONG).unwrap(),
        ("short", FlushOutcome::TimedOut)
    );
    disk.hold_syncs(false);
    assert_eq!(
        outcomes.recv_timeout(LONG).unwrap(),
        ("long", FlushOutcome::Flushed)
    );
    store.close().unwrap();
}

#[test]
fn when_a_disk_is_too_full_and_what_is_expired() {
    let mut config = StoreConfig {
        clean_resource_interval_ms: HOUR_MS,
        delete_commit_log_files_interval_ms: 0,
        delete_when: Vec::new(),
        disk_max_used_space_ratio: 95,
        ..small_config("/s")
    };
    let (disk, store) = open(&config);
    while store.log().file_list().len() < 4 {
        append(&store).unwrap();
    }
    let used: usize = disk
        .paths()
        .iter()
        .map(|path: &std::path::PathBuf| disk.content(Path::new(path)).map_or(0, |c| c.len()))
        .sum();
    disk.set_capacity(Some(used as u64 * 2));
    config.disk_space_warning_level_ratio = 20;
    store.reconfigure(&config);
    // Not by appending until then: that could fill the disk.
    let gate = store.log_store().gate();
    until("the disk counts as full", || gate.is_disk_full());
    append(&store).unwrap_err();
    config.disk_space_warning_level_ratio = 100;
    store.reconfigure(&config);
    until("messages are taken", || append(&store).is_ok());

    assert_eq!(store.cleaner().round().log_files, 0);
    config.delete_when = (0..24).collect();
    store.reconfigure(&config);
    assert_eq!(
        store.cleaner().round().log_files,
        0,
        "nothing is 72 hours old"
    );
    config.file_reserved_time_hours = 0;
    store.reconfigure(&config);
    assert!(store.cleaner().round().log_files >= 3);
}
