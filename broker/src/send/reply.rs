//! The reply of a request-reply call: codes 324 and 325 (broker spec 12). It is pushed to the client that asked
//! (code 326) and, by `storeReplyMessageEnable`, stored in the reply topic.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use minimq_protocol::Command;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    ReplyMessageRequest, SendMessageRefusal, SendMessageRequest, SendMessageResponse,
};
use minimq_protocol::message_id::OffsetId;
use minimq_protocol::properties::{Properties, PropertiesBuf, name as property};
use minimq_store::{AppendMessage, AppendResult};

use crate::broker::Broker;
use crate::request::{Refusal, RequestContext};

use super::plan::Planner;
use super::properties::rewrite;
use super::store_one;

/// How long the client that asked may take.
const PUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// Message id of a reply that was pushed and not stored.
const NOT_STORED: &str = "0";

/// Codes 324 and 325.
pub fn reply(cx: &mut RequestContext<'_, '_>, mut command: Command) {
    let (broker, peer) = (cx.broker.clone(), cx.connection().peer());
    let responder = cx.answers.later(command.id());
    // It waits for a client: the read buffer is not kept alive by it.
    command.body = Bytes::copy_from_slice(&command.body);
    tokio::spawn(async move {
        let config = broker.config.to_arc();
        let region = Some(config.broker.region_id.as_str());
        let trace_on = Some(config.broker.trace_on);
        let loose = SendMessageRefusal {
            msg_region: region,
            trace_on,
        };
        let mut planner = Planner {
            broker: &broker,
            config: &config,
            peer,
            now_ms: broker.clock.now_ms(),
            last_topic: None,
        };
        let checked = SendMessageRequest::decode_for(command.code, &command.ext)
            .map_err(Refusal::from)
            .and_then(|header| {
                let (_, queue_id) = planner.target(&header)?;
                Ok(SendMessageRequest { queue_id, ..header })
            });
        let header = match checked {
            Ok(header) => header,
            Err(refusal) => {
                let remark = Some(&*refusal.remark);
                return responder.respond_head(refusal.code, remark, Some(&loose), &[]);
            }
        };
        let reply = Reply {
            broker: &broker,
            header,
            body: &command.body,
            peer,
            now_ms: planner.now_ms,
        };
        let pushed = reply.push().await;
        let stored = if config.broker.store_reply_message_enable && !config.is_slave() {
            tokio::task::block_in_place(|| reply.store())
        } else {
            None
        };
        let (code, remark) = match &pushed {
            Ok(()) => (response::SUCCESS, None),
            Err(remark) => (response::SYSTEM_ERROR, Some(remark.as_str())),
        };
        let id = stored.map(|stored| {
            OffsetId {
                host: broker.identity.store_host,
                physical_offset: stored.physical_offset.get(),
            }
            .to_string()
        });
        if id.is_none() && pushed.is_err() {
            return responder.respond_head(code, remark, Some(&loose), &[]);
        }
        let header = SendMessageResponse {
            msg_id: id.as_deref().unwrap_or(NOT_STORED),
            queue_id: reply.header.queue_id,
            queue_offset: stored.map_or(0, |stored| stored.queue_offset.get()),
            transaction_id: None,
            msg_region: region,
            trace_on,
        };
        responder.respond_head(code, remark, Some(&header), &[]);
    });
}

/// A reply on its way.
struct Reply<'r> {
    broker: &'r Arc<Broker>,
    header: SendMessageRequest<'r>,
    body: &'r Bytes,
    peer: std::net::SocketAddr,
    now_ms: i64,
}

impl Reply<'_> {
    /// Gives it to the client that asked.
    async fn push(&self) -> Result<(), String> {
        let text = self.header.properties.unwrap_or_default();
        let properties = Properties::new(text);
        let client = properties.get(property::REPLY_TO_CLIENT).ok_or_else(|| {
            format!(
                "reply message properties[{}] is null",
                property::REPLY_TO_CLIENT
            )
        })?;
        let connection = self
            .broker
            .clients
            .producer_client(client)
            .filter(|connection| !connection.is_closed())
            .ok_or_else(|| format!("push reply message fail, channel of <{client}> not found."))?;
        let mut pushed = PropertiesBuf::new();
        for (name, value) in properties
            .iter()
            .filter(|(n, _)| *n != property::PUSH_REPLY_TIME)
        {
            pushed.push(name, value);
        }
        pushed.push(property::PUSH_REPLY_TIME, &self.now_ms.to_string());
        let header = &self.header;
        let (born_host, store_host) = (
            self.peer.to_string(),
            self.broker.identity.store_host.to_string(),
        );
        let push = ReplyMessageRequest {
            producer_group: header.producer_group,
            topic: header.topic,
            default_topic: header.default_topic,
            default_topic_queue_nums: header.default_topic_queue_nums,
            queue_id: header.queue_id,
            sys_flag: header.sys_flag,
            born_timestamp: header.born_timestamp,
            flag: header.flag,
            properties: Some(pushed.as_str()),
            reconsume_times: header.reconsume_times,
            unit_mode: header.unit_mode,
            born_host: &born_host,
            store_host: &store_host,
            store_timestamp: self.now_ms,
        };
        let push = Command::request_with(request::PUSH_REPLY_MESSAGE_TO_CLIENT, &push)
            .with_body(self.body.clone())
            .with_serialize(connection.peer_serialize());
        let failed = |why: String| {
            tracing::warn!(client, why, "a reply did not reach the client that asked");
            format!("push reply message to {client}fail.")
        };
        match connection.call(push, PUSH_TIMEOUT).await {
            Ok(answer) if answer.code == response::SUCCESS => Ok(()),
            Ok(answer) => Err(failed(format!("code {}: {}", answer.code, answer.remark()))),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Stores it in its topic; a failure is told nobody but the log, as in 4.9.8.
    fn store(&self) -> Option<AppendResult> {
        let header = &self.header;
        let cluster = (property::CLUSTER, self.broker.identity.cluster.as_str());
        let mut properties = Vec::new();
        let text = header.properties.unwrap_or_default().as_bytes();
        if let Err(refusal) = rewrite(text, &[cluster], &mut properties) {
            tracing::warn!(topic = header.topic, remark = %refusal.remark, "a reply was not stored");
            return None;
        }
        let message = AppendMessage {
            topic: header.topic,
            queue_id: header.queue_id,
            flag: header.flag,
            sys_flag: header.sys_flag,
            born_timestamp: header.born_timestamp,
            born_host: self.peer,
            store_host: self.broker.identity.store_host,
            reconsume_times: header.reconsume_times.unwrap_or(0),
            prepared_transaction_offset: 0,
            body: self.body,
            properties: &properties,
            appended_properties: &[],
            joins_previous: false,
        };
        let stored = store_one(self.broker, message);
        match stored {
            Ok(result) => {
                let stats = &self.broker.stats;
                stats.stored_by_broker(&[message], &[Ok(result)]);
                Some(result)
            }
            Err(error) => {
                tracing::warn!(topic = header.topic, %error, "a reply was not stored");
                None
            }
        }
    }
}
