//! Heartbeats: code 34 (broker spec 6.2).

use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::body::HeartbeatData;
use minimq_protocol::{name, perm};
use minimq_remoting::Connection;

use crate::broker::Broker;
use crate::request::{Handled, Refusal, RequestContext, success};

use super::registry::Member;

/// Bit of `topicSysFlag`: has a unit subscription.
const UNIT_SUBSCRIPTION: i32 = 2;

/// Code 34.
pub fn heartbeat(cx: &mut RequestContext<'_, '_>, request: &Command) {
    let changes = cx.broker.registration.changes();
    let handled = register(cx.broker, cx.connection(), request);
    if cx.broker.registration.changes() == changes {
        cx.reply(request.id(), handled);
        return;
    }
    // Once a consumer has started, tools ask the name servers for its group's retry topic.
    let (responder, broker) = (cx.answers.later(request.id()), cx.broker.clone());
    tokio::spawn(async move {
        broker.name_servers_told().await;
        match handled {
            Ok(answer) => responder.respond(answer),
            Err(refusal) => responder.refuse(refusal.code, &refusal.remark),
        }
    });
}

fn register(broker: &Arc<Broker>, connection: &Connection, request: &Command) -> Handled {
    if request.body.is_empty() {
        return Err(Refusal::error("the heartbeat has no body"));
    }
    let data = HeartbeatData::from_json(&request.body)
        .map_err(|error| Refusal::error(format!("the heartbeat is not readable: {error}")))?;
    let member = Member {
        connection: connection.clone(),
        client_id: data.client_id.as_str().into(),
        language: request.language,
        version: request.version,
        seen_ms: broker.clock.now_ms(),
    };
    for consumer in &data.consumer_data_set {
        let group = consumer.group_name.as_str();
        if group.is_empty() {
            continue;
        }
        let settings = broker.group_or_create(group);
        if let Some(settings) = &settings {
            let flag = if consumer.unit_mode {
                UNIT_SUBSCRIPTION
            } else {
                0
            };
            let retry = name::retry_topic(group);
            broker.topic_or_create(
                &retry,
                settings.retry_queue_nums,
                perm::READ | perm::WRITE,
                flag,
            );
        }
        let changed = broker.clients.register_consumer(consumer, member.clone());
        broker.registered_filters.heartbeat(
            group,
            consumer.subscription_data_set.iter(),
            member.seen_ms,
        );
        if changed.duplicate_id {
            tracing::warn!(
                group, client = %member.client_id, peer = %connection.peer(),
                "the same client id is alive on another address: both will take the same queues"
            );
        }
        if changed.mixed {
            tracing::warn!(
                group, client = %member.client_id,
                "members of one group subscribe differently: each heartbeat replaces the others' subscription"
            );
        }
        if changed.membership && settings.is_none_or(|s| s.notify_consumer_ids_changed_enable) {
            broker.notices.add(group);
        }
    }
    for producer in &data.producer_data_set {
        if !producer.group_name.is_empty() {
            broker
                .clients
                .register_producer(&producer.group_name, member.clone());
        }
    }
    Ok(success(request))
}
