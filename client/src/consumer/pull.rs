//! One pull: where it goes, the request, the answer (client spec 4.9, 7.5); and filter servers (client spec 6.4).

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use minimq_protocol::Command;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{PullMessageRequest, PullMessageResponse};
use minimq_protocol::message::split_records;
use minimq_protocol::sys_flag::pull;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::engine::{Engine, Mode};
use super::queue::AssignedQueue;
use crate::Delivery;
use crate::error::{Error, Result};
use crate::filter::Subscription;
use crate::random;
use crate::route::{Route, address_to_read};

/// What a pull takes beyond the time a broker may hold it. Short enough that a queue whose broker went without a word is
/// pulled anew within 35 s.
pub(super) const SLACK: Duration = Duration::from_secs(10);
/// A filter server that failed is left alone for so long.
const AVOID: Duration = Duration::from_secs(30);
/// Remark of a filter server that has no filter to go by.
const UPLOAD_FIRST: &str = "upload first";

/// What came of a pull.
pub(crate) enum Pulled {
    /// Messages, perhaps none; pulling goes on at `next`.
    Messages { messages: Vec<Delivery>, next: i64 },
    /// The offset does not exist (any more).
    OffsetMoved { to: i64 },
    /// The broker has too much to do.
    FlowControl,
}

/// Filter servers that failed lately.
#[derive(Debug, Default)]
pub(crate) struct FilterServers {
    avoided: Mutex<HashMap<String, Instant>>,
}

impl FilterServers {
    /// A random one of those that did not fail lately; if all did, a random one of all.
    fn pick<'a>(&self, all: &'a [String], now: Instant) -> Option<&'a str> {
        let mut avoided = self.avoided.lock();
        avoided.retain(|_, until| *until > now);
        let good: Vec<&String> = all
            .iter()
            .filter(|addr| !avoided.contains_key(*addr))
            .collect();
        match good.is_empty() {
            false => good
                .get(random::below(good.len()))
                .map(|addr| addr.as_str()),
            true => all.get(random::below(all.len())).map(String::as_str),
        }
    }

    /// Whether there is one that did not fail lately.
    fn has_good(&self, all: &[String], now: Instant) -> bool {
        let avoided = self.avoided.lock();
        let good = |addr: &String| avoided.get(addr).is_none_or(|until| *until <= now);
        all.iter().any(good)
    }

    fn failed(&self, addr: &str, now: Instant) {
        self.avoided.lock().insert(addr.to_owned(), now + AVOID);
    }

    fn worked(&self, addr: &str) {
        let mut avoided = self.avoided.lock();
        if !avoided.is_empty() {
            avoided.remove(addr);
        }
    }
}

impl Engine {
    /// Pulls once; the broker may hold the request while there is nothing.
    pub(crate) async fn pull(&self, queue: &AssignedQueue) -> Result<Pulled> {
        let topic = &queue.queue.topic;
        let subscription = self.subscription(topic);
        if subscription.is_none() && self.fixed.lock().is_none() {
            return Err(Error::invalid(
                "subscription",
                format!("topic {topic} is not subscribed to"),
            ));
        }
        let route = self.core.route(topic).await?;
        let wanted = queue.suggested_broker.load(Ordering::Relaxed);
        let (broker, slave) = route
            .broker(&queue.queue.broker_name)
            .and_then(|addrs| address_to_read(addrs, wanted))
            .ok_or_else(|| Error::BrokerNotFound {
                broker_name: queue.queue.broker_name.clone(),
            })?;
        let class_filter = subscription
            .as_ref()
            .is_some_and(|one| one.is_class_filter());
        let request = self.pull_request(queue, subscription.as_deref(), slave);
        let answer = if class_filter {
            self.pull_filtered(&route, broker, topic, request).await?
        } else {
            (broker.to_owned(), self.call_pull(broker, request).await?)
        };
        self.read_answer(queue, subscription.as_deref(), &answer.0, answer.1)
    }

    async fn call_pull(&self, addr: &str, request: Command) -> Result<Command> {
        let before = self.core.received(addr);
        let time = self.settings.pull_hold + SLACK;
        let answer = self.core.remoting.call(addr, request, time).await;
        answer.map_err(|error| {
            let error = Error::Call(error);
            self.core.close_if_dead(addr, before, &error);
            error
        })
    }

    fn pull_request(
        &self,
        queue: &AssignedQueue,
        subscription: Option<&Subscription>,
        slave: bool,
    ) -> Command {
        let polled = matches!(self.mode, Mode::Polled);
        let class_filter = subscription.is_some_and(Subscription::is_class_filter);
        let (offset, committable) = {
            let messages = queue.messages.lock();
            (messages.next(), messages.committable())
        };
        // By way of a filter server it could reach the broker after a later offset that went there directly.
        let commit =
            !self.settings.broadcast && !polled && !slave && !class_filter && committable > 0;
        let send_expression = polled && !class_filter;
        let header = PullMessageRequest {
            consumer_group: &self.group,
            topic: &queue.queue.topic,
            queue_id: queue.queue.queue_id,
            queue_offset: offset,
            max_msg_nums: self.settings.pull_batch,
            sys_flag: pull::build(commit, true, send_expression, class_filter, false),
            commit_offset: if commit { committable } else { 0 },
            suspend_timeout_millis: i64::try_from(self.settings.pull_hold.as_millis())
                .unwrap_or(i64::MAX),
            subscription: send_expression
                .then(|| subscription.map_or("*", Subscription::expression)),
            sub_version: subscription.map_or(0, Subscription::version),
            expression_type: Some(subscription.map_or("TAG", Subscription::expression_type)),
            max_msg_bytes: None,
            bname: Some(&queue.queue.broker_name),
        };
        Command::request_with(request::PULL_MESSAGE, &header)
    }

    /// Pulls from a filter server beside that broker; from another one at once if it does not answer.
    async fn pull_filtered(
        &self,
        route: &Route,
        broker: &str,
        topic: &str,
        request: Command,
    ) -> Result<(String, Command)> {
        let servers = route.filter_servers(broker);
        loop {
            let addr = self
                .filter_servers
                .pick(servers, Instant::now())
                .ok_or_else(|| Error::NoFilterServer {
                    topic: topic.to_owned(),
                    broker_addr: broker.to_owned(),
                })?;
            let answer = self.pull_filtered_at(addr, topic, request.clone()).await;
            match &answer {
                Ok(answer) if answer.code != response::SYSTEM_ERROR => {
                    self.filter_servers.worked(addr)
                }
                // One that refuses the filter does so today and tomorrow; one that does not answer is avoided.
                Err(Error::Refused { .. }) => {}
                _ => self.filter_servers.failed(addr, Instant::now()),
            }
            // Each round leaves one more alone.
            let again = matches!(answer, Err(Error::Call(_)))
                && self.filter_servers.has_good(servers, Instant::now());
            if !again {
                return Ok((addr.to_owned(), answer?));
            }
        }
    }

    /// Pulls from one filter server; uploads the filter if the server asks for it.
    async fn pull_filtered_at(&self, addr: &str, topic: &str, request: Command) -> Result<Command> {
        let answer = self.call_pull(addr, request.clone()).await?;
        let asks = answer.code == response::SYSTEM_ERROR && answer.remark().contains(UPLOAD_FIRST);
        let upload = self
            .subscription(topic)
            .and_then(|one| one.upload(&self.group));
        match upload {
            Some(upload) if asks => {
                upload.to(&self.core, addr).await?;
                self.call_pull(addr, request).await
            }
            _ => Ok(answer),
        }
    }

    fn read_answer(
        &self,
        queue: &AssignedQueue,
        subscription: Option<&Subscription>,
        addr: &str,
        answer: Command,
    ) -> Result<Pulled> {
        match answer.code {
            response::SUCCESS
            | response::PULL_NOT_FOUND
            | response::PULL_RETRY_IMMEDIATELY
            | response::PULL_OFFSET_MOVED => {}
            response::FLOW_CONTROL => return Ok(Pulled::FlowControl),
            code => {
                return Err(Error::Refused {
                    addr: addr.to_owned(),
                    code,
                    remark: answer.remark().to_owned(),
                });
            }
        }
        let header: PullMessageResponse = answer
            .header()
            .map_err(|error| Error::bad_answer(addr, error))?;
        queue
            .suggested_broker
            .store(header.suggest_which_broker_id, Ordering::Relaxed);
        match answer.code {
            response::PULL_OFFSET_MOVED => Ok(Pulled::OffsetMoved {
                to: header.next_begin_offset,
            }),
            response::SUCCESS => Ok(Pulled::Messages {
                messages: self.read_messages(queue, subscription, &header, answer),
                next: header.next_begin_offset,
            }),
            _ => Ok(Pulled::Messages {
                messages: Vec::new(),
                next: header.next_begin_offset,
            }),
        }
    }

    fn read_messages(
        &self,
        queue: &AssignedQueue,
        subscription: Option<&Subscription>,
        header: &PullMessageResponse,
        answer: Command,
    ) -> Vec<Delivery> {
        let mut messages = Vec::new();
        for record in split_records(answer.body) {
            let read = record.map_err(|error| error.to_string()).and_then(|view| {
                let read: Result<_, _> = Delivery::new(
                    &self.core,
                    view,
                    Some(&queue.queue),
                    header.min_offset,
                    header.max_offset,
                );
                read.map_err(|error| error.to_string())
            });
            match read {
                Ok(one) if subscription.is_none_or(|wanted| wanted.takes(one.tag())) => {
                    messages.push(one)
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(queue = %queue.queue, %error, "a message that cannot be read is left out")
                }
            }
        }
        messages
    }

    /// What an error says about routes and registration is mended at once.
    pub(crate) async fn recover_from(&self, topic: &str, error: &Error) {
        match error {
            Error::Call(_)
            | Error::BrokerNotFound { .. }
            | Error::NoFilterServer { .. }
            | Error::NoQueue { .. } => {
                let _ = self.core.refresh_route(topic, Duration::from_secs(1)).await;
            }
            Error::Refused { code, .. } => match *code {
                response::SUBSCRIPTION_NOT_EXIST
                | response::SUBSCRIPTION_NOT_LATEST
                | response::FILTER_DATA_NOT_EXIST
                | response::FILTER_DATA_NOT_LATEST => {
                    self.core.want_heartbeat();
                }
                response::TOPIC_NOT_EXIST | response::NO_PERMISSION => {
                    let _ = self.core.refresh_route(topic, Duration::from_secs(1)).await;
                }
                _ => {}
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_filter_server_is_avoided_for_30_seconds() {
        let (servers, now) = (FilterServers::default(), Instant::now());
        let all = ["a:1".to_owned(), "b:1".to_owned()];
        servers.failed("a:1", now);
        assert!((0..50).all(|_| servers.pick(&all, now) == Some("b:1")));
        let later = now + Duration::from_secs(31);
        assert!((0..200).any(|_| servers.pick(&all, later) == Some("a:1")));
        servers.failed("a:1", later);
        servers.failed("b:1", later);
        assert!(
            servers.pick(&all, later).is_some(),
            "better a bad one than none"
        );
        assert!(!servers.has_good(&all, later));
        assert!(servers.has_good(&all, later + AVOID));
        assert_eq!(servers.pick(&[], later), None);
    }
}
