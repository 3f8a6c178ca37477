//! What is believed after a stop, clean or not: records torn at the end, queues or checkpoint gone, old bytes behind the
//! end, parts that cannot be read. Cases recovery-01 to recovery-03 are among them.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use minimq_protocol::message::MessageView;
use minimq_store::io::{Disk, Operation, RealDisk, SimulatedDisk};
use minimq_store::{
    AppendResult, Blocking, LogRead, PhysicalOffset, QueueOffset, Store, StoreClock, StoreConfig,
};
use support::store::{LONG, bodies};
use support::{message, small_config};

const PROPERTIES: &str = "KEYS\u{1}k\u{2}TAGS\u{1}TagA\u{2}UNIQ_KEY\u{1}0123456789ABCDEF";

fn open_on(config: &StoreConfig, disk: &Arc<dyn Disk>) -> Store {
    let store = Store::open_on(config, Arc::clone(disk), StoreClock::System, |_| {}).unwrap();
    let end = store.log().max_offset();
    assert!(store.dispatcher().wait_for(end, LONG));
    assert!(
        store
            .indexer()
            .is_none_or(|indexer| indexer.wait_for(end, LONG))
    );
    store
}

fn open(config: &StoreConfig) -> Store {
    open_on(config, &(Arc::new(RealDisk) as Arc<dyn Disk>))
}

fn append(store: &Store, topic: &str, queue_id: i32, body: &[u8]) -> AppendResult {
    let mut outcomes = Vec::new();
    store.append_blocking(&[message(topic, queue_id, body, PROPERTIES)], &mut outcomes);
    outcomes.remove(0).unwrap()
}

/// 25 messages each in two queues of ST1, then 5 in ST2; stopped cleanly. Gives where those of ST2 lie.
fn cases_store(root: &Path) -> (StoreConfig, Vec<AppendResult>) {
    let config = small_config(root);
    let store = open(&config);
    for number in 0..25 {
        append(&store, "ST1", 0, format!("a{number}").as_bytes());
        append(&store, "ST1", 1, format!("b{number}").as_bytes());
    }
    let last: Vec<_> = (0..5)
        .map(|number| {
            append(
                &store,
                "ST2",
                0,
                format!("the body of c{number}").as_bytes(),
            )
        })
        .collect();
    assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
    store.close().unwrap();
    (config, last)
}

fn expected(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}{number}"))
        .collect()
}

fn log_file(root: &Path, at: i64) -> PathBuf {
    root.join("commitlog")
        .join(format!("{:020}", at / 16_384 * 16_384))
}

/// Changes bytes of the log, from log offset `at` on.
fn damage(root: &Path, at: i64, change: impl FnOnce(&mut [u8])) {
    let path = log_file(root, at);
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes[(at % 16_384) as usize..]);
    std::fs::write(&path, bytes).unwrap();
}

fn set_abort(root: &Path, abort: bool) {
    let path = root.join("abort");
    if abort {
        std::fs::write(path, b"").unwrap()
    } else {
        let _ = std::fs::remove_file(path);
    }
}

#[test]
fn a_record_torn_in_body_or_properties_at_the_end_is_cut_and_its_place_given_again() {
    for abort in [false, true] {
        for torn_at in [88 + 10, 88 + 17 + 1 + 3 + 2 + PROPERTIES.len() as i64 - 20] {
            let folder = tempfile::tempdir().unwrap();
            let (config, last) = cases_store(folder.path());
            damage(
                folder.path(),
                last[4].physical_offset.get() + torn_at,
                |bytes| bytes.fill(0),
            );
            set_abort(folder.path(), abort);
            let store = open(&config);
            let report = store.log_store().report();
            let cut = report.cut.as_ref().unwrap();
            assert_eq!(
                (report.clean, cut.at, cut.records.len()),
                (!abort, last[4].physical_offset, 1)
            );
            assert_eq!(store.reader().max_offset("ST2", 0).get(), 4);
            assert_eq!(bodies(&store, "ST2", 0), expected("the body of c", 4));
            assert_eq!(bodies(&store, "ST1", 0), expected("a", 25));
            assert_eq!(bodies(&store, "ST1", 1), expected("b", 25));
            let next = append(&store, "ST2", 0, b"the body of c4");
            assert_eq!(
                (next.queue_offset.get(), next.physical_offset),
                (4, last[4].physical_offset)
            );
            store.close().unwrap();
            drop(store);
            assert_eq!(
                bodies(&open(&config), "ST2", 0),
                expected("the body of c", 5)
            );
        }
    }
}

#[test]
fn consume_queues_that_are_gone_are_made_again_before_the_store_is_open() {
    for abort in [false, true] {
        for gone in [
            "consumequeue",
            "consumequeue/ST1",
            "consumequeue/ST1/1",
            "index",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let (config, _) = cases_store(folder.path());
            std::fs::remove_dir_all(folder.path().join(gone)).unwrap();
            set_abort(folder.path(), abort);
            let store = open(&config);
            assert_eq!(
                bodies(&store, "ST1", 0),
                expected("a", 25),
                "without {gone}, abort {abort}"
            );
            assert_eq!(
                bodies(&store, "ST1", 1),
                expected("b", 25),
                "without {gone}, abort {abort}"
            );
            assert_eq!(
                bodies(&store, "ST2", 0),
                expected("the body of c", 5),
                "without {gone}, abort {abort}"
            );
            assert_eq!(
                store
                    .query("ST2", "k", 64, 0, i64::MAX)
                    .unwrap()
                    .records
                    .len(),
                5,
                "without {gone}"
            );
            assert_eq!(append(&store, "ST1", 1, b"b25").queue_offset.get(), 25);
            store.close().unwrap();
        }
    }
}

#[test]
fn a_queue_of_which_one_file_is_gone_is_made_again() {
    for abort in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (mut config, _) = cases_store(folder.path());
        // Files of five entries.
        std::fs::remove_dir_all(folder.path().join("consumequeue")).unwrap();
        config.mapped_file_size_consume_queue = 100;
        open(&config).close().unwrap();
        std::fs::remove_file(
            folder
                .path()
                .join(format!("consumequeue/ST1/0/{:020}", 200)),
        )
        .unwrap();
        set_abort(folder.path(), abort);
        for _ in 0..2 {
            let store = open(&config);
            assert_eq!(bodies(&store, "ST1", 0), expected("a", 25), "abort {abort}");
            assert_eq!(bodies(&store, "ST1", 1), expected("b", 25), "abort {abort}");
            store.close().unwrap();
        }
        assert_eq!(
            append(&open(&config), "ST1", 0, b"a25").queue_offset.get(),
            25
        );
    }
}

#[test]
fn a_queue_entry_that_points_beyond_the_log_costs_no_message() {
    for abort in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (config, _) = cases_store(folder.path());
        let path = folder.path().join(format!("consumequeue/ST2/0/{:020}", 0));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4 * 20 + 1] = 0x40;
        std::fs::write(&path, bytes).unwrap();
        set_abort(folder.path(), abort);
        let store = open(&config);
        assert_eq!(
            bodies(&store, "ST2", 0),
            expected("the body of c", 5),
            "abort {abort}"
        );
        assert_eq!(append(&store, "ST2", 0, b"new").queue_offset.get(), 5);
        assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
        assert_eq!(bodies(&store, "ST2", 0).len(), 6);
    }
}

#[test]
fn queues_made_again_after_a_stop_survive_a_power_cut_before_they_are_flushed() {
    let disk = SimulatedDisk::new();
    let config = StoreConfig {
        // Only the log's checkpoint is written meanwhile.
        flush_interval_consume_queue_ms: 3_600_000,
        ..small_config("/s")
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = open_on(&config, &shared);
    for number in 0..100 {
        append(&store, "old", 0, format!("a{number}").as_bytes());
    }
    for number in 0..60 {
        append(&store, "new", 0, &[number; 2_000]);
    }
    store.close().unwrap();
    drop(store);
    let queue_files = || {
        let of_old = |path: &PathBuf| path.starts_with("/s/consumequeue/old");
        disk.paths().into_iter().filter(of_old)
    };
    queue_files().for_each(|path| shared.remove_file(&path).unwrap());
    // The queue is made again; then the log's flush writes the checkpoint.
    let store = open_on(&config, &shared);
    assert_eq!(bodies(&store, "old", 0), expected("a", 100));
    append(&store, "new", 0, b"one more");
    store.log_store().flush().unwrap();
    store.log_store().checkpoint().write().unwrap();
    drop(store);
    // Of what was made again the cut leaves the first file, and the names of the others.
    let files = queue_files().skip(1);
    assert_eq!(files.map(|path| disk.put(&path, vec![0; 400])).count(), 4);
    let store = open_on(&config, &shared);
    assert_eq!(bodies(&store, "old", 0), expected("a", 100));
    assert_eq!(store.log_store().report().scanned_from, PhysicalOffset(0));
}

#[test]
fn an_entry_of_which_a_power_cut_took_a_part_does_not_hide_others_it_took() {
    let disk = SimulatedDisk::new();
    let config = StoreConfig {
        mapped_file_size_consume_queue: 2_080,
        flush_interval_consume_queue_ms: 3_600_000,
        ..small_config("/s")
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = open_on(&config, &shared);
    let body = |number: i32| format!("{number:0130}");
    for number in 0..416 {
        append(&store, "T", 0, body(number).as_bytes());
        if number == 70 {
            assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
            store.log_store().flush().unwrap();
            store.flush_queues().unwrap();
        }
    }
    store.log_store().flush().unwrap();
    assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
    store.queues().get("T", 0).unwrap().write_out().unwrap();
    drop(store);
    // A sector of the first of four files: entries 77 to 101, and of entry 102 where its record is, but not its length.
    let path = Path::new("/s/consumequeue/T/0/00000000000000000000");
    let mut entries = disk.content(path).unwrap();
    entries[1_536..2_048].fill(0);
    assert!(entries[102 * 20 + 8..][..4].iter().any(|byte| *byte != 0));
    disk.put(path, entries);
    let store = open_on(&config, &shared);
    // Entries are made again from the second file of the log on.
    assert_eq!(store.log_store().report().scanned_from.get(), 16_384);
    assert_eq!(
        bodies(&store, "T", 0),
        (0..416).map(body).collect::<Vec<_>>()
    );
}

#[test]
fn the_index_goes_on_in_the_next_file_behind_what_is_no_record_and_no_start_looked_at() {
    // A length beyond the end of the log, and a wrong magic.
    for (at, value) in [(0, 0x7F), (4, 0)] {
        let disk = SimulatedDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let config = small_config("/s");
        let store = open_on(&config, &shared);
        let results: Vec<_> = (0..18)
            .map(|number| append(&store, "T", 0, format!("{number:05000}").as_bytes()))
            .collect();
        store.close().unwrap();
        drop(store);
        let path = Path::new("/s/commitlog/00000000000000000000");
        let mut bytes = disk.content(path).unwrap();
        bytes[results[1].physical_offset.get() as usize + at] = value;
        disk.put(path, bytes);
        let index = disk.paths().into_iter().find(|p| p.starts_with("/s/index"));
        shared.remove_file(&index.unwrap()).unwrap();
        let store = open_on(&config, &shared);
        assert!(store.log_store().report().damaged.is_empty());
        let found = store.query("T", "k", 64, 0, i64::MAX).unwrap();
        let behind = |at: PhysicalOffset| at >= results[1].physical_offset && at.get() < 16_384;
        let kept = results.iter().map(|result| result.physical_offset);
        let kept: Vec<_> = kept.filter(|at| !behind(*at)).map(|at| at.get()).collect();
        assert_eq!(found.physical_offsets, kept, "byte {at}");
    }
}

#[test]
fn a_checkpoint_that_is_missing_zero_or_from_the_future_loses_nothing() {
    let future = [(1_i64 << 60).to_be_bytes(); 3].concat();
    let contents: [Option<Vec<u8>>; 5] = [
        None,
        Some(vec![0; 4096]),
        Some([future, vec![0; 4072]].concat()),
        Some(Vec::new()),
        Some(vec![0xFF; 4096]),
    ];
    for abort in [false, true] {
        for content in &contents {
            let folder = tempfile::tempdir().unwrap();
            let (config, _) = cases_store(folder.path());
            let path = folder.path().join("checkpoint");
            match content {
                None => std::fs::remove_file(&path).unwrap(),
                Some(content) => std::fs::write(&path, content).unwrap(),
            }
            set_abort(folder.path(), abort);
            let store = open(&config);
            assert_eq!(store.log_store().report().cut, None);
            assert_eq!(bodies(&store, "ST1", 0), expected("a", 25));
            assert_eq!(bodies(&store, "ST1", 1), expected("b", 25));
            assert_eq!(bodies(&store, "ST2", 0), expected("the body of c", 5));
            assert_eq!(append(&store, "ST2", 0, b"x").queue_offset.get(), 5);
            store.close().unwrap();
        }
    }
}

#[test]
fn a_damaged_record_in_the_middle_is_never_served_not_even_after_clean_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let (config, last) = cases_store(folder.path());
    let victim = last[2];
    damage(folder.path(), victim.physical_offset.get() + 90, |bytes| {
        bytes[0] ^= 4
    });
    set_abort(folder.path(), true);
    let without: Vec<_> = expected("the body of c", 5)
        .into_iter()
        .filter(|body| body != "the body of c2")
        .collect();
    for _ in 0..3 {
        let store = open(&config);
        assert_eq!(bodies(&store, "ST2", 0), without);
        assert_eq!(
            store.reader().max_offset("ST2", 0).get(),
            5,
            "later messages keep their numbers"
        );
        assert!(store.log_store().damage().contains(victim.physical_offset));
        let by_place = store
            .reader()
            .record(victim.physical_offset, Blocking::Allowed);
        assert!(matches!(by_place, Ok(None) | Err(_)), "{by_place:?}");
        let by_key = store.query("ST2", "k", 64, 0, i64::MAX).unwrap().records;
        assert!(
            by_key
                .iter()
                .all(|record| MessageView::parse(record.clone()).unwrap().queue_offset() != 2)
        );
        store.close().unwrap();
    }
}

#[test]
fn old_records_behind_an_end_that_was_moved_back_are_not_taken_for_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_config(folder.path());
    let store = open(&config);
    let first = append(&store, "T", 0, b"first");
    let old: Vec<_> = ["lost1", "lost2", "lost3"]
        .map(|body| append(&store, "T", 0, body.as_bytes()))
        .to_vec();
    store.close().unwrap();
    drop(store);
    // As 4.9.8 does after a crash: the end moves back to after the first record, later bytes stay, and a new record of
    // exactly the old length goes over the second one.
    let path = log_file(folder.path(), 0);
    let stale = std::fs::read(&path).unwrap();
    damage(folder.path(), first.end().get(), |bytes| bytes.fill(0));
    for name in ["consumequeue", "index"] {
        std::fs::remove_dir_all(folder.path().join(name)).unwrap();
    }
    for name in ["queues", "checkpoint"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    std::thread::sleep(Duration::from_millis(2));
    let store = open(&config);
    let new = append(&store, "T", 0, b"newer");
    assert_eq!(new.physical_offset, old[0].physical_offset);
    append(
        &store,
        "T",
        1,
        b"other queue, longer than the old one, so that it ends inside an old record",
    );
    let end = append(&store, "T", 0, b"!").end();
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[end.get() as usize..].copy_from_slice(&stale[end.get() as usize..]);
    // The last new record ends where an old one begins: made so by moving the old ones.
    let moved = end.get();
    let mut record =
        stale[old[1].physical_offset.get() as usize..old[1].end().get() as usize].to_vec();
    record[28..36].copy_from_slice(&moved.to_be_bytes());
    bytes[moved as usize..moved as usize + record.len()].copy_from_slice(&record);
    std::fs::write(&path, bytes).unwrap();
    let store = open(&config);
    assert_eq!(bodies(&store, "T", 0), ["first", "newer", "!"]);
    let cut = store.log_store().report().cut.clone().unwrap();
    assert_eq!(cut.at, end, "{cut:?}");
    store.close().unwrap();
    // Nothing stale is left for anyone who opens the store later.
    assert!(
        std::fs::read(&path).unwrap()[end.get() as usize..]
            .iter()
            .all(|byte| *byte == 0)
    );
}

#[test]
fn after_a_crash_only_what_the_checkpoint_does_not_vouch_for_is_looked_at_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        flush_interval_consume_queue_ms: 1,
        ..small_config(folder.path())
    };
    let store = open(&config);
    for _ in 0..40 {
        append(&store, "T", 0, &[b'x'; 5000]);
    }
    store.log_store().flush().unwrap();
    assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
    store.flush_queues().unwrap();
    drop(store);
    let store = open(&config);
    let report = store.log_store().report();
    assert!(!report.clean);
    let files = report.end.get() / 16_384;
    assert_eq!(
        report.scanned_from.get(),
        (files - 2) * 16_384,
        "three files of {}",
        files + 1
    );
    assert_eq!(store.reader().max_offset("T", 0).get(), 40);
}

#[test]
fn a_file_that_is_missing_or_cannot_be_read_costs_only_its_own_messages() {
    for missing in [true, false] {
        let disk = SimulatedDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let config = small_config("/s");
        let store = open_on(&config, &shared);
        // One that cannot be read is noticed when it is looked at, as the last three files are.
        let number = if missing { 18 } else { 12 };
        let results: Vec<_> = (0..number)
            .map(|number| append(&store, "T", 0, format!("{number:05000}").as_bytes()))
            .collect();
        store.close().unwrap();
        drop(store);
        let path = Path::new("/s/commitlog/00000000000000032768");
        if missing {
            shared.remove_file(path).unwrap();
        } else {
            disk.fail(Operation::Read, "00000000000000032768", 5);
        }
        disk.put(Path::new("/s/abort"), Vec::new());
        // The index is made again too, past what is missing.
        for path in disk
            .paths()
            .iter()
            .filter(|path| path.starts_with("/s/index"))
        {
            shared.remove_file(path).unwrap();
        }
        let store = open_on(&config, &shared);
        let in_file = |result: &&AppendResult| result.physical_offset.get() / 16_384 == 2;
        let left: Vec<_> = results.iter().filter(|result| !in_file(result)).collect();
        assert_eq!(
            bodies(&store, "T", 0).len(),
            left.len(),
            "missing {missing}"
        );
        assert_eq!(
            store.reader().max_offset("T", 0).get(),
            results.len() as i64
        );
        let [range] = store.log_store().report().damaged.as_slice() else {
            panic!("{:?}", store.log_store().report())
        };
        assert_eq!(
            (range.from, range.to),
            (PhysicalOffset(32_768), PhysicalOffset(49_152))
        );
        if missing {
            let found = store.query("T", "k", 64, 0, i64::MAX).unwrap();
            assert_eq!(found.records.len(), left.len());
        }
        for result in left {
            let read = store
                .log()
                .read(result.physical_offset, result.size as usize, true)
                .unwrap();
            assert!(matches!(read, LogRead::Found(_)));
        }
        assert_eq!(
            append(&store, "T", 0, b"next").queue_offset.get(),
            results.len() as i64
        );
        store.close().unwrap();
    }
}

#[test]
fn a_part_that_was_given_up_stays_so_when_a_later_start_comes_upon_whole_records_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_config(folder.path());
    let body = |text: &str| format!("{text:>05000}").into_bytes();
    let store = open(&config);
    // Three a file.
    let old: Vec<_> = (0..6)
        .map(|number| append(&store, "T", 0, &body(&format!("old{number}"))))
        .collect();
    for _ in 0..3 {
        append(&store, "Other", 0, &body("other"));
    }
    store.log_store().flush().unwrap();
    store.flush_queues().unwrap();
    drop(store);
    // A head is lost in the first file and a body at the start of the second, and no queue tells where records begin.
    let damage = |name: &str, at: usize, len: usize| {
        let path = folder.path().join("commitlog").join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at..at + len].fill(0);
        std::fs::write(&path, bytes).unwrap();
    };
    damage(
        "00000000000000000000",
        old[1].physical_offset.get() as usize,
        64,
    );
    damage("00000000000000016384", 200, 1);
    std::fs::remove_dir_all(folder.path().join("consumequeue")).unwrap();
    let store = open(&config);
    let [range] = store.log_store().report().damaged.as_slice() else {
        panic!("{:?}", store.log_store().report())
    };
    assert_eq!(
        (range.from, range.to.get()),
        (old[1].physical_offset, 32_768)
    );
    // The numbers of its records are given again.
    store.flush_queues().unwrap();
    let new = append(&store, "T", 0, b"new");
    assert_eq!(new.queue_offset, QueueOffset(1));
    while store.log().max_offset().get() < 50_000 {
        append(&store, "Other", 0, &body("other"));
    }
    store.log_store().flush().unwrap();
    drop(store);
    // The next scan begins in its middle, with a record that is only damaged, and whole ones behind it.
    let store = open(&config);
    assert_eq!(store.log_store().report().scanned_from.get(), 16_384);
    assert_eq!(bodies(&store, "T", 0).last().unwrap(), "new");
    assert_eq!(bodies(&store, "T", 0).len(), 2);
    assert_eq!(store.reader().max_offset("T", 0), QueueOffset(2));
}

#[test]
fn a_part_that_was_given_up_stays_so_though_no_checkpoint_was_written_after_the_start_that_gave_it_up()
 {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        flush_interval_commit_log_ms: 3_600_000,
        flush_interval_consume_queue_ms: 3_600_000,
        ..small_config(folder.path())
    };
    let body = |text: &str| format!("{text:>05000}").into_bytes();
    let store = open(&config);
    // Three a file.
    let old: Vec<_> = (0..6)
        .map(|number| append(&store, "T", 0, &body(&format!("old{number}"))))
        .collect();
    for _ in 0..3 {
        append(&store, "Other", 0, &body("other"));
    }
    drop(store);
    // All but the first message of the first file is lost, and a body at the start of the second.
    let log = folder.path().join("commitlog");
    let (first, second) = (
        log.join(format!("{:020}", 0)),
        log.join(format!("{:020}", 16_384)),
    );
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[old[0].size as usize..].fill(0);
    std::fs::write(&first, bytes).unwrap();
    let mut bytes = std::fs::read(&second).unwrap();
    bytes[200] = 0;
    std::fs::write(&second, bytes).unwrap();
    let checkpoint = folder.path().join("checkpoint");
    std::fs::write(&checkpoint, [0; 4096]).unwrap();
    let _ = std::fs::remove_dir_all(folder.path().join("consumequeue"));
    let store = open(&config);
    let known = std::fs::read(&checkpoint).unwrap();
    let [range] = store.log_store().report().damaged.as_slice() else {
        panic!("{:?}", store.log_store().report())
    };
    assert_eq!((range.from, range.to.get()), (old[0].end(), 32_768));
    // The numbers of its records are given again.
    assert_eq!(append(&store, "T", 0, b"new").queue_offset, QueueOffset(1));
    drop(store);
    // A power cut takes what was written of the checkpoint since, and the first file was cleaned away.
    std::fs::write(&checkpoint, known).unwrap();
    std::fs::remove_file(first).unwrap();
    let store = open(&config);
    assert_eq!(bodies(&store, "T", 0), ["new"]);
    assert_eq!(store.reader().max_offset("T", 0), QueueOffset(2));
}

#[test]
fn an_entry_beyond_the_log_that_a_start_dropped_does_not_come_back_after_a_clean_stop() {
    let disk = SimulatedDisk::new();
    let config = StoreConfig {
        flush_interval_commit_log_ms: 3_600_000,
        flush_interval_consume_queue_ms: 3_600_000,
        ..small_config("/s")
    };
    let opened =
        |disk: &SimulatedDisk| open_on(&config, &(Arc::new(disk.clone()) as Arc<dyn Disk>));
    let store = opened(&disk);
    // One queue keeps the file of the entry, another loses a whole one.
    append(&store, "t", 0, b"lost");
    for _ in 0..30 {
        append(&store, "u", 0, b"lost");
    }
    let end = store.log().max_offset();
    assert!(store.dispatcher().wait_for(end, LONG));
    store.flush_queues().unwrap();
    drop(store);
    // The cut takes the log, which was not flushed.
    let disk = disk.cut(|| false);
    let store = opened(&disk);
    assert_eq!(store.log().max_offset(), PhysicalOffset(0));
    append(&store, "other", 0, b"new");
    store.close().unwrap();
    drop(store);
    let store = opened(&disk.cut(|| false));
    assert_eq!(bodies(&store, "other", 0), ["new"]);
    for topic in ["t", "u"] {
        assert_eq!(
            store.reader().max_offset(topic, 0),
            QueueOffset(0),
            "{topic}"
        );
    }
}

#[test]
fn a_queue_whose_first_messages_are_lost_keeps_no_file_of_their_entries() {
    let disk = SimulatedDisk::new();
    let config = StoreConfig {
        mapped_file_size_consume_queue: 60,
        ..small_config("/s")
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = open_on(&config, &shared);
    let old: Vec<_> = (0..4)
        .map(|number| append(&store, "t", 0, &[b'0' + number]))
        .collect();
    let end = store.log().max_offset();
    assert!(store.dispatcher().wait_for(end, LONG));
    store.flush_queues().unwrap();
    store.log_store().flush().unwrap();
    drop(store);
    let log = Path::new("/s/commitlog/00000000000000000000");
    let mut bytes = disk.content(log).unwrap();
    bytes[..old[3].physical_offset.get() as usize].fill(0);
    disk.put(log, bytes);
    for _ in 0..2 {
        let store = open_on(&config, &shared);
        let reader = store.reader();
        assert_eq!(reader.min_offset("t", 0), QueueOffset(3));
        assert_eq!(bodies(&store, "t", 0), ["3"]);
        store.close().unwrap();
    }
}

#[test]
fn a_record_that_the_disk_forgot_is_not_served_though_no_start_looked_at_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_config(folder.path());
    let store = open(&config);
    let results: Vec<_> = (0..18)
        .map(|number| append(&store, "T", 0, format!("{number:05000}").as_bytes()))
        .collect();
    store.close().unwrap();
    drop(store);
    let path = folder.path().join("commitlog/00000000000000000000");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[results[1].physical_offset.get() as usize + 200] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let store = open(&config);
    assert!(store.log_store().report().damaged.is_empty());
    let by_place = |number: usize| {
        let at = results[number].physical_offset;
        store.reader().record(at, Blocking::Allowed).unwrap()
    };
    assert!(by_place(1).is_none());
    assert!(by_place(0).is_some() && by_place(2).is_some());
    assert_eq!(bodies(&store, "T", 0).len(), results.len() - 1);
    let by_key = store.query("T", "k", 64, 0, i64::MAX).unwrap();
    assert_eq!(by_key.records.len(), results.len() - 1);
}

#[test]
fn progress_is_told_and_ends_at_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        mapped_file_size_commit_log: 32 << 20,
        max_message_size: 4 << 20,
        ..small_config(folder.path())
    };
    let store = open(&config);
    let body = vec![b'x'; 3 << 20];
    for _ in 0..15 {
        append(&store, "T", 0, &body);
    }
    drop(store);
    let mut told = Vec::new();
    let store = Store::open(&config, |progress| told.push(progress)).unwrap();
    let last = told.last().unwrap();
    assert_eq!(
        (last.scanned, last.records, last.percent()),
        (store.log().max_offset().get() as u64, 15, 100)
    );
    assert!(
        told.len() >= 3
            && told
                .windows(2)
                .all(|pair| pair[0].scanned <= pair[1].scanned)
    );
    assert!(told[0].percent() < 100 && last.rate() > 0);
}
