//! A consumer gives a message back to get it again later: code 36 (broker spec 3.8).

use std::sync::Arc;

use minimq_protocol::code::response;
use minimq_protocol::header::ConsumerSendMsgBackRequest;
use minimq_protocol::message::MessageView;
use minimq_protocol::properties::{Properties, PropertiesBuf, name as property};
use minimq_protocol::{Command, name, perm};
use minimq_store::{AppendMessage, Blocking, PhysicalOffset};

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success};

use super::plan::group_missing;
use super::store_one;

const READ_WRITE: i32 = perm::READ | perm::WRITE;
/// First version whose `maxReconsumeTimes` counts (V3_4_9).
const RECONSUME_LIMIT_VERSION: i32 = 121;
/// Bit of `topicSysFlag`: has a unit subscription.
const UNIT_SUBSCRIPTION: i32 = 2;

/// Code 36.
pub fn send_back(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: ConsumerSendMsgBackRequest<'_> = request.header()?;
    let config = broker.config.to_arc();
    let group = header.group;
    let settings = broker
        .group_or_create(group)
        .ok_or_else(|| group_missing(group))?;
    let forbidden = |what: String| {
        Refusal::new(
            response::NO_PERMISSION,
            format!("the {what} sending message is forbidden"),
        )
    };
    if !perm::is_writable(config.broker.broker_permission) {
        return Err(forbidden(format!(
            "broker[{}]",
            broker.identity.store_host.ip()
        )));
    }
    if settings.retry_queue_nums <= 0 {
        tracing::warn!(
            group,
            offset = header.offset,
            "message dropped: the group has no retry queues"
        );
        return Ok(success(request));
    }
    let retry_topic = name::retry_topic(group);
    let flag = if header.unit_mode {
        UNIT_SUBSCRIPTION
    } else {
        0
    };
    let topic = broker.topic_or_create(&retry_topic, settings.retry_queue_nums, READ_WRITE, flag);
    if !perm::is_writable(topic.perm) {
        return Err(forbidden(format!("topic[{retry_topic}]")));
    }
    let missing = |why: &str| {
        Refusal::error(format!(
            "look message by offset failed, {}{why}",
            header.offset
        ))
    };
    let record = broker
        .store
        .reader()
        .record(PhysicalOffset(header.offset), Blocking::Allowed);
    let record = record
        .map_err(|error| missing(&format!(": {error}")))?
        .ok_or_else(|| missing(""))?;
    let message = MessageView::parse(record).map_err(|error| missing(&format!(": {error}")))?;

    let limit = header
        .max_reconsume_times
        .filter(|_| request.version >= RECONSUME_LIMIT_VERSION)
        .unwrap_or(settings.retry_max_times);
    let dead = message.reconsume_times() >= limit || header.delay_level < 0;
    let level = match header.delay_level {
        0 => message.reconsume_times().saturating_add(3),
        level => level,
    };
    let (target, queue_id) = if dead {
        let topic = name::dlq_topic(group);
        broker.topic_or_create(&topic, 1, READ_WRITE, 0);
        (topic, 0)
    } else {
        (retry_topic, broker.random_below(settings.retry_queue_nums))
    };
    let copy = Copy {
        message: &message,
        target: &target,
        queue_id,
        level: if dead { 0 } else { level },
    };
    match store_one(broker, copy.to_append(broker, &copy.properties(broker))) {
        Ok(_) => {
            broker.stats.sent_back(message.topic(), group);
            Ok(success(request))
        }
        Err(error) => {
            let status = broker.append_refusal(&config, &error);
            Err(Refusal::error(format!(
                "the message was not stored again: {}",
                status.remark
            )))
        }
    }
}

/// The copy of a message that comes again.
struct Copy<'c> {
    message: &'c MessageView,
    target: &'c str,
    queue_id: i32,
    /// 0: at once.
    level: i32,
}

impl Copy<'_> {
    fn delayed(&self, broker: &Broker) -> Option<i32> {
        (self.level > 0).then(|| self.level.min(broker.delay_levels.max_level()))
    }

    fn properties(&self, broker: &Broker) -> PropertiesBuf {
        let old: Properties<'_> = self.message.properties();
        let level = self.delayed(broker).unwrap_or(0).to_string();
        let offset_id = self.message.message_id().to_string();
        let queue_id = self.queue_id.to_string();
        let mut added = vec![
            (
                property::RETRY_TOPIC,
                old.get(property::RETRY_TOPIC)
                    .unwrap_or(self.message.topic()),
            ),
            (
                property::ORIGIN_MESSAGE_ID,
                old.get(property::ORIGIN_MESSAGE_ID).unwrap_or(&offset_id),
            ),
            (property::DELAY, &level),
        ];
        if self.level > 0 {
            added.push((property::REAL_TOPIC, self.target));
            added.push((property::REAL_QID, &queue_id));
        }
        let mut properties = PropertiesBuf::new();
        for (name, value) in old.iter() {
            if added.iter().all(|(new, _)| *new != name) {
                properties.push(name, value);
            }
        }
        for (name, value) in added {
            properties.push(name, value);
        }
        properties
    }

    fn to_append<'m>(
        &'m self,
        broker: &Broker,
        properties: &'m PropertiesBuf,
    ) -> AppendMessage<'m> {
        let (topic, queue_id) = match self.delayed(broker) {
            Some(level) => (name::SCHEDULE_TOPIC, level - 1),
            None => (self.target, self.queue_id),
        };
        AppendMessage {
            topic,
            queue_id,
            flag: self.message.flag(),
            sys_flag: self.message.sys_flag(),
            born_timestamp: self.message.born_timestamp(),
            born_host: self.message.born_host(),
            store_host: self.message.store_host(),
            reconsume_times: self.message.reconsume_times().saturating_add(1),
            prepared_transaction_offset: 0,
            body: self.message.body(),
            properties: properties.as_str().as_bytes(),
            appended_properties: &[],
            joins_previous: false,
        }
    }
}
