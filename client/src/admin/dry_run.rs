//! Requests that would change something, written down instead of being sent.

use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::code::request;
use parking_lot::Mutex;

use super::Admin;

/// Requests written down at most; those after it are left out.
const MAX_PLANNED: usize = 100_000;

/// Codes of requests that change something at a name server, broker or filter server.
const CHANGING: &[i32] = &[
    request::UPDATE_CONSUMER_OFFSET,
    request::UPDATE_AND_CREATE_TOPIC,
    request::UPDATE_BROKER_CONFIG,
    request::UPDATE_AND_CREATE_ACL_CONFIG,
    request::DELETE_ACL_CONFIG,
    request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    request::PUT_KV_CONFIG,
    request::DELETE_KV_CONFIG,
    request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    request::WIPE_WRITE_PERM_OF_BROKER,
    request::DELETE_SUBSCRIPTIONGROUP,
    request::DELETE_TOPIC_IN_BROKER,
    request::DELETE_TOPIC_IN_NAMESRV,
    request::INVOKE_BROKER_TO_RESET_OFFSET,
    request::REGISTER_MESSAGE_FILTER_CLASS,
    request::CLEAN_EXPIRED_CONSUMEQUEUE,
    request::CONSUME_MESSAGE_DIRECTLY,
    request::CLONE_GROUP_OFFSET,
    request::CLEAN_UNUSED_TOPIC,
    request::UPDATE_NAMESRV_CONFIG,
    request::RESUME_CHECK_HALF_MESSAGE,
    request::ADD_WRITE_PERM_OF_BROKER,
    request::DELETE_EXPIRED_COMMITLOG,
];

/// A request that a dry run did not send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRequest {
    /// Where it would have gone.
    pub addr: String,
    /// Its code.
    pub code: i32,
    /// Its header fields.
    pub fields: Vec<(String, String)>,
    /// Its body, if that is text.
    pub body: String,
}

/// What a dry run has written down.
#[derive(Debug, Default)]
pub(super) struct Plan {
    requests: Mutex<Vec<PlannedRequest>>,
}

impl Admin {
    /// From here on requests that change something are not sent but written down, see [`planned`](Self::planned), and count as
    /// done; the others are sent.
    pub fn dry_run(mut self) -> Self {
        self.plan = Some(Arc::default());
        self
    }

    /// What a dry run would have sent so far.
    pub fn planned(&self) -> Vec<PlannedRequest> {
        self.plan
            .as_ref()
            .map(|plan| plan.requests.lock().clone())
            .unwrap_or_default()
    }

    /// The answer that stands for one, if the request is only written down.
    pub(super) fn write_down(&self, addr: &str, request: &Command) -> Option<Command> {
        let plan = self.plan.as_ref()?;
        if !CHANGING.contains(&request.code) {
            return None;
        }
        let mut requests = plan.requests.lock();
        if requests.len() < MAX_PLANNED {
            let fields = request.ext.iter();
            requests.push(PlannedRequest {
                addr: addr.to_owned(),
                code: request.code,
                fields: fields
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
                body: std::str::from_utf8(&request.body)
                    .unwrap_or_default()
                    .to_owned(),
            });
        }
        // The two whose answers are numbers: nothing was changed.
        Some(
            Command::request(0)
                .with_ext("wipeTopicCount", "0")
                .with_ext("addTopicCount", "0"),
        )
    }
}
