//! One pull: checks, subscription, reading, answer (broker spec 4.1 to 4.6).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_protocol::body::{MessageModel, MessageQueue, OffsetMovedEvent};
use minimq_protocol::code::response;
use minimq_protocol::header::{PullMessageRequest, PullMessageResponse};
use minimq_protocol::properties::{PropertiesBuf, name as property};
use minimq_protocol::subscription::is_tag_type;
use minimq_protocol::sys_flag::pull as pull_flag;
use minimq_protocol::{Command, RequestId, name, perm};
use minimq_remoting::Responder;
use minimq_store::{
    AppendMessage, Blocking, GetRequest, GetResult, GetStatus, QueueOffset, ReadError,
};

use crate::broker::Broker;
use crate::client_registry::{PullFilter, filter_of, property_filter_off};
use crate::config::BrokerConfig;
use crate::filter::stored_bits::Wanted;
use crate::request::{Refusal, RequestContext};
use crate::send::store_one;
use crate::stats::{GetCache, GetItems};

use super::held::Held;

const FAQ: &str = "\nSee http://rocketmq.apache.org/docs/faq/ for further details.";

/// What is read for a pull, apart from the connection it came on.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) group: Arc<str>,
    pub(super) topic: Arc<str>,
    pub(super) queue_id: i32,
    pub(super) offset: i64,
    max_count: usize,
    max_bytes: usize,
    pub(super) filter: Arc<PullFilter>,
    figures: Arc<GetItems>,
    suggested: (i64, i64),
}

/// What a read brought.
pub(super) struct Got {
    result: GetResult,
    records: Vec<Bytes>,
}

/// Code 11 and 361.
pub fn pull(cx: &mut RequestContext<'_, '_>, command: Command) {
    let id = command.id();
    let config = cx.broker.config.to_arc();
    let peer = cx.answers.connection().peer();
    let checked = checked(cx.broker, &mut cx.session.gets, peer, &command, &config);
    let (plan, header) = match checked {
        Ok(checked) => checked,
        Err(refusal) => return cx.reply(id, Err(refusal)),
    };
    let commits = pull_flag::has(header.sys_flag, pull_flag::COMMIT_OFFSET) && !config.is_slave();
    if commits {
        cx.broker.offsets.commit(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.commit_offset,
        );
    }
    let may_wait = pull_flag::has(header.sys_flag, pull_flag::SUSPEND);
    let timeout = if config.broker.long_polling_enable {
        header.suspend_timeout_millis
    } else {
        config.broker.short_polling_time_mills
    };
    let timeout = Duration::from_millis(timeout.clamp(0, 600_000) as u64);
    match plan.read(cx.broker, Blocking::Refused) {
        Ok(got) if may_wait && plan.code_of(got.result.status) == response::PULL_NOT_FOUND => {
            let held = Held::new(plan, cx.answers.later(id), Instant::now() + timeout);
            cx.broker.hold(held, &config);
        }
        Ok(got) => {
            let (code, header) = plan.answer(cx.broker, &config, &got);
            let remark = Some(status_name(got.result.status));
            cx.answers
                .answer_head(id, code, remark, Some(&header), &got.records);
        }
        Err(ReadError::WouldBlock) => {
            let responder = cx.answers.later(id);
            let broker = cx.broker.clone();
            tokio::task::spawn_blocking(move || plan.read_and_respond(&broker, responder));
        }
        Err(error) => cx.reply(id, Err(unreadable(&error))),
    }
}

fn unreadable(error: &ReadError) -> Refusal {
    Refusal::error(format!("store getMessage return null: {error}"))
}

fn checked<'c>(
    broker: &Arc<Broker>,
    gets: &mut GetCache,
    peer: std::net::SocketAddr,
    command: &'c Command,
    config: &BrokerConfig,
) -> Result<(Plan, PullMessageRequest<'c>), Refusal> {
    let header: PullMessageRequest<'c> = command.header()?;
    let (group, topic) = (header.consumer_group, header.topic);
    let forbidden = |remark: String| Refusal::new(response::NO_PERMISSION, remark);
    if !perm::is_readable(config.broker.broker_permission) {
        return Err(forbidden(format!(
            "the broker[{}] pulling message is forbidden",
            broker.identity.store_host.ip()
        )));
    }
    let settings = broker.group_or_create(group).ok_or_else(|| {
        Refusal::new(
            response::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("subscription group [{group}] does not exist, {FAQ}"),
        )
    })?;
    if !settings.consume_enable {
        return Err(forbidden(format!(
            "subscription group no permission, {group}"
        )));
    }
    let known = broker.topics.get(topic).ok_or_else(|| {
        Refusal::new(
            response::TOPIC_NOT_EXIST,
            format!("topic[{topic}] not exist, apply first please! {FAQ}"),
        )
    })?;
    if !perm::is_readable(known.perm) {
        return Err(forbidden(format!(
            "the topic[{topic}] pulling message is forbidden"
        )));
    }
    if header.queue_id < 0 || header.queue_id >= known.read_queue_nums {
        return Err(Refusal::error(format!(
            "queueId[{}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{}] consumer:[{peer}]",
            header.queue_id, known.read_queue_nums
        )));
    }
    let max_count = usize::try_from(header.max_msg_nums).map_err(|_| {
        Refusal::error(format!(
            "maxMsgNums is {}, it must not be negative",
            header.max_msg_nums
        ))
    })?;
    let filter = resolve(broker, &header, settings.consume_broadcast_enable, config)?;
    let plan = Plan {
        group: group.into(),
        topic: topic.into(),
        queue_id: header.queue_id,
        offset: header.queue_offset,
        max_count: max_count.max(1),
        max_bytes: header
            .max_msg_bytes
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(usize::MAX),
        filter,
        figures: gets.items(
            &broker.stats,
            group,
            topic,
            header.queue_id,
            config.broker.enable_detail_stat,
        ),
        suggested: (
            settings.broker_id,
            settings.which_broker_when_consume_slowly,
        ),
    };
    Ok((plan, header))
}

/// The filter of a pull: what it brings along, or what its group's heartbeats said (broker spec 4.2).
fn resolve(
    broker: &Broker,
    header: &PullMessageRequest<'_>,
    may_broadcast: bool,
    config: &BrokerConfig,
) -> Result<Arc<PullFilter>, Refusal> {
    let allowed = |expression_type: &str| {
        if is_tag_type(Some(expression_type)) || config.broker.enable_property_filter {
            Ok(())
        } else {
            Err(property_filter_off(expression_type))
        }
    };
    if pull_flag::has(header.sys_flag, pull_flag::SUBSCRIPTION) {
        let expression_type = header.expression_type.unwrap_or_default();
        let class_filter = pull_flag::has(header.sys_flag, pull_flag::CLASS_FILTER);
        allowed(expression_type)?;
        let text = header.subscription.unwrap_or_default();
        return filter_of(text, header.expression_type, class_filter)
            .map(Arc::new)
            .map_err(|why| {
                let remark = format!("parse the consumer's subscription failed: {why}");
                Refusal::new(response::SUBSCRIPTION_PARSE_FAILED, remark)
            });
    }
    let missing = |what: &str| {
        Refusal::new(
            response::SUBSCRIPTION_NOT_EXIST,
            format!("the consumer's {what} not exist{FAQ}"),
        )
    };
    let found = broker
        .clients
        .subscription(header.consumer_group, header.topic);
    let (model, subscription) = found.ok_or_else(|| missing("group info"))?;
    if !may_broadcast && model == Some(MessageModel::Broadcasting) {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!(
                "the consumer group[{}] can not consume by broadcast way",
                header.consumer_group
            ),
        ));
    }
    let subscription = subscription.ok_or_else(|| missing("subscription"))?;
    if subscription.data.sub_version < header.sub_version {
        return Err(Refusal::new(
            response::SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
        ));
    }
    allowed(&subscription.data.expression_type)?;
    subscription.filter.clone().ok_or_else(|| {
        Refusal::new(
            response::FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        )
    })
}

/// The remark of a pull's answer.
fn status_name(status: GetStatus) -> &'static str {
    match status {
        GetStatus::Found => "FOUND",
        GetStatus::NoMatchedMessage => "NO_MATCHED_MESSAGE",
        GetStatus::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
        GetStatus::OffsetFoundNull => "OFFSET_FOUND_NULL",
        GetStatus::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
        GetStatus::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
        GetStatus::OffsetTooSmall => "OFFSET_TOO_SMALL",
        GetStatus::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
    }
}

impl Plan {
    pub(super) fn read(&self, broker: &Broker, blocking: Blocking) -> Result<Got, ReadError> {
        let request = GetRequest {
            topic: &self.topic,
            queue_id: self.queue_id,
            offset: QueueOffset(self.offset),
            max_count: self.max_count,
            max_bytes: self.max_bytes,
        };
        let mut records = Vec::new();
        let keys = broker.config.get();
        let registered = &*broker.registered_filters;
        let mut wanted = Wanted::new(&self.filter);
        if keys.store.enable_consume_queue_ext {
            wanted = wanted.with_bits(registered, &self.topic, &self.group);
        }
        if keys.broker.filter_support_retry {
            wanted = wanted.with_retry(registered, &self.topic);
        }
        let begun = Instant::now();
        let reader = broker.store.reader();
        let mut result = reader.get(&request, &mut wanted, blocking, &mut records)?;
        if !wanted.holds(registered, &self.topic, &self.group) {
            records.clear();
            let mut wanted = Wanted::new(&self.filter);
            result = reader.get(&request, &mut wanted, blocking, &mut records)?;
        }
        let time = begun.elapsed();
        broker.stats.store.get_took(result.count, time);
        self.figures.took(time.as_millis() as i64);
        Ok(Got { result, records })
    }

    pub(super) fn code_of(&self, status: GetStatus) -> i32 {
        match status {
            GetStatus::Found => response::SUCCESS,
            GetStatus::NoMatchedMessage | GetStatus::MessageWasRemoving => {
                response::PULL_RETRY_IMMEDIATELY
            }
            GetStatus::NoMessageInQueue if self.offset != 0 => response::PULL_OFFSET_MOVED,
            GetStatus::NoMessageInQueue
            | GetStatus::OffsetOverflowOne
            | GetStatus::OffsetFoundNull => response::PULL_NOT_FOUND,
            GetStatus::OffsetOverflowBadly | GetStatus::OffsetTooSmall => {
                response::PULL_OFFSET_MOVED
            }
        }
    }

    fn answer(
        &self,
        broker: &Arc<Broker>,
        config: &BrokerConfig,
        got: &Got,
    ) -> (i32, PullMessageResponse) {
        let result = &got.result;
        if result.count > 0 {
            broker.stats.got(&self.figures, result.count, result.bytes);
        }
        let (normal, slow) = self.suggested;
        let mut suggested = match (
            config.broker.slave_read_enable,
            result.suggest_pulling_from_slave,
        ) {
            (false, _) => 0,
            (true, true) => slow,
            (true, false) => normal,
        };
        let mut code = self.code_of(result.status);
        if code == response::PULL_OFFSET_MOVED {
            if config.is_slave() && !config.store.offset_check_in_slave {
                (code, suggested) = (response::PULL_RETRY_IMMEDIATELY, normal);
            } else {
                self.tell_offset_moved(broker, result.next_begin_offset.get());
            }
        }
        let header = PullMessageResponse {
            suggest_which_broker_id: suggested,
            next_begin_offset: result.next_begin_offset.get(),
            min_offset: result.min_offset.get(),
            max_offset: result.max_offset.get(),
        };
        (code, header)
    }

    /// An event for operators in `OFFSET_MOVED_EVENT` (broker spec 4.5).
    fn tell_offset_moved(&self, broker: &Arc<Broker>, offset_new: i64) {
        if broker.config.get().is_slave() {
            return;
        }
        let event = OffsetMovedEvent {
            consumer_group: self.group.to_string(),
            message_queue: MessageQueue::new(&*self.topic, &broker.identity.name, self.queue_id),
            offset_new,
            offset_request: self.offset,
        };
        let group = self.group.clone();
        broker.in_background(move |broker| {
            let mut properties = PropertiesBuf::new();
            properties.push(property::TAGS, &group);
            properties.push(property::KEYS, &group);
            let stored = store_one(
                broker,
                AppendMessage {
                    topic: name::OFFSET_MOVED_TOPIC,
                    queue_id: 0,
                    flag: 0,
                    sys_flag: 0,
                    born_timestamp: broker.clock.now_ms(),
                    born_host: broker.identity.store_host,
                    store_host: broker.identity.store_host,
                    reconsume_times: 0,
                    prepared_transaction_offset: 0,
                    body: &event.to_wire(),
                    properties: properties.as_str().as_bytes(),
                    appended_properties: &[],
                    joins_previous: false,
                },
            );
            if let Err(error) = stored {
                tracing::warn!(%error, "the event of a moved offset was not stored");
            }
        });
    }

    /// Reads on this thread, which may wait, and answers whatever comes.
    pub(super) fn read_and_respond(self, broker: &Arc<Broker>, responder: Responder) {
        match self.read(broker, Blocking::Allowed) {
            Ok(got) => self.respond(broker, responder, &got),
            Err(error) => {
                let refusal = unreadable(&error);
                responder.refuse(refusal.code, &refusal.remark);
            }
        }
    }

    pub(super) fn respond(&self, broker: &Arc<Broker>, responder: Responder, got: &Got) {
        let (code, header) = self.answer(broker, &broker.config.to_arc(), got);
        responder.respond_head(
            code,
            Some(status_name(got.result.status)),
            Some(&header),
            &got.records,
        );
    }

    /// Identifies the request in logs.
    pub(super) fn describe(&self, id: RequestId) -> String {
        format!(
            "pull {} of {} from {}-{}",
            id.opaque, self.group, self.topic, self.queue_id
        )
    }
}
