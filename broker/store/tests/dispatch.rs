//! Dispatch: from the log into queues and index, held back where it must be, going on where it was held up.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use minimq_protocol::hash::tags_code;
use minimq_store::consume_queue::ExtUnit;
use minimq_store::io::{Disk, Operation};
use minimq_store::{
    AppendMessage, Appended, Blocking, DispatchListener, Dispatched, FlushDiskType, GetRequest,
    GetResult, GetStatus, MessageFilter, NoFilter, PhysicalOffset, QueueOffset, Store, StoreConfig,
};
use parking_lot::Mutex;
use support::store::{LONG, append, dispatched, messages_of, open, simulated, until};
use support::{message, small_config};

fn get_with(
    store: &Store,
    offset: i64,
    filter: &mut dyn MessageFilter,
) -> (GetResult, Vec<String>) {
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
        .get(&request, filter, Blocking::Allowed, &mut records)
        .unwrap();
    let body = |record| {
        let record = minimq_protocol::message::MessageView::parse(record).unwrap();
        String::from_utf8(record.body().to_vec()).unwrap()
    };
    (result, records.into_iter().map(body).collect())
}

fn get(store: &Store, offset: i64) -> (GetResult, Vec<String>) {
    get_with(store, offset, &mut NoFilter)
}

#[test]
fn the_statuses_of_a_get_are_those_of_the_spec() {
    let (_, disk) = simulated();
    let store = open(&small_config("/s"), &disk);
    let status = |offset| {
        let (result, _) = get(&store, offset);
        (result.status, result.next_begin_offset.get())
    };
    assert_eq!(status(0), (GetStatus::NoMessageInQueue, 0));
    assert_eq!(status(9), (GetStatus::NoMessageInQueue, 0));
    for n in 0..5 {
        append(
            &store,
            message(
                "t",
                0,
                format!("m{n}").as_bytes(),
                if n == 3 { "TAGS\u{1}a" } else { "" },
            ),
        );
    }
    dispatched(&store);
    assert_eq!(status(-1), (GetStatus::OffsetTooSmall, 0));
    assert_eq!(status(5), (GetStatus::OffsetOverflowOne, 5));
    assert_eq!(status(6), (GetStatus::OffsetOverflowBadly, 5));
    let (result, bodies) = get(&store, 3);
    assert_eq!(
        (result.status, result.count, result.next_begin_offset.get()),
        (GetStatus::Found, 2, 5)
    );
    assert_eq!(
        (result.min_offset.get(), result.max_offset.get(), bodies),
        (0, 5, vec!["m3".into(), "m4".into()])
    );

    struct Tag(i64);
    impl MessageFilter for Tag {
        fn matches_entry(
            &mut self,
            tags_code: Option<i64>,
            _: Option<&minimq_store::consume_queue::ExtUnit>,
        ) -> bool {
            tags_code == Some(self.0)
        }
    }
    let (result, bodies) = get_with(&store, 0, &mut Tag(97));
    assert_eq!(
        (result.status, result.next_begin_offset.get(), bodies),
        (GetStatus::Found, 5, vec!["m3".to_owned()])
    );
    let (result, bodies) = get_with(&store, 0, &mut Tag(98));
    assert_eq!(
        (result.status, result.next_begin_offset.get(), bodies.len()),
        (GetStatus::NoMatchedMessage, 5, 0)
    );

    struct Body(&'static [u8]);
    impl MessageFilter for Body {
        fn matches_entry(
            &mut self,
            _: Option<i64>,
            _: Option<&minimq_store::consume_queue::ExtUnit>,
        ) -> bool {
            true
        }
        fn matches_record(&mut self, record: &[u8]) -> bool {
            record.windows(self.0.len()).any(|w| w == self.0)
        }
    }
    assert_eq!(get_with(&store, 0, &mut Body(b"m2")).1, ["m2"]);
}

#[test]
fn budgets_of_count_and_bytes_hold_but_for_the_first_message() {
    let (_, disk) = simulated();
    let mut config = small_config("/s");
    config.max_transfer_count_on_message_in_memory = 3;
    config.max_transfer_bytes_on_message_in_memory = 2_500;
    let store = open(&config, &disk);
    for _ in 0..5 {
        append(&store, message("t", 0, &[b'x'; 10], ""));
    }
    for _ in 0..4 {
        append(&store, message("t", 0, &[b'y'; 1_100], ""));
    }
    append(&store, message("t", 0, &[b'z'; 4_000], ""));
    append(&store, message("t", 0, b"end", ""));
    dispatched(&store);
    assert_eq!(get(&store, 0).0.count, 3, "count");
    assert_eq!(get(&store, 5).0.count, 2, "bytes");
    let (result, bodies) = get(&store, 9);
    assert_eq!(
        (
            result.count,
            bodies[0].len(),
            result.next_begin_offset.get()
        ),
        (1, 4_000, 10),
        "one that is too long comes alone"
    );
    let request = |max_count, max_bytes| GetRequest {
        topic: "t",
        queue_id: 0,
        offset: QueueOffset(0),
        max_count,
        max_bytes,
    };
    for (max_count, max_bytes, count) in [
        (2, usize::MAX, 2),
        (0, usize::MAX, 1),
        (32, 250, 2),
        (32, 0, 1),
    ] {
        let result = store
            .reader()
            .get(
                &request(max_count, max_bytes),
                &mut NoFilter,
                Blocking::Allowed,
                &mut Vec::new(),
            )
            .unwrap();
        assert_eq!(result.count, count, "{max_count} {max_bytes}");
    }
}

/// Notes what it is told.
#[derive(Default)]
struct Listener {
    waiting: AtomicBool,
    told: Mutex<Vec<String>>,
}

impl DispatchListener for Listener {
    fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    fn dispatched(&self, m: &Dispatched<'_>) {
        let properties = String::from_utf8_lossy(m.properties).replace('\u{1}', "=");
        self.told.lock().push(format!(
            "{}/{} {} {} {properties}",
            m.topic, m.queue_id, m.new_max_offset, m.tags_code
        ));
    }

    fn batch_end(&self) {
        self.told.lock().push("end".into());
    }
}

#[test]
fn who_waits_is_told_of_each_message_once_it_is_readable() {
    let (_, disk) = simulated();
    let store = open(&small_config("/s"), &disk);
    let listener = Arc::new(Listener::default());
    store.on_dispatch(Some(Arc::clone(&listener) as _));
    append(&store, message("t", 0, b"nobody waits", ""));
    dispatched(&store);
    // Once the second is readable, the thread is past telling of the first; of the second it may still tell.
    append(&store, message("t", 1, b"nor now", ""));
    dispatched(&store);
    listener.waiting.store(true, Ordering::Release);
    let told = || -> Vec<String> {
        let told = listener.told.lock();
        let apart = |t: &&String| *t != "end" && !t.starts_with("t/1 ");
        told.iter().filter(apart).cloned().collect()
    };
    append(&store, message("t", 0, b"x", "TAGS\u{1}a"));
    until(|| told().len() == 1);
    let half = AppendMessage {
        sys_flag: 0x4,
        ..message("t", 0, b"half", "")
    };
    append(&store, half);
    append(&store, message("u", 7, b"y", ""));
    until(|| told().len() >= 2 && listener.told.lock().last().is_some_and(|t| t == "end"));
    assert_eq!(told(), ["t/0 2 97 TAGS=a", "u/7 1 0 "]);
    assert_eq!(
        get(&store, 0).1,
        ["nobody waits", "x"],
        "a half message has no place in the queue"
    );
}

/// Appends as a connection does: without waking anyone, then dispatching.
fn append_here(store: &Store, message: AppendMessage<'_>) {
    let mut outcomes = Vec::new();
    if let Appended::Waiting(_) = store.log_store().append_untold(&[message], &mut outcomes) {
        store.append_blocking(&[message], &mut outcomes);
    }
    assert!(outcomes[0].is_ok());
    store.dispatch_appended();
}

#[test]
fn who_appends_little_dispatches_it_itself() {
    #[derive(Default)]
    struct Threads(Mutex<Vec<Option<String>>>);
    impl DispatchListener for Threads {
        fn is_waiting(&self) -> bool {
            true
        }
        fn dispatched(&self, _: &Dispatched<'_>) {
            let name = std::thread::current().name().map(str::to_owned);
            self.0.lock().push(name);
        }
    }
    let (_, disk) = simulated();
    let store = open(&small_config("/s"), &disk);
    let threads = Arc::new(Threads::default());
    store.on_dispatch(Some(Arc::clone(&threads) as _));
    let own = std::thread::current().name().map(str::to_owned);
    // The dispatch thread may be awake at first, and then it does it.
    until(|| {
        append_here(&store, message("t", 0, b"m", ""));
        threads.0.lock().last() == Some(&own)
    });
    dispatched(&store);
    let told = threads.0.lock().len();
    assert_eq!(get(&store, told as i64 - 1).1.len(), 1, "readable");
}

#[test]
fn whoever_dispatches_of_many_each_message_is_told_once_and_in_order() {
    let (_, disk) = simulated();
    let store = open(&small_config("/s"), &disk);
    let listener = Arc::new(Listener::default());
    listener.waiting.store(true, Ordering::Release);
    store.on_dispatch(Some(Arc::clone(&listener) as _));
    let (senders, each) = (4, 300);
    std::thread::scope(|scope| {
        for sender in 0..senders {
            let store = &store;
            scope.spawn(move || {
                for n in 0..each {
                    let queue = sender % 2;
                    // Some wake the dispatch thread, as the broker's own messages do.
                    if n % 7 == 0 {
                        append(store, message("t", queue, b"m", ""));
                    } else {
                        append_here(store, message("t", queue, b"m", ""));
                    }
                }
            });
        }
    });
    dispatched(&store);
    let told = || -> Vec<String> {
        let told = listener.told.lock();
        told.iter().filter(|t| *t != "end").cloned().collect()
    };
    until(|| told().len() >= (senders * each) as usize);
    for queue in 0..2 {
        let prefix = format!("t/{queue} ");
        let of_queue = told().into_iter().filter(|t| t.starts_with(&prefix));
        let expected = (1..=senders * each / 2).map(|n| format!("{prefix}{n} 0 "));
        assert!(of_queue.eq(expected), "queue {queue}");
    }
}

#[test]
fn under_sync_flush_nobody_reads_what_a_crash_can_take_back() {
    let (simulated, disk) = simulated();
    let mut config = small_config("/s");
    config.flush_disk_type = FlushDiskType::SyncFlush;
    let store = open(&config, &disk);
    append(&store, message("t", 0, b"one", ""));
    store.log_store().flush().unwrap();
    dispatched(&store);
    simulated.hold_syncs(true);
    let two = append(&store, message("t", 0, b"two", ""));
    until(|| simulated.held_syncs() > 0);
    assert!(
        !store
            .dispatcher()
            .wait_for(two.end(), Duration::from_millis(50))
    );
    assert_eq!(get(&store, 0).1, ["one"]);
    simulated.hold_syncs(false);
    dispatched(&store);
    assert_eq!(get(&store, 0).1, ["one", "two"]);
}

#[test]
fn dispatch_stops_where_the_slave_in_sync_is_and_goes_on_when_there_is_none() {
    let (_, disk) = simulated();
    let store = open(&small_config("/s"), &disk);
    store.log().set_dispatch_cap(Some(PhysicalOffset(0)));
    let one = append(&store, message("t", 0, b"one", ""));
    let two = append(&store, message("t", 0, b"two", ""));
    assert!(
        !store
            .dispatcher()
            .wait_for(one.end(), Duration::from_millis(50))
    );
    store.log().set_dispatch_cap(Some(one.end()));
    assert!(store.dispatcher().wait_for(one.end(), LONG));
    assert_eq!(get(&store, 0).1, ["one"]);
    store.log().set_dispatch_cap(None);
    assert!(store.dispatcher().wait_for(two.end(), LONG));
    assert_eq!(get(&store, 0).1, ["one", "two"]);
}

#[test]
fn a_disk_without_room_for_queues_refuses_messages_by_name_until_there_is_room() {
    const ENOSPC: i32 = 28;
    let (simulated, disk) = simulated();
    let store = open(&small_config("/s"), &disk);
    simulated.fail(Operation::Write, "consumequeue", ENOSPC);
    let mut outcomes = Vec::new();
    let mut taken = 0;
    let refusal = loop {
        store.append_blocking(&[message("t", 0, b"m", "")], &mut outcomes);
        match outcomes.remove(0) {
            Ok(_) => taken += 1,
            Err(refusal) => break refusal.to_string(),
        }
    };
    assert!(
        refusal.contains("/s/consumequeue") && refusal.contains("os error 28"),
        "{refusal}"
    );
    let end = store.log().max_offset();
    assert!(!store.dispatcher().wait_for(end, Duration::from_millis(10)));
    simulated.heal();
    assert!(store.dispatcher().wait_for(end, LONG));
    until(|| store.dispatcher().trouble().is_none());
    append(&store, message("t", 0, b"last", ""));
    dispatched(&store);
    assert_eq!(store.reader().max_offset("t", 0), QueueOffset(taken + 1));
    assert_eq!(get(&store, taken).1, ["last"]);
}

#[test]
fn an_index_that_cannot_be_written_delays_no_queue_and_catches_up() {
    const EIO: i32 = 5;
    let (simulated, disk) = simulated();
    let store = open(&small_config("/s"), &disk);
    simulated.fail(Operation::Allocate, "index", EIO);
    let one = append(&store, message("t", 0, b"one", "KEYS\u{1}k"));
    dispatched(&store);
    assert_eq!(get(&store, 0).1, ["one"]);
    simulated.heal();
    assert!(store.indexer().unwrap().wait_for(one.end(), LONG));
    assert_eq!(
        store
            .query("t", "k", 32, 0, i64::MAX)
            .unwrap()
            .physical_offsets,
        [0]
    );
}

#[test]
fn a_store_whose_disk_is_full_closes_with_the_room_of_the_file_made_ahead() {
    let (simulated, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    for _ in 0..10 {
        append(&store, message("t", 0, b"m", "KEYS\u{1}k"));
    }
    dispatched(&store);
    until(|| {
        simulated
            .paths()
            .iter()
            .filter(|p| p.starts_with("/s/commitlog"))
            .count()
            == 2
    });
    let used: usize = simulated
        .paths()
        .iter()
        .map(|path| simulated.content(path).map_or(0, |content| content.len()))
        .sum();
    simulated.set_capacity(Some(used as u64));
    store.close().unwrap();
    drop(store);
    simulated.set_capacity(None);
    let store = open(&config, &disk);
    assert!(store.log_store().report().clean);
    assert_eq!(get(&store, 0).1.len(), 10);
}

#[test]
fn numbers_of_a_lost_queue_go_on_even_if_the_log_has_none_of_its_messages() {
    let (simulated, disk) = simulated();
    let config = small_config("/s");
    let store = open(&config, &disk);
    for _ in 0..3 {
        append(&store, message("t", 0, b"old", ""));
    }
    while store.log().file_list().len() < 3 {
        append(&store, message("u", 0, &[b'u'; 4_000], ""));
    }
    dispatched(&store);
    store
        .log()
        .delete_oldest_file()
        .unwrap()
        .expect("a file to delete");
    store.close().unwrap();
    for path in simulated
        .paths()
        .iter()
        .filter(|p| p.starts_with("/s/consumequeue/t"))
    {
        disk.remove_file(path).unwrap();
    }
    let store = open(&config, &disk);
    assert_eq!(get(&store, 0).0.status, GetStatus::OffsetTooSmall);
    assert_eq!(
        (get(&store, 3).0.status, store.reader().min_offset("t", 0)),
        (GetStatus::OffsetOverflowOne, QueueOffset(3))
    );
    assert_eq!(
        append(&store, message("t", 0, b"new", "")).queue_offset,
        QueueOffset(3)
    );
    dispatched(&store);
    assert_eq!(get(&store, 3).1, ["new"]);
    drop(store);
    let store = open(&config, &disk);
    assert_eq!(
        (store.reader().min_offset("t", 0), get(&store, 3).1),
        (QueueOffset(3), vec!["new".to_owned()])
    );
}

#[test]
fn cold_messages_are_read_from_the_file_and_stay_valid_when_it_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_config(folder.path());
    config.hot_window_bytes = 1_024;
    let store = Store::open(&config, |_| {}).unwrap();
    for n in 0..40 {
        append(&store, message("t", 0, format!("{n:01000}").as_bytes(), ""));
    }
    dispatched(&store);
    until(|| !store.log().is_hot(PhysicalOffset(20_000)));
    let request = GetRequest {
        topic: "t",
        queue_id: 0,
        offset: QueueOffset(0),
        max_count: 32,
        max_bytes: usize::MAX,
    };
    let mut records = Vec::new();
    let result = match store
        .reader()
        .get(&request, &mut NoFilter, Blocking::Refused, &mut records)
    {
        Err(minimq_store::ReadError::WouldBlock) => {
            assert!(records.is_empty());
            store
                .reader()
                .get(&request, &mut NoFilter, Blocking::Allowed, &mut records)
                .unwrap()
        }
        result => result.unwrap(),
    };
    assert_eq!(
        (result.status, result.count),
        (GetStatus::Found, 20),
        "to the end of the queue file"
    );
    store
        .log()
        .delete_oldest_file()
        .unwrap()
        .expect("a file to delete");
    for (n, record) in records.into_iter().enumerate() {
        let record = minimq_protocol::message::MessageView::parse(record).unwrap();
        assert_eq!(record.body(), format!("{n:01000}").as_bytes());
    }
    let (result, bodies) = get(&store, 0);
    assert_eq!(
        (result.status, bodies.len()),
        (GetStatus::Found, 6),
        "those of the deleted file are passed over"
    );
    assert_eq!(result.next_begin_offset.get(), 20);
}

/// The bytes of a store's log from `from` on.
fn log_bytes(store: &Store, from: i64) -> Vec<u8> {
    let mut bytes = vec![0; (store.log().max_offset().get() - from) as usize];
    let mut done = 0;
    while done < bytes.len() {
        let at = PhysicalOffset(from + done as i64);
        done += match store.log().hot_span(at) {
            Some(span) => {
                bytes[done..done + span.len()].copy_from_slice(&span);
                span.len()
            }
            None => store
                .log()
                .read_cold(at, &mut bytes[done..], true)
                .unwrap()
                .unwrap(),
        };
    }
    bytes
}

fn replicate(slave: &Store, mut at: i64, bytes: &[u8], chunk: usize) {
    for part in bytes.chunks(chunk) {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < LONG, "no room at {at}");
            match slave
                .log_store()
                .append_replica(PhysicalOffset(at), part)
                .unwrap()
            {
                minimq_store::ReplicaAppended::All { .. } => break,
                minimq_store::ReplicaAppended::Waiting(ticket) => {
                    slave.log_store().wait_room(ticket, Instant::now() + LONG);
                }
                other => panic!("{other:?}"),
            }
        }
        at += part.len() as i64;
    }
}

#[test]
fn a_slave_dispatches_records_that_come_in_pieces_and_a_new_one_may_begin_in_the_middle() {
    let (_, disk) = simulated();
    let master = open(&small_config("/m"), &disk);
    for n in 0..60 {
        append(
            &master,
            message("t", 0, format!("{n:0900}").as_bytes(), "KEYS\u{1}k"),
        );
    }
    dispatched(&master);
    let files = master.log().file_list();
    for (chunk, from) in [(7, 0), (1_000, 0), (333, files[1].1.get())] {
        let (_, disk) = simulated();
        let mut config = small_config("/s");
        config.role = minimq_store::StoreRole::Slave;
        let slave = open(&config, &disk);
        let bytes = log_bytes(&master, from);
        // A file's border is a piece's border, as a master sends it.
        let rest = (files[0].2.get() as usize) - (from as usize % files[0].2.get() as usize);
        let (first, later) = bytes.split_at(rest.min(bytes.len()));
        replicate(&slave, from, first, chunk);
        for (n, part) in later.chunks(files[0].2.get() as usize).enumerate() {
            replicate(
                &slave,
                from + (rest + n * files[0].2.get() as usize) as i64,
                part,
                chunk,
            );
        }
        dispatched(&slave);
        let (ours, theirs) = (
            slave.queues().get("t", 0).unwrap(),
            master.queues().get("t", 0).unwrap(),
        );
        assert_eq!(ours.max_offset(), 60);
        assert_eq!(ours.min_offset() > 0, from > 0);
        for n in ours.min_offset()..60 {
            assert_eq!(ours.entry(n).unwrap(), theirs.entry(n).unwrap());
        }
        if from > 0 {
            assert!(
                ours.entry(ours.min_offset() - 1)
                    .unwrap()
                    .unwrap()
                    .is_filler()
            );
            let result = get(&slave, 0).0;
            assert_eq!(
                (result.status, result.next_begin_offset.get()),
                (GetStatus::OffsetTooSmall, 0),
                "a slave leaves it to the master"
            );
        }
        let found = slave.query("t", "k", 64, 0, i64::MAX).unwrap();
        assert_eq!(
            found.physical_offsets,
            (ours.min_offset()..60)
                .map(|n| ours.entry(n).unwrap().unwrap().physical_offset)
                .collect::<Vec<_>>()
        );
    }
}

/// Notes the tags codes of entries, those in extension units too.
#[derive(Default)]
struct TagsCodes(Vec<Option<i64>>);

impl MessageFilter for TagsCodes {
    fn matches_entry(&mut self, tags_code: Option<i64>, _unit: Option<&ExtUnit>) -> bool {
        self.0.push(tags_code);
        true
    }
}

#[test]
fn an_entry_that_a_start_made_again_counts_as_on_disk_only_once_it_was_flushed() {
    let (simulated, disk) = simulated();
    let config = StoreConfig {
        enable_consume_queue_ext: true,
        mapped_file_size_consume_queue_ext: 32_772,
        flush_interval_commit_log_ms: 3_600_000,
        flush_interval_consume_queue_ms: 3_600_000,
        ..small_config("/s")
    };
    let fill = |store: &Store, files: usize| {
        while store.log().file_list().len() < files {
            append(store, message("kept", 0, &[b'k'; 2_000], ""));
        }
        dispatched(store);
        store.log_store().flush().unwrap();
    };
    let store = open(&config, &disk);
    fill(&store, 2);
    for tag in ["TAGS\u{1}a", "TAGS\u{1}b"] {
        append(&store, message("t", 0, b"m", tag));
    }
    fill(&store, 4);
    store.flush_queues().unwrap();
    drop(store);
    // It looks at the last three files, and gives both messages new units.
    let store = open(&config, &disk);
    fill(&store, 7);
    drop(store);
    // The power cut keeps the entries, and takes the units.
    let (left, synced) = (simulated.cut(|| true), simulated.cut(|| false));
    let units = Path::new("/s/consumequeue_ext/t/0/00000000000000000000");
    left.put(units, synced.content(units).unwrap());
    let disk: Arc<dyn Disk> = Arc::new(left);
    let store = open(&config, &disk);
    let mut codes = TagsCodes::default();
    assert_eq!(messages_of(&store, "t", 0, &mut codes).len(), 2);
    assert_eq!(codes.0, ["a", "b"].map(|tag| Some(tags_code(Some(tag)))));
}
