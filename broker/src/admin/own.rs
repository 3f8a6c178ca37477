//! Requests that only this broker knows: damaged records, members that subscribe differently, held pulls, queue locks.

use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::body::{
    DamagedRecordBody, DamagedRecordList, HeldPullBody, HeldPullList, MessageQueue, MixedMember,
    MixedSubscriptions, QueueLockBody, QueueLockList,
};

use crate::broker::Broker;
use crate::request::{Handled, success};

/// Code 31000.
pub fn damaged_records(broker: &Arc<Broker>, request: &Command) -> Handled {
    let ranges = broker.store.log_store().damage().ranges();
    let records = ranges.into_iter().map(|range| DamagedRecordBody {
        from: range.from.get(),
        queue: range
            .record
            .as_ref()
            .map(|record| MessageQueue::new(&record.topic, &broker.identity.name, record.queue_id)),
        queue_offset: range.record.map_or(-1, |record| record.queue_offset.get()),
        reason: range.reason,
        to: range.to.get(),
    });
    let body = DamagedRecordList {
        records: records.collect(),
    };
    Ok(success(request).with_body(body.to_wire()))
}

/// Code 31001.
pub fn mixed_subscriptions(broker: &Arc<Broker>, request: &Command) -> Handled {
    let groups = broker.clients.mixed().into_iter().map(|(group, members)| {
        let members = members
            .into_iter()
            .map(|(client_id, topics)| MixedMember { client_id, topics });
        (group, members.collect())
    });
    let body = MixedSubscriptions {
        groups: groups.collect(),
    };
    Ok(success(request).with_body(body.to_wire()))
}

/// Code 31002.
pub fn held_pulls(broker: &Arc<Broker>, request: &Command) -> Handled {
    let pulls = broker
        .held
        .snapshot()
        .into_iter()
        .map(|(topic, queue_id, count, longest)| HeldPullBody {
            count: count as i64,
            longest_ms: longest.as_millis() as i64,
            queue: MessageQueue::new(topic, &broker.identity.name, queue_id),
        });
    let body = HeldPullList {
        pulls: pulls.collect(),
    };
    Ok(success(request).with_body(body.to_wire()))
}

/// Code 31003.
pub fn queue_locks(broker: &Arc<Broker>, request: &Command) -> Handled {
    let locks = broker
        .locks
        .snapshot()
        .into_iter()
        .map(|(group, queue, lock)| QueueLockBody {
            client_id: lock.client_id,
            group,
            queue,
            refreshed_timestamp: lock.refreshed_ms,
        });
    let body = QueueLockList {
        locks: locks.collect(),
    };
    Ok(success(request).with_body(body.to_wire()))
}
