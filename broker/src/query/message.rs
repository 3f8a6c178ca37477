//! Messages by key and by place: codes 12 and 33.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use minimq_protocol::Command;
use minimq_protocol::code::response;
use minimq_protocol::header::{QueryMessageRequest, QueryMessageResponse, ViewMessageRequest};
use minimq_store::{Blocking, PhysicalOffset};

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success};

/// Bytes of messages in one answer at most: what a frame takes, less its head.
const MAX_ANSWER: usize = 16_000_000;

/// Code 12. The index knows hashes only: whether the key is the one asked for is for the client to see.
pub fn by_key(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: QueryMessageRequest<'_> = request.header()?;
    let wanted = match header.unique_key_query {
        Some(true) => broker.config.get().store.default_query_max_num,
        _ => i64::from(header.max_num),
    };
    let max = usize::try_from(wanted).unwrap_or(0);
    let found = broker.store.query(
        header.topic,
        header.key,
        max,
        header.begin_timestamp,
        header.end_timestamp,
    );
    let found = found.map_err(|e| Refusal::error(format!("the index cannot be read: {e}")))?;
    let answer_header = QueryMessageResponse {
        index_last_update_timestamp: found.index_last_update_timestamp,
        index_last_update_phyoffset: found.index_last_update_physical_offset,
    };
    if found.records.is_empty() {
        let none = Command::response_to(request, response::QUERY_NOT_FOUND);
        return Ok(none
            .with_header(&answer_header)
            .with_remark("can not find message, maybe time range not correct"));
    }
    Ok(success(request)
        .with_header(&answer_header)
        .with_body(joined(&found.records)))
}

/// The records one after the other, oldest first; of too many the newest.
fn joined(records: &[Bytes]) -> Bytes {
    let mut bytes = 0;
    let kept = records.iter().rev().take_while(|record| {
        bytes += record.len();
        bytes <= MAX_ANSWER
    });
    let first = records.len() - kept.count();
    let mut body = BytesMut::with_capacity(bytes.min(MAX_ANSWER));
    for record in records.get(first..).unwrap_or_default() {
        body.extend_from_slice(record);
    }
    body.freeze()
}

/// Code 33.
pub fn view(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: ViewMessageRequest = request.header()?;
    let missing = |why: &str| {
        Refusal::error(format!(
            "can not find message by the offset, {}{why}",
            header.offset
        ))
    };
    let reader = broker.store.reader();
    let record = reader
        .record(PhysicalOffset(header.offset), Blocking::Allowed)
        .map_err(|error| missing(&format!(": {error}")))?
        .ok_or_else(|| missing(""))?;
    Ok(success(request).with_body(record))
}
