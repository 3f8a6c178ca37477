//! Bodies byte by byte as the wire spec gives them, and the variants that other clients and versions send.

use minimq_protocol::body::*;
use std::collections::BTreeMap;

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// Reads `$json` as `$body` and expects the same bytes back in the Java flavour.
macro_rules! comes_back {
    ($($body:ident: $json:expr;)*) => {$(
        let body = $body::from_json($json.as_bytes()).unwrap();
        assert_eq!(text(body.to_json(Flavour::Fastjson)), $json, stringify!($body));
    )*};
}

const QUEUE: &str = r#"{"brokerName":"brk-a","queueId":0,"topic":"T1"}"#;

#[test]
fn the_examples_of_the_wire_specification_come_back_in_the_same_bytes() {
    let subscription = r#"{"classFilterMode":false,"codeSet":[65,66],"expressionType":"TAG","subString":"A || B","subVersion":1700000000000,"tagsSet":["A","B"],"topic":"T1"}"#;
    let version = r#"{"counter":7,"timestamp":1700000000000}"#;
    let topics = format!(
        r#"{{"dataVersion":{version},"topicConfigTable":{{"T1":{{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T1","topicSysFlag":0,"writeQueueNums":4}}}}}}"#
    );
    let stats = format!(
        r#"{{"consumeTps":0.0,"offsetTable":{{{QUEUE}:{{"brokerOffset":10,"consumerOffset":8,"lastTimestamp":1700000000000}}}}}}"#
    );
    comes_back! {
        TopicRouteData: r#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"brk-a","cluster":"c1"}],"filterServerTable":{},"queueDatas":[{"brokerName":"brk-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}"#;
        ClusterInfo: r#"{"brokerAddrTable":{"brk-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"brk-a","cluster":"c1"}},"clusterAddrTable":{"c1":["brk-a"]}}"#;
        DataVersion: version;
        TopicConfigWrapper: topics;
        RegisterBrokerBody: format!(r#"{{"filterServerList":[],"topicConfigSerializeWrapper":{topics}}}"#);
        KvTable: r#"{"table":{"k":"v"}}"#;
        TopicList: r#"{"brokerAddr":"10.0.0.1:10911","topicList":["T1"]}"#;
        GroupList: r#"{"groupList":["cg"]}"#;
        ConsumerIdList: r#"{"consumerIdList":["10.0.0.9@1234#55"]}"#;
        HeartbeatData: format!(r#"{{"clientID":"10.0.0.9@1234#55","consumerDataSet":[{{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"cg","messageModel":"CLUSTERING","subscriptionDataSet":[{subscription}],"unitMode":false}}],"producerDataSet":[{{"groupName":"pg"}}]}}"#);
        LockBatchBody: format!(r#"{{"clientId":"cid","consumerGroup":"cg","mqSet":[{QUEUE}]}}"#);
        LockBatchResponseBody: format!(r#"{{"lockOKMQSet":[{QUEUE}]}}"#);
        ConsumeStats: stats;
        TopicStatsTable: format!(r#"{{"offsetTable":{{{QUEUE}:{{"lastUpdateTimestamp":1700000000000,"maxOffset":10,"minOffset":0}}}}}}"#);
        ConsumeStatsList: format!(r#"{{"brokerAddr":"10.0.0.1:10911","consumeStatsList":[{{"cg":[{stats}]}}],"totalDiff":2}}"#);
        ConsumerConnection: format!(r#"{{"connectionSet":[{{"clientAddr":"10.0.0.9:5000","clientId":"cid","language":"JAVA","version":409}}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{{"T1":{subscription}}}}}"#);
        ProducerTableInfo: r#"{"data":{"pg":[{"clientId":"cid","language":"JAVA","lastUpdateTimestamp":1700000000000,"remoteIP":"/10.0.0.9:5000","version":409}]}}"#;
        BrokerStatsData: r#"{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},"statsMinute":{"avgpt":1.0,"sum":3,"tps":0.05}}"#;
        QueryConsumeTimeSpanBody: format!(r#"{{"consumeTimeSpanSet":[{{"consumeTimeStamp":1,"consumeTimeStampStr":"1970-01-01#00:00:00:001","delayTime":1,"maxTimeStamp":2,"maxTimeStampStr":"…","messageQueue":{QUEUE},"minTimeStamp":1,"minTimeStampStr":"…"}}]}}"#);
        QueryCorrectionOffsetBody: r#"{"correctionOffsets":{0:5,1:9223372036854775807}}"#;
        QueryConsumeQueueResponseBody: r#"{"maxQueueIndex":9,"minQueueIndex":0,"queueData":[{"eval":false,"physicOffset":100,"physicSize":200,"tagsCode":65}]}"#;
        CheckClientRequestBody: format!(r#"{{"clientId":"cid","group":"cg","subscriptionData":{subscription}}}"#);
        ResetOffsetBody: format!(r#"{{"offsetTable":{{{QUEUE}:5,{{"brokerName":"brk-a","queueId":1,"topic":"T1"}}:6}}}}"#);
        ResetOffsetBodyForC: r#"{"offsetTable":[{"brokerName":"brk-a","offset":5,"queueId":0,"topic":"T1"}]}"#;
        GetConsumerStatusBody: format!(r#"{{"consumerTable":{{"cid":{{{QUEUE}:5}}}},"messageQueueTable":{{}}}}"#);
        ConsumeMessageDirectlyResult: r#"{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}"#;
        SubscriptionGroupWrapper: format!(r#"{{"dataVersion":{version},"subscriptionGroupTable":{{"cg":{{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"cg","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}}}}"#);
        ConsumerOffsetWrapper: r#"{"offsetTable":{"T1@cg":{0:5,1:6}}}"#;
        ConsumerOffsetWrapper: r#"{"lmqOffsetTable":{"%LMQ%d@%LMQ%d":5},"offsetTable":{}}"#;
        DelayOffsetWrapper: r#"{"offsetTable":{1:120,2:7}}"#;
        OffsetMovedEvent: format!(r#"{{"consumerGroup":"cg","messageQueue":{QUEUE},"offsetNew":5,"offsetRequest":9}}"#);
        LocalOffsetTable: format!(r#"{{"offsetTable":{{{QUEUE}:5}}}}"#);
        KvConfigTable: r#"{"configTable":{"ORDER_TOPIC_CONFIG":{"T1":"brk-a:4"}}}"#;
        AclConfig: r#"{"globalWhiteAddrs":["10.0.0.*"],"plainAccessConfigs":[{"accessKey":"RocketMQ","admin":false,"defaultGroupPerm":"SUB","defaultTopicPerm":"DENY","groupPerms":["g=DENY"],"secretKey":"12345678","topicPerms":["t=PUB|SUB"],"whiteRemoteAddress":""}]}"#;
        AclFileVersions: format!(r#"{{"/conf/plain_acl.yml":{version}}}"#);
        ConsumeByWho: r#"{"consumedGroup":["a"],"notConsumedGroup":["b"],"offset":1,"queueId":0,"topic":"T1"}"#;
    }
}

#[test]
fn number_keys_come_quoted_for_new_clients_and_bare_for_old_ones() {
    let mut broker = BrokerData {
        broker_name: "b".into(),
        cluster: Some("größe".into()),
        ..BrokerData::default()
    };
    broker.broker_addrs = BTreeMap::from([(0, "10.0.0.1:10911".into()), (1, "[::1]:10911".into())]);
    let route = TopicRouteData {
        broker_datas: vec![broker],
        ..TopicRouteData::default()
    };
    assert_eq!(
        text(route.to_wire()),
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"[::1]:10911"},"brokerName":"b","cluster":"gr\u00F6\u00DFe"}],"filterServerTable":{},"queueDatas":[]}"#
    );
    assert_eq!(
        text(route.to_json(Flavour::Fastjson)),
        r#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"[::1]:10911"},"brokerName":"b","cluster":"größe"}],"filterServerTable":{},"queueDatas":[]}"#
    );
    for flavour in [Flavour::Standard, Flavour::Fastjson] {
        assert_eq!(
            TopicRouteData::from_json(&route.to_json(flavour)).as_ref(),
            Ok(&route)
        );
    }
}

#[test]
fn object_keys_are_read_as_objects_and_as_their_json_text() {
    let queue = MessageQueue::new("T1", "brk-a", 0);
    let as_object = format!(r#"{{"offsetTable":{{{QUEUE}:5}}}}"#);
    let as_text =
        r#"{"offsetTable":{"{\"brokerName\":\"brk-a\",\"queueId\":0,\"topic\":\"T1\"}":"5"}}"#;
    for json in [&as_object, as_text] {
        assert_eq!(
            ResetOffsetBody::from_json(json.as_bytes())
                .unwrap()
                .offset_table,
            BTreeMap::from([(queue.clone(), 5)])
        );
    }
    let standard = ResetOffsetBody::from_json(as_object.as_bytes())
        .unwrap()
        .to_json(Flavour::Standard);
    assert_eq!(text(standard), as_text.replace("\"5\"", "5"));

    let pairs = format!(r#"{{"offsetTable":[[{QUEUE},5]]}}"#);
    let stats = ConsumeStats::from_json(pairs.as_bytes()).unwrap_err();
    assert_eq!(
        stats.to_string(),
        "offsetTable: expected an object, found an array"
    );
    let broken = ResetOffsetBody::from_json(br#"{"offsetTable":{"T1":5}}"#).unwrap_err();
    assert_eq!(
        broken.to_string(),
        "offsetTable.T1: expected an object or its JSON text, found \"T1\""
    );
}

#[test]
fn reset_offsets_are_read_in_all_three_forms_and_written_for_cpp() {
    let body = ResetOffsetBody {
        offset_table: BTreeMap::from([(MessageQueue::new("T1", "brk-a", 0), 5)]),
    };
    let array = r#"{"offsetTable":[{"brokerName":"brk-a","offset":5,"queueId":0,"topic":"T1"}]}"#;
    let pairs = format!(r#"{{"offsetTable":[[{QUEUE},5]]}}"#);
    assert_eq!(text(body.to_json_for_cpp()), array);
    for json in [array, &pairs, &text(body.to_wire())] {
        assert_eq!(
            ResetOffsetBody::from_json(json.as_bytes()).as_ref(),
            Ok(&body),
            "{json}"
        );
    }
    assert_eq!(
        ResetOffsetBody::from_json(b"{}"),
        Ok(ResetOffsetBody::default())
    );
    assert!(ResetOffsetBody::from_json(br#"{"offsetTable":[[1]]}"#).is_err());
}

#[test]
fn heartbeats_of_cpp_clients_are_read() {
    let json = br#"{"clientID":"10.0.0.9@DEFAULT","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"cg","messageModel":1,"subscriptionDataSet":[{"codeSet":[65],"subString":"A","subVersion":"1700000000000","tagsSet":["A"],"topic":"T1"},{"subString":"*","subVersion":"0","topic":"T2"}]}]}
"#;
    let heartbeat = HeartbeatData::from_json(json).unwrap();
    assert!(heartbeat.producer_data_set.is_empty());
    let consumer = &heartbeat.consumer_data_set[0];
    assert_eq!(
        consumer.consume_from_where,
        Some(ConsumeFromWhere::ConsumeFromFirstOffset)
    );
    assert_eq!(consumer.consume_type, Some(ConsumeType::ConsumePassively));
    assert_eq!(consumer.message_model, Some(MessageModel::Clustering));
    assert!(!consumer.unit_mode);
    let subscription = &consumer.subscription_data_set[0];
    assert_eq!(
        (subscription.sub_version, subscription.code_set.as_slice()),
        (1_700_000_000_000, [65].as_slice())
    );
    assert_eq!(subscription.expression_type, "TAG");
    assert!(consumer.subscription_data_set[1].tags_set.is_empty());
}

#[test]
fn heartbeats_with_missing_members_or_unknown_names_are_read() {
    assert_eq!(
        HeartbeatData::from_json(b"{}"),
        Ok(HeartbeatData::default())
    );
    assert_eq!(
        HeartbeatData::from_json(br#"{"clientId":"x"}"#)
            .unwrap()
            .client_id,
        "x"
    );
    let json = br#"{"clientID":"x","heartbeatFingerprint":7,"withoutSub":false,"producerDataSet":null,
        "consumerDataSet":[{"consumeType":"CONSUME_BY_MAIL","consumeFromWhere":"UNKNOWN","messageModel":"clustering","groupName":"cg"},
        {"consumeType":"consume_pop","consumeFromWhere":99,"messageModel":-1,"subscriptionDataSet":[{"codeSet":["65"],"expressionType":null}]}]}"#;
    let heartbeat = HeartbeatData::from_json(json).unwrap();
    let [first, second] = heartbeat.consumer_data_set.as_slice() else {
        panic!("{heartbeat:?}")
    };
    assert_eq!((first.consume_type, first.consume_from_where), (None, None));
    assert_eq!(first.message_model, Some(MessageModel::Clustering));
    assert_eq!(second.consume_type, Some(ConsumeType::ConsumePop));
    assert_eq!(
        (second.consume_from_where, second.message_model),
        (None, None)
    );
    assert_eq!(second.subscription_data_set[0].code_set, [65]);
    assert_eq!(second.subscription_data_set[0].expression_type, "TAG");

    assert!(matches!(
        HeartbeatData::from_json(b"{x"),
        Err(BodyError::Json(_))
    ));
    assert_eq!(HeartbeatData::from_json(b""), Err(BodyError::Empty));
    assert!(matches!(
        HeartbeatData::from_json(b"[]"),
        Err(BodyError::Mismatch { .. })
    ));
}

#[test]
fn missing_members_take_the_defaults_of_the_java_classes() {
    let topic = TopicConfig::from_json(br#"{"topicName":"T1"}"#).unwrap();
    assert_eq!(topic, TopicConfig::new("T1"));
    assert_eq!(
        (topic.read_queue_nums, topic.write_queue_nums, topic.perm),
        (16, 16, 6)
    );
    let group = SubscriptionGroupConfig::from_json(
        br#"{"groupName":"g","retryMaxTimes":null,"consumeEnable":"false"}"#,
    );
    assert_eq!(
        group,
        Ok(SubscriptionGroupConfig {
            consume_enable: false,
            ..SubscriptionGroupConfig::new("g")
        })
    );
    let result = ConsumeMessageDirectlyResult::from_json(br#"{"consumeResult":4}"#).unwrap();
    assert_eq!(
        result.consume_result,
        Some(ConsumeMessageResult::ThrowException)
    );
    assert!(result.auto_commit);
}

#[test]
fn older_and_other_spellings_are_read() {
    let version = DataVersion::from_json(br#"{"counter":3,"timestatmp":5}"#);
    assert_eq!(
        version,
        Ok(DataVersion {
            counter: 3,
            timestamp: 5
        })
    );
    let queue = QueueData::from_json(br#"{"topicSynFlag":1}"#).unwrap();
    assert_eq!(queue.topic_sys_flag, 1);
    let both = QueueData::from_json(br#"{"topicSynFlag":1,"topicSysFlag":2}"#).unwrap();
    assert_eq!(both.topic_sys_flag, 2);
    assert!(
        ProcessQueueInfo::from_json(br#"{"dropped":true}"#)
            .unwrap()
            .dropped
    );
    assert!(
        ProcessQueueInfo::from_json(br#"{"droped":true}"#)
            .unwrap()
            .dropped
    );
}

#[test]
fn queues_are_ordered_by_topic_broker_and_number() {
    let mut queues = [
        ("T2", "a", 0),
        ("T1", "b", 0),
        ("T1", "a", 10),
        ("T1", "a", 9),
    ]
    .map(|(topic, broker, id)| MessageQueue::new(topic, broker, id));
    queues.sort();
    let names: Vec<_> = queues
        .iter()
        .map(|queue| {
            (
                queue.topic.as_str(),
                queue.broker_name.as_str(),
                queue.queue_id,
            )
        })
        .collect();
    assert_eq!(
        names,
        [
            ("T1", "a", 9),
            ("T1", "a", 10),
            ("T1", "b", 0),
            ("T2", "a", 0)
        ]
    );
}

#[test]
fn what_clients_send_is_limited_more_tightly_than_the_tables_of_a_broker() {
    let empty_entries = |field: &str| format!(r#"{{"{field}":[{}]}}"#, "{},".repeat(200_000));
    let heartbeat = HeartbeatData::from_json(empty_entries("consumerDataSet").as_bytes());
    let error = heartbeat.unwrap_err().to_string();
    assert!(
        error.starts_with("JSON: more than 200000 keys and values at byte"),
        "{error}"
    );
    let stats = ConsumeStatsList::from_json(empty_entries("consumeStatsList").as_bytes());
    assert_eq!(stats.unwrap().consume_stats_list.len(), 200_000);
}
