//! Topics that come into being by themselves: at a send, for a group's retries, for dead letters (broker spec 2.4).

use std::sync::Arc;

use minimq_protocol::body::TopicConfig;
use minimq_protocol::code::response;
use minimq_protocol::{name, perm};

use crate::broker::Broker;
use crate::request::Refusal;

/// Bit of `topicSysFlag`: a unit topic.
const UNIT: i32 = 1;
/// Bit of `topicSysFlag`: has a unit subscription.
const UNIT_SUBSCRIPTION: i32 = 2;

/// What a send says of a topic that may have to be made.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The topic.
    pub topic: &'a str,
    /// Template, normally `TBW102`.
    pub default_topic: &'a str,
    /// Queues wanted.
    pub queues: i32,
    /// Unit mode.
    pub unit_mode: bool,
}

impl Broker {
    /// The topic of a send, made if it may be.
    ///
    /// # Errors
    /// TOPIC_NOT_EXIST.
    pub fn topic_for_send(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
    ) -> Result<Arc<TopicConfig>, Refusal> {
        if let Some(topic) = self.topics.get(wanted.topic) {
            return Ok(topic);
        }
        if let Some(topic) = self.topic_from_template(wanted) {
            return Ok(self.add_topic(topic));
        }
        if wanted.topic.starts_with(name::RETRY_PREFIX) {
            let flag = if wanted.unit_mode {
                UNIT_SUBSCRIPTION
            } else {
                0
            };
            return Ok(self.topic_or_create(wanted.topic, 1, perm::READ | perm::WRITE, flag));
        }
        let remark = format!(
            "topic[{}] not exist, apply first please!\nSee http://rocketmq.apache.org/docs/faq/ for further details.",
            wanted.topic
        );
        Err(Refusal::new(response::TOPIC_NOT_EXIST, remark))
    }

    fn topic_from_template(&self, wanted: Wanted<'_>) -> Option<TopicConfig> {
        let config = self.config.get();
        let template = self.topics.get(wanted.default_topic)?;
        let switched_off = wanted.default_topic == name::AUTO_CREATE_TOPIC
            && !config.broker.auto_create_topic_enable;
        let full = self.topics.len() >= config.max_topics;
        if switched_off || full || !perm::is_inherited(template.perm) {
            return None;
        }
        let queues = wanted.queues.min(template.write_queue_nums).max(0);
        Some(TopicConfig {
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: template.perm & !perm::INHERIT,
            topic_filter_type: template.topic_filter_type,
            topic_sys_flag: match (
                wanted.unit_mode,
                wanted.topic.starts_with(name::RETRY_PREFIX),
            ) {
                (true, true) => UNIT_SUBSCRIPTION,
                (true, false) => UNIT,
                (false, _) => 0,
            },
            ..TopicConfig::new(wanted.topic)
        })
    }

    /// The topic, made with these settings if it is not there.
    pub fn topic_or_create(
        self: &Arc<Self>,
        topic: &str,
        queues: i32,
        perm: i32,
        sys_flag: i32,
    ) -> Arc<TopicConfig> {
        if let Some(topic) = self.topics.get(topic) {
            self.topics.save_what_is_being_made();
            return topic;
        }
        let queues = queues.min(super::MAX_QUEUES);
        self.add_topic(TopicConfig {
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm,
            topic_sys_flag: sys_flag,
            ..TopicConfig::new(topic)
        })
    }

    fn add_topic(self: &Arc<Self>, topic: TopicConfig) -> Arc<TopicConfig> {
        let (topic, new) = self.topics.make(topic, self.clock.now_ms());
        if new {
            tracing::info!(topic = %topic.topic_name, queues = topic.write_queue_nums, "topic created");
            self.registration.changed();
        } else {
            self.topics.save_what_is_being_made();
        }
        topic
    }
}
