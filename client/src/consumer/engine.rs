//! The engine of a consumer: what its tasks share, start and stop, and what brokers ask of it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use minimq_protocol::body::{
    CheckClientRequestBody, ConsumeMessageDirectlyResult, ConsumeType, ConsumerData,
    ConsumerRunningInfo, MessageQueue,
};
use minimq_protocol::code::request;
use minimq_protocol::message::MessageView;
use minimq_protocol::{Command, name, version};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::offset::{FileOffsets, OffsetStore};
use super::outcome::{OrderedOutcome, Outcomes};
use super::pull::FilterServers;
use super::queue::AssignedQueue;
use super::settings::Settings;
use super::stats::Stats;
use super::{concurrent, ordered};
use crate::Delivery;
use crate::core::{ConsumerMember, Core, now_ms};
use crate::error::{Error, Result};
use crate::filter::{Filter, Subscription, Upload};

/// Handler of concurrent consumption.
pub(crate) type Handler = Arc<dyn Fn(Vec<Delivery>) -> BoxFuture<'static, Outcomes> + Send + Sync>;
/// Handler of ordered consumption.
pub(crate) type OrderedHandler =
    Arc<dyn Fn(Delivery) -> BoxFuture<'static, OrderedOutcome> + Send + Sync>;

/// How messages leave the engine.
#[derive(Clone)]
pub(crate) enum Mode {
    Concurrent(Handler),
    Ordered(OrderedHandler),
    Polled,
}

/// What the tasks of a consumer share.
pub(crate) struct Engine {
    pub(crate) core: Arc<Core>,
    pub(crate) group: String,
    pub(crate) settings: Settings,
    pub(crate) mode: Mode,
    pub(crate) offsets: OffsetStore,
    pub(crate) subscriptions: RwLock<BTreeMap<String, Arc<Subscription>>>,
    /// Queues given by the application instead of by sharing out.
    pub(crate) fixed: Mutex<Option<Vec<MessageQueue>>>,
    pub(crate) queues: Mutex<BTreeMap<MessageQueue, Arc<AssignedQueue>>>,
    /// Queues that are being given up: they are not taken again before that is done.
    pub(crate) releasing: Mutex<HashSet<MessageQueue>>,
    /// Offsets to begin at next, instead of the stored ones.
    pub(crate) restarts: Mutex<BTreeMap<MessageQueue, i64>>,
    pub(crate) rebalance_lock: tokio::sync::Mutex<()>,
    wanted: Notify,
    pub(crate) permits: Arc<Semaphore>,
    /// Messages for a poller have come.
    pub(crate) arrived: Notify,
    suspended: AtomicBool,
    pub(crate) resumed: Notify,
    pub(crate) filter_servers: FilterServers,
    pub(crate) stats: Stats,
    started_ms: i64,
    pub(crate) stopping: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// What an engine begins with.
pub(crate) struct Start {
    pub(crate) core: Arc<Core>,
    pub(crate) group: String,
    pub(crate) settings: Settings,
    pub(crate) mode: Mode,
    pub(crate) subscriptions: Vec<(String, Filter)>,
    pub(crate) fixed: Option<Vec<MessageQueue>>,
}

impl Engine {
    /// Checks, registers, learns routes, introduces itself to the brokers and begins. All or nothing.
    pub(crate) async fn start(start: Start) -> Result<Arc<Self>> {
        let Start {
            core,
            group,
            settings,
            mode,
            subscriptions,
            fixed,
        } = start;
        core.check_open()?;
        let group = core.wrap(&group);
        name::check_group(&group)?;
        if group == name::DEFAULT_CONSUMER_GROUP {
            return Err(Error::invalid(
                "consumer group",
                format!("{group} is reserved"),
            ));
        }
        settings.check()?;
        let mut table = BTreeMap::new();
        for (topic, filter) in subscriptions {
            let topic = core.wrap(&topic);
            name::check_topic(&topic)?;
            table.insert(topic.clone(), Arc::new(Subscription::new(topic, filter)?));
        }
        if !settings.broadcast && !matches!(mode, Mode::Polled) {
            let retry = name::retry_topic(&group);
            table.insert(
                retry.clone(),
                Arc::new(Subscription::new(retry, Filter::all())?),
            );
        }
        let offsets = if settings.broadcast {
            OffsetStore::File(FileOffsets::open(&core.settings.offset_dir, &group).await?)
        } else {
            OffsetStore::Broker
        };
        let engine = Arc::new(Self {
            permits: Arc::new(Semaphore::new(settings.concurrency)),
            core,
            group,
            settings,
            mode,
            offsets,
            subscriptions: RwLock::new(table),
            fixed: Mutex::new(fixed),
            queues: Mutex::default(),
            releasing: Mutex::default(),
            restarts: Mutex::default(),
            rebalance_lock: tokio::sync::Mutex::default(),
            wanted: Notify::new(),
            arrived: Notify::new(),
            suspended: AtomicBool::new(false),
            resumed: Notify::new(),
            filter_servers: FilterServers::default(),
            stats: Stats::default(),
            started_ms: now_ms(),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
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
        // Whoever drops this future half-way must not leave a group behind.
        let undo = Undo(Some(engine.clone()));
        engine.introduce().await?;
        undo.keep();
        engine.spawn_tasks();
        Ok(engine)
    }

    async fn introduce(&self) -> Result<()> {
        let topics = self.all_topics();
        let fetched = join_all(
            topics
                .iter()
                .map(|topic| async move { (topic, self.core.route(topic).await) }),
        )
        .await;
        for (topic, route) in fetched {
            match route {
                Ok(_) => {}
                Err(Error::TopicNotFound { .. }) if topic.starts_with(name::RETRY_PREFIX) => {}
                Err(Error::TopicNotFound { .. }) => {
                    tracing::warn!(%topic, group = self.group, "the topic does not exist yet; it is consumed once it does");
                }
                Err(error) => return Err(error),
            }
        }
        let subscriptions: Vec<_> = self.subscriptions.read().values().cloned().collect();
        for subscription in subscriptions.iter().filter(|one| one.is_sql()) {
            self.check_expression(subscription).await?;
        }
        self.core.heartbeat().await;
        Ok(())
    }

    /// Asks a broker whether it can evaluate an SQL expression.
    pub(crate) async fn check_expression(&self, subscription: &Subscription) -> Result<()> {
        let Some(route) = self.core.routes.get(&subscription.topic) else {
            return Ok(());
        };
        let Some(addr) = route.any_broker() else {
            return Ok(());
        };
        let body = CheckClientRequestBody {
            client_id: self.core.client_id.clone(),
            group: self.group.clone(),
            subscription_data: Some(subscription.data()),
        };
        let request = Command::request(request::CHECK_CLIENT_CONFIG).with_body(body.to_wire());
        match self
            .core
            .call(addr, request, self.core.settings.request_timeout)
            .await
        {
            Err(refused @ Error::Refused { .. }) => Err(refused),
            // A broker that is away now says no when it is pulled from.
            _ => Ok(()),
        }
    }

    fn spawn_tasks(self: &Arc<Self>) {
        self.spawn(Self::keep_balanced(self.clone()));
        self.spawn(Self::keep_committed(self.clone()));
        if matches!(self.mode, Mode::Ordered(_)) && !self.settings.broadcast {
            self.spawn(Self::keep_locked(self.clone()));
        }
    }

    /// A task that ends when the engine stops.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            stopping.run_until_cancelled(task).await;
        });
    }

    /// Topics subscribed to, or of the queues assigned.
    pub(crate) fn all_topics(&self) -> Vec<String> {
        let mut topics: Vec<String> = self.subscriptions.read().keys().cloned().collect();
        if let Some(fixed) = &*self.fixed.lock() {
            topics.extend(fixed.iter().map(|queue| queue.topic.clone()));
        }
        topics.sort_unstable();
        topics.dedup();
        topics
    }

    /// Has the queues shared out again soon.
    pub(crate) fn want_rebalance(&self) {
        self.wanted.notify_one();
    }

    async fn keep_balanced(self: Arc<Self>) {
        loop {
            let complete = self.rebalance().await;
            // A topic without route or a broker that did not answer is tried again sooner.
            let every = if complete {
                self.settings.rebalance_every
            } else {
                self.settings.rebalance_every.min(Duration::from_secs(1))
            };
            let _ = tokio::time::timeout(every, self.wanted.notified()).await;
        }
    }

    async fn keep_committed(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.settings.commit_every).await;
            self.commit_all(false).await;
        }
    }

    /// Commits what has changed. `answered`: waits for the brokers to confirm it.
    pub(crate) async fn commit_all(&self, answered: bool) {
        let queues: Vec<_> = self.queues.lock().values().cloned().collect();
        join_all(queues.iter().map(|queue| async move {
            if let Err(error) = self.commit(queue, answered).await {
                tracing::debug!(queue = %queue.queue, %error, "the offset was not committed; it is tried again");
            }
        }))
        .await;
        if let Err(error) = self.offsets.flush().await {
            tracing::warn!(%error, "offsets are not written");
        }
    }

    pub(crate) async fn commit(&self, queue: &AssignedQueue, answered: bool) -> Result<()> {
        let offset = queue.committable();
        if !queue.must_commit(offset) {
            return Ok(());
        }
        self.offsets
            .commit(&self.core, &self.group, &queue.queue, offset, answered)
            .await?;
        queue.committed(offset);
        Ok(())
    }

    /// The subscription a pulled topic belongs to; for assigned queues without one everything is wanted.
    pub(crate) fn subscription(&self, topic: &str) -> Option<Arc<Subscription>> {
        self.subscriptions.read().get(topic).cloned()
    }

    pub(crate) fn suspend(&self) {
        self.suspended.store(true, Ordering::Release);
    }

    pub(crate) fn resume(&self) {
        self.suspended.store(false, Ordering::Release);
        self.resumed.notify_waiters();
        self.want_rebalance();
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }

    /// Stops pulling, lets handlers finish for a while, commits, unlocks, leaves the group.
    pub(crate) async fn stop(self: &Arc<Self>) {
        if self.core.consumers.remove(&self.group).is_none() {
            return;
        }
        self.stopping.cancel();
        let queues: Vec<_> = {
            let mut queues = self.queues.lock();
            std::mem::take(&mut *queues).into_values().collect()
        };
        for queue in &queues {
            queue.dropped.cancel();
        }
        let ended = join_all(queues.iter().map(|queue| queue.ended()));
        if tokio::time::timeout(self.settings.drain, ended)
            .await
            .is_err()
        {
            tracing::warn!(
                group = self.group,
                "handlers still run after {:?}; their messages are delivered again",
                self.settings.drain
            );
        }
        join_all(queues.iter().map(|queue| async move {
            if let Err(error) = self.commit(queue, true).await {
                tracing::warn!(queue = %queue.queue, %error, "the last offset was not committed");
            }
        }))
        .await;
        if let Err(error) = self.offsets.flush().await {
            tracing::warn!(%error, "offsets are not written");
        }
        if matches!(self.mode, Mode::Ordered(_)) && !self.settings.broadcast {
            self.unlock(queues.iter().map(|queue| (*queue.queue).clone()).collect())
                .await;
        }
        self.core.unregister(None, Some(&self.group)).await;
        self.tasks.close();
        let _ = tokio::time::timeout(self.settings.drain, self.tasks.wait()).await;
        self.arrived.notify_waiters();
    }

    fn consume_type(&self) -> ConsumeType {
        match self.mode {
            Mode::Polled => ConsumeType::ConsumeActively,
            _ => ConsumeType::ConsumePassively,
        }
    }
}

/// The handle of a consumer: when it goes without a shutdown, everything ends all the same.
pub(crate) struct Handle(pub(crate) Arc<Engine>);

impl Drop for Handle {
    fn drop(&mut self) {
        let engine = self.0.clone();
        if !engine.core.consumers.contains_key(&engine.group) {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move { engine.stop().await });
            }
            Err(_) => {
                engine.core.consumers.remove(&engine.group);
                engine.stopping.cancel();
            }
        }
    }
}

/// Undoes a start that did not come to its end.
struct Undo(Option<Arc<Engine>>);

impl Undo {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(engine) = self.0.take() {
            drop(Handle(engine));
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
