//! Changing, listing and deleting groups on request: codes 200, 201, 207.

use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::body::SubscriptionGroupConfig;
use minimq_protocol::header::DeleteSubscriptionGroupRequest;

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success};
use crate::topic::MAX_QUEUES;

/// Code 200.
pub fn update_and_create(broker: &Arc<Broker>, request: &Command) -> Handled {
    broker.refuse_on_slave()?;
    let group = SubscriptionGroupConfig::from_json(&request.body)
        .map_err(|error| Refusal::error(format!("the body is no consumer group: {error}")))?;
    if group.group_name.is_empty() {
        return Err(Refusal::error(
            "the body is no consumer group: groupName is missing",
        ));
    }
    if !(0..=MAX_QUEUES).contains(&group.retry_queue_nums) {
        return Err(Refusal::error(format!(
            "retryQueueNums is {}, a topic has 0 to {MAX_QUEUES} queues",
            group.retry_queue_nums
        )));
    }
    let limit = broker.config.get().max_groups;
    if broker.groups.get(&group.group_name).is_none() && broker.groups.len() >= limit {
        return Err(Refusal::error(format!(
            "the broker has {limit} groups, no more are allowed (maxGroups)"
        )));
    }
    tracing::info!(group = %group.group_name, "consumer group set");
    broker.groups.put(group, broker.clock.now_ms());
    broker.groups.save();
    Ok(success(request))
}

/// Code 201.
pub fn get_all(broker: &Arc<Broker>, request: &Command) -> Handled {
    Ok(success(request).with_body(broker.groups.to_wrapper().to_wire()))
}

/// Code 207.
pub fn delete(broker: &Arc<Broker>, request: &Command) -> Handled {
    broker.refuse_on_slave()?;
    let header: DeleteSubscriptionGroupRequest<'_> = request.header()?;
    if broker
        .groups
        .remove(header.group_name, broker.clock.now_ms())
    {
        tracing::info!(group = header.group_name, "consumer group deleted");
        broker.groups.save();
    }
    if header.remove_offset || header.clean_offset == Some(true) {
        broker.offsets.remove_group(header.group_name);
    }
    if broker.config.get().broker.auto_delete_unused_stats {
        broker.stats.group_deleted(header.group_name);
    }
    Ok(success(request))
}
