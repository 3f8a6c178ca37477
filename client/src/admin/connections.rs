//! Who is connected, and what clients tell about themselves.

use minimq_protocol::Command;
use minimq_protocol::body::{
    ConsumerConnection, ConsumerIdList, ConsumerRunningInfo, ProducerConnection, ProducerTableInfo,
};
use minimq_protocol::code::request;
use minimq_protocol::header::{
    GetConsumerConnectionListRequest, GetConsumerListByGroupRequest, GetConsumerRunningInfoRequest,
    GetProducerConnectionListRequest,
};
use minimq_protocol::name::retry_topic;

use super::{Admin, body};
use crate::error::Result;

impl Admin {
    /// Members of a consumer group and their subscriptions (203), asked of `addr` or of a broker of its retry topic.
    pub async fn consumer_connections(
        &self,
        group: &str,
        addr: Option<&str>,
    ) -> Result<ConsumerConnection> {
        let addr = self.broker_for_group(group, addr).await?;
        let header = GetConsumerConnectionListRequest {
            consumer_group: group,
        };
        let answer = self
            .call(
                &addr,
                Command::request_with(request::GET_CONSUMER_CONNECTION_LIST, &header),
            )
            .await?;
        body(&addr, &answer, ConsumerConnection::from_json)
    }

    /// Client ids of a consumer group (38).
    pub async fn consumer_ids(&self, group: &str, addr: Option<&str>) -> Result<Vec<String>> {
        let addr = self.broker_for_group(group, addr).await?;
        let header = GetConsumerListByGroupRequest {
            consumer_group: group,
        };
        let answer = self
            .call(
                &addr,
                Command::request_with(request::GET_CONSUMER_LIST_BY_GROUP, &header),
            )
            .await?;
        Ok(body(&addr, &answer, ConsumerIdList::from_json)?.consumer_id_list)
    }

    /// Members of a producer group (204), asked of a broker of `topic`.
    pub async fn producer_connections(
        &self,
        group: &str,
        topic: &str,
    ) -> Result<ProducerConnection> {
        let addr = self.first_broker_of(topic).await?;
        let header = GetProducerConnectionListRequest {
            producer_group: group,
        };
        let answer = self
            .call(
                &addr,
                Command::request_with(request::GET_PRODUCER_CONNECTION_LIST, &header),
            )
            .await?;
        body(&addr, &answer, ProducerConnection::from_json)
    }

    /// All producers of a broker (328).
    pub async fn producers(&self, addr: &str) -> Result<ProducerTableInfo> {
        let answer = self
            .call(addr, Command::request(request::GET_ALL_PRODUCER_INFO))
            .await?;
        body(addr, &answer, ProducerTableInfo::from_json)
    }

    /// The state of a running consumer (307), which a broker asks of it.
    pub async fn running_info(
        &self,
        group: &str,
        client_id: &str,
        stacks: bool,
    ) -> Result<ConsumerRunningInfo> {
        let addr = self.broker_for_group(group, None).await?;
        let header = GetConsumerRunningInfoRequest {
            consumer_group: group,
            client_id,
            jstack_enable: stacks,
        };
        let answer = self
            .call_long(
                &addr,
                Command::request_with(request::GET_CONSUMER_RUNNING_INFO, &header),
            )
            .await?;
        body(&addr, &answer, ConsumerRunningInfo::from_json)
    }

    async fn broker_for_group(&self, group: &str, addr: Option<&str>) -> Result<String> {
        match addr {
            Some(addr) => Ok(addr.to_owned()),
            None => self.first_broker_of(&retry_topic(group)).await,
        }
    }
}
