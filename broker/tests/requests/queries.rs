//! Messages by key, by place and by queue entry: index-01, index-02.

use minimq_protocol::Command;
use minimq_protocol::body::QueryConsumeQueueResponseBody;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    QueryConsumeQueueRequest, QueryMessageRequest, QueryMessageResponse, SendMessageResponse,
    ViewMessageRequest,
};
use minimq_protocol::message_id::OffsetId;

use crate::support::{Harness, records, until};

async fn query(broker: &Harness, key: &str, max_num: i32) -> Command {
    query_in(broker, "T", key, max_num).await
}

async fn query_in(broker: &Harness, topic: &str, key: &str, max_num: i32) -> Command {
    let header = QueryMessageRequest {
        topic,
        key,
        max_num,
        begin_timestamp: 0,
        end_timestamp: i64::MAX,
        unique_key_query: None,
    };
    broker
        .call(Command::request_with(request::QUERY_MESSAGE, &header))
        .await
}

async fn found(broker: &Harness, key: &str) -> Vec<String> {
    bodies(query(broker, key, 32).await)
}

fn bodies(answer: Command) -> Vec<String> {
    let header: QueryMessageResponse = answer.header().unwrap();
    if answer.code == response::QUERY_NOT_FOUND {
        assert!(answer.body.is_empty());
        return Vec::new();
    }
    assert_eq!(answer.code, 0);
    assert!(header.index_last_update_timestamp > 0);
    let body = |message: minimq_protocol::message::MessageView| {
        String::from_utf8_lossy(message.body()).into_owned()
    };
    records(&answer).into_iter().map(body).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn index_01_every_word_of_the_keys_finds_its_message() {
    let broker = Harness::start(&[]).await;
    for (keys, body) in [
        ("o1 o2  o3", "words"),
        (" lead", "lead"),
        ("中文", "chinese"),
        ("dup dup", "dup"),
        ("last", "last"),
    ] {
        broker
            .send(
                "T",
                &[("KEYS", keys), ("UNIQ_KEY", &format!("u-{body}"))],
                body,
            )
            .await;
    }
    until("the index", async || {
        !found(&broker, "last").await.is_empty()
    })
    .await;
    for key in ["o1", "o2", "o3"] {
        assert_eq!(found(&broker, key).await, ["words"], "{key}");
    }
    for none in ["", "o1 o2", "o4", "O1"] {
        assert!(found(&broker, none).await.is_empty(), "{none}");
    }
    assert_eq!(found(&broker, "lead").await, ["lead"]);
    assert_eq!(found(&broker, "中文").await, ["chinese"]);
    assert_eq!(found(&broker, "u-words").await, ["words"]);
    assert_eq!(found(&broker, "dup").await.len(), 1);
    assert_eq!(
        query(&broker, "o1", 0).await.code,
        response::QUERY_NOT_FOUND
    );
    assert_eq!(
        query(&broker, "o1", -1).await.code,
        response::QUERY_NOT_FOUND
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn index_02_keys_of_one_hash_are_told_apart_by_the_client() {
    let broker = Harness::start(&[]).await;
    for (topic, key) in [
        ("T", "AaAa"),
        ("T", "BBBB"),
        ("TAa", "key"),
        ("TBB", "key"),
        ("T", "last"),
    ] {
        let properties = [("KEYS", key), ("UNIQ_KEY", &format!("u-{topic}-{key}"))];
        broker
            .send(topic, &properties, &format!("{topic}-{key}"))
            .await;
    }
    until("the index", async || {
        !found(&broker, "last").await.is_empty()
    })
    .await;
    assert_eq!(found(&broker, "AaAa").await, ["T-AaAa", "T-BBBB"]);
    assert_eq!(found(&broker, "BBBB").await, ["T-AaAa", "T-BBBB"]);
    let across = bodies(query_in(&broker, "TAa", "key", 32).await);
    assert!(across.contains(&"TAa-key".to_owned()), "{across:?}");
    assert!(
        across.iter().all(|body| body.ends_with("-key")),
        "{across:?}"
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_viewed_by_its_place() {
    let broker = Harness::start(&[]).await;
    let answer = broker.send("T", &[], "here").await;
    let header: SendMessageResponse<'_> = answer.header().unwrap();
    let id: OffsetId = header.msg_id.parse().unwrap();
    let view = async |offset| {
        let header = ViewMessageRequest { offset };
        broker
            .call(Command::request_with(request::VIEW_MESSAGE_BY_ID, &header))
            .await
    };
    let answer = view(id.physical_offset).await;
    assert_eq!(records(&answer)[0].body(), b"here");
    for none in [id.physical_offset + 1, -1, i64::MAX, i64::MIN, 1 << 50] {
        let answer = view(none).await;
        assert_eq!(answer.code, 1);
        let remark = format!("can not find message by the offset, {none}");
        assert!(answer.remark().starts_with(&remark), "{}", answer.remark());
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_a_consume_queue_are_listed_with_a_groups_verdict() {
    let broker = Harness::start(&[]).await;
    for tag in ["A", "B", "A"] {
        broker.send("T", &[("TAGS", tag)], "x").await;
    }
    broker.register_consumer("G", "T", ("TAG", "A"), 1).await;
    until("the entries", async || {
        broker.broker.store.reader().max_offset("T", 0).get() == 3
    })
    .await;
    let dump = async |index, count, group| {
        let header = QueryConsumeQueueRequest {
            topic: Some("T"),
            queue_id: 0,
            index,
            count,
            consumer_group: group,
        };
        broker
            .call(Command::request_with(request::QUERY_CONSUME_QUEUE, &header))
            .await
    };
    let answer = dump(0, 10, Some("G")).await;
    let body = QueryConsumeQueueResponseBody::from_json(&answer.body).unwrap();
    assert_eq!((body.min_queue_index, body.max_queue_index), (0, 3));
    assert_eq!(body.subscription_data.unwrap().sub_string, "A");
    let entries = body.queue_data.unwrap();
    let verdicts: Vec<bool> = entries.iter().map(|entry| entry.eval).collect();
    assert_eq!(verdicts, [true, false, true]);
    assert_eq!((entries[0].tags_code, entries[1].tags_code), (65, 66));
    assert_eq!(
        entries[1].physic_offset,
        entries[0].physic_offset + i64::from(entries[0].physic_size)
    );

    let answer = dump(1, 1, Some("OFF")).await;
    let body = QueryConsumeQueueResponseBody::from_json(&answer.body).unwrap();
    assert_eq!(body.filter_data.as_deref(), Some("OFF@T is not online!"));
    assert_eq!(body.queue_data.unwrap().len(), 1);

    for (index, count) in [(3, 1), (-1, 1), (i64::MAX, i32::MAX)] {
        let answer = dump(index, count, None).await;
        assert_eq!((answer.code, answer.body.len()), (0, 0));
        assert_eq!(
            answer.remark(),
            format!("Index {index} of 0@T is not exist!")
        );
    }
    let header = QueryConsumeQueueRequest {
        topic: Some("NO"),
        queue_id: 3,
        index: 0,
        count: 1,
        consumer_group: None,
    };
    let answer = broker
        .call(Command::request_with(request::QUERY_CONSUME_QUEUE, &header))
        .await;
    assert_eq!((answer.code, answer.remark()), (1, "3@NO is not exist!"));
    broker.stop().await;
}
