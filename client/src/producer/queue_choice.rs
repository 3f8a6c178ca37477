//! Which queue a message goes to: round robin, away from a broker that just failed, and by measured latency (client spec 3.6).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use minimq_protocol::body::MessageQueue;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::random;

/// From this latency on (ms) a broker is avoided for so long (ms).
const AVOID: [(u64, u64); 7] = [
    (15_000, 600_000),
    (3_000, 180_000),
    (2_000, 120_000),
    (1_000, 60_000),
    (550, 30_000),
    (100, 0),
    (50, 0),
];
/// A failed attempt counts as one of this latency.
const FAILED: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct QueueChoice {
    counters: DashMap<String, Arc<AtomicUsize>>,
    faults: Option<Mutex<Faults>>,
}

impl QueueChoice {
    pub(super) fn new(by_latency: bool) -> Self {
        Self {
            counters: DashMap::new(),
            faults: by_latency.then(Mutex::default),
        }
    }

    /// The next queue; `None` only if there are none.
    pub(super) fn choose<'q>(
        &self,
        topic: &str,
        queues: &'q [MessageQueue],
        last_broker: Option<&str>,
    ) -> Option<&'q MessageQueue> {
        self.choose_at(topic, queues, last_broker, Instant::now())
    }

    fn choose_at<'q>(
        &self,
        topic: &str,
        queues: &'q [MessageQueue],
        last_broker: Option<&str>,
        now: Instant,
    ) -> Option<&'q MessageQueue> {
        let start = self.step(topic);
        let Some(faults) = &self.faults else {
            return next(queues, start, |queue| {
                last_broker != Some(&queue.broker_name)
            });
        };
        let mut faults = faults.lock();
        let good = queues
            .iter()
            .cycle()
            .skip(start % queues.len().max(1))
            .take(queues.len())
            .find(|queue| faults.is_available(&queue.broker_name, now));
        if good.is_some() {
            return good;
        }
        let least_bad = faults.least_bad(now);
        next(queues, start, |queue| {
            Some(&queue.broker_name) == least_bad.as_ref()
        })
    }

    /// An attempt took `latency`, or failed.
    pub(super) fn record(&self, broker: &str, latency: Option<Duration>) {
        self.record_at(broker, latency, Instant::now());
    }

    fn record_at(&self, broker: &str, latency: Option<Duration>, now: Instant) {
        if let Some(faults) = &self.faults {
            faults.lock().record(broker, latency.unwrap_or(FAILED), now);
        }
    }

    /// Is every queue taken in its turn, whatever happened before?
    pub(super) fn is_round_robin(&self) -> bool {
        self.faults.is_none()
    }

    fn step(&self, topic: &str) -> usize {
        if let Some(counter) = self.counters.get(topic) {
            return counter.fetch_add(1, Ordering::Relaxed);
        }
        self.counter(topic).fetch_add(1, Ordering::Relaxed)
    }

    /// Counts the turns of a topic's queues.
    pub(super) fn counter(&self, topic: &str) -> Arc<AtomicUsize> {
        let first = || Arc::new(AtomicUsize::new(random::below(1 << 16)));
        let counter = self.counters.entry(topic.to_owned()).or_insert_with(first);
        counter.clone()
    }
}

/// The first queue from `start` on that is good, else the one at `start`.
fn next(
    queues: &[MessageQueue],
    start: usize,
    good: impl Fn(&MessageQueue) -> bool,
) -> Option<&MessageQueue> {
    let at = start.checked_rem(queues.len())?;
    let (before, from) = queues.split_at_checked(at)?;
    from.iter()
        .chain(before)
        .find(|queue| good(queue))
        .or_else(|| from.first())
}

/// Latency and time of return of each broker.
#[derive(Debug, Default)]
struct Faults {
    brokers: HashMap<String, (Duration, Instant)>,
    turn: usize,
}

impl Faults {
    fn record(&mut self, broker: &str, latency: Duration, now: Instant) {
        let ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        let avoid = AVOID
            .iter()
            .find(|(from, _)| ms >= *from)
            .map_or(0, |(_, avoid)| *avoid);
        let entry = (latency, now + Duration::from_millis(avoid));
        match self.brokers.get_mut(broker) {
            Some(known) => *known = entry,
            None => {
                self.brokers.insert(broker.to_owned(), entry);
            }
        }
    }

    fn is_available(&self, broker: &str, now: Instant) -> bool {
        self.brokers
            .get(broker)
            .is_none_or(|(_, until)| *until <= now)
    }

    /// One of the better half, in turns.
    fn least_bad(&mut self, now: Instant) -> Option<String> {
        let mut all: Vec<_> = self.brokers.iter().collect();
        all.sort_by_key(|(_, (latency, until))| (*until > now, *latency, *until));
        let half = (all.len() / 2).max(1);
        self.turn = self.turn.wrapping_add(1);
        all.get(self.turn % half)
            .map(|(broker, _)| (*broker).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(brokers: &[(&str, i32)]) -> Vec<MessageQueue> {
        let of = |(broker, count): &(&str, i32)| {
            let broker = (*broker).to_owned();
            (0..*count).map(move |id| MessageQueue::new("t", broker.clone(), id))
        };
        brokers.iter().flat_map(of).collect()
    }

    #[test]
    fn queues_take_turns() {
        let (choice, queues) = (QueueChoice::new(false), queues(&[("a", 2), ("b", 2)]));
        let mut counts = HashMap::new();
        for _ in 0..40 {
            *counts
                .entry(choice.choose("t", &queues, None).unwrap())
                .or_insert(0) += 1;
        }
        assert!(counts.len() == 4 && counts.values().all(|count| *count == 10));
        assert!(choice.choose("t", &[], None).is_none());
    }

    #[test]
    fn another_broker_is_tried_after_a_failure_if_there_is_one() {
        let choice = QueueChoice::new(false);
        let two = queues(&[("a", 3), ("b", 1)]);
        assert!((0..20).all(|_| choice.choose("t", &two, Some("a")).unwrap().broker_name == "b"));
        let one = queues(&[("a", 3)]);
        assert_eq!(
            choice.choose("t", &one, Some("a")).unwrap().broker_name,
            "a"
        );
    }

    #[test]
    fn a_slow_broker_is_avoided_for_its_time() {
        let (choice, queues) = (QueueChoice::new(true), queues(&[("a", 1), ("b", 1)]));
        let now = Instant::now();
        let always = |broker: &str, now| {
            (0..10).all(|_| {
                choice
                    .choose_at("t", &queues, None, now)
                    .unwrap()
                    .broker_name
                    == broker
            })
        };
        choice.record_at("a", Some(Duration::from_millis(600)), now);
        assert!(always("b", now));
        choice.record_at("b", None, now);
        assert!(always("a", now), "the least bad");
        assert!(always("a", now + Duration::from_secs(31)), "a is back");
    }
}
