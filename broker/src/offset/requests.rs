//! Offsets of groups (14, 15, 314) and of queues (29 to 32).

use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::code::response;
use minimq_protocol::header::{
    CloneGroupOffsetRequest, GetEarliestMsgStoretimeRequest, GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest, GetMaxOffsetResponse, GetMinOffsetRequest, GetMinOffsetResponse,
    QueryConsumerOffsetRequest, QueryConsumerOffsetResponse, SearchOffsetRequest,
    SearchOffsetResponse, UpdateConsumerOffsetRequest,
};
use minimq_store::{Blocking, GetRequest, NoFilter, QueueOffset, StoreError};

use crate::broker::Broker;
use crate::request::{Handled, Refusal, RequestContext, success};

/// Code 15.
pub fn update(cx: &mut RequestContext<'_, '_>, request: &Command) {
    let id = request.id();
    match request.header::<UpdateConsumerOffsetRequest<'_>>() {
        Ok(header) => {
            let offsets = &cx.broker.offsets;
            offsets.commit(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.commit_offset,
            );
            cx.ok(id);
        }
        Err(error) => cx.reply(id, Err(error.into())),
    }
}

/// Code 14.
pub fn query(cx: &mut RequestContext<'_, '_>, request: Command) {
    let stored = request
        .header::<QueryConsumerOffsetRequest<'_>>()
        .map(|header| {
            cx.broker
                .offsets
                .get(header.consumer_group, header.topic, header.queue_id)
                .filter(|offset| *offset >= 0)
        });
    match stored {
        Ok(Some(offset)) => cx.ok_with(request.id(), &QueryConsumerOffsetResponse { offset }),
        Ok(None) => cx.slow(request, query_unknown),
        Err(error) => cx.reply(request.id(), Err(error.into())),
    }
}

/// A group without an offset begins at the start of a queue that is still in memory as a whole.
fn query_unknown(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: QueryConsumerOffsetRequest<'_> = request.header()?;
    let reader = broker.store.reader();
    let young = reader.min_offset(header.topic, header.queue_id).get() <= 0 && {
        let first = GetRequest {
            topic: header.topic,
            queue_id: header.queue_id,
            offset: QueueOffset(0),
            max_count: 1,
            max_bytes: 1,
        };
        let got = reader.get(&first, &mut NoFilter, Blocking::Allowed, &mut Vec::new());
        !got.is_ok_and(|result| result.suggest_pulling_from_slave)
    };
    if young && header.set_zero_if_not_found != Some(false) {
        return Ok(success(request).with_header(&QueryConsumerOffsetResponse { offset: 0 }));
    }
    Err(Refusal::new(
        response::QUERY_NOT_FOUND,
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
    ))
}

/// Code 30.
pub fn max(cx: &mut RequestContext<'_, '_>, request: &Command) {
    match request.header::<GetMaxOffsetRequest<'_>>() {
        Ok(header) => {
            let offset = cx
                .broker
                .store
                .reader()
                .max_offset(header.topic, header.queue_id)
                .get();
            cx.ok_with(request.id(), &GetMaxOffsetResponse { offset });
        }
        Err(error) => cx.reply(request.id(), Err(error.into())),
    }
}

/// Code 31.
pub fn min(cx: &mut RequestContext<'_, '_>, request: &Command) {
    match request.header::<GetMinOffsetRequest<'_>>() {
        Ok(header) => {
            let offset = cx
                .broker
                .store
                .reader()
                .min_offset(header.topic, header.queue_id)
                .get();
            cx.ok_with(request.id(), &GetMinOffsetResponse { offset });
        }
        Err(error) => cx.reply(request.id(), Err(error.into())),
    }
}

fn unreadable(error: &StoreError) -> Refusal {
    Refusal::error(format!("the store cannot be read: {error}"))
}

/// Code 29.
pub fn search(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: SearchOffsetRequest<'_> = request.header()?;
    let found =
        broker
            .store
            .reader()
            .offset_by_time(header.topic, header.queue_id, header.timestamp);
    let offset = found.map_err(|error| unreadable(&error))?.get();
    Ok(success(request).with_header(&SearchOffsetResponse { offset }))
}

/// Code 32.
pub fn earliest_store_time(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: GetEarliestMsgStoretimeRequest<'_> = request.header()?;
    let found = broker
        .store
        .reader()
        .earliest_time(header.topic, header.queue_id);
    let timestamp = found.map_err(|error| unreadable(&error))?.unwrap_or(-1);
    Ok(success(request).with_header(&GetEarliestMsgStoretimeResponse { timestamp }))
}

/// Code 314.
pub fn clone_group(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: CloneGroupOffsetRequest<'_> = request.header()?;
    let topics = match header.topic.filter(|topic| !topic.trim().is_empty()) {
        Some(topic) => vec![topic.to_owned()],
        None => broker.offsets.topics_of(header.src_group),
    };
    for topic in topics {
        if !broker.topics.contains(&topic) {
            continue;
        }
        let subscribed = broker.clients.subscribes(header.src_group, &topic);
        if !header.offline && subscribed == Some(false) {
            continue;
        }
        let queues = broker.offsets.queues(header.src_group, &topic);
        if !queues.is_empty() {
            broker.offsets.replace(header.dest_group, &topic, queues);
        }
    }
    Ok(success(request))
}
