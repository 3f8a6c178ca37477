//! What brokers say about offsets of queues and groups: asked by consumers and by administration alike.

use std::time::Duration;

use minimq_protocol::body::MessageQueue;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    GetMaxOffsetRequest, GetMaxOffsetResponse, GetMinOffsetRequest, GetMinOffsetResponse,
    QueryConsumerOffsetRequest, QueryConsumerOffsetResponse, SearchOffsetRequest,
    SearchOffsetResponse, UpdateConsumerOffsetRequest,
};
use minimq_protocol::{Command, Header};

use crate::core::Core;
use crate::error::{Error, Result};

impl Core {
    /// Asks the master of a queue; its address and answer.
    async fn ask_master<'a>(
        &self,
        queue: &MessageQueue,
        code: i32,
        header: &impl Header<'a>,
        timeout: Duration,
    ) -> Result<(String, Command)> {
        let addr = self.master(&queue.topic, &queue.broker_name).await?;
        let request = Command::request_with(code, header);
        let answer = self.call(&addr, request, timeout).await?;
        Ok((addr, answer))
    }

    /// One behind the last offset of a queue (30).
    pub(crate) async fn max_offset(&self, queue: &MessageQueue, timeout: Duration) -> Result<i64> {
        let header = GetMaxOffsetRequest {
            topic: &queue.topic,
            queue_id: queue.queue_id,
            bname: Some(&queue.broker_name),
        };
        let (addr, answer) = self
            .ask_master(queue, request::GET_MAX_OFFSET, &header, timeout)
            .await?;
        Ok(read::<GetMaxOffsetResponse>(&addr, &answer)?.offset)
    }

    /// First offset of a queue (31).
    pub(crate) async fn min_offset(&self, queue: &MessageQueue, timeout: Duration) -> Result<i64> {
        let header = GetMinOffsetRequest {
            topic: &queue.topic,
            queue_id: queue.queue_id,
            bname: Some(&queue.broker_name),
        };
        let (addr, answer) = self
            .ask_master(queue, request::GET_MIN_OFFSET, &header, timeout)
            .await?;
        Ok(read::<GetMinOffsetResponse>(&addr, &answer)?.offset)
    }

    /// Offset of the first message of a queue stored at or after a time, ms since 1970 (29).
    pub(crate) async fn offset_at(
        &self,
        queue: &MessageQueue,
        timestamp: i64,
        timeout: Duration,
    ) -> Result<i64> {
        let header = SearchOffsetRequest {
            topic: &queue.topic,
            queue_id: queue.queue_id,
            timestamp,
            boundary_type: None,
            bname: Some(&queue.broker_name),
        };
        let (addr, answer) = self
            .ask_master(queue, request::SEARCH_OFFSET_BY_TIMESTAMP, &header, timeout)
            .await?;
        Ok(read::<SearchOffsetResponse>(&addr, &answer)?.offset)
    }

    /// Offset of a group in a queue, as the broker at `addr` has it (14); `None` only if it is certain that there is none.
    pub(crate) async fn stored_offset(
        &self,
        addr: &str,
        group: &str,
        queue: &MessageQueue,
        timeout: Duration,
    ) -> Result<Option<i64>> {
        let header = QueryConsumerOffsetRequest {
            consumer_group: group,
            topic: &queue.topic,
            queue_id: queue.queue_id,
            set_zero_if_not_found: None,
            bname: Some(&queue.broker_name),
        };
        let request = Command::request_with(request::QUERY_CONSUMER_OFFSET, &header);
        match self.call(addr, request, timeout).await {
            Ok(answer) => Ok(Some(
                read::<QueryConsumerOffsetResponse>(addr, &answer)?.offset,
            )),
            // Any other refusal must not look like a new group: that would skip messages.
            Err(Error::Refused {
                code: response::QUERY_NOT_FOUND,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The request that stores a group's offset in a queue (15).
pub(crate) fn store_offset(group: &str, queue: &MessageQueue, offset: i64) -> Command {
    let header = UpdateConsumerOffsetRequest {
        consumer_group: group,
        topic: &queue.topic,
        queue_id: queue.queue_id,
        commit_offset: offset,
        bname: Some(&queue.broker_name),
    };
    Command::request_with(request::UPDATE_CONSUMER_OFFSET, &header)
}

fn read<'a, H: Header<'a>>(addr: &str, answer: &'a Command) -> Result<H> {
    answer
        .header()
        .map_err(|error| Error::bad_answer(addr, error))
}
