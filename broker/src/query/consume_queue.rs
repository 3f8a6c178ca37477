//! Entries of a consume queue, for looking at: code 321.

use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::body::{ConsumeQueueData, QueryConsumeQueueResponseBody};
use minimq_protocol::header::QueryConsumeQueueRequest;
use minimq_store::consume_queue::entry::entries;
use minimq_store::consume_queue::{ConsumeQueue, ExtUnit, QueueEntry, ext};
use minimq_store::{Blocking, MessageFilter, ReadError};

use crate::broker::Broker;
use crate::client_registry::Subscription;
use crate::filter::stored_bits::Wanted;
use crate::request::{Handled, Refusal, success};

/// Entries in one answer at most.
const MAX_ENTRIES: i32 = 10_000;

/// Code 321.
pub fn consume_queue(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: QueryConsumeQueueRequest<'_> = request.header()?;
    let topic = header.topic.unwrap_or_default();
    let name = format!("{}@{topic}", header.queue_id);
    let queue = broker.store.queues().get(topic, header.queue_id);
    let queue = queue.ok_or_else(|| Refusal::error(format!("{name} is not exist!")))?;
    let (min, max) = (queue.min_offset(), queue.max_offset());
    if header.index < min || header.index >= max {
        let remark = format!("Index {} of {name} is not exist!", header.index);
        return Ok(success(request).with_remark(remark));
    }
    let mut body = QueryConsumeQueueResponseBody {
        min_queue_index: min,
        max_queue_index: max,
        ..Default::default()
    };
    let group = header.consumer_group.filter(|group| !group.is_empty());
    let subscription = group.and_then(|group| {
        let subscription = broker.clients.subscription(group, topic)?.1;
        if let Some(subscription) = &subscription {
            body.subscription_data = Some(subscription.data.clone());
            body.filter_data = Some(filter_text(broker, group, topic));
        }
        subscription
    });
    if let (Some(group), None) = (group, &subscription) {
        body.filter_data = Some(format!("{group}@{topic} is not online!"));
    }
    let filter =
        subscription.and_then(|subscription: Arc<Subscription>| subscription.filter.clone());

    let count = header.count.clamp(0, MAX_ENTRIES) as usize;
    let mut bytes = Vec::new();
    let unreadable = |error: ReadError| Refusal::error(format!("{name} cannot be read: {error}"));
    queue
        .read(header.index, count, &mut bytes, Blocking::Allowed)
        .map_err(unreadable)?;
    let mut wanted = filter.as_deref().map(|filter| {
        let registered = &broker.registered_filters;
        Wanted::new(filter).with_bits(registered, topic, group.unwrap_or_default())
    });
    let listed = entries(&bytes).map(|entry| describe(&queue, entry, wanted.as_mut()));
    body.queue_data = Some(listed.collect());
    Ok(success(request).with_body(body.to_wire()))
}

fn filter_text(broker: &Broker, group: &str, topic: &str) -> String {
    match broker.registered_filters.get(topic, group) {
        Some(data) => String::from_utf8_lossy(&data.to_wire()).into_owned(),
        None => "null".to_owned(),
    }
}

fn describe(
    queue: &ConsumeQueue,
    entry: QueueEntry,
    wanted: Option<&mut Wanted<'_>>,
) -> ConsumeQueueData {
    let mut data = ConsumeQueueData {
        physic_offset: entry.physical_offset,
        physic_size: entry.size,
        tags_code: entry.tags_code,
        ..Default::default()
    };
    let mut unit = None;
    if ext::is_address(entry.tags_code) {
        match queue.ext_unit(entry.tags_code, Blocking::Allowed) {
            Ok(Some(found)) => {
                data.extend_data_json = Some(unit_json(&found));
                data.bit_map = Some(bits_text(&found.bit_map));
                unit = Some(found);
            }
            _ => data.msg = Some(format!("Cq extend not exist!addr: {}", entry.tags_code)),
        }
    }
    let tags_code = match &unit {
        Some(unit) => Some(unit.tags_code),
        None if ext::is_address(entry.tags_code) => None,
        None => Some(entry.tags_code),
    };
    if let Some(wanted) = wanted {
        data.eval = wanted.matches_entry(tags_code, unit.as_ref());
    }
    data
}

fn unit_json(unit: &ExtUnit) -> String {
    format!(
        "{{\"bitMapSize\":{},\"msgStoreTime\":{},\"size\":{},\"tagsCode\":{}}}",
        unit.bit_map.len(),
        unit.store_timestamp,
        20 + unit.bit_map.len(),
        unit.tags_code
    )
}

/// The bits, the highest first, a line break before the lowest byte of each eight.
fn bits_text(bits: &[u8]) -> String {
    let mut text = String::with_capacity(bits.len() * 9);
    for (index, byte) in bits.iter().enumerate().rev() {
        text.push_str(&format!("{byte:08b}"));
        if index % 8 == 0 {
            text.push('\n');
        }
    }
    text
}
