//! Deleted topics stay so, whatever the next starts have to make again, and topics of their names begin at 0.

mod support;

use std::path::Path;
use std::sync::{Arc, Mutex};

use minimq_store::io::{Disk, Operation, SimulatedDisk};
use minimq_store::{AppendResult, Appended, QueueOffset, Store, StoreConfig, StoreError};
use support::store::{append, bodies, dispatched, open, simulated, until};
use support::{message, small_config};

/// As after a power cut that left nothing of a topic's queues.
fn remove_queues(disk: &SimulatedDisk, topic: &str) {
    let topic = Path::new("/s/consumequeue").join(topic);
    for path in disk.paths() {
        if path.starts_with(&topic) {
            disk.remove_file(&path).unwrap();
        }
    }
    for queue in disk.list(&topic).unwrap() {
        disk.remove_folder(&topic.join(queue.name)).unwrap();
    }
    disk.remove_folder(&topic).unwrap();
}

fn catalogue(disk: &SimulatedDisk) -> String {
    String::from_utf8(disk.content(Path::new("/s/queues")).unwrap()).unwrap()
}

#[test]
fn a_deleted_topic_starts_again_at_zero_also_after_a_crash() {
    let (_, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    for _ in 0..5 {
        append(&store, message("t", 0, b"old", ""));
    }
    append(&store, message("kept", 0, b"kept", ""));
    dispatched(&store);
    assert_eq!(store.delete_topic("t").unwrap(), 1);
    assert_eq!(store.reader().max_offset("t", 0), QueueOffset(0));
    let new = append(&store, message("t", 0, b"new", ""));
    assert_eq!(new.queue_offset, QueueOffset(0));
    append(&store, message("t", 0, b"newer", ""));
    dispatched(&store);
    assert_eq!(bodies(&store, "t", 0), ["new", "newer"]);
    drop(store);
    // Nothing was flushed: the queues are made from the log, which still has the old messages.
    let store = open(&config, &disk);
    assert_eq!(bodies(&store, "t", 0), ["new", "newer"]);
    assert_eq!(
        append(&store, message("t", 0, b"third", "")).queue_offset,
        QueueOffset(2)
    );
    let unused = store.clean_unused_topics(&["t".to_owned()].into()).unwrap();
    assert_eq!(unused.iter().map(|t| &**t).collect::<Vec<_>>(), ["kept"]);
}

#[test]
fn a_topic_deleted_before_its_messages_reached_its_queues_keeps_those_sent_after() {
    let (_, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    append(&store, message("t", 0, b"old", ""));
    dispatched(&store);
    store.log().set_dispatch_cap(Some(store.log().max_offset()));
    append(&store, message("t", 0, b"on its way", ""));
    store.delete_topic("t").unwrap();
    let new = append(&store, message("t", 0, b"new", ""));
    assert_eq!(new.queue_offset, QueueOffset(0));
    store.log().set_dispatch_cap(None);
    dispatched(&store);
    assert_eq!(bodies(&store, "t", 0), ["new"]);
    // Deleted once more while nothing of it is on its way.
    store.delete_topic("t").unwrap();
    append(&store, message("t", 0, b"newest", ""));
    dispatched(&store);
    assert_eq!(bodies(&store, "t", 0), ["newest"]);
    store.close().unwrap();
    drop(store);
    assert_eq!(bodies(&open(&config, &disk), "t", 0), ["newest"]);
}

#[test]
fn a_deleted_topic_stays_deleted_and_costs_no_start_a_look_at_the_whole_log() {
    let (_, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    while store.log().file_list().len() < 8 {
        append(&store, message("kept", 0, &[1; 2_000], ""));
    }
    for number in 0..20 {
        append(&store, message("again", 0, &[2; 500], ""));
        append(&store, message("gone", number % 2, &[3; 500], ""));
    }
    dispatched(&store);
    let kept = store.reader().max_offset("kept", 0);
    store.delete_topic("gone").unwrap();
    store.delete_topic("again").unwrap();
    append(&store, message("again", 0, b"new", ""));
    dispatched(&store);
    store.log_store().flush().unwrap();
    store.flush_queues().unwrap();
    let reader = |store: &Store| {
        let max = |topic: &str| store.reader().max_offset(topic, 0).get();
        (max("gone"), max("again"), max("kept"))
    };
    let expected = (0, 1, kept.get());
    assert_eq!(reader(&store), expected);
    drop(store);
    for round in 0..4 {
        let store = open(&config, &disk);
        assert_eq!(reader(&store), expected, "round {round}");
        assert_eq!(store.log_store().next_queue_offset("gone", 1).get(), 0);
        let report = store.log_store().report();
        assert!(report.scanned_from.get() > 0, "round {round}: {report:?}");
        // After a crash, after clean stops, and after a crash again.
        if round != 2 {
            store.close().unwrap();
        }
    }
    let store = open(&config, &disk);
    assert_eq!(
        append(&store, message("gone", 0, b"new", "")).queue_offset,
        QueueOffset(0)
    );
    assert_eq!(
        append(&store, message("again", 0, b"newer", "")).queue_offset,
        QueueOffset(1)
    );
}

#[test]
fn a_deleted_topic_stays_deleted_when_a_crash_follows_a_start_that_made_queues_again() {
    let (simulated, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    for _ in 0..5 {
        append(&store, message("kept", 0, b"kept", ""));
        append(&store, message("gone", 0, b"gone", ""));
    }
    store.delete_topic("gone").unwrap();
    drop(store);
    for _ in 0..3 {
        // The queue is made again from the whole log, in which the deleted messages are.
        remove_queues(&simulated, "kept");
        let store = open(&config, &disk);
        let reader = store.reader();
        assert_eq!(reader.max_offset("gone", 0), QueueOffset(0));
        assert_eq!(reader.max_offset("kept", 0), QueueOffset(5));
        // And a crash comes after the checkpoint says that its entries are not on disk, before they are.
        store.log_store().checkpoint().write().unwrap();
    }
}

#[test]
fn of_a_deleted_topic_not_even_the_number_of_a_damaged_record_stays() {
    let (simulated, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    let broken = append(&store, message("gone", 0, &[7; 1_000], ""));
    append(&store, message("gone", 0, b"whole", ""));
    append(&store, message("kept", 0, b"kept", ""));
    store.log_store().flush().unwrap();
    drop(store);
    let path = Path::new("/s/commitlog/00000000000000000000");
    let mut bytes = simulated.content(path).unwrap();
    bytes[broken.physical_offset.get() as usize + 200] = 0;
    simulated.put(path, bytes);
    let store = open(&config, &disk);
    assert_eq!(store.log_store().report().damaged.len(), 1);
    store.delete_topic("gone").unwrap();
    drop(store);
    remove_queues(&simulated, "kept");
    // The whole log is looked at.
    let store = open(&config, &disk);
    assert_eq!(store.reader().max_offset("kept", 0), QueueOffset(1));
    assert_eq!(store.reader().max_offset("gone", 0), QueueOffset(0));
    let new = append(&store, message("gone", 0, b"new", ""));
    assert_eq!(new.queue_offset, QueueOffset(0));
}

#[test]
fn a_queue_that_cannot_be_deleted_holds_up_neither_dispatch_nor_the_end() {
    const EIO: i32 = 5;
    let (simulated, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    for _ in 0..100 {
        append(&store, message("t", 0, b"old", ""));
    }
    dispatched(&store);
    simulated.fail(Operation::Remove, "consumequeue/t", EIO);
    assert!(store.delete_topic("t").is_err());
    append(&store, message("u", 0, b"other", ""));
    dispatched(&store);
    append(&store, message("t", 0, b"new", ""));
    until(|| store.dispatcher().trouble().is_some());
    simulated.heal();
    dispatched(&store);
    assert_eq!(bodies(&store, "t", 0), ["new"]);
    store.flush_queues().unwrap();
    simulated.fail(Operation::Remove, "consumequeue/t", EIO);
    assert!(store.delete_topic("t").is_err());
    store.close().unwrap();
}

#[test]
fn a_topic_that_began_again_stays_without_its_old_messages_though_the_first_new_one_is_lost() {
    let (simulated, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    for _ in 0..5 {
        append(&store, message("t", 0, b"old", ""));
    }
    assert_eq!(store.delete_topic("t").unwrap(), 1);
    let lost = append(&store, message("t", 0, b"lost", ""));
    // Its queue tells where the log goes on.
    append(&store, message("kept", 0, b"kept", ""));
    append(&store, message("t", 0, b"new", ""));
    dispatched(&store);
    store.log_store().flush().unwrap();
    store.flush_queues().unwrap();
    drop(store);
    // Not even its head is left, and the queue has to be made again from the log.
    let log = Path::new("/s/commitlog/00000000000000000000");
    let mut bytes = simulated.content(log).unwrap();
    let (from, to) = (lost.physical_offset.get(), lost.end().get());
    bytes[from as usize..to as usize].fill(0);
    simulated.put(log, bytes);
    remove_queues(&simulated, "t");
    let store = open(&config, &disk);
    assert_eq!(bodies(&store, "t", 0), ["new"]);
    let reader = store.reader();
    let (min, max) = (reader.min_offset("t", 0), reader.max_offset("t", 0));
    assert_eq!((min, max), (QueueOffset(1), QueueOffset(2)));
    assert_eq!(bodies(&store, "kept", 0), ["kept"]);
}

#[test]
fn new_messages_at_places_of_deleted_ones_that_were_lost_count() {
    let (simulated, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    while store.log().file_list().len() < 3 {
        append(&store, message("t", 0, &[b'o'; 2_000], ""));
    }
    store.delete_topic("t").unwrap();
    let deleted_below = store.log().max_offset();
    append(&store, message("kept", 0, b"kept", ""));
    dispatched(&store);
    store.flush_queues().unwrap();
    drop(store);
    let last = Path::new("/s/commitlog/00000000000000032768");
    disk.remove_file(last).unwrap();
    let store = open(&config, &disk);
    let new = append(&store, message("t", 0, b"new", ""));
    assert!(new.physical_offset < deleted_below, "{new:?}");
    dispatched(&store);
    store.log_store().flush().unwrap();
    drop(store);
    remove_queues(&simulated, "t");
    let store = open(&config, &disk);
    assert_eq!(bodies(&store, "t", 0), ["new"]);
}

#[test]
fn a_deletion_that_a_stop_came_into_is_ended_by_the_next_start() {
    const EIO: i32 = 5;
    // The second queue's files are still there, or the list of queues is not written after they went.
    for files_are_left in [true, false] {
        let (simulated, disk) = simulated();
        let config = small_config("/s");
        let store = open(&config, &disk);
        for number in 0..10 {
            append(&store, message("t", number % 2, b"old", ""));
            append(&store, message("kept", 0, b"kept", ""));
        }
        dispatched(&store);
        store.flush_queues().unwrap();
        simulated.fail(Operation::Remove, "consumequeue/t/1", EIO);
        assert!(store.delete_topic("t").is_err());
        store.flush_queues().unwrap();
        drop(store);
        simulated.heal();
        if !files_are_left {
            remove_queues(&simulated, "t");
        }
        for _ in 0..2 {
            let store = open(&config, &disk);
            assert_eq!(store.queues().topics(), ["kept".into()]);
            let left = simulated.paths();
            assert!(!left.iter().any(|p| p.starts_with("/s/consumequeue/t")));
            assert_eq!(store.log_store().next_queue_offset("t", 1), QueueOffset(0));
            assert_eq!(bodies(&store, "kept", 0).len(), 10);
            store.close().unwrap();
        }
    }
}

#[test]
fn a_topic_that_began_again_with_a_damaged_message_keeps_its_number() {
    let (simulated, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    append(&store, message("t", 0, b"old", ""));
    store.delete_topic("t").unwrap();
    let broken = append(&store, message("t", 0, &[7; 1_000], ""));
    append(&store, message("kept", 0, b"kept", ""));
    store.log_store().flush().unwrap();
    drop(store);
    let path = Path::new("/s/commitlog/00000000000000000000");
    let mut bytes = simulated.content(path).unwrap();
    bytes[broken.physical_offset.get() as usize + 200] = 0;
    simulated.put(path, bytes);
    for _ in 0..3 {
        let store = open(&config, &disk);
        assert_eq!(store.log_store().damage().ranges().len(), 1);
        assert_eq!(store.log_store().next_queue_offset("t", 0), QueueOffset(1));
        store.close().unwrap();
    }
}

#[test]
fn a_topic_that_another_broker_deleted_stays_so_when_queues_are_made_again_later() {
    let (simulated, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    append(&store, message("gone", 0, b"gone", ""));
    // What lies in the last three files is looked at by each start.
    while store.log().file_list().len() < 5 {
        append(&store, message("kept", 0, &[b'k'; 2_000], ""));
    }
    dispatched(&store);
    let kept = store.reader().max_offset("kept", 0);
    store.close().unwrap();
    drop(store);
    // 4.9.8 knows nothing of our part of the checkpoint.
    remove_queues(&simulated, "gone");
    let path = Path::new("/s/checkpoint");
    let mut checkpoint = simulated.content(path).unwrap();
    checkpoint[7] ^= 1;
    simulated.put(path, checkpoint);
    let store = open(&config, &disk);
    store.flush_queues().unwrap();
    store.close().unwrap();
    drop(store);
    remove_queues(&simulated, "kept");
    let store = open(&config, &disk);
    assert_eq!(store.reader().max_offset("kept", 0), kept);
    assert_eq!(store.reader().max_offset("gone", 0), QueueOffset(0));
}

#[test]
fn a_deletion_is_remembered_as_long_as_the_log_has_messages_from_before() {
    let (simulated, disk) = simulated();
    let config = StoreConfig {
        delete_commit_log_files_interval_ms: 0,
        ..small_config("/s")
    };
    let store = open(&config, &disk);
    append(&store, message("t", 0, b"old", ""));
    append(&store, message("u", 0, b"old", ""));
    store.delete_topic("t").unwrap();
    let said = format!("t\tdeleted\t{}\n", store.log().max_offset());
    assert!(catalogue(&simulated).contains(&said));
    while store.log().file_list().len() < 3 {
        append(&store, message("kept", 0, &[1; 2_000], ""));
    }
    store.delete_topic("u").unwrap();
    store.delete_topic("never").unwrap();
    dispatched(&store);
    store.close().unwrap();
    drop(store);
    // A start does not forget it, nor does what it writes.
    let store = open(&config, &disk);
    store.flush_queues().unwrap();
    assert!(catalogue(&simulated).contains(&said));
    assert!(
        !catalogue(&simulated).contains("never"),
        "it had no message"
    );
    store.log().delete_oldest_file().unwrap().unwrap();
    store.cleaner().round();
    store.flush_queues().unwrap();
    let left = catalogue(&simulated);
    assert!(
        !left.contains(&said) && left.contains("u\tdeleted\t"),
        "{left}"
    );
    // Nor does it outlast a start.
    while store.log().file_list().len() < 5 {
        append(&store, message("kept", 0, &[1; 2_000], ""));
    }
    while store.log().delete_oldest_file().unwrap().is_some() {}
    drop(store);
    let store = open(&config, &disk);
    store.flush_queues().unwrap();
    let left = catalogue(&simulated);
    assert!(
        left.contains("kept\t0\t") && !left.contains("deleted"),
        "{left}"
    );
}

/// Nothing happens by itself.
fn quiet_config() -> StoreConfig {
    StoreConfig {
        flush_interval_commit_log_ms: 3_600_000,
        flush_interval_consume_queue_ms: 3_600_000,
        delete_commit_log_files_interval_ms: 0,
        mapped_file_size_consume_queue: 60,
        ..small_config("/s")
    }
}

/// What a power cut left that came while `work` was done, before the change that `changes` others came before. Before the
/// one that `sent` others came before, messages were sent: two to `t`, the first of which is lost, and between them one to
/// `kept`, whose queue was flushed. Gives the second one's number too; `None` if the work was done before.
fn cut_while(
    store: Store,
    simulated: &SimulatedDisk,
    (sent, changes): (u64, u64),
    work: impl Fn(&Store) -> Result<(), StoreError>,
) -> Option<(SimulatedDisk, QueueOffset)> {
    let store = Arc::new(store);
    let results = Arc::new(Mutex::new(Vec::<AppendResult>::new()));
    let (to, kept) = (Arc::downgrade(&store), Arc::clone(&results));
    simulated.before_change(sent, move || {
        let store = to.upgrade().unwrap();
        let new = [
            message("t", 0, &[0; 2_000], ""),
            message("kept", 0, b"kept", ""),
            message("t", 0, b"second", ""),
        ];
        let mut outcomes = Vec::new();
        assert!(matches!(store.append(&new, &mut outcomes), Appended::All));
        kept.lock()
            .unwrap()
            .extend(outcomes.into_iter().map(Result::unwrap));
    });
    simulated.fail_power_before(changes);
    let result = work(&store);
    let failed = simulated.has_power_failed();
    assert!(failed || result.is_ok(), "{result:?}");
    simulated.fail_power_before(0);
    until(|| Arc::strong_count(&store) == 1);
    drop(store);
    if !failed {
        return None;
    }
    let left = simulated.cut(|| true);
    let results = results.lock().unwrap();
    let [first, between, second] = results.as_slice() else {
        panic!("not sent");
    };
    let file = first.physical_offset.get() / 16_384 * 16_384;
    let path = format!("/s/commitlog/{file:020}");
    let mut log = left.content(Path::new(&path)).unwrap();
    let from = (first.physical_offset.get() - file) as usize;
    log[from..from + first.size as usize].fill(0);
    left.put(Path::new(&path), log);
    let address = between.queue_offset.get() * 20;
    let path = format!("/s/consumequeue/kept/0/{:020}", address / 60 * 60);
    let mut queue = left.content(Path::new(&path)).unwrap_or(vec![0; 60]);
    let entry = &mut queue[(address % 60) as usize..][..20];
    entry[..8].copy_from_slice(&between.physical_offset.get().to_be_bytes());
    entry[8..12].copy_from_slice(&between.size.to_be_bytes());
    left.put(Path::new(&path), queue);
    Some((left, second.queue_offset))
}

/// Every power cut that can come while `work` is done to a store that `prepare` filled, with messages sent at every second
/// moment before.
fn every_cut(
    prepare: impl Fn(&Store),
    work: impl Fn(&Store) -> Result<(), StoreError>,
    check: impl Fn(&Store, QueueOffset, (u64, u64)),
) {
    let config = quiet_config();
    for sent in 0.. {
        for changes in (sent..).step_by(2) {
            let (simulated, disk) = simulated();
            let store = open(&config, &disk);
            prepare(&store);
            let Some((left, number)) = cut_while(store, &simulated, (sent, changes), &work) else {
                if changes == sent {
                    return;
                }
                break;
            };
            let disk: Arc<dyn Disk> = Arc::new(left);
            check(&open(&config, &disk), number, (sent, changes));
        }
    }
}

#[test]
fn a_power_cut_in_a_deletion_leaves_a_topic_whole_or_none_of_it_and_what_was_sent_meanwhile() {
    let prepare = |store: &Store| {
        for number in 0..10 {
            append(store, message("t", number % 2, b"old", ""));
            append(store, message("kept", 0, b"kept", ""));
        }
        dispatched(store);
        store.flush_queues().unwrap();
    };
    let work = |store: &Store| store.delete_topic("t").map(drop);
    every_cut(prepare, work, |store, number, when| {
        let (mut first, second) = (bodies(store, "t", 0), bodies(store, "t", 1));
        // With a number of the old ones it was sent before the deletion took hold, and may be deleted too.
        if !first.is_empty() || number == QueueOffset(1) {
            assert_eq!(first.pop().as_deref(), Some("second"), "{when:?}");
        } else {
            assert_eq!(number, QueueOffset(6), "{when:?}");
        }
        assert!(
            matches!((first.len(), second.len()), (0, 0) | (5, 5)),
            "{when:?}: {first:?} {second:?}"
        );
        assert_eq!(bodies(store, "kept", 0).len(), 11, "{when:?}");
    });
}

#[test]
fn a_power_cut_while_expired_queues_are_deleted_costs_none_of_what_was_sent_meanwhile() {
    let prepare = |store: &Store| {
        for _ in 0..10 {
            append(store, message("t", 0, b"old", ""));
        }
        while store.log().file_list().len() < 3 {
            append(store, message("kept", 0, &[b'k'; 3_000], ""));
        }
        dispatched(store);
        store.log_store().flush().unwrap();
        store.flush_queues().unwrap();
        store.log().delete_oldest_file().unwrap().unwrap();
        store.cleaner().round();
    };
    let work = |store: &Store| {
        let deleted = store.clean_expired_queues()?;
        assert_eq!(deleted, [("t".into(), 0)]);
        Ok(())
    };
    every_cut(prepare, work, |store, _, when| {
        assert_eq!(bodies(store, "t", 0), ["second"], "{when:?}");
    });
}

#[test]
fn a_power_cut_in_the_deletion_of_a_topic_of_damaged_messages_leaves_no_number_taken() {
    let config = quiet_config();
    let mut was_deleted = [false; 2];
    for changes in 0.. {
        let (simulated, disk) = simulated();
        let store = open(&config, &disk);
        let broken = append(&store, message("t", 0, &[7; 1_000], ""));
        append(&store, message("kept", 0, b"kept", ""));
        store.log_store().flush().unwrap();
        drop(store);
        let path = Path::new("/s/commitlog/00000000000000000000");
        let mut bytes = simulated.content(path).unwrap();
        bytes[broken.physical_offset.get() as usize + 200] = 0;
        simulated.put(path, bytes);
        let store = open(&config, &disk);
        assert_eq!(store.log_store().next_queue_offset("t", 0), QueueOffset(1));
        store.flush_queues().unwrap();
        simulated.fail_power_before(changes);
        let result = store.delete_topic("t");
        let failed = simulated.has_power_failed();
        drop(store);
        let left = simulated.cut(|| true);
        let disk: Arc<dyn Disk> = Arc::new(left.clone());
        let deleted = catalogue(&left).contains("t\tdelet");
        was_deleted[usize::from(deleted)] = true;
        let next = open(&config, &disk).log_store().next_queue_offset("t", 0);
        let expected = if deleted { 0 } else { 1 };
        assert_eq!(next, QueueOffset(expected), "before change {changes}");
        if !failed {
            result.unwrap();
            assert_eq!(was_deleted, [true, true]);
            return;
        }
    }
}

#[test]
fn a_topic_that_another_broker_deleted_does_not_come_back_from_the_last_files_after_its_clean_stop()
{
    let (simulated, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    for _ in 0..5 {
        append(&store, message("gone", 0, b"gone", ""));
    }
    append(&store, message("kept", 0, b"kept", ""));
    dispatched(&store);
    store.close().unwrap();
    drop(store);
    // It removes the folders of queues and leaves that of the topic, and knows nothing of our part of the checkpoint.
    let topic = Path::new("/s/consumequeue/gone");
    for path in simulated.paths().iter().filter(|p| p.starts_with(topic)) {
        disk.remove_file(path).unwrap();
    }
    disk.remove_folder(&topic.join("0")).unwrap();
    let path = Path::new("/s/checkpoint");
    let mut checkpoint = simulated.content(path).unwrap();
    checkpoint[7] ^= 1;
    simulated.put(path, checkpoint);
    for round in 0..2 {
        let store = open(&config, &disk);
        assert_eq!(store.reader().max_offset("gone", 0), QueueOffset(round));
        assert_eq!(bodies(&store, "kept", 0), ["kept"]);
        let new = append(&store, message("gone", 0, b"new", ""));
        assert_eq!(new.queue_offset, QueueOffset(round));
        store.close().unwrap();
    }
}
