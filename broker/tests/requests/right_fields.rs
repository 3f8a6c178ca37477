//! Every request code of the broker with right fields: the answer it is to get. And that the tables of codes here are
//! the codes that the broker serves.

use std::collections::BTreeSet;

use minimq_protocol::Command;
use minimq_protocol::batch::BatchRecord;
use minimq_protocol::body::{LockBatchBody, MessageQueue};
use minimq_protocol::code::request::{self, *};
use minimq_protocol::header::SendMessageResponse;
use minimq_protocol::message_id::OffsetId;

use crate::answers::SERVED;
use crate::support::{Harness, consumer, pull_request, send_request_with, until};

fn with(code: i32, fields: &[(&str, &str)]) -> Command {
    let mut command = Command::request(code);
    for (name, value) in fields {
        command.ext.push(name, value);
    }
    command
}

/// What was stored before: the offset id of a message.
fn stored(answer: &Command) -> (String, String) {
    let header: SendMessageResponse<'_> = answer.header().unwrap();
    let id: OffsetId = header.msg_id.parse().unwrap();
    (header.msg_id.to_owned(), id.physical_offset.to_string())
}

/// A request each, with the code of its answer: what reads first, what deletes last.
async fn right(broker: &Harness) -> Vec<(Command, i32)> {
    let (message_id, message_at) = stored(&broker.send("T", &[("KEYS", "k")], "x").await);
    let half = [("TRAN_MSG", "true"), ("PGROUP", "PG")];
    let (half_id, _) = stored(&broker.send("T", &half, "half").await);
    let queue = [("topic", "T"), ("queueId", "0")];
    let group = [("consumerGroup", "G")];
    let progress = [("consumerGroup", "G"), ("topic", "T"), ("queueId", "0")];
    let of_topic = |code| with(code, &[("topic", "T")]);
    let locks = LockBatchBody {
        client_id: "client".into(),
        consumer_group: "G".into(),
        mq_set: vec![MessageQueue::new("T", "b0", 0)],
    };
    let mut batch = Vec::new();
    let record = BatchRecord {
        flag: 0,
        body: b"in a batch",
        properties: b"",
    };
    record.encode(&mut batch).unwrap();
    let mut batch = send_request_with(SEND_BATCH_MESSAGE, "T", &[], "").with_body(batch);
    batch.ext.set("m", "true");
    let reply = |code| {
        let properties = [("REPLY_TO_CLIENT", "client"), ("CORRELATION_ID", "c")];
        send_request_with(code, "C1_REPLY_TOPIC", &properties, "reply")
    };
    let mut lite = pull_request("G", "T", 0, ("TAG", "*"));
    lite.code = LITE_PULL_MESSAGE;
    let expression = r#"{"clientId":"client","group":"G","subscriptionData":{"topic":"T","expressionType":"SQL92","subString":"a = 1"}}"#;
    let account = [("accessKey", "an-account"), ("secretKey", "a-secret-of-it")];
    vec![
        (send_request_with(SEND_MESSAGE, "T", &[], "x"), 0),
        (send_request_with(SEND_MESSAGE_V2, "T", &[], "x"), 0),
        (batch, 0),
        (reply(SEND_REPLY_MESSAGE), 0),
        (reply(SEND_REPLY_MESSAGE_V2), 0),
        (pull_request("G", "T", 0, ("TAG", "*")), 0),
        (lite, 0),
        (
            with(
                QUERY_MESSAGE,
                &[
                    ("topic", "T"),
                    ("key", "k"),
                    ("maxNum", "1"),
                    ("beginTimestamp", "0"),
                    ("endTimestamp", "9223372036854775807"),
                ],
            ),
            0,
        ),
        (with(VIEW_MESSAGE_BY_ID, &[("offset", &message_at)]), 0),
        (
            with(UPDATE_CONSUMER_OFFSET, &progress).with_ext("commitOffset", "1"),
            0,
        ),
        (with(QUERY_CONSUMER_OFFSET, &progress), 0),
        (
            with(SEARCH_OFFSET_BY_TIMESTAMP, &queue).with_ext("timestamp", "0"),
            0,
        ),
        (with(GET_MAX_OFFSET, &queue), 0),
        (with(GET_MIN_OFFSET, &queue), 0),
        (with(GET_EARLIEST_MSG_STORETIME, &queue), 0),
        (
            Command::request(HEART_BEAT).with_body(consumer("G", "T", ("TAG", "*"), 1).to_wire()),
            0,
        ),
        (
            with(
                CONSUMER_SEND_MSG_BACK,
                &[("offset", &message_at), ("group", "G"), ("delayLevel", "3")],
            ),
            0,
        ),
        (with(GET_CONSUMER_LIST_BY_GROUP, &group), 0),
        (
            Command::request(LOCK_BATCH_MQ).with_body(locks.to_wire()),
            0,
        ),
        (
            Command::request(UNLOCK_BATCH_MQ).with_body(locks.to_wire()),
            0,
        ),
        (
            Command::request(CHECK_CLIENT_CONFIG).with_body(expression),
            0,
        ),
        (
            with(
                UPDATE_AND_CREATE_TOPIC,
                &[
                    ("topic", "T2"),
                    ("defaultTopic", "TBW102"),
                    ("readQueueNums", "1"),
                    ("writeQueueNums", "1"),
                    ("perm", "6"),
                    ("topicFilterType", "SINGLE_TAG"),
                ],
            ),
            0,
        ),
        (
            Command::request(UPDATE_BROKER_CONFIG).with_body("traceOn=true"),
            0,
        ),
        (Command::request(GET_BROKER_CONFIG), 0),
        (Command::request(GET_BROKER_RUNTIME_INFO), 0),
        (Command::request(GET_ALL_TOPIC_CONFIG), 0),
        (Command::request(GET_ALL_CONSUMER_OFFSET), 0),
        (Command::request(GET_ALL_DELAY_OFFSET), 0),
        (Command::request(GET_ALL_SUBSCRIPTIONGROUP_CONFIG), 0),
        // Access control is off: it has tests of its own.
        (with(UPDATE_AND_CREATE_ACL_CONFIG, &account), 209),
        (with(DELETE_ACL_CONFIG, &account), 210),
        (Command::request(GET_BROKER_CLUSTER_ACL_INFO), 1),
        (
            with(
                UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
                &[("globalWhiteAddrs", "10.0.0.1")],
            ),
            211,
        ),
        (
            Command::request(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
                .with_body(r#"{"groupName":"G2"}"#),
            0,
        ),
        (of_topic(GET_TOPIC_STATS_INFO), 0),
        (with(GET_CONSUMER_CONNECTION_LIST, &group), 0),
        (
            with(GET_PRODUCER_CONNECTION_LIST, &[("producerGroup", "PG")]),
            0,
        ),
        (Command::request(GET_ALL_PRODUCER_INFO), 0),
        (with(GET_CONSUME_STATS, &group), 0),
        (with(GET_BROKER_CONSUME_STATS, &[("isOrder", "false")]), 0),
        (
            with(QUERY_CONSUME_TIME_SPAN, &[("topic", "T"), ("group", "G")]),
            0,
        ),
        (of_topic(QUERY_TOPIC_CONSUME_BY_WHO), 0),
        (
            with(
                QUERY_CORRECTION_OFFSET,
                &[("compareGroup", "G"), ("topic", "T")],
            ),
            0,
        ),
        (
            with(
                INVOKE_BROKER_TO_RESET_OFFSET,
                &[
                    ("topic", "T"),
                    ("group", "G"),
                    ("timestamp", "0"),
                    ("isForce", "true"),
                ],
            ),
            0,
        ),
        (
            with(
                INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                &[("topic", "T"), ("group", "G")],
            ),
            0,
        ),
        (
            with(
                GET_CONSUMER_RUNNING_INFO,
                &[("consumerGroup", "G"), ("clientId", "client")],
            ),
            0,
        ),
        (
            with(
                CONSUME_MESSAGE_DIRECTLY,
                &[
                    ("consumerGroup", "G"),
                    ("clientId", "client"),
                    ("msgId", &message_id),
                ],
            ),
            0,
        ),
        (
            with(
                CLONE_GROUP_OFFSET,
                &[("srcGroup", "G"), ("destGroup", "G3"), ("topic", "T")],
            ),
            0,
        ),
        (
            with(
                VIEW_BROKER_STATS_DATA,
                &[("statsName", "TOPIC_PUT_NUMS"), ("statsKey", "T")],
            ),
            0,
        ),
        (
            with(QUERY_CONSUME_QUEUE, &queue)
                .with_ext("index", "0")
                .with_ext("count", "1"),
            0,
        ),
        (with(RESUME_CHECK_HALF_MESSAGE, &[("msgId", &half_id)]), 0),
        (
            with(
                REGISTER_FILTER_SERVER,
                &[("filterServerAddr", "127.0.0.1:9")],
            ),
            0,
        ),
        (Command::request(GET_SYSTEM_TOPIC_LIST_FROM_BROKER), 0),
        (Command::request(GET_DAMAGED_RECORDS), 0),
        (Command::request(GET_MIXED_SUBSCRIPTIONS), 0),
        (Command::request(GET_HELD_PULLS), 0),
        (Command::request(GET_QUEUE_LOCKS), 0),
        (Command::request(CLEAN_EXPIRED_CONSUMEQUEUE), 0),
        (Command::request(CLEAN_UNUSED_TOPIC), 0),
        (Command::request(DELETE_EXPIRED_COMMITLOG), 0),
        (
            with(
                UNREGISTER_CLIENT,
                &[("clientID", "client"), ("consumerGroup", "G")],
            ),
            0,
        ),
        (with(DELETE_SUBSCRIPTIONGROUP, &[("groupName", "G2")]), 0),
        (of_topic(DELETE_TOPIC_IN_BROKER), 0),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_code_answers_to_right_fields() {
    let broker = Harness::start(&[]).await;
    broker.create_topic("T", 1).await;
    broker.register_producer("PG", "client").await;
    broker.register_consumer("G", "T", ("TAG", "*"), 1).await;
    let requests = right(&broker).await;
    until("the message and its key", async || {
        let query = requests
            .iter()
            .find(|(command, _)| command.code == QUERY_MESSAGE);
        broker.call(query.unwrap().0.clone()).await.code == 0
    })
    .await;
    let mut asked = BTreeSet::new();
    for (command, expected) in requests {
        let code = command.code;
        let answer = broker.call(command).await;
        assert_eq!(answer.code, expected, "{code}: {}", answer.remark());
        asked.insert(code);
    }
    let served: BTreeSet<i32> = SERVED.iter().map(|(code, _)| *code).collect();
    assert_eq!(asked, served);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_names_every_code_that_is_served() {
    let broker = Harness::start(&[]).await;
    let known: BTreeSet<i32> = SERVED.iter().map(|(code, _)| *code).collect();
    for code in (0..=1100).chain(31_000..=31_099) {
        let answer = broker.call(Command::request(code)).await;
        let expected = known.contains(&code) || code == END_TRANSACTION;
        assert_eq!(answer.code != 3, expected, "{code}: {}", answer.remark());
    }
    // Whatever 4.9.8 calls a request of the broker is among them.
    for (code, name) in request::ALL {
        let for_others = [
            39, 40, 220, 221, 302, 326, 31_010, // clients and the filter server
            13, 22, 23, 27, 54, 209, 210, 211, 212, 213, 214, // nobody
            304, 311, 312, 313, 318, 319, 322, 327, // the name server
        ]
        .contains(code)
            || (100..=106).contains(code)
            || [205, 206, 216, 217, 218, 219, 224].contains(code);
        assert_ne!(
            known.contains(code) || *code == END_TRANSACTION,
            for_others,
            "{code} {name}"
        );
    }
    broker.stop().await;
}
