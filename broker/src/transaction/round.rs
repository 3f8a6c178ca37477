//! Rounds over the half messages nobody has ended (broker spec 8.4): from the first that is not done to the first
//! that is too young, each is done, stored again and asked about, or put aside. Progress is kept in the offset table
//! under group `CID_RMQ_SYS_TRANS`.
//!
//! Different from 4.9.8: before a message is asked about, all op messages are read, also those that came meanwhile;
//! waiting for an immunity of its own uses up no check; an op message that arrives while a copy of its half message
//! waits still ends that copy.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_protocol::message::MessageView;
use minimq_protocol::properties::name as property;
use minimq_protocol::{name, perm};
use minimq_store::{Blocking, GetRequest, GetStatus, NoFilter, QueueOffset};
use parking_lot::Mutex;

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::send::store_one;

use super::decide::{Decision, Half, Rules};
use super::half;

/// Longest round; the rest is for the next.
const LONGEST: Duration = Duration::from_secs(60);
/// Messages read at once.
const BATCH: usize = 32;

/// First numbers of half messages of which a copy waits for an immunity of its own: their op messages are kept in
/// view. In memory only: after a restart such a copy may be asked about once too often.
#[derive(Debug, Default)]
pub struct CopiesWaiting {
    first_of: Mutex<HashSet<i64>>,
}

/// One round over one queue.
struct Round<'b> {
    broker: &'b Arc<Broker>,
    config: Arc<BrokerConfig>,
    start_ms: i64,
    begun: Instant,
    /// Half messages that are done.
    done: HashSet<i64>,
    /// Op messages in the order of their queue: own number, half message.
    ops: Vec<(i64, Option<i64>)>,
    next_op: i64,
    half: i64,
    asked: usize,
    discarded: usize,
}

enum Step {
    Next,
    End,
}

impl Broker {
    /// Runs rounds until the broker stops.
    pub(crate) async fn check_transactions(self: Arc<Self>) {
        loop {
            let period = self.config.get().broker.transaction_check_interval.max(100) as u64;
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = tokio::time::sleep(Duration::from_millis(period)) => {}
            }
            if self.config.get().is_slave() {
                continue;
            }
            let broker = self.clone();
            let round = tokio::task::spawn_blocking(move || broker.check_round());
            if round.await.is_err() {
                tracing::error!("a round over half messages failed; the next one is tried in time");
            }
        }
    }

    /// The topics of half messages and of those put aside: they must be in the table, or their queues would pass
    /// for unused ones.
    pub(crate) fn make_transaction_topics(self: &Arc<Self>) {
        for topic in [name::TRANS_HALF_TOPIC, name::TRANS_CHECK_MAX_TIME_TOPIC] {
            self.topic_or_create(topic, 1, perm::READ | perm::WRITE, 0);
        }
    }

    fn check_round(self: &Arc<Self>) {
        let reader = self.store.reader();
        for queue in self.store.queues().of_topic(name::TRANS_HALF_TOPIC) {
            let queue_id = queue.queue_id();
            let place = |topic: &str| {
                let min = reader.min_offset(topic, queue_id).get();
                let max = reader.max_offset(topic, queue_id).get();
                let stored = self
                    .offsets
                    .get(name::TRANS_CONSUMER_GROUP, topic, queue_id);
                (min, stored.unwrap_or(min), max)
            };
            let (half_min, half_stored, half_max) = place(name::TRANS_HALF_TOPIC);
            let (op_min, op_stored, op_max) = place(name::TRANS_OP_HALF_TOPIC);
            let (half, op) = if half_stored > half_max || op_stored > op_max {
                tracing::warn!(
                    queue_id,
                    half_stored,
                    half_max,
                    op_stored,
                    op_max,
                    "the table of offsets is newer than the log: all half messages are looked at again"
                );
                (half_min, op_min)
            } else {
                (half_stored.max(half_min), op_stored.max(op_min))
            };
            let mut round = Round {
                broker: self,
                config: self.config.to_arc(),
                start_ms: self.clock.now_ms(),
                begun: Instant::now(),
                done: HashSet::new(),
                ops: Vec::new(),
                next_op: op,
                half,
                asked: 0,
                discarded: 0,
            };
            round.run(queue_id);
            round.commit(queue_id, half_stored, op_stored);
        }
    }
}

impl Round<'_> {
    fn run(&mut self, queue_id: i32) {
        self.read_ops(queue_id);
        while self.begun.elapsed() < LONGEST && !self.broker.stopping.is_cancelled() {
            let mut records = Vec::new();
            let Some(next) = self.read(name::TRANS_HALF_TOPIC, queue_id, self.half, &mut records)
            else {
                return;
            };
            for record in records {
                let Ok(message) = MessageView::parse(record) else {
                    continue;
                };
                self.half = message.queue_offset();
                if let Step::End = self.step(queue_id, &message) {
                    return;
                }
                self.half += 1;
            }
            self.half = next.max(self.half);
        }
    }

    /// Reads messages of a queue; gives where to go on, `None` when there is nothing more.
    fn read(&self, topic: &str, queue_id: i32, from: i64, out: &mut Vec<Bytes>) -> Option<i64> {
        let request = GetRequest {
            topic,
            queue_id,
            offset: QueueOffset(from),
            max_count: BATCH,
            max_bytes: usize::MAX,
        };
        let reader = self.broker.store.reader();
        match reader.get(&request, &mut NoFilter, Blocking::Allowed, out) {
            Ok(got) => match got.status {
                GetStatus::NoMessageInQueue
                | GetStatus::OffsetOverflowOne
                | GetStatus::OffsetOverflowBadly => None,
                _ => Some(got.next_begin_offset.get()).filter(|next| *next > from),
            },
            Err(error) => {
                tracing::error!(topic, queue_id, from, %error, "messages of transactions cannot be read");
                None
            }
        }
    }

    fn read_ops(&mut self, queue_id: i32) {
        loop {
            let mut records = Vec::new();
            let Some(next) = self.read(
                name::TRANS_OP_HALF_TOPIC,
                queue_id,
                self.next_op,
                &mut records,
            ) else {
                return;
            };
            for record in records {
                if let Ok(op) = MessageView::parse(record) {
                    let marked = half::marked_by(&op);
                    self.done.extend(marked);
                    self.ops.push((op.queue_offset(), marked));
                }
            }
            self.next_op = next;
        }
    }

    fn step(&mut self, queue_id: i32, message: &MessageView) -> Step {
        if self.is_done(message) {
            return Step::Next;
        }
        let keys = &self.config.broker;
        let rules = Rules {
            start_ms: self.start_ms,
            now_ms: self.broker.clock.now_ms(),
            immunity_ms: keys.transaction_time_out,
            max_checks: keys.transaction_check_max,
            max_age_ms: self
                .config
                .store
                .file_reserved_time
                .saturating_mul(3_600_000),
        };
        let half = Half::of(message, rules.immunity_ms);
        let decision = half.decide(&rules);
        if matches!(decision, Decision::Ask | Decision::Discard) {
            // It may have been ended since the round began.
            self.read_ops(queue_id);
            if self.is_done(message) {
                return Step::Next;
            }
        }
        match decision {
            Decision::End => Step::End,
            Decision::Discard => self.discard(message, &half),
            Decision::Wait => self.wait(queue_id, message),
            Decision::Ask => self.ask(queue_id, message, half.checks + 1),
        }
    }

    fn is_done(&self, message: &MessageView) -> bool {
        let first = half::number(message.properties(), property::TRAN_PREPARED_QUEUE_OFFSET);
        let done = self.done.contains(&message.queue_offset())
            || first.is_some_and(|first| self.done.contains(&first));
        if let (true, Some(first)) = (done, first) {
            self.broker.copies_waiting.first_of.lock().remove(&first);
        }
        done
    }

    fn discard(&mut self, message: &MessageView, half: &Half) -> Step {
        let properties = message.properties();
        let (topic, text) = (name::TRANS_CHECK_MAX_TIME_TOPIC, properties.as_bytes());
        match store_one(self.broker, half::copy(message, topic, half::QUEUE, text)) {
            Ok(_) => {
                self.discarded += 1;
                let first = half::number(properties, property::TRAN_PREPARED_QUEUE_OFFSET);
                if let Some(first) = first {
                    self.broker.copies_waiting.first_of.lock().remove(&first);
                }
                tracing::warn!(
                    topic = properties.get(property::REAL_TOPIC).unwrap_or_default(),
                    group = properties.get(property::PGROUP).unwrap_or_default(),
                    key = message.unique_key().unwrap_or_default(),
                    checks = half.checks,
                    "a transaction was never decided: put aside in {topic}"
                );
                Step::Next
            }
            Err(error) => failed(&error, "a half message could not be put aside"),
        }
    }

    /// Its own immunity is longer than its place in the queue allows: a copy takes a place behind.
    fn wait(&self, queue_id: i32, message: &MessageView) -> Step {
        let old = message.properties();
        let known = half::number(old, property::TRAN_PREPARED_QUEUE_OFFSET);
        let first = known.unwrap_or(message.queue_offset());
        let text = first.to_string();
        let set = [(property::TRAN_PREPARED_QUEUE_OFFSET, text.as_str())];
        let properties = half::with(old, &set);
        // Before it is stored: an op message must not be passed over in between.
        self.broker.copies_waiting.first_of.lock().insert(first);
        let text = properties.as_str().as_bytes();
        match store_one(
            self.broker,
            half::copy(message, name::TRANS_HALF_TOPIC, queue_id, text),
        ) {
            Ok(_) => Step::Next,
            Err(error) => failed(&error, "a half message could not be kept waiting"),
        }
    }

    fn ask(&mut self, queue_id: i32, message: &MessageView, checks: i64) -> Step {
        let checks = checks.to_string();
        let set = [(property::TRANSACTION_CHECK_TIMES, checks.as_str())];
        let properties = half::with(message.properties(), &set);
        let text = properties.as_str().as_bytes();
        match store_one(
            self.broker,
            half::copy(message, name::TRANS_HALF_TOPIC, queue_id, text),
        ) {
            Ok(stored) => {
                self.asked += 1;
                self.broker.ask_producer(message, &properties, &stored);
                Step::Next
            }
            Err(error) => failed(&error, "a half message could not be stored again"),
        }
    }

    /// Notes how far the round came.
    fn commit(&self, queue_id: i32, half_before: i64, op_before: i64) {
        let group = name::TRANS_CONSUMER_GROUP;
        let offsets = &self.broker.offsets;
        if self.half != half_before {
            // What was passed lives on as a copy, an op message or a committed message behind it: these must not be
            // lost to a power cut that the table of offsets outlives.
            if let Err(error) = self.broker.store.log_store().flush() {
                tracing::error!(%error, "the progress of the round is not noted; the next one looks again");
                return;
            }
            offsets.commit(group, name::TRANS_HALF_TOPIC, queue_id, self.half);
        }
        let waiting = self.broker.copies_waiting.first_of.lock();
        let is_over = |half: &i64| *half < self.half && !waiting.contains(half);
        let first_needed = self
            .ops
            .iter()
            .find(|(_, marked)| marked.as_ref().is_some_and(|half| !is_over(half)));
        let op = first_needed.map_or(self.next_op, |(op, _)| *op);
        drop(waiting);
        if op != op_before {
            offsets.commit(group, name::TRANS_OP_HALF_TOPIC, queue_id, op);
        }
        if self.asked + self.discarded > 0 {
            tracing::info!(
                queue_id,
                from = half_before,
                to = self.half,
                asked = self.asked,
                discarded = self.discarded,
                "half messages checked"
            );
        }
    }
}

fn failed(error: &minimq_store::AppendError, what: &str) -> Step {
    tracing::error!(%error, "{what}; the next round tries again");
    Step::End
}
