//! What went through the broker: counts and sizes by topic, group and queue over a minute, an hour and a day
//! (broker spec 13.6), and the figures of the store for request 28 ([`StoreFigures`]).
//!
//! Counting is adding to atomics, once for all messages of a read. Which atomics is remembered by each connection
//! ([`PutCache`], [`GetCache`]), so that names are looked up, under a lock, when they are new to it only.

mod cache;
mod item;
mod requests;
mod stages;
mod store_figures;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use minimq_protocol::body::BrokerStatsData;
use minimq_protocol::delay_level::DelayLevels;
use minimq_protocol::name;
use minimq_store::{AppendMessage, AppendOutcome};
use parking_lot::RwLock;

use crate::broker::Broker;

pub use cache::{GetCache, GetItems, PutCache, Stored};
pub use item::{Item, Period};
pub use requests::view;
pub use stages::{ReadTimer, SendStages};
pub use store_figures::{Rate, StoreFigures, Totals};

/// Group under whose name delayed messages are taken.
const SCHEDULE_GROUP: &str = "SCHEDULE_CONSUMER";
/// Keys of one kind at most; what comes beyond is not told apart.
const MAX_KEYS: usize = 500_000;
/// How often the minute is sampled.
const MINUTE_SAMPLE: Duration = Duration::from_secs(10);
/// Minute samples between two of the hour.
const HOUR_EVERY: u64 = 60;
/// Minute samples between two of the day.
const DAY_EVERY: u64 = 360;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $name:literal,)*) => {
        /// What is counted; the name is the one tools ask by.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind { $($(#[doc = $doc])+ $kind,)* }

        impl Kind {
            const ALL: &'static [(Kind, &'static str)] = &[$((Kind::$kind, $name),)*];
        }
    };
}

kinds! {
    /// Messages stored, by topic.
    TopicPutNums = "TOPIC_PUT_NUMS",
    /// Their bytes.
    TopicPutSize = "TOPIC_PUT_SIZE",
    /// Messages given, by `topic@group`.
    GroupGetNums = "GROUP_GET_NUMS",
    /// Their bytes.
    GroupGetSize = "GROUP_GET_SIZE",
    /// Messages given back, by `topic@group`.
    SendBackNums = "SNDBCK_PUT_NUMS",
    /// Messages stored, by cluster.
    BrokerPutNums = "BROKER_PUT_NUMS",
    /// Messages given, by cluster.
    BrokerGetNums = "BROKER_GET_NUMS",
    /// Time of a read, ms, by `queueId@topic@group` or `topic@group`.
    GroupGetLatency = "GROUP_GET_LATENCY",
    /// Delayed messages stored, by `topic@queueId`.
    QueuePutNums = "QUEUE_PUT_NUMS",
    /// Their bytes.
    QueuePutSize = "QUEUE_PUT_SIZE",
    /// Delayed messages delivered, by `topic@queueId@group`.
    QueueGetNums = "QUEUE_GET_NUMS",
    /// Their bytes.
    QueueGetSize = "QUEUE_GET_SIZE",
}

/// Names that exist and are never fed, as in 4.9.8.
const NEVER_FED: [&str; 4] = [
    "GROUP_GET_FROM_DISK_NUMS",
    "GROUP_GET_FROM_DISK_SIZE",
    "BROKER_GET_FROM_DISK_NUMS",
    "BROKER_GET_FROM_DISK_SIZE",
];

type Items = HashMap<Box<str>, Arc<Item>>;

/// Counts of one delay level's queue.
#[derive(Debug)]
struct DelayItems {
    put_nums: Arc<Item>,
    put_size: Arc<Item>,
    get_nums: Arc<Item>,
    get_size: Arc<Item>,
}

/// All statistics.
#[derive(Debug)]
pub struct Stats {
    kinds: Vec<RwLock<Items>>,
    /// Changes when items are dropped: what connections remember is old then.
    generation: AtomicU64,
    broker_put: Arc<Item>,
    broker_get: Arc<Item>,
    delay: Vec<DelayItems>,
    /// Counts all connections' new names once more than `MAX_KEYS` are known.
    beyond: Arc<Item>,
    /// Rates and times of the store.
    pub store: StoreFigures,
    /// Where the time of sends goes.
    pub send: SendStages,
}

impl Stats {
    /// Nothing counted yet.
    pub fn new(cluster: &str, levels: &DelayLevels, now_ms: i64) -> Self {
        let kinds: Vec<RwLock<Items>> = Kind::ALL.iter().map(|_| RwLock::default()).collect();
        let mut stats = Self {
            kinds,
            generation: AtomicU64::new(0),
            broker_put: Arc::default(),
            broker_get: Arc::default(),
            delay: Vec::new(),
            beyond: Arc::default(),
            store: StoreFigures::new(now_ms),
            send: SendStages::default(),
        };
        stats.broker_put = stats.item(Kind::BrokerPutNums, cluster);
        stats.broker_get = stats.item(Kind::BrokerGetNums, cluster);
        for queue_id in 0..levels.max_level().max(0) {
            let put = format!("{}@{queue_id}", name::SCHEDULE_TOPIC);
            let get = format!("{put}@{SCHEDULE_GROUP}");
            let items = DelayItems {
                put_nums: stats.item(Kind::QueuePutNums, &put),
                put_size: stats.item(Kind::QueuePutSize, &put),
                get_nums: stats.item(Kind::QueueGetNums, &get),
                get_size: stats.item(Kind::QueueGetSize, &get),
            };
            stats.delay.push(items);
        }
        stats
    }

    fn table(&self, kind: Kind) -> &RwLock<Items> {
        &self.kinds[kind as usize]
    }

    /// The item of a key, made if it is new.
    pub fn item(&self, kind: Kind, key: &str) -> Arc<Item> {
        if let Some(known) = self.table(kind).read().get(key) {
            return known.clone();
        }
        let mut items = self.table(kind).write();
        if items.len() >= MAX_KEYS && !items.contains_key(key) {
            return self.beyond.clone();
        }
        items.entry(key.into()).or_default().clone()
    }

    /// Figures of a key; `None` if nothing was counted under it.
    pub fn view(&self, stats_name: &str, key: &str) -> Option<BrokerStatsData> {
        let (kind, _) = Kind::ALL.iter().find(|(_, name)| *name == stats_name)?;
        let item = self.table(*kind).read().get(key).cloned()?;
        Some(BrokerStatsData {
            stats_minute: item.figures(Period::Minute),
            stats_hour: item.figures(Period::Hour),
            stats_day: item.figures(Period::Day),
        })
    }

    /// Messages a group takes of a topic a second, over the last minute.
    pub fn group_tps(&self, topic: &str, group: &str) -> f64 {
        let items = self.table(Kind::GroupGetNums).read();
        let item = items.get(format!("{topic}@{group}").as_str());
        item.map_or(0.0, |item| item.figures(Period::Minute).tps)
    }

    /// Messages were given to consumers.
    pub fn got(&self, items: &GetItems, count: usize, bytes: usize) {
        items.nums.add(count as i64, 1);
        items.size.add(bytes as i64, 1);
        self.broker_get.add(count as i64, 1);
    }

    /// A message was given back.
    pub fn sent_back(&self, topic: &str, group: &str) {
        self.item(Kind::SendBackNums, &format!("{topic}@{group}"))
            .add(1, 1);
    }

    /// Messages that the broker itself stored: all under their topics.
    pub fn stored_by_broker(&self, messages: &[AppendMessage<'_>], outcomes: &[AppendOutcome]) {
        for (message, outcome) in messages.iter().zip(outcomes) {
            let Ok(result) = outcome else { continue };
            let bytes = i64::from(result.size);
            self.item(Kind::TopicPutNums, message.topic).add(1, 1);
            self.item(Kind::TopicPutSize, message.topic).add(bytes, 1);
            self.broker_put.add(1, 1);
            self.delayed(message.topic, message.queue_id, 1, bytes);
        }
    }

    /// Counts what goes into the queue of a delay level.
    fn delayed(&self, topic: &str, queue_id: i32, count: i64, bytes: i64) {
        if topic != name::SCHEDULE_TOPIC {
            return;
        }
        let items = usize::try_from(queue_id)
            .ok()
            .and_then(|at| self.delay.get(at));
        if let Some(items) = items {
            items.put_nums.add(count, 1);
            items.put_size.add(bytes, 1);
        }
    }

    /// Delayed messages were delivered.
    pub fn delivered(&self, queue_id: i32, count: usize, bytes: usize) {
        let items = usize::try_from(queue_id)
            .ok()
            .and_then(|at| self.delay.get(at));
        if let Some(items) = items.filter(|_| count > 0) {
            items.get_nums.add(count as i64, 1);
            items.get_size.add(bytes as i64, 1);
        }
    }

    /// Drops what was counted for a topic.
    pub fn topic_deleted(&self, topic: &str) {
        self.drop_keys(|key| key.split('@').any(|part| part == topic));
    }

    /// Drops what was counted for a group.
    pub fn group_deleted(&self, group: &str) {
        self.drop_keys(|key| key.rsplit_once('@').is_some_and(|(_, last)| last == group));
    }

    fn drop_keys(&self, gone: impl Fn(&str) -> bool) {
        let cluster_wide = [Kind::BrokerPutNums as usize, Kind::BrokerGetNums as usize];
        for (at, table) in self.kinds.iter().enumerate() {
            if !cluster_wide.contains(&at) {
                table.write().retain(|key, _| !gone(key));
            }
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Takes a sample of every item.
    pub fn sample(&self, period: Period, now_ms: i64) {
        for table in &self.kinds {
            // Taken out first: a new name must not wait for all samples.
            let items: Vec<Arc<Item>> = table.read().values().cloned().collect();
            for item in items {
                item.sample(period, now_ms);
            }
        }
    }
}

impl Broker {
    /// Samples all statistics in time; ends when the broker stops.
    pub(crate) async fn sample_stats(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        let mut second: u64 = 0;
        loop {
            tokio::select! {
                () = self.stopping.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let now_ms = self.clock.now_ms();
            let appended = &self.store.log_store().counters().appended_messages;
            self.stats
                .store
                .tick(now_ms, appended.load(Ordering::Relaxed));
            if second.is_multiple_of(MINUTE_SAMPLE.as_secs()) {
                let sample = second / MINUTE_SAMPLE.as_secs();
                self.stats.sample(Period::Minute, now_ms);
                if sample.is_multiple_of(HOUR_EVERY) {
                    self.stats.sample(Period::Hour, now_ms);
                }
                if sample.is_multiple_of(DAY_EVERY) {
                    self.stats.sample(Period::Day, now_ms);
                }
            }
            second += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_stands_at_its_own_place() {
        for (at, (kind, _)) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, at);
        }
    }

    #[test]
    fn deleted_topics_and_groups_take_their_keys_along() {
        let stats = Stats::new("C1", &DelayLevels::parse("1s").unwrap(), 0);
        for (kind, key) in [
            (Kind::TopicPutNums, "T"),
            (Kind::GroupGetNums, "T@G"),
            (Kind::GroupGetLatency, "0@T@G"),
            (Kind::GroupGetNums, "T2@G"),
        ] {
            stats.item(kind, key).add(1, 1);
        }
        stats.topic_deleted("T");
        assert!(stats.view("TOPIC_PUT_NUMS", "T").is_none());
        assert!(stats.view("GROUP_GET_LATENCY", "0@T@G").is_none());
        assert!(stats.view("GROUP_GET_NUMS", "T2@G").is_some());
        stats.group_deleted("G");
        assert!(stats.view("GROUP_GET_NUMS", "T2@G").is_none());
        assert!(stats.view("BROKER_PUT_NUMS", "C1").is_some());
    }

    #[test]
    fn counting_what_is_known_allocates_nothing() {
        let stats = Stats::new("C1", &DelayLevels::parse("1s").unwrap(), 0);
        let (mut puts, mut gets) = (PutCache::default(), GetCache::default());
        let mut count = || {
            for topic in ["T", name::SCHEDULE_TOPIC] {
                let stored = Stored {
                    topic,
                    queue_id: 0,
                    count: 2,
                    calls: 1,
                    bytes: 300,
                };
                puts.count(&stats, &stored);
            }
            stats.store.put_took(2, Duration::from_micros(3));
            let items = gets.items(&stats, "G", "T", 0, true);
            items.took(1);
            stats.got(&items, 2, 300);
            stats.store.get_took(2, Duration::from_micros(3));
            stats.delivered(0, 1, 100);
        };
        count();
        let allocated = allocation_counter::measure(&mut count);
        assert_eq!(allocated.count_total, 0);
        assert_eq!(stats.group_tps("T", "G"), 0.0, "not sampled yet");
    }
}
