//! [`PushConsumer`]: hands messages to a handler.

use std::sync::Arc;
use std::time::Duration;

use minimq_protocol::body::MessageQueue;
use minimq_protocol::name;

use super::engine::{Engine, Handler, Mode, OrderedHandler, Start};
use super::member::Handle;
use super::outcome::{OrderedOutcome, Outcomes};
use super::settings::{Settings, StartFrom};
use crate::Delivery;
use crate::core::Core;
use crate::error::Result;
use crate::filter::{Filter, Subscription};
use crate::hooks::ConsumeHook;
use crate::rebalance::Allocation;

/// Settings that push and pull consumers share.
macro_rules! shared_settings {
    () => {
        /// Subscribes to a topic; may be called for several. A second time for the same topic replaces the first.
        pub fn subscribe(mut self, topic: impl Into<String>, filter: impl Into<Filter>) -> Self {
            let topic = topic.into();
            self.subscriptions.retain(|(known, _)| *known != topic);
            self.subscriptions.push((topic, filter.into()));
            self
        }

        /// Every member gets every message; how far it came is kept in a file of this machine. Failed messages are not
        /// delivered again. Off: members share the queues.
        pub fn broadcast(mut self, on: bool) -> Self {
            self.settings.broadcast = on;
            self
        }

        /// Where the group begins in queues it never consumed: [`StartFrom::End`].
        pub fn start_from(mut self, from: StartFrom) -> Self {
            self.settings.from = from;
            self
        }

        /// How members share the queues: [`Allocation::Average`].
        pub fn allocation(mut self, allocation: Allocation) -> Self {
            self.settings.allocation = allocation;
            self
        }

        /// Messages asked for at a time: 32.
        pub fn pull_batch(mut self, messages: i32) -> Self {
            self.settings.pull_batch = messages;
            self
        }

        /// Messages held of a queue at most before pulling waits: 1000.
        pub fn max_held_messages(mut self, messages: usize) -> Self {
            self.settings.limits.messages = messages;
            self
        }

        /// Bytes held of a queue at most before pulling waits: 100 MiB.
        pub fn max_held_bytes(mut self, bytes: usize) -> Self {
            self.settings.limits.bytes = bytes;
            self
        }

        /// Distance of the first unfinished message of a queue to the last unfinished one before pulling waits: 2000. Ordered
        /// consumption has no such limit.
        pub fn max_span(mut self, offsets: i64) -> Self {
            self.settings.limits.span = Some(offsets);
            self
        }

        /// Pause after each pull that brought messages: none.
        pub fn pull_pause(mut self, pause: Duration) -> Self {
            self.settings.pull_pause = pause;
            self
        }

        /// How long brokers may hold a pull while there is nothing: 15 s.
        pub fn pull_hold(mut self, hold: Duration) -> Self {
            self.settings.pull_hold = hold;
            self
        }

        /// How often offsets are committed: 5 s. Shutdown commits the last ones.
        pub fn commit_every(mut self, period: Duration) -> Self {
            self.settings.commit_every = period;
            self
        }

        /// How often queues are shared out beside notices: 20 s.
        pub fn rebalance_every(mut self, period: Duration) -> Self {
            self.settings.rebalance_every = period;
            self
        }

        /// How long a shutdown waits for handlers that run: 10 s.
        pub fn drain(mut self, time: Duration) -> Self {
            self.settings.drain = time;
            self
        }

        /// Called with a topic and all queues of it that this consumer has, whenever they change. Must not block.
        pub fn on_assignment(
            mut self,
            callback: impl Fn(&str, &[MessageQueue]) + Send + Sync + 'static,
        ) -> Self {
            self.settings.on_assignment = Some(Arc::new(callback));
            self
        }
    };
}
pub(super) use shared_settings;

/// Settings of a [`PushConsumer`], and how to start it: with one of the three kinds of handlers.
pub struct PushConsumerBuilder {
    core: Arc<Core>,
    group: String,
    settings: Settings,
    subscriptions: Vec<(String, Filter)>,
}

impl PushConsumerBuilder {
    pub(crate) fn new(core: Arc<Core>, group: String) -> Self {
        Self {
            core,
            group,
            settings: Settings::default(),
            subscriptions: Vec::new(),
        }
    }

    shared_settings!();

    /// Handlers that run at a time, all queues together: 20.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers;
        self
    }

    /// A concurrent handler that takes longer is stopped, and its messages are delivered again: 15 min.
    pub fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.settings.handler_timeout = timeout;
        self
    }

    /// Deliveries after a failure, before a message becomes a dead letter: 16 for concurrent handlers, no end for ordered ones.
    pub fn max_retries(mut self, retries: i32) -> Self {
        self.settings.max_retries = Some(retries.max(0));
        self
    }

    /// How long a queue rests after [`OrderedOutcome::Suspend`]: 1 s.
    pub fn suspend_for(mut self, time: Duration) -> Self {
        self.settings.suspend = time;
        self
    }

    /// Adds a hook; they run in the order they were added.
    pub fn hook(mut self, hook: impl ConsumeHook + 'static) -> Self {
        self.settings.hooks.push(Arc::new(hook));
        self
    }

    /// Writes down what is consumed and how that ended, into the topic `RMQ_SYS_TRACE_TOPIC`: off.
    pub fn trace(mut self, on: bool) -> Self {
        self.settings.trace = on.then(String::new);
        self
    }

    /// The same into another topic.
    pub fn trace_to(mut self, topic: impl Into<String>) -> Self {
        self.settings.trace = Some(topic.into());
        self
    }

    /// Starts with a handler of single messages, many at a time. It returns `()`, a `Result` (an error means: deliver it again) or an
    /// [`Outcome`](crate::Outcome). A panic means: deliver it again.
    pub async fn run<F, Fut, O>(self, handler: F) -> Result<PushConsumer>
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = O> + Send + 'static,
        O: Into<Outcomes>,
    {
        let handler = Arc::new(handler);
        let handler: Handler = Arc::new(move |deliveries: Vec<Delivery>| {
            let handler = handler.clone();
            Box::pin(async move {
                let mut deliveries = deliveries.into_iter();
                match deliveries.next() {
                    Some(delivery) => handler(delivery).await.into(),
                    None => ().into(),
                }
            })
        });
        self.start(Mode::Concurrent(handler)).await
    }

    /// Starts with a handler of up to `batch` messages of one queue. It may return a `Vec<Outcome>`, one for each.
    pub async fn run_batched<F, Fut, O>(mut self, batch: usize, handler: F) -> Result<PushConsumer>
    where
        F: Fn(Vec<Delivery>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = O> + Send + 'static,
        O: Into<Outcomes>,
    {
        self.settings.handler_batch = batch;
        let handler = Arc::new(handler);
        let handler: Handler = Arc::new(move |deliveries| {
            let handler = handler.clone();
            Box::pin(async move { handler(deliveries).await.into() })
        });
        self.start(Mode::Concurrent(handler)).await
    }

    /// Starts with an ordered handler: of each queue one message at a time, the next one only when it is done. It returns `()`, a
    /// `Result` (an error means: the queue rests, then the message comes again) or an [`OrderedOutcome`].
    pub async fn run_ordered<F, Fut, O>(mut self, handler: F) -> Result<PushConsumer>
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = O> + Send + 'static,
        O: Into<OrderedOutcome>,
    {
        self.settings.limits.span = None;
        let handler = Arc::new(handler);
        let handler: OrderedHandler = Arc::new(move |delivery| {
            let handler = handler.clone();
            Box::pin(async move { handler(delivery).await.into() })
        });
        self.start(Mode::Ordered(handler)).await
    }

    async fn start(self, mode: Mode) -> Result<PushConsumer> {
        let handle = Engine::start(Start {
            core: self.core,
            group: self.group,
            settings: self.settings,
            mode,
            subscriptions: self.subscriptions,
            fixed: None,
        })
        .await?;
        Ok(PushConsumer {
            handle: Arc::new(handle),
        })
    }
}

impl std::fmt::Debug for PushConsumerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushConsumerBuilder")
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

/// Hands messages to a handler. A cheap clone; when the last one is dropped, consumption ends as by [`shutdown`](Self::shutdown), in
/// the background.
///
/// A message is delivered at least once: again if its handler failed, if this process ended before its offset was committed, and
/// sometimes when queues change hands. All members of a group must have the same subscriptions.
#[derive(Clone)]
pub struct PushConsumer {
    handle: Arc<Handle>,
}

impl PushConsumer {
    fn engine(&self) -> &Arc<Engine> {
        &self.handle.0
    }

    /// The group.
    pub fn group(&self) -> &str {
        &self.engine().group
    }

    /// Subscribes to a topic, or changes its filter; consumption begins at once.
    pub async fn subscribe(&self, topic: &str, filter: impl Into<Filter>) -> Result<()> {
        self.engine().subscribe(topic, filter.into()).await
    }

    /// Gives a topic up.
    pub async fn unsubscribe(&self, topic: &str) {
        let engine = self.engine();
        engine
            .subscriptions
            .write()
            .remove(&engine.core.wrap(topic));
        engine.core.heartbeat().await;
        engine.want_rebalance();
    }

    /// Stops pulling. What is here is still handled, queues stay assigned.
    pub fn suspend(&self) {
        self.engine().suspend();
    }

    /// Goes on.
    pub fn resume(&self) {
        self.engine().resume();
    }

    /// The queues assigned now.
    pub fn assignment(&self) -> Vec<MessageQueue> {
        self.engine().queues.lock().keys().cloned().collect()
    }

    /// Messages pulled and not yet finished.
    pub fn unfinished(&self) -> usize {
        self.engine()
            .queues
            .lock()
            .values()
            .map(|queue| queue.messages.lock().len())
            .sum()
    }

    /// Commits what is finished now, and waits until the brokers have it.
    pub async fn commit(&self) {
        self.engine().commit_all(true).await;
    }

    /// Stops pulling, waits for handlers that run, commits, gives locks back, leaves the group.
    pub async fn shutdown(&self) {
        self.engine().stop().await;
    }
}

impl std::fmt::Debug for PushConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushConsumer")
            .field("group", &self.group())
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Adds or changes a subscription while running: route, broker's check, heartbeat, sharing out, all at once.
    pub(crate) async fn subscribe(&self, topic: &str, filter: Filter) -> Result<()> {
        let topic = self.core.wrap(topic);
        name::check_topic(&topic)?;
        let subscription = Arc::new(Subscription::new(topic.clone(), filter)?);
        if let Err(error) = self.core.route(&topic).await {
            tracing::warn!(%topic, %error, "the topic is consumed once its route is known");
        }
        if subscription.is_sql() {
            self.check_expression(&subscription).await?;
        }
        self.subscriptions.write().insert(topic, subscription);
        self.core.heartbeat().await;
        self.want_rebalance();
        Ok(())
    }
}
