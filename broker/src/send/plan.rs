//! From a send request to what is to be stored, or to its refusal; everything that needs no lock (broker spec 3.2
//! to 3.4).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use minimq_protocol::batch;
use minimq_protocol::body::{TopicConfig, TopicFilterType};
use minimq_protocol::code::response;
use minimq_protocol::header::SendMessageRequest;
use minimq_protocol::properties::name as property;
use minimq_protocol::sys_flag::message as message_flag;
use minimq_protocol::{Command, RequestId, name, perm};
use minimq_store::AppendMessage;

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::request::Refusal;
use crate::topic::Wanted;

use super::properties::rewrite;

/// First version whose `maxReconsumeTimes` counts (V3_4_9).
const RECONSUME_LIMIT_VERSION: i32 = 121;

/// A send that may be stored.
#[derive(Debug)]
pub(super) struct Plan<'c> {
    pub(super) id: RequestId,
    header: SendMessageRequest<'c>,
    body: &'c [u8],
    /// Topic and queue it is stored under.
    pub(super) topic: Cow<'c, str>,
    pub(super) queue_id: i32,
    sys_flag: i32,
    /// Where its properties lie in the scratch buffer.
    properties: Range<usize>,
    /// Queue told to the sender.
    pub(super) answered_queue_id: i32,
    pub(super) waits: bool,
    /// Messages it consists of.
    pub(super) count: usize,
}

/// What all plans of one read share.
pub(super) struct Planner<'p> {
    pub(super) broker: &'p Arc<Broker>,
    pub(super) config: &'p BrokerConfig,
    pub(super) peer: std::net::SocketAddr,
    pub(super) now_ms: i64,
    /// The topic of the last send that may be sent to: the next one is likely to have the same.
    pub(super) last_topic: Option<Arc<TopicConfig>>,
}

impl Planner<'_> {
    /// Checks a request and plans its messages; its properties are written to `scratch`.
    pub(super) fn plan<'c>(
        &mut self,
        command: &'c Command,
        scratch: &mut Vec<u8>,
    ) -> Result<Plan<'c>, Refusal> {
        let header = SendMessageRequest::decode_for(command.code, &command.ext)?;
        let (topic, queue_id) = self.target(&header)?;
        let multi_tag = match topic.topic_filter_type {
            TopicFilterType::MultiTag => message_flag::MULTI_TAGS,
            TopicFilterType::SingleTag => 0,
        };
        let plan = Plan {
            id: command.id(),
            body: &command.body,
            topic: Cow::Borrowed(header.topic),
            queue_id,
            sys_flag: header.sys_flag | multi_tag,
            properties: 0..0,
            answered_queue_id: queue_id,
            waits: true,
            count: 1,
            header,
        };
        if plan.header.batch {
            self.batch(plan, scratch)
        } else {
            self.single(plan, command.version, scratch)
        }
    }

    /// The topic and queue a message is sent to: the checks of all sends.
    pub(super) fn target(
        &mut self,
        header: &SendMessageRequest<'_>,
    ) -> Result<(&TopicConfig, i32), Refusal> {
        self.check_open()?;
        let topic = match self.last_topic.take() {
            Some(last) if last.topic_name == header.topic => last,
            _ => self.topic_of(header)?,
        };
        let topic = &**self.last_topic.insert(topic);
        let queues = topic.write_queue_nums.max(topic.read_queue_nums);
        if header.queue_id >= queues {
            return Err(Refusal::error(format!(
                "request queueId[{}] is illegal, {} Producer: {}",
                header.queue_id,
                topic_text(topic),
                self.peer
            )));
        }
        let queue_id = match header.queue_id {
            given @ 0.. => given,
            _ if topic.write_queue_nums > 0 => self.broker.random_below(topic.write_queue_nums),
            _ => {
                let remark = format!(
                    "the topic[{}] has no write queue to choose from",
                    topic.topic_name
                );
                return Err(Refusal::error(remark));
            }
        };
        Ok((topic, queue_id))
    }

    fn check_open(&self) -> Result<(), Refusal> {
        let opens = self.config.broker.start_accept_send_request_time_stamp;
        if self.now_ms < opens {
            return Err(Refusal::error(format!(
                "broker unable to service, until {}",
                local_time(opens)
            )));
        }
        Ok(())
    }

    fn topic_of(&self, header: &SendMessageRequest<'_>) -> Result<Arc<TopicConfig>, Refusal> {
        // A topic that is known has a valid name.
        let known = self.broker.topics.get(header.topic);
        if known.is_none() {
            name::validate_topic(header.topic)
                .map_err(|error| Refusal::error(error.to_string()))?;
        }
        if !perm::is_writable(self.config.broker.broker_permission)
            && known.as_ref().is_some_and(|t| t.order)
        {
            return Err(self.broker_forbidden("message"));
        }
        if name::is_send_forbidden(header.topic) {
            return Err(Refusal::new(
                response::NO_PERMISSION,
                name::send_forbidden_remark(header.topic),
            ));
        }
        match known {
            Some(topic) => Ok(topic),
            None => self.broker.topic_for_send(Wanted {
                topic: header.topic,
                default_topic: header.default_topic,
                queues: header.default_topic_queue_nums,
                unit_mode: header.unit_mode,
            }),
        }
    }

    fn broker_forbidden(&self, what: &str) -> Refusal {
        let host = self.broker.identity.store_host.ip();
        Refusal::new(
            response::NO_PERMISSION,
            format!("the broker[{host}] sending {what} is forbidden"),
        )
    }

    fn single<'c>(
        &self,
        mut plan: Plan<'c>,
        version: i32,
        scratch: &mut Vec<u8>,
    ) -> Result<Plan<'c>, Refusal> {
        if let Some(group) = name::group_of_retry_topic(plan.header.topic) {
            self.dead_letter(&mut plan, group, version)?;
        }
        let cluster = (property::CLUSTER, self.broker.identity.cluster.as_str());
        let text = plan.header.properties.unwrap_or_default().as_bytes();
        let found = rewrite(text, &[cluster], scratch)?;
        plan.waits = found.waits;
        plan.properties = found.text;
        if !found.is_half && found.delay_level <= 0 {
            return Ok(plan);
        }
        let real = plan.topic.clone();
        let real_queue = plan.queue_id.to_string();
        let origin = [
            cluster,
            (property::REAL_TOPIC, real.as_ref()),
            (property::REAL_QID, real_queue.as_str()),
        ];
        // A retried half message of old clients comes with a delay level and is an ordinary message.
        let is_retry = plan.header.reconsume_times.unwrap_or(0) > 0 && found.delay_level > 0;
        if found.is_half && !is_retry {
            if self.config.broker.reject_transaction_message {
                return Err(self.broker_forbidden("transaction message"));
            }
            plan.properties = rewrite(text, &origin, scratch)?.text;
            plan.topic = Cow::Borrowed(name::TRANS_HALF_TOPIC);
            plan.queue_id = 0;
            plan.sys_flag =
                message_flag::with_transaction(plan.sys_flag, message_flag::TRANSACTION_NONE);
            return Ok(plan);
        }
        let transaction = message_flag::transaction(plan.sys_flag);
        let may_delay = matches!(
            transaction,
            message_flag::TRANSACTION_NONE | message_flag::TRANSACTION_COMMIT
        );
        if found.delay_level > 0 && may_delay {
            let level = found.delay_level.min(self.broker.delay_levels.max_level());
            let level_text = level.to_string();
            let [cluster, topic, queue] = origin;
            let delayed = [
                cluster,
                (property::DELAY, level_text.as_str()),
                topic,
                queue,
            ];
            plan.properties = rewrite(text, &delayed, scratch)?.text;
            plan.topic = Cow::Borrowed(name::SCHEDULE_TOPIC);
            plan.queue_id = level - 1;
        }
        Ok(plan)
    }

    /// A message sent to a retry topic too often goes to the dead letters instead.
    fn dead_letter(&self, plan: &mut Plan<'_>, group: &str, version: i32) -> Result<(), Refusal> {
        let settings = self
            .broker
            .group_or_create(group)
            .ok_or_else(|| group_missing(group))?;
        let limit = plan
            .header
            .max_reconsume_times
            .filter(|_| version >= RECONSUME_LIMIT_VERSION)
            .unwrap_or(settings.retry_max_times);
        if plan.header.reconsume_times.unwrap_or(0) >= limit {
            let topic = name::dlq_topic(group);
            self.broker
                .topic_or_create(&topic, 1, perm::READ | perm::WRITE, 0);
            plan.topic = Cow::Owned(topic);
            plan.queue_id = 0;
        }
        Ok(())
    }

    fn batch<'c>(&self, mut plan: Plan<'c>, scratch: &mut Vec<u8>) -> Result<Plan<'c>, Refusal> {
        let illegal = || self.broker.illegal_message(self.config);
        let text = plan.header.properties.unwrap_or_default().as_bytes();
        let cluster = (property::CLUSTER, self.broker.identity.cluster.as_str());
        let found = rewrite(text, &[cluster], scratch)?;
        let limit = usize::try_from(self.config.store.max_message_size).unwrap_or(0);
        let transactional =
            message_flag::transaction(plan.sys_flag) != message_flag::TRANSACTION_NONE;
        if plan.body.len() > limit || transactional || found.delay_level > 0 {
            return Err(illegal());
        }
        plan.waits = found.waits;
        plan.properties = found.text;
        plan.count = 0;
        for record in batch::records(plan.body) {
            record.map_err(|error| Refusal::new(response::MESSAGE_ILLEGAL, error.to_string()))?;
            plan.count += 1;
        }
        if plan.count == 0 {
            return Err(Refusal::new(
                response::MESSAGE_ILLEGAL,
                "the batch holds no message",
            ));
        }
        Ok(plan)
    }

    /// Adds a plan's messages.
    pub(super) fn messages<'m>(
        &self,
        plan: &'m Plan<'_>,
        scratch: &'m [u8],
        out: &mut Vec<AppendMessage<'m>>,
    ) {
        let properties = scratch.get(plan.properties.clone()).unwrap_or_default();
        let message = AppendMessage {
            topic: &plan.topic,
            queue_id: plan.queue_id,
            flag: plan.header.flag,
            sys_flag: plan.sys_flag,
            born_timestamp: plan.header.born_timestamp,
            born_host: self.peer,
            store_host: self.broker.identity.store_host,
            reconsume_times: plan.header.reconsume_times.unwrap_or(0),
            prepared_transaction_offset: 0,
            body: plan.body,
            properties,
            appended_properties: &[],
            joins_previous: false,
        };
        if !plan.header.batch {
            out.push(message);
            return;
        }
        // All were read without error when the plan was made.
        for (index, record) in batch::records(plan.body).flatten().enumerate() {
            out.push(AppendMessage {
                flag: record.flag,
                body: record.body,
                properties: record.properties,
                appended_properties: properties,
                joins_previous: index > 0,
                ..message
            });
        }
    }
}

/// The refusal for a group that is not there and does not appear by itself.
pub(crate) fn group_missing(group: &str) -> Refusal {
    let remark = format!(
        "subscription group not exist, {group} \nSee http://rocketmq.apache.org/docs/faq/ for further details."
    );
    Refusal::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
}

/// A topic's settings as remarks show them.
pub(crate) fn topic_text(topic: &TopicConfig) -> String {
    format!(
        "TopicConfig [topicName={}, readQueueNums={}, writeQueueNums={}, perm={}, topicFilterType={}, topicSysFlag={}, order={}]",
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        perm::text(topic.perm),
        topic.topic_filter_type,
        topic.topic_sys_flag,
        topic.order
    )
}

/// `yyyy-MM-dd HH:mm:ss,SSS` in the machine's time zone.
pub(crate) fn local_time(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    let zoned = time.to_zoned(jiff::tz::TimeZone::system());
    format!(
        "{},{:03}",
        zoned.strftime("%Y-%m-%d %H:%M:%S"),
        ms.rem_euclid(1000)
    )
}
