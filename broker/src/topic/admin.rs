//! Creating, changing and deleting topics on request: codes 17 and 215 (broker spec 2.5, 2.6).

use std::sync::Arc;

use minimq_protocol::body::{TopicConfig, TopicFilterType};
use minimq_protocol::header::{CreateTopicRequest, DeleteTopicRequest};
use minimq_protocol::{Command, name};

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success, success_default_remark};

use super::MAX_QUEUES;

/// Refuses names that are no topics' or are the system's own.
fn check_name(broker: &Broker, topic: &str) -> Result<(), Refusal> {
    name::validate_topic(topic).map_err(|error| Refusal::error(error.to_string()))?;
    let config = broker.config.get();
    let keys = &config.broker;
    let own = [&keys.broker_cluster_name, &keys.broker_name]
        .into_iter()
        .any(|own| own == topic)
        || topic == name::reply_topic(&keys.broker_cluster_name)
        || (keys.trace_topic_enable && topic == keys.msg_trace_topic_name);
    if own || name::is_system_topic(topic) {
        return Err(Refusal::error(name::system_topic_remark(topic)));
    }
    Ok(())
}

/// Code 17.
pub fn update_and_create(broker: &Arc<Broker>, request: &Command) -> Handled {
    broker.refuse_on_slave()?;
    let header: CreateTopicRequest<'_> = request.header()?;
    check_name(broker, header.topic)?;
    let filter_type = TopicFilterType::from_name(header.topic_filter_type).ok_or_else(|| {
        Refusal::error(format!(
            "topicFilterType = [{}] value invalid: SINGLE_TAG or MULTI_TAG",
            header.topic_filter_type
        ))
    })?;
    for (field, queues) in [
        ("readQueueNums", header.read_queue_nums),
        ("writeQueueNums", header.write_queue_nums),
    ] {
        if !(0..=MAX_QUEUES).contains(&queues) {
            return Err(Refusal::error(format!(
                "{field} is {queues}, a topic has 0 to {MAX_QUEUES} queues"
            )));
        }
    }
    let limit = broker.config.get().max_topics;
    if !broker.topics.contains(header.topic) && broker.topics.len() >= limit {
        return Err(Refusal::error(format!(
            "the broker has {limit} topics, no more are allowed (maxTopics)"
        )));
    }
    let topic = TopicConfig {
        read_queue_nums: header.read_queue_nums,
        write_queue_nums: header.write_queue_nums,
        perm: header.perm,
        topic_filter_type: filter_type,
        topic_sys_flag: header.topic_sys_flag.unwrap_or(0),
        order: false,
        ..TopicConfig::new(header.topic)
    };
    let known = broker.topics.get(header.topic);
    broker.topics.put(topic, broker.clock.now_ms());
    tracing::info!(
        topic = header.topic,
        read = header.read_queue_nums,
        write = header.write_queue_nums,
        perm = header.perm,
        "topic {}",
        if known.is_some() {
            "changed"
        } else {
            "created"
        }
    );
    broker.registration.changed();
    tokio::runtime::Handle::current().block_on(broker.name_servers_told());
    Ok(success_default_remark(request))
}

/// Code 215.
pub fn delete(broker: &Arc<Broker>, request: &Command) -> Handled {
    broker.refuse_on_slave()?;
    let header: DeleteTopicRequest<'_> = request.header()?;
    check_name(broker, header.topic)?;
    if broker.topics.remove(header.topic, broker.clock.now_ms()) {
        tracing::info!(topic = header.topic, "topic deleted");
        broker.topics.save();
        broker.registration.changed();
    }
    broker.store.delete_topic(header.topic).map_err(|error| {
        Refusal::error(format!("the topic is deleted, its queues are not: {error}"))
    })?;
    // A topic made anew begins at 0: offsets of the old one would lie beyond its end.
    broker.offsets.remove_topic(header.topic);
    if broker.config.get().broker.auto_delete_unused_stats {
        broker.stats.topic_deleted(header.topic);
    }
    Ok(success(request))
}
