//! One queue of one topic at one broker, and the locks on queues (wire spec 6.7).

use super::{BodyError, body};
use crate::json::{MapKey, Value, WriteKey, Writer, object_key, write_object_key};
use std::cmp::Ordering;
use std::fmt;

body! {
    /// One queue. Ordered as Java orders it: topic, broker name, queue id.
    #[derive(Eq, Hash)]
    pub struct MessageQueue: Fastjson {
        /// Name of the broker that holds the queue.
        broker_name: String = "brokerName";
        /// Number of the queue within the topic and broker, from 0.
        queue_id: i32 = "queueId";
        /// Topic.
        topic: String = "topic";
    }
}

impl MessageQueue {
    /// The queue `queue_id` of `topic` at `broker_name`.
    pub fn new(topic: impl Into<String>, broker_name: impl Into<String>, queue_id: i32) -> Self {
        MessageQueue {
            topic: topic.into(),
            broker_name: broker_name.into(),
            queue_id,
        }
    }
}

impl Ord for MessageQueue {
    fn cmp(&self, other: &Self) -> Ordering {
        self.topic
            .cmp(&other.topic)
            .then_with(|| self.broker_name.cmp(&other.broker_name))
            .then_with(|| self.queue_id.cmp(&other.queue_id))
    }
}

impl PartialOrd for MessageQueue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for MessageQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MessageQueue [topic={}, brokerName={}, queueId={}]",
            self.topic, self.broker_name, self.queue_id
        )
    }
}

impl WriteKey for MessageQueue {
    fn write_key(&self, writer: &mut Writer) {
        write_object_key(self, writer);
    }
}

impl MapKey for MessageQueue {
    fn from_key(key: &Value<'_>) -> Result<Option<Self>, BodyError> {
        object_key(key)
    }
}

body! {
    /// LOCK_BATCH_MQ (41): the queues a consumer wants for itself.
    #[derive(Eq)]
    pub struct LockBatchBody: Fastjson {
        /// Client id of the consumer.
        client_id: String = "clientId";
        /// Its group.
        consumer_group: String = "consumerGroup";
        /// The queues. C++ clients leave out an empty set.
        mq_set: Vec<MessageQueue> = "mqSet";
    }
}

/// UNLOCK_BATCH_MQ (42): the queues a consumer gives back. Same form as the lock request.
pub type UnlockBatchBody = LockBatchBody;

body! {
    /// Answer to LOCK_BATCH_MQ: the queues obtained; always written, `[]` if none.
    #[derive(Eq)]
    pub struct LockBatchResponseBody: Fastjson {
        /// The queues now locked by the asker.
        lock_ok_mq_set: Vec<MessageQueue> = "lockOKMQSet";
    }
}
