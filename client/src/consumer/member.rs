//! The consumer as a member of its group: joining, leaving when its handle goes, and what brokers ask of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use minimq_protocol::body::{
    ConsumeMessageDirectlyResult, ConsumeType, ConsumerData, ConsumerRunningInfo, MessageQueue,
};
use minimq_protocol::message::MessageView;
use minimq_protocol::version;

use super::engine::{Engine, Mode};
use super::{concurrent, ordered};
use crate::Delivery;
use crate::core::ConsumerMember;
use crate::error::{Error, Result};
use crate::filter::Upload;

/// The handle of a consumer: when it goes without a shutdown, even outside of the runtime, the group is left all the same.
pub(crate) struct Handle(pub(crate) Arc<Engine>);

impl Handle {
    /// Enters the engine as its group's member in this client: from now on heartbeats name the group, and brokers find it.
    pub(super) fn join(engine: Arc<Engine>) -> Result<Self> {
        match engine.core.consumers.entry(engine.group.clone()) {
            dashmap::Entry::Occupied(_) => {
                return Err(Error::GroupTaken {
                    kind: "consumer",
                    group: engine.group.clone(),
                });
            }
            dashmap::Entry::Vacant(entry) => {
                entry.insert(Arc::new(Member(engine.clone())));
            }
        }
        Ok(Self(engine))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let engine = self.0.clone();
        if engine.leave() {
            let runtime = engine.core.runtime.clone();
            runtime.spawn(async move { engine.wind_down().await });
        }
    }
}

impl Engine {
    /// Takes it out of this client; the group is free for another. False if that was done before.
    pub(super) fn leave(&self) -> bool {
        let first = !self.left.swap(true, Ordering::AcqRel);
        if first {
            self.core.consumers.remove(&self.group);
            self.stopping.cancel();
        }
        first
    }

    fn consume_type(&self) -> ConsumeType {
        match self.mode {
            Mode::Polled => ConsumeType::ConsumeActively,
            _ => ConsumeType::ConsumePassively,
        }
    }
}

/// The engine as the core sees it.
struct Member(Arc<Engine>);

impl ConsumerMember for Member {
    fn heartbeat(&self) -> ConsumerData {
        let engine = &self.0;
        ConsumerData {
            consume_from_where: Some(engine.settings.from.wire()),
            consume_type: Some(engine.consume_type()),
            group_name: engine.group.clone(),
            message_model: Some(engine.settings.model()),
            subscription_data_set: engine
                .subscriptions
                .read()
                .values()
                .map(|one| one.data())
                .collect(),
            unit_mode: false,
        }
    }

    fn topics(&self) -> Vec<String> {
        self.0.all_topics()
    }

    fn wake(&self) {
        self.0.want_rebalance();
    }

    fn uploads(&self) -> Vec<Upload> {
        let subscriptions = self.0.subscriptions.read();
        subscriptions
            .values()
            .filter_map(|one| one.upload(&self.0.group))
            .collect()
    }

    fn reset_offsets(
        &self,
        topic: String,
        offsets: BTreeMap<MessageQueue, i64>,
    ) -> BoxFuture<'static, ()> {
        let engine = self.0.clone();
        async move {
            tracing::info!(group = engine.group, %topic, "a broker moves the offsets of {} queues", offsets.len());
            let own: Vec<_> = {
                let queues = engine.queues.lock();
                offsets.into_iter().filter(|(queue, _)| queue.topic == topic && queues.contains_key(queue)).collect()
            };
            join_all(own.into_iter().map(|(queue, offset)| engine.restart_at(queue, offset))).await;
        }
        .boxed()
    }

    fn offsets(&self, topic: &str) -> BTreeMap<MessageQueue, i64> {
        let queues = self.0.queues.lock();
        let of_topic = queues.iter().filter(|(queue, _)| queue.topic == topic);
        of_topic
            .map(|(queue, state)| (queue.clone(), state.committable()))
            .collect()
    }

    fn running_info(&self) -> ConsumerRunningInfo {
        let engine = &self.0;
        let ordered = matches!(engine.mode, Mode::Ordered(_));
        let name_servers: String = engine
            .core
            .name_servers
            .list()
            .iter()
            .map(|addr| format!("{addr};"))
            .collect();
        let properties = [
            (ConsumerRunningInfo::NAMESERVER_ADDR, name_servers),
            (
                ConsumerRunningInfo::CONSUME_TYPE,
                engine.consume_type().as_str().to_owned(),
            ),
            (ConsumerRunningInfo::CONSUME_ORDERLY, ordered.to_string()),
            (
                ConsumerRunningInfo::THREADPOOL_CORE_SIZE,
                engine.settings.concurrency.to_string(),
            ),
            (
                ConsumerRunningInfo::CONSUMER_START_TIMESTAMP,
                engine.started_ms.to_string(),
            ),
            (
                ConsumerRunningInfo::CLIENT_VERSION,
                version::name(version::CURRENT).into_owned(),
            ),
            ("consumerGroup", engine.group.clone()),
            ("messageModel", engine.settings.model().as_str().to_owned()),
            ("pullBatchSize", engine.settings.pull_batch.to_string()),
            (
                "allocateMessageQueueStrategy",
                engine.settings.allocation.name(),
            ),
        ];
        ConsumerRunningInfo {
            jstack: None,
            mq_table: engine
                .queues
                .lock()
                .iter()
                .map(|(queue, state)| (queue.clone(), state.info()))
                .collect(),
            properties: properties
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            status_table: engine.stats.all(&engine.all_topics()),
            subscription_set: engine
                .subscriptions
                .read()
                .values()
                .map(|one| one.data())
                .collect(),
        }
    }

    fn consume_directly(
        &self,
        message: MessageView,
        broker: Option<String>,
    ) -> BoxFuture<'static, Option<ConsumeMessageDirectlyResult>> {
        let engine = self.0.clone();
        async move {
            let queue = Arc::new(MessageQueue::new(
                message.topic(),
                broker.unwrap_or_default(),
                message.queue_id(),
            ));
            let delivery = match Delivery::new(&engine.core, message, Some(&queue), 0, 0) {
                Ok(delivery) => delivery,
                Err(error) => {
                    tracing::warn!(%error, "a message to be consumed directly cannot be read");
                    return None;
                }
            };
            match &engine.mode {
                Mode::Concurrent(handler) => Some(concurrent::once(handler, delivery).await),
                Mode::Ordered(handler) => Some(ordered::once(handler, delivery).await),
                Mode::Polled => None,
            }
        }
        .boxed()
    }

    fn stop(&self) -> BoxFuture<'static, ()> {
        let engine = self.0.clone();
        async move { engine.stop().await }.boxed()
    }
}
