//! Routes and topics: 105, 206, 216, 224, 304, 311 to 313 (name server spec 7, 8).

use bytes::Bytes;
use minimq_protocol::Command;
use minimq_protocol::body::Flavour;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    DeleteTopicFromNamesrvRequest, GetRouteInfoRequest, GetTopicsByClusterRequest,
};
use minimq_protocol::version::V4_9_4;

use super::{Answered, Patience, Refusal, State, done, log};
use crate::kv_config::ORDER_TOPIC_CONFIG;
use crate::registry::UnitList;

impl State {
    /// Body of answer 105. Takes no lock; allocates nothing while the route has not changed.
    pub(super) fn route(&self, request: &Command) -> Result<Bytes, Refusal> {
        // Only a missing topic is an error here, and it is looked for under this name.
        let header = request.header().unwrap_or(GetRouteInfoRequest {
            topic: "null",
            accept_standard_json_only: None,
        });
        let config = self.config.get();
        let standard = request.version >= V4_9_4
            || header.accept_standard_json_only == Some(true)
            || config.standard_json_for_all;
        let flavour = if standard {
            Flavour::Standard
        } else {
            Flavour::Fastjson
        };
        let order = match config.order_message_enable {
            true => self.kv.get(ORDER_TOPIC_CONFIG, header.topic),
            false => None,
        };
        let body = self.view.route(header.topic).and_then(|route| match order {
            Some(order) => Some(route.data(Some(order))?.to_json(flavour).into()),
            None => route.body(flavour),
        });
        body.ok_or_else(|| {
            Refusal::With(
                response::TOPIC_NOT_EXIST,
                format!(
                    "No topic route info in name server for the topic: {}\n\
                     See http://rocketmq.apache.org/docs/faq/ for further details.",
                    header.topic
                ),
            )
        })
    }

    pub(super) fn topic_list(&self, request: &Command) -> Answered {
        let view = &self.view;
        let list = match request.code {
            request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => view.all_topics(),
            request::GET_TOPICS_BY_CLUSTER => {
                let header: GetTopicsByClusterRequest<'_> = request.header()?;
                view.topics_of_cluster(header.cluster)
            }
            request::GET_UNIT_TOPIC_LIST => view.unit_topics(UnitList::Unit),
            request::GET_HAS_UNIT_SUB_TOPIC_LIST => view.unit_topics(UnitList::HasUnitSub),
            request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => {
                view.unit_topics(UnitList::HasUnitSubUnunit)
            }
            _ => view.system_topics(),
        };
        Ok(done(request).with_body(list.to_wire()))
    }

    pub(super) fn delete_topic(&self, request: &Command, patience: Patience) -> Answered {
        let header: DeleteTopicFromNamesrvRequest<'_> = request.header()?;
        let cluster = header.cluster_name.filter(|cluster| !cluster.is_empty());
        let changes = self.registry(patience)?.delete_topic(header.topic, cluster);
        log(&changes);
        Ok(done(request))
    }
}
