//! [`PullConsumer`]: the application takes messages when it wants them, by [`poll`](PullConsumer::poll) or as a stream with
//! explicit acknowledgement (client spec 5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use minimq_protocol::body::MessageQueue;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::engine::{Engine, Mode, Start};
use super::member::Handle;
use super::offset::TIMEOUT;
use super::push::shared_settings;
use super::queue::AssignedQueue;
use super::settings::{Settings, StartFrom};
use super::stream::MessageStream;
use crate::Delivery;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::rebalance::Allocation;

/// Settings of a [`PullConsumer`], and how to start it.
pub struct PullConsumerBuilder {
    core: Arc<Core>,
    group: String,
    settings: Settings,
    subscriptions: Vec<(String, Filter)>,
    assigned: Option<Vec<MessageQueue>>,
    auto_commit: bool,
    max_polled: usize,
}

impl PullConsumerBuilder {
    pub(crate) fn new(core: Arc<Core>, group: String) -> Self {
        Self {
            core,
            group,
            settings: Settings::default(),
            subscriptions: Vec::new(),
            assigned: None,
            auto_commit: true,
            max_polled: 32,
        }
    }

    shared_settings!();

    /// Consumes these queues, whoever else is in the group, instead of a part of the subscribed topics. Subscriptions then only say
    /// what is wanted of a topic.
    pub fn assign(mut self, queues: impl IntoIterator<Item = MessageQueue>) -> Self {
        self.assigned.get_or_insert_default().extend(queues);
        self
    }

    /// Whether each poll finishes the messages of the one before: on. Off: [`PullConsumer::commit`] does.
    pub fn auto_commit(mut self, on: bool) -> Self {
        self.auto_commit = on;
        self
    }

    /// Messages that a poll returns at most: 32.
    pub fn max_polled(mut self, messages: usize) -> Self {
        self.max_polled = messages.max(1);
        self
    }

    /// Starts it.
    pub async fn start(self) -> Result<PullConsumer> {
        let wrapped = |queue: MessageQueue| MessageQueue {
            topic: self.core.wrap(&queue.topic),
            ..queue
        };
        let fixed = self
            .assigned
            .map(|queues| queues.into_iter().map(wrapped).collect());
        let handle = Engine::start(Start {
            core: self.core,
            group: self.group,
            settings: self.settings,
            mode: Mode::Polled,
            subscriptions: self.subscriptions,
            fixed,
        })
        .await?;
        Ok(PullConsumer {
            inner: Arc::new(Inner {
                handle,
                auto_commit: self.auto_commit,
                max_polled: self.max_polled,
                polling: tokio::sync::Mutex::default(),
                handed_out: Mutex::default(),
                turn: AtomicUsize::new(0),
            }),
        })
    }
}

impl std::fmt::Debug for PullConsumerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PullConsumerBuilder")
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

/// Messages when the application wants them. A cheap clone; when the last one is dropped, it ends as by [`shutdown`](Self::shutdown).
#[derive(Clone)]
pub struct PullConsumer {
    inner: Arc<Inner>,
}

struct Inner {
    handle: Handle,
    auto_commit: bool,
    max_polled: usize,
    polling: tokio::sync::Mutex<()>,
    /// What the last polls returned and is not finished.
    handed_out: Mutex<Vec<(Arc<AssignedQueue>, i64)>>,
    turn: AtomicUsize,
}

/// Messages of one queue with their offsets.
pub(super) type Taken = (Arc<AssignedQueue>, Vec<(i64, Delivery)>);

impl PullConsumer {
    fn engine(&self) -> &Arc<Engine> {
        &self.inner.handle.0
    }

    /// The group.
    pub fn group(&self) -> &str {
        &self.engine().group
    }

    /// Some messages of one queue; waits up to `timeout` if there are none. With automatic commit this finishes the messages of the poll
    /// before, so they must be done by then.
    pub async fn poll(&self, timeout: Duration) -> Result<Vec<Delivery>> {
        let _turn = self.inner.polling.lock().await;
        if self.inner.auto_commit {
            self.finish_handed_out();
        }
        let Some((queue, taken)) = self.next_within(self.inner.max_polled, timeout).await? else {
            return Ok(Vec::new());
        };
        let mut handed_out = self.inner.handed_out.lock();
        let deliveries = taken.into_iter().map(|(offset, delivery)| {
            handed_out.push((queue.clone(), offset));
            delivery
        });
        Ok(deliveries.collect())
    }

    /// Finishes everything polled so far and waits until the brokers have the new offsets.
    pub async fn commit(&self) -> Result<()> {
        self.finish_handed_out();
        let queues: Vec<_> = self.engine().queues.lock().values().cloned().collect();
        for queue in queues {
            self.engine().commit(&queue, true).await?;
        }
        self.engine().offsets.flush().await
    }

    /// The messages as a stream, each to be acknowledged. Not together with [`poll`](Self::poll). Ends with the consumer.
    pub fn messages(&self) -> MessageStream {
        MessageStream::new(self.clone())
    }

    fn finish_handed_out(&self) {
        for (queue, offset) in std::mem::take(&mut *self.inner.handed_out.lock()) {
            queue.finish(offset);
        }
    }

    /// Messages of one queue, waited for; `None` if none came in time.
    pub(super) async fn next_within(&self, max: usize, timeout: Duration) -> Result<Option<Taken>> {
        let deadline = Instant::now() + timeout;
        loop {
            // Before looking: what comes in between is not missed.
            let arrived = self.engine().arrived.notified();
            if self.engine().stopping.is_cancelled() {
                return Err(Error::Closed);
            }
            if let Some(found) = self.take(max) {
                return Ok(Some(found));
            }
            tokio::select! {
                () = arrived => {}
                () = self.engine().stopping.cancelled() => {}
                () = tokio::time::sleep_until(deadline) => return Ok(None),
            }
        }
    }

    /// From the next queue in turn that has something.
    fn take(&self, max: usize) -> Option<Taken> {
        let queues: Vec<_> = self.engine().queues.lock().values().cloned().collect();
        let first = self
            .inner
            .turn
            .fetch_add(1, Ordering::Relaxed)
            .checked_rem(queues.len())?;
        let (before, from) = queues.split_at_checked(first)?;
        let mut found = None;
        let mut more = false;
        for queue in from.iter().chain(before) {
            if found.is_some() {
                more |= queue.messages.lock().waiting() > 0;
                continue;
            }
            let mut messages = queue.messages.lock();
            let taken = messages.take(max);
            more |= messages.waiting() > 0;
            drop(messages);
            if !taken.is_empty() {
                found = Some((queue.clone(), taken));
            }
        }
        if more {
            // For another clone that waits.
            self.engine().arrived.notify_one();
        }
        found
    }

    /// Subscribes to a topic while running.
    pub async fn subscribe(&self, topic: &str, filter: impl Into<Filter>) -> Result<()> {
        self.engine().subscribe(topic, filter.into()).await
    }

    /// The queues consumed now.
    pub fn assignment(&self) -> Vec<MessageQueue> {
        self.engine().queues.lock().keys().cloned().collect()
    }

    /// Replaces the queues given by [`PullConsumerBuilder::assign`].
    pub fn assign(&self, queues: impl IntoIterator<Item = MessageQueue>) -> Result<()> {
        let mut fixed = self.engine().fixed.lock();
        if fixed.is_none() {
            return Err(Error::invalid(
                "assign",
                "this consumer gets its queues by subscription",
            ));
        }
        let wrapped = |queue: MessageQueue| MessageQueue {
            topic: self.engine().core.wrap(&queue.topic),
            ..queue
        };
        *fixed = Some(queues.into_iter().map(wrapped).collect());
        drop(fixed);
        self.engine().want_rebalance();
        Ok(())
    }

    fn own(&self, queue: &MessageQueue) -> Result<Arc<AssignedQueue>> {
        let wrapped = MessageQueue::new(
            self.engine().core.wrap(&queue.topic),
            &*queue.broker_name,
            queue.queue_id,
        );
        let found = self.engine().queues.lock().get(&wrapped).cloned();
        found.ok_or_else(|| {
            Error::invalid(
                "queue",
                format!("{queue} is not assigned to this consumer (any more)"),
            )
        })
    }

    /// Goes on at an offset, which must be within the queue. Messages here are forgotten.
    pub async fn seek(&self, queue: &MessageQueue, offset: i64) -> Result<()> {
        let own = self.own(queue)?;
        let core = &self.engine().core;
        let (min, max) = (
            core.min_offset(&own.queue, TIMEOUT).await?,
            core.max_offset(&own.queue, TIMEOUT).await?,
        );
        if !(min..=max).contains(&offset) {
            return Err(Error::invalid(
                "offset",
                format!("{offset} is outside of {queue}, which goes from {min} to {max}"),
            ));
        }
        self.restart(own, offset).await;
        Ok(())
    }

    /// Goes on at the first message.
    pub async fn seek_to_begin(&self, queue: &MessageQueue) -> Result<()> {
        let own = self.own(queue)?;
        let offset = self.engine().core.min_offset(&own.queue, TIMEOUT).await?;
        self.restart(own, offset).await;
        Ok(())
    }

    /// Goes on with what comes from now on.
    pub async fn seek_to_end(&self, queue: &MessageQueue) -> Result<()> {
        let own = self.own(queue)?;
        let offset = self.engine().core.max_offset(&own.queue, TIMEOUT).await?;
        self.restart(own, offset).await;
        Ok(())
    }

    async fn restart(&self, own: Arc<AssignedQueue>, offset: i64) {
        self.inner
            .handed_out
            .lock()
            .retain(|(queue, _)| !Arc::ptr_eq(queue, &own));
        self.engine().restart_at((*own.queue).clone(), offset).await;
    }

    /// Stops pulling these queues; messages here are still returned.
    pub fn pause(&self, queues: &[MessageQueue]) -> Result<()> {
        queues
            .iter()
            .try_for_each(|queue| self.own(queue).map(|own| own.pause(true)))
    }

    /// Goes on pulling these queues.
    pub fn resume(&self, queues: &[MessageQueue]) -> Result<()> {
        queues
            .iter()
            .try_for_each(|queue| self.own(queue).map(|own| own.pause(false)))
    }

    /// Offset that would be committed of each queue.
    pub fn positions(&self) -> BTreeMap<MessageQueue, i64> {
        let queues = self.engine().queues.lock();
        queues
            .iter()
            .map(|(queue, state)| (queue.clone(), state.committable()))
            .collect()
    }

    /// Offset stored of a queue.
    pub async fn committed(&self, queue: &MessageQueue) -> Result<Option<i64>> {
        let engine = self.engine();
        let queue = MessageQueue::new(
            engine.core.wrap(&queue.topic),
            &*queue.broker_name,
            queue.queue_id,
        );
        engine
            .offsets
            .read(&engine.core, &engine.group, &queue)
            .await
    }

    /// Offset of the first message of a queue stored at or after a time, ms since 1970; of the last one if all are older.
    pub async fn offset_for_time(&self, queue: &MessageQueue, timestamp: i64) -> Result<i64> {
        let engine = self.engine();
        let queue = MessageQueue::new(
            engine.core.wrap(&queue.topic),
            &*queue.broker_name,
            queue.queue_id,
        );
        engine.core.route(&queue.topic).await?;
        engine.core.offset_at(&queue, timestamp, TIMEOUT).await
    }

    /// All queues of a topic.
    pub async fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>> {
        let core = &self.engine().core;
        Ok(core.fetch_route(&core.wrap(topic)).await?.readable.to_vec())
    }

    /// Commits what is finished (with automatic commit also what was polled last), leaves the group.
    pub async fn shutdown(&self) {
        if self.inner.auto_commit {
            self.finish_handed_out();
        }
        self.engine().stop().await;
    }
}

impl std::fmt::Debug for PullConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PullConsumer")
            .field("group", &self.group())
            .finish_non_exhaustive()
    }
}
