//! Builder of a [`Producer`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dashmap::DashMap;
use minimq_protocol::compression::{CompressionType, DEFAULT_LEVEL, DEFAULT_THRESHOLD};
use minimq_protocol::name;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::batch::Batching;
use super::collect::Batcher;
use super::queue_choice::QueueChoice;
use super::transaction::{Checker, TransactionState};
use super::{Producer, Shared};
use crate::Delivery;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::hooks::SendHook;
use crate::trace::{Kind, Tracer};

/// Transaction checks at work at a time; the broker repeats those beyond.
const MAX_CHECKS: usize = 2000;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) retry_codes: Vec<i32>,
    pub(crate) retry_if_unconfirmed: bool,
    pub(crate) max_message_size: usize,
    pub(crate) compress_from: usize,
    pub(crate) compression: CompressionType,
    pub(crate) compression_level: i32,
    pub(crate) new_topic_queues: i32,
    pub(crate) max_in_flight: u32,
    pub(crate) batching: Option<Batching>,
}

/// Settings of a [`Producer`], and how to make it.
pub struct ProducerBuilder {
    core: Arc<Core>,
    group: String,
    settings: Settings,
    avoid_slow_brokers: bool,
    checker: Option<Checker>,
    hooks: Vec<Arc<dyn SendHook>>,
    trace: Option<String>,
}

impl ProducerBuilder {
    pub(crate) fn new(core: Arc<Core>, group: String) -> Self {
        use minimq_protocol::code::response::*;
        Self {
            core,
            group,
            settings: Settings {
                timeout: Duration::from_secs(3),
                attempt_timeout: None,
                retries: 2,
                retry_codes: vec![
                    SYSTEM_ERROR,
                    SYSTEM_BUSY,
                    SERVICE_NOT_AVAILABLE,
                    NO_PERMISSION,
                    TOPIC_NOT_EXIST,
                    NO_BUYER_ID,
                    NOT_IN_CURRENT_UNIT,
                    FLOW_CONTROL,
                ],
                retry_if_unconfirmed: false,
                max_message_size: 4 << 20,
                compress_from: DEFAULT_THRESHOLD,
                compression: CompressionType::Zlib,
                compression_level: DEFAULT_LEVEL,
                new_topic_queues: 4,
                max_in_flight: 4096,
                batching: None,
            },
            avoid_slow_brokers: false,
            checker: None,
            hooks: Vec::new(),
            trace: None,
        }
    }

    /// Time for a send with all its attempts: 3 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Time for one attempt; without it an attempt may take all that is left.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.settings.attempt_timeout = Some(timeout);
        self
    }

    /// Further attempts after one that may have reached a broker: 2. Attempts that certainly reached none are repeated
    /// until the time is over.
    pub fn retries(mut self, retries: u32) -> Self {
        self.settings.retries = retries;
        self
    }

    /// Result codes after which another attempt is made: 1, 2, 14, 16, 17, 204, 205, 215.
    pub fn retry_codes(mut self, codes: impl IntoIterator<Item = i32>) -> Self {
        self.settings.retry_codes = codes.into_iter().collect();
        self
    }

    /// Sends again when a message is stored but flush or replication was not confirmed: off. Makes duplicates.
    pub fn retry_if_unconfirmed(mut self, on: bool) -> Self {
        self.settings.retry_if_unconfirmed = on;
        self
    }

    /// Largest body, of a batch as well: 4 MiB.
    pub fn max_message_size(mut self, bytes: usize) -> Self {
        self.settings.max_message_size = bytes;
        self
    }

    /// Bodies from this size on are compressed: 4096 bytes. `usize::MAX` turns compression off.
    pub fn compress_from(mut self, bytes: usize) -> Self {
        self.settings.compress_from = bytes;
        self
    }

    /// How bodies are compressed: zlib, level 5. Consumers before 4.9.4 read zlib only.
    pub fn compression(mut self, kind: CompressionType, level: i32) -> Self {
        self.settings.compression = kind;
        self.settings.compression_level = level;
        self
    }

    /// Queues a broker gives a topic that is created by sending to it: 4.
    pub fn new_topic_queues(mut self, queues: i32) -> Self {
        self.settings.new_topic_queues = queues;
        self
    }

    /// Sends that may wait for their answers at a time: 4096. Further ones wait. A batch is one send; as many messages, or two
    /// batches of them, may wait for their batch.
    pub fn max_in_flight(mut self, sends: u32) -> Self {
        self.settings.max_in_flight = sends;
        self
    }

    /// Makes [`Producer::send_batched`] collect messages.
    pub fn batching(mut self, batching: Batching) -> Self {
        self.settings.batching = Some(batching);
        self
    }

    /// Avoids brokers that were slow or failed for up to 10 minutes: off.
    pub fn avoid_slow_brokers(mut self, on: bool) -> Self {
        self.avoid_slow_brokers = on;
        self
    }

    /// Who says what became of a transaction whose end the broker does not know. It may be asked about transactions of
    /// any member of the group, so it has to answer from shared state.
    pub fn transaction_checker<F, Fut>(mut self, checker: F) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TransactionState> + Send + 'static,
    {
        self.checker = Some(Arc::new(move |delivery| Box::pin(checker(delivery))));
        self
    }

    /// Adds a hook; they run in the order they were added.
    pub fn hook(mut self, hook: impl SendHook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Writes down what is sent and where it is stored, into the topic `RMQ_SYS_TRACE_TOPIC`: off.
    pub fn trace(mut self, on: bool) -> Self {
        self.trace = on.then(String::new);
        self
    }

    /// The same into another topic.
    pub fn trace_to(mut self, topic: impl Into<String>) -> Self {
        self.trace = Some(topic.into());
        self
    }

    /// Makes the producer. No broker is contacted before the first send: see [`Producer::warm_up`].
    pub async fn build(mut self) -> Result<Producer> {
        let group = self.core.wrap(&self.group);
        let tracer = match self.trace.take() {
            Some(topic) => Some(Tracer::start(&self.core, &group, Kind::Produce, &topic)?),
            None => None,
        };
        self.make(tracer)
    }

    pub(crate) fn make(self, tracer: Option<Arc<Tracer>>) -> Result<Producer> {
        let group = self.core.wrap(&self.group);
        name::check_group(&group)?;
        if group == name::DEFAULT_PRODUCER_GROUP {
            return Err(Error::invalid(
                "producer group",
                format!("{group} is reserved"),
            ));
        }
        if self.settings.max_in_flight == 0 {
            return Err(Error::invalid("max_in_flight", "must be at least 1"));
        }
        if let Some(batching) = &self.settings.batching {
            batching.check(self.settings.max_message_size)?;
        }
        let mut hooks = self.hooks;
        hooks.extend(tracer.clone().map(|one| one as Arc<dyn SendHook>));
        Producer::start(Arc::new(Shared {
            hooks,
            tracer,
            choice: QueueChoice::new(self.avoid_slow_brokers),
            in_flight: Arc::new(Semaphore::new(self.settings.max_in_flight as usize)),
            topics: DashMap::new(),
            paths: DashMap::new(),
            checks: Arc::new(Semaphore::new(MAX_CHECKS)),
            left: AtomicBool::new(false),
            ending: CancellationToken::new(),
            batcher: self
                .settings
                .batching
                .map(|batching| Batcher::new(batching, self.settings.max_in_flight as usize)),
            batching: TaskTracker::new(),
            core: self.core,
            group,
            settings: self.settings,
            checker: self.checker,
        }))
    }
}

impl std::fmt::Debug for ProducerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProducerBuilder")
            .field("group", &self.group)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
