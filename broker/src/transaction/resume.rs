//! A half message that was put aside comes back: code 323 (broker spec 8.6).

use std::sync::Arc;

use minimq_protocol::header::ResumeCheckHalfMessageRequest;
use minimq_protocol::message::MessageView;
use minimq_protocol::message_id::OffsetId;
use minimq_protocol::properties::name as property;
use minimq_protocol::{Command, name};
use minimq_store::{Blocking, PhysicalOffset};

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success};
use crate::send::store_one;

use super::half;

/// Code 323.
pub fn resume(broker: &Arc<Broker>, request: &Command) -> Handled {
    broker.refuse_on_slave()?;
    let failed = |why: String| {
        Refusal::error(format!(
            "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC. {why}"
        ))
    };
    let header: ResumeCheckHalfMessageRequest<'_> = request.header()?;
    let text = header
        .msg_id
        .ok_or_else(|| failed("msgId is missing".into()))?;
    let id: OffsetId = text.parse().map_err(|error| failed(format!("{error}")))?;
    let reader = broker.store.reader();
    let record = reader.record(PhysicalOffset(id.physical_offset), Blocking::Allowed);
    let message = record
        .map_err(|error| failed(error.to_string()))?
        .and_then(|record| MessageView::parse(record).ok())
        .ok_or_else(|| failed(format!("there is no message {text}")))?;
    if ![name::TRANS_CHECK_MAX_TIME_TOPIC, name::TRANS_HALF_TOPIC].contains(&message.topic()) {
        return Err(failed(format!(
            "message {text} lies in {}: it is no half message that was put aside",
            message.topic()
        )));
    }
    let unasked = [(property::TRANSACTION_CHECK_TIMES, "0")];
    let properties = half::with(message.properties(), &unasked);
    let text = properties.as_str().as_bytes();
    let copy = half::copy(&message, name::TRANS_HALF_TOPIC, half::QUEUE, text);
    store_one(broker, copy).map_err(|error| {
        Refusal::error(format!(
            "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. {error}"
        ))
    })?;
    Ok(success(request))
}
