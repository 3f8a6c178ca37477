//! Hooks: the application's own code around sends, ends of transactions and handlers (client spec 3.14, 4.18). They run where
//! the message is, so they must be quick; names in them carry the client's namespace.

use std::time::Duration;

use minimq_protocol::body::MessageQueue;
use minimq_protocol::properties::{Properties, name as property};

use crate::Delivery;
use crate::error::{Error, Result};
use crate::producer::{SendReceipt, TransactionState};

/// What kind of message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// Delivered at once.
    Normal,
    /// Delivered when its transaction commits.
    Half,
    /// Delivered later.
    Delayed,
}

impl MessageKind {
    fn of(properties: Properties<'_>) -> Self {
        if properties.get(property::TRAN_MSG) == Some("true") {
            Self::Half
        } else if properties.get(property::DELAY).is_some()
            || properties.get("__STARTDELIVERTIME").is_some()
        {
            Self::Delayed
        } else {
            Self::Normal
        }
    }
}

/// An attempt to send a message or batch.
#[derive(Debug, Clone)]
pub struct Sending<'a> {
    /// The producer's group.
    pub group: &'a str,
    /// Where it goes.
    pub queue: &'a MessageQueue,
    /// The broker's address.
    pub broker_addr: &'a str,
    /// The unique id; those of a batch joined by `,`.
    pub id: &'a str,
    /// Its kind.
    pub kind: MessageKind,
    /// Bytes of the body as it is sent.
    pub body_len: usize,
    /// Its properties, tag and keys among them.
    pub properties: Properties<'a>,
}

impl<'a> Sending<'a> {
    pub(crate) fn new(
        group: &'a str,
        queue: &'a MessageQueue,
        broker_addr: &'a str,
        outgoing: &'a crate::producer::Outgoing,
    ) -> Self {
        let properties = outgoing.properties.properties();
        Self {
            group,
            queue,
            broker_addr,
            id: &outgoing.unique_keys,
            kind: MessageKind::of(properties),
            body_len: outgoing.body.len(),
            properties,
        }
    }
}

/// What came of an attempt to send.
#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    /// Where it is stored, or why it is not.
    pub result: Result<&'a SendReceipt, &'a Error>,
    /// Time taken.
    pub elapsed: Duration,
    /// The broker's region.
    pub region: &'a str,
    /// Whether the broker wants it traced.
    pub traced: bool,
}

/// The end of a transaction, told to the broker.
#[derive(Debug, Clone, Copy)]
pub struct TransactionEnd<'a> {
    /// The producer's group.
    pub group: &'a str,
    /// The message's topic.
    pub topic: &'a str,
    /// The broker's address.
    pub broker_addr: &'a str,
    /// The message's unique id.
    pub id: &'a str,
    /// The broker's id of the transaction.
    pub transaction_id: Option<&'a str>,
    /// How it ended.
    pub state: TransactionState,
    /// Whether the broker had asked.
    pub checked: bool,
    /// The message's properties.
    pub properties: Properties<'a>,
}

/// Sees what a producer sends.
pub trait SendHook: Send + Sync {
    /// Before each attempt. An error forbids it: the send fails with that reason and is not repeated.
    fn before(&self, sending: &Sending<'_>) -> Result<(), String> {
        let _ = sending;
        Ok(())
    }

    /// After each attempt that a broker answered or should have answered.
    fn after(&self, sending: &Sending<'_>, sent: &Sent<'_>) {
        let _ = (sending, sent);
    }

    /// When the end of a transaction is told to the broker.
    fn transaction_ended(&self, end: &TransactionEnd<'_>) {
        let _ = end;
    }
}

/// A run of a handler.
#[derive(Debug, Clone, Copy)]
pub struct Consuming<'a> {
    /// The consumer's group.
    pub group: &'a str,
    /// Where the messages come from.
    pub queue: &'a MessageQueue,
    /// An id of this run.
    pub id: &'a str,
    /// The messages.
    pub deliveries: &'a [Delivery],
}

/// How a run of a handler ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerEnd {
    /// All messages are done.
    Done,
    /// Some are not: they come again.
    Failed,
    /// It was stopped after its time.
    TimedOut,
    /// It panicked.
    Panicked,
}

/// Sees what a handler gets.
pub trait ConsumeHook: Send + Sync {
    /// Before the handler runs.
    fn before(&self, consuming: &Consuming<'_>) {
        let _ = consuming;
    }

    /// After it ran for that time.
    fn after(&self, consuming: &Consuming<'_>, end: HandlerEnd, elapsed: Duration) {
        let _ = (consuming, end, elapsed);
    }
}
