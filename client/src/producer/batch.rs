//! Batches: several messages stored by one request (client spec 3.9), made by the application or by time and size.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use minimq_protocol::batch::{BATCH_RECORD_OVERHEAD, BatchRecord};
use minimq_protocol::code::request;
use minimq_protocol::message_id::MAX_ID_LEN;
use minimq_protocol::name;
use minimq_protocol::properties::{MAX_PROPERTIES_LEN, PropertiesBuf, name as property};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::send::{Outgoing, Target};
use super::{SendReceipt, Shared};
use crate::core::now_ms;
use crate::error::{Error, Result};
use crate::message::Message;

/// A guess at what unique key and other properties of this library add to a message, bytes.
const OWN_PROPERTIES: usize = 96;

/// When [`Producer::send_batched`](super::Producer::send_batched) sends what it has collected: at the first of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// Bytes of bodies and properties together.
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
            if !producer.core.settings.namespace.is_empty() {
                message.reserve(
                    property::INSTANCE_ID,
                    producer.core.settings.namespace.clone(),
                );
            }
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
        let mut properties = PropertiesBuf::new();
        properties.push(property::WAIT, if waits { "true" } else { "false" });
        Ok(Self {
            code: request::SEND_BATCH_MESSAGE,
            sys_flag: 0,
            flag: 0,
            properties,
            body: body.freeze(),
            unique_keys: keys,
            batch: true,
            reconsume_times: 0,
            max_reconsume_times: None,
            topic,
        })
    }
}

/// A message that waits for its batch, and who waits for its receipt.
pub(super) struct Queued {
    message: Message,
    receipt: oneshot::Sender<Result<SendReceipt>>,
}

/// Hands a message to the batch task and waits for its receipt.
pub(super) async fn send(
    shared: &Shared,
    batches: &mpsc::Sender<Queued>,
    message: Message,
) -> Result<SendReceipt> {
    // What is wrong with one message must not fail the others of its batch.
    message.check(shared.settings.max_message_size)?;
    if message.properties_len() > MAX_PROPERTIES_LEN - OWN_PROPERTIES {
        // Perhaps too long: the text itself says.
        message.properties("")?;
    }
    name::check_send_allowed(&shared.core.wrap(&message.topic))?;
    let (receipt, answer) = oneshot::channel();
    batches
        .send(Queued { message, receipt })
        .await
        .map_err(|_| Error::Closed)?;
    answer.await.map_err(|_| Error::Closed)?
}

/// Starts the task that makes batches; it ends when the sender is dropped or the producer shut down, after sending what it
/// holds.
pub(super) fn start(shared: Arc<Shared>, batching: Batching) -> mpsc::Sender<Queued> {
    let (sender, receiver) = mpsc::channel(shared.settings.max_in_flight as usize);
    let collecting = collect(shared.clone(), batching, receiver);
    shared.batching.spawn(collecting);
    sender
}

struct Batch {
    messages: Vec<Message>,
    receipts: Vec<oneshot::Sender<Result<SendReceipt>>>,
    bytes: usize,
    due: Instant,
}

async fn collect(shared: Arc<Shared>, batching: Batching, mut receiver: mpsc::Receiver<Queued>) {
    let mut open: HashMap<(String, bool), Batch> = HashMap::new();
    let mut ending = false;
    loop {
        let due = open.values().map(|batch| batch.due).min();
        let waiting = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let queued = tokio::select! {
            biased;
            queued = receiver.recv() => queued.map(Some),
            () = waiting => Some(None),
            () = shared.ending.cancelled(), if !ending => {
                // What is in the channel by now still comes.
                receiver.close();
                ending = true;
                Some(None)
            }
        };
        match queued {
            Some(Some(queued)) => {
                let len = size(&queued.message);
                let key = (queued.message.topic.clone(), queued.message.waits());
                if open
                    .get(&key)
                    .is_some_and(|batch| batch.bytes + len > batching.max_bytes)
                    && let Some(full) = open.remove(&key)
                {
                    send_batch(&shared, full);
                }
                let batch = open.entry(key.clone()).or_insert_with(|| Batch {
                    messages: Vec::new(),
                    receipts: Vec::new(),
                    bytes: 0,
                    due: Instant::now() + batching.linger,
                });
                batch.messages.push(queued.message);
                batch.receipts.push(queued.receipt);
                batch.bytes += len;
                let full = batch.messages.len() >= batching.max_messages
                    || batch.bytes >= batching.max_bytes;
                if full && let Some(full) = open.remove(&key) {
                    send_batch(&shared, full);
                }
            }
            Some(None) => {}
            None => break,
        }
        let now = Instant::now();
        for (_, batch) in open.extract_if(|_, batch| batch.due <= now) {
            send_batch(&shared, batch);
        }
    }
    for (_, batch) in open {
        send_batch(&shared, batch);
    }
}

fn send_batch(shared: &Arc<Shared>, batch: Batch) {
    let tasks = shared.batching.clone();
    let shared = shared.clone();
    tasks.spawn(async move {
        let Batch {
            mut messages,
            receipts,
            ..
        } = batch;
        let result = match messages.pop() {
            Some(only) if messages.is_empty() => match Outgoing::single(&shared, only) {
                Ok(outgoing) => shared.send(&outgoing, Target::Any).await,
                Err(error) => Err(error),
            },
            Some(last) => {
                messages.push(last);
                match Outgoing::batch(&shared, messages) {
                    Ok(outgoing) => shared.send(&outgoing, Target::Any).await,
                    Err(error) => Err(error),
                }
            }
            None => return,
        };
        share_out(result, receipts);
    });
}

/// Gives each message of a batch its part of the receipt.
fn share_out(result: Result<SendReceipt>, receipts: Vec<oneshot::Sender<Result<SendReceipt>>>) {
    match result {
        Ok(all) => {
            let mut ids = all.id.split(',');
            let mut offset_ids = all.offset_id.split(',');
            for (offset, receipt) in (all.queue_offset..).zip(receipts) {
                // Whoever gave up waiting does not want it.
                let _ = receipt.send(Ok(SendReceipt {
                    status: all.status,
                    id: ids.next().unwrap_or_default().to_owned(),
                    offset_id: offset_ids.next().unwrap_or_default().to_owned(),
                    queue: all.queue.clone(),
                    queue_offset: offset,
                    transaction_id: all.transaction_id.clone(),
                }));
            }
        }
        Err(error) => {
            let mut receipts = receipts.into_iter();
            let first = receipts.next();
            for receipt in receipts {
                let _ = receipt.send(Err(copy(&error)));
            }
            if let Some(receipt) = first {
                let _ = receipt.send(Err(error));
            }
        }
    }
}

/// The same failure for another message of the batch.
fn copy(error: &Error) -> Error {
    match error {
        Error::Call(error) => Error::Call(error.clone()),
        Error::Refused { addr, code, remark } => Error::Refused {
            addr: addr.clone(),
            code: *code,
            remark: remark.clone(),
        },
        Error::TopicNotFound { topic, remark } => Error::TopicNotFound {
            topic: topic.clone(),
            remark: remark.clone(),
        },
        Error::SendFailed {
            topic,
            attempts,
            elapsed,
            brokers,
            source,
        } => Error::SendFailed {
            topic: topic.clone(),
            attempts: *attempts,
            elapsed: *elapsed,
            brokers: brokers.clone(),
            source: Box::new(copy(source)),
        },
        Error::Closed => Error::Closed,
        other => Error::Message {
            topic: String::new(),
            reason: other.to_string(),
        },
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
