//! Running held pulls again: when messages arrive, when their time is up, when their queue moved on without them.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use minimq_protocol::code::response;
use minimq_protocol::name;
use minimq_remoting::Connection;
use minimq_store::{Blocking, DispatchListener, Dispatched, ReadError};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::broker::Broker;
use crate::config::BrokerConfig;

use super::held::{Held, SqlArrival};

/// How often times are looked at.
const SCAN: Duration = Duration::from_millis(500);

impl Broker {
    /// Keeps a pull until there is something for it. Messages that arrived meanwhile are not missed.
    pub(super) fn hold(self: &Arc<Self>, held: Held, config: &BrokerConfig) {
        if self.stopping.is_cancelled() {
            return self.run_again(held);
        }
        if self.held.len() >= config.max_held_pulls {
            let remark = format!(
                "{} pulls are held, no more are taken (maxHeldPulls)",
                config.max_held_pulls
            );
            return held.responder.refuse(response::SYSTEM_BUSY, &remark);
        }
        let (topic, queue_id) = (held.plan.topic.clone(), held.plan.queue_id);
        self.held.add(held);
        let max = self.store.reader().max_offset(&topic, queue_id).get();
        for held in self.held.take_behind(&topic, queue_id, max) {
            self.run_again(held);
        }
    }

    /// Runs a pull a last time: whatever comes is the answer.
    fn run_again(self: &Arc<Self>, held: Held) {
        let Held {
            plan, responder, ..
        } = held;
        if responder.connection().is_closed() {
            return;
        }
        match plan.read(self, Blocking::Refused) {
            Ok(got) => plan.respond(self, responder, &got),
            Err(ReadError::WouldBlock) => {
                let broker = self.clone();
                tokio::task::spawn_blocking(move || plan.read_and_respond(&broker, responder));
            }
            Err(error) => {
                let what = plan.describe(responder.request());
                responder.refuse(response::SYSTEM_ERROR, &format!("{what} failed: {error}"));
            }
        }
    }

    /// Answers pulls whose time is up; ends when the broker stops.
    pub(crate) async fn answer_due_pulls(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = tokio::time::sleep(SCAN) => {}
            }
            let reader = self.store.reader();
            let due = self.held.due(Instant::now(), |topic, queue_id| {
                reader.max_offset(topic, queue_id).get()
            });
            for held in due {
                self.run_again(held);
            }
        }
    }

    /// Answers all held pulls with what there is: the broker stops.
    pub(crate) fn release_pulls(self: &Arc<Self>) {
        for held in self.held.take_all() {
            self.run_again(held);
        }
    }

    /// Forgets the pulls of a closed connection.
    pub(crate) fn held_connection_closed(&self, connection: &Connection) {
        self.held.connection_closed(connection.id());
    }
}

#[derive(Default)]
struct Ready {
    pulls: Vec<Held>,
    arrivals: Vec<SqlArrival>,
}

/// Hears from the store's dispatch thread of every message that became readable.
pub struct ArrivalListener {
    broker: Weak<Broker>,
    runtime: Handle,
    ready: Mutex<Ready>,
}

impl ArrivalListener {
    /// Wakes this broker's held pulls, on this runtime.
    pub fn new(broker: &Arc<Broker>, runtime: Handle) -> Self {
        Self {
            broker: Arc::downgrade(broker),
            runtime,
            ready: Mutex::default(),
        }
    }
}

impl DispatchListener for ArrivalListener {
    fn is_waiting(&self) -> bool {
        true
    }

    fn dispatched(&self, message: &Dispatched<'_>) {
        let Some(broker) = self.broker.upgrade() else {
            return;
        };
        if message.topic == name::SCHEDULE_TOPIC {
            broker.delay.arrived();
        }
        if broker.held.is_empty() {
            return;
        }
        let mut ready = self.ready.lock();
        let selectors = broker.held.arrived(
            message.topic,
            message.queue_id,
            message.new_max_offset.get(),
            message.tags_code,
            &mut ready.pulls,
        );
        if selectors {
            ready.arrivals.push(SqlArrival {
                topic: message.topic.into(),
                queue_id: message.queue_id,
                properties: message.properties.to_vec(),
            });
        }
    }

    fn batch_end(&self) {
        let ready = std::mem::take(&mut *self.ready.lock());
        if ready.pulls.is_empty() && ready.arrivals.is_empty() {
            return;
        }
        let Some(broker) = self.broker.upgrade() else {
            return;
        };
        self.runtime.spawn(async move {
            let Ready {
                mut pulls,
                arrivals,
            } = ready;
            for arrival in &arrivals {
                broker.held.arrived_for_selectors(arrival, &mut pulls);
            }
            for held in pulls {
                broker.run_again(held);
            }
        });
    }
}
