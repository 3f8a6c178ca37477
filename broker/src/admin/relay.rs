//! Calls passed on to a consumer: codes 307 and 309 (broker spec 13.7). The client's answer goes back as it is.

use std::time::Duration;

use bytes::Bytes;
use minimq_protocol::code::response;
use minimq_protocol::header::{ConsumeMessageDirectlyResultRequest, GetConsumerRunningInfoRequest};
use minimq_protocol::message_id::OffsetId;
use minimq_protocol::{Command, version};
use minimq_remoting::CallError;
use minimq_store::{Blocking, PhysicalOffset};

use crate::broker::Broker;
use crate::client_registry::Member;
use crate::request::{Refusal, RequestContext};

/// How long the client may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Code 307.
pub fn running_info(cx: &mut RequestContext<'_, '_>, command: Command) {
    let found = command
        .header::<GetConsumerRunningInfoRequest<'_>>()
        .map_err(Refusal::from)
        .and_then(|header| find(cx.broker, header.consumer_group, header.client_id));
    relay(cx, command, found, None);
}

/// Code 309.
pub fn consume_directly(cx: &mut RequestContext<'_, '_>, command: Command) {
    let found = command
        .header::<ConsumeMessageDirectlyResultRequest<'_>>()
        .map_err(Refusal::from)
        .and_then(|header| {
            let id = header.msg_id.unwrap_or_default();
            let client = header.client_id.unwrap_or_default();
            let at: OffsetId = id
                .parse()
                .map_err(|error| Refusal::error(format!("{error}")))?;
            Ok((
                find(cx.broker, header.consumer_group, client)?,
                at.physical_offset,
            ))
        });
    match found {
        Ok((member, at)) => relay(cx, command, Ok(member), Some(at)),
        Err(refusal) => relay(cx, command, Err(refusal), None),
    }
}

fn find(broker: &Broker, group: &str, client: &str) -> Result<Member, Refusal> {
    let members = broker.clients.members_of(group);
    let member = members
        .into_iter()
        .find(|member| *member.client_id == *client);
    let member = member
        .ok_or_else(|| Refusal::error(format!("The Consumer <{group}> <{client}> not online")))?;
    if member.version < version::V3_1_8_SNAPSHOT {
        return Err(Refusal::error(format!(
            "The Consumer <{client}> Version <{}> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
            version::name(member.version)
        )));
    }
    Ok(member)
}

/// Passes the request on; with `message` a message's place in the log, that message is its body.
fn relay(
    cx: &mut RequestContext<'_, '_>,
    command: Command,
    found: Result<Member, Refusal>,
    message: Option<i64>,
) {
    let member = match found {
        Ok(member) => member,
        Err(refusal) => return cx.reply(command.id(), Err(refusal)),
    };
    let responder = cx.answers.later(command.id());
    let broker = cx.broker.clone();
    let mut forwarded = Command::request(command.code);
    for (name, value) in command.ext.iter() {
        forwarded.ext.set(name, value);
    }
    forwarded.body = Bytes::copy_from_slice(&command.body);
    forwarded.serialize = member.connection.peer_serialize();
    let group = command
        .ext
        .get("consumerGroup")
        .unwrap_or_default()
        .to_owned();
    drop(command);
    tokio::spawn(async move {
        if let Some(at) = message {
            forwarded.ext.set("brokerName", &broker.identity.name);
            let reader = broker.store.reader().clone();
            let record = tokio::task::spawn_blocking(move || {
                reader.record(PhysicalOffset(at), Blocking::Allowed)
            });
            match record.await {
                Ok(Ok(Some(record))) => forwarded.body = record,
                _ => {
                    let remark = format!("there is no message at offset {at}");
                    return responder.refuse(response::SYSTEM_ERROR, &remark);
                }
            }
        }
        let client = &member.client_id;
        match member.connection.call(forwarded, TIMEOUT).await {
            Ok(answer) => responder.respond(answer),
            Err(error @ CallError::Timeout { .. }) => {
                let remark = format!("consumer <{group}> <{client}> Timeout: {error}");
                responder.refuse(response::CONSUME_MSG_TIMEOUT, &remark);
            }
            Err(error) => {
                let remark = format!("invoke consumer <{group}> <{client}> Exception: {error}");
                responder.refuse(response::SYSTEM_ERROR, &remark);
            }
        }
    });
}
