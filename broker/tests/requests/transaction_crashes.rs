//! Transactions that are cut in the middle, and producers that never answer: nothing is lost in silence, nothing is
//! asked about for ever.

use minimq_protocol::code::request;
use minimq_protocol::header::{
    CheckTransactionStateRequest, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK,
};
use minimq_protocol::name;
use minimq_protocol::properties::name as property;

use crate::support::{Harness, until};
use crate::transactions::{GROUP, Half, QUICK, TX, arrived, end, half, max, start};

const NO_ROUNDS: [&str; 2] = [
    "transactionCheckInterval=600000",
    "mappedFileSizeConsumeQueue=20000",
];
const ROUNDS: [&str; 3] = [
    "transactionCheckInterval=300",
    "transactionTimeOut=0",
    "mappedFileSizeConsumeQueue=20000",
];

/// Where the first message of a topic lies in the log.
async fn place(broker: &Harness, topic: &str) -> i64 {
    until("the message", async || max(broker, topic) > 0).await;
    let queue = broker.broker.store.queues().get(topic, 0).unwrap();
    queue.entry(0).unwrap().unwrap().physical_offset
}

/// Whether the rounds have nothing left to look at.
fn is_done(broker: &Harness) -> bool {
    let offsets = &broker.broker.offsets;
    [name::TRANS_HALF_TOPIC, name::TRANS_OP_HALF_TOPIC]
        .iter()
        .all(|topic| {
            let end = max(broker, topic);
            end == 0 || offsets.get(name::TRANS_CONSUMER_GROUP, topic, 0) == Some(end)
        })
}

fn questions(broker: &Harness) -> usize {
    broker
        .received
        .of_code(request::CHECK_TRANSACTION_STATE)
        .len()
}

/// Answers every question as its producer would, until nothing is left to ask about.
async fn answer_all(broker: &Harness, how: i32) {
    broker.register_producer(GROUP, "producer-1").await;
    let mut answered = 0;
    until("all to be decided", async || {
        let all = broker.received.of_code(request::CHECK_TRANSACTION_STATE);
        for question in all.iter().skip(answered) {
            let header: CheckTransactionStateRequest<'_> = question.header().unwrap();
            let copy = Half {
                queue_offset: header.tran_state_table_offset,
                physical: header.commit_log_offset,
            };
            let answer = broker.call(end(&copy, GROUP, how)).await;
            assert_eq!(answer.code, 0, "{}", answer.remark());
        }
        answered = all.len();
        answered > 0 && is_done(broker)
    })
    .await;
    assert_eq!(
        questions(broker),
        answered,
        "what is decided is not asked about"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_cut_before_its_op_message_is_delivered_and_asked_about_until_it_is_answered() {
    let broker = start(&NO_ROUNDS).await;
    let sent = half(&broker, &[]).await;
    assert_eq!(
        broker
            .call(end(&sent, GROUP, TRANSACTION_COMMIT))
            .await
            .code,
        0
    );
    let cut = place(&broker, name::TRANS_OP_HALF_TOPIC).await;
    let broker = broker.cut_at(cut, &ROUNDS).await;
    assert_eq!(arrived(&broker, TX, 0).await.body(), b"half body");
    assert_eq!(max(&broker, name::TRANS_OP_HALF_TOPIC), 0);
    answer_all(&broker, TRANSACTION_COMMIT).await;
    assert!(max(&broker, TX) >= 2, "delivered again: at least once");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_cut_before_its_message_is_asked_about_and_delivered() {
    let broker = start(&NO_ROUNDS).await;
    let sent = half(&broker, &[]).await;
    assert_eq!(
        broker
            .call(end(&sent, GROUP, TRANSACTION_COMMIT))
            .await
            .code,
        0
    );
    let cut = place(&broker, TX).await;
    let broker = broker.cut_at(cut, &ROUNDS).await;
    assert_eq!(
        (max(&broker, TX), max(&broker, name::TRANS_HALF_TOPIC)),
        (0, 1)
    );
    answer_all(&broker, TRANSACTION_COMMIT).await;
    assert_eq!(arrived(&broker, TX, 0).await.body(), b"half body");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_cut_before_its_op_message_stays_invisible() {
    let broker = start(&NO_ROUNDS).await;
    let sent = half(&broker, &[]).await;
    assert_eq!(
        broker
            .call(end(&sent, GROUP, TRANSACTION_ROLLBACK))
            .await
            .code,
        0
    );
    let cut = place(&broker, name::TRANS_OP_HALF_TOPIC).await;
    let broker = broker.cut_at(cut, &ROUNDS).await;
    assert_eq!(max(&broker, name::TRANS_OP_HALF_TOPIC), 0);
    answer_all(&broker, TRANSACTION_ROLLBACK).await;
    assert_eq!(max(&broker, TX), 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_never_answers_is_asked_so_often_and_the_message_is_put_aside() {
    let broker = start(&QUICK).await;
    broker.register_producer(GROUP, "producer-1").await;
    // With a delay level: it takes no effect before a commit, in a copy neither.
    half(&broker, &[("DELAY", "1")]).await;
    let aside = arrived(&broker, name::TRANS_CHECK_MAX_TIME_TOPIC, 0).await;
    let properties = aside.properties();
    assert_eq!(aside.body(), b"half body");
    assert_eq!(properties.get(property::REAL_TOPIC), Some(TX));
    assert_eq!(properties.get(property::DELAY), Some("1"));
    until("the round's end", async || is_done(&broker)).await;
    assert_eq!(questions(&broker), 2, "transactionCheckMax");
    assert_eq!(
        (max(&broker, name::SCHEDULE_TOPIC), max(&broker, TX)),
        (0, 0)
    );
    // Neither does a restart bring it up again.
    let broker = broker.restart().await;
    assert!(is_done(&broker));
    assert_eq!(max(&broker, name::TRANS_CHECK_MAX_TIME_TOPIC), 1);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_beyond_what_a_power_cut_left_hides_no_later_half_message() {
    let broker = start(&ROUNDS).await;
    for topic in [name::TRANS_HALF_TOPIC, name::TRANS_OP_HALF_TOPIC] {
        let offsets = &broker.broker.offsets;
        offsets.commit(name::TRANS_CONSUMER_GROUP, topic, 0, 1000);
    }
    half(&broker, &[]).await;
    answer_all(&broker, TRANSACTION_COMMIT).await;
    assert_eq!(arrived(&broker, TX, 0).await.body(), b"half body");
    broker.stop().await;
}
