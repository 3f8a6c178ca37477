//! Pulls that wait for messages, by topic and queue. A pure table: arrivals and the time are handed in, pulls to
//! run again are handed out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use minimq_remoting::Responder;
use parking_lot::Mutex;

use crate::client_registry::PullFilter;

use super::request::Plan;

/// A pull whose queue has grown with nothing for it is answered after this, so that its offset moves on.
const MOVE_ON: Duration = Duration::from_secs(5);

/// A pull that waits.
pub(super) struct Held {
    pub(super) plan: Plan,
    pub(super) responder: Responder,
    deadline: Instant,
    since: Instant,
}

impl Held {
    pub(super) fn new(plan: Plan, responder: Responder, deadline: Instant) -> Self {
        Self {
            plan,
            responder,
            deadline,
            since: Instant::now(),
        }
    }
}

type Queues = HashMap<i32, Vec<Held>>;

/// All held pulls.
#[derive(Default)]
pub struct HeldPulls {
    topics: Mutex<HashMap<Arc<str>, Queues>>,
    count: AtomicUsize,
}

/// An arrival that selectors have to look at.
pub(super) struct SqlArrival {
    pub(super) topic: Arc<str>,
    pub(super) queue_id: i32,
    pub(super) properties: Vec<u8>,
}

impl HeldPulls {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pulls held for each queue: topic, queue id, how many, the longest wait.
    pub fn snapshot(&self) -> Vec<(String, i32, usize, Duration)> {
        let topics = self.topics.lock();
        let now = Instant::now();
        let mut all = Vec::new();
        for (topic, queues) in topics.iter() {
            for (queue_id, held) in queues {
                let longest = held
                    .iter()
                    .map(|pull| now.duration_since(pull.since))
                    .max()
                    .unwrap_or_default();
                all.push((topic.to_string(), *queue_id, held.len(), longest));
            }
        }
        all
    }

    pub(super) fn add(&self, held: Held) {
        let mut topics = self.topics.lock();
        self.count.fetch_add(1, Ordering::SeqCst);
        let queues = topics.entry(held.plan.topic.clone()).or_default();
        queues.entry(held.plan.queue_id).or_default().push(held);
    }

    /// A message arrived: moves the pulls it may be for to `ready`. `true` when selectors wait on its queue.
    pub(super) fn arrived(
        &self,
        topic: &str,
        queue_id: i32,
        max: i64,
        tags_code: i64,
        ready: &mut Vec<Held>,
    ) -> bool {
        let mut topics = self.topics.lock();
        let Some(waiting) = topics
            .get_mut(topic)
            .and_then(|queues| queues.get_mut(&queue_id))
        else {
            return false;
        };
        let mut selectors = false;
        let woken = waiting.extract_if(.., |held| {
            if matches!(*held.plan.filter, PullFilter::Sql(_)) {
                selectors = true;
                return false;
            }
            max > held.plan.offset && held.plan.filter.may_match(tags_code)
        });
        let before = ready.len();
        ready.extend(woken);
        self.count.fetch_sub(ready.len() - before, Ordering::SeqCst);
        selectors
    }

    /// Moves the pulls whose selector takes the arrival to `ready`; each distinct selector is asked once.
    pub(super) fn arrived_for_selectors(&self, arrival: &SqlArrival, ready: &mut Vec<Held>) {
        let properties = minimq_protocol::properties::Properties::from_bytes(&arrival.properties);
        let mut asked: Vec<(*const crate::filter::sql::Selector, bool)> = Vec::new();
        let mut topics = self.topics.lock();
        let waiting = topics
            .get_mut(&arrival.topic)
            .and_then(|queues| queues.get_mut(&arrival.queue_id));
        let Some(waiting) = waiting else { return };
        let before = ready.len();
        ready.extend(waiting.extract_if(.., |held| {
            let PullFilter::Sql(selector) = &*held.plan.filter else {
                return false;
            };
            let key = Arc::as_ptr(selector);
            if let Some((_, matched)) = asked.iter().find(|(known, _)| *known == key) {
                return *matched;
            }
            let matched = selector.matches_properties(properties);
            asked.push((key, matched));
            matched
        }));
        self.count.fetch_sub(ready.len() - before, Ordering::SeqCst);
    }

    /// Takes the pulls of one queue whose offset lies before `max`.
    pub(super) fn take_behind(&self, topic: &str, queue_id: i32, max: i64) -> Vec<Held> {
        let mut topics = self.topics.lock();
        let waiting = topics
            .get_mut(topic)
            .and_then(|queues| queues.get_mut(&queue_id));
        let taken: Vec<Held> = waiting
            .map(|held| held.extract_if(.., |held| held.plan.offset < max).collect())
            .unwrap_or_default();
        self.count.fetch_sub(taken.len(), Ordering::SeqCst);
        taken
    }

    /// Takes the pulls whose time is up, and those that may have something to skip.
    pub(super) fn due(&self, now: Instant, max_of: impl Fn(&str, i32) -> i64) -> Vec<Held> {
        self.take(|held| {
            held.deadline <= now
                || (now.duration_since(held.since) >= MOVE_ON
                    && max_of(&held.plan.topic, held.plan.queue_id) > held.plan.offset)
        })
    }

    pub(super) fn take_all(&self) -> Vec<Held> {
        self.take(|_| true)
    }

    /// Drops the pulls of a closed connection.
    pub(super) fn connection_closed(&self, connection: u64) {
        if !self.is_empty() {
            drop(self.take(|held| held.responder.connection().id() == connection));
        }
    }

    fn take(&self, mut wanted: impl FnMut(&Held) -> bool) -> Vec<Held> {
        let mut taken = Vec::new();
        let mut topics = self.topics.lock();
        topics.retain(|_, queues| {
            queues.retain(|_, waiting| {
                taken.extend(waiting.extract_if(.., |held| wanted(held)));
                !waiting.is_empty()
            });
            !queues.is_empty()
        });
        drop(topics);
        self.count.fetch_sub(taken.len(), Ordering::SeqCst);
        taken
    }
}
