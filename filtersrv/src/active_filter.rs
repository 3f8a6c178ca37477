//! One filter in use: a module that a group uses for a topic, with its instance, its figures and its back-off.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use minimq_filter_engine::{Filter, FilterContext, FilterHash, Instance};
use minimq_protocol::body::FilterStats;
use parking_lot::Mutex;

use crate::statistics::{Counts, Statistics};

/// How long a filter that timed out is left alone, first and at most; doubled each time.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A filter is quick once so many batches in a row took less than this time each.
const QUICK: (u32, Duration) = (16, Duration::from_micros(500));
/// With so many failures in a row a filter is called failing.
const FAILING: u64 = 20;

/// For whom a filter works.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) topic: Arc<str>,
    pub(crate) group: Arc<str>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConsumerGroup: {} Topic: {}", self.group, self.topic)
    }
}

/// The sandbox of a filter; whoever holds its lock runs the filter.
pub(crate) type Slot = Arc<tokio::sync::Mutex<Option<Instance>>>;

#[derive(Debug, Default)]
struct BackOff {
    wait: Duration,
    until: Option<Instant>,
}

/// A filter in use.
pub(crate) struct ActiveFilter {
    pub(crate) key: Key,
    pub(crate) class_name: Arc<str>,
    filter: Arc<Filter>,
    slot: Slot,
    statistics: Mutex<Statistics>,
    back_off: Mutex<BackOff>,
    /// Quick batches in a row.
    quick: AtomicU32,
}

impl ActiveFilter {
    pub(crate) fn new(key: Key, class_name: Arc<str>, filter: Arc<Filter>) -> Self {
        Self {
            key,
            class_name,
            filter,
            slot: Slot::default(),
            statistics: Mutex::default(),
            back_off: Mutex::default(),
            quick: AtomicU32::new(0),
        }
    }

    /// SHA-256 of the upload.
    pub(crate) fn hash(&self) -> FilterHash {
        self.filter.hash()
    }

    /// Its sandbox.
    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The instance in the slot, or a fresh one if there is none that can go on.
    pub(crate) fn instance<'s>(
        &self,
        slot: &'s mut Option<Instance>,
    ) -> Result<&'s mut Instance, minimq_filter_engine::InstanceError> {
        // The old one first: it counts against the limits of the new one.
        let old = slot.take().filter(|instance| !instance.is_spent());
        let instance = match old {
            Some(instance) => instance,
            None => self.filter.instantiate(FilterContext {
                topic: self.key.topic.clone(),
                group: self.key.group.clone(),
                class_name: self.class_name.clone(),
            })?,
        };
        Ok(slot.insert(instance))
    }

    /// Gives the instance back if nobody uses it.
    pub(crate) fn rest(&self) {
        if let Ok(mut slot) = self.slot.try_lock() {
            *slot = None;
        }
    }

    /// It timed out: it is left alone for a time.
    pub(crate) fn timed_out(&self, now: Instant) {
        let mut back_off = self.back_off.lock();
        back_off.wait = (back_off.wait * 2).clamp(BACK_OFF.0, BACK_OFF.1);
        back_off.until = Some(now + back_off.wait);
    }

    /// It ran a batch within its time.
    pub(crate) fn was_in_time(&self) {
        *self.back_off.lock() = BackOff::default();
    }

    /// A batch took so long.
    pub(crate) fn took(&self, time: Duration) {
        // Batches of one filter run one after the other.
        let row = if time < QUICK.1 {
            self.quick.load(Ordering::Relaxed).saturating_add(1)
        } else {
            0
        };
        self.quick.store(row, Ordering::Relaxed);
    }

    /// Whether it has shown that its batches take no time worth speaking of.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick.load(Ordering::Relaxed) >= QUICK.0
    }

    /// How long it is still left alone.
    pub(crate) fn backs_off(&self, now: Instant) -> Option<Duration> {
        let until = self.back_off.lock().until?;
        Some(until.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Adds the figures of a batch.
    pub(crate) fn count(&self, counts: Counts) {
        self.statistics.lock().add(counts);
    }

    /// The last failure.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.statistics.lock().last_error.clone()
    }

    /// Its figures, with the number of connections that uploaded it.
    pub(crate) fn figures(&self, users: usize, now: Instant) -> FilterStats {
        let memory = self
            .slot
            .try_lock()
            .map_or(0, |slot| slot.as_ref().map_or(0, Instance::memory));
        let backs_off = self.backs_off(now).is_some();
        let sums = self.statistics.lock();
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        FilterStats {
            class_name: self.class_name.to_string(),
            consumer_group: self.key.group.to_string(),
            dropped: number(sums.dropped),
            failed: number(sums.failed),
            failures_in_a_row: number(sums.failures_in_a_row),
            hash: self.hash().to_string(),
            last_error: sums.last_error.clone(),
            matched: number(sums.matched),
            memory: number(memory as u64),
            module_size: number(self.filter.size() as u64),
            p50_nanos: number(sums.quantile(0.5)),
            p99_nanos: number(sums.quantile(0.99)),
            received: number(sums.received()),
            state: match (backs_off, sums.failures_in_a_row >= FAILING) {
                (true, _) => "backing off",
                (_, true) => "failing",
                _ => "active",
            }
            .to_owned(),
            topic: self.key.topic.to_string(),
            users: number(users as u64),
        }
    }

    /// Writes the figures to the log if there are new ones.
    pub(crate) fn log_news(&self, users: usize, now: Instant) {
        if !self.statistics.lock().take_news() {
            return;
        }
        let figures = self.figures(users, now);
        tracing::info!(
            topic = figures.topic,
            group = figures.consumer_group,
            class = figures.class_name,
            received = figures.received,
            matched = figures.matched,
            dropped = figures.dropped,
            failed = figures.failed,
            p50_ns = figures.p50_nanos,
            p99_ns = figures.p99_nanos,
            memory = figures.memory,
            state = figures.state,
            hash = figures.hash,
            users = figures.users,
            "filter"
        );
    }
}

impl fmt::Debug for ActiveFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ActiveFilter({}, {}, {})",
            self.key,
            self.class_name,
            self.hash()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minimq_filter_engine::{Engine, EngineConfig};

    fn filter() -> ActiveFilter {
        let text = "(module (memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\"))
            (func (export \"filter\") (result i32) i32.const 1))";
        let engine = Engine::new(EngineConfig::default()).unwrap();
        let key = Key {
            topic: "T".into(),
            group: "G".into(),
        };
        ActiveFilter::new(key, "C".into(), engine.compile(text.as_bytes()).unwrap())
    }

    #[test]
    fn a_filter_that_times_out_is_left_alone_for_a_second_doubling_to_thirty() {
        let (filter, mut now) = (filter(), Instant::now());
        assert_eq!(filter.backs_off(now), None);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            filter.timed_out(now);
            let wait = Duration::from_secs(seconds);
            assert_eq!(filter.backs_off(now), Some(wait));
            assert_eq!(filter.figures(0, now).state, "backing off");
            now += wait;
            assert_eq!(filter.backs_off(now), None, "it gets another chance");
        }
        filter.was_in_time();
        filter.timed_out(now);
        assert_eq!(filter.backs_off(now), Some(Duration::from_secs(1)));
    }

    #[test]
    fn it_is_quick_after_quick_batches_in_a_row_until_one_is_not() {
        let filter = filter();
        let quick = || {
            for _ in 0..15 {
                filter.took(Duration::from_micros(400));
            }
        };
        quick();
        assert!(!filter.is_quick());
        filter.took(Duration::ZERO);
        assert!(filter.is_quick());
        filter.took(Duration::from_micros(500));
        assert!(!filter.is_quick());
        quick();
        assert!(!filter.is_quick(), "it begins anew");
    }

    #[test]
    fn with_twenty_failures_in_a_row_it_is_called_failing() {
        let (filter, now) = (filter(), Instant::now());
        let fail = |times| {
            filter.count(Counts {
                failed: times,
                failed_at_end: times,
                error: Some("queue offset 7: why".to_owned()),
                ..Counts::default()
            })
        };
        fail(19);
        assert_eq!(filter.figures(1, now).state, "active");
        fail(1);
        let figures = filter.figures(1, now);
        assert_eq!((figures.state.as_str(), figures.users), ("failing", 1));
        assert_eq!(figures.last_error.as_deref(), Some("queue offset 7: why"));
        filter.count(Counts {
            matched: 1,
            ..Counts::default()
        });
        assert_eq!(filter.figures(1, now).state, "active");
    }

    /// What is written to the log.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn its_figures_go_to_the_log_when_there_are_new_ones() {
        let (filter, log) = (filter(), Log::default());
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let now = Instant::now();
            filter.log_news(1, now);
            assert!(log.0.lock().is_empty(), "it has seen nothing yet");
            filter.count(Counts {
                matched: 2,
                dropped: 5,
                failed: 1,
                failed_at_end: 1,
                nanos: vec![300; 8],
                ..Counts::default()
            });
            filter.log_news(3, now);
            let lines = String::from_utf8(std::mem::take(&mut *log.0.lock())).unwrap();
            for figure in [
                "topic=\"T\" group=\"G\" class=\"C\"",
                "received=8 matched=2 dropped=5 failed=1",
                "p50_ns=3",
                "p99_ns=3",
                "memory=0 state=\"active\"",
                &format!("hash=\"{}\" users=3", filter.hash()),
            ] {
                assert!(lines.contains(figure), "{figure}: {lines}");
            }
            assert_eq!(lines.lines().count(), 1, "{lines}");
            filter.log_news(3, now);
            assert!(log.0.lock().is_empty(), "nothing new");
        });
    }

    #[test]
    fn an_instance_that_rests_is_given_back_and_made_anew() {
        let filter = filter();
        let memory = || filter.figures(0, Instant::now()).memory;
        assert_eq!(memory(), 0);
        filter
            .instance(&mut filter.slot().try_lock().unwrap())
            .unwrap();
        assert_eq!(memory(), 65_536);
        filter.rest();
        assert_eq!(memory(), 0);
        filter
            .instance(&mut filter.slot().try_lock().unwrap())
            .unwrap();
        assert_eq!(memory(), 65_536);
    }
}
