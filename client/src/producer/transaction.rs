//! Transactions: a half message, the application's own work, then commit or rollback; and the broker's checks (client spec 3.12).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_protocol::header::{
    CheckTransactionStateRequest, EndTransactionRequest, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK,
    TRANSACTION_UNKNOWN,
};
use minimq_protocol::message::MessageView;
use minimq_protocol::message_id::OffsetId;
use minimq_protocol::properties::{PropertiesBuf, name as property};

use super::send::{Outgoing, Target};
use super::{SendReceipt, Shared};
use crate::Delivery;
use crate::error::{Error, Result};
use crate::hooks::{SendHook, TransactionEnd};
use crate::message::Message;

/// Time to say how a checked transaction ended.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) type Checker =
    Arc<dyn Fn(Delivery) -> BoxFuture<'static, TransactionState> + Send + Sync>;

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionState {
    /// Consumers get the message.
    Commit,
    /// They never do.
    Rollback,
    /// Not known yet: the broker asks again.
    Unknown,
}

impl TransactionState {
    fn wire(self) -> i32 {
        match self {
            Self::Commit => TRANSACTION_COMMIT,
            Self::Rollback => TRANSACTION_ROLLBACK,
            Self::Unknown => TRANSACTION_UNKNOWN,
        }
    }
}

/// A message that waits to be committed or rolled back. Dropped undecided, it is checked by the broker later.
#[must_use = "the broker asks about a transaction that is neither committed nor rolled back"]
pub struct Transaction {
    shared: Arc<Shared>,
    topic: String,
    properties: PropertiesBuf,
    receipt: SendReceipt,
}

impl Transaction {
    /// Where the half message is stored.
    pub fn receipt(&self) -> &SendReceipt {
        &self.receipt
    }

    /// Delivers the message. The request has no answer: the broker's check mends a lost one.
    pub async fn commit(self) -> Result<()> {
        self.end(TransactionState::Commit).await
    }

    /// Forgets the message.
    pub async fn rollback(self) -> Result<()> {
        self.end(TransactionState::Rollback).await
    }

    /// Ends it that way.
    pub async fn end(self, state: TransactionState) -> Result<()> {
        let broker = &self.receipt.queue.broker_name;
        let addr = self.shared.core.master(&self.topic, broker).await?;
        let offset_id: OffsetId = self
            .receipt
            .offset_id
            .parse()
            .map_err(|error| Error::bad_answer(&addr, error))?;
        let header = EndTransactionRequest {
            producer_group: &self.shared.group,
            tran_state_table_offset: self.receipt.queue_offset,
            commit_log_offset: offset_id.physical_offset,
            commit_or_rollback: state.wire(),
            from_transaction_check: false,
            msg_id: &self.receipt.id,
            transaction_id: self.receipt.transaction_id.as_deref(),
            bname: Some(broker),
        };
        let request = Command::request_with(request::END_TRANSACTION, &header);
        tell(
            &self.shared.hooks,
            &TransactionEnd {
                group: &self.shared.group,
                topic: &self.topic,
                broker_addr: &addr,
                id: &self.receipt.id,
                transaction_id: self.receipt.transaction_id.as_deref(),
                state,
                checked: false,
                properties: self.properties.properties(),
            },
        );
        Ok(self.shared.core.remoting.oneway(&addr, request).await?)
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("receipt", &self.receipt)
            .finish_non_exhaustive()
    }
}

pub(super) async fn begin(shared: &Arc<Shared>, message: Message) -> Result<Transaction> {
    if shared.checker.is_none() {
        return Err(Error::invalid(
            "transaction",
            "the producer was built without a transaction_checker",
        ));
    }
    let mut message = message.without_delay();
    message.reserve(property::TRAN_MSG, "true");
    message.reserve(property::PGROUP, shared.group.clone());
    let outgoing = Outgoing::single(shared, message)?;
    let receipt = shared.send(&outgoing, Target::Any).await?;
    Ok(Transaction {
        shared: shared.clone(),
        topic: outgoing.topic,
        properties: outgoing.properties,
        receipt,
    })
}

fn tell(hooks: &[Arc<dyn SendHook>], end: &TransactionEnd<'_>) {
    for hook in hooks {
        hook.transaction_ended(end);
    }
}

/// Runs the checker for a broker's question and answers it.
pub(super) fn check(shared: &Shared, addr: String, check: Command) {
    let Some(checker) = shared.checker.clone() else {
        tracing::warn!(
            group = shared.group,
            "a transaction check came to a producer without a transaction_checker"
        );
        return;
    };
    // Beyond the limit the broker has to ask again.
    let Ok(permit) = shared.checks.clone().try_acquire_owned() else {
        return;
    };
    let (core, group) = (shared.core.clone(), shared.group.clone());
    let hooks = shared.hooks.clone();
    tokio::spawn(async move {
        let _permit = permit;
        let outcome = async {
            let header: CheckTransactionStateRequest =
                check.header().map_err(|e| Error::bad_answer(&addr, e))?;
            let view =
                MessageView::parse(check.body.clone()).map_err(|e| Error::bad_answer(&addr, e))?;
            let delivery =
                Delivery::new(&core, view, None, 0, 0).map_err(|e| Error::bad_answer(&addr, e))?;
            let (id, asked_of) = (delivery.id(), delivery.clone());
            // A panic counts as "not known": the broker asks again.
            let checked = tokio::spawn(checker(delivery)).await;
            let (state, remark) = match checked {
                Ok(state) => (state, None),
                Err(error) => (TransactionState::Unknown, Some(error.to_string())),
            };
            let answer = EndTransactionRequest {
                producer_group: &group,
                tran_state_table_offset: header.tran_state_table_offset,
                commit_log_offset: header.commit_log_offset,
                commit_or_rollback: state.wire(),
                from_transaction_check: true,
                msg_id: &id,
                transaction_id: header.transaction_id,
                bname: header.bname,
            };
            let mut request = Command::request_with(request::END_TRANSACTION, &answer);
            if let Some(remark) = remark {
                request = request.with_remark(remark);
            }
            tell(
                &hooks,
                &TransactionEnd {
                    group: &group,
                    topic: asked_of.topic(),
                    broker_addr: &addr,
                    id: &id,
                    transaction_id: header.transaction_id,
                    state,
                    checked: true,
                    properties: asked_of.properties(),
                },
            );
            let sent =
                tokio::time::timeout(CHECK_TIMEOUT, core.remoting.oneway(&addr, request)).await;
            sent.map_err(|_| Error::Timeout {
                what: "the end of a transaction was not sent".to_owned(),
                after: CHECK_TIMEOUT,
            })??;
            Ok::<_, Error>(())
        };
        if let Err(error) = outcome.await {
            tracing::warn!(%error, "a transaction check failed; the broker asks again");
        }
    });
}
