//! The log of a store: what goes in, where it ends up, what is refused, and that it is told truthfully.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use minimq_protocol::message::MessageView;
use minimq_store::io::{Disk, Operation};
use minimq_store::{
    AppendError, AppendOutcome, Appended, FlushDiskType, FlushOutcome, LogRead, LogStore,
    PhysicalOffset, ReplicaAppended, StoreClock, StoreConfig, StoreError, StoreRole,
};
use support::store::{LONG, simulated};
use support::{
    NotedQueues, append_one, message, open, open_with, real, small_config, wait_flushed,
};

const EIO: i32 = 5;

fn sync_config() -> StoreConfig {
    StoreConfig {
        flush_disk_type: FlushDiskType::SyncFlush,
        ..small_config("/s")
    }
}

fn record(log: &LogStore, at: PhysicalOffset, size: i32) -> MessageView {
    match log.log().read(at, size as usize, true).unwrap() {
        LogRead::Found(bytes) => MessageView::parse(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Waits for a condition that a thread of the store brings about.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The first file and its pages are there: from here on no append needs the disk.
fn warm(log: &LogStore) -> PhysicalOffset {
    let end = append_one(log, message("W", 0, b"", "")).unwrap().end();
    assert_eq!(wait_flushed(log, end), FlushOutcome::Flushed);
    end
}

#[test]
fn a_record_on_disk_is_the_golden_one_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        mapped_file_size_commit_log: 8192,
        ..small_config(folder.path())
    };
    let (clock, time) = StoreClock::manual(0x01A2_296F_545B);
    let log = LogStore::open(&config, real(), clock, &mut NotedQueues::default(), |_| {}).unwrap();
    let properties =
        "KEYS\u{1}k1 k2\u{2}UNIQ_KEY\u{1}0A0B0C0D00002A9F0000000000000001\u{2}TAGS\u{1}TagA";
    let first = append_one(&log, message("TopicTest", 3, b"hello", properties)).unwrap();
    time.store(0x01A2_296F_5481, Ordering::Release);
    let mut second = message(
        "TopicTest",
        3,
        b"",
        "UNIQ_KEY\u{1}0A0B0C0D00002A9F0000000000000001",
    );
    second.born_host = "[::1]:1234".parse().unwrap();
    second.store_host = "[fe80::1]:10911".parse().unwrap();
    let second = append_one(&log, second).unwrap();
    assert_eq!(
        (
            first.size,
            second.physical_offset.get(),
            second.queue_offset.get()
        ),
        (167, 167, 1)
    );
    log.close().unwrap();

    let hex = "000000a7daa320a73610a686000000030000000700000000000000000000000000000000000000000000018bcfe56800\
               7f000001000004d2000001a2296f545b0a0b0c0d00002a9f0000000000000000000000000000000568656c6c6f09546f\
               70696354657374003e4b455953016b31206b3202554e49515f4b45590130413042304330443030303032413946303030\
               3030303030303030303030303102544147530154616741000000a5daa320a70000000000000003000000070000000000\
               00000100000000000000a7000000300000018bcfe5680000000000000000000000000000000001000004d2000001a229\
               6f5481fe80000000000000000000000000000100002a9f0000000000000000000000000000000009546f706963546573\
               740029554e49515f4b4559013041304230433044303030303241394630303030303030303030303030303031";
    let bytes = std::fs::read(folder.path().join("commitlog/00000000000000000000")).unwrap();
    let written: String = bytes[..332]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(written, hex);
    assert!(bytes[332..].iter().all(|byte| *byte == 0));
}

#[test]
fn records_follow_each_other_and_a_file_ends_with_a_mark_where_the_next_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(&small_config(folder.path()), &real());
    let body = vec![b'x'; 5000];
    let results: Vec<_> = (0..10)
        .map(|_| append_one(&log, message("T", 0, &body, "")).unwrap())
        .collect();
    // 5092 bytes each: three in a file of 16384.
    let size = 91 + 5000 + 1;
    for (index, result) in results.iter().enumerate() {
        let expected = (index / 3 * 16_384 + index % 3 * size) as i64;
        assert_eq!(
            (result.physical_offset.get(), result.queue_offset.get()),
            (expected, index as i64)
        );
        assert_eq!(
            record(&log, result.physical_offset, result.size).body(),
            body
        );
    }
    log.close().unwrap();
    let first = std::fs::read(folder.path().join("commitlog/00000000000000000000")).unwrap();
    let mark = [
        &(16_384 - 3 * size as i32).to_be_bytes()[..],
        &[0xCB, 0xD4, 0x31, 0x94],
    ]
    .concat();
    assert_eq!(first[3 * size..3 * size + 8], mark);
    let names: Vec<_> = real()
        .list(&folder.path().join("commitlog"))
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(
        names.len(),
        4,
        "the file made ahead is removed by a clean stop: {names:?}"
    );
    assert!(!folder.path().join("abort").exists());
}

#[test]
fn a_record_may_leave_exactly_the_mark_and_one_byte_more_goes_to_the_next_file() {
    let (_, disk) = simulated();
    let (log, _) = open(&small_config("/s"), &disk);
    let body_len = |record: usize| record - 92;
    let exact = vec![1; body_len(16_384 / 2 - 4)];
    let longer = vec![2; body_len(16_384 / 2 - 3)];
    for _ in 0..2 {
        append_one(&log, message("T", 0, &exact, "")).unwrap();
    }
    let third = append_one(&log, message("T", 0, &exact, "")).unwrap();
    assert_eq!(third.physical_offset.get(), 16_384);
    let fourth = append_one(&log, message("T", 0, &longer, "")).unwrap();
    assert_eq!(fourth.physical_offset.get(), 2 * 16_384);
    drop(log);
    let (log, queues) = open(&small_config("/s"), &disk);
    assert_eq!(queues.records.len(), 4);
    drop(log);
}

#[test]
fn what_cannot_be_stored_is_refused_by_name_and_burns_nothing() {
    let (_, disk) = simulated();
    let (log, _) = open(&small_config("/s"), &disk);
    log.reconfigure(&StoreConfig {
        max_message_size: 100_000,
        ..small_config("/s")
    });
    let long = vec![0; 100_001];
    let larger_than_file = vec![0; 16_384 - 92 - 8 + 1];
    let long_topic = "t".repeat(128);
    let properties = format!("a\u{1}{}", "x".repeat(32_766));
    let cases: Vec<(AppendOutcome, AppendError)> = vec![
        (
            append_one(&log, message("T", 0, &long, "")),
            AppendError::BodyTooLong {
                len: 100_001,
                max: 100_000,
            },
        ),
        (
            append_one(&log, message(&long_topic, 0, b"", "")),
            AppendError::TopicIllegal { len: 128 },
        ),
        (
            append_one(&log, message("", 0, b"", "")),
            AppendError::TopicIllegal { len: 0 },
        ),
        (
            append_one(&log, message("T", 0, b"", &properties)),
            AppendError::PropertiesTooLong { len: 32_768 },
        ),
        (
            append_one(&log, message("T", 0, &larger_than_file, "")),
            AppendError::LargerThanFile {
                len: 16_377,
                file_size: 16_384,
            },
        ),
    ];
    for (outcome, expected) in cases {
        assert_eq!(outcome, Err(expected));
    }
    let torn = append_one(&log, message("T", 0, b"", "a\u{1}b\0"));
    assert!(
        matches!(torn, Err(AppendError::PropertiesIllegal { .. })),
        "{torn:?}"
    );
    assert_eq!(log.log().max_offset(), PhysicalOffset(0));
    assert_eq!(
        append_one(&log, message("T", 0, b"ok", ""))
            .unwrap()
            .queue_offset
            .get(),
        0
    );
    assert_eq!(log.counters().refused_messages.load(Ordering::Relaxed), 6);
}

#[test]
fn a_batch_is_stored_whole_in_one_file_or_not_at_all() {
    let (_, disk) = simulated();
    let (log, _) = open(&small_config("/s"), &disk);
    let body = vec![1; 3000];
    let single = append_one(&log, message("T", 0, &[2; 6000], "")).unwrap();
    let mut batch: Vec<_> = (0..4).map(|_| message("T", 0, &body, "")).collect();
    batch[1..]
        .iter_mut()
        .for_each(|message| message.joins_previous = true);
    let mut outcomes = Vec::new();
    log.append_blocking(&batch, &mut outcomes);
    let results: Vec<_> = outcomes.drain(..).map(Result::unwrap).collect();
    let places: Vec<_> = results
        .iter()
        .map(|result| (result.physical_offset.get(), result.queue_offset.get()))
        .collect();
    assert_eq!(places, [(16_384, 1), (19_476, 2), (22_568, 3), (25_660, 4)]);
    assert!(
        results
            .iter()
            .all(|result| result.store_timestamp == results[0].store_timestamp)
    );
    assert_eq!(single.queue_offset.get(), 0);

    // One that is too long for its own sake takes the others with it; one after the batch is unaffected.
    let long = vec![0; 13_000];
    let bad = [
        message("T", 0, &body, ""),
        minimq_store::AppendMessage {
            joins_previous: true,
            ..message("T", 0, &long, "")
        },
        message("T", 0, &body, ""),
    ];
    log.append_blocking(&bad, &mut outcomes);
    assert_eq!(outcomes[0], Err(AppendError::BatchRefused));
    assert_eq!(
        outcomes[1],
        Err(AppendError::BodyTooLong {
            len: 13_000,
            max: 12_288
        })
    );
    assert_eq!(outcomes[2].as_ref().unwrap().queue_offset.get(), 5);

    // Together longer than a file.
    outcomes.clear();
    let mut batch: Vec<_> = (0..6).map(|_| message("T", 0, &body, "")).collect();
    batch[1..]
        .iter_mut()
        .for_each(|message| message.joins_previous = true);
    log.append_blocking(&batch, &mut outcomes);
    assert!(outcomes.iter().all(|outcome| matches!(
        outcome,
        Err(AppendError::LargerThanFile { len: 18_552, .. })
    )));
}

#[test]
fn half_messages_and_rollbacks_take_no_number_of_the_queue() {
    let (_, disk) = simulated();
    let (log, _) = open(&small_config("/s"), &disk);
    let offset = |sys_flag, prepared| {
        let mut message = message("T", 1, b"x", "");
        (message.sys_flag, message.prepared_transaction_offset) = (sys_flag, prepared);
        let result = append_one(&log, message).unwrap();
        let stored = record(&log, result.physical_offset, result.size);
        assert_eq!(
            (stored.sys_flag(), stored.prepared_transaction_offset()),
            (sys_flag, prepared)
        );
        assert_eq!(stored.queue_offset(), result.queue_offset.get());
        result.queue_offset.get()
    };
    assert_eq!(
        [
            offset(0, 0),
            offset(0x4, 0),
            offset(0x8, 77),
            offset(0xC, 77),
            offset(0, 0)
        ],
        [0, 0, 1, 0, 2]
    );
    assert_eq!(log.next_queue_offset("T", 1).get(), 3);
}

#[test]
fn queue_offsets_go_on_after_a_clean_stop_and_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_config(folder.path());
    for round in 0..4 {
        let (log, _) = open(&config, &real());
        assert_eq!(log.report().clean, round % 2 == 0);
        for queue_id in 0..3 {
            let result = append_one(&log, message("T", queue_id, b"m", "")).unwrap();
            assert_eq!(result.queue_offset.get(), round);
        }
        if round % 2 == 1 {
            log.close().unwrap();
        }
    }
}

#[test]
fn a_store_is_opened_by_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_config(folder.path());
    let (log, _) = open(&config, &real());
    let second = LogStore::open(
        &config,
        real(),
        StoreClock::System,
        &mut NotedQueues::default(),
        |_| {},
    );
    assert!(
        matches!(second, Err(StoreError::Locked { .. })),
        "{second:?}"
    );
    log.close().unwrap();
    drop(log);
    assert_eq!(std::fs::read(folder.path().join("lock")).unwrap(), b"lock");
    open(&config, &real()).0.close().unwrap();
}

#[test]
fn files_are_spread_over_several_folders_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_config(folder.path());
    config.store_path_commit_log = ["b", "a"].map(|name| folder.path().join(name)).to_vec();
    let (log, _) = open(&config, &real());
    let results: Vec<_> = (0..8)
        .map(|_| append_one(&log, message("T", 0, &[5; 9000], "")).unwrap())
        .collect();
    log.close().unwrap();
    let bases = |name: &str| -> Vec<i64> {
        let list = real().list(&folder.path().join(name)).unwrap();
        list.iter()
            .map(|entry| entry.name.parse::<i64>().unwrap() / 16_384)
            .collect()
    };
    assert_eq!(
        (bases("a"), bases("b")),
        (vec![0, 2, 4, 6], vec![1, 3, 5, 7])
    );
    let (log, queues) = open(&config, &real());
    assert_eq!(queues.records.len(), results.len());
    for result in results {
        assert_eq!(
            record(&log, result.physical_offset, result.size).body(),
            [5; 9000]
        );
    }
    log.close().unwrap();
}

#[test]
fn group_commit_answers_when_it_is_durable_and_many_with_one_sync() {
    let (raw, disk) = simulated();
    let (log, _) = open(&sync_config(), &disk);
    let begin = warm(&log);
    raw.hold_syncs(true);
    let (sender, answers) = std::sync::mpsc::channel();
    let wait = |end| {
        let sender = sender.clone();
        log.wait_flushed(
            end,
            Box::new(move |outcome| sender.send((end, outcome)).unwrap()),
        );
    };
    let ends: Vec<_> = (0..20)
        .map(|_| {
            let mut outcomes = Vec::new();
            assert!(matches!(
                log.append(&[message("T", 0, b"m", "")], &mut outcomes),
                Appended::All
            ));
            let end = outcomes.remove(0).unwrap().end();
            wait(end);
            end
        })
        .collect();
    assert!(ends[0] > begin);
    eventually("a sync is running", || raw.held_syncs() > 0);
    assert!(answers.try_recv().is_err());
    let before = log.counters().flushes.load(Ordering::Relaxed);
    raw.hold_syncs(false);
    let mut answered: Vec<_> = (0..20).map(|_| answers.recv().unwrap()).collect();
    answered.sort_by_key(|(end, _)| *end);
    assert_eq!(
        answered,
        ends.iter()
            .map(|end| (*end, FlushOutcome::Flushed))
            .collect::<Vec<_>>()
    );
    assert!(log.counters().flushes.load(Ordering::Relaxed) - before <= 2);
    assert!(log.log().flushed_offset() >= *ends.last().unwrap());
    // What is durable already is answered at once.
    assert_eq!(wait_flushed(&log, ends[3]), FlushOutcome::Flushed);
}

#[test]
fn a_failed_sync_is_told_to_all_and_nothing_is_taken_any_more() {
    let (raw, disk) = simulated();
    let (log, _) = open(&sync_config(), &disk);
    let kept = append_one(&log, message("T", 0, b"kept", "")).unwrap();
    assert_eq!(wait_flushed(&log, kept.end()), FlushOutcome::Flushed);
    raw.fail(Operation::Sync, "commitlog", EIO);
    let lost = append_one(&log, message("T", 0, b"lost", "")).unwrap();
    let FlushOutcome::Failed(refusal) = wait_flushed(&log, lost.end()) else {
        panic!("acknowledged")
    };
    assert!(
        refusal
            .to_string()
            .contains("commitlog/00000000000000000000: sync failed"),
        "{refusal}"
    );
    assert!(refusal.until_restart);

    // Not even when the disk seems well again: nobody knows what it lost.
    raw.heal();
    assert_eq!(
        append_one(&log, message("T", 0, b"more", "")),
        Err(AppendError::Refused(Arc::clone(&refusal)))
    );
    assert_eq!(
        wait_flushed(&log, lost.end()),
        FlushOutcome::Failed(refusal)
    );
    assert!(log.close().is_err());
    assert!(
        raw.exists(Path::new("/s/abort")),
        "the next start has to look closer"
    );
    drop(log);
    let (log, queues) = open(&sync_config(), &disk);
    assert!(!queues.records.is_empty());
    append_one(&log, message("T", 0, b"again", "")).unwrap();
}

#[test]
fn a_failed_sync_of_the_next_file_shuts_the_store_as_one_of_the_current_does() {
    let (raw, disk) = simulated();
    let config = StoreConfig {
        mapped_file_size_commit_log: 5 << 20,
        max_message_size: 1 << 20,
        populate_idle_bytes: 4096,
        populate_load_bytes: 4096,
        ..sync_config()
    };
    let (log, _) = open(&config, &disk);
    warm(&log);
    eventually("the next file is made", || {
        log.counters().files_made.load(Ordering::Relaxed) == 2
    });
    // The system tells of a failed write once, to whoever syncs first: here to the thread that makes files ready.
    raw.fail(Operation::Sync, "00000000000005242880", EIO);
    let body = vec![7; 900 << 10];
    for _ in 0..5 {
        let _ = append_one(&log, message("T", 0, &body, ""));
    }
    eventually("the store is shut", || log.gate().failure().is_some());
    let Err(AppendError::Refused(refusal)) = append_one(&log, message("T", 0, b"more", "")) else {
        panic!("taken after a failed sync")
    };
    assert!(refusal.until_restart, "{refusal}");
    assert!(
        refusal.to_string().contains("00000000000005242880"),
        "{refusal}"
    );
    assert!(log.close().is_err());
}

#[test]
fn pages_are_made_ready_while_making_the_next_file_hangs() {
    let (raw, disk) = simulated();
    let config = StoreConfig {
        mapped_file_size_commit_log: 4 << 20,
        max_message_size: 1 << 20,
        populate_idle_bytes: 64 << 10,
        populate_load_bytes: 64 << 10,
        ..small_config("/s")
    };
    let (log, _) = open(&config, &disk);
    append_one(&log, message("T", 0, b"", "")).unwrap();
    eventually("the second file is made", || {
        log.counters().files_made.load(Ordering::Relaxed) == 2
    });
    raw.hold_syncs(true);
    let body = vec![7; 200 << 10];
    // The first file and most of the second, while the third is being made.
    let mut end = 0;
    while end < 7 << 20 {
        end = append_one(&log, message("T", 0, &body, ""))
            .unwrap()
            .end()
            .get();
    }
    assert_eq!(log.counters().files_made.load(Ordering::Relaxed), 2);
    raw.hold_syncs(false);
    eventually("the third file is made", || {
        log.counters().files_made.load(Ordering::Relaxed) == 3
    });
}

#[test]
fn a_sync_that_hangs_is_told_as_running_when_the_time_is_up() {
    let (raw, disk) = simulated();
    let config = StoreConfig {
        sync_flush_timeout_ms: 20,
        ..sync_config()
    };
    let (log, _) = open(&config, &disk);
    warm(&log);
    raw.hold_syncs(true);
    let result = append_one(&log, message("T", 0, b"m", "")).unwrap();
    assert_eq!(wait_flushed(&log, result.end()), FlushOutcome::TimedOut);
    raw.hold_syncs(false);
    eventually("the sync ends", || {
        log.log().flushed_offset() >= result.end()
    });
}

#[test]
fn dispatch_sees_only_what_is_flushed_where_that_is_promised() {
    let (raw, disk) = simulated();
    let (log, _) = open(&sync_config(), &disk);
    let begin = warm(&log);
    raw.hold_syncs(true);
    let mut outcomes = Vec::new();
    assert!(matches!(
        log.append(&[message("T", 0, b"m", "")], &mut outcomes),
        Appended::All
    ));
    assert_eq!(log.log().dispatch_limit(), begin);
    raw.hold_syncs(false);
    let end = outcomes.remove(0).unwrap().end();
    eventually("it is flushed though nobody waits", || {
        log.log().dispatch_limit() == end
    });

    log.log().set_dispatch_cap(Some(PhysicalOffset(10)));
    assert_eq!(log.log().dispatch_limit(), PhysicalOffset(10));
    log.log().set_dispatch_cap(None);
    assert_eq!(log.log().dispatch_limit(), end);
}

#[test]
fn background_flush_and_checkpoint_advance_by_themselves() {
    let (raw, disk) = simulated();
    let config = StoreConfig {
        flush_interval_commit_log_ms: 1,
        flush_commit_log_thorough_interval_ms: 1,
        ..small_config("/s")
    };
    let (log, _) = open(&config, &disk);
    let result = append_one(&log, message("T", 0, b"m", "")).unwrap();
    eventually("flushed", || log.log().flushed_offset() == result.end());
    eventually("checkpoint", || {
        raw.content(Path::new("/s/checkpoint"))
            .is_some_and(|bytes| bytes[..8] == result.store_timestamp.to_be_bytes())
    });
}

#[test]
fn a_full_disk_refuses_with_path_and_reason_and_takes_messages_again_when_there_is_room() {
    let (raw, disk) = simulated();
    let config = small_config("/s");
    let (log, _) = open(&config, &disk);
    append_one(&log, message("T", 0, b"first", "")).unwrap();
    eventually("the next file is made", || {
        log.counters().files_made.load(Ordering::Relaxed) == 2
    });
    raw.set_capacity(Some(0));
    let mut stored = 1;
    let refused = loop {
        match append_one(&log, message("T", 0, &[1; 3900], "")) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(stored, 1 + 4 + 4, "two files were there");
    let AppendError::NoNextFile(refusal) = refused else {
        panic!("{refused:?}")
    };
    assert!(
        refusal
            .to_string()
            .starts_with("/s/commitlog/00000000000000032768: allocate failed"),
        "{refusal}"
    );
    assert!(
        !raw.exists(Path::new("/s/commitlog/00000000000000032768")),
        "a file half made keeps no space"
    );
    // A message that still fits into the last file is taken.
    append_one(&log, message("T", 0, b"small", "")).unwrap();
    raw.set_capacity(None);
    eventually("messages are taken again", || {
        append_one(&log, message("T", 0, &[1; 4000], "")).is_ok()
    });
    assert!(log.gate().check().is_ok());
    drop(log);
    let (_log, queues) = open(&config, &disk);
    assert_eq!(queues.records.len(), stored + 2);
}

#[test]
fn bytes_in_hand_survive_the_deletion_of_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(&small_config(folder.path()), &real());
    let results: Vec<_> = (0..6)
        .map(|_| append_one(&log, message("T", 0, &[9; 9000], "")).unwrap())
        .collect();
    let held = record(&log, results[0].physical_offset, results[0].size);
    let (path, min) = log.log().delete_oldest_file().unwrap().unwrap();
    assert!(!path.exists());
    assert_eq!(
        (min, log.log().min_offset()),
        (PhysicalOffset(16_384), PhysicalOffset(16_384))
    );
    assert_eq!(held.body(), [9; 9000]);
    let gone = log
        .log()
        .read(results[0].physical_offset, results[0].size as usize, true)
        .unwrap();
    assert_eq!(gone, LogRead::Absent);
    while log.log().delete_oldest_file().unwrap().is_some() {}
    assert_eq!(
        log.log().file_list().len(),
        1,
        "the file that is written stays"
    );
    log.close().unwrap();
    drop(log);
    let (log, _) = open(&small_config(folder.path()), &real());
    assert_eq!(
        append_one(&log, message("T", 0, b"next", ""))
            .unwrap()
            .queue_offset
            .get(),
        6
    );
}

#[test]
fn cold_bytes_are_read_from_the_file_and_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        hot_window_bytes: 20_000,
        ..small_config(folder.path())
    };
    let (log, _) = open(&config, &real());
    let body = |index: usize| vec![index as u8; 3000];
    let results: Vec<_> = (0..60)
        .map(|index| append_one(&log, message("T", 0, &body(index), "")).unwrap())
        .collect();
    eventually("old bytes are cold", || {
        !log.log().is_hot(results[40].physical_offset)
    });
    assert!(log.log().is_hot(results[58].physical_offset));
    for (index, result) in results.iter().enumerate() {
        assert_eq!(
            record(&log, result.physical_offset, result.size).body(),
            body(index)
        );
    }
    let beyond = log.log().read(log.log().max_offset(), 1, true).unwrap();
    assert_eq!(beyond, LogRead::Absent);
    log.close().unwrap();
}

#[test]
fn a_slave_takes_its_masters_bytes_and_no_messages() {
    let (_, master_disk) = simulated();
    let (master, _) = open(&small_config("/s"), &master_disk);
    let results: Vec<_> = (0..8)
        .map(|_| append_one(&master, message("T", 0, &[3; 4000], "")).unwrap())
        .collect();
    let (_, disk) = simulated();
    let config = StoreConfig {
        role: StoreRole::Slave,
        ..small_config("/s")
    };
    let (slave, _) = open(&config, &disk);
    assert!(matches!(
        append_one(&slave, message("T", 0, b"m", "")),
        Err(AppendError::Refused(_))
    ));

    // From the second file on, in pieces that cut records anywhere.
    let (mut at, end) = (PhysicalOffset(16_384), master.log().max_offset());
    while at < end {
        let left = (end.get() - at.get())
            .min(master.log().next_file_start(at).get() - at.get())
            .min(1500);
        let LogRead::Found(bytes) = master.log().read(at, left as usize, true).unwrap() else {
            panic!()
        };
        match slave.append_replica(at, &bytes).unwrap() {
            ReplicaAppended::All { end } => at = end,
            ReplicaAppended::Waiting(ticket) => {
                assert!(slave.wait_room(ticket, Instant::now() + LONG));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        (slave.log().min_offset(), slave.log().max_offset()),
        (PhysicalOffset(16_384), end)
    );
    let wrong = slave.append_replica(PhysicalOffset(5), b"x").unwrap();
    assert!(
        matches!(wrong, ReplicaAppended::WrongPlace { expected } if expected == end),
        "{wrong:?}"
    );
    for result in results
        .iter()
        .filter(|result| result.physical_offset.get() >= 16_384)
    {
        assert_eq!(
            record(&slave, result.physical_offset, result.size).body(),
            [3; 4000]
        );
    }
    slave.close().unwrap();
    drop(slave);
    let mut queues = NotedQueues::default();
    let slave = open_with(&config, &disk, &mut queues);
    assert_eq!(slave.log().max_offset(), end);
    assert_eq!(
        queues.records.len(),
        results
            .iter()
            .filter(|result| result.physical_offset.get() >= 16_384)
            .count()
    );
}

#[test]
fn many_threads_append_and_each_record_is_whole_and_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        mapped_file_size_commit_log: 256 * 1024,
        ..small_config(folder.path())
    };
    let (log, _) = open(&config, &real());
    let log = Arc::new(log);
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                let mut outcomes = Vec::new();
                for round in 0..200_u32 {
                    let body = [&[thread as u8][..], &round.to_be_bytes()].concat();
                    let batch: Vec<_> = (0..5)
                        .map(|queue_id| message("T", queue_id, &body, ""))
                        .collect();
                    log.append_blocking(&batch, &mut outcomes);
                }
                outcomes.into_iter().map(Result::unwrap).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut results: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    results.sort_by_key(|result| result.physical_offset);
    assert_eq!(results.len(), 4 * 200 * 5);
    log.close().unwrap();
    drop(log);
    let (_log, queues) = open(&config, &real());
    let noted: Vec<_> = queues
        .records
        .iter()
        .map(|noted| (noted.at, noted.queue_offset))
        .collect();
    let expected: Vec<_> = results
        .iter()
        .map(|result| (result.physical_offset.get(), result.queue_offset.get()))
        .collect();
    assert_eq!(noted, expected);
    for queue_id in 0..5 {
        let offsets: Vec<_> = queues
            .records
            .iter()
            .filter(|noted| noted.queue_id == queue_id)
            .map(|noted| noted.queue_offset)
            .collect();
        assert_eq!(offsets, (0..800).collect::<Vec<_>>());
    }
}
