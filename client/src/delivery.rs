//! [`Delivery`]: a message as a consumer gets it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use minimq_protocol::body::MessageQueue;
use minimq_protocol::compression::CompressionError;
use minimq_protocol::message::MessageView;
use minimq_protocol::properties::{Properties, name};
use minimq_protocol::{name as names, sys_flag};

use crate::core::Core;

/// A received message. A cheap clone: it shares the memory it was received into.
#[derive(Clone)]
pub struct Delivery {
    view: MessageView,
    body: Bytes,
    topic: Arc<str>,
    queue: Arc<MessageQueue>,
    min_offset: i64,
    max_offset: i64,
    /// Deliveries that failed while the message stayed here.
    pub(crate) local_retries: i32,
}

impl Delivery {
    /// From a record. `queue`: where it was pulled from; none for a message that came otherwise.
    pub(crate) fn new(
        core: &Core,
        view: MessageView,
        queue: Option<&Arc<MessageQueue>>,
        min_offset: i64,
        max_offset: i64,
    ) -> Result<Self, CompressionError> {
        let body = if sys_flag::message::is_compressed(view.sys_flag()) {
            Bytes::from(view.plain_body(core.settings.max_plain_body)?.into_owned())
        } else {
            view.body_bytes()
        };
        let retried = view
            .topic()
            .starts_with(names::RETRY_PREFIX)
            .then(|| view.properties().get(name::RETRY_TOPIC))
            .flatten();
        let topic = core.unwrap(retried.unwrap_or(view.topic())).into();
        let queue = match queue {
            Some(queue) => queue.clone(),
            None => Arc::new(MessageQueue::new(view.topic(), "", view.queue_id())),
        };
        Ok(Self {
            view,
            body,
            topic,
            queue,
            min_offset,
            max_offset,
            local_retries: 0,
        })
    }

    /// The topic it was sent to, also if this is a later delivery from the group's retry topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The body, decompressed.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The producer's unique id, or the broker's if there is none.
    pub fn id(&self) -> String {
        match self.view.unique_key() {
            Some(key) => key.to_owned(),
            None => self.view.message_id().to_string(),
        }
    }

    /// The broker's id of this copy.
    pub fn offset_id(&self) -> String {
        self.view.message_id().to_string()
    }

    /// The tag.
    pub fn tag(&self) -> Option<&str> {
        self.view.tags()
    }

    /// The index keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.view
            .keys()
            .unwrap_or_default()
            .split(' ')
            .filter(|key| !key.is_empty())
    }

    /// A property, reserved ones included.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.view.properties().get(name)
    }

    /// All properties.
    pub fn properties(&self) -> Properties<'_> {
        self.view.properties()
    }

    /// The queue it was pulled from; of a later delivery that of the retry topic.
    pub fn queue(&self) -> &MessageQueue {
        &self.queue
    }

    /// Position in the queue.
    pub fn queue_offset(&self) -> i64 {
        self.view.queue_offset()
    }

    /// Failed deliveries so far.
    pub fn attempts(&self) -> i32 {
        self.view
            .reconsume_times()
            .saturating_add(self.local_retries)
    }

    /// When the producer made it, ms since 1970.
    pub fn born_ms(&self) -> i64 {
        self.view.born_timestamp()
    }

    /// When the broker stored it, ms since 1970.
    pub fn stored_ms(&self) -> i64 {
        self.view.store_timestamp()
    }

    /// The producer's address.
    pub fn born_host(&self) -> SocketAddr {
        self.view.born_host()
    }

    /// The application's flag.
    pub fn flag(&self) -> i32 {
        self.view.flag()
    }

    /// First offset of the queue when it was pulled.
    pub fn queue_min_offset(&self) -> i64 {
        self.min_offset
    }

    /// One behind the last offset of the queue when it was pulled.
    pub fn queue_max_offset(&self) -> i64 {
        self.max_offset
    }

    /// The record as the broker stored it.
    pub fn record(&self) -> &MessageView {
        &self.view
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery")
            .field("topic", &self.topic)
            .field("id", &self.id())
            .field("queue", &self.queue.to_string())
            .field("queue_offset", &self.queue_offset())
            .field("attempts", &self.attempts())
            .field("body_len", &self.body.len())
            .finish_non_exhaustive()
    }
}
