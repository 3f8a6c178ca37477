//! Transactions: transaction-01, transaction-02, rounds, restarts.

use minimq_protocol::Command;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    CheckTransactionStateRequest, EndTransactionRequest, QueryMessageRequest,
    ResumeCheckHalfMessageRequest, SendMessageResponse, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK,
    TRANSACTION_UNKNOWN,
};
use minimq_protocol::message::MessageView;
use minimq_protocol::message_id::OffsetId;
use minimq_protocol::name;
use minimq_protocol::properties::name as property;

use crate::support::{Harness, until};

pub(crate) const TX: &str = "TX";
pub(crate) const GROUP: &str = "TXG";

/// A half message as its producer knows it.
pub(crate) struct Half {
    pub(crate) queue_offset: i64,
    pub(crate) physical: i64,
}

pub(crate) async fn half(broker: &Harness, more: &[(&str, &str)]) -> Half {
    let mut properties = vec![
        ("TRAN_MSG", "true"),
        ("PGROUP", GROUP),
        ("UNIQ_KEY", "U1"),
        ("KEYS", "k1"),
    ];
    properties.extend_from_slice(more);
    let answer = broker.send(TX, &properties, "half body").await;
    let header: SendMessageResponse<'_> = answer.header().unwrap();
    let id: OffsetId = header.msg_id.parse().unwrap();
    Half {
        queue_offset: header.queue_offset,
        physical: id.physical_offset,
    }
}

pub(crate) fn end(half: &Half, group: &str, how: i32) -> Command {
    let header = EndTransactionRequest {
        producer_group: group,
        tran_state_table_offset: half.queue_offset,
        commit_log_offset: half.physical,
        commit_or_rollback: how,
        from_transaction_check: false,
        msg_id: "U1",
        transaction_id: Some("U1"),
        bname: None,
    };
    Command::request_with(request::END_TRANSACTION, &header)
}

pub(crate) async fn start(settings: &[&str]) -> Harness {
    let broker = Harness::start(settings).await;
    broker.create_topic(TX, 1).await;
    broker
}

pub(crate) fn max(broker: &Harness, topic: &str) -> i64 {
    broker.broker.store.reader().max_offset(topic, 0).get()
}

pub(crate) async fn arrived(broker: &Harness, topic: &str, offset: i64) -> MessageView {
    until("the message", async || max(broker, topic) > offset).await;
    broker
        .messages(topic, offset)
        .await
        .into_iter()
        .next()
        .expect("a message")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_01_an_end_must_name_group_queue_offset_and_place_of_its_half_message() {
    let broker = start(&[]).await;
    let sent = half(&broker, &[]).await;
    let off_by_one = |queue, physical| Half {
        queue_offset: sent.queue_offset + queue,
        physical: sent.physical + physical,
    };
    for (wrong, group, remark) in [
        (off_by_one(0, 0), "OTHER", "The producer group wrong"),
        (
            off_by_one(1, 0),
            GROUP,
            "The transaction state table offset wrong",
        ),
        (
            off_by_one(0, 1),
            GROUP,
            "Find prepared transaction message failed",
        ),
        (
            off_by_one(0, 1 << 40),
            GROUP,
            "Find prepared transaction message failed",
        ),
        (
            off_by_one(0, -1 - sent.physical),
            GROUP,
            "Find prepared transaction message failed",
        ),
    ] {
        for how in [TRANSACTION_COMMIT, TRANSACTION_ROLLBACK] {
            let answer = broker.call(end(&wrong, group, how)).await;
            assert_eq!(answer.code, response::SYSTEM_ERROR);
            assert!(answer.remark().starts_with(remark), "{}", answer.remark());
        }
    }
    // Nothing is answered to "unknown": the answer that comes next is that of the next request.
    let connection = broker.client.connection(&broker.addr).unwrap();
    let unknown = connection
        .start_call(
            end(&sent, GROUP, TRANSACTION_UNKNOWN),
            crate::support::TIMEOUT,
        )
        .unwrap();
    assert_eq!(
        broker
            .call(end(&sent, GROUP, TRANSACTION_COMMIT))
            .await
            .code,
        0
    );
    assert_eq!(connection.calls(), 1, "only the undecided one waits");
    drop(unknown);
    assert_eq!(
        broker
            .call(end(&sent, GROUP, TRANSACTION_ROLLBACK))
            .await
            .code,
        0
    );

    let plain = broker.send(TX, &[("PGROUP", GROUP)], "no half").await;
    let header: SendMessageResponse<'_> = plain.header().unwrap();
    let id: OffsetId = header.msg_id.parse().unwrap();
    let ordinary = Half {
        queue_offset: header.queue_offset,
        physical: id.physical_offset,
    };
    let answer = broker.call(end(&ordinary, GROUP, TRANSACTION_COMMIT)).await;
    assert_eq!(
        answer.code,
        response::SYSTEM_ERROR,
        "an ordinary message is no half message"
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_02_a_half_message_is_invisible_until_it_is_committed_and_keeps_its_fields() {
    let broker = start(&[]).await;
    let (sent, rolled_back) = (half(&broker, &[("a", "b")]).await, half(&broker, &[]).await);
    assert_eq!(
        broker
            .call(end(&rolled_back, GROUP, TRANSACTION_ROLLBACK))
            .await
            .code,
        0
    );
    let before = broker.pull(TX, 0, ("TAG", "*")).await;
    assert_eq!(
        (before.code, max(&broker, TX)),
        (response::PULL_NOT_FOUND, 0)
    );

    assert_eq!(
        broker
            .call(end(&sent, GROUP, TRANSACTION_COMMIT))
            .await
            .code,
        0
    );
    let message = arrived(&broker, TX, 0).await;
    assert_eq!(
        (
            message.queue_offset(),
            message.sys_flag() & 0xC,
            message.flag()
        ),
        (0, 8, 7)
    );
    assert_eq!(message.prepared_transaction_offset(), sent.physical);
    assert_eq!(message.body(), b"half body");
    assert!(message.born_timestamp() <= message.store_timestamp());
    let properties = message.properties();
    assert_eq!(properties.get("a"), Some("b"));
    assert_eq!(message.keys(), Some("k1"));
    assert_eq!(message.unique_key(), Some("U1"));
    assert_eq!(max(&broker, TX), 1, "the one rolled back never comes");

    let query = QueryMessageRequest {
        topic: TX,
        key: "U1",
        max_num: 1,
        begin_timestamp: 0,
        end_timestamp: i64::MAX,
        unique_key_query: Some(true),
    };
    until("the index", async || {
        let query = Command::request_with(request::QUERY_MESSAGE, &query);
        broker.call(query).await.code == 0
    })
    .await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_level_takes_effect_at_the_commit() {
    let broker = start(&["messageDelayLevel=1s 2s"]).await;
    let sent = half(&broker, &[("DELAY", "99")]).await;
    assert_eq!(max(&broker, name::SCHEDULE_TOPIC), 0);
    assert_eq!(
        broker
            .call(end(&sent, GROUP, TRANSACTION_COMMIT))
            .await
            .code,
        0
    );
    until("its delay queue", async || {
        broker
            .broker
            .store
            .reader()
            .max_offset(name::SCHEDULE_TOPIC, 1)
            .get()
            == 1
    })
    .await;
    let message = arrived(&broker, TX, 0).await;
    assert_eq!(message.body(), b"half body");
    broker.stop().await;
}

pub(crate) const QUICK: [&str; 3] = [
    "transactionCheckInterval=100",
    "transactionTimeOut=0",
    "transactionCheckMax=2",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undecided_message_is_asked_about_and_the_answer_ends_its_newest_copy() {
    let broker = start(&["transactionCheckInterval=1000", "transactionTimeOut=0"]).await;
    broker.register_producer(GROUP, "producer-1").await;
    half(&broker, &[]).await;
    until("a question", async || {
        !broker
            .received
            .of_code(request::CHECK_TRANSACTION_STATE)
            .is_empty()
    })
    .await;
    let question = broker
        .received
        .of_code(request::CHECK_TRANSACTION_STATE)
        .remove(0);
    let header: CheckTransactionStateRequest<'_> = question.header().unwrap();
    assert_eq!(
        (header.msg_id, header.transaction_id),
        (Some("U1"), Some("U1"))
    );
    let asked = MessageView::parse(question.body.clone()).unwrap();
    assert_eq!((asked.topic(), asked.queue_id()), (TX, 0));
    assert_eq!(asked.physical_offset(), header.commit_log_offset);
    assert_eq!(
        asked.properties().get(property::TRANSACTION_CHECK_TIMES),
        Some("1")
    );
    let copy = Half {
        queue_offset: header.tran_state_table_offset,
        physical: header.commit_log_offset,
    };
    let answer = broker.call(end(&copy, GROUP, TRANSACTION_COMMIT)).await;
    assert_eq!(answer.code, 0, "{}", answer.remark());
    assert_eq!(arrived(&broker, TX, 0).await.body(), b"half body");

    // It is done with: once the round has passed the copy, nobody is asked any more.
    let offsets = &broker.broker.offsets;
    until("the round to pass it", async || {
        let done = offsets.get(name::TRANS_CONSUMER_GROUP, name::TRANS_HALF_TOPIC, 0);
        done == Some(max(&broker, name::TRANS_HALF_TOPIC))
    })
    .await;
    let asked = broker
        .received
        .of_code(request::CHECK_TRANSACTION_STATE)
        .len();
    let halves = max(&broker, name::TRANS_HALF_TOPIC);
    let op_end = max(&broker, name::TRANS_OP_HALF_TOPIC);
    until("the op queue to be passed", async || {
        offsets.get(name::TRANS_CONSUMER_GROUP, name::TRANS_OP_HALF_TOPIC, 0) == Some(op_end)
    })
    .await;
    assert_eq!(max(&broker, name::TRANS_HALF_TOPIC), halves);
    assert_eq!(
        broker
            .received
            .of_code(request::CHECK_TRANSACTION_STATE)
            .len(),
        asked
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_decides_is_put_aside_and_can_be_brought_back() {
    let broker = start(&QUICK).await;
    half(&broker, &[]).await;
    let aside = arrived(&broker, name::TRANS_CHECK_MAX_TIME_TOPIC, 0).await;
    assert_eq!(aside.body(), b"half body");
    assert_eq!(
        aside.properties().get(property::TRANSACTION_CHECK_TIMES),
        Some("2")
    );

    let resume = |id: &str| {
        let header = ResumeCheckHalfMessageRequest { msg_id: Some(id) };
        Command::request_with(request::RESUME_CHECK_HALF_MESSAGE, &header)
    };
    let id = aside.message_id().to_string();
    assert_eq!(broker.call(resume(&id)).await.code, 0);
    let again = arrived(&broker, name::TRANS_CHECK_MAX_TIME_TOPIC, 1).await;
    assert_eq!(again.body(), b"half body");
    for wrong in ["", "xyz", &"7".repeat(32), &"F".repeat(56)] {
        assert_eq!(broker.call(resume(wrong)).await.code, 1, "{wrong}");
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_immunity_of_its_own_is_kept_and_an_end_of_the_first_copy_counts() {
    let broker = start(&QUICK).await;
    let sent = half(
        &broker,
        &[("CHECK_IMMUNITY_TIME_IN_SECONDS", "2000000000000")],
    )
    .await;
    until("a copy", async || max(&broker, name::TRANS_HALF_TOPIC) >= 3).await;
    assert_eq!(
        max(&broker, name::TRANS_CHECK_MAX_TIME_TOPIC),
        0,
        "waiting uses no check"
    );
    assert_eq!(
        broker
            .call(end(&sent, GROUP, TRANSACTION_COMMIT))
            .await
            .code,
        0
    );
    let offsets = &broker.broker.offsets;
    until("the round to pass its copy", async || {
        offsets.get(name::TRANS_CONSUMER_GROUP, name::TRANS_HALF_TOPIC, 0)
            == Some(max(&broker, name::TRANS_HALF_TOPIC))
    })
    .await;
    assert!(
        broker
            .received
            .of_code(request::CHECK_TRANSACTION_STATE)
            .is_empty()
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_messages_outlive_a_restart_and_a_deleted_topic_beside_them() {
    let broker = start(&[]).await;
    let sent = half(&broker, &[]).await;
    broker.create_topic("OTHER", 1).await;
    let header = minimq_protocol::header::DeleteTopicRequest { topic: "OTHER" };
    let delete = Command::request_with(request::DELETE_TOPIC_IN_BROKER, &header);
    assert_eq!(broker.call(delete).await.code, 0);
    let clean = Command::request(request::CLEAN_UNUSED_TOPIC);
    assert_eq!(broker.call(clean).await.code, 0);
    let broker = broker.restart().await;
    assert_eq!(max(&broker, name::TRANS_HALF_TOPIC), 1);
    assert_eq!(
        broker
            .call(end(&sent, GROUP, TRANSACTION_COMMIT))
            .await
            .code,
        0
    );
    assert_eq!(arrived(&broker, TX, 0).await.body(), b"half body");
    broker.stop().await;
}
