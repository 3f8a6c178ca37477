//! The engine of a consumer: what its tasks share, start and end.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{BoxFuture, join_all};
use minimq_protocol::body::{CheckClientRequestBody, MessageQueue};
use minimq_protocol::code::request;
use minimq_protocol::{Command, name};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::member::Handle;
use super::offset::{FileOffsets, OffsetStore};
use super::outcome::{OrderedOutcome, Outcomes};
use super::pull::FilterServers;
use super::queue::AssignedQueue;
use super::settings::Settings;
use super::stats::Stats;
use crate::Delivery;
use crate::core::{Core, now_ms};
use crate::error::{Error, Result};
use crate::filter::{Filter, Subscription};
use crate::trace::{Kind, Tracer};

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
    /// Queues whose lock was asked for and not given back.
    pub(crate) locks: Mutex<BTreeSet<MessageQueue>>,
    /// Read while locks are asked for.
    pub(crate) asking: tokio::sync::RwLock<()>,
    /// Queues whose lock another member has, and since when.
    pub(crate) refused: Mutex<BTreeMap<MessageQueue, Instant>>,
    pub(crate) rebalance_lock: tokio::sync::Mutex<()>,
    pub(crate) wanted: Notify,
    pub(crate) permits: Arc<Semaphore>,
    /// Messages for a poller have come.
    pub(crate) arrived: Notify,
    suspended: AtomicBool,
    pub(crate) resumed: Notify,
    pub(crate) filter_servers: FilterServers,
    pub(crate) stats: Stats,
    tracer: Option<Arc<Tracer>>,
    pub(super) started_ms: i64,
    pub(super) left: AtomicBool,
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
    /// Checks, registers, learns routes, introduces itself to the brokers and begins. All or nothing: dropped half-way it
    /// leaves the group again.
    pub(crate) async fn start(start: Start) -> Result<Handle> {
        let Start {
            core,
            group,
            mut settings,
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
        let mut tracer = None;
        if let Some(topic) = &settings.trace {
            let started = Tracer::start(&core, &group, Kind::Consume, topic)?;
            settings.hooks.push(started.clone());
            tracer = Some(started);
        }
        let engine = Arc::new(Self {
            tracer,
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
            locks: Mutex::default(),
            asking: tokio::sync::RwLock::default(),
            refused: Mutex::default(),
            rebalance_lock: tokio::sync::Mutex::default(),
            wanted: Notify::new(),
            arrived: Notify::new(),
            suspended: AtomicBool::new(false),
            resumed: Notify::new(),
            filter_servers: FilterServers::default(),
            stats: Stats::default(),
            started_ms: now_ms(),
            left: AtomicBool::new(false),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        let handle = Handle::join(engine.clone())?;
        engine.introduce().await?;
        engine.spawn_tasks();
        Ok(handle)
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
        if self.locks_queues() {
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

    /// Ends it, unless that was done before.
    pub(crate) async fn stop(&self) {
        if self.leave() {
            self.wind_down().await;
        }
    }

    /// What follows on leaving: stops pulling, lets handlers finish for a while, commits, unlocks, tells the brokers.
    pub(super) async fn wind_down(&self) {
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
        if self.locks_queues() {
            // A round of sharing out may have been cut off right after it asked for locks: these too. Queues that are being
            // released are unlocked when their handlers have ended.
            let _all_answered = self.asking.write().await;
            let releasing = self.releasing.lock().clone();
            let locks = std::mem::take(&mut *self.locks.lock());
            let locks = locks.into_iter().filter(|queue| !releasing.contains(queue));
            self.unlock(locks.collect()).await;
        }
        if let Some(tracer) = &self.tracer {
            tracer.flush().await;
        }
        self.core.unregister_consumer(&self.group).await;
        self.tasks.close();
        let _ = tokio::time::timeout(self.settings.drain, self.tasks.wait()).await;
        self.arrived.notify_waiters();
    }
}
