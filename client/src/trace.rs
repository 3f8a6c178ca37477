//! Message trace (client spec 3.15): hooks that write down what is sent and consumed, and a task that sends the records,
//! many in one message, to the trace topic. What does not fit into the queue is dropped: tracing never slows anything down.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use minimq_protocol::name;
use minimq_protocol::properties::{Properties, name as property};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::core::{Core, now_ms};
use crate::error::Result;
use crate::hooks::{
    ConsumeHook, Consuming, HandlerEnd, MessageKind, SendHook, Sending, Sent, TransactionEnd,
};
use crate::message::Message;
use crate::producer::{Producer, ProducerBuilder, TransactionState};

/// Records that wait to be sent.
const QUEUE: usize = 1024;
/// A message with records goes when it is so long or its first record so old.
const LENGTH: usize = 118_000;
/// The same for its keys, which a record's properties must hold.
const KEYS_LENGTH: usize = 24_000;
const AGE: Duration = Duration::from_millis(500);
const MAX_MESSAGE: usize = 128_000;
const TIMEOUT: Duration = Duration::from_secs(5);
/// A shutdown waits so long for the last records.
const LAST: Duration = Duration::from_millis(500);
/// Groups of the producers that send traces begin so.
pub(crate) const GROUP_PREFIX: &str = "_INNER_TRACE_PRODUCER-";
const FIELD: char = '\u{1}';
const RECORD: char = '\u{2}';

/// Which traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Produce,
    Consume,
}

/// Makes records of what it sees.
#[derive(Debug)]
pub(crate) struct Tracer {
    topic: String,
    namespace: String,
    items: mpsc::Sender<Item>,
    dropped: AtomicU64,
}

enum Item {
    Records { text: String, keys: Vec<String> },
    Flush(oneshot::Sender<()>),
}

impl Tracer {
    /// Begins to trace a group into `topic`; the default one if that is empty. Ends when the tracer is dropped.
    pub(crate) fn start(
        core: &Arc<Core>,
        group: &str,
        kind: Kind,
        topic: &str,
    ) -> Result<Arc<Self>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let topic = if topic.is_empty() {
            name::TRACE_TOPIC.to_owned()
        } else {
            topic.to_owned()
        };
        name::check_topic(&core.wrap(&topic))?;
        let (kind, count) = (
            match kind {
                Kind::Produce => "PRODUCE",
                Kind::Consume => "CONSUME",
            },
            COUNT.fetch_add(1, Ordering::Relaxed),
        );
        let plain = core.unwrap(group).replace('%', "-");
        let producer = ProducerBuilder::new(
            core.clone(),
            format!("{GROUP_PREFIX}{plain}-{kind}-{count}"),
        )
        .timeout(TIMEOUT)
        .max_message_size(MAX_MESSAGE)
        .make(None)?;
        let (items, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(send(producer, topic.clone(), waiting));
        Ok(Arc::new(Self {
            topic,
            namespace: core.settings.namespace.clone(),
            items,
            dropped: AtomicU64::new(0),
        }))
    }

    /// Waits a moment until what was recorded so far has been sent.
    pub(crate) async fn flush(&self) {
        let flushed = async {
            let (done, sent) = oneshot::channel();
            if self.items.send(Item::Flush(done)).await.is_ok() {
                let _ = sent.await;
            }
        };
        let _ = tokio::time::timeout(LAST, flushed).await;
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "traces were dropped: too many at a time");
        }
    }

    fn plain<'a>(&self, name: &'a str) -> std::borrow::Cow<'a, str> {
        name::without_namespace(name, &self.namespace)
    }

    fn put(&self, text: String, keys: Vec<String>) {
        if self.items.try_send(Item::Records { text, keys }).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One record: fields joined, missing ones written as `null`.
fn record(text: &mut String, fields: &[&dyn std::fmt::Display]) {
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            text.push(FIELD);
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{field}");
    }
    text.push(RECORD);
}

fn or_null(text: Option<&str>) -> &str {
    text.unwrap_or("null")
}

fn keys_of(ids: &str, properties: Properties<'_>) -> Vec<String> {
    let keys = properties.get(property::KEYS).unwrap_or_default();
    let all = ids.split(',').chain(keys.split(' '));
    all.filter(|key| !key.is_empty())
        .map(str::to_owned)
        .collect()
}

fn kind_number(kind: MessageKind) -> u8 {
    match kind {
        MessageKind::Normal => 0,
        MessageKind::Half => 1,
        MessageKind::Delayed => 3,
    }
}

impl SendHook for Tracer {
    fn after(&self, sending: &Sending<'_>, sent: &Sent<'_>) {
        let topic = self.plain(&sending.queue.topic);
        // Failed sends leave no trace, as those of stock clients.
        let Ok(receipt) = sent.result else { return };
        if !sent.traced || topic == self.topic {
            return;
        }
        let cost = sent.elapsed.as_millis();
        let begun = now_ms() - i64::try_from(cost).unwrap_or(0);
        let mut text = String::new();
        record(
            &mut text,
            &[
                &"Pub",
                &begun,
                &sent.region,
                &self.plain(sending.group),
                &topic,
                &sending.id,
                &or_null(sending.properties.get(property::TAGS)),
                &or_null(sending.properties.get(property::KEYS)),
                &sending.broker_addr,
                &sending.body_len,
                &cost,
                &kind_number(sending.kind),
                &receipt.offset_id,
                &true,
            ],
        );
        self.put(text, keys_of(sending.id, sending.properties));
    }

    fn transaction_ended(&self, end: &TransactionEnd<'_>) {
        let state = match end.state {
            TransactionState::Commit => "COMMIT_MESSAGE",
            TransactionState::Rollback => "ROLLBACK_MESSAGE",
            TransactionState::Unknown => "UNKNOW",
        };
        let region = end.properties.get(property::MSG_REGION);
        let mut text = String::new();
        record(
            &mut text,
            &[
                &"EndTransaction",
                &now_ms(),
                &region.unwrap_or("DefaultRegion"),
                &self.plain(end.group),
                &self.plain(end.topic),
                &end.id,
                &or_null(end.properties.get(property::TAGS)),
                &or_null(end.properties.get(property::KEYS)),
                &end.broker_addr,
                &2,
                &or_null(end.transaction_id),
                &state,
                &end.checked,
            ],
        );
        self.put(text, keys_of(end.id, end.properties));
    }
}

impl Tracer {
    /// One record for each message that may be traced.
    fn each(
        &self,
        consuming: &Consuming<'_>,
        mut write: impl FnMut(&mut String, &crate::Delivery, &str, &str),
    ) {
        let (mut text, mut keys) = (String::new(), Vec::new());
        for delivery in consuming.deliveries {
            if delivery.property(property::TRACE_ON) == Some("false")
                || delivery.topic() == self.topic
            {
                continue;
            }
            let id = delivery.id();
            let own = or_null(delivery.property(property::KEYS));
            write(&mut text, delivery, &id, own);
            keys.extend(keys_of(&id, delivery.properties()));
        }
        if !text.is_empty() {
            self.put(text, keys);
        }
    }
}

impl ConsumeHook for Tracer {
    fn before(&self, consuming: &Consuming<'_>) {
        let (now, group) = (now_ms(), self.plain(consuming.group));
        self.each(consuming, |text, delivery, id, keys| {
            let region = or_null(delivery.property(property::MSG_REGION));
            let retries = delivery.attempts();
            record(
                text,
                &[
                    &"SubBefore",
                    &now,
                    &region,
                    &group,
                    &consuming.id,
                    &id,
                    &retries,
                    &keys,
                ],
            );
        });
    }

    fn after(&self, consuming: &Consuming<'_>, end: HandlerEnd, elapsed: Duration) {
        let (now, group) = (now_ms(), self.plain(consuming.group));
        let count = u128::try_from(consuming.deliveries.len()).unwrap_or(1);
        let cost = elapsed.as_millis() / count.max(1);
        let (success, kind) = match end {
            HandlerEnd::Done => (true, 0),
            HandlerEnd::TimedOut => (false, 1),
            HandlerEnd::Panicked => (false, 2),
            HandlerEnd::Failed => (false, 4),
        };
        self.each(consuming, |text, _, id, keys| {
            record(
                text,
                &[
                    &"SubAfter",
                    &consuming.id,
                    &id,
                    &cost,
                    &success,
                    &keys,
                    &kind,
                    &now,
                    &group,
                ],
            );
        });
    }
}

/// Collects records and sends them, until all tracers are gone.
async fn send(producer: Producer, topic: String, mut items: mpsc::Receiver<Item>) {
    while let Some(first) = items.recv().await {
        let (mut text, mut keys, mut flushed) = (String::new(), BTreeSet::new(), None);
        let mut keys_length = 0;
        let end = Instant::now() + AGE;
        let mut next = Some(first);
        while let Some(item) = next {
            match item {
                Item::Records {
                    text: more,
                    keys: new,
                } => {
                    text.push_str(&more);
                    keys_length += new.iter().map(|key| key.len() + 1).sum::<usize>();
                    keys.extend(new);
                }
                Item::Flush(done) => {
                    flushed = Some(done);
                    break;
                }
            }
            if text.len() >= LENGTH || keys_length >= KEYS_LENGTH {
                break;
            }
            next = tokio::time::timeout_at(end, items.recv())
                .await
                .ok()
                .flatten();
        }
        if !text.is_empty() {
            let mut message = Message::new(&*topic, text);
            for key in &keys {
                message = message.key(key);
            }
            if let Err(error) = producer.send(message).await {
                tracing::debug!(%error, "traces were not stored");
            }
        }
        if let Some(done) = flushed {
            let _ = done.send(());
        }
    }
    producer.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_fields_joined_by_byte_one_and_ended_by_byte_two() {
        let mut text = String::new();
        record(&mut text, &[&"Pub", &7, &or_null(None), &true]);
        assert_eq!(text, "Pub\u{1}7\u{1}null\u{1}true\u{2}");
    }

    #[test]
    fn a_batch_is_found_by_each_of_its_ids() {
        let properties = Properties::new("KEYS\u{1}k1 k2\u{2}");
        assert_eq!(keys_of("A,B", properties), ["A", "B", "k1", "k2"]);
    }
}
