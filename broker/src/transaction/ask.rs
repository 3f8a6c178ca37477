//! Asking a producer what became of its transaction: code 39 (broker spec 8.5).

use std::sync::atomic::{AtomicUsize, Ordering};

use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_protocol::header::CheckTransactionStateRequest;
use minimq_protocol::message::MessageView;
use minimq_protocol::message_id::OffsetId;
use minimq_protocol::properties::{PropertiesBuf, name as property};
use minimq_store::AppendResult;

use crate::broker::Broker;

use super::half;

/// Connections tried for one question.
const TRIES: usize = 3;

/// Whose turn it is to be asked.
#[derive(Debug, Default)]
pub struct Asker {
    turn: AtomicUsize,
}

impl Broker {
    /// Asks one producer of the message's group about the copy of a half message that was just stored. What reaches
    /// nobody is asked again in the next round.
    pub(super) fn ask_producer(
        &self,
        message: &MessageView,
        properties: &PropertiesBuf,
        stored: &AppendResult,
    ) {
        let own = properties.properties();
        let group = own.get(property::PGROUP).unwrap_or_default();
        let members = self.clients.producers_of(group).unwrap_or_default();
        let Some((topic, queue_id)) = half::real_queue(own) else {
            tracing::error!(
                at = message.physical_offset(),
                "a half message names no topic and queue it is meant for: nobody can be asked"
            );
            return;
        };
        let mut fields = message.fields();
        fields.topic = topic;
        fields.queue_id = queue_id;
        fields.queue_offset = stored.queue_offset.get();
        fields.physical_offset = stored.physical_offset.get();
        fields.store_timestamp = stored.store_timestamp;
        fields.properties = properties.as_str().as_bytes();
        let body = match fields.encode() {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(at = message.physical_offset(), %error, "a question cannot be written");
                return;
            }
        };
        let id = OffsetId {
            host: message.store_host(),
            physical_offset: stored.physical_offset.get(),
        };
        let id = id.to_string();
        let unique = own.get(property::UNIQ_KEY);
        let header = CheckTransactionStateRequest {
            tran_state_table_offset: stored.queue_offset.get(),
            commit_log_offset: stored.physical_offset.get(),
            msg_id: unique,
            transaction_id: unique,
            offset_msg_id: Some(&id),
            bname: Some(&self.identity.name),
        };
        let turn = self.asker.turn.fetch_add(1, Ordering::Relaxed);
        for n in 0..members.len().min(TRIES) {
            let Some(member) = members.get(turn.wrapping_add(n) % members.len()) else {
                break;
            };
            let question = Command::request_with(request::CHECK_TRANSACTION_STATE, &header)
                .with_body(body.clone())
                .with_serialize(member.connection.peer_serialize());
            match member.connection.oneway(question) {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(group, client = %member.client_id, %error, "a question did not go out");
                }
            }
        }
        tracing::warn!(
            group,
            topic,
            key = unique.unwrap_or_default(),
            connections = members.len(),
            "a transaction is not decided and no producer of its group can be asked; the next round tries again"
        );
    }
}
