//! Half messages and the records made of them.

use std::net::SocketAddr;

use minimq_protocol::message::MessageView;
use minimq_protocol::name;
use minimq_protocol::properties::{Properties, PropertiesBuf, name as property};
use minimq_store::AppendMessage;

/// Queue of all half messages, op messages and messages put aside.
pub(super) const QUEUE: i32 = 0;
/// Tag of an op message.
const OP_TAG: &str = "d";

/// The properties with some set anew.
pub(super) fn with(old: Properties<'_>, set: &[(&str, &str)]) -> PropertiesBuf {
    let mut properties = PropertiesBuf::new();
    for (name, value) in old.iter() {
        if set.iter().all(|(new, _)| *new != name) {
            properties.push(name, value);
        }
    }
    for (name, value) in set {
        properties.push(name, value);
    }
    properties
}

/// A number in a property; `None` if it is absent or none.
pub(super) fn number(properties: Properties<'_>, name: &str) -> Option<i64> {
    properties.get(name)?.trim().parse().ok()
}

/// The topic and queue a half message is meant for.
pub(super) fn real_queue<'m>(properties: Properties<'m>) -> Option<(&'m str, i32)> {
    let topic = properties.get(property::REAL_TOPIC)?;
    Some((topic, properties.get(property::REAL_QID)?.parse().ok()?))
}

/// A message like `message`, in another topic and with other properties.
pub(super) fn copy<'m>(
    message: &'m MessageView,
    topic: &'m str,
    queue_id: i32,
    properties: &'m [u8],
) -> AppendMessage<'m> {
    AppendMessage {
        topic,
        queue_id,
        flag: message.flag(),
        sys_flag: message.sys_flag(),
        born_timestamp: message.born_timestamp(),
        born_host: message.born_host(),
        store_host: message.store_host(),
        reconsume_times: message.reconsume_times(),
        prepared_transaction_offset: 0,
        body: message.body(),
        properties,
        appended_properties: &[],
        joins_previous: false,
    }
}

/// What marks the half message at `body` (its queue offset, as text) as done.
pub(super) fn op<'m>(
    body: &'m str,
    queue_id: i32,
    now_ms: i64,
    host: SocketAddr,
    properties: &'m PropertiesBuf,
) -> AppendMessage<'m> {
    AppendMessage {
        topic: name::TRANS_OP_HALF_TOPIC,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp: now_ms,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: body.as_bytes(),
        properties: properties.as_str().as_bytes(),
        appended_properties: &[],
        joins_previous: false,
    }
}

/// Properties of all op messages.
pub(super) fn op_properties() -> PropertiesBuf {
    let mut properties = PropertiesBuf::new();
    properties.push(property::TAGS, OP_TAG);
    properties
}

/// The half message that an op message marks; `None` for what is no op message.
pub(super) fn marked_by(op: &MessageView) -> Option<i64> {
    if op.tags() != Some(OP_TAG) {
        return None;
    }
    std::str::from_utf8(op.body()).ok()?.trim().parse().ok()
}
