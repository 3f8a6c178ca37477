//! Names of topics and groups: what may be one, which are reserved, retry and dead-letter names, namespaces
//! (broker spec 2.2 and 2.3, client spec 1.14 and 3.2).
//!
//! Cluster name, broker name and `<cluster>_REPLY_TOPIC` are reserved too, but only a broker knows them.

use std::borrow::Cow;

/// Prefix of a group's retry topic.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of a group's dead-letter topic.
pub const DLQ_PREFIX: &str = "%DLQ%";
/// Prefix of a light queue.
pub const LMQ_PREFIX: &str = "%LMQ%";
/// End of a cluster's reply topic, behind the cluster name.
pub const REPLY_TOPIC_POSTFIX: &str = "REPLY_TOPIC";
/// Prefix of groups that exist without being created and have no namespace.
pub const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";
/// Prefix of topics that are reserved whatever follows.
pub const SYSTEM_TOPIC_PREFIX: &str = "rmq_sys_";
/// Between a namespace and what it qualifies.
pub const NAMESPACE_SEPARATOR: char = '%';

/// Topic whose settings an automatically created topic takes.
pub const AUTO_CREATE_TOPIC: &str = "TBW102";
/// Topic in which delayed messages wait.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Topic of the benchmark tools.
pub const BENCHMARK_TOPIC: &str = "BenchmarkTest";
/// Topic of half messages.
pub const TRANS_HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// Topic that marks half messages as done.
pub const TRANS_OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Topic of half messages that were given up.
pub const TRANS_CHECK_MAX_TIME_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Default topic of message traces.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// Topic of self tests.
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
/// Topic of events about moved offsets.
pub const OFFSET_MOVED_TOPIC: &str = "OFFSET_MOVED_EVENT";

/// Topics that cannot be created, updated or deleted; see also [`SYSTEM_TOPIC_PREFIX`].
pub const SYSTEM_TOPICS: [&str; 9] = [
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    BENCHMARK_TOPIC,
    TRANS_HALF_TOPIC,
    TRACE_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
];

/// Group of the admin tools.
pub const TOOLS_CONSUMER_GROUP: &str = "TOOLS_CONSUMER";
/// Group under which filter servers pull.
pub const FILTERSRV_CONSUMER_GROUP: &str = "FILTERSRV_CONSUMER";
/// Group that reads the transaction topics.
pub const TRANS_CONSUMER_GROUP: &str = "CID_RMQ_SYS_TRANS";
/// Group of clients that chose none.
pub const DEFAULT_CONSUMER_GROUP: &str = "DEFAULT_CONSUMER";
/// Producer group of clients that chose none.
pub const DEFAULT_PRODUCER_GROUP: &str = "DEFAULT_PRODUCER";
/// Producer group that each client has for its own messages.
pub const CLIENT_INNER_PRODUCER_GROUP: &str = "CLIENT_INNER_PRODUCER";

/// Longest topic, in characters.
pub const MAX_TOPIC_LEN: usize = 127;
/// Longest group, in characters.
pub const MAX_GROUP_LEN: usize = 255;

/// Why a broker refuses a topic name. The text is the remark of the answer, its code is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicNameError {
    /// Empty or only white space.
    #[error("The specified topic is blank.")]
    Blank,
    /// A character outside the alphabet.
    #[error("The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")]
    IllegalCharacters,
    /// More than [`MAX_TOPIC_LEN`] characters.
    #[error("The specified topic is longer than topic max length.")]
    TooLong,
}

/// Why a client refuses a topic or group name of its user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientNameError {
    /// The topic is empty or only white space.
    #[error("The specified topic is blank")]
    TopicBlank,
    /// The topic holds a character outside the alphabet.
    #[error(
        "The specified topic[{topic}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    )]
    TopicIllegalCharacters {
        /// The name.
        topic: String,
    },
    /// The topic has more than [`MAX_TOPIC_LEN`] characters.
    #[error("The specified topic is longer than topic max length {MAX_TOPIC_LEN}.")]
    TopicTooLong,
    /// Clients may not send to this topic.
    #[error("Sending message to topic[{topic}] is forbidden.")]
    SendForbidden {
        /// The name.
        topic: String,
    },
    /// The group is empty or only white space.
    #[error("the specified group is blank")]
    GroupBlank,
    /// The group holds a character outside the alphabet.
    #[error(
        "the specified group[{group}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    )]
    GroupIllegalCharacters {
        /// The name.
        group: String,
    },
    /// The group has more than [`MAX_GROUP_LEN`] characters.
    #[error("the specified group is longer than group max length {MAX_GROUP_LEN}.")]
    GroupTooLong,
}

/// The broker's check of a topic name. Groups are not checked by the broker.
pub fn validate_topic(topic: &str) -> Result<(), TopicNameError> {
    if is_blank(topic) {
        Err(TopicNameError::Blank)
    } else if !is_of_alphabet(topic) {
        Err(TopicNameError::IllegalCharacters)
    } else if topic.len() > MAX_TOPIC_LEN {
        Err(TopicNameError::TooLong)
    } else {
        Ok(())
    }
}

/// A client's check of a topic, before it is used.
pub fn check_topic(topic: &str) -> Result<(), ClientNameError> {
    validate_topic(topic).map_err(|error| match error {
        TopicNameError::Blank => ClientNameError::TopicBlank,
        TopicNameError::IllegalCharacters => ClientNameError::TopicIllegalCharacters {
            topic: topic.to_owned(),
        },
        TopicNameError::TooLong => ClientNameError::TopicTooLong,
    })
}

/// A client's check that it may send to a topic.
pub fn check_send_allowed(topic: &str) -> Result<(), ClientNameError> {
    if is_send_forbidden(topic) {
        return Err(ClientNameError::SendForbidden {
            topic: topic.to_owned(),
        });
    }
    Ok(())
}

/// A client's check of a group, before it is used.
pub fn check_group(group: &str) -> Result<(), ClientNameError> {
    if is_blank(group) {
        Err(ClientNameError::GroupBlank)
    } else if !is_of_alphabet(group) {
        Err(ClientNameError::GroupIllegalCharacters {
            group: group.to_owned(),
        })
    } else if group.len() > MAX_GROUP_LEN {
        Err(ClientNameError::GroupTooLong)
    } else {
        Ok(())
    }
}

/// Whether a text is empty or only what Java calls white space.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|character| match character {
        '\t'..='\r' | '\u{1C}'..='\u{1F}' => true,
        // The no-break spaces, and next line, which is a control character to Java.
        '\u{85}' | '\u{A0}' | '\u{2007}' | '\u{202F}' => false,
        other => other.is_whitespace(),
    })
}

fn is_of_alphabet(name: &str) -> bool {
    name.bytes().all(
        |byte| matches!(byte, b'%' | b'|' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z'),
    )
}

/// Whether a topic is reserved: cannot be created, updated or deleted, and has no namespace.
#[must_use]
pub fn is_system_topic(topic: &str) -> bool {
    SYSTEM_TOPICS.contains(&topic) || topic.starts_with(SYSTEM_TOPIC_PREFIX)
}

/// The remark, with code 1, that refuses to touch a reserved topic.
#[must_use]
pub fn system_topic_remark(topic: &str) -> String {
    format!("The topic[{topic}] is conflict with system topic.")
}

/// Whether clients may not send to a topic.
#[must_use]
pub fn is_send_forbidden(topic: &str) -> bool {
    matches!(
        topic,
        SCHEDULE_TOPIC
            | TRANS_HALF_TOPIC
            | TRANS_OP_HALF_TOPIC
            | TRANS_CHECK_MAX_TIME_TOPIC
            | SELF_TEST_TOPIC
            | OFFSET_MOVED_TOPIC
    )
}

/// The remark, with code 16, that refuses a send to a topic.
#[must_use]
pub fn send_forbidden_remark(topic: &str) -> String {
    format!("Sending message to topic[{topic}] is forbidden.")
}

/// Whether a consumer group is one of the system's own.
#[must_use]
pub fn is_system_group(group: &str) -> bool {
    group.starts_with(SYSTEM_GROUP_PREFIX)
}

/// The topic through which failed messages of a group come again.
#[must_use]
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// The topic where messages of a group end that failed too often.
#[must_use]
pub fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}

/// The topic of replies in a cluster.
#[must_use]
pub fn reply_topic(cluster: &str) -> String {
    format!("{cluster}_{REPLY_TOPIC_POSTFIX}")
}

/// The group of a retry topic; `None` for any other topic.
#[must_use]
pub fn group_of_retry_topic(topic: &str) -> Option<&str> {
    topic.strip_prefix(RETRY_PREFIX)
}

/// The group of a dead-letter topic; `None` for any other topic.
#[must_use]
pub fn group_of_dlq_topic(topic: &str) -> Option<&str> {
    topic.strip_prefix(DLQ_PREFIX)
}

/// Qualifies a topic or group with a namespace, unless it is the system's own or already qualified with it.
#[must_use]
pub fn with_namespace<'a>(resource: &'a str, namespace: &str) -> Cow<'a, str> {
    if namespace.is_empty() || resource.is_empty() || is_system_resource(resource) {
        return resource.into();
    }
    let (prefix, name) = split_prefix(resource);
    if qualified_by(name, namespace) {
        return resource.into();
    }
    format!("{prefix}{namespace}{NAMESPACE_SEPARATOR}{name}").into()
}

/// Removes whatever namespace a topic or group is qualified with.
#[must_use]
pub fn without_any_namespace(resource: &str) -> Cow<'_, str> {
    if is_system_resource(resource) {
        return resource.into();
    }
    let (prefix, name) = split_prefix(resource);
    match split_namespace(name) {
        Some((_, name)) if prefix.is_empty() => name.into(),
        Some((_, name)) => format!("{prefix}{name}").into(),
        None => resource.into(),
    }
}

/// Removes one certain namespace from a topic or group; another one stays.
#[must_use]
pub fn without_namespace<'a>(resource: &'a str, namespace: &str) -> Cow<'a, str> {
    if namespace.is_empty() || !qualified_by(split_prefix(resource).1, namespace) {
        return resource.into();
    }
    without_any_namespace(resource)
}

/// The namespace that a topic or group is qualified with; empty if there is none.
#[must_use]
pub fn namespace_of(resource: &str) -> &str {
    if is_system_resource(resource) {
        return "";
    }
    split_namespace(split_prefix(resource).1).map_or("", |(namespace, _)| namespace)
}

fn is_system_resource(resource: &str) -> bool {
    is_system_topic(resource) || is_system_group(resource)
}

/// Takes `%RETRY%` or `%DLQ%` off the front.
fn split_prefix(resource: &str) -> (&str, &str) {
    for prefix in [RETRY_PREFIX, DLQ_PREFIX] {
        if let Some(name) = resource.strip_prefix(prefix) {
            return (prefix, name);
        }
    }
    ("", resource)
}

fn split_namespace(name: &str) -> Option<(&str, &str)> {
    name.split_once(NAMESPACE_SEPARATOR)
        .filter(|(namespace, _)| !namespace.is_empty())
}

fn qualified_by(name: &str, namespace: &str) -> bool {
    name.strip_prefix(namespace)
        .is_some_and(|rest| rest.starts_with(NAMESPACE_SEPARATOR))
}
