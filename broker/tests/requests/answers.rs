//! Every request code of the broker answers whatever its fields are, and soon.

use minimq_protocol::Command;
use minimq_protocol::code::request;

use crate::support::{Harness, send_request};

/// Codes the broker serves, with the names of their fields. [`request::END_TRANSACTION`], which may stay silent, apart.
pub(crate) const SERVED: &[(i32, &[&str])] = &[
    (
        request::SEND_MESSAGE,
        &[
            "producerGroup",
            "topic",
            "defaultTopic",
            "defaultTopicQueueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
        ],
    ),
    (
        request::PULL_MESSAGE,
        &[
            "consumerGroup",
            "topic",
            "queueId",
            "queueOffset",
            "maxMsgNums",
            "sysFlag",
            "commitOffset",
            "suspendTimeoutMillis",
            "subVersion",
        ],
    ),
    (
        request::LITE_PULL_MESSAGE,
        &[
            "consumerGroup",
            "topic",
            "queueId",
            "queueOffset",
            "maxMsgNums",
            "sysFlag",
            "commitOffset",
            "suspendTimeoutMillis",
            "subVersion",
        ],
    ),
    (
        request::QUERY_MESSAGE,
        &["topic", "key", "maxNum", "beginTimestamp", "endTimestamp"],
    ),
    (
        request::QUERY_CONSUMER_OFFSET,
        &["consumerGroup", "topic", "queueId"],
    ),
    (
        request::UPDATE_CONSUMER_OFFSET,
        &["consumerGroup", "topic", "queueId", "commitOffset"],
    ),
    (
        request::UPDATE_AND_CREATE_TOPIC,
        &[
            "topic",
            "defaultTopic",
            "readQueueNums",
            "writeQueueNums",
            "perm",
            "topicFilterType",
        ],
    ),
    (request::GET_ALL_TOPIC_CONFIG, &[]),
    (request::UPDATE_BROKER_CONFIG, &[]),
    (request::GET_BROKER_CONFIG, &[]),
    (request::GET_BROKER_RUNTIME_INFO, &[]),
    (
        request::SEARCH_OFFSET_BY_TIMESTAMP,
        &["topic", "queueId", "timestamp"],
    ),
    (request::GET_MAX_OFFSET, &["topic", "queueId"]),
    (request::GET_MIN_OFFSET, &["topic", "queueId"]),
    (request::GET_EARLIEST_MSG_STORETIME, &["topic", "queueId"]),
    (request::VIEW_MESSAGE_BY_ID, &["offset"]),
    (request::HEART_BEAT, &[]),
    (request::UNREGISTER_CLIENT, &["clientID"]),
    (
        request::CONSUMER_SEND_MSG_BACK,
        &["offset", "group", "delayLevel"],
    ),
    (request::GET_CONSUMER_LIST_BY_GROUP, &["consumerGroup"]),
    (request::LOCK_BATCH_MQ, &[]),
    (request::UNLOCK_BATCH_MQ, &[]),
    (request::GET_ALL_CONSUMER_OFFSET, &[]),
    (request::GET_ALL_DELAY_OFFSET, &[]),
    (request::CHECK_CLIENT_CONFIG, &[]),
    (request::UPDATE_AND_CREATE_ACL_CONFIG, &["accessKey"]),
    (request::DELETE_ACL_CONFIG, &["accessKey"]),
    (request::GET_BROKER_CLUSTER_ACL_INFO, &[]),
    (
        request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        &["globalWhiteAddrs"],
    ),
    (request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &[]),
    (request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, &[]),
    (request::GET_TOPIC_STATS_INFO, &["topic"]),
    (request::GET_CONSUMER_CONNECTION_LIST, &["consumerGroup"]),
    (request::GET_PRODUCER_CONNECTION_LIST, &["producerGroup"]),
    (request::DELETE_SUBSCRIPTIONGROUP, &["groupName"]),
    (request::GET_CONSUME_STATS, &["consumerGroup"]),
    (request::DELETE_TOPIC_IN_BROKER, &["topic"]),
    (
        request::INVOKE_BROKER_TO_RESET_OFFSET,
        &["topic", "group", "timestamp"],
    ),
    (
        request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        &["topic", "group"],
    ),
    (request::QUERY_TOPIC_CONSUME_BY_WHO, &["topic"]),
    (request::REGISTER_FILTER_SERVER, &["filterServerAddr"]),
    (request::QUERY_CONSUME_TIME_SPAN, &["topic", "group"]),
    (request::GET_SYSTEM_TOPIC_LIST_FROM_BROKER, &[]),
    (request::CLEAN_EXPIRED_CONSUMEQUEUE, &[]),
    (
        request::GET_CONSUMER_RUNNING_INFO,
        &["consumerGroup", "clientId"],
    ),
    (request::QUERY_CORRECTION_OFFSET, &["compareGroup", "topic"]),
    (request::CONSUME_MESSAGE_DIRECTLY, &["consumerGroup"]),
    (
        request::SEND_MESSAGE_V2,
        &["a", "b", "c", "d", "e", "f", "g", "h"],
    ),
    (request::CLONE_GROUP_OFFSET, &["srcGroup", "destGroup"]),
    (request::VIEW_BROKER_STATS_DATA, &["statsName", "statsKey"]),
    (request::CLEAN_UNUSED_TOPIC, &[]),
    (request::GET_BROKER_CONSUME_STATS, &[]),
    (
        request::SEND_BATCH_MESSAGE,
        &["a", "b", "c", "d", "e", "f", "g", "h"],
    ),
    (request::QUERY_CONSUME_QUEUE, &[]),
    (request::RESUME_CHECK_HALF_MESSAGE, &[]),
    (
        request::SEND_REPLY_MESSAGE,
        &[
            "producerGroup",
            "topic",
            "defaultTopic",
            "defaultTopicQueueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
        ],
    ),
    (
        request::SEND_REPLY_MESSAGE_V2,
        &["a", "b", "c", "d", "e", "f", "g", "h"],
    ),
    (request::GET_ALL_PRODUCER_INFO, &[]),
    (request::DELETE_EXPIRED_COMMITLOG, &[]),
    (request::GET_DAMAGED_RECORDS, &[]),
    (request::GET_MIXED_SUBSCRIPTIONS, &[]),
    (request::GET_HELD_PULLS, &[]),
    (request::GET_QUEUE_LOCKS, &[]),
];

/// Values for every field of a request.
const ABSURD: [&str; 9] = [
    "",
    "0",
    "2147483647",
    "-1",
    "abc",
    "4294967296",
    "9223372036854775807",
    "-2147483648",
    "%RETRY%\u{1}中\u{2}",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_code_answers_to_missing_and_absurd_fields() {
    let broker = Harness::start(&[]).await;
    for (code, fields) in SERVED {
        let bare = broker.call(Command::request(*code)).await;
        assert_ne!(bare.code, 3, "{code} is served");
        if !fields.is_empty() {
            assert_eq!(bare.code, 1, "{code} without fields");
            assert!(
                bare.remark().contains("is missing"),
                "{code}: {}",
                bare.remark()
            );
        }
        for value in ABSURD {
            let mut command = Command::request(*code);
            for field in *fields {
                command.ext.push(field, value);
            }
            broker.call(command).await;
        }
        for body in ["{", "{}", "[1", "null", "\u{0}\u{1}\u{2}"] {
            let mut command = Command::request(*code).with_body(body);
            for field in *fields {
                command.ext.push(field, "1");
            }
            broker.call(command).await;
        }
    }
    // It may stay silent, and goes on.
    for value in ABSURD {
        let mut end = Command::request(request::END_TRANSACTION);
        for field in [
            "producerGroup",
            "tranStateTableOffset",
            "commitLogOffset",
            "commitOrRollback",
            "msgId",
        ] {
            end.ext.push(field, value);
        }
        broker.client.oneway(&broker.addr, end).await.unwrap();
    }
    let answer = broker.call(send_request("T", &[], "after all that")).await;
    assert_eq!(answer.code, 0, "{}", answer.remark());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codes_that_nobody_serves_are_answered_3() {
    let broker = Harness::start(&[]).await;
    for code in [
        13, 22, 23, 27, 54, 100, 105, 209, 210, 211, 212, 213, 214, 302, 9999, -1,
    ] {
        let answer = broker.call(Command::request(code)).await;
        assert_eq!(answer.code, 3, "{code}");
        assert!(
            answer.remark().contains(&code.to_string()),
            "{}",
            answer.remark()
        );
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_queues_that_nobody_can_walk_are_refused() {
    let broker = Harness::start(&[]).await;
    for (read, write) in [
        ("2147483647", "1"),
        ("1", "2147483647"),
        ("-1", "1"),
        ("1", "16385"),
    ] {
        let topic = Command::request(request::UPDATE_AND_CREATE_TOPIC)
            .with_ext("topic", "T")
            .with_ext("defaultTopic", "TBW102")
            .with_ext("readQueueNums", read)
            .with_ext("writeQueueNums", write)
            .with_ext("perm", "6")
            .with_ext("topicFilterType", "SINGLE_TAG");
        let answer = broker.call(topic).await;
        assert_eq!(answer.code, 1, "{read} {write}");
        assert!(answer.remark().contains("16384"), "{}", answer.remark());
        let body = format!(r#"{{"groupName":"G","retryQueueNums":{write}}}"#);
        let group = Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(body);
        let refused = broker.call(group).await.code == 1;
        assert_eq!(refused, write != "1");
    }
    // What an older file may hold is walked up to the limit.
    let walked = minimq_protocol::body::TopicConfig {
        read_queue_nums: i32::MAX,
        write_queue_nums: i32::MAX,
        ..minimq_protocol::body::TopicConfig::new("OLD")
    };
    broker.broker.topics.put(walked, 0);
    for code in [
        request::GET_TOPIC_STATS_INFO,
        request::QUERY_CONSUME_TIME_SPAN,
    ] {
        let ask = Command::request(code)
            .with_ext("topic", "OLD")
            .with_ext("group", "G");
        let answer = broker.call(ask).await;
        assert_eq!(answer.code, 0, "{code}: {}", answer.remark());
    }
    broker.stop().await;
}
