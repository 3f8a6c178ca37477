//! One assigned queue: its state, and the loop that pulls it (client spec 4.9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use minimq_protocol::body::{MessageQueue, ProcessQueueInfo};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::engine::{Engine, Mode};
use super::pull::Pulled;
use super::{concurrent, ordered};
use crate::Delivery;
use crate::core::now_ms;
use crate::error::Error;
use crate::process_queue::ProcessQueue;

/// Pause after a pull that failed.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// Pause while there is no filter server to pull from.
const WITHOUT_FILTER_SERVER: Duration = Duration::from_secs(3);
/// Pause after a pull that was sent before the heartbeat it needs, and how often; then it is an error like others.
const AFTER_EARLY_PULL: Duration = Duration::from_millis(50);
const EARLY_PULLS: u32 = 10;
/// Pause after a broker's flow control.
const AFTER_FLOW_CONTROL: Duration = Duration::from_millis(20);
/// An unchanged offset is committed again after so long, should a broker have lost it.
const RECOMMIT: Duration = Duration::from_secs(30);

/// A queue this consumer has.
pub(crate) struct AssignedQueue {
    pub(crate) queue: Arc<MessageQueue>,
    pub(crate) messages: Mutex<ProcessQueue<Delivery>>,
    /// Something can be taken.
    pub(crate) arrived: Notify,
    /// Something was finished, or the queue goes on.
    pub(crate) freed: Notify,
    pub(crate) dropped: CancellationToken,
    /// Its tasks: the pulling one, the dispatching one, handlers.
    tasks: TaskTracker,
    paused: AtomicBool,
    /// Broker to pull from.
    pub(crate) suggested_broker: AtomicI64,
    committed: Mutex<(i64, Instant)>,
    /// Until when the lock at the broker holds.
    pub(crate) locked_until: Mutex<Instant>,
    last_lock_ms: AtomicI64,
    last_pull_ms: AtomicI64,
    pub(crate) last_consume_ms: AtomicI64,
}

impl AssignedQueue {
    /// Begins at `start`. `stored`: that is what the store says, so there is nothing to commit.
    pub(crate) fn new(queue: MessageQueue, start: i64, stored: bool) -> Self {
        let now = now_ms();
        Self {
            queue: Arc::new(queue),
            messages: Mutex::new(ProcessQueue::new(start)),
            arrived: Notify::new(),
            freed: Notify::new(),
            dropped: CancellationToken::new(),
            tasks: TaskTracker::new(),
            paused: AtomicBool::new(false),
            suggested_broker: AtomicI64::new(0),
            committed: Mutex::new((if stored { start } else { -1 }, Instant::now())),
            locked_until: Mutex::new(Instant::now() + super::locks::LIFE),
            last_lock_ms: AtomicI64::new(now),
            last_pull_ms: AtomicI64::new(now),
            last_consume_ms: AtomicI64::new(now),
        }
    }

    /// What may be committed now.
    pub(crate) fn committable(&self) -> i64 {
        self.messages.lock().committable()
    }

    pub(crate) fn must_commit(&self, offset: i64) -> bool {
        let committed = self.committed.lock();
        committed.0 != offset || committed.1.elapsed() >= RECOMMIT
    }

    pub(crate) fn committed(&self, offset: i64) {
        *self.committed.lock() = (offset, Instant::now());
    }

    /// A message is finished: it may be committed past, and there is room for another.
    pub(crate) fn finish(&self, offset: i64) {
        self.finish_all([offset]);
    }

    /// As [`finish`](Self::finish), of several.
    pub(crate) fn finish_all(&self, offsets: impl IntoIterator<Item = i64>) {
        {
            let mut messages = self.messages.lock();
            offsets
                .into_iter()
                .for_each(|offset| messages.finish(offset));
        }
        self.freed.notify_one();
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Ends when no task of the queue runs any more.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Whether its tasks ended although nobody dropped it.
    pub(crate) fn has_ended(&self) -> bool {
        self.tasks.is_empty() && !self.dropped.is_cancelled()
    }

    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
        self.freed.notify_one();
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// The broker confirmed the lock.
    pub(crate) fn locked(&self) {
        *self.locked_until.lock() = Instant::now() + super::locks::LIFE;
        self.last_lock_ms.store(now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn is_locked(&self) -> bool {
        Instant::now() < *self.locked_until.lock()
    }

    pub(crate) fn info(&self) -> ProcessQueueInfo {
        let messages = self.messages.lock();
        let (first, last) = messages.bounds().unwrap_or((0, 0));
        let handed_out = messages.len() - messages.waiting();
        let count = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
        ProcessQueueInfo {
            cached_msg_count: count(messages.len()),
            cached_msg_max_offset: last,
            cached_msg_min_offset: first,
            cached_msg_size_in_mib: count(messages.bytes() >> 20),
            commit_offset: messages.committable(),
            dropped: self.dropped.is_cancelled(),
            last_consume_timestamp: self.last_consume_ms.load(Ordering::Relaxed),
            last_lock_timestamp: self.last_lock_ms.load(Ordering::Relaxed),
            last_pull_timestamp: self.last_pull_ms.load(Ordering::Relaxed),
            locked: self.is_locked(),
            transaction_msg_count: count(handed_out),
            transaction_msg_max_offset: 0,
            transaction_msg_min_offset: 0,
            try_unlock_times: 0,
        }
    }
}

impl Engine {
    /// Starts the tasks of a queue.
    pub(crate) fn begin(self: &Arc<Self>, queue: Arc<AssignedQueue>) {
        let pulling = pull_loop(self.clone(), queue.clone());
        let dropped = queue.dropped.clone();
        queue.spawn(async move {
            dropped.run_until_cancelled(pulling).await;
        });
        match &self.mode {
            Mode::Concurrent(handler) => queue.spawn(concurrent::work(
                self.clone(),
                queue.clone(),
                handler.clone(),
            )),
            Mode::Ordered(handler) => {
                queue.spawn(ordered::work(self.clone(), queue.clone(), handler.clone()))
            }
            Mode::Polled => {}
        }
    }
}

/// Pulls until the queue is dropped.
async fn pull_loop(engine: Arc<Engine>, queue: Arc<AssignedQueue>) {
    // In a row. What a heartbeat or a new route mends is over at the second try; an outage is told of once.
    let mut failures = 0_u32;
    // So many pulls in a row came before the heartbeat that tells of the subscription.
    let mut early = 0;
    loop {
        if engine.is_suspended() {
            let resumed = engine.resumed.notified();
            if engine.is_suspended() {
                // The time-out covers a resume between the two looks.
                let _ = tokio::time::timeout(Duration::from_secs(1), resumed).await;
            }
            continue;
        }
        if queue.is_paused() || queue.messages.lock().is_full(&engine.settings.limits) {
            queue.freed.notified().await;
            continue;
        }
        queue.last_pull_ms.store(now_ms(), Ordering::Relaxed);
        let begun = Instant::now();
        match engine.pull(&queue).await {
            Ok(Pulled::Messages { messages, next }) => {
                failures = 0;
                early = 0;
                engine
                    .stats
                    .pulled(&queue.queue.topic, messages.len(), begun.elapsed());
                let some = !messages.is_empty();
                let sized = messages
                    .into_iter()
                    .map(|one| (one.queue_offset(), one.body().len(), one));
                queue.messages.lock().put(sized, next);
                if some {
                    queue.arrived.notify_one();
                    engine.arrived.notify_one();
                    if !engine.settings.pull_pause.is_zero() {
                        tokio::time::sleep(engine.settings.pull_pause).await;
                    }
                }
            }
            Ok(Pulled::OffsetMoved { to }) => {
                tracing::warn!(queue = %queue.queue, group = engine.group, to, "the offset is outside of the queue; consumption goes on elsewhere");
                engine.release(&queue.queue, Some(to));
                return;
            }
            Ok(Pulled::FlowControl) => tokio::time::sleep(AFTER_FLOW_CONTROL).await,
            Err(error) => {
                if error.is_early() && early < EARLY_PULLS {
                    early += 1;
                    tracing::debug!(queue = %queue.queue, group = engine.group, %error, "pulled too early");
                    engine.recover_from(&queue.queue.topic, &error).await;
                    tokio::time::sleep(AFTER_EARLY_PULL).await;
                    continue;
                }
                failures = failures.saturating_add(1);
                if failures == 2 {
                    tracing::warn!(queue = %queue.queue, group = engine.group, %error, "pulling failed twice; it is tried on");
                } else {
                    tracing::debug!(queue = %queue.queue, group = engine.group, %error, "pulling failed");
                }
                engine.recover_from(&queue.queue.topic, &error).await;
                let pause = match error {
                    Error::NoFilterServer { .. } => WITHOUT_FILTER_SERVER,
                    _ => AFTER_ERROR,
                };
                tokio::time::sleep(pause).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pull::SLACK;
    use super::super::settings::Settings;
    use super::*;
    use crate::Client;

    /// Of everything that may hold a queue up, alone or one after the other, with the settings a client has by default.
    #[tokio::test]
    async fn no_queue_is_left_unpulled_for_more_than_35_seconds() {
        let most = Duration::from_secs(35);
        let client = Client::connect("127.0.0.1:1;127.0.0.1:2").await.unwrap();
        let (shared, own) = (&client.core.settings, Settings::default());
        let connect = minimq_remoting::ClientConfig::default();
        // A broker gone without a word: the pull that it holds ends, both name servers are asked in vain, then a pull to
        // another address begins, after the longest wait of a connection that failed.
        let lookup = 2 * shared.request_timeout.min(connect.connect_timeout);
        let silent = own.pull_hold + SLACK + lookup + AFTER_ERROR + connect.backoff_max;
        assert!(silent <= most, "{silent:?}");
        // A change that no error and no notice told of: of a route, of the group's members.
        let unnoticed = shared.route_refresh.max(own.rebalance_every) + shared.request_timeout;
        assert!(unnoticed <= most, "{unnoticed:?}");
        // A heartbeat that finds a connection dead, or a broker that forgot its clients.
        let beat = shared.heartbeat + shared.request_timeout;
        assert!(beat <= most, "{beat:?}");
        let waits = [
            AFTER_ERROR,
            WITHOUT_FILTER_SERVER,
            AFTER_EARLY_PULL * EARLY_PULLS,
        ];
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(3)));
    }
}
