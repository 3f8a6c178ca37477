//! Moving the offsets of running consumers: bodies of 220, 221, 222, 223 (wire spec 6.9, 6.10).

use super::{BodyError, Flavour, MessageQueue, body};
use crate::json::{FromValue, ToJson, Value, Writer, encode};
use std::collections::BTreeMap;

/// New offsets: request 220 and answer 222.
///
/// Written with queue objects as keys; C++ clients need [`ResetOffsetBody::to_json_for_cpp`]. Both are read, and so is
/// the `[[queue, offset], …]` form that the Go client knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResetOffsetBody {
    /// Queue → offset.
    pub offset_table: BTreeMap<MessageQueue, i64>,
}

super::body_methods!(ResetOffsetBody, Fastjson);

body! {
    /// One entry of the form for C++ clients.
    #[derive(Eq)]
    pub struct MessageQueueForC: Fastjson {
        /// Name of the broker.
        broker_name: String = "brokerName";
        /// The offset.
        offset: i64 = "offset";
        /// Number of the queue.
        queue_id: i32 = "queueId";
        /// Topic.
        topic: String = "topic";
    }
}

body! {
    /// Request 220 in the form for C++ clients.
    #[derive(Eq)]
    pub struct ResetOffsetBodyForC: Fastjson {
        /// One entry a queue.
        offset_table: Vec<MessageQueueForC> = "offsetTable";
    }
}

impl ResetOffsetBody {
    /// The array form, the only one C++ clients read.
    pub fn to_json_for_cpp(&self) -> Vec<u8> {
        let entry = |(queue, offset): (&MessageQueue, &i64)| MessageQueueForC {
            broker_name: queue.broker_name.clone(),
            offset: *offset,
            queue_id: queue.queue_id,
            topic: queue.topic.clone(),
        };
        let body = ResetOffsetBodyForC {
            offset_table: self.offset_table.iter().map(entry).collect(),
        };
        encode(&body, Flavour::Fastjson)
    }
}

impl FromValue for ResetOffsetBody {
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError> {
        if value.is_absent() {
            return Ok(None);
        }
        let mut offset_table = BTreeMap::new();
        match value.members()?.get(&["offsetTable"]) {
            None => {}
            Some(Value::Array(entries)) => {
                for entry in entries {
                    let read = array_entry(entry).map_err(|error| error.inside("offsetTable"))?;
                    offset_table.extend(read);
                }
            }
            Some(table) => {
                let read =
                    BTreeMap::from_value(table).map_err(|error| error.inside("offsetTable"))?;
                offset_table = read.unwrap_or_default();
            }
        }
        Ok(Some(ResetOffsetBody { offset_table }))
    }
}

/// `{queue members, "offset": 5}` or `[queue, 5]`.
fn array_entry(entry: &Value<'_>) -> Result<Option<(MessageQueue, i64)>, BodyError> {
    if let Value::Array(pair) = entry {
        let [queue, offset] = pair.as_slice() else {
            return Err(entry.mismatch("a queue and an offset"));
        };
        return Ok(MessageQueue::from_value(queue)?.zip(i64::from_value(offset)?));
    }
    let Some(entry) = MessageQueueForC::from_value(entry)? else {
        return Ok(None);
    };
    Ok(Some((
        MessageQueue::new(entry.topic, entry.broker_name, entry.queue_id),
        entry.offset,
    )))
}

impl ToJson for ResetOffsetBody {
    fn write(&self, writer: &mut Writer) {
        let mut object = writer.object();
        object.field("offsetTable", &self.offset_table);
        object.end();
    }
}

body! {
    /// Answers 221 (client to broker) and 223 (broker to tool). Java writes both tables, the unused one as `{}`.
    #[derive(Eq)]
    pub struct GetConsumerStatusBody: Fastjson, large {
        /// Client id → queue → offset, in answer 223.
        consumer_table: BTreeMap<String, BTreeMap<MessageQueue, i64>> = "consumerTable";
        /// Queue → offset, in answer 221.
        message_queue_table: BTreeMap<MessageQueue, i64> = "messageQueueTable";
    }
}
