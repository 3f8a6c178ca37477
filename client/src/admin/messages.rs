//! Messages: looking them up, pulling a queue, having a client consume one.

use std::time::Duration;

use futures_util::future::join_all;
use minimq_protocol::Command;
use minimq_protocol::body::{
    ConsumeMessageDirectlyResult, MessageQueue, QueryConsumeQueueResponseBody,
};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    ConsumeMessageDirectlyResultRequest, PullMessageRequest, PullMessageResponse,
    QueryConsumeQueueRequest, QueryMessageRequest, ResumeCheckHalfMessageRequest,
    ViewMessageRequest,
};
use minimq_protocol::message::{MessageView, split_records};
use minimq_protocol::message_id::OffsetId;
use minimq_protocol::name::TOOLS_CONSUMER_GROUP;
use minimq_protocol::unique_key::UniqueKey;
use minimq_protocol::{name, sys_flag};

use super::{Admin, body, header};
use crate::Delivery;
use crate::core::now_ms;
use crate::error::{Error, Result};

/// Messages found by a unique key at one broker at most.
const UNIQUE_KEY_LIMIT: i32 = 32;

/// Which messages are looked for.
#[derive(Debug, Clone, Copy)]
pub struct MessageLookup<'a> {
    /// The topic.
    pub topic: &'a str,
    /// A key of the messages.
    pub key: &'a str,
    /// Messages of each broker at most.
    pub max: i32,
    /// Stored not before, ms since 1970.
    pub begin_ms: i64,
    /// Stored not after, ms since 1970.
    pub end_ms: i64,
}

/// Which messages a pull wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expression<'a> {
    /// Tags, `a || b`; `*`: all.
    Tags(&'a str),
    /// An SQL92 expression over properties.
    Sql(&'a str),
}

/// A pull.
#[derive(Debug, Clone, Copy)]
pub struct PullRequest<'a> {
    /// The queue.
    pub queue: &'a MessageQueue,
    /// Which messages.
    pub expression: Expression<'a>,
    /// The first position.
    pub offset: i64,
    /// Messages at most.
    pub max: i32,
    /// How long the broker may wait for a message.
    pub hold: Duration,
    /// The group in whose name it is done.
    pub group: &'a str,
}

/// How a pull ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullStatus {
    /// With messages.
    Found,
    /// At the end of the queue.
    NothingNew,
    /// Nothing in that stretch matches.
    NothingMatches,
    /// The offset was outside of the queue.
    OffsetMoved,
}

/// Answer of a pull.
#[derive(Debug, Clone)]
pub struct PulledMessages {
    /// How it ended.
    pub status: PullStatus,
    /// Where to go on.
    pub next_offset: i64,
    /// First offset of the queue.
    pub min_offset: i64,
    /// One behind the last.
    pub max_offset: i64,
    /// The messages.
    pub messages: Vec<Delivery>,
}

impl Admin {
    /// A message by the broker's id (33).
    pub async fn message_by_offset_id(&self, id: &str) -> Result<Delivery> {
        let (addr, offset) = decode(id)?;
        self.message_at(&addr, offset).await
    }

    /// The message at a commit-log offset of a broker (33).
    pub async fn message_at(&self, addr: &str, offset: i64) -> Result<Delivery> {
        let request =
            Command::request_with(request::VIEW_MESSAGE_BY_ID, &ViewMessageRequest { offset });
        let answer = self.call(addr, request).await?;
        let view =
            MessageView::parse(answer.body).map_err(|error| Error::bad_answer(addr, error))?;
        Delivery::new(&self.core, view, None, 0, 0).map_err(|error| Error::bad_answer(addr, error))
    }

    /// A message by either id: the broker's, else the producer's unique one.
    pub async fn message(&self, topic: &str, id: &str) -> Result<Delivery> {
        if let Ok(found) = self.message_by_offset_id(id).await {
            return Ok(found);
        }
        self.message_by_unique_id(topic, id)
            .await?
            .ok_or_else(|| Error::Refused {
                addr: "the cluster".to_owned(),
                code: response::NO_MESSAGE,
                remark: format!("query message by id {id} finished, but no message."),
            })
    }

    /// Messages with a key (12), of all brokers of the topic, by store time.
    pub async fn messages_by_key(&self, lookup: MessageLookup<'_>) -> Result<Vec<Delivery>> {
        let mut found = self.query(lookup, false).await?;
        found.retain(|message| {
            message.record().topic() == lookup.topic && message.keys().any(|key| key == lookup.key)
        });
        Ok(found)
    }

    /// The message with a producer's unique id (12): of several copies the first one stored.
    pub async fn message_by_unique_id(&self, topic: &str, id: &str) -> Result<Option<Delivery>> {
        let zone = jiff::tz::TimeZone::system();
        let near = UniqueKey::parse(id).and_then(|key| key.near_time(now_ms(), &zone));
        let lookup = MessageLookup {
            topic,
            key: id,
            max: UNIQUE_KEY_LIMIT,
            begin_ms: near.map_or(0, |time| time - 1000),
            end_ms: i64::MAX,
        };
        let mut found = self.query(lookup, true).await?;
        found.retain(|message| message.id() == id);
        Ok(found.into_iter().next())
    }

    /// All copies of the message with a producer's unique id.
    pub async fn copies_by_unique_id(&self, topic: &str, id: &str) -> Result<Vec<Delivery>> {
        let lookup = MessageLookup {
            topic,
            key: id,
            max: UNIQUE_KEY_LIMIT,
            begin_ms: 0,
            end_ms: i64::MAX,
        };
        let mut found = self.query(lookup, true).await?;
        found.retain(|message| message.id() == id);
        Ok(found)
    }

    async fn query(&self, lookup: MessageLookup<'_>, unique: bool) -> Result<Vec<Delivery>> {
        let brokers = self.brokers_of(lookup.topic).await?;
        let asked = brokers.iter().map(|(_, addr)| async move {
            let header = QueryMessageRequest {
                topic: lookup.topic,
                key: lookup.key,
                max_num: lookup.max,
                begin_timestamp: lookup.begin_ms,
                end_timestamp: lookup.end_ms,
                unique_key_query: Some(unique),
            };
            match self
                .call_long(addr, Command::request_with(request::QUERY_MESSAGE, &header))
                .await
            {
                Ok(answer) => self.deliveries(answer, None, 0, 0).map(Some),
                Err(Error::Refused {
                    code: response::QUERY_NOT_FOUND,
                    ..
                }) => Ok(None),
                Err(error) => Err(error),
            }
        });
        let mut all = Vec::new();
        let mut failed = None;
        for answer in join_all(asked).await {
            match answer {
                Ok(found) => all.extend(found.unwrap_or_default()),
                Err(error) => failed = Some(error),
            }
        }
        // One broker that is away must not hide what the others have.
        if let (true, Some(error)) = (all.is_empty(), failed) {
            return Err(error);
        }
        all.sort_by_key(|message| (message.stored_ms(), message.queue_offset()));
        Ok(all)
    }

    fn deliveries(
        &self,
        answer: Command,
        queue: Option<&MessageQueue>,
        min: i64,
        max: i64,
    ) -> Result<Vec<Delivery>> {
        let queue = queue.map(|queue| std::sync::Arc::new(queue.clone()));
        let read = split_records(answer.body).filter_map(|record| match record {
            Ok(view) => Delivery::new(&self.core, view, queue.as_ref(), min, max)
                .map_err(|error| error.to_string())
                .ok(),
            Err(error) => {
                tracing::warn!(%error, "a record that cannot be read is left out");
                None
            }
        });
        Ok(read.collect())
    }

    /// Pulls from a queue (11) without waiting, as the tools' own group. `tags`: a tag expression.
    pub async fn pull(
        &self,
        queue: &MessageQueue,
        tags: &str,
        offset: i64,
        max: i32,
    ) -> Result<PulledMessages> {
        self.pull_as(PullRequest {
            queue,
            expression: Expression::Tags(tags),
            offset,
            max,
            hold: Duration::ZERO,
            group: TOOLS_CONSUMER_GROUP,
        })
        .await
    }

    /// Pulls from a queue (11). Nothing is committed.
    pub async fn pull_as(&self, wanted: PullRequest<'_>) -> Result<PulledMessages> {
        let queue = wanted.queue;
        let addr = self
            .core
            .master_or_slave(&queue.topic, &queue.broker_name)
            .await?;
        let (kind, text) = match wanted.expression {
            Expression::Tags(tags) => ("TAG", tags),
            Expression::Sql(text) => ("SQL92", text),
        };
        let hold = i64::try_from(wanted.hold.as_millis()).unwrap_or(i64::MAX);
        let header_sent = PullMessageRequest {
            consumer_group: wanted.group,
            topic: &queue.topic,
            queue_id: queue.queue_id,
            queue_offset: wanted.offset,
            max_msg_nums: wanted.max,
            sys_flag: sys_flag::pull::build(false, hold > 0, true, false, false),
            commit_offset: 0,
            suspend_timeout_millis: hold,
            subscription: Some(text),
            sub_version: 0,
            expression_type: Some(kind),
            max_msg_bytes: None,
            bname: Some(&queue.broker_name),
        };
        let request = Command::request_with(request::PULL_MESSAGE, &header_sent);
        let answer = self
            .core
            .remoting
            .call(&addr, request, self.timeout * 2 + wanted.hold)
            .await?;
        let status = match answer.code {
            response::SUCCESS => PullStatus::Found,
            response::PULL_NOT_FOUND => PullStatus::NothingNew,
            response::PULL_RETRY_IMMEDIATELY => PullStatus::NothingMatches,
            response::PULL_OFFSET_MOVED => PullStatus::OffsetMoved,
            code => {
                return Err(Error::Refused {
                    code,
                    remark: answer.remark().to_owned(),
                    addr,
                });
            }
        };
        let offsets: PullMessageResponse = header(&addr, &answer)?;
        let mut messages = match status {
            PullStatus::Found => {
                self.deliveries(answer, Some(queue), offsets.min_offset, offsets.max_offset)?
            }
            _ => Vec::new(),
        };
        if let Expression::Tags(tags) = wanted.expression {
            // Brokers compare hashes of tags only.
            let expression = minimq_protocol::subscription::TagExpression::parse(Some(tags))
                .map_err(|error| Error::invalid("tag expression", error.to_string()))?;
            messages.retain(|message| expression.matches(message.tag()));
        }
        Ok(PulledMessages {
            status,
            next_offset: offsets.next_begin_offset,
            min_offset: offsets.min_offset,
            max_offset: offsets.max_offset,
            messages,
        })
    }

    /// Has a running consumer consume a message (309); the broker that stores it passes it on.
    pub async fn consume_directly(
        &self,
        group: &str,
        client_id: &str,
        topic: &str,
        id: &str,
    ) -> Result<ConsumeMessageDirectlyResult> {
        let message = self.message(topic, id).await?;
        let addr = message.record().store_host().to_string();
        let offset_id = message.offset_id();
        let header = ConsumeMessageDirectlyResultRequest {
            consumer_group: group,
            client_id: (!client_id.is_empty()).then_some(client_id),
            msg_id: Some(&offset_id),
            broker_name: None,
        };
        let answer = self
            .call_long(
                &addr,
                Command::request_with(request::CONSUME_MESSAGE_DIRECTLY, &header),
            )
            .await?;
        body(&addr, &answer, ConsumeMessageDirectlyResult::from_json)
    }

    /// Entries of a consume queue at a broker (321); `group`: whose filter is tried on them.
    pub async fn consume_queue(
        &self,
        addr: &str,
        queue: (&str, i32),
        index: i64,
        count: i32,
        group: Option<&str>,
    ) -> Result<QueryConsumeQueueResponseBody> {
        let header = QueryConsumeQueueRequest {
            topic: Some(queue.0),
            queue_id: queue.1,
            index,
            count,
            consumer_group: group,
        };
        let answer = self
            .call(
                addr,
                Command::request_with(request::QUERY_CONSUME_QUEUE, &header),
            )
            .await?;
        body(addr, &answer, QueryConsumeQueueResponseBody::from_json)
    }

    /// Has a half message that was given up checked again (323): `id` is that of the copy in the broker's topic for such messages.
    pub async fn resume_half_check(&self, id: &str) -> Result<()> {
        let message = self.message(name::TRANS_CHECK_MAX_TIME_TOPIC, id).await?;
        let addr = message.record().store_host().to_string();
        let offset_id = message.offset_id();
        let header = ResumeCheckHalfMessageRequest {
            msg_id: Some(&offset_id),
        };
        self.call(
            &addr,
            Command::request_with(request::RESUME_CHECK_HALF_MESSAGE, &header),
        )
        .await
        .map(drop)
    }
}

/// Address and commit-log offset that a broker's id holds.
fn decode(id: &str) -> Result<(String, i64)> {
    let id: OffsetId = id
        .parse()
        .map_err(|_| Error::invalid("message id", format!("{id} is no id of a broker")))?;
    Ok((id.host.to_string(), id.physical_offset))
}
