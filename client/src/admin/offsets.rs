//! Offsets of queues and groups: reading, resetting, copying.

use std::collections::BTreeMap;

use minimq_protocol::Command;
use minimq_protocol::body::{
    ConsumerOffsetWrapper, DelayOffsetWrapper, GetConsumerStatusBody, MessageQueue,
    QueryCorrectionOffsetBody, ResetOffsetBody,
};
use minimq_protocol::code::request;
use minimq_protocol::header::{
    CloneGroupOffsetRequest, GetConsumerStatusRequest, GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse, QueryCorrectionOffsetRequest, ResetOffsetRequest,
};

use super::{Admin, body, header};
use crate::error::Result;
use crate::queue_offsets::store_offset;

/// What a reset did to a queue of a group whose members are offline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReset {
    /// The queue.
    pub queue: MessageQueue,
    /// End of the queue.
    pub broker_offset: i64,
    /// Offset of the group before; −1: none.
    pub consumer_offset: i64,
    /// Offset that belongs to the time given.
    pub timestamp_offset: i64,
    /// Offset of the group now.
    pub new_offset: i64,
}

impl Admin {
    /// One behind the last offset of a queue (30).
    pub async fn max_offset(&self, queue: &MessageQueue) -> Result<i64> {
        self.core.max_offset(queue, self.timeout).await
    }

    /// First offset of a queue (31).
    pub async fn min_offset(&self, queue: &MessageQueue) -> Result<i64> {
        self.core.min_offset(queue, self.timeout).await
    }

    /// Offset of the first message of a queue stored at or after a time, ms (29).
    pub async fn search_offset(&self, queue: &MessageQueue, timestamp: i64) -> Result<i64> {
        self.core.offset_at(queue, timestamp, self.timeout).await
    }

    /// Store time of the first message of a queue, ms (32).
    pub async fn earliest_store_time(&self, queue: &MessageQueue) -> Result<i64> {
        let addr = self.core.master(&queue.topic, &queue.broker_name).await?;
        let header_sent = GetEarliestMsgStoretimeRequest {
            topic: &queue.topic,
            queue_id: queue.queue_id,
            bname: Some(&queue.broker_name),
        };
        let answer = self
            .call(
                &addr,
                Command::request_with(request::GET_EARLIEST_MSG_STORETIME, &header_sent),
            )
            .await?;
        Ok(header::<GetEarliestMsgStoretimeResponse>(&addr, &answer)?.timestamp)
    }

    /// Offset of a group in a queue (14); `None`: it has none.
    pub async fn consumer_offset(&self, group: &str, queue: &MessageQueue) -> Result<Option<i64>> {
        let addr = self.core.master(&queue.topic, &queue.broker_name).await?;
        self.core
            .stored_offset(&addr, group, queue, self.timeout)
            .await
    }

    /// Sets the offset of a group in a queue at a broker (15).
    pub async fn set_consumer_offset(
        &self,
        addr: &str,
        group: &str,
        queue: &MessageQueue,
        offset: i64,
    ) -> Result<()> {
        self.call(addr, store_offset(group, queue, offset))
            .await
            .map(drop)
    }

    /// Has the running members of a group go on at a time, ms; −1: at the end (222). `forward`: offsets may move forward too.
    /// The new offsets by queue.
    pub async fn reset_offsets(
        &self,
        topic: &str,
        group: &str,
        timestamp: i64,
        forward: bool,
    ) -> Result<BTreeMap<MessageQueue, i64>> {
        let mut all = BTreeMap::new();
        for (_, addr) in self.brokers_of(topic).await? {
            all.extend(
                self.reset_offsets_at(&addr, topic, group, timestamp, forward)
                    .await?,
            );
        }
        Ok(all)
    }

    /// The same at one broker.
    pub async fn reset_offsets_at(
        &self,
        addr: &str,
        topic: &str,
        group: &str,
        timestamp: i64,
        forward: bool,
    ) -> Result<BTreeMap<MessageQueue, i64>> {
        let header = ResetOffsetRequest {
            topic,
            group,
            timestamp,
            is_force: forward,
            queue_id: None,
            offset: None,
        };
        let answer = self
            .call_long(
                addr,
                Command::request_with(request::INVOKE_BROKER_TO_RESET_OFFSET, &header),
            )
            .await?;
        if answer.body.is_empty() {
            return Ok(BTreeMap::new());
        }
        Ok(body(addr, &answer, ResetOffsetBody::from_json)?.offset_table)
    }

    /// Moves the offsets of a group without running members, queue by queue (the old way).
    pub async fn reset_offsets_offline(
        &self,
        topic: &str,
        group: &str,
        timestamp: i64,
        forward: bool,
    ) -> Result<Vec<QueueReset>> {
        let route = self
            .core
            .refresh_route(topic, std::time::Duration::ZERO)
            .await?;
        let mut resets = Vec::new();
        for queue in route.readable.iter() {
            let addr = self.core.master(&queue.topic, &queue.broker_name).await?;
            let broker_offset = self.max_offset(queue).await?;
            let consumer_offset = self.consumer_offset(group, queue).await?;
            let timestamp_offset = match timestamp {
                -1 => broker_offset,
                _ => self.search_offset(queue, timestamp).await?,
            };
            let moves = forward || consumer_offset.is_none_or(|now| timestamp_offset <= now);
            let new_offset = if moves {
                timestamp_offset
            } else {
                consumer_offset.unwrap_or(timestamp_offset)
            };
            if moves {
                self.set_consumer_offset(&addr, group, queue, new_offset)
                    .await?;
            }
            resets.push(QueueReset {
                queue: queue.clone(),
                broker_offset,
                consumer_offset: consumer_offset.unwrap_or(-1),
                timestamp_offset,
                new_offset,
            });
        }
        Ok(resets)
    }

    /// Offsets that running members of a group have reached, by client id (223); `client_id`: only that one.
    pub async fn consumer_status(
        &self,
        topic: &str,
        group: &str,
        client_id: Option<&str>,
    ) -> Result<BTreeMap<String, BTreeMap<MessageQueue, i64>>> {
        let addr = self.first_broker_of(topic).await?;
        let header = GetConsumerStatusRequest {
            topic,
            group,
            client_addr: client_id,
        };
        let answer = self
            .call_long(
                &addr,
                Command::request_with(request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS, &header),
            )
            .await?;
        Ok(body(&addr, &answer, GetConsumerStatusBody::from_json)?.consumer_table)
    }

    /// Copies a group's offsets to another group (314), at every broker of the source group.
    pub async fn clone_offsets(
        &self,
        from: &str,
        to: &str,
        topic: Option<&str>,
        offline: bool,
    ) -> Result<()> {
        for (_, addr) in self.brokers_of_group(from).await? {
            let header = CloneGroupOffsetRequest {
                src_group: from,
                dest_group: to,
                topic,
                offline,
            };
            self.call_long(
                &addr,
                Command::request_with(request::CLONE_GROUP_OFFSET, &header),
            )
            .await?;
        }
        Ok(())
    }

    /// Least offsets of groups in a topic at a broker, by queue id (308).
    pub async fn correction_offsets(
        &self,
        addr: &str,
        topic: &str,
        group: &str,
        without: &[&str],
    ) -> Result<BTreeMap<i32, i64>> {
        let without = without.join(",");
        let header = QueryCorrectionOffsetRequest {
            filter_groups: (!without.is_empty()).then_some(without.as_str()),
            compare_group: group,
            topic,
        };
        let answer = self
            .call(
                addr,
                Command::request_with(request::QUERY_CORRECTION_OFFSET, &header),
            )
            .await?;
        Ok(body(addr, &answer, QueryCorrectionOffsetBody::from_json)?.correction_offsets)
    }

    /// Offsets of all groups at a broker (43).
    pub async fn all_consumer_offsets(&self, addr: &str) -> Result<ConsumerOffsetWrapper> {
        let answer = self
            .call_long(addr, Command::request(request::GET_ALL_CONSUMER_OFFSET))
            .await?;
        body(addr, &answer, ConsumerOffsetWrapper::from_json)
    }

    /// Offsets of the delay levels at a broker (45).
    pub async fn delay_offsets(&self, addr: &str) -> Result<DelayOffsetWrapper> {
        let answer = self
            .call(addr, Command::request(request::GET_ALL_DELAY_OFFSET))
            .await?;
        body(addr, &answer, DelayOffsetWrapper::from_json)
    }
}
