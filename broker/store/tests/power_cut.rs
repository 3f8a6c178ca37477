//! Power cuts: whatever was going on, and whichever sectors the disk kept, what was acknowledged as durable is there, nothing
//! is invented, queues and index agree with the log, a topic that was deleted stays so, and the store goes on.
//!
//! `MINIMQ_POWER_CUTS` sets how many histories are tried (48 by default).

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use minimq_protocol::message::MessageView;
use minimq_store::commit_log::scanner::{LogScanner, Step};
use minimq_store::io::{Disk, SimulatedDisk};
use minimq_store::{
    AppendResult, FlushDiskType, LogRead, PhysicalOffset, Store, StoreClock, StoreConfig,
};
use proptest::prelude::*;
use support::store::{LONG, messages};
use support::{message, small_config};

const TOPICS: [&str; 3] = ["TopicA", "TopicB", "TopicC"];
const QUEUES: i32 = 2;

/// One thing that happens to a store.
#[derive(Clone, Debug)]
enum Event {
    /// Messages are appended: topic, queue, body length each.
    Append(Vec<(usize, i32, usize)>),
    /// All appended so far is waited for.
    WaitFlushed,
    /// Queues catch up.
    Dispatched,
    /// Queues and index are brought to disk, and the checkpoint says so.
    FlushQueues,
    /// A topic is deleted.
    DeleteTopic(usize),
    /// A clean stop and a start.
    Reopen,
    /// The process dies; the machine goes on.
    Kill,
    /// The power fails, with these answers to which sector was kept.
    Cut(u64, u8),
}

fn event() -> impl Strategy<Value = Event> {
    let size = prop_oneof![4 => 0..200_usize, 2 => 200..3_000_usize, 1 => 3_000..12_000_usize];
    let messages = prop::collection::vec((0..TOPICS.len(), 0..QUEUES, size), 1..12);
    prop_oneof![
        8 => messages.prop_map(Event::Append),
        3 => Just(Event::WaitFlushed),
        3 => Just(Event::Dispatched),
        1 => Just(Event::FlushQueues),
        1 => (0..TOPICS.len()).prop_map(Event::DeleteTopic),
        1 => Just(Event::Reopen),
        1 => Just(Event::Kill),
        3 => (any::<u64>(), 0..=4_u8).prop_map(|(seed, kept)| Event::Cut(seed, kept)),
    ]
}

/// Length of a queue file: a few entries, so that a cut may take some files of a queue and leave later ones; or some
/// sectors, so that it may take a part of a file, and of an entry.
fn queue_file() -> impl Strategy<Value = u64> {
    prop_oneof![Just(60), Just(400), Just(2_000)]
}

/// A message that was appended.
#[derive(Clone, Debug)]
struct Stored {
    topic: usize,
    queue_id: i32,
    result: AppendResult,
    body: Vec<u8>,
    /// `SYNC_FLUSH` said it is on disk.
    acknowledged: bool,
}

struct World {
    config: StoreConfig,
    disk: SimulatedDisk,
    store: Option<Store>,
    /// What is in the log as far as anyone knows, by physical offset.
    stored: BTreeMap<i64, Stored>,
    /// What is in the log of topics that were deleted since; nobody may get it any more.
    dead: BTreeMap<i64, Stored>,
    number: u64,
}

impl World {
    fn new(flush: FlushDiskType, queue_file: u64) -> Self {
        let config = StoreConfig {
            flush_disk_type: flush,
            flush_interval_commit_log_ms: 5,
            flush_interval_consume_queue_ms: 5,
            mapped_file_size_consume_queue: queue_file,
            ..small_config("/s")
        };
        let mut world = Self {
            config,
            disk: SimulatedDisk::new(),
            store: None,
            stored: BTreeMap::new(),
            dead: BTreeMap::new(),
            number: 0,
        };
        world.open();
        world
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn open(&mut self) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        self.store = Some(Store::open_on(&self.config, disk, StoreClock::System, |_| {}).unwrap());
    }

    fn append(&mut self, messages: &[(usize, i32, usize)]) {
        let bodies: Vec<Vec<u8>> = messages
            .iter()
            .map(|(_, _, len)| {
                self.number += 1;
                self.number
                    .to_be_bytes()
                    .into_iter()
                    .cycle()
                    .take(*len)
                    .collect()
            })
            .collect();
        let keys: Vec<_> = (0..messages.len())
            .map(|index| format!("KEYS\u{1}key{}", self.number + index as u64))
            .collect();
        let appended: Vec<_> = messages
            .iter()
            .zip(&bodies)
            .zip(&keys)
            .map(|(((topic, queue_id, _), body), keys)| {
                message(TOPICS[*topic], *queue_id, body, keys)
            })
            .collect();
        let mut outcomes = Vec::new();
        self.store().append_blocking(&appended, &mut outcomes);
        for ((topic, queue_id, _), (body, outcome)) in
            messages.iter().zip(bodies.into_iter().zip(outcomes))
        {
            let (topic, queue_id) = (*topic, *queue_id);
            let result = outcome.unwrap();
            let stored = Stored {
                topic,
                queue_id,
                result,
                body,
                acknowledged: false,
            };
            self.stored.insert(result.physical_offset.get(), stored);
        }
    }

    fn wait_flushed(&mut self) {
        let end = self.store().log().max_offset();
        let outcome = support::wait_flushed(self.store().log_store(), end);
        assert_eq!(outcome, minimq_store::FlushOutcome::Flushed);
        self.stored
            .values_mut()
            .for_each(|stored| stored.acknowledged = true);
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Append(messages) => self.append(messages),
            Event::WaitFlushed => self.wait_flushed(),
            Event::Dispatched => {
                let limit = self.store().log().dispatch_limit();
                assert!(self.store().dispatcher().wait_for(limit, LONG));
            }
            Event::FlushQueues => {
                let limit = self.store().log().dispatch_limit();
                assert!(self.store().dispatcher().wait_for(limit, LONG));
                self.store().flush_queues().unwrap();
            }
            Event::DeleteTopic(topic) => {
                self.store().delete_topic(TOPICS[*topic]).unwrap();
                let all = std::mem::take(&mut self.stored);
                let (dead, kept): (BTreeMap<_, _>, _) = all
                    .into_iter()
                    .partition(|(_, stored)| stored.topic == *topic);
                self.dead.extend(dead);
                self.stored = kept;
            }
            Event::Reopen => {
                self.store().close().unwrap();
                self.store = None;
                self.open();
                let all = self.stored.len();
                self.check();
                assert_eq!(self.stored.len(), all, "a clean stop loses nothing");
            }
            Event::Kill => {
                self.store = None;
                self.open();
                let all = self.stored.len();
                self.check();
                assert_eq!(self.stored.len(), all, "the end of a process loses nothing");
            }
            Event::Cut(seed, kept) => {
                self.store = None;
                let mut random = *seed | 1;
                self.disk = self.disk.cut(|| {
                    // xorshift64: any fixed sequence does.
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    (random >> 33) % 4 < u64::from(*kept)
                });
                self.open();
                self.check();
                self.append(&[(0, 0, 10), (1, 1, 20)]);
                self.check();
            }
        }
    }

    /// Compares log, queues and index with what was stored; forgets what the log has lost.
    fn check(&mut self) {
        let store = self.store.as_ref().unwrap();
        if self.config.flush_disk_type == FlushDiskType::SyncFlush {
            let end = store.log().max_offset();
            assert_eq!(
                support::wait_flushed(store.log_store(), end),
                minimq_store::FlushOutcome::Flushed
            );
        }
        assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
        let (min, end) = (
            store.log().min_offset().get(),
            store.log().max_offset().get(),
        );
        let report = store.log_store().report();

        // The log: every record is one that was stored, at its place, byte for byte.
        let (mut found, mut found_dead) = (BTreeMap::new(), BTreeMap::new());
        let mut scanner = LogScanner::over(Arc::clone(store.log()), min.max(0));
        loop {
            let at = scanner.position();
            if let Some(range) = store
                .log_store()
                .damage()
                .ranges()
                .iter()
                .find(|range| range.from.get() == at)
            {
                scanner.seek(range.to.get());
                continue;
            }
            match scanner.step(end).unwrap() {
                Step::Record(record) => {
                    let dead = self.dead.get(&at);
                    let stored = (self.stored.get(&at).or(dead))
                        .unwrap_or_else(|| panic!("invented: {record:?}, {report:?}"));
                    assert_eq!(record.body(), stored.body);
                    assert_eq!(record.topic(), TOPICS[stored.topic]);
                    assert_eq!(record.queue_offset(), stored.result.queue_offset.get());
                    let found = if dead.is_some() {
                        &mut found_dead
                    } else {
                        &mut found
                    };
                    found.insert(at, stored.clone());
                }
                Step::EndOfFile => {}
                Step::CaughtUp if at >= end => break,
                other => panic!("{other:?} at {at}, {report:?}"),
            }
        }
        for (at, stored) in &self.stored {
            if !found.contains_key(at) {
                let marked = store.log_store().damage().contains(PhysicalOffset(*at));
                assert!(
                    !stored.acknowledged,
                    "acknowledged and lost: {stored:?}, {report:?}"
                );
                assert!(
                    marked || *at >= end,
                    "lost in the middle and not told: {stored:?}, {report:?}"
                );
            }
        }

        // The queues: exactly the records of the log, under their numbers.
        for (topic, name) in TOPICS.iter().enumerate() {
            for queue_id in 0..QUEUES {
                let expected: Vec<_> = found
                    .values()
                    .filter(|stored| stored.topic == topic && stored.queue_id == queue_id)
                    .map(|stored| {
                        (
                            stored.result.queue_offset.get(),
                            stored.result.physical_offset.get(),
                        )
                    })
                    .collect();
                assert_eq!(
                    queue_of(store, name, queue_id),
                    expected,
                    "{name}/{queue_id}, {report:?}"
                );
                let next = store.log_store().next_queue_offset(name, queue_id).get();
                assert!(expected.last().is_none_or(|(number, _)| *number < next));
                assert_eq!(
                    store.reader().max_offset(name, queue_id).get(),
                    next,
                    "{name}/{queue_id}"
                );
            }
        }

        // The index: every record under its key. It may have to be made again from the log's beginning.
        let indexed = store.indexer().unwrap();
        assert!(indexed.wait_for(store.dispatcher().position(), LONG));
        for stored in found.values() {
            let LogRead::Found(bytes) = store
                .log()
                .read(
                    stored.result.physical_offset,
                    stored.result.size as usize,
                    true,
                )
                .unwrap()
            else {
                panic!("unreadable")
            };
            let view = minimq_protocol::message::MessageView::parse(bytes).unwrap();
            let result = store
                .query(TOPICS[stored.topic], view.keys().unwrap(), 64, 0, i64::MAX)
                .unwrap();
            let places: Vec<_> = result
                .records
                .iter()
                .map(|record| {
                    minimq_protocol::message::RecordRef::parse_slice(record)
                        .unwrap()
                        .physical_offset()
                })
                .collect();
            assert!(
                places.contains(&stored.result.physical_offset.get()),
                "{:?} {places:?}",
                view.keys()
            );
        }
        (self.stored, self.dead) = (found, found_dead);
    }
}

/// Number and place of every message a consumer of the queue gets.
fn queue_of(store: &Store, topic: &str, queue_id: i32) -> Vec<(i64, i64)> {
    let messages = messages(store, topic, queue_id);
    let place = |message: &MessageView| (message.queue_offset(), message.physical_offset());
    messages.iter().map(place).collect()
}

fn config() -> ProptestConfig {
    let cases = std::env::var("MINIMQ_POWER_CUTS")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(48);
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sync_flush_keeps_every_acknowledged_message(
        queue_file in queue_file(),
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut world = World::new(FlushDiskType::SyncFlush, queue_file);
        events.iter().for_each(|event| world.happen(event));
    }

    #[test]
    fn async_flush_keeps_a_beginning_of_the_log_and_tells_of_the_rest(
        queue_file in queue_file(),
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut world = World::new(FlushDiskType::AsyncFlush, queue_file);
        events.iter().for_each(|event| world.happen(event));
    }
}
