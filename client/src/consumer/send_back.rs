//! Messages that failed: back to the broker, or as an own message into the group's retry topic (client spec 4.12).

use std::time::Duration;

use minimq_protocol::body::MessageQueue;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::ConsumerSendMsgBackRequest;
use minimq_protocol::name::{self, CLIENT_INNER_PRODUCER_GROUP};
use minimq_protocol::properties::{PropertiesBuf, name as property};
use minimq_protocol::{Command, sys_flag};

use super::engine::Engine;
use crate::Delivery;
use crate::error::{Error, Result};
use crate::producer::Outgoing;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Deliveries after which a message goes to the dead-letter topic, unless set.
const DEFAULT_RETRIES: i32 = 16;
/// First delay level of retries.
const FIRST_LEVEL: i32 = 3;

impl Engine {
    /// Has the broker deliver a message again at a delay level: 0 by the times it failed, −1 never, but as a dead letter.
    pub(crate) async fn send_back(&self, delivery: &Delivery, level: i32) -> Result<()> {
        match self.ask_broker(delivery, level).await {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::debug!(id = delivery.id(), %error, "the broker takes no message back; it is sent anew");
                let level = (level >= 0).then_some(FIRST_LEVEL + delivery.attempts());
                self.send_to_retry_topic(delivery, delivery.attempts() + 1, level)
                    .await
            }
        }
    }

    async fn ask_broker(&self, delivery: &Delivery, level: i32) -> Result<()> {
        let queue = delivery.queue();
        let addr = if queue.broker_name.is_empty() {
            delivery.record().store_host().to_string()
        } else {
            self.core.master(&queue.topic, &queue.broker_name).await?
        };
        let (id, topic) = (delivery.id(), self.core.wrap(delivery.topic()));
        let header = ConsumerSendMsgBackRequest {
            offset: delivery.record().physical_offset(),
            group: &self.group,
            delay_level: level,
            origin_msg_id: Some(&id),
            origin_topic: Some(&topic),
            unit_mode: false,
            max_reconsume_times: Some(self.settings.max_retries.unwrap_or(DEFAULT_RETRIES)),
            bname: Some(&queue.broker_name),
        };
        let request = Command::request_with(request::CONSUMER_SEND_MSG_BACK, &header);
        self.core.call(&addr, request, TIMEOUT).await.map(drop)
    }

    /// Sends a copy into the retry topic. The broker makes it a dead letter if `times` has reached the limit; `level` `None`
    /// makes it one in any case.
    pub(crate) async fn send_to_retry_topic(
        &self,
        delivery: &Delivery,
        times: i32,
        level: Option<i32>,
    ) -> Result<()> {
        let limit = self.settings.max_retries.unwrap_or(DEFAULT_RETRIES);
        let times = if level.is_none() {
            times.max(limit)
        } else {
            times
        };
        let record = delivery.record();
        let set_here = [
            property::TRAN_MSG,
            property::DELAY,
            property::RETRY_TOPIC,
            property::RECONSUME_TIME,
            property::MAX_RECONSUME_TIMES,
        ];
        let origin = record
            .properties()
            .get(property::ORIGIN_MESSAGE_ID)
            .map_or_else(|| delivery.id(), str::to_owned);
        let mut properties = PropertiesBuf::new();
        properties.extend(record.properties(), |name| {
            !set_here.contains(&name) && name != property::ORIGIN_MESSAGE_ID
        });
        properties.push(property::ORIGIN_MESSAGE_ID, &origin);
        properties.push(property::RETRY_TOPIC, &self.core.wrap(delivery.topic()));
        if let Some(level) = level {
            properties.push(property::DELAY, &level.to_string());
        }
        let kept = sys_flag::message::COMPRESSED | sys_flag::message::COMPRESSION_MASK;
        let outgoing = Outgoing {
            topic: name::retry_topic(&self.group),
            code: request::SEND_MESSAGE_V2,
            sys_flag: record.sys_flag() & kept,
            flag: record.flag(),
            properties,
            body: record.body_bytes(),
            unique_keys: delivery.id(),
            batch: false,
            reconsume_times: times,
            max_reconsume_times: Some(limit),
        };
        let route = self.core.route(&outgoing.topic).await?;
        let mut failed = Error::NoQueue {
            topic: outgoing.topic.clone(),
            wanted: "send to",
        };
        for (broker, addr) in route.each_broker() {
            let queue = MessageQueue::new(&*outgoing.topic, broker, 0);
            let request = outgoing.request(CLIENT_INNER_PRODUCER_GROUP, 1, &queue);
            match self.core.remoting.call(addr, request, TIMEOUT).await {
                Ok(answer) => match answer.code {
                    response::SUCCESS
                    | response::FLUSH_DISK_TIMEOUT
                    | response::FLUSH_SLAVE_TIMEOUT
                    | response::SLAVE_NOT_AVAILABLE => return Ok(()),
                    code => {
                        failed = Error::Refused {
                            addr: addr.to_owned(),
                            code,
                            remark: answer.remark().to_owned(),
                        };
                    }
                },
                Err(error) => failed = error.into(),
            }
        }
        Err(failed)
    }
}
