//! What must hold whatever happens: every acknowledged message is delivered, ordered handlers of a queue never run side by
//! side and in order, and every queue has one owner once things have settled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use minimq_client::{Delivery, Message, MessageQueue, Producer, PushConsumer};
use parking_lot::Mutex;

use super::eventually;

#[derive(Clone, Default)]
pub struct Invariants(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    sent: u64,
    acknowledged: BTreeSet<String>,
    delivered: BTreeMap<String, usize>,
    running: BTreeSet<MessageQueue>,
    /// Offset that each queue's ordered handler finished last.
    finished: BTreeMap<MessageQueue, i64>,
    violations: Vec<String>,
}

impl Invariants {
    /// Sends a message with a body of its own; whether it was acknowledged.
    pub async fn send(&self, producer: &Producer, topic: &str) -> bool {
        let body = {
            let mut state = self.0.lock();
            state.sent += 1;
            format!("{}", state.sent)
        };
        let sent = producer.send(Message::new(topic, body.clone())).await;
        if sent.is_ok() {
            self.0.lock().acknowledged.insert(body);
        }
        sent.is_ok()
    }

    /// Has seen a message.
    pub fn deliver(&self, delivery: &Delivery) {
        let body = String::from_utf8_lossy(delivery.body()).into_owned();
        *self.0.lock().delivered.entry(body).or_default() += 1;
    }

    /// An ordered handler begins.
    pub fn begin(&self, delivery: &Delivery) {
        let mut state = self.0.lock();
        if !state.running.insert(delivery.queue().clone()) {
            let violation = format!("two handlers at a time: {delivery:?}");
            state.violations.push(violation);
        }
    }

    /// It is done.
    pub fn end(&self, delivery: &Delivery) {
        self.deliver(delivery);
        let mut state = self.0.lock();
        state.running.remove(delivery.queue());
        let offset = delivery.queue_offset();
        let last = state.finished.insert(delivery.queue().clone(), offset);
        // An earlier one again is a redelivery; a later one than the next means that one was left out.
        if last.is_some_and(|last| offset > last + 1) {
            let violation = format!("after {last:?} came {delivery:?}");
            state.violations.push(violation);
        }
    }

    pub fn acknowledged(&self) -> usize {
        self.0.lock().acknowledged.len()
    }

    pub fn delivered(&self) -> usize {
        self.0.lock().delivered.len()
    }

    /// Deliveries beyond the first.
    pub fn repeated(&self) -> usize {
        let state = self.0.lock();
        state.delivered.values().map(|count| count - 1).sum()
    }

    /// Waits until everything acknowledged was delivered; nothing may have been violated on the way.
    pub async fn hold(&self) {
        let missing = || {
            let state = self.0.lock();
            let mut missing = state.acknowledged.iter();
            missing
                .find(|body| !state.delivered.contains_key(*body))
                .cloned()
        };
        eventually("all acknowledged messages are delivered", async || {
            missing().is_none()
        })
        .await;
        assert_eq!(self.0.lock().violations, Vec::<String>::new());
    }
}

/// Waits until each of so many queues of a topic has one owner.
pub async fn one_owner_each(consumers: &[PushConsumer], topic: &str, queues: usize) {
    let settled = async || {
        let mut owned: Vec<MessageQueue> = consumers
            .iter()
            .flat_map(PushConsumer::assignment)
            .filter(|queue| queue.topic == topic)
            .collect();
        let all = owned.len();
        owned.sort();
        owned.dedup();
        all == queues && owned.len() == queues
    };
    eventually("every queue has one owner", settled).await;
}
