//! Requests about clients: 35, 38, 46, 203, 204, 300, 328 (broker spec 6.3 to 6.8).

use std::collections::BTreeSet;
use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::body::{
    CheckClientRequestBody, Connection as ConnectionBody, ConsumerConnection, ConsumerIdList,
    GroupList, ProducerConnection, ProducerInfo, ProducerTableInfo,
};
use minimq_protocol::code::response;
use minimq_protocol::header::{
    GetConsumerConnectionListRequest, GetConsumerListByGroupRequest,
    GetProducerConnectionListRequest, QueryTopicConsumeByWhoRequest, UnregisterClientRequest,
};
use minimq_protocol::subscription::is_tag_type;

use crate::broker::Broker;
use crate::request::{Handled, Refusal, RequestContext, success};

use super::registry::Member;
use super::subscription::filter_of;

/// Code 35.
pub fn unregister(cx: &mut RequestContext<'_, '_>, request: &Command) {
    let handled = unregister_from(cx, request);
    cx.reply(request.id(), handled);
}

fn unregister_from(cx: &RequestContext<'_, '_>, request: &Command) -> Handled {
    let header: UnregisterClientRequest<'_> = request.header()?;
    let (broker, connection) = (cx.broker, cx.connection());
    if let Some(group) = header.producer_group {
        broker.clients.unregister_producer(group, connection);
    }
    if let Some(group) = header.consumer_group {
        let notify = broker
            .groups
            .get(group)
            .is_none_or(|g| g.notify_consumer_ids_changed_enable);
        if broker.clients.unregister_consumer(group, connection) {
            broker.consumer_group_left(group);
            if notify {
                broker.notices.add(group);
            }
        }
    }
    Ok(success(request))
}

/// Code 38.
pub fn consumer_ids(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: GetConsumerListByGroupRequest<'_> = request.header()?;
    let members = broker.clients.members_of(header.consumer_group);
    if members.is_empty() {
        return Err(Refusal::error(format!(
            "no consumer for this group, {}",
            header.consumer_group
        )));
    }
    let consumer_id_list = members
        .iter()
        .map(|member| member.client_id.to_string())
        .collect();
    Ok(success(request).with_body(ConsumerIdList { consumer_id_list }.to_wire()))
}

/// Code 46.
pub fn check_client(broker: &Arc<Broker>, request: &Command) -> Handled {
    let body = CheckClientRequestBody::from_json(&request.body)
        .map_err(|error| Refusal::error(format!("the body is not readable: {error}")))?;
    let Some(data) = body
        .subscription_data
        .filter(|data| !is_tag_type(Some(&data.expression_type)))
    else {
        return Ok(success(request));
    };
    if !broker.config.get().broker.enable_property_filter {
        return Err(property_filter_off(&data.expression_type));
    }
    filter_of(&data.sub_string, Some(&data.expression_type), false)
        .map_err(|why| Refusal::new(response::SUBSCRIPTION_PARSE_FAILED, why))?;
    Ok(success(request))
}

/// The refusal of expressions that are not tags while they are switched off.
pub(crate) fn property_filter_off(expression_type: &str) -> Refusal {
    Refusal::error(format!(
        "The broker does not support consumer to filter message by {expression_type} (enablePropertyFilter=false)"
    ))
}

fn connection_body(member: &Member) -> ConnectionBody {
    ConnectionBody {
        client_addr: member.connection.peer().to_string(),
        client_id: member.client_id.to_string(),
        language: member.language.name().map(str::to_owned),
        version: member.version,
    }
}

/// Code 203.
pub fn consumer_connections(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: GetConsumerConnectionListRequest<'_> = request.header()?;
    let view = broker.clients.group(header.consumer_group).ok_or_else(|| {
        Refusal::new(
            response::CONSUMER_NOT_ONLINE,
            format!("the consumer group[{}] not online", header.consumer_group),
        )
    })?;
    let body = ConsumerConnection {
        connection_set: view.members.iter().map(connection_body).collect(),
        consume_from_where: view.from_where,
        consume_type: view.consume_type,
        message_model: view.model,
        subscription_table: view
            .subscriptions
            .iter()
            .map(|(t, s)| (t.clone(), s.data.clone()))
            .collect(),
    };
    Ok(success(request).with_body(body.to_wire()))
}

/// Code 204.
pub fn producer_connections(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: GetProducerConnectionListRequest<'_> = request.header()?;
    let members = broker
        .clients
        .producers_of(header.producer_group)
        .ok_or_else(|| {
            Refusal::error(format!(
                "the producer group[{}] not exist",
                header.producer_group
            ))
        })?;
    let body = ProducerConnection {
        connection_set: members.iter().map(connection_body).collect(),
    };
    Ok(success(request).with_body(body.to_wire()))
}

/// Code 328.
pub fn all_producers(broker: &Arc<Broker>, request: &Command) -> Handled {
    let info = |member: &Member| ProducerInfo {
        client_id: member.client_id.to_string(),
        language: member.language.name().map(str::to_owned),
        last_update_timestamp: member.seen_ms,
        remote_ip: member.connection.peer().to_string(),
        version: member.version,
    };
    let data = broker
        .clients
        .all_producers()
        .into_iter()
        .map(|(group, members)| (group, members.iter().map(info).collect()))
        .collect();
    Ok(success(request).with_body(ProducerTableInfo { data }.to_wire()))
}

/// Code 300.
pub fn topic_consumed_by(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: QueryTopicConsumeByWhoRequest<'_> = request.header()?;
    let mut groups: BTreeSet<String> = broker
        .clients
        .groups_subscribing(header.topic)
        .into_iter()
        .collect();
    groups.extend(broker.offsets.groups_of(header.topic));
    let body = GroupList {
        group_list: groups.into_iter().collect(),
    };
    Ok(success(request).with_body(body.to_wire()))
}
