//! What a request needs its sender to have (broker spec 14.4, 14.6), with 4.9.8's gaps closed:
//! every code that sends needs PUB on its topic, batches and replies included.
//!
//! Retry and dead-letter topics belong to a group: who may subscribe with the group may use them.

use minimq_protocol::code::request;
use smallvec::SmallVec;

use super::permission::Permission;

/// Prefix of a group's retry topic.
pub(super) const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of a group's dead-letter topic.
pub(super) const DEAD_LETTER_PREFIX: &str = "%DLQ%";

/// What a need is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource<'a> {
    /// A topic, of whatever kind.
    Topic(&'a str),
    /// A consumer group.
    Group(&'a str),
}

/// One thing a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Need<'a> {
    /// On what.
    pub resource: Resource<'a>,
    /// Which permission.
    pub permission: Permission,
}

impl<'a> Need<'a> {
    /// To publish to a topic.
    #[must_use]
    pub const fn publish(topic: &'a str) -> Self {
        Self {
            resource: Resource::Topic(topic),
            permission: Permission::PUB,
        }
    }

    /// To subscribe to a topic.
    #[must_use]
    pub const fn subscribe(topic: &'a str) -> Self {
        Self {
            resource: Resource::Topic(topic),
            permission: Permission::SUB,
        }
    }

    /// To consume as a group.
    #[must_use]
    pub const fn consume_as(group: &'a str) -> Self {
        Self {
            resource: Resource::Group(group),
            permission: Permission::SUB,
        }
    }
}

/// The needs of one request; none or few.
pub type Needs<'a> = SmallVec<[Need<'a>; 2]>;

/// The needs of a request, from its ext fields; `field` gives the last value of a name. `None` for
/// HEART_BEAT (34), whose needs stand in its body: [`Need::consume_as`] for each consumer group and
/// [`Need::subscribe`] for each of its topics.
///
/// A field that is missing makes no need: its request is refused by its handler.
pub fn needs_of<'a>(code: i32, field: impl Fn(&str) -> Option<&'a str>) -> Option<Needs<'a>> {
    let mut needs = Needs::new();
    let topic = || field("topic").map(Need::subscribe);
    let group = |name| field(name).map(Need::consume_as);
    match code {
        request::HEART_BEAT => return None,
        // The short name of V2 headers and the long one, so that no header form is a way around.
        request::SEND_MESSAGE
        | request::SEND_MESSAGE_V2
        | request::SEND_BATCH_MESSAGE
        | request::SEND_REPLY_MESSAGE
        | request::SEND_REPLY_MESSAGE_V2 => {
            let short = if code == request::SEND_MESSAGE || code == request::SEND_REPLY_MESSAGE {
                None
            } else {
                field("b")
            };
            let long = field("topic").filter(|long| Some(*long) != short);
            needs.extend(short.into_iter().chain(long).map(Need::publish));
        }
        request::CONSUMER_SEND_MSG_BACK => needs.extend(group("group")),
        request::PULL_MESSAGE
        | request::LITE_PULL_MESSAGE
        | request::UPDATE_CONSUMER_OFFSET
        | request::REGISTER_MESSAGE_FILTER_CLASS => {
            needs.extend(topic());
            needs.extend(group("consumerGroup"));
        }
        request::QUERY_MESSAGE => needs.extend(topic()),
        request::UNREGISTER_CLIENT | request::GET_CONSUMER_LIST_BY_GROUP => {
            needs.extend(group("consumerGroup"))
        }
        _ => {}
    }
    Some(needs)
}

/// Codes of a broker that change what all its clients share: for admin accounts only. 4.9.8 knows
/// but 17, 25, 200, 207 and 215; it leaves 50 to 53 open, by which any account makes itself admin.
pub const BROKER_ADMIN_CODES: &[i32] = &[
    request::UPDATE_AND_CREATE_TOPIC,
    request::UPDATE_BROKER_CONFIG,
    request::UPDATE_AND_CREATE_ACL_CONFIG,
    request::DELETE_ACL_CONFIG,
    request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    request::DELETE_SUBSCRIPTIONGROUP,
    request::DELETE_TOPIC_IN_BROKER,
    request::INVOKE_BROKER_TO_RESET_OFFSET,
    request::REGISTER_FILTER_SERVER,
    request::CLEAN_EXPIRED_CONSUMEQUEUE,
    request::CLONE_GROUP_OFFSET,
    request::CLEAN_UNUSED_TOPIC,
    request::RESUME_CHECK_HALF_MESSAGE,
    request::DELETE_EXPIRED_COMMITLOG,
];
