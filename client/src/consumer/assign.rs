//! Sharing out queues: what is this consumer's part now, what is new, what is to be given up (client spec 4.4, 4.5).
//!
//! A queue changes hands through its lock at the broker, in concurrent consumption too: who gives it up lets running
//! handlers finish, commits, and then unlocks; who takes it over asks for the offset only once it has the lock. Members
//! that know nothing of this (stock clients lock only for ordered consumption) and dead ones make it wait for a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use minimq_protocol::Command;
use minimq_protocol::body::{ConsumerIdList, MessageQueue};
use minimq_protocol::code::request;
use minimq_protocol::header::GetConsumerListByGroupRequest;
use tokio::time::Instant;

use super::engine::{Engine, Mode};
use super::offset::start_offset;
use super::queue::AssignedQueue;
use crate::error::{Error, Result};
use crate::rebalance::AllocationError;

/// Concurrent handlers of a queue that is given up may run on for so long before it is handed over.
const FINISH: Duration = Duration::from_secs(2);
/// A queue of concurrent consumption whose lock another member keeps is taken over all the same after so long.
const PATIENCE: Duration = Duration::from_secs(3);
/// How soon a queue that is being handed over is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How soon a topic without route or a broker that did not answer is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

impl Engine {
    /// Shares out when that is due or wanted.
    pub(super) async fn keep_balanced(self: Arc<Self>) {
        loop {
            let complete = self.rebalance().await;
            let every = match complete {
                true => self.settings.rebalance_every,
                false if self.is_handed_over() => ASK_AGAIN,
                false => TRY_AGAIN,
            };
            let every = every.min(self.settings.rebalance_every);
            let _ = tokio::time::timeout(every, self.wanted.notified()).await;
        }
    }

    /// Whether some queue is about to come from another member.
    fn is_handed_over(&self) -> bool {
        let refused = self.refused.lock();
        refused.values().any(|since| since.elapsed() < PATIENCE)
    }

    /// Whether queues are locked: where members share them.
    pub(super) fn locks_queues(&self) -> bool {
        !self.settings.broadcast && self.fixed.lock().is_none()
    }

    /// One round over all topics. False if some topic could not be shared out.
    pub(crate) async fn rebalance(self: &Arc<Self>) -> bool {
        let _round = self.rebalance_lock.lock().await;
        if self.is_suspended() || self.stopping.is_cancelled() {
            return true;
        }
        let fixed = self.fixed.lock().clone();
        let mut complete = true;
        let mut topics = BTreeSet::new();
        let shared_out: Vec<(String, Result<BTreeSet<MessageQueue>>)> = match fixed {
            Some(queues) => {
                let mut by_topic: BTreeMap<String, BTreeSet<MessageQueue>> = BTreeMap::new();
                for queue in queues {
                    by_topic
                        .entry(queue.topic.clone())
                        .or_default()
                        .insert(queue);
                }
                by_topic
                    .into_iter()
                    .map(|(topic, queues)| (topic, Ok(queues)))
                    .collect()
            }
            None => {
                let subscribed: Vec<String> = self.subscriptions.read().keys().cloned().collect();
                join_all(subscribed.into_iter().map(|topic| async move {
                    let part = self.part_of(&topic).await;
                    (topic, part)
                }))
                .await
            }
        };
        for (topic, part) in shared_out {
            topics.insert(topic.clone());
            match part {
                Ok(part) => complete &= self.apply(&topic, &part).await,
                Err(error) => {
                    complete = false;
                    if !matches!(error, Error::TopicNotFound { .. }) {
                        tracing::debug!(%topic, group = self.group, %error, "the queues stay as they are");
                    }
                }
            }
        }
        let gone: Vec<MessageQueue> = {
            let queues = self.queues.lock();
            queues
                .keys()
                .filter(|queue| !topics.contains(&queue.topic))
                .cloned()
                .collect()
        };
        for queue in gone {
            self.release(&queue, None);
        }
        complete
    }

    /// This consumer's part of a topic.
    async fn part_of(&self, topic: &str) -> Result<BTreeSet<MessageQueue>> {
        let route = self.core.route(topic).await?;
        if self.settings.broadcast {
            return Ok(route.readable.iter().cloned().collect());
        }
        let addr = route.any_broker().ok_or_else(|| Error::NoQueue {
            topic: topic.to_owned(),
            wanted: "consume from",
        })?;
        let header = GetConsumerListByGroupRequest {
            consumer_group: &self.group,
        };
        let request = Command::request_with(request::GET_CONSUMER_LIST_BY_GROUP, &header);
        let answer = match self
            .core
            .call(addr, request, self.core.settings.request_timeout)
            .await
        {
            Ok(answer) => answer,
            Err(error) => {
                if matches!(error, Error::Call(_)) {
                    let _ = self.core.refresh_route(topic, Duration::from_secs(1)).await;
                }
                self.core.want_heartbeat();
                return Err(error);
            }
        };
        let ids = ConsumerIdList::from_json(&answer.body)
            .map_err(|error| Error::bad_answer(addr, error))?
            .consumer_id_list;
        let own = &self.core.client_id;
        if ids.iter().filter(|id| *id == own).count() > 1 {
            tracing::warn!(group = self.group, client_id = %own, "this client id is listed twice: by an old connection that the broker still takes for open, or by another client, which must have an instance name of its own");
        }
        match self
            .settings
            .allocation
            .allocate(own, &route.readable, &ids)
        {
            Ok(part) => Ok(part
                .into_iter()
                .filter(|queue| queue.topic == topic)
                .collect()),
            Err(error) => {
                if matches!(error, AllocationError::NotAMember(_)) {
                    // The broker lost us: its restart, or a heartbeat on its way.
                    self.core.want_heartbeat();
                }
                Err(Error::invalid("allocation", error.to_string()))
            }
        }
    }

    /// Makes a topic's part the one given. False if a queue of it could not be taken yet.
    async fn apply(self: &Arc<Self>, topic: &str, part: &BTreeSet<MessageQueue>) -> bool {
        let (lost, new) = {
            let queues = self.queues.lock();
            let releasing = self.releasing.lock();
            let of_topic = queues.iter().filter(|(queue, _)| queue.topic == topic);
            // A task that ended by itself would leave its queue unpulled: it is taken anew.
            let lost: Vec<_> = of_topic
                .filter(|(queue, state)| !part.contains(queue) || state.has_ended())
                .map(|(queue, _)| queue.clone())
                .collect();
            let new: Vec<_> = part
                .iter()
                .filter(|queue| !queues.contains_key(queue) && !releasing.contains(queue))
                .cloned()
                .collect();
            (lost, new)
        };
        for queue in &lost {
            self.release(queue, None);
        }
        // Whoever has a queue now begins at what is stored.
        let still = |queue: &MessageQueue| queue.topic != topic || part.contains(queue);
        self.restarts.lock().retain(|queue, _| still(queue));
        self.refused.lock().retain(|queue, _| still(queue));
        let wanted = new.len();
        let taken = self.take(new).await;
        if !lost.is_empty() || !taken.is_empty() {
            self.assignment_changed(topic);
        }
        taken.len() == wanted
            && !self
                .releasing
                .lock()
                .iter()
                .any(|queue| part.contains(queue))
    }

    /// Takes queues: locks them if need be, finds out where to begin, begins to pull. Those taken.
    async fn take(self: &Arc<Self>, mut new: Vec<MessageQueue>) -> Vec<MessageQueue> {
        if new.is_empty() {
            return new;
        }
        if self.locks_queues() {
            let locked = self.lock(new.clone()).await;
            let must = matches!(self.mode, Mode::Ordered(_));
            let mut refused = self.refused.lock();
            new.retain(|queue| {
                if locked.contains(queue) {
                    return true;
                }
                let since = *refused.entry(queue.clone()).or_insert_with(Instant::now);
                !must && since.elapsed() >= PATIENCE
            });
        }
        let starts = join_all(new.into_iter().map(|queue| async move {
            let restart = self.restarts.lock().get(&queue).copied();
            let start = match restart {
                Some(offset) => Ok(offset),
                None => {
                    start_offset(
                        &self.core,
                        &self.offsets,
                        &self.group,
                        &queue,
                        self.settings.from,
                    )
                    .await
                }
            };
            (queue, start)
        }))
        .await;
        let mut taken = Vec::new();
        for (queue, start) in starts {
            match start {
                Ok(start) => {
                    self.refused.lock().remove(&queue);
                    let restarted = self.restarts.lock().remove(&queue).is_some();
                    let state = Arc::new(AssignedQueue::new(queue.clone(), start, !restarted));
                    {
                        let mut queues = self.queues.lock();
                        // The end takes away what is in this table: what came later would be pulled for ever.
                        if self.stopping.is_cancelled() {
                            break;
                        }
                        queues.insert(queue.clone(), state.clone());
                    }
                    self.begin(state);
                    taken.push(queue);
                }
                Err(error) => {
                    tracing::debug!(%queue, group = self.group, %error, "the queue cannot be begun yet")
                }
            }
        }
        taken
    }

    /// Gives a queue up in the background: stops pulling; lets running handlers finish, ordered ones however long it takes;
    /// commits; unlocks.
    /// `restart`: where whoever takes it next begins, instead of what is finished here.
    pub(crate) fn release(self: &Arc<Self>, queue: &MessageQueue, restart: Option<i64>) {
        let Some(state) = self.queues.lock().remove(queue) else {
            return;
        };
        self.releasing.lock().insert(queue.clone());
        state.dropped.cancel();
        let (engine, queue) = (self.clone(), queue.clone());
        self.tasks.spawn(async move {
            let ordered = matches!(engine.mode, Mode::Ordered(_));
            let patience = match ordered || restart.is_some() {
                true => engine.settings.drain,
                false => engine.settings.drain.min(FINISH),
            };
            let ended = tokio::time::timeout(patience, state.ended());
            if ended.await.is_err() && ordered && restart.is_none() {
                // Order above all: nobody else may begin while the handler runs.
                state.ended().await;
            }
            let committed = match restart {
                Some(offset) => {
                    engine
                        .offsets
                        .commit(&engine.core, &engine.group, &queue, offset, true)
                        .await
                }
                None => engine.commit(&state, true).await,
            };
            if let Err(error) = committed {
                tracing::debug!(%queue, %error, "the offset of a queue given up was not committed");
            }
            if engine.locks_queues() {
                engine.unlock(vec![queue.clone()]).await;
            }
            if let Some(offset) = restart {
                engine.restarts.lock().insert(queue.clone(), offset);
            }
            engine.releasing.lock().remove(&queue);
            engine.want_rebalance();
        });
    }

    /// Goes on at another offset; returns when the queue has begun there, or is not ours any more.
    pub(crate) async fn restart_at(self: &Arc<Self>, queue: MessageQueue, offset: i64) {
        self.release(&queue, Some(offset));
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if self.stopping.is_cancelled() {
                return;
            }
            let pending =
                self.releasing.lock().contains(&queue) || self.restarts.lock().contains_key(&queue);
            if !pending {
                return;
            }
        }
    }

    fn assignment_changed(&self, topic: &str) {
        if let Some(subscription) = self.subscription(topic) {
            subscription.bump();
            self.core.want_heartbeat();
        }
        let now: Vec<MessageQueue> = {
            let queues = self.queues.lock();
            queues
                .keys()
                .filter(|queue| queue.topic == topic)
                .cloned()
                .collect()
        };
        tracing::info!(group = self.group, %topic, queues = now.len(), "assigned queues changed");
        if let Some(callback) = &self.settings.on_assignment {
            callback(&self.core.unwrap(topic), &now);
        }
    }
}
