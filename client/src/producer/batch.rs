//! Batches: several messages stored by one request (client spec 3.9). Those made by time and size are collected in
//! `collect`.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use minimq_protocol::batch::{BATCH_RECORD_OVERHEAD, BatchRecord};
use minimq_protocol::code::request;
use minimq_protocol::message_id::MAX_ID_LEN;
use minimq_protocol::name;
use minimq_protocol::properties::{PropertiesBuf, name as property};

use super::Shared;
use super::send::Outgoing;
use crate::core::now_ms;
use crate::error::{Error, Result};
use crate::message::Message;

/// A guess at what unique key and other properties of this library add to a message, bytes.
const OWN_PROPERTIES: usize = 96;

/// When [`Producer::send_batched`](super::Producer::send_batched) sends what it has collected: at the first of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// Bytes of its records: bodies, properties and 22 bytes more a message. A message that has as many goes alone.
    pub max_bytes: usize,
    /// Messages.
    pub max_messages: usize,
    /// Age of the first message.
    pub linger: Duration,
}

impl Default for Batching {
    /// 32 KiB, 256 messages, 5 ms.
    fn default() -> Self {
        Self {
            max_bytes: 32 * 1024,
            max_messages: 256,
            linger: Duration::from_millis(5),
        }
    }
}

impl Batching {
    pub(super) fn check(&self, max_message_size: usize) -> Result<()> {
        if self.max_messages == 0 || self.max_bytes == 0 {
            return Err(Error::invalid("batching", "sizes must be at least 1"));
        }
        if self.max_bytes > max_message_size {
            return Err(Error::invalid(
                "batching",
                format!("max_bytes is more than the {max_message_size} bytes of a message"),
            ));
        }
        Ok(())
    }
}

/// Divides messages into batches of at most `max_bytes`, in order. A message that is larger is alone in its batch.
pub fn split_batch(messages: Vec<Message>, max_bytes: usize) -> Vec<Vec<Message>> {
    let mut batches: Vec<Vec<Message>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        let len = size(&message);
        match batches.last_mut() {
            Some(batch) if bytes + len <= max_bytes => batch.push(message),
            _ => {
                batches.push(vec![message]);
                bytes = 0;
            }
        }
        bytes += len;
    }
    batches
}

/// About the bytes a message takes in a batch.
fn size(message: &Message) -> usize {
    BATCH_RECORD_OVERHEAD + message.body.len() + message.properties_len() + OWN_PROPERTIES
}

impl Outgoing {
    /// Checks and encodes messages as one batch.
    pub(crate) fn batch(producer: &Shared, messages: Vec<Message>) -> Result<Self> {
        let Some(first) = messages.first() else {
            return Err(Error::invalid("batch", "it has no message"));
        };
        let (first_topic, waits) = (first.topic.clone(), first.waits());
        let topic = producer.core.wrap(&first_topic);
        let refuse = |reason: String| Error::Message {
            topic: topic.clone(),
            reason,
        };
        name::check_send_allowed(&topic)?;
        if topic.starts_with(name::RETRY_PREFIX) {
            return Err(refuse("retry topics take no batches".to_owned()));
        }
        let now = now_ms();
        let mut body = BytesMut::with_capacity(messages.iter().map(size).sum());
        let mut keys = String::with_capacity(messages.len() * (MAX_ID_LEN + 1));
        for mut message in messages {
            if message.topic != first_topic || message.waits() != waits {
                return Err(refuse(
                    "all messages of a batch must have the same topic and wait alike".to_owned(),
                ));
            }
            if message.is_delayed() {
                return Err(refuse("a batch takes no delayed messages".to_owned()));
            }
            message.topic.clone_from(&topic);
            message.check(producer.settings.max_message_size)?;
            producer.reserve_instance(&mut message);
            let key = producer.core.unique_keys.next(now);
            let properties = message.properties(&key)?;
            let record = BatchRecord {
                flag: message.flag,
                body: &message.body,
                properties: properties.as_str().as_bytes(),
            };
            record
                .encode(&mut body)
                .map_err(|error| refuse(error.to_string()))?;
            if !keys.is_empty() {
                keys.push(',');
            }
            keys.push_str(&key);
        }
        let most = producer.settings.max_message_size;
        if body.len() > most {
            return Err(refuse(format!(
                "the batch has {} bytes, at most {most} are allowed",
                body.len()
            )));
        }
        Ok(Self::records(topic, waits, body.freeze(), keys))
    }

    /// A batch whose records and unique keys, joined by `,`, are written already.
    pub(super) fn records(topic: String, waits: bool, body: Bytes, unique_keys: String) -> Self {
        let mut properties = PropertiesBuf::new();
        properties.push(property::WAIT, if waits { "true" } else { "false" });
        Self {
            code: request::SEND_BATCH_MESSAGE,
            sys_flag: 0,
            flag: 0,
            properties,
            body,
            unique_keys,
            batch: true,
            reconsume_times: 0,
            max_reconsume_times: None,
            topic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_keeps_order_and_size() {
        let messages: Vec<_> = (0..50u8).map(|n| Message::new("t", vec![n; 100])).collect();
        let batches = split_batch(messages.clone(), 1000);
        assert!(batches.len() > 5);
        assert!(
            batches
                .iter()
                .all(|batch| batch.iter().map(size).sum::<usize>() <= 1000)
        );
        assert_eq!(batches.concat(), messages);
        assert_eq!(
            split_batch(vec![Message::new("t", vec![0; 5000])], 1000).len(),
            1
        );
        assert!(split_batch(Vec::new(), 10).is_empty());
    }
}
