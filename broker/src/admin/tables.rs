//! Whole tables, for slaves and tools: codes 21, 43, 45; the broker's own topics: 305.

use std::sync::Arc;

use minimq_protocol::body::TopicList;
use minimq_protocol::{Command, name};

use crate::broker::Broker;
use crate::request::{Handled, success};

/// Code 21.
pub fn all_topics(broker: &Arc<Broker>, request: &Command) -> Handled {
    Ok(success(request).with_body(broker.topics.to_wrapper().to_wire()))
}

/// Code 43.
pub fn all_offsets(broker: &Arc<Broker>, request: &Command) -> Handled {
    Ok(success(request).with_body(broker.offsets.to_wrapper().to_wire()))
}

/// Code 45.
pub fn all_delay_offsets(broker: &Arc<Broker>, request: &Command) -> Handled {
    Ok(success(request).with_body(broker.delay.to_wrapper().to_wire()))
}

/// Code 305.
pub fn system_topics(broker: &Arc<Broker>, request: &Command) -> Handled {
    let config = broker.config.get();
    let keys = &config.broker;
    let mut topics: Vec<String> = name::SYSTEM_TOPICS.map(str::to_owned).to_vec();
    topics.push(keys.broker_cluster_name.clone());
    topics.push(keys.broker_name.clone());
    topics.push(name::reply_topic(&keys.broker_cluster_name));
    if keys.trace_topic_enable {
        topics.push(keys.msg_trace_topic_name.clone());
    }
    topics.sort();
    topics.dedup();
    let body = TopicList {
        broker_addr: None,
        topic_list: topics,
    };
    Ok(success(request).with_body(body.to_wire()))
}
