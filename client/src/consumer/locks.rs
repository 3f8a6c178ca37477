//! Locks of queues at their brokers (client spec 4.6): ordered consumption needs them, concurrent consumption hands queues
//! over by them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use minimq_protocol::Command;
use minimq_protocol::body::{LockBatchBody, LockBatchResponseBody, MessageQueue};
use minimq_protocol::code::request;

use super::engine::{Engine, Mode};
use crate::error::{Error, Result};

/// How long a lock is trusted after the broker confirmed it; the broker keeps it twice as long.
pub(super) const LIFE: Duration = Duration::from_secs(30);
/// How often locks are renewed.
const RENEW: Duration = Duration::from_secs(20);
const TIMEOUT: Duration = Duration::from_secs(1);

impl Engine {
    /// Locks queues; those that are locked now. A broker that does not answer locks none.
    pub(super) async fn lock(self: &Arc<Self>, queues: Vec<MessageQueue>) -> HashSet<MessageQueue> {
        let asked = by_broker(queues)
            .into_iter()
            .map(|(broker, queues)| async move {
                let asked = self.ask(broker.clone(), queues).await;
                asked.unwrap_or_else(|error| {
                    tracing::debug!(%broker, %error, "queues are not locked");
                    Vec::new()
                })
            });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Asks in a task of its own, which goes on to the answer even if this future is dropped: brokers may take a request to
    /// unlock before one to lock that was sent earlier, so who gives locks back at the end waits for these answers.
    async fn ask(
        self: &Arc<Self>,
        broker: String,
        queues: Vec<MessageQueue>,
    ) -> Result<Vec<MessageQueue>> {
        let engine = self.clone();
        let asked = tokio::spawn(async move {
            let _asking = engine.asking.read().await;
            match engine.stopping.is_cancelled() {
                true => Err(Error::Closed),
                false => engine.lock_at(&broker, queues).await,
            }
        });
        asked.await.unwrap_or(Err(Error::Closed))
    }

    async fn lock_at(&self, broker: &str, queues: Vec<MessageQueue>) -> Result<Vec<MessageQueue>> {
        let topic = queues
            .first()
            .map(|queue| queue.topic.clone())
            .unwrap_or_default();
        let addr = self.core.master(&topic, broker).await?;
        // Before the request: the broker may lock them and its answer be lost.
        self.locks.lock().extend(queues.iter().cloned());
        let request = Command::request(request::LOCK_BATCH_MQ)
            .with_body(self.lock_body(queues.clone()).to_wire());
        let answer = self.core.call(&addr, request, TIMEOUT).await?;
        let locked = LockBatchResponseBody::from_json(&answer.body)
            .map_err(|error| Error::bad_answer(&addr, error))?
            .lock_ok_mq_set;
        let mut locks = self.locks.lock();
        for queue in queues.iter().filter(|queue| !locked.contains(queue)) {
            locks.remove(queue);
        }
        drop(locks);
        Ok(locked)
    }

    fn lock_body(&self, queues: Vec<MessageQueue>) -> LockBatchBody {
        LockBatchBody {
            client_id: self.core.client_id.clone(),
            consumer_group: self.group.clone(),
            mq_set: queues,
        }
    }

    /// Gives locks back.
    pub(super) async fn unlock(&self, queues: Vec<MessageQueue>) {
        self.locks.lock().retain(|queue| !queues.contains(queue));
        join_all(by_broker(queues).into_iter().map(|(broker, queues)| async move {
            let topic = queues.first().map(|queue| queue.topic.clone()).unwrap_or_default();
            let request = Command::request(request::UNLOCK_BATCH_MQ).with_body(self.lock_body(queues).to_wire());
            let unlocked = async {
                let addr = self.core.master(&topic, &broker).await?;
                self.core.call(&addr, request, TIMEOUT).await
            };
            if let Err(error) = unlocked.await {
                tracing::debug!(%broker, %error, "queues are not unlocked; the broker's locks run out by themselves");
            }
        }))
        .await;
    }

    /// Renews the locks. A queue of ordered consumption that the broker does not give any more belongs to another member: it is
    /// given up.
    pub(super) async fn keep_locked(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RENEW).await;
            let own: Vec<MessageQueue> = self.queues.lock().keys().cloned().collect();
            join_all(by_broker(own).into_iter().map(|(broker, queues)| {
                let engine = self.clone();
                async move {
                    // A broker that does not answer changes nothing: the locks age by themselves.
                    let Ok(locked) = engine.ask(broker, queues.clone()).await else {
                        return;
                    };
                    for queue in queues {
                        let state = engine.queues.lock().get(&queue).cloned();
                        match state {
                            Some(state) if locked.contains(&queue) => state.locked(),
                            Some(_) if matches!(engine.mode, Mode::Ordered(_)) => {
                                engine.release(&queue, None)
                            }
                            _ => {}
                        }
                    }
                }
            }))
            .await;
        }
    }
}

fn by_broker(queues: Vec<MessageQueue>) -> BTreeMap<String, Vec<MessageQueue>> {
    let mut brokers: BTreeMap<String, Vec<MessageQueue>> = BTreeMap::new();
    for queue in queues {
        brokers
            .entry(queue.broker_name.clone())
            .or_default()
            .push(queue);
    }
    brokers
}
