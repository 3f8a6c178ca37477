//! [`Producer`]: sends messages. One file a way of sending; the attempts themselves are in `send`.

mod batch;
mod builder;
mod collect;
mod queue_choice;
mod request_reply;
mod send;
mod transaction;
mod usual;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use minimq_protocol::Command;
use minimq_protocol::body::MessageQueue;
use minimq_protocol::hash::java_string_hash;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use batch::{Batching, split_batch};
pub use builder::ProducerBuilder;
pub use transaction::{Transaction, TransactionState};

use crate::core::{Core, ProducerMember};
use crate::error::{Error, Result};
use crate::hooks::SendHook;
use crate::message::Message;
use crate::trace::Tracer;
use builder::Settings;
use collect::{BatchedSend, Batcher};
use queue_choice::QueueChoice;
pub(crate) use send::{Outgoing, Target};
use transaction::Checker;
use usual::{Path, UsualSend};

/// What became of a message that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStatus {
    /// Stored as the broker is configured to.
    Stored,
    /// Stored; the disk did not confirm in time.
    FlushTimeout,
    /// Stored; no slave confirmed in time.
    SlaveTimeout,
    /// Stored; there is no slave in reach.
    NoSlave,
}

/// Where a message was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendReceipt {
    /// How safely.
    pub status: SendStatus,
    /// The unique id this client gave it; those of a batch joined by `,`.
    pub id: String,
    /// The broker's id; those of a batch joined by `,`.
    pub offset_id: String,
    /// The queue.
    pub queue: MessageQueue,
    /// Position in the queue, of the first message of a batch.
    pub queue_offset: i64,
    /// Transaction id, if the broker gave one.
    pub transaction_id: Option<String>,
}

/// Sends messages. A cheap clone; when the last clone is dropped the group is left. Every method takes the message by
/// value, waits while too many sends are in flight, and gives up at the builder's time-out.
///
/// A send that failed may have been stored nevertheless, unless [`Error::never_sent`]; a repeated one is then stored twice,
/// with the same unique id.
#[derive(Clone)]
pub struct Producer {
    handle: Arc<Handle>,
}

/// Leaves the group when the last clone of a producer goes.
struct Handle {
    shared: Arc<Shared>,
}

/// What the clones of a producer and its tasks share.
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    pub(crate) group: String,
    pub(crate) settings: Settings,
    choice: QueueChoice,
    in_flight: Arc<Semaphore>,
    /// Topics sent to, whose routes are kept fresh.
    topics: DashMap<String, ()>,
    /// How messages of these topics are usually sent.
    paths: DashMap<String, Arc<Path>>,
    checker: Option<Checker>,
    checks: Arc<Semaphore>,
    left: AtomicBool,
    batcher: Option<Batcher>,
    /// No batch waits for its time any more.
    ending: CancellationToken,
    /// The tasks that send batches, and the one that looks for those whose time has come.
    batching: TaskTracker,
    pub(crate) hooks: Vec<Arc<dyn SendHook>>,
    tracer: Option<Arc<Tracer>>,
}

impl Producer {
    fn start(shared: Arc<Shared>) -> Result<Self> {
        shared.core.check_open()?;
        match shared.core.producers.entry(shared.group.clone()) {
            dashmap::Entry::Occupied(_) => {
                return Err(Error::GroupTaken {
                    kind: "producer",
                    group: shared.group.clone(),
                });
            }
            dashmap::Entry::Vacant(entry) => {
                entry.insert(shared.clone());
            }
        }
        collect::start(&shared);
        Ok(Self {
            handle: Arc::new(Handle { shared }),
        })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// The group.
    pub fn group(&self) -> &str {
        &self.shared().group
    }

    /// Sends a message to the next queue of its topic; tries other brokers if one fails.
    pub fn send(&self, message: Message) -> impl Future<Output = Result<SendReceipt>> + Send {
        UsualSend::new(self.shared(), message)
    }

    /// Sends a message to that queue and no other.
    pub async fn send_to(&self, queue: &MessageQueue, message: Message) -> Result<SendReceipt> {
        let outgoing = Outgoing::single(self.shared(), message)?;
        let topic = self.shared().core.wrap(&queue.topic);
        if topic != outgoing.topic {
            return Err(Error::invalid(
                "queue",
                format!("{queue} is no queue of topic {}", outgoing.topic),
            ));
        }
        let queue = MessageQueue::new(topic, &*queue.broker_name, queue.queue_id);
        self.shared().send(&outgoing, Target::Queue(&queue)).await
    }

    /// Sends a message to a queue that depends on `key` only, so that messages of one key keep their order. The choice
    /// changes when queues are added or a broker goes, unless the topic has an order configuration.
    pub async fn send_keyed(&self, key: &str, message: Message) -> Result<SendReceipt> {
        let hash = i64::from(java_string_hash(key));
        self.send_selected(message, move |queues| {
            let count = i64::try_from(queues.len()).unwrap_or(i64::MAX).max(1);
            usize::try_from((hash % count).abs()).unwrap_or(0)
        })
        .await
    }

    /// Sends a message to the queue whose index `select` returns.
    pub async fn send_selected<S>(&self, message: Message, select: S) -> Result<SendReceipt>
    where
        S: Fn(&[MessageQueue]) -> usize + Send + Sync,
    {
        let outgoing = Outgoing::single(self.shared(), message)?;
        self.shared()
            .send(&outgoing, Target::Selected(&select))
            .await
    }

    /// Sends a message without waiting for an answer: it may be lost without notice.
    pub async fn send_oneway(&self, message: Message) -> Result<()> {
        let outgoing = Outgoing::single(self.shared(), message)?;
        self.shared().send_oneway(&outgoing).await
    }

    /// Sends messages of one topic as one: all are stored or none. Together they must not be larger than a message may
    /// be: see [`split_batch`].
    pub async fn send_batch(&self, messages: Vec<Message>) -> Result<SendReceipt> {
        let outgoing = Outgoing::batch(self.shared(), messages)?;
        self.shared().send(&outgoing, Target::Any).await
    }

    /// Sends a message together with others given at about the same time, as [`ProducerBuilder::batching`] says. The
    /// receipt names the message's own id and offset. Dropping the future once it has been polled does not take the message back.
    pub fn send_batched(
        &self,
        message: Message,
    ) -> impl Future<Output = Result<SendReceipt>> + Send {
        BatchedSend::new(self.shared(), message)
    }

    /// Sends a message that consumers see only after [`Transaction::commit`].
    pub async fn begin(&self, message: Message) -> Result<Transaction> {
        transaction::begin(self.shared(), message).await
    }

    /// Sends a message, runs `local`, and commits or rolls back as it says. If that answer is lost, or is
    /// [`TransactionState::Unknown`], the broker asks the checker later.
    pub async fn send_in_transaction<F, Fut>(
        &self,
        message: Message,
        local: F,
    ) -> Result<(SendReceipt, TransactionState)>
    where
        F: FnOnce(SendReceipt) -> Fut,
        Fut: Future<Output = TransactionState>,
    {
        let transaction = self.begin(message).await?;
        let receipt = transaction.receipt().clone();
        if receipt.status != SendStatus::Stored {
            transaction.rollback().await?;
            return Ok((receipt, TransactionState::Rollback));
        }
        let state = local(receipt.clone()).await;
        transaction.end(state).await?;
        Ok((receipt, state))
    }

    /// Sends a message and waits for a consumer's reply.
    pub async fn request(&self, message: Message, timeout: Duration) -> Result<crate::Delivery> {
        request_reply::request(self.shared(), message, timeout).await
    }

    /// Replies to a message that came from [`request`](Self::request).
    pub async fn reply(
        &self,
        to: &crate::Delivery,
        body: impl Into<bytes::Bytes>,
    ) -> Result<SendReceipt> {
        request_reply::reply(self.shared(), to, body.into()).await
    }

    /// Queues to which a topic's messages are sent.
    pub async fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>> {
        let topic = self.shared().core.wrap(topic);
        let route = self
            .shared()
            .core
            .route_to_send(&topic, self.shared().settings.new_topic_queues)
            .await?;
        Ok(route.writable.to_vec())
    }

    /// Looks up the routes of these topics and connects to their brokers, so that the first send is as quick as the others.
    pub async fn warm_up(&self, topics: &[&str]) -> Result<()> {
        let shared = self.shared();
        for topic in topics {
            let topic = shared.core.wrap(topic);
            let route = shared
                .core
                .route_to_send(&topic, shared.settings.new_topic_queues)
                .await?;
            shared.topics.insert(topic, ());
            for (_, addr) in route.each_broker() {
                shared.core.remoting.connect(addr).await?;
            }
        }
        shared.core.heartbeat().await;
        Ok(())
    }

    /// Sends what waits for its batch, waits for the sends in flight, leaves the group. Later sends fail.
    pub async fn shutdown(&self) {
        self.shared().clone().stop().await;
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("group", &self.group())
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let shared = self.shared.clone();
        collect::end(&shared);
        if shared.leave() {
            let runtime = shared.core.runtime.clone();
            runtime.spawn(async move { shared.core.unregister_producer(&shared.group).await });
        }
    }
}

impl Shared {
    /// Takes the producer out of this client; the group is free for another. False if that was done before.
    fn leave(&self) -> bool {
        let first = !self.left.swap(true, Ordering::AcqRel);
        if first {
            self.core.producers.remove(&self.group);
        }
        first
    }
}

impl ProducerMember for Shared {
    fn topics(&self) -> Vec<String> {
        self.topics
            .iter()
            .map(|topic| topic.key().clone())
            .collect()
    }

    fn check_transaction(&self, addr: String, check: Command) {
        transaction::check(self, addr, check);
    }

    fn stop(self: Arc<Self>) -> BoxFuture<'static, ()> {
        async move {
            let drained = async {
                collect::end(&self);
                self.batching.close();
                self.batching.wait().await;
                let all = self.settings.max_in_flight;
                self.in_flight.acquire_many(all).await
            };
            // Nobody can begin a send once all permits are here and the semaphore is closed.
            let drained = tokio::time::timeout(self.settings.timeout, drained).await;
            self.in_flight.close();
            drop(drained);
            if let Some(tracer) = &self.tracer {
                tracer.flush().await;
            }
            if self.leave() {
                self.core.unregister_producer(&self.group).await;
            }
        }
        .boxed()
    }
}
