//! Locks on queues for ordered consumption: codes 41 and 42 (broker spec 7). In memory only; a lock not refreshed
//! for 60 s may be taken over.

use std::collections::HashMap;

use minimq_protocol::Command;
use minimq_protocol::body::{LockBatchBody, LockBatchResponseBody, MessageQueue};
use parking_lot::Mutex;

use crate::broker::Broker;
use crate::request::{Handled, Refusal, RequestContext, success};

/// Life of a lock that is not refreshed, ms.
const LIFE_MS: i64 = 60_000;
/// Queues of one request at most.
const MAX_QUEUES: usize = 10_000;

/// One lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLock {
    /// Who holds it.
    pub client_id: String,
    /// When it was last taken or refreshed, ms since 1970.
    pub refreshed_ms: i64,
}

impl QueueLock {
    fn is_expired(&self, now_ms: i64) -> bool {
        now_ms - self.refreshed_ms > LIFE_MS
    }
}

/// All locks: group → queue → lock.
#[derive(Debug, Default)]
pub struct QueueLocks {
    groups: Mutex<HashMap<String, HashMap<MessageQueue, QueueLock>>>,
}

impl QueueLocks {
    /// Takes or refreshes what is free, expired or the client's own; gives those it holds now.
    pub fn lock(
        &self,
        group: &str,
        client_id: &str,
        queues: Vec<MessageQueue>,
        now_ms: i64,
    ) -> Vec<MessageQueue> {
        let mut groups = self.groups.lock();
        let locks = groups.entry(group.to_owned()).or_default();
        let mut granted = Vec::new();
        for queue in queues {
            let held = locks
                .get(&queue)
                .is_some_and(|lock| lock.client_id != client_id && !lock.is_expired(now_ms));
            if !held {
                let lock = QueueLock {
                    client_id: client_id.to_owned(),
                    refreshed_ms: now_ms,
                };
                locks.insert(queue.clone(), lock);
                granted.push(queue);
            }
        }
        granted
    }

    /// Gives back what the client holds.
    pub fn unlock(&self, group: &str, client_id: &str, queues: &[MessageQueue]) {
        let mut groups = self.groups.lock();
        let Some(locks) = groups.get_mut(group) else {
            return;
        };
        for queue in queues {
            if locks
                .get(queue)
                .is_some_and(|lock| lock.client_id == client_id)
            {
                locks.remove(queue);
            }
        }
        if locks.is_empty() {
            groups.remove(group);
        }
    }

    /// Drops expired locks.
    pub fn expire(&self, now_ms: i64) {
        self.groups.lock().retain(|_, locks| {
            locks.retain(|_, lock| !lock.is_expired(now_ms));
            !locks.is_empty()
        });
    }

    /// All locks, for looking at.
    pub fn snapshot(&self) -> Vec<(String, MessageQueue, QueueLock)> {
        let groups = self.groups.lock();
        groups
            .iter()
            .flat_map(|(group, locks)| {
                locks
                    .iter()
                    .map(|(queue, lock)| (group.clone(), queue.clone(), lock.clone()))
            })
            .collect()
    }
}

fn read_body(request: &Command) -> Result<LockBatchBody, Refusal> {
    if request.body.is_empty() {
        return Err(Refusal::error(
            "the request has no body: group, client id and queues are expected",
        ));
    }
    let body = LockBatchBody::from_json(&request.body)
        .map_err(|error| Refusal::error(format!("the body names no queues: {error}")))?;
    if body.mq_set.len() > MAX_QUEUES {
        return Err(Refusal::error(format!(
            "{} queues, at most {MAX_QUEUES} are taken",
            body.mq_set.len()
        )));
    }
    Ok(body)
}

/// Code 41. Like 42 it touches nothing but memory and is done at once: on one connection in the order sent.
pub fn lock(cx: &mut RequestContext<'_, '_>, request: &Command) {
    let handled = locked(cx.broker, request);
    cx.reply(request.id(), handled);
}

/// Code 42.
pub fn unlock(cx: &mut RequestContext<'_, '_>, request: &Command) {
    let handled = unlocked(cx.broker, request);
    cx.reply(request.id(), handled);
}

fn locked(broker: &Broker, request: &Command) -> Handled {
    let body = read_body(request)?;
    let now_ms = broker.clock.now_ms();
    let granted = broker
        .locks
        .lock(&body.consumer_group, &body.client_id, body.mq_set, now_ms);
    Ok(success(request).with_body(
        LockBatchResponseBody {
            lock_ok_mq_set: granted,
        }
        .to_wire(),
    ))
}

fn unlocked(broker: &Broker, request: &Command) -> Handled {
    let body = read_body(request)?;
    broker
        .locks
        .unlock(&body.consumer_group, &body.client_id, &body.mq_set);
    Ok(success(request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_holder_until_it_expires_or_is_given_back() {
        let locks = QueueLocks::default();
        let queue = MessageQueue::new("T", "b", 0);
        let try_lock =
            |client: &str, now| !locks.lock("G", client, vec![queue.clone()], now).is_empty();
        assert!(try_lock("c1", 0));
        assert!(!try_lock("c2", LIFE_MS));
        assert!(try_lock("c1", LIFE_MS), "refreshed");
        assert!(!try_lock("c2", LIFE_MS + 1));
        locks.unlock("G", "c2", std::slice::from_ref(&queue));
        assert!(!try_lock("c2", LIFE_MS + 1), "a stranger cannot release it");
        assert!(
            !locks.lock("H", "c2", vec![queue.clone()], 0).is_empty(),
            "groups are apart"
        );
        assert!(try_lock("c2", 2 * LIFE_MS + 1), "expired");
        locks.unlock("G", "c2", std::slice::from_ref(&queue));
        assert!(try_lock("c1", 2 * LIFE_MS + 2));
        locks.expire(4 * LIFE_MS);
        assert!(locks.snapshot().is_empty());
    }
}
