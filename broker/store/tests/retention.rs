//! Retention: what is deleted when, and when messages are refused.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use minimq_store::io::{Disk, RealDisk, SimulatedDisk};
use minimq_store::{
    Blocking, GetRequest, GetStatus, NoFilter, QueueOffset, Store, StoreClock, StoreConfig,
};
use support::store::LONG;
use support::{message, small_config};

const HOUR: i64 = 3_600_000;

/// A store with log files 0, 1, 2 and the beginning of a fourth, under a clock that stands at the next `hour` (UTC) that
/// is at least `age` after they were written.
fn store(config: &StoreConfig) -> (Store, Arc<AtomicI64>) {
    store_on(config, Arc::new(RealDisk))
}

fn store_on(config: &StoreConfig, disk: Arc<dyn Disk>) -> (Store, Arc<AtomicI64>) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64;
    let (clock, time) = StoreClock::manual(now);
    let store = Store::open_on(config, disk, clock, |_| {}).unwrap();
    let mut outcomes = Vec::new();
    while store.log().file_list().len() < 4 {
        outcomes.clear();
        store.append_blocking(
            &[message("t", 0, &[b'x'; 1_000], "KEYS\u{1}k")],
            &mut outcomes,
        );
        outcomes[0].as_ref().unwrap();
    }
    let end = store.log().max_offset();
    assert!(store.dispatcher().wait_for(end, LONG) && store.indexer().unwrap().wait_for(end, LONG));
    (store, time)
}

fn config(root: &std::path::Path) -> StoreConfig {
    let mut config = small_config(root);
    config.delete_commit_log_files_interval_ms = 0;
    config.delete_consume_queue_files_interval_ms = 0;
    // Whatever this machine's disk says, it is neither short of space nor full.
    (
        config.disk_max_used_space_ratio,
        config.disk_space_clean_forcibly_ratio,
        config.disk_space_warning_level_ratio,
    ) = (95, 100, 100);
    config
}

/// Moves the clock to the given hour at least `age_hours` from now; hours are those of the machine's zone.
fn move_to(time: &AtomicI64, age_hours: i64, hour: i8) {
    // A minute more: files may be written to after the time was taken.
    let mut now = time.load(Ordering::Acquire) + age_hours * HOUR + 60_000;
    let hour_of = |ms| {
        jiff::Timestamp::from_millisecond(ms)
            .unwrap()
            .to_zoned(jiff::tz::TimeZone::system())
            .hour()
    };
    while hour_of(now) != hour {
        now += HOUR;
    }
    time.store(now, Ordering::Release);
}

#[test]
fn expired_files_go_at_the_hour_for_it_and_queues_and_index_follow() {
    // This machine's disk may be so full that the hour does not count.
    let disk = Arc::new(SimulatedDisk::new());
    let config = config("/s".as_ref());
    let (store, time) = store_on(&config, Arc::clone(&disk) as Arc<dyn Disk>);
    let (max, files) = (store.reader().max_offset("t", 0), store.log().file_list());
    move_to(&time, 0, 4);
    assert_eq!(
        store.cleaner().round().log_files,
        0,
        "the hour, but not old enough"
    );
    move_to(&time, 73, 5);
    assert_eq!(
        store.cleaner().round().log_files,
        0,
        "old enough, but not the hour"
    );
    move_to(&time, 73, 4);
    let report = store.cleaner().round();
    assert_eq!(report.log_files, 3, "all but the last");
    assert!(
        report.queue_files > 0 && report.index_files > 0,
        "{report:?}"
    );
    assert_eq!(store.log().min_offset(), files[3].1);
    assert!(!disk.exists(&files[0].0) && disk.exists(&files[3].0));
    let min = store.reader().min_offset("t", 0);
    assert!(min.get() > 0 && store.reader().max_offset("t", 0) == max);
    let get = |offset| {
        let request = GetRequest {
            topic: "t",
            queue_id: 0,
            offset,
            max_count: 32,
            max_bytes: usize::MAX,
        };
        let mut records = Vec::new();
        store
            .reader()
            .get(&request, &mut NoFilter, Blocking::Allowed, &mut records)
            .unwrap()
    };
    assert_eq!(
        (
            get(QueueOffset(0)).status,
            get(QueueOffset(0)).next_begin_offset
        ),
        (GetStatus::OffsetTooSmall, min)
    );
    assert_eq!(get(min).status, GetStatus::Found);
    let found = store.query("t", "k", 64, 0, i64::MAX).unwrap();
    assert!(
        found
            .physical_offsets
            .iter()
            .all(|at| *at >= files[3].1.get())
            && !found.records.is_empty()
    );
    assert_eq!(store.cleaner().round(), Default::default());
    store.close().unwrap();
    let store = Store::open_on(&config, disk, StoreClock::System, |_| {}).unwrap();
    assert_eq!(
        (
            store.reader().min_offset("t", 0),
            store.reader().max_offset("t", 0)
        ),
        (min, max)
    );
}

#[test]
fn an_administrator_may_have_expired_files_deleted_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (store, time) = store(&config(folder.path()));
    move_to(&time, 73, 12);
    store.cleaner().clean_now();
    assert_eq!(store.cleaner().round().log_files, 3);
}

#[test]
fn a_queue_all_of_whose_messages_are_gone_keeps_its_numbers_unless_it_is_cleaned_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64;
    let store1 = Store::open(&config, |_| {}).unwrap();
    let mut outcomes = Vec::new();
    store1.append_blocking(
        &[message("rare", 0, b"1", ""), message("rare", 0, b"2", "")],
        &mut outcomes,
    );
    store1.close().unwrap();
    let (store, time) = store(&config);
    time.store(now, Ordering::Release);
    move_to(&time, 73, 4);
    assert_eq!(store.cleaner().round().log_files, 3);
    let range = || {
        (
            store.reader().min_offset("rare", 0).get(),
            store.reader().max_offset("rare", 0).get(),
        )
    };
    assert_eq!(range(), (2, 2));
    let expired = store.clean_expired_queues().unwrap();
    assert_eq!(expired.len(), 1);
    assert_eq!(range(), (0, 0));
    outcomes.clear();
    store.append_blocking(&[message("rare", 0, b"3", "")], &mut outcomes);
    assert_eq!(outcomes[0].as_ref().unwrap().queue_offset, QueueOffset(0));
}

#[test]
fn a_queue_with_a_message_on_its_way_is_not_expired() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = store(&config);
    let mut outcomes = Vec::new();
    let files = store.log().file_list().len();
    while store.log().file_list().len() < files + 2 {
        store.append_blocking(&[message("u", 0, &[b'x'; 1_000], "")], &mut outcomes);
    }
    assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
    while store.log().delete_oldest_file().unwrap().is_some() {}
    store.cleaner().round();
    outcomes.clear();
    let end = store.log().max_offset();
    let last = store.reader().max_offset("t", 0);
    // All that the queue has is gone; one more message was acknowledged, and has not reached it yet.
    store.log().set_dispatch_cap(Some(end));
    store.append_blocking(
        &[message("rare", 0, b"r", ""), message("t", 0, b"t", "")],
        &mut outcomes,
    );
    let acknowledged = outcomes
        .iter()
        .map(|o| o.as_ref().unwrap().queue_offset)
        .collect::<Vec<_>>();
    assert_eq!(acknowledged, [QueueOffset(0), last]);
    assert_eq!(store.clean_expired_queues().unwrap(), []);
    store.log().set_dispatch_cap(None);
    assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
    let mut records = Vec::new();
    for (topic, offset) in [("rare", QueueOffset(0)), ("t", last)] {
        let request = GetRequest {
            topic,
            queue_id: 0,
            offset,
            max_count: 1,
            max_bytes: usize::MAX,
        };
        let got = store
            .reader()
            .get(&request, &mut NoFilter, Blocking::Allowed, &mut records)
            .unwrap();
        assert_eq!(got.status, GetStatus::Found, "{topic}");
    }
}

#[test]
fn a_disk_above_the_mark_refuses_with_path_and_reason_and_takes_messages_again_by_itself() {
    let disk = SimulatedDisk::new();
    let mut config = small_config("/s");
    config.clean_file_forcibly_enable = true;
    config.delete_commit_log_files_interval_ms = 0;
    // This disk is the test's own.
    config.disk_space_clean_forcibly_ratio = 85;
    config.disk_space_warning_level_ratio = 90;
    let store =
        Store::open_on(&config, Arc::new(disk.clone()), StoreClock::System, |_| {}).unwrap();
    let mut outcomes = Vec::new();
    while store.log().file_list().len() < 4 {
        outcomes.clear();
        store.append_blocking(&[message("t", 0, &[b'x'; 1_000], "")], &mut outcomes);
        outcomes[0].as_ref().unwrap();
    }
    let used = used_bytes(&disk);
    disk.set_capacity(Some(used * 100 / 93));
    store.cleaner().check_disks();
    outcomes.clear();
    store.append_blocking(&[message("t", 0, b"refused", "")], &mut outcomes);
    let refusal = outcomes[0].as_ref().unwrap_err().to_string();
    assert!(
        refusal.contains("/s/commitlog") && refusal.contains("diskSpaceWarningLevelRatio"),
        "{refusal}"
    );
    // Above the mark age does not count.
    assert!(store.cleaner().round().log_files > 0);
    store.cleaner().check_disks();
    outcomes.clear();
    store.append_blocking(&[message("t", 0, b"taken", "")], &mut outcomes);
    outcomes[0].as_ref().unwrap();
}

fn used_bytes(disk: &SimulatedDisk) -> u64 {
    disk.paths()
        .iter()
        .map(|path| disk.content(path).map_or(0, |c| c.len() as u64))
        .sum()
}

#[test]
fn queues_begin_where_the_log_does_though_a_power_cut_left_nothing_of_it() {
    let disk = SimulatedDisk::new();
    let config = config(std::path::Path::new("/s"));
    let (store, _) = store_on(&config, Arc::new(disk.clone()));
    store.flush_queues().unwrap();
    store.log().delete_oldest_file().unwrap().unwrap();
    drop(store);
    for path in disk.paths() {
        if path.starts_with("/s/commitlog") {
            disk.put(&path, vec![0; 16 * 1024]);
        }
    }
    let store = Store::open_on(&config, Arc::new(disk), StoreClock::System, |_| {}).unwrap();
    assert_eq!(store.log().max_offset().get(), 16 * 1024);
    let reader = store.reader();
    let (min, max) = (reader.min_offset("t", 0), reader.max_offset("t", 0));
    assert!(min == max && max > QueueOffset(0), "{min} {max}");
}
