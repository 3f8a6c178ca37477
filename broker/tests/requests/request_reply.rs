//! Request-reply: 324, 325 and 326.

use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_protocol::header::{ReplyMessageRequest, SendMessageResponse};
use minimq_protocol::properties::Properties;

use crate::support::{Harness, send_request_with, until};

const REPLY_TOPIC: &str = "C1_REPLY_TOPIC";

fn reply(code: i32, client: &str) -> Command {
    let properties = [("REPLY_TO_CLIENT", client), ("CORRELATION_ID", "c-1")];
    send_request_with(code, REPLY_TOPIC, &properties, "the answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_is_pushed_to_the_client_that_asked_and_stored() {
    let broker = Harness::start(&[]).await;
    broker.register_producer("PG", "asker@1").await;
    for (n, code) in [request::SEND_REPLY_MESSAGE, request::SEND_REPLY_MESSAGE_V2]
        .into_iter()
        .enumerate()
    {
        let answer = broker.call(reply(code, "asker@1")).await;
        assert_eq!(answer.code, 0, "{}", answer.remark());
        let header: SendMessageResponse<'_> = answer.header().unwrap();
        assert_eq!((header.queue_id, header.queue_offset), (0, n as i64));
        assert_eq!(header.msg_id.len(), 32);
    }
    let pushed = broker
        .received
        .of_code(request::PUSH_REPLY_MESSAGE_TO_CLIENT);
    assert_eq!(pushed.len(), 2);
    assert_eq!(&pushed[0].body[..], b"the answer");
    let header: ReplyMessageRequest<'_> = pushed[0].header().unwrap();
    assert_eq!((header.topic, header.flag), (REPLY_TOPIC, 7));
    assert!(header.born_host.starts_with("127.0.0.1:") && header.store_timestamp > 0);
    let properties = Properties::new(header.properties.unwrap());
    assert_eq!(properties.get("CORRELATION_ID"), Some("c-1"));
    assert!(properties.get("PUSH_REPLY_TIME").is_some());

    until("it to be stored", async || {
        broker
            .broker
            .store
            .reader()
            .max_offset(REPLY_TOPIC, 0)
            .get()
            == 2
    })
    .await;
    let stored = broker.messages(REPLY_TOPIC, 0).await;
    assert_eq!(stored[0].properties().get("PUSH_REPLY_TIME"), None);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_reaches_nobody_is_refused_and_stored_all_the_same() {
    let broker = Harness::start(&[]).await;
    let answer = broker
        .call(reply(request::SEND_REPLY_MESSAGE_V2, "nobody"))
        .await;
    assert_eq!(answer.code, 1);
    assert_eq!(
        answer.remark(),
        "push reply message fail, channel of <nobody> not found."
    );
    assert_eq!(
        answer
            .header::<SendMessageResponse<'_>>()
            .unwrap()
            .queue_offset,
        0
    );
    let none = send_request_with(request::SEND_REPLY_MESSAGE, REPLY_TOPIC, &[], "x");
    let answer = broker.call(none).await;
    assert_eq!(
        answer.remark(),
        "reply message properties[REPLY_TO_CLIENT] is null"
    );
    broker.register_producer("PG", "asker@1").await;
    *broker.received.answer.lock().unwrap() = 1;
    let answer = broker
        .call(reply(request::SEND_REPLY_MESSAGE, "asker@1"))
        .await;
    assert_eq!(
        (answer.code, answer.remark()),
        (1, "push reply message to asker@1fail.")
    );
    until("all to be stored", async || {
        broker
            .broker
            .store
            .reader()
            .max_offset(REPLY_TOPIC, 0)
            .get()
            == 3
    })
    .await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_are_not_stored_when_the_key_says_so() {
    let broker = Harness::start(&["storeReplyMessageEnable=false"]).await;
    broker.register_producer("PG", "asker@1").await;
    let answer = broker
        .call(reply(request::SEND_REPLY_MESSAGE, "asker@1"))
        .await;
    let header: SendMessageResponse<'_> = answer.header().unwrap();
    assert_eq!(
        (answer.code, header.msg_id, header.queue_offset),
        (0, "0", 0)
    );
    assert_eq!(
        broker
            .broker
            .store
            .reader()
            .max_offset(REPLY_TOPIC, 0)
            .get(),
        0
    );
    broker.stop().await;
}
