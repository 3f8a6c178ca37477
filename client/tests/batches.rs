//! Messages put together by size, number and time: which leave together, and what their senders hear.

mod support;

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use minimq_client::hooks::{SendHook, Sending};
use minimq_client::{Batching, Client, Error, Message, Producer, SendReceipt};
use minimq_protocol::Command;
use minimq_protocol::batch::records;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::SendMessageResponse;
use minimq_protocol::properties::Properties;
use support::eventually;
use support::fake::{Fake, Reply};

/// Far longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(60);
/// A batch that waits for whatever else may end it.
const NEVER: Batching = Batching {
    max_bytes: 1 << 20,
    max_messages: 1000,
    linger: LONG,
};

async fn start() -> (Fake, Client) {
    let fake = Fake::start("broker-a").await;
    let client = fake.client().await;
    (fake, client)
}

async fn producer(client: &Client, group: &str, batching: Batching) -> Producer {
    let builder = client.producer(group).batching(batching);
    builder.timeout(LONG).build().await.unwrap()
}

fn message(body: &str) -> Message {
    Message::new("topic", body.to_owned())
}

/// Sends at once, in this order.
async fn send(
    producer: &Producer,
    messages: Vec<Message>,
) -> Vec<minimq_client::Result<SendReceipt>> {
    join_all(messages.into_iter().map(|one| producer.send_batched(one))).await
}

/// Topic and bodies of each batch that came so far.
fn batches(fake: &Fake) -> Vec<(String, Vec<String>)> {
    let bodies = |batch: &Command| {
        let text = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
        let bodies = records(&batch.body).map(|record| text(record.unwrap().body));
        (batch.ext.get("b").unwrap().to_owned(), bodies.collect())
    };
    let requests = fake.requests(request::SEND_BATCH_MESSAGE);
    requests.iter().map(bodies).collect()
}

fn sizes(fake: &Fake) -> Vec<usize> {
    batches(fake)
        .iter()
        .map(|(_, bodies)| bodies.len())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_full_with_exactly_its_bytes() {
    let (fake, client) = start().await;
    let body = |n: usize| message(&format!("{n:0100}"));
    let two = Batching {
        max_messages: 2,
        ..NEVER
    };
    send(
        &producer(&client, "measure", two).await,
        vec![body(1), body(2)],
    )
    .await;
    let record = fake.requests(request::SEND_BATCH_MESSAGE)[0].body.len() / 2;
    // So many of four messages leave before the end.
    for (more, at_once) in [(0, 3), (1, 3), (record - 1, 3), (record, 4)] {
        let before = sizes(&fake).len();
        let batching = Batching {
            max_bytes: 3 * record + more,
            ..NEVER
        };
        let producer = producer(&client, &format!("more-{more}"), batching).await;
        let sending = send(&producer, (0..4).map(body).collect());
        let ending = async {
            eventually("what is full goes", async || sizes(&fake).len() > before).await;
            assert_eq!(sizes(&fake)[before..], [at_once], "{more} bytes more");
            producer.shutdown().await;
        };
        let (sent, ()) = tokio::join!(sending, ending);
        assert!(sent.iter().all(Result::is_ok));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_bigger_than_a_batch_goes_alone_behind_what_waits() {
    let (fake, client) = start().await;
    let batching = Batching {
        max_bytes: 1000,
        ..NEVER
    };
    let producer = producer(&client, "big", batching).await;
    let big = message(&"x".repeat(1000));
    let sent = send(&producer, vec![message("one"), message("two"), big]).await;
    assert!(sent.iter().all(Result::is_ok));
    assert_eq!(sizes(&fake), [2]);
    assert_eq!(fake.requests(request::SEND_MESSAGE_V2).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_waiting_does_not_take_the_message_back() {
    let (fake, client) = start().await;
    let given_up = |producer: &Producer, body: &str| {
        assert!(
            producer
                .send_batched(message(body))
                .now_or_never()
                .is_none()
        );
    };
    let first = producer(&client, "ended", NEVER).await;
    given_up(&first, "one");
    let (sent, ()) = tokio::join!(first.send_batched(message("two")), first.shutdown());
    assert_eq!(sent.unwrap().queue_offset, 1);
    assert_eq!(sizes(&fake), [2]);
    // Nor does the end of the producer.
    let second = producer(&client, "dropped", NEVER).await;
    given_up(&second, "three");
    given_up(&second, "four");
    drop(second);
    eventually("they go", async || sizes(&fake) == [2, 2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_a_batch_hears_why_it_was_refused() {
    let (fake, client) = start().await;
    let three = Batching {
        max_messages: 3,
        ..NEVER
    };
    let producer = producer(&client, "refused", three).await;
    fake.script(request::SEND_BATCH_MESSAGE, |_| {
        Reply::Refusal(response::MESSAGE_ILLEGAL, "no such thing")
    });
    let sent = send(&producer, vec![message("x"), message("y"), message("z")]).await;
    for error in sent.into_iter().map(Result::unwrap_err) {
        assert!(
            matches!(&error, Error::Refused { code: response::MESSAGE_ILLEGAL, remark, .. } if remark == "no such thing"),
            "{error:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_one_message_fails_no_other() {
    let (fake, client) = start().await;
    let two = Batching {
        max_messages: 2,
        ..NEVER
    };
    let producer = producer(&client, "wrong", two).await;
    let long = message("x").property("p", "v".repeat(40_000));
    let mut messages = vec![
        message("good"),
        message(""),
        long,
        message("x").property("TAGS", "reserved"),
        Message::new("no topic", "x"),
        message("better"),
    ];
    let delayed = message("later").delay_level(1);
    messages.insert(1, delayed);
    let sent = send(&producer, messages).await;
    let good: Vec<_> = sent.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, true, false, false, false, false, true]);
    assert_eq!(
        batches(&fake),
        [(
            "topic".to_owned(),
            vec!["good".to_owned(), "better".to_owned()]
        )]
    );
    assert_eq!(
        fake.requests(request::SEND_MESSAGE_V2).len(),
        1,
        "the delayed one"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_and_ways_of_waiting_have_batches_of_their_own() {
    let (fake, client) = start().await;
    let three = Batching {
        max_messages: 3,
        ..NEVER
    };
    let producer = producer(&client, "apart", three).await;
    let messages = (0..9).map(|n| {
        let topic = ["one", "two", "two"][n % 3];
        let message = Message::new(topic, n.to_string());
        if n % 3 == 2 {
            message.no_wait()
        } else {
            message
        }
    });
    let sent = send(&producer, messages.collect()).await;
    for (n, receipt) in sent.into_iter().enumerate() {
        let receipt = receipt.unwrap();
        let topic = ["one", "two", "two"][n % 3];
        assert_eq!(
            (&*receipt.queue.topic, receipt.queue_offset),
            (topic, n as i64 / 3)
        );
    }
    let mut all = batches(&fake);
    all.sort();
    let batch =
        |topic: &str, bodies: [&str; 3]| (topic.to_owned(), bodies.map(str::to_owned).to_vec());
    let wanted = [
        batch("one", ["0", "3", "6"]),
        batch("two", ["1", "4", "7"]),
        batch("two", ["2", "5", "8"]),
    ];
    assert_eq!(all, wanted);
    let not_waiting = fake.first(
        "a batch that does not wait",
        request::SEND_BATCH_MESSAGE,
        |batch| Properties::new(batch.ext.get("i").unwrap()).get("WAIT") == Some("false"),
    );
    let first = records(&not_waiting.await.body)
        .next()
        .unwrap()
        .unwrap()
        .body
        .to_vec();
    assert_eq!(first, b"2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_names_the_messages_own_ids() {
    let (fake, client) = start().await;
    let three = Batching {
        max_messages: 3,
        ..NEVER
    };
    let producer = producer(&client, "ids", three).await;
    fake.script(request::SEND_BATCH_MESSAGE, |_| {
        Reply::With(Box::new(|answer| {
            answer.with_header(&SendMessageResponse {
                msg_id: "A,BB,C",
                queue_id: 2,
                queue_offset: 7,
                ..SendMessageResponse::default()
            })
        }))
    });
    let sent = send(&producer, vec![message("x"), message("y"), message("z")]).await;
    let batch = &fake.requests(request::SEND_BATCH_MESSAGE)[0];
    let keys = records(&batch.body).map(|record| {
        let properties = std::str::from_utf8(record.unwrap().properties).unwrap();
        Properties::new(properties)
            .get("UNIQ_KEY")
            .unwrap()
            .to_owned()
    });
    for (((receipt, key), offset_id), offset) in
        sent.into_iter().zip(keys).zip(["A", "BB", "C"]).zip(7..)
    {
        let receipt = receipt.unwrap();
        assert_eq!((&*receipt.id, &*receipt.offset_id), (&*key, offset_id));
        assert_eq!((receipt.queue.queue_id, receipt.queue_offset), (2, offset));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_wait_while_too_much_waits() {
    let (fake, client) = start().await;
    fake.script(request::SEND_BATCH_MESSAGE, |_| Reply::Wait);
    let two = Batching {
        max_messages: 2,
        ..NEVER
    };
    let builder = client.producer("crowded").batching(two).max_in_flight(1);
    let producer = builder
        .timeout(Duration::from_secs(1))
        .retries(0)
        .build()
        .await
        .unwrap();
    // Two are in flight, four wait in batches, one waits for room.
    let messages: Vec<_> = (0..7).map(|n| message(&n.to_string())).collect();
    let sent = send(&producer, messages).await;
    let errors: Vec<_> = sent.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(fake.requests(request::SEND_BATCH_MESSAGE).len(), 1);
    assert!(
        errors[..2]
            .iter()
            .all(|error| matches!(error, Error::SendFailed { .. })),
        "{errors:?}"
    );
    let crowded = |error: &Error| matches!(error, Error::Timeout { .. });
    assert!(errors[2..6].iter().all(crowded), "{errors:?}");
    assert!(errors[6].to_string().contains("room"), "{errors:?}");
    // There is room again, and each batch that leaves makes as much as it took.
    fake.script(request::SEND_BATCH_MESSAGE, |_| Reply::Usual);
    for _ in 0..10 {
        let sent = send(&producer, vec![message("x"), message("y")]).await;
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    }
}

struct Panics;

impl SendHook for Panics {
    fn before(&self, _sending: &Sending<'_>) -> Result<(), String> {
        panic!("a hook of the application is wrong");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_batch_hears_of_its_end_even_if_a_hook_panics() {
    let (_fake, client) = start().await;
    let two = Batching {
        max_messages: 2,
        ..NEVER
    };
    let builder = client.producer("panics").batching(two).hook(Panics);
    let producer = builder.build().await.unwrap();
    let sent = send(&producer, vec![message("x"), message("y")]).await;
    assert!(
        sent.iter().all(|sent| matches!(sent, Err(Error::Closed))),
        "{sent:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_leaves_when_nobody_can_join_it() {
    let (fake, client) = start().await;
    let builder = client.producer("full").max_in_flight(1);
    let two = Batching {
        max_messages: 2,
        ..NEVER
    };
    let producer = builder.batching(two).build().await.unwrap();
    // Room for four, each in a topic of its own, so that no batch is full.
    let messages = (0..5).map(|n| Message::new(format!("topic-{n}"), "x"));
    let sent = send(&producer, messages.collect());
    let ending = async {
        eventually("four leave", async || {
            fake.requests(request::SEND_MESSAGE_V2).len() == 4
        })
        .await;
        producer.shutdown().await;
    };
    let (sent, ()) = tokio::join!(sent, ending);
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
}
