//! How far groups and queues are: codes 202, 208, 308, 317 (broker spec 5.7, 13.2).

use std::collections::BTreeMap;
use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::body::{
    ConsumeStats, ConsumeStatsList, MessageQueue, OffsetWrapper, QueryCorrectionOffsetBody,
    TopicOffset, TopicStatsTable,
};
use minimq_protocol::code::response;
use minimq_protocol::header::{
    GetConsumeStatsInBroker, GetConsumeStatsRequest, GetTopicStatsInfoRequest,
    QueryCorrectionOffsetRequest,
};
use minimq_store::QueueOffset;

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success};
use crate::topic::MAX_QUEUES;

pub(super) fn topic_missing(topic: &str) -> Refusal {
    Refusal::new(
        response::TOPIC_NOT_EXIST,
        format!("topic[{topic}] not exist"),
    )
}

/// When message `offset` of a queue was stored, ms; `None` if that is not known.
pub(super) fn store_time(broker: &Broker, topic: &str, queue_id: i32, offset: i64) -> Option<i64> {
    let reader = broker.store.reader();
    let time = reader.store_time(topic, queue_id, QueueOffset(offset));
    time.inspect_err(
        |error| tracing::warn!(topic, queue_id, offset, %error, "a store time cannot be read"),
    )
    .ok()
    .flatten()
}

/// A group's place in the first `queues` queues of a topic.
fn add_progress(
    broker: &Broker,
    group: &str,
    topic: &str,
    queues: i32,
    table: &mut BTreeMap<MessageQueue, OffsetWrapper>,
) {
    for queue_id in 0..queues {
        let max = broker.store.reader().max_offset(topic, queue_id).get();
        let consumed = broker
            .offsets
            .get(group, topic, queue_id)
            .unwrap_or(0)
            .max(0);
        let last = (consumed > 0)
            .then(|| store_time(broker, topic, queue_id, consumed - 1))
            .flatten();
        let progress = OffsetWrapper {
            broker_offset: max.max(0),
            consumer_offset: consumed,
            last_timestamp: last.unwrap_or(0),
        };
        table.insert(
            MessageQueue::new(topic, &broker.identity.name, queue_id),
            progress,
        );
    }
}

/// Code 208.
pub fn consume_stats(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: GetConsumeStatsRequest<'_> = request.header()?;
    let group = header.consumer_group;
    let one = header.topic.filter(|topic| !topic.trim().is_empty());
    let some = header.topic_list.filter(|list| !list.trim().is_empty());
    let topics = match (one, some) {
        (Some(topic), _) => vec![topic.to_owned()],
        (None, Some(list)) => list.split(';').map(str::to_owned).collect(),
        (None, None) => broker.offsets.topics_of(group),
    };
    let mut body = ConsumeStats::default();
    for topic in topics {
        let Some(settings) = broker.topics.get(&topic) else {
            tracing::debug!(group, topic, "consume stats: the topic is not known");
            continue;
        };
        if broker.clients.subscribes(group, &topic) == Some(false) {
            continue;
        }
        let queues = settings.read_queue_nums.min(MAX_QUEUES);
        add_progress(broker, group, &topic, queues, &mut body.offset_table);
        body.consume_tps += broker.stats.group_tps(&topic, group);
    }
    Ok(success(request).with_body(body.to_wire()))
}

/// Code 317.
pub fn stats_of_all_groups(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: GetConsumeStatsInBroker = request.header()?;
    let mut body = ConsumeStatsList {
        broker_addr: Some(broker.identity.address.clone()),
        ..Default::default()
    };
    for group in broker
        .groups
        .to_wrapper()
        .subscription_group_table
        .into_keys()
    {
        let mut stats = Vec::new();
        for topic in broker.offsets.topics_of(&group) {
            let Some(settings) = broker.topics.get(&topic) else {
                continue;
            };
            let other = broker.clients.subscribes(&group, &topic) == Some(false);
            if (header.is_order && !settings.order) || other {
                continue;
            }
            let mut table = BTreeMap::new();
            add_progress(
                broker,
                &group,
                &topic,
                settings.write_queue_nums.min(MAX_QUEUES),
                &mut table,
            );
            // A group may have committed any number.
            body.total_diff = table
                .values()
                .map(|progress| {
                    progress
                        .broker_offset
                        .saturating_sub(progress.consumer_offset)
                })
                .fold(body.total_diff, i64::saturating_add);
            stats.push(ConsumeStats {
                consume_tps: broker.stats.group_tps(&topic, &group),
                offset_table: table,
            });
        }
        body.consume_stats_list
            .push(BTreeMap::from([(group, stats)]));
    }
    Ok(success(request).with_body(body.to_wire()))
}

/// Code 202.
pub fn topic_stats(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: GetTopicStatsInfoRequest<'_> = request.header()?;
    let topic = header.topic;
    let settings = broker
        .topics
        .get(topic)
        .ok_or_else(|| topic_missing(topic))?;
    let reader = broker.store.reader();
    let mut body = TopicStatsTable::default();
    for queue_id in 0..settings.write_queue_nums.min(MAX_QUEUES) {
        let min_offset = reader.min_offset(topic, queue_id).get().max(0);
        let max_offset = reader.max_offset(topic, queue_id).get().max(0);
        let last = (max_offset > 0)
            .then(|| store_time(broker, topic, queue_id, max_offset - 1))
            .flatten();
        body.offset_table.insert(
            MessageQueue::new(topic, &broker.identity.name, queue_id),
            TopicOffset {
                last_update_timestamp: last.unwrap_or(0),
                max_offset,
                min_offset,
            },
        );
    }
    Ok(success(request).with_body(body.to_wire()))
}

/// Code 308: of each queue the least offset of all groups but those left out; where it is beyond the compared
/// group's own, the largest number stands instead.
pub fn correction_offsets(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: QueryCorrectionOffsetRequest<'_> = request.header()?;
    let topic = header.topic;
    let left_out: Vec<&str> = header
        .filter_groups
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .collect();
    let mut least: BTreeMap<i32, i64> = BTreeMap::new();
    for group in broker.offsets.groups_of(topic) {
        if left_out.contains(&group.as_str()) {
            continue;
        }
        for (queue_id, offset) in broker.offsets.queues(&group, topic) {
            let min = broker.store.reader().min_offset(topic, queue_id).get();
            if offset >= min {
                let known = least.entry(queue_id).or_insert(offset);
                *known = offset.min(*known);
            }
        }
    }
    let compared = broker.offsets.queues(header.compare_group, topic);
    for (queue_id, offset) in &mut least {
        if compared.get(queue_id).is_some_and(|own| *offset > *own) {
            *offset = i64::MAX;
        }
    }
    let body = QueryCorrectionOffsetBody {
        correction_offsets: least,
    };
    Ok(success(request).with_body(body.to_wire()))
}
