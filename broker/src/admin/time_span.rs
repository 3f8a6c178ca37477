//! Store times of a group's progress: code 303 (broker spec 13.2).

use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::body::{MessageQueue, QueryConsumeTimeSpanBody, QueueTimeSpan};
use minimq_protocol::header::QueryConsumeTimeSpanRequest;

use crate::broker::Broker;
use crate::request::{Handled, success};
use crate::topic::MAX_QUEUES;

use super::consumption::{store_time, topic_missing};

/// A time that is not known.
const UNKNOWN: i64 = -1;

/// Code 303.
pub fn time_span(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: QueryConsumeTimeSpanRequest<'_> = request.header()?;
    let (topic, group) = (header.topic, header.group);
    let settings = broker
        .topics
        .get(topic)
        .ok_or_else(|| topic_missing(topic))?;
    let spans =
        (0..settings.write_queue_nums.min(MAX_QUEUES)).map(|id| span_of(broker, topic, group, id));
    let body = QueryConsumeTimeSpanBody {
        consume_time_span_set: spans.collect(),
    };
    Ok(success(request).with_body(body.to_wire()))
}

fn span_of(broker: &Broker, topic: &str, group: &str, queue_id: i32) -> QueueTimeSpan {
    let reader = broker.store.reader();
    let (min, max) = (
        reader.min_offset(topic, queue_id).get(),
        reader.max_offset(topic, queue_id).get(),
    );
    let time = |offset| store_time(broker, topic, queue_id, offset).unwrap_or(UNKNOWN);
    let first = time(min);
    let last = time(max - 1);
    let stored = broker.offsets.get(group, topic, queue_id).unwrap_or(-1);
    let consumed = if stored > 0 { time(stored - 1) } else { first };
    let delay = match stored {
        0.. if stored < max => match time(stored) {
            UNKNOWN => UNKNOWN,
            at => broker.clock.now_ms() - at,
        },
        _ => 0,
    };
    QueueTimeSpan {
        consume_time_stamp: consumed,
        consume_time_stamp_str: Some(text(consumed)),
        delay_time: delay,
        max_time_stamp: last,
        max_time_stamp_str: Some(text(last)),
        message_queue: MessageQueue::new(topic, &broker.identity.name, queue_id),
        min_time_stamp: first,
        min_time_stamp_str: Some(text(first)),
    }
}

/// `yyyy-MM-dd#HH:mm:ss:SSS` in the machine's time zone.
fn text(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    let zoned = time.to_zoned(jiff::tz::TimeZone::system());
    format!(
        "{}:{:03}",
        zoned.strftime("%Y-%m-%d#%H:%M:%S"),
        ms.rem_euclid(1000)
    )
}
