//! Power cuts: whatever was going on, and whichever sectors the disk kept, what was acknowledged as durable is there, nothing
//! is invented, queues and index agree with the log, a topic that was deleted stays so, and the store goes on.
//!
//! A cut comes between two events, or into one: before any change that it makes to the disk, with messages sent meanwhile.
//!
//! `MINIMQ_POWER_CUTS` sets how many histories are tried (48 by default).

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use minimq_protocol::hash::tags_code;
use minimq_protocol::message::MessageView;
use minimq_store::commit_log::scanner::{LogScanner, Step};
use minimq_store::io::{Disk, SimulatedDisk};
use minimq_store::{
    AppendResult, Appended, DispatchRecord, FilterBits, FlushDiskType, LogRead, MessageFilter,
    PhysicalOffset, Store, StoreClock, StoreConfig, StoreError,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use support::store::{LONG, messages_of};
use support::{message, small_config};

const TOPICS: [&str; 3] = ["TopicA", "TopicB", "TopicC"];
const QUEUES: i32 = 2;

/// Topic, queue and body length of each.
type Messages = Vec<(usize, i32, usize)>;

/// One thing that happens to a store.
#[derive(Clone, Debug)]
enum Event {
    /// Messages are appended.
    Append(Messages),
    /// All appended so far is waited for.
    WaitFlushed,
    /// Queues catch up.
    Dispatched,
    /// Something of several steps is done.
    Do(Work),
    /// A clean stop and a start.
    Reopen,
    /// The process dies; the machine goes on.
    Kill,
    /// The power fails.
    Cut(Kept),
    /// The power fails while something of several steps is done.
    Interrupted(Work, Interruption),
}

/// What takes several changes of the disk.
#[derive(Clone, Debug)]
enum Work {
    /// Queues and index are brought to disk, and the checkpoint says so.
    FlushQueues,
    /// A topic is deleted.
    DeleteTopic(usize),
    /// The oldest file of the log goes, and what spoke of it only.
    Clean,
    /// The queues go all of whose messages are gone.
    CleanExpired,
    /// Messages are appended, and files are made for them.
    Append(Messages),
    /// A clean stop.
    Close,
    /// A start after the process died.
    Start,
}

/// A power cut in the middle of something.
#[derive(Clone, Debug)]
struct Interruption {
    /// So many changes of the disk come before.
    changes: u64,
    /// Messages that are sent before so many changes.
    sent: (u64, Messages),
    kept: Kept,
}

/// Which sectors and names a cut leaves: answers from a seed, so many of four of them yes.
#[derive(Clone, Copy, Debug)]
struct Kept(u64, u8);

fn messages(most: usize) -> impl Strategy<Value = Messages> {
    let size = prop_oneof![4 => 0..200_usize, 2 => 200..3_000_usize, 1 => 3_000..12_000_usize];
    prop::collection::vec((0..TOPICS.len(), 0..QUEUES, size), 1..most)
}

fn kept() -> impl Strategy<Value = Kept> {
    (any::<u64>(), 0..=4_u8).prop_map(|(seed, kept)| Kept(seed, kept))
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        2 => Just(Work::FlushQueues),
        3 => (0..TOPICS.len()).prop_map(Work::DeleteTopic),
        1 => Just(Work::Clean),
        1 => Just(Work::CleanExpired),
    ]
}

fn interruption() -> impl Strategy<Value = Interruption> {
    let changes = || prop_oneof![3 => 0..30_u64, 1 => 30..150_u64];
    (changes(), changes(), messages(6), kept()).prop_map(|(changes, at, messages, kept)| {
        let sent = (at.min(changes), messages);
        Interruption {
            changes,
            sent,
            kept,
        }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let interrupted = prop_oneof![
        8 => work(),
        1 => messages(12).prop_map(Work::Append),
        1 => Just(Work::Close),
        2 => Just(Work::Start),
    ];
    prop_oneof![
        8 => messages(12).prop_map(Event::Append),
        3 => Just(Event::WaitFlushed),
        3 => Just(Event::Dispatched),
        2 => work().prop_map(Event::Do),
        1 => Just(Event::Reopen),
        1 => Just(Event::Kill),
        2 => kept().prop_map(Event::Cut),
        3 => (interrupted, interruption()).prop_map(|(work, when)| Event::Interrupted(work, when)),
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
    /// Whether it may be of a topic that was deleted.
    doubt: Doubt,
}

/// What is known of a message when the power failed while its topic was being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// It is of no deleted topic.
    None,
    /// It was there before. Either all these count for nothing now, or none.
    Before,
    /// It came meanwhile, before or after the deletion took hold.
    Meanwhile,
}

/// Bits long enough for extensions to have several files.
struct LongBits;

impl FilterBits for LongBits {
    fn bits_of(&self, _record: &DispatchRecord<'_>, out: &mut Vec<u8>) {
        out.resize(6_000, 1);
    }
}

struct World {
    config: StoreConfig,
    disk: SimulatedDisk,
    store: Option<Arc<Store>>,
    /// What is in the log as far as anyone knows, by physical offset.
    stored: BTreeMap<i64, Stored>,
    /// What is in the log of topics that were deleted since; nobody may get it any more.
    dead: BTreeMap<i64, Stored>,
    /// What was below the log's beginning. A cut may bring it back.
    cleaned: BTreeMap<i64, Stored>,
    /// Topics that were deleted and got no message since.
    fresh: BTreeSet<usize>,
    number: u64,
}

/// Appends without waiting longer than a moment; what there is no room for, or is refused, is left out.
fn append_some(store: &Store, number: u64, messages: &Messages, patience: Duration) -> Vec<Stored> {
    let bodies: Vec<Vec<u8>> = (number..)
        .zip(messages)
        .map(|(number, (_, _, len))| {
            number
                .to_be_bytes()
                .into_iter()
                .cycle()
                .take(*len)
                .collect()
        })
        .collect();
    let properties: Vec<_> = (number..)
        .take(messages.len())
        .map(|number| format!("TAGS\u{1}tag{number}\u{2}KEYS\u{1}key{number}"))
        .collect();
    let appended: Vec<_> = messages
        .iter()
        .zip(&bodies)
        .zip(&properties)
        .map(|(((topic, queue_id, _), body), text)| message(TOPICS[*topic], *queue_id, body, text))
        .collect();
    let mut outcomes = Vec::new();
    let until = Instant::now() + patience;
    while let Appended::Waiting(ticket) =
        store.append(appended.get(outcomes.len()..).unwrap(), &mut outcomes)
    {
        if !store.log_store().wait_room(ticket, until) {
            break;
        }
    }
    let of = |((topic, queue_id, _), (body, outcome)): (&(usize, i32, usize), (Vec<u8>, _))| {
        let result: Result<AppendResult, _> = outcome;
        result.ok().map(|result| Stored {
            topic: *topic,
            queue_id: *queue_id,
            result,
            body,
            acknowledged: false,
            doubt: Doubt::None,
        })
    };
    messages
        .iter()
        .zip(bodies.into_iter().zip(outcomes))
        .filter_map(of)
        .collect()
}

impl World {
    fn new(flush: FlushDiskType, queue_file: u64, ext: bool) -> Self {
        let config = StoreConfig {
            flush_disk_type: flush,
            flush_interval_commit_log_ms: 5,
            flush_interval_consume_queue_ms: 5,
            mapped_file_size_consume_queue: queue_file,
            enable_consume_queue_ext: ext,
            mapped_file_size_consume_queue_ext: 32_772,
            delete_commit_log_files_interval_ms: 0,
            delete_consume_queue_files_interval_ms: 0,
            ..small_config("/s")
        };
        let mut world = Self {
            config,
            disk: SimulatedDisk::new(),
            store: None,
            stored: BTreeMap::new(),
            dead: BTreeMap::new(),
            cleaned: BTreeMap::new(),
            fresh: BTreeSet::new(),
            number: 0,
        };
        world.open();
        world
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn try_open(&self) -> Result<Arc<Store>, StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let store = Store::open_on(&self.config, disk, StoreClock::System, |_| {})?;
        store.set_filter_bits(Some(Arc::new(LongBits)));
        Ok(Arc::new(store))
    }

    fn open(&mut self) {
        self.store = Some(self.try_open().unwrap());
    }

    /// The process dies.
    fn kill(&mut self) {
        // Who sends in the middle of something is done first: the last who has the store ends its threads.
        let store = self.store.take().unwrap();
        support::store::until(|| Arc::strong_count(&store) == 1);
    }

    fn keep(&mut self, sent: Vec<Stored>) {
        for stored in sent {
            self.fresh.remove(&stored.topic);
            self.stored
                .insert(stored.result.physical_offset.get(), stored);
        }
    }

    fn append(&mut self, messages: &Messages) {
        let sent = append_some(self.store(), self.number, messages, LONG);
        assert_eq!(sent.len(), messages.len());
        self.number += messages.len() as u64;
        self.keep(sent);
    }

    fn wait_flushed(&mut self) {
        let end = self.store().log().max_offset();
        let outcome = support::wait_flushed(self.store().log_store(), end);
        assert_eq!(outcome, minimq_store::FlushOutcome::Flushed);
        self.stored
            .values_mut()
            .for_each(|stored| stored.acknowledged = true);
    }

    fn dispatched(&self) {
        let limit = self.store().log().dispatch_limit();
        assert!(self.store().dispatcher().wait_for(limit, LONG));
    }

    /// Does something of several steps; after an error it may have been done in part.
    fn work(&mut self, work: &Work) -> Result<(), StoreError> {
        match work {
            Work::FlushQueues => self.store().flush_queues(),
            Work::DeleteTopic(topic) => self.store().delete_topic(TOPICS[*topic]).map(drop),
            Work::Clean => {
                // A file that goes before it is on disk may come back by its name alone, and is marked damaged then.
                self.store().log_store().flush()?;
                self.store().log().delete_oldest_file()?;
                self.store().cleaner().round();
                Ok(())
            }
            Work::CleanExpired => self.store().clean_expired_queues().map(drop),
            Work::Append(messages) => {
                let patience = Duration::from_millis(100);
                let sent = append_some(self.store(), self.number, messages, patience);
                self.number += messages.len() as u64;
                self.keep(sent);
                Ok(())
            }
            Work::Close => self.store().close(),
            Work::Start => {
                self.store = Some(self.try_open()?);
                Ok(())
            }
        }
    }

    /// The power fails while `work` is done.
    fn interrupt(&mut self, work: &Work, when: &Interruption) {
        match work {
            Work::Start => self.kill(),
            Work::FlushQueues | Work::Close => self.dispatched(),
            _ => {}
        }
        let next = |queue: &(usize, i32)| {
            let store = self.store.as_ref();
            store.map_or(0, |s| {
                s.log_store()
                    .next_queue_offset(TOPICS[queue.0], queue.1)
                    .get()
            })
        };
        let queues = (0..TOPICS.len()).flat_map(|topic| (0..QUEUES).map(move |id| (topic, id)));
        let next: BTreeMap<_, _> = queues.map(|queue| (queue, next(&queue))).collect();
        let sent = Arc::new(Mutex::new(Vec::new()));
        if let Some(store) = &self.store {
            let (store, sent, number) = (Arc::downgrade(store), Arc::clone(&sent), self.number);
            let (changes, messages) = when.sent.clone();
            self.number += messages.len() as u64;
            self.disk.before_change(changes, move || {
                if let Some(store) = store.upgrade() {
                    // Not a moment's wait: it may be the thread that makes room.
                    *sent.lock() = append_some(&store, number, &messages, Duration::ZERO);
                }
            });
        }
        self.disk.fail_power_before(when.changes);
        let result = self.work(work);
        let failed = self.disk.has_power_failed();
        // What a start or a stop does not notice is noticed by nobody.
        assert!(failed || result.is_ok(), "{result:?}");
        if let Work::DeleteTopic(topic) = work {
            self.deleted(*topic, result.is_ok());
        }
        if self.store.is_some() {
            // The background goes on until the cut.
            self.disk.fail_power_before(0);
            self.kill();
        }
        let mut anew = BTreeSet::new();
        let mut sent = std::mem::take(&mut *sent.lock());
        for stored in &mut sent {
            let queue = (stored.topic, stored.queue_id);
            if stored.result.queue_offset.get() < next[&queue] {
                anew.insert(queue);
            }
            if matches!(work, Work::DeleteTopic(topic) if *topic == stored.topic)
                && !anew.contains(&queue)
            {
                stored.doubt = Doubt::Meanwhile;
            }
        }
        self.keep(sent);
        self.cut(when.kept);
    }

    /// A topic was deleted, or perhaps.
    fn deleted(&mut self, topic: usize, surely: bool) {
        if !surely {
            let all = self
                .stored
                .values_mut()
                .filter(|stored| stored.topic == topic);
            all.for_each(|stored| stored.doubt = Doubt::Before);
            return;
        }
        let (dead, kept): (BTreeMap<_, _>, _) = std::mem::take(&mut self.stored)
            .into_iter()
            .partition(|(_, stored)| stored.topic == topic);
        self.dead.extend(dead);
        self.stored = kept;
        self.fresh.insert(topic);
    }

    fn cut(&mut self, Kept(seed, kept): Kept) {
        let mut random = seed | 1;
        self.disk = self.disk.cut(|| {
            // xorshift64: any fixed sequence does.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) % 4 < u64::from(kept)
        });
        self.open();
        self.check();
        self.append(&vec![(0, 0, 10), (1, 1, 20)]);
        self.check();
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Append(messages) => self.append(messages),
            Event::WaitFlushed => self.wait_flushed(),
            Event::Dispatched => self.dispatched(),
            Event::Do(work) => {
                self.work(work).unwrap();
                if let Work::DeleteTopic(topic) = work {
                    self.deleted(*topic, true);
                }
            }
            Event::Reopen => {
                self.store().close().unwrap();
                self.kill();
                self.open();
                self.check_all("a clean stop loses nothing");
            }
            Event::Kill => {
                self.kill();
                self.open();
                self.check_all("the end of a process loses nothing");
            }
            Event::Cut(kept) => {
                self.kill();
                self.cut(*kept);
            }
            Event::Interrupted(work, when) => self.interrupt(work, when),
        }
    }

    fn check_all(&mut self, why: &str) {
        let min = log_min(self.store());
        let all = self.stored.range(min..).count();
        self.check();
        assert_eq!(self.stored.len(), all, "{why}");
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
        let end = store.log().max_offset().get();
        let min = log_min(store);
        let report = store.log_store().report();
        for all in [&mut self.stored, &mut self.cleaned] {
            all.values_mut().for_each(|stored| {
                stored.acknowledged &= stored.result.physical_offset.get() >= min
            });
        }
        let mut below = std::mem::take(&mut self.stored);
        let mut stored_all = below.split_off(&min);
        below.append(&mut self.cleaned);
        stored_all.append(&mut below.split_off(&min));
        (self.stored, self.cleaned) = (stored_all, below);

        // The log: every record is one that was stored, at its place, byte for byte.
        let (mut found, mut found_dead) = (BTreeMap::new(), BTreeMap::new());
        let mut scanner = LogScanner::over(Arc::clone(store.log()), min);
        loop {
            let at = scanner.position();
            if let Some(range) = store
                .log_store()
                .damage()
                .ranges()
                .iter()
                .find(|range| range.from.get() <= at && at < range.to.get())
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
        Self::resolve(store, &mut found, &mut found_dead);
        for (at, stored) in &self.stored {
            if !found.contains_key(at) && !found_dead.contains_key(at) {
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
                assert!(
                    next == 0 || !self.fresh.contains(&topic),
                    "{name}/{queue_id} {next}"
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
        self.dead.retain(|at, _| *at < min);
        self.dead.append(&mut found_dead);
        self.stored = found;
    }

    /// Finds out by the queues what became of topics that were perhaps deleted.
    fn resolve(
        store: &Store,
        found: &mut BTreeMap<i64, Stored>,
        found_dead: &mut BTreeMap<i64, Stored>,
    ) {
        let topics: BTreeSet<_> = found
            .values()
            .filter(|stored| stored.doubt != Doubt::None)
            .map(|stored| stored.topic)
            .collect();
        for topic in topics {
            let in_queues: BTreeSet<_> = (0..QUEUES)
                .flat_map(|queue_id| queue_of(store, TOPICS[topic], queue_id))
                .map(|(_, at)| at)
                .collect();
            let (alive, dead): (Vec<_>, Vec<_>) = found
                .iter()
                .filter(|(_, stored)| stored.topic == topic && stored.doubt == Doubt::Before)
                .map(|(at, _)| *at)
                .partition(|at| in_queues.contains(at));
            assert!(
                alive.is_empty() || dead.is_empty(),
                "{} is deleted in part: {alive:?} and not {dead:?}",
                TOPICS[topic]
            );
            let dead = found.extract_if(.., |at, stored| {
                stored.topic == topic && stored.doubt != Doubt::None && !in_queues.contains(at)
            });
            found_dead.extend(dead);
        }
        found
            .values_mut()
            .chain(found_dead.values_mut())
            .for_each(|stored| stored.doubt = Doubt::None);
    }
}

/// Notes the tags codes of entries. One whose unit cannot be read is none.
#[derive(Default)]
struct TagsCodes(Vec<i64>);

impl MessageFilter for TagsCodes {
    fn matches_entry(
        &mut self,
        tags_code: Option<i64>,
        _unit: Option<&minimq_store::consume_queue::ExtUnit>,
    ) -> bool {
        self.0.extend(tags_code);
        true
    }
}

/// Where the log begins; without any file where it ends.
fn log_min(store: &Store) -> i64 {
    match store.log().min_offset().get() {
        min @ 0.. => min,
        _ => store.log().max_offset().get(),
    }
}

/// Number and place of every message a consumer of the queue gets.
fn queue_of(store: &Store, topic: &str, queue_id: i32) -> Vec<(i64, i64)> {
    let mut codes = TagsCodes::default();
    let messages = messages_of(store, topic, queue_id, &mut codes);
    let expected: Vec<_> = messages.iter().map(|m| tags_code(m.tags())).collect();
    assert_eq!(codes.0, expected, "{topic}/{queue_id}");
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
        ext in any::<bool>(),
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut world = World::new(FlushDiskType::SyncFlush, queue_file, ext);
        events.iter().for_each(|event| world.happen(event));
    }

    #[test]
    fn async_flush_keeps_a_beginning_of_the_log_and_tells_of_the_rest(
        queue_file in queue_file(),
        ext in any::<bool>(),
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut world = World::new(FlushDiskType::AsyncFlush, queue_file, ext);
        events.iter().for_each(|event| world.happen(event));
    }
}
