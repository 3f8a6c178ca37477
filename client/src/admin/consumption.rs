//! How far groups have come, statistics, and what became of a message.

use std::collections::BTreeMap;

use minimq_protocol::Command;
use minimq_protocol::body::{
    BrokerStatsData, ConsumeStats, ConsumeStatsList, ConsumeType, GroupList,
    QueryConsumeTimeSpanBody, QueueTimeSpan,
};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    GetConsumeStatsInBroker, GetConsumeStatsRequest, QueryConsumeTimeSpanRequest,
    QueryTopicConsumeByWhoRequest, ViewBrokerStatsDataRequest,
};
use minimq_protocol::subscription::TagExpression;

use super::{Admin, body};
use crate::Delivery;
use crate::error::{Error, Result};

/// What became of a message in one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackState {
    /// The group is past it.
    Consumed,
    /// The group is past it and does not want its tag.
    ConsumedButFiltered,
    /// The group pulls by itself: not known.
    Pull,
    /// The group is not there yet.
    NotConsumedYet,
    /// No member is connected.
    NotOnline,
    /// Not to be found out.
    Unknown,
}

/// A group and what became of a message in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageTrack {
    /// The group.
    pub group: String,
    /// What became of it.
    pub state: TrackState,
    /// Why that is not known.
    pub error: Option<String>,
}

impl Admin {
    /// Progress of a group at one broker (208), in one topic or all.
    pub async fn consume_stats_at(
        &self,
        addr: &str,
        group: &str,
        topic: Option<&str>,
    ) -> Result<ConsumeStats> {
        let header = GetConsumeStatsRequest {
            consumer_group: group,
            topic,
            topic_list: None,
        };
        let answer = self
            .call_long(
                addr,
                Command::request_with(request::GET_CONSUME_STATS, &header),
            )
            .await?;
        body(addr, &answer, ConsumeStats::from_json)
    }

    /// Progress of a group at all its brokers. Refused with code 206 if there is none.
    pub async fn consume_stats(&self, group: &str, topic: Option<&str>) -> Result<ConsumeStats> {
        let mut all = ConsumeStats::default();
        for (_, addr) in self.brokers_of_group(group).await? {
            let part = self.consume_stats_at(&addr, group, topic).await?;
            all.consume_tps += part.consume_tps;
            all.offset_table.extend(part.offset_table);
        }
        if all.offset_table.is_empty() {
            return Err(Error::Refused {
                addr: "the cluster".to_owned(),
                code: response::CONSUMER_NOT_ONLINE,
                remark: "Not found the consumer group consume stats, because return offset table is empty, maybe the consumer not consume any message".to_owned(),
            });
        }
        Ok(all)
    }

    /// Progress of all groups of a broker (317).
    pub async fn broker_consume_stats(
        &self,
        addr: &str,
        ordered: bool,
    ) -> Result<ConsumeStatsList> {
        let header = GetConsumeStatsInBroker { is_order: ordered };
        let answer = self
            .call_long(
                addr,
                Command::request_with(request::GET_BROKER_CONSUME_STATS, &header),
            )
            .await?;
        body(addr, &answer, ConsumeStatsList::from_json)
    }

    /// One statistics item of a broker (315), as `TOPIC_PUT_NUMS` and a topic.
    pub async fn broker_stats(&self, addr: &str, kind: &str, key: &str) -> Result<BrokerStatsData> {
        let header = ViewBrokerStatsDataRequest {
            stats_name: kind,
            stats_key: key,
        };
        let answer = self
            .call(
                addr,
                Command::request_with(request::VIEW_BROKER_STATS_DATA, &header),
            )
            .await?;
        body(addr, &answer, BrokerStatsData::from_json)
    }

    /// Times of a group's progress in a topic (303), of all queues.
    pub async fn consume_time_span(&self, topic: &str, group: &str) -> Result<Vec<QueueTimeSpan>> {
        let mut all = Vec::new();
        for (_, addr) in self.brokers_of(topic).await? {
            let header = QueryConsumeTimeSpanRequest { topic, group };
            let answer = self
                .call_long(
                    &addr,
                    Command::request_with(request::QUERY_CONSUME_TIME_SPAN, &header),
                )
                .await?;
            all.extend(
                body(&addr, &answer, QueryConsumeTimeSpanBody::from_json)?.consume_time_span_set,
            );
        }
        Ok(all)
    }

    /// Groups that consume a topic (300).
    pub async fn groups_of_topic(&self, topic: &str) -> Result<Vec<String>> {
        let addr = self.first_broker_of(topic).await?;
        let header = QueryTopicConsumeByWhoRequest { topic };
        let answer = self
            .call(
                &addr,
                Command::request_with(request::QUERY_TOPIC_CONSUME_BY_WHO, &header),
            )
            .await?;
        Ok(body(&addr, &answer, GroupList::from_json)?.group_list)
    }

    /// What became of a message in every group that consumes its topic.
    pub async fn message_tracks(&self, message: &Delivery) -> Result<Vec<MessageTrack>> {
        let topic = message.record().topic();
        let mut tracks = Vec::new();
        for group in self.groups_of_topic(topic).await? {
            let (state, error) = match self.track(message, &group).await {
                Ok(state) => (state, None),
                Err(error) if error.code() == Some(response::CONSUMER_NOT_ONLINE) => {
                    (TrackState::NotOnline, None)
                }
                Err(error) => (TrackState::Unknown, Some(error.to_string())),
            };
            tracks.push(MessageTrack {
                group,
                state,
                error,
            });
        }
        Ok(tracks)
    }

    async fn track(&self, message: &Delivery, group: &str) -> Result<TrackState> {
        let connections = self.consumer_connections(group, None).await?;
        if connections.consume_type != Some(ConsumeType::ConsumePassively) {
            return Ok(TrackState::Pull);
        }
        let record = message.record();
        let stats = self.consume_stats(group, Some(record.topic())).await?;
        let info = self.cluster_info().await?;
        let store = record.store_host().to_string();
        // The queue is known by the address that stored the message.
        let here = |broker: &str| {
            info.broker_addr_table
                .get(broker)
                .is_some_and(|data| data.broker_addrs.get(&0).is_some_and(|addr| *addr == store))
        };
        let found: BTreeMap<_, _> = stats.offset_table;
        let entry = found.iter().find(|(queue, _)| {
            queue.topic == record.topic()
                && queue.queue_id == record.queue_id()
                && here(&queue.broker_name)
        });
        let Some((_, offsets)) = entry else {
            return Ok(TrackState::Unknown);
        };
        if offsets.consumer_offset <= record.queue_offset() {
            return Ok(TrackState::NotConsumedYet);
        }
        let wanted = connections
            .subscription_table
            .get(record.topic())
            .is_none_or(|subscription| {
                let expression = TagExpression::parse(Some(&subscription.sub_string));
                subscription.expression_type != "TAG"
                    || subscription.class_filter_mode
                    || expression.is_ok_and(|expression| expression.matches(record.tags()))
            });
        Ok(if wanted {
            TrackState::Consumed
        } else {
            TrackState::ConsumedButFiltered
        })
    }
}
