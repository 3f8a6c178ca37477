//! The usual send: one message, one attempt, encoded where it waits to be written, without a copy of it and hardly an
//! allocation. Whatever is unusual (hooks, compression, a route or connection to be made, an attempt that failed) goes
//! the whole way of `send`.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use minimq_protocol::body::MessageQueue;
use minimq_protocol::code::request;
use minimq_protocol::header::{SendMessageFilled, SendMessageRequest, SendMessageTemplate};
use minimq_protocol::message_id::MAX_ID_LEN;
use minimq_protocol::name;
use minimq_protocol::properties::PropertiesBuf;
use minimq_remoting::{Connection, PendingCall};
use tokio::sync::{SemaphorePermit, TryAcquireError};
use tokio::time::Instant;

use super::send::{Attempts, Outgoing, Target};
use super::{SendReceipt, SendStatus, Shared};
use crate::core::now_ms;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::route::Route;

thread_local! {
    /// Properties on their way from a message into its request or batch.
    pub(super) static PROPERTIES: RefCell<PropertiesBuf> = RefCell::default();
}

/// How messages of one topic are sent as long as neither routes nor connections change.
pub(super) struct Path {
    route: Arc<Route>,
    /// Of each queue of the route, in order, where its messages go.
    masters: Vec<Master>,
    counter: Arc<AtomicUsize>,
    /// Changes of routes when it was made.
    changes: u64,
}

struct Master {
    addr: String,
    connection: Connection,
    template: SendMessageTemplate,
}

impl Path {
    /// None while a master is not known or not connected.
    fn new(shared: &Shared, topic: &str) -> Option<Self> {
        name::check_topic(topic).ok()?;
        name::check_send_allowed(topic).ok()?;
        let changes = shared.core.routes.changes();
        let route = shared.core.routes.get(topic)?;
        let masters = route.writable.iter().map(|queue| {
            let addr = route.broker(&queue.broker_name)?.get(&0)?;
            Some(Master {
                addr: addr.clone(),
                connection: shared.core.remoting.connection(addr)?,
                template: SendMessageTemplate::new(&SendMessageRequest {
                    producer_group: &shared.group,
                    topic: &queue.topic,
                    default_topic: name::AUTO_CREATE_TOPIC,
                    default_topic_queue_nums: shared.settings.new_topic_queues,
                    queue_id: queue.queue_id,
                    reconsume_times: Some(0),
                    bname: Some(&queue.broker_name),
                    ..SendMessageRequest::default()
                }),
            })
        });
        let masters: Vec<_> = masters.collect::<Option<_>>()?;
        (!masters.is_empty()).then(|| Self {
            counter: shared.choice.counter(topic),
            masters,
            changes,
            route,
        })
    }
}

impl Shared {
    /// The path of a topic, made if it can be.
    fn path(&self, topic: &str) -> Option<Arc<Path>> {
        let changes = self.core.routes.changes();
        if let Some(path) = self.paths.get(topic)
            && path.changes == changes
        {
            return Some(path.clone());
        }
        // Only topics whose routes are kept fresh.
        if !self.topics.contains_key(topic) {
            return None;
        }
        let path = Arc::new(Path::new(self, topic)?);
        self.paths.insert(topic.to_owned(), path.clone());
        Some(path)
    }

    fn is_usual(&self, message: &Message) -> bool {
        self.hooks.is_empty()
            && self.choice.is_round_robin()
            && message.is_usual()
            && message.body.len() < self.settings.compress_from
            && self.core.settings.namespace.is_empty()
    }
}

/// A send; does nothing before it is polled.
pub(super) struct UsualSend<'p> {
    shared: &'p Shared,
    state: State<'p>,
}

enum State<'p> {
    Begin(Message),
    /// Too many sends are in flight.
    Crowded(Message, Instant, BoxFuture<'p, Result<SemaphorePermit<'p>>>),
    Sent(Attempt<'p>),
    /// The whole way.
    Whole(BoxFuture<'p, Result<SendReceipt>>),
    Over,
}

/// An attempt under way.
struct Attempt<'p> {
    call: PendingCall,
    message: Message,
    key: Key,
    begun: Instant,
    path: Arc<Path>,
    /// Which queue of the path.
    at: usize,
    permit: SemaphorePermit<'p>,
}

/// A unique key.
pub(super) struct Key {
    text: [u8; MAX_ID_LEN],
    len: usize,
}

impl Key {
    pub(super) fn new(shared: &Shared, now: i64) -> Self {
        let mut text = [0; MAX_ID_LEN];
        let len = shared.core.unique_keys.write(now, &mut text).len();
        Self { text, len }
    }

    pub(super) fn as_str(&self) -> &str {
        let text = self.text.get(..self.len).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

impl<'p> UsualSend<'p> {
    pub(super) fn new(shared: &'p Shared, message: Message) -> Self {
        Self {
            shared,
            state: State::Begin(message),
        }
    }

    fn begin(&self, message: Message, cx: &Context<'_>) -> State<'p> {
        let shared = self.shared;
        if !shared.is_usual(&message) {
            return whole(shared, message);
        }
        match shared.in_flight.try_acquire() {
            Ok(permit) => {
                let now = Instant::now();
                self.attempt(message, [now, now], permit, cx)
            }
            Err(TryAcquireError::NoPermits) => {
                let waiting = shared.permit(shared.settings.timeout);
                State::Crowded(message, Instant::now(), Box::pin(waiting))
            }
            Err(TryAcquireError::Closed) => failed(Error::Closed),
        }
    }

    fn attempt(
        &self,
        message: Message,
        [begun, present]: [Instant; 2],
        permit: SemaphorePermit<'p>,
        cx: &Context<'_>,
    ) -> State<'p> {
        let shared = self.shared;
        let Some(path) = shared.path(&message.topic) else {
            drop(permit);
            return whole(shared, message);
        };
        if let Err(error) = message.check_content(shared.settings.max_message_size) {
            return failed(error);
        }
        let turn = path.counter.fetch_add(1, Ordering::Relaxed);
        let at = turn.checked_rem(path.masters.len()).unwrap_or(0);
        let (Some(queue), Some(master)) = (path.route.writable.get(at), path.masters.get(at))
        else {
            drop(permit);
            return whole(shared, message);
        };
        if master.connection.is_closed() {
            // Another attempt connects anew; then there is another path.
            shared.paths.remove(&message.topic);
            drop(permit);
            return whole(shared, message);
        }
        let now = now_ms();
        let key = Key::new(shared, now);
        let sent = PROPERTIES.with_borrow_mut(|properties| {
            properties.clear();
            message.put_properties(properties, key.as_str())?;
            let header = SendMessageFilled {
                template: &master.template,
                born_timestamp: now,
                flag: message.flag,
                properties: properties.as_str(),
            };
            let timeout = (begun + shared.settings.timeout).saturating_duration_since(present);
            let timeout = shared
                .settings
                .attempt_timeout
                .map_or(timeout, |most| most.min(timeout));
            let code = request::SEND_MESSAGE_V2;
            let body = &message.body;
            let connection = &master.connection;
            Ok(connection.start_call_with(code, &header, body, timeout, present, cx))
        });
        match sent {
            Err(error) => failed(error),
            Ok(Ok(call)) => State::Sent(Attempt {
                call,
                message,
                key,
                begun,
                path,
                at,
                permit,
            }),
            Ok(Err(error)) => {
                let attempts = Attempts::first(begun, shared.settings.timeout, &queue.broker_name);
                go_on(shared, message, &key, attempts, permit, Err(error.into()))
            }
        }
    }
}

fn failed<'p>(error: Error) -> State<'p> {
    State::Whole(Box::pin(std::future::ready(Err(error))))
}

fn whole(shared: &Shared, message: Message) -> State<'_> {
    State::Whole(Box::pin(async move {
        let outgoing = Outgoing::single(shared, message)?;
        shared.send(&outgoing, Target::Any).await
    }))
}

/// Goes the whole way after a first attempt.
fn go_on<'p>(
    shared: &'p Shared,
    message: Message,
    key: &Key,
    mut attempts: Attempts,
    permit: SemaphorePermit<'p>,
    first: Result<SendReceipt>,
) -> State<'p> {
    let key = key.as_str().to_owned();
    State::Whole(Box::pin(async move {
        let _permit = permit;
        let addr = match &first {
            Err(Error::Refused { addr, .. }) => addr.clone(),
            _ => String::new(),
        };
        let first = shared.judge(&addr, first, &mut attempts, true);
        let outgoing = Outgoing::with_key(shared, message, key)?;
        shared.go_on(&outgoing, Target::Any, attempts, first).await
    }))
}

impl Attempt<'_> {
    /// The receipt, if the answer is one that needs no further attempt.
    fn ended(&self, shared: &Shared, answer: &minimq_protocol::Command) -> Result<SendReceipt> {
        let (Some(queue), Some(master)) = (
            self.path.route.writable.get(self.at),
            self.path.masters.get(self.at),
        ) else {
            return Err(Error::Closed);
        };
        shared.receipt(&master.addr, answer, self.key.as_str(), queue)
    }

    fn queue(&self) -> Option<&MessageQueue> {
        self.path.route.writable.get(self.at)
    }
}

impl Future for UsualSend<'_> {
    type Output = Result<SendReceipt>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared;
        loop {
            match &mut self.state {
                State::Sent(attempt) => {
                    let answer = ready!(Pin::new(&mut attempt.call).poll(cx));
                    let result = match answer {
                        Ok(answer) => attempt.ended(shared, &answer),
                        Err(error) => Err(error.into()),
                    };
                    let State::Sent(attempt) = std::mem::replace(&mut self.state, State::Over)
                    else {
                        return Poll::Ready(result);
                    };
                    let enough = |receipt: &SendReceipt| {
                        receipt.status == SendStatus::Stored
                            || !shared.settings.retry_if_unconfirmed
                    };
                    if result.as_ref().is_ok_and(enough) {
                        return Poll::Ready(result);
                    }
                    let broker = attempt.queue().map_or("", |queue| &*queue.broker_name);
                    let attempts = Attempts::first(attempt.begun, shared.settings.timeout, broker);
                    let Attempt {
                        message,
                        key,
                        permit,
                        ..
                    } = attempt;
                    self.state = go_on(shared, message, &key, attempts, permit, result);
                }
                State::Begin(_) => {
                    let State::Begin(message) = std::mem::replace(&mut self.state, State::Over)
                    else {
                        continue;
                    };
                    self.state = self.begin(message, cx);
                    if let State::Sent(_) = self.state {
                        // The call knows whom to wake.
                        return Poll::Pending;
                    }
                }
                State::Crowded(_, begun, waiting) => {
                    let begun = *begun;
                    let permit = ready!(waiting.as_mut().poll(cx));
                    let State::Crowded(message, ..) =
                        std::mem::replace(&mut self.state, State::Over)
                    else {
                        continue;
                    };
                    self.state = self.attempt(message, [begun, Instant::now()], permit?, cx);
                    if let State::Sent(_) = self.state {
                        return Poll::Pending;
                    }
                }
                State::Whole(sending) => {
                    let result = ready!(sending.as_mut().poll(cx));
                    self.state = State::Over;
                    return Poll::Ready(result);
                }
                // Polled again after its end.
                State::Over => return Poll::Pending,
            }
        }
    }
}
