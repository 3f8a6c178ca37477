//! Bodies of any content, written in any form, read back as they were.

use minimq_protocol::body::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn queue() -> impl Strategy<Value = MessageQueue> {
    (any::<String>(), any::<String>(), any::<i32>())
        .prop_map(|(topic, broker, id)| MessageQueue::new(topic, broker, id))
}

fn offsets() -> impl Strategy<Value = BTreeMap<MessageQueue, i64>> {
    prop::collection::btree_map(queue(), any::<i64>(), 0..5)
}

fn subscription() -> impl Strategy<Value = SubscriptionData> {
    let tags = prop::collection::vec(any::<String>(), 0..4);
    (
        any::<bool>(),
        any::<String>(),
        any::<String>(),
        any::<i64>(),
        tags,
    )
        .prop_map(|(class, topic, text, version, tags)| SubscriptionData {
            class_filter_mode: class,
            code_set: tags.iter().map(|tag| tag.len() as i32).collect(),
            sub_string: text,
            sub_version: version,
            tags_set: tags,
            topic,
            ..SubscriptionData::default()
        })
}

fn heartbeat() -> impl Strategy<Value = HeartbeatData> {
    let choice = |count: usize| prop::option::of(0..count as i64);
    let consumer = (
        any::<String>(),
        choice(6),
        choice(3),
        choice(2),
        prop::collection::vec(subscription(), 0..3),
        any::<bool>(),
    );
    let consumer =
        consumer.prop_map(
            |(group, from, kind, model, subscriptions, unit)| ConsumerData {
                consume_from_where: from.and_then(ConsumeFromWhere::from_ordinal),
                consume_type: kind.and_then(ConsumeType::from_ordinal),
                group_name: group,
                message_model: model.and_then(MessageModel::from_ordinal),
                subscription_data_set: subscriptions,
                unit_mode: unit,
            },
        );
    (
        any::<String>(),
        prop::collection::vec(consumer, 0..3),
        prop::collection::vec(any::<String>(), 0..3),
    )
        .prop_map(|(client, consumers, producers)| HeartbeatData {
            client_id: client,
            consumer_data_set: consumers,
            producer_data_set: producers
                .into_iter()
                .map(|group_name| ProducerData { group_name })
                .collect(),
        })
}

fn route() -> impl Strategy<Value = TopicRouteData> {
    let addresses = prop::collection::btree_map(any::<i64>(), any::<String>(), 0..3);
    let broker = (
        addresses,
        any::<String>(),
        prop::option::of(any::<String>()),
    )
        .prop_map(|(broker_addrs, broker_name, cluster)| BrokerData {
            broker_addrs,
            broker_name,
            cluster,
        });
    let queues = (any::<String>(), any::<i32>(), any::<i32>()).prop_map(
        |(broker_name, perm, read_queue_nums)| QueueData {
            broker_name,
            perm,
            read_queue_nums,
            ..QueueData::default()
        },
    );
    let filters = prop::collection::btree_map(
        any::<String>(),
        prop::collection::vec(any::<String>(), 0..3),
        0..3,
    );
    (
        prop::collection::vec(broker, 0..3),
        filters,
        prop::option::of(any::<String>()),
        prop::collection::vec(queues, 0..3),
    )
        .prop_map(
            |(broker_datas, filter_server_table, order_topic_conf, queue_datas)| TopicRouteData {
                broker_datas,
                filter_server_table,
                order_topic_conf,
                queue_datas,
            },
        )
}

/// Written in any form, the body reads back.
macro_rules! reads_back {
    ($body:expr, $type:ident) => {
        for flavour in [Flavour::Standard, Flavour::Fastjson] {
            prop_assert_eq!(&$type::from_json(&$body.to_json(flavour)).unwrap(), &$body);
            prop_assert_eq!(
                &$type::from_json(&$body.to_json_pretty(flavour)).unwrap(),
                &$body
            );
        }
    };
}

proptest! {
    #[test]
    fn every_heartbeat_reads_back(body in heartbeat()) {
        reads_back!(body, HeartbeatData);
    }

    #[test]
    fn every_route_reads_back(body in route()) {
        reads_back!(body, TopicRouteData);
    }

    #[test]
    fn every_offset_table_reads_back(offset_table in offsets(), client in any::<String>()) {
        let body = ResetOffsetBody { offset_table: offset_table.clone() };
        reads_back!(body, ResetOffsetBody);
        prop_assert_eq!(&ResetOffsetBody::from_json(&body.to_json_for_cpp()).unwrap(), &body);
        let body = GetConsumerStatusBody {
            consumer_table: BTreeMap::from([(client, offset_table.clone())]),
            message_queue_table: offset_table,
        };
        reads_back!(body, GetConsumerStatusBody);
    }

    #[test]
    fn every_speed_reads_back(consume_tps in any::<f64>().prop_filter("finite", |number| number.is_finite()), table in offsets()) {
        let row = |(queue, offset)| (queue, OffsetWrapper { broker_offset: offset, ..OffsetWrapper::default() });
        let body = ConsumeStats { consume_tps, offset_table: table.into_iter().map(row).collect() };
        reads_back!(body, ConsumeStats);
    }
}
