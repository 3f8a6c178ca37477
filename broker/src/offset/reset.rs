//! Sending a group back (or ahead) in time, and asking its clients where they are: codes 222, 223. The clients do
//! it: this broker only tells them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use minimq_protocol::body::{GetConsumerStatusBody, MessageQueue, ResetOffsetBody};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{GetConsumerStatusRequest, ResetOffsetRequest};
use minimq_protocol::{Command, Language};

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success};
use crate::topic::MAX_QUEUES;

/// First client version that knows these requests (V3_0_7_SNAPSHOT).
const SINCE_VERSION: i32 = 28;
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

fn too_old(version: i32) -> Refusal {
    Refusal::error(format!(
        "the client does not support this feature. version={version}"
    ))
}

/// Code 222.
pub fn reset(broker: &Arc<Broker>, command: &Command) -> Handled {
    let header: ResetOffsetRequest<'_> = command.header()?;
    let (group, name) = (header.group, header.topic);
    let topic = broker.topics.get(name).ok_or_else(|| {
        Refusal::error(format!(
            "[reset-offset] reset offset failed, no topic in this broker. topic={name}"
        ))
    })?;
    let reader = broker.store.reader();
    let mut table = BTreeMap::new();
    for queue_id in 0..topic.write_queue_nums.min(MAX_QUEUES) {
        let stored = broker
            .offsets
            .get(group, name, queue_id)
            .ok_or_else(|| Refusal::error(format!("THe consumer group <{group}> not exist")))?;
        let target = if header.timestamp == -1 {
            reader.max_offset(name, queue_id).get()
        } else {
            let found = reader.offset_by_time(name, queue_id, header.timestamp);
            found
                .map_err(|e| Refusal::error(format!("the store cannot be read: {e}")))?
                .get()
                .max(0)
        };
        let queue = MessageQueue::new(name, &broker.identity.name, queue_id);
        table.insert(
            queue,
            if header.is_force || target < stored {
                target
            } else {
                stored
            },
        );
    }
    let members = broker.clients.members_of(group);
    if members.is_empty() {
        return Err(Refusal::new(
            response::CONSUMER_NOT_ONLINE,
            format!(
                "Consumer not online, so can not reset offset, Group: {group} Topic: {name} Timestamp: {}",
                header.timestamp
            ),
        ));
    }
    let body = ResetOffsetBody {
        offset_table: table,
    };
    let bytes = if command.language == Language::Cpp {
        body.to_json_for_cpp()
    } else {
        body.to_wire()
    };
    for member in &members {
        if member.version < SINCE_VERSION {
            return Err(too_old(member.version));
        }
        let notice = Command::request_with(request::RESET_CONSUMER_CLIENT_OFFSET, &header)
            .with_body(bytes.clone())
            .with_serialize(member.connection.peer_serialize());
        if let Err(error) = member.connection.oneway(notice) {
            tracing::warn!(client = %member.client_id, %error, "the reset did not reach a consumer");
        }
    }
    tracing::info!(
        group,
        topic = name,
        timestamp = header.timestamp,
        "offsets reset by time"
    );
    Ok(success(command).with_body(bytes))
}

/// Code 223.
pub fn consumer_status(broker: &Arc<Broker>, command: &Command) -> Handled {
    let header: GetConsumerStatusRequest<'_> = command.header()?;
    let members = broker.clients.members_of(header.group);
    if members.is_empty() {
        return Err(Refusal::error(format!(
            "No Any Consumer online in the consumer group: [{}]",
            header.group
        )));
    }
    let runtime = tokio::runtime::Handle::current();
    let mut body = GetConsumerStatusBody::default();
    for member in members {
        if header
            .client_addr
            .is_some_and(|wanted| !wanted.is_empty() && *wanted != *member.client_id)
        {
            continue;
        }
        if member.version < SINCE_VERSION {
            return Err(too_old(member.version));
        }
        let question = Command::request_with(request::GET_CONSUMER_STATUS_FROM_CLIENT, &header)
            .with_serialize(member.connection.peer_serialize());
        let answer = runtime.block_on(member.connection.call(question, STATUS_TIMEOUT));
        match answer.map(|answer| (answer.code, GetConsumerStatusBody::from_json(&answer.body))) {
            Ok((response::SUCCESS, Ok(status))) => {
                body.consumer_table
                    .insert(member.client_id.to_string(), status.message_queue_table);
            }
            other => {
                tracing::warn!(client = %member.client_id, ?other, "a consumer did not tell its status")
            }
        }
    }
    Ok(success(command).with_body(body.to_wire()))
}
