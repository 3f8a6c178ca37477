//! What all kinds of consumers can be told.

use std::sync::Arc;
use std::time::Duration;

use minimq_protocol::body::{ConsumeFromWhere, MessageModel, MessageQueue};

use crate::error::{Error, Result};
use crate::hooks::ConsumeHook;
use crate::process_queue::Limits;
use crate::rebalance::Allocation;

/// Where a group begins in a queue without a stored offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartFrom {
    /// At the end: only what comes from now on. A broker that still holds a queue's first message in memory starts at that.
    #[default]
    End,
    /// At the beginning.
    Beginning,
    /// At the first message stored at or after that time, ms since 1970.
    Time(i64),
}

impl StartFrom {
    pub(crate) fn wire(self) -> ConsumeFromWhere {
        match self {
            Self::End => ConsumeFromWhere::ConsumeFromLastOffset,
            Self::Beginning => ConsumeFromWhere::ConsumeFromFirstOffset,
            Self::Time(_) => ConsumeFromWhere::ConsumeFromTimestamp,
        }
    }
}

/// Called with the topic and all queues of it that this consumer has from now on.
pub(crate) type AssignmentCallback = Arc<dyn Fn(&str, &[MessageQueue]) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) broadcast: bool,
    pub(crate) from: StartFrom,
    pub(crate) allocation: Allocation,
    pub(crate) concurrency: usize,
    pub(crate) handler_batch: usize,
    pub(crate) pull_batch: i32,
    pub(crate) limits: Limits,
    pub(crate) pull_pause: Duration,
    pub(crate) handler_timeout: Duration,
    pub(crate) max_retries: Option<i32>,
    pub(crate) suspend: Duration,
    pub(crate) commit_every: Duration,
    pub(crate) rebalance_every: Duration,
    pub(crate) pull_hold: Duration,
    pub(crate) drain: Duration,
    pub(crate) on_assignment: Option<AssignmentCallback>,
    pub(crate) hooks: Vec<Arc<dyn ConsumeHook>>,
    /// Topic to trace into; empty for the usual one.
    pub(crate) trace: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            broadcast: false,
            from: StartFrom::End,
            allocation: Allocation::Average,
            concurrency: 20,
            handler_batch: 1,
            pull_batch: 32,
            limits: Limits {
                messages: 1000,
                bytes: 100 << 20,
                span: Some(2000),
            },
            pull_pause: Duration::ZERO,
            handler_timeout: Duration::from_secs(15 * 60),
            max_retries: None,
            suspend: Duration::from_secs(1),
            commit_every: Duration::from_secs(5),
            rebalance_every: Duration::from_secs(20),
            pull_hold: Duration::from_secs(15),
            drain: Duration::from_secs(10),
            on_assignment: None,
            hooks: Vec::new(),
            trace: None,
        }
    }
}

impl Settings {
    pub(crate) fn model(&self) -> MessageModel {
        if self.broadcast {
            MessageModel::Broadcasting
        } else {
            MessageModel::Clustering
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let within = |what: &'static str, value: usize, most: usize| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(
                what,
                format!("must be from 1 to {most}, is {value}"),
            ))
        };
        within("concurrency", self.concurrency, 65_535)?;
        within("handler batch size", self.handler_batch, 1024)?;
        within(
            "pull batch size",
            usize::try_from(self.pull_batch).unwrap_or(0),
            1024,
        )?;
        within("messages held per queue", self.limits.messages, 1 << 20)?;
        within("bytes held per queue", self.limits.bytes, usize::MAX)
    }
}
