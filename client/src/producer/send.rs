//! One message or batch on its way: what goes into the request, and the attempts (client spec 3.4, 3.7).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use minimq_protocol::body::MessageQueue;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{SendMessageRequest, SendMessageRequestV2, SendMessageResponse};
use minimq_protocol::properties::{PropertiesBuf, name as property};
use minimq_protocol::{Command, ExtFields, name, sys_flag};
use minimq_remoting::CallError;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::{SendReceipt, SendStatus, Shared};
use crate::core::now_ms;
use crate::error::{Error, Result};
use crate::hooks::{Sending, Sent};
use crate::message::Message;
use crate::route::Route;

/// First pause between attempts that reached nobody; it doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Who had to wait for its place among the sends in flight begins only if there is more time left than this: a call may
/// end 2 ms before its time, together with others.
const SHORT: Duration = Duration::from_millis(5);

/// A message or batch in its wire form.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) code: i32,
    pub(crate) sys_flag: i32,
    pub(crate) flag: i32,
    pub(crate) properties: PropertiesBuf,
    pub(crate) body: Bytes,
    pub(crate) unique_keys: String,
    pub(crate) batch: bool,
    pub(crate) reconsume_times: i32,
    pub(crate) max_reconsume_times: Option<i32>,
}

/// Which queue it goes to.
pub(crate) enum Target<'a> {
    Any,
    Queue(&'a MessageQueue),
    Selected(&'a (dyn Fn(&[MessageQueue]) -> usize + Send + Sync)),
}

impl Outgoing {
    /// Checks and encodes a message.
    pub(crate) fn single(producer: &Shared, message: Message) -> Result<Self> {
        let unique_key = producer.core.unique_keys.next(now_ms());
        Self::with_key(producer, message, unique_key)
    }

    /// As [`single`](Self::single), with a unique key that it has already.
    pub(super) fn with_key(
        producer: &Shared,
        mut message: Message,
        unique_key: String,
    ) -> Result<Self> {
        message.topic = producer.core.wrap(&message.topic);
        let settings = &producer.settings;
        message.check(settings.max_message_size)?;
        name::check_send_allowed(&message.topic)?;
        producer.reserve_instance(&mut message);
        let properties = message.properties(&unique_key)?;
        let mut sys_flag = 0;
        if message.reserved(property::TRAN_MSG) == Some("true") {
            sys_flag |= sys_flag::message::TRANSACTION_PREPARED;
        }
        let mut body = message.body.clone();
        if body.len() >= settings.compress_from {
            match settings
                .compression
                .compress(&body, settings.compression_level)
            {
                // Only what is worth its decompression.
                Ok(small) if small.len() < body.len() => {
                    body = small.into();
                    sys_flag |= sys_flag::message::COMPRESSED | settings.compression.sys_flag();
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "the body is sent plain"),
            }
        }
        let is_reply = message.reserved(property::MSG_TYPE) == Some("reply");
        Ok(Self {
            code: if is_reply {
                request::SEND_REPLY_MESSAGE_V2
            } else {
                request::SEND_MESSAGE_V2
            },
            sys_flag,
            flag: message.flag,
            properties,
            body,
            unique_keys: unique_key,
            batch: false,
            reconsume_times: 0,
            max_reconsume_times: None,
            topic: message.topic,
        })
    }

    /// The request that stores it in that queue.
    pub(crate) fn request(
        &self,
        group: &str,
        new_topic_queues: i32,
        queue: &MessageQueue,
    ) -> Command {
        let header = SendMessageRequestV2(SendMessageRequest {
            producer_group: group,
            topic: &self.topic,
            default_topic: name::AUTO_CREATE_TOPIC,
            default_topic_queue_nums: new_topic_queues,
            queue_id: queue.queue_id,
            sys_flag: self.sys_flag,
            born_timestamp: now_ms(),
            flag: self.flag,
            properties: Some(self.properties.as_str()),
            reconsume_times: Some(self.reconsume_times),
            unit_mode: false,
            max_reconsume_times: self.max_reconsume_times,
            batch: self.batch,
            bname: Some(&queue.broker_name),
        });
        Command::request_with(self.code, &header).with_body(self.body.clone())
    }
}

/// Attempts so far.
pub(super) struct Attempts {
    begun: Instant,
    deadline: Instant,
    /// Those that may have reached a broker.
    counted: u32,
    all: u32,
    brokers: Vec<String>,
    pause: Duration,
}

impl Shared {
    /// Sends until it is stored, must not be repeated, or the time is over.
    pub(crate) async fn send(
        &self,
        outgoing: &Outgoing,
        target: Target<'_>,
    ) -> Result<SendReceipt> {
        let timeout = self.settings.timeout;
        self.send_within(outgoing, target, timeout).await
    }

    pub(crate) async fn send_within(
        &self,
        outgoing: &Outgoing,
        target: Target<'_>,
        timeout: Duration,
    ) -> Result<SendReceipt> {
        let begun = Instant::now();
        let _permit = self.permit(timeout).await?;
        self.send_begun(outgoing, target, begun, timeout).await
    }

    /// As [`send_within`](Self::send_within), in flight already.
    pub(super) async fn send_begun(
        &self,
        outgoing: &Outgoing,
        target: Target<'_>,
        begun: Instant,
        timeout: Duration,
    ) -> Result<SendReceipt> {
        let mut attempts = Attempts::new(begun, timeout);
        let first = self.attempt(outgoing, &target, &mut attempts).await;
        self.go_on(outgoing, target, attempts, first).await
    }

    /// Names the client's namespace in the message, if it has one.
    pub(super) fn reserve_instance(&self, message: &mut Message) {
        let namespace = &self.core.settings.namespace;
        if !namespace.is_empty() {
            message.reserve(property::INSTANCE_ID, namespace.clone());
        }
    }

    /// Waits until there is room for another send in flight.
    pub(super) async fn permit(&self, timeout: Duration) -> Result<SemaphorePermit<'_>> {
        if let Ok(permit) = self.in_flight.try_acquire() {
            return Ok(permit);
        }
        let what = || {
            format!(
                "all {} sends in flight were not answered",
                self.settings.max_in_flight
            )
        };
        acquire(&self.in_flight, timeout, what).await
    }

    /// Makes further attempts after the last one came to `result`.
    pub(super) async fn go_on(
        &self,
        outgoing: &Outgoing,
        target: Target<'_>,
        mut attempts: Attempts,
        mut result: Result<SendReceipt>,
    ) -> Result<SendReceipt> {
        loop {
            let error = match result {
                Ok(receipt) => return Ok(receipt),
                Err(error) => error,
            };
            if !self.may_repeat(&error, &target, &attempts) {
                return Err(attempts.failed(&outgoing.topic, error));
            }
            let pause = match error {
                // Another broker can be tried at once.
                Error::Call(_) if attempts.counted + 1 == attempts.all => Duration::ZERO,
                _ => attempts.pause,
            };
            if Instant::now() + pause >= attempts.deadline {
                return Err(attempts.failed(&outgoing.topic, error));
            }
            if attempts.all > 1 || !pause.is_zero() {
                attempts.pause = (attempts.pause * 2).min(MAX_PAUSE);
                tokio::time::sleep(pause.max(FIRST_PAUSE)).await;
            }
            // A broker that has gone or changed its address: the name servers know first.
            let _ = self
                .core
                .refresh_route(&outgoing.topic, Duration::from_millis(500))
                .await;
            result = self.attempt(outgoing, &target, &mut attempts).await;
        }
    }

    fn may_repeat(&self, error: &Error, target: &Target<'_>, attempts: &Attempts) -> bool {
        if Instant::now() >= attempts.deadline {
            return false;
        }
        let pinned = matches!(target, Target::Queue(_));
        match error {
            Error::TopicNotFound { .. } => false,
            error if error.never_sent() => error.is_retryable(),
            Error::Call(_) => !pinned && attempts.counted <= self.settings.retries,
            Error::Refused { code, .. } => {
                !pinned
                    && attempts.counted <= self.settings.retries
                    && self.settings.retry_codes.contains(code)
            }
            _ => false,
        }
    }

    async fn attempt(
        &self,
        outgoing: &Outgoing,
        target: &Target<'_>,
        attempts: &mut Attempts,
    ) -> Result<SendReceipt> {
        attempts.all += 1;
        let route = self.route(&outgoing.topic).await?;
        let last = attempts.brokers.last().map(String::as_str);
        let queue = self.queue(&route, &outgoing.topic, target, last)?;
        let addr = match route
            .broker(&queue.broker_name)
            .and_then(|addrs| addrs.get(&0))
        {
            Some(addr) => addr.clone(),
            None => {
                self.core
                    .master(&outgoing.topic, &queue.broker_name)
                    .await?
            }
        };
        attempts.at(&queue.broker_name);
        let left = attempts.deadline.saturating_duration_since(Instant::now());
        let time = self
            .settings
            .attempt_timeout
            .map_or(left, |most| most.min(left));
        self.before(outgoing, queue, &addr)?;
        let request = outgoing.request(&self.group, self.settings.new_topic_queues, queue);
        let begun = Instant::now();
        let answer = self.core.remoting.call(&addr, request, time).await;
        let (result, answer) = match answer {
            Ok(answer) => (
                self.receipt(&addr, &answer, &outgoing.unique_keys, queue),
                Some(answer.ext),
            ),
            Err(error) => (Err(Error::Call(error)), None),
        };
        self.after(outgoing, queue, &addr, &result, answer, begun.elapsed());
        self.choice
            .record(&queue.broker_name, result.is_ok().then(|| begun.elapsed()));
        let may_repeat = !matches!(target, Target::Queue(_));
        self.judge(&addr, result, attempts, may_repeat)
    }

    /// What an attempt counts as, and whether what it came to is enough.
    pub(super) fn judge(
        &self,
        addr: &str,
        result: Result<SendReceipt>,
        attempts: &mut Attempts,
        may_repeat: bool,
    ) -> Result<SendReceipt> {
        if matches!(result, Err(Error::Call(CallError::Timeout { .. }))) {
            // A heartbeat finds out whether the connection is dead.
            self.core.want_heartbeat();
        }
        match result {
            Ok(receipt)
                if receipt.status != SendStatus::Stored
                    && self.settings.retry_if_unconfirmed
                    && attempts.counted < self.settings.retries
                    && may_repeat =>
            {
                attempts.counted += 1;
                Err(Error::Refused {
                    addr: addr.to_owned(),
                    code: response::SYSTEM_BUSY,
                    remark: format!("stored, but {:?}", receipt.status),
                })
            }
            Err(error) => {
                attempts.counted += u32::from(!error.never_sent());
                Err(error)
            }
            ok => ok,
        }
    }

    /// Asks the hooks.
    fn before(&self, outgoing: &Outgoing, queue: &MessageQueue, addr: &str) -> Result<()> {
        if self.hooks.is_empty() {
            return Ok(());
        }
        let sending = Sending::new(&self.group, queue, addr, outgoing);
        let asked = self.hooks.iter().try_for_each(|hook| hook.before(&sending));
        asked.map_err(|reason| Error::Forbidden {
            topic: outgoing.topic.clone(),
            reason,
        })
    }

    /// Tells the hooks.
    fn after(
        &self,
        outgoing: &Outgoing,
        queue: &MessageQueue,
        addr: &str,
        result: &Result<SendReceipt>,
        answer: Option<ExtFields>,
        elapsed: Duration,
    ) {
        if self.hooks.is_empty() {
            return;
        }
        let said = |key| answer.as_ref().and_then(|ext| ext.get(key));
        let sent = Sent {
            result: result.as_ref(),
            elapsed,
            region: said(property::MSG_REGION).unwrap_or("DefaultRegion"),
            traced: said(property::TRACE_ON) != Some("false"),
        };
        let sending = Sending::new(&self.group, queue, addr, outgoing);
        for hook in &self.hooks {
            hook.after(&sending, &sent);
        }
    }

    /// The route to send by; the topic is kept fresh from now on.
    async fn route(&self, topic: &str) -> Result<Arc<Route>> {
        if !self.topics.contains_key(topic) {
            self.topics.insert(topic.to_owned(), ());
        }
        self.core
            .route_to_send(topic, self.settings.new_topic_queues)
            .await
    }

    fn queue<'q>(
        &self,
        route: &'q Route,
        topic: &str,
        target: &'q Target<'_>,
        last: Option<&str>,
    ) -> Result<&'q MessageQueue> {
        let queues = &route.writable;
        let none = || Error::NoQueue {
            topic: topic.to_owned(),
            wanted: "send to",
        };
        match target {
            Target::Any => self.choice.choose(topic, queues, last).ok_or_else(none),
            Target::Queue(queue) => Ok(queue),
            Target::Selected(_) if queues.is_empty() => Err(none()),
            Target::Selected(select) => {
                let at = select(queues);
                queues.get(at).ok_or_else(|| {
                    Error::invalid(
                        "queue selector",
                        format!("chose queue {at} of {}", queues.len()),
                    )
                })
            }
        }
    }

    /// What an answer says of a message in `queue`.
    pub(super) fn receipt(
        &self,
        addr: &str,
        answer: &Command,
        unique_keys: &str,
        queue: &MessageQueue,
    ) -> Result<SendReceipt> {
        let status = match answer.code {
            response::SUCCESS => SendStatus::Stored,
            response::FLUSH_DISK_TIMEOUT => SendStatus::FlushTimeout,
            response::FLUSH_SLAVE_TIMEOUT => SendStatus::SlaveTimeout,
            response::SLAVE_NOT_AVAILABLE => SendStatus::NoSlave,
            code => {
                return Err(Error::Refused {
                    addr: addr.to_owned(),
                    code,
                    remark: answer.remark().to_owned(),
                });
            }
        };
        let header: SendMessageResponse = answer
            .header()
            .map_err(|error| Error::bad_answer(addr, error))?;
        Ok(SendReceipt {
            status,
            id: unique_keys.to_owned(),
            offset_id: header.msg_id.to_owned(),
            queue: MessageQueue {
                topic: self.core.unwrap(&queue.topic).into_owned(),
                broker_name: queue.broker_name.clone(),
                queue_id: header.queue_id,
            },
            queue_offset: header.queue_offset,
            transaction_id: header.transaction_id.map(str::to_owned),
        })
    }

    /// Sends without an answer; tries no second broker once a connection stands.
    pub(crate) async fn send_oneway(&self, outgoing: &Outgoing) -> Result<()> {
        let _permit = self.in_flight.acquire().await.map_err(|_| Error::Closed)?;
        let route = self.route(&outgoing.topic).await?;
        let mut last: Option<String> = None;
        let mut failed = None;
        for _ in 0..=self.settings.retries {
            let queue = self.queue(&route, &outgoing.topic, &Target::Any, last.as_deref())?;
            let request = outgoing.request(&self.group, self.settings.new_topic_queues, queue);
            let addr = self
                .core
                .master(&outgoing.topic, &queue.broker_name)
                .await?;
            self.before(outgoing, queue, &addr)?;
            match self.core.remoting.oneway(&addr, request).await {
                Ok(()) => return Ok(()),
                Err(error) => failed = Some(error),
            }
            last = Some(queue.broker_name.clone());
        }
        Err(failed.map_or(Error::Closed, Error::Call))
    }
}

/// Waits for a permit; `what` did not happen if none comes in time.
pub(super) async fn acquire(
    semaphore: &Semaphore,
    timeout: Duration,
    what: impl Fn() -> String,
) -> Result<SemaphorePermit<'_>> {
    let begun = Instant::now();
    let in_vain = || Error::Timeout {
        what: what(),
        after: timeout,
    };
    let permit = tokio::time::timeout(timeout, semaphore.acquire());
    let permit = permit.await.map_err(|_| in_vain())?;
    let permit = permit.map_err(|_| Error::Closed)?;
    // With one that comes as the time is over a message would leave whose answer nobody waits for.
    if begun.elapsed() + SHORT >= timeout {
        return Err(in_vain());
    }
    Ok(permit)
}

impl Attempts {
    pub(super) fn new(begun: Instant, timeout: Duration) -> Self {
        Self {
            begun,
            deadline: begun + timeout,
            counted: 0,
            all: 0,
            brokers: Vec::new(),
            pause: FIRST_PAUSE,
        }
    }

    /// The first attempt is made, at that broker.
    pub(super) fn first(begun: Instant, timeout: Duration, broker_name: &str) -> Self {
        let mut attempts = Self::new(begun, timeout);
        attempts.all = 1;
        attempts.at(broker_name);
        attempts
    }

    fn at(&mut self, broker_name: &str) {
        if self.brokers.last().map(String::as_str) != Some(broker_name) {
            self.brokers.push(broker_name.to_owned());
        }
    }

    fn failed(self, topic: &str, error: Error) -> Error {
        if self.all <= 1 && !matches!(error, Error::Call(_)) {
            return error;
        }
        Error::SendFailed {
            topic: topic.to_owned(),
            attempts: self.all,
            elapsed: self.begun.elapsed(),
            brokers: self.brokers.join(","),
            source: Box::new(error),
        }
    }
}
