//! What goes over the wire, byte for byte, beside what the stock Java client sends for the same calls.
//! The order of header fields in a map means nothing and differs between its runs; ids and times differ of course.

mod support;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use minimq_client::rebalance::Allocation;
use minimq_client::{Client, Filter, Message, MessageQueue, PushConsumer, SerializeType};
use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_protocol::properties::Properties;
use support::applications::reading;
use support::eventually;
use support::fake::Fake;

/// A frame of the stock client: the bytes and what they say.
fn golden(name: &str) -> (Bytes, Command) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden/frames")
        .join(format!("{name}.bin"));
    let bytes = Bytes::from(std::fs::read(&path).unwrap_or_else(|e| panic!("{path:?}: {e}")));
    let command = minimq_protocol::frame::parse(bytes.clone()).unwrap();
    (bytes, command)
}

/// Our request as the stock client's: its number, its language, its order of fields, its values of the fields named.
fn adapted(ours: &Command, stock: &Command, differing: &[&str]) -> Command {
    let mut command = ours.clone();
    command.opaque = stock.opaque;
    command.language = stock.language;
    command.ext = minimq_protocol::ExtFields::new();
    let mut left: Vec<(String, String)> = ours
        .ext
        .iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    for (key, value) in stock.ext.iter() {
        let at = left.iter().position(|(own, _)| own == key);
        let (_, own) = left.remove(at.unwrap_or_else(|| panic!("the field {key} is missing")));
        let value = if differing.contains(&key) {
            value
        } else {
            &own
        };
        command.ext.push(key, value);
    }
    assert!(left.is_empty(), "fields too many: {left:?}");
    command
}

fn assert_same(ours: &Command, frame: &str, differing: &[&str]) {
    let (bytes, stock) = golden(frame);
    let own = adapted(ours, &stock, differing);
    assert_eq!(own, stock, "{frame}");
    assert_eq!(own.to_frame(), without_encoding(&bytes), "{frame}");
}

/// The frame without the member that names the encoding, which the length words name already and ours leave out.
fn without_encoding(frame: &Bytes) -> Vec<u8> {
    let member = br#""serializeTypeCurrentRPC":"JSON","#;
    let Some(at) = frame.windows(member.len()).position(|part| part == member) else {
        return frame.to_vec();
    };
    let mut rest = [&frame[..at], &frame[at + member.len()..]].concat();
    for word in [0, 4] {
        let length = u32::from_be_bytes(rest[word..word + 4].try_into().unwrap());
        let length = length - u32::try_from(member.len()).unwrap();
        rest[word..word + 4].copy_from_slice(&length.to_be_bytes());
    }
    rest
}

/// A JSON body without what differs from run to run.
fn comparable(body: &[u8], client_id: &str) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let mut text = text
        .replace(client_id, "ID")
        // Ours has no producer of its own that is always there.
        .replace(r#"{"groupName":"CLIENT_INNER_PRODUCER"}"#, "");
    while let Some(at) = text.find(r#""subVersion":1"#) {
        let digits = at + r#""subVersion":"#.len();
        let end = text[digits..].find(|c: char| !c.is_ascii_digit()).unwrap() + digits;
        text.replace_range(digits..end, "_");
    }
    text
}

fn assert_same_body(ours: &Command, client_id: &str, frame: &str, stock_id: &str) {
    let (_, stock) = golden(frame);
    assert_eq!(
        comparable(&ours.body, client_id),
        comparable(&stock.body, stock_id),
        "{frame}"
    );
    assert!(ours.ext.is_empty(), "{:?}", ours.ext);
}

/// A consumer whose messages pass a filter server.
async fn filtered(client: &Client, filter: Filter) -> PushConsumer {
    reading(client, "CGfilter", "FilterF")
        .subscribe("FilterF", filter)
        .run(|_| async {})
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_with_an_uploaded_filter() {
    let fake = Fake::start("broker-f").await;
    let client = fake.client().await;
    let id = client.client_id().to_owned();
    let upload = "302-register-message-filter-class.rocketmq.request.java";
    let filter = Filter::wasm(golden(upload).1.body).named("gold.GoldFilter");
    let consumer = filtered(&client, filter).await;
    let beat = fake
        .first("a heartbeat", request::HEART_BEAT, |_| true)
        .await;
    assert_same_body(
        &beat,
        &id,
        "034-heart-beat.rocketmq.request.java.10",
        "127.0.0.1@24969#1343141359690",
    );
    let uploaded = fake
        .first("an upload", request::REGISTER_MESSAGE_FILTER_CLASS, |_| {
            true
        })
        .await;
    assert_same(&uploaded, upload, &[]);
    let of = |topic: &'static str| {
        move |pull: &Command| {
            pull.ext.get("topic") == Some(topic) && pull.ext.get("queueId") == Some("0")
        }
    };
    let pull = fake
        .first("a pull", request::PULL_MESSAGE, of("FilterF"))
        .await;
    assert_same(
        &pull,
        "011-pull-message.rocketmq.request.java.9",
        &["subVersion"],
    );
    let pull = fake
        .first(
            "a pull of retries",
            request::PULL_MESSAGE,
            of("%RETRY%CGfilter"),
        )
        .await;
    assert_same(
        &pull,
        "011-pull-message.rocketmq.request.java.10",
        &["subVersion"],
    );
    consumer.shutdown().await;
    let left = fake
        .first("it leaves", request::UNREGISTER_CLIENT, |_| true)
        .await;
    assert_eq!(left.ext.get("clientID"), Some(&*id));
    assert_same(
        &left,
        "035-unregister-client.rocketmq.request.java.9",
        &["clientID"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_with_json_headers() {
    let fake = Fake::start("broker-f").await;
    let client = fake.client_of(fake.client_builder()).await;
    let upload = "302-register-message-filter-class.json.request.java";
    let filter = Filter::wasm(golden(upload).1.body).named("gold.GoldFilter");
    let consumer = filtered(&client, filter).await;
    let uploaded = fake
        .first("an upload", request::REGISTER_MESSAGE_FILTER_CLASS, |_| {
            true
        })
        .await;
    assert_same(&uploaded, upload, &[]);
    let of_first = |pull: &Command| {
        pull.ext.get("topic") == Some("FilterF") && pull.ext.get("queueId") == Some("0")
    };
    let pull = fake.first("a pull", request::PULL_MESSAGE, of_first).await;
    assert_same(
        &pull,
        "011-pull-message.json.request.java.9",
        &["subVersion"],
    );
    consumer.shutdown().await;
    let left = fake
        .first("it leaves", request::UNREGISTER_CLIENT, |_| true)
        .await;
    assert_same(
        &left,
        "035-unregister-client.json.request.java.9",
        &["clientID"],
    );
    let producer = client.producer("PGgold").build().await.unwrap();
    let frame = "310-send-message-v2.json.request.java.2";
    let message = Message::new("TopicA", golden(frame).1.body);
    let queue = MessageQueue::new("TopicA", "broker-f", 1);
    producer.send_to(&queue, message).await.unwrap();
    let sent = fake
        .first("a send", request::SEND_MESSAGE_V2, |_| true)
        .await;
    // The broker of that recording has another name.
    assert_same(&sent, frame, &["g", "i", "n"]);
    producer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broadcast_and_polled_consumers_introduce_themselves_alike() {
    let fake = Fake::start("broker-a").await;
    let client = fake.client().await;
    let dir = tempfile::tempdir().unwrap();
    let id = client.client_id().to_owned();
    let of = |group: &'static str| {
        move |beat: &Command| {
            let text = String::from_utf8_lossy(&beat.body);
            text.contains(group) && text.matches("groupName").count() == 1
        }
    };
    let other = fake
        .client_builder()
        .header_encoding(SerializeType::Rocketmq)
        .offset_dir(dir.path())
        .build()
        .await
        .unwrap();
    let broadcast = other
        .push_consumer("CGbcast")
        .subscribe("TopicB", Filter::all())
        .broadcast(true)
        .run(|_| async {})
        .await
        .unwrap();
    let beat = fake
        .first("a heartbeat", request::HEART_BEAT, of("CGbcast"))
        .await;
    assert_same_body(
        &beat,
        other.client_id(),
        "034-heart-beat.rocketmq.request.java.5",
        "127.0.0.1@bcast",
    );
    let polled = client
        .pull_consumer("CGlite")
        .subscribe("TopicA", Filter::all())
        .start()
        .await
        .unwrap();
    let beat = fake
        .first("a heartbeat", request::HEART_BEAT, of("CGlite"))
        .await;
    assert_same_body(
        &beat,
        &id,
        "034-heart-beat.rocketmq.request.java.7",
        "127.0.0.1@lite@STREAM",
    );
    broadcast.shutdown().await;
    polled.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_with_and_without_properties() {
    let fake = Fake::start("broker-b").await;
    let client = fake.client().await;
    let producer = client.producer("PGgold").build().await.unwrap();
    let queue = MessageQueue::new("TopicA", "broker-b", 0);
    for (frame, build) in [
        (
            "310-send-message-v2.rocketmq.request.java",
            (|body| {
                Message::new("TopicA", body)
                    .tag("TagA")
                    .key("key0")
                    .key("common")
                    .property("color", "red")
                    .property("emoji", "😀")
                    .property("n", "0")
            }) as fn(Bytes) -> Message,
        ),
        ("310-send-message-v2.rocketmq.request.java.2", |body| {
            Message::new("TopicA", body)
        }),
    ] {
        let (_, stock) = golden(frame);
        let before = fake.requests(request::SEND_MESSAGE_V2).len();
        producer
            .send_to(&queue, build(stock.body.clone()))
            .await
            .unwrap();
        let sent = fake
            .requests(request::SEND_MESSAGE_V2)
            .into_iter()
            .nth(before)
            .unwrap();
        assert_same(&sent, frame, &["g", "i"]);
        // Properties come in any order; the unique key is another, of the same form.
        let pairs = |command: &Command| {
            let text = command.ext.get("i").unwrap().to_owned();
            let mut pairs: Vec<(String, String)> = Properties::new(&text)
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .map(|(key, value)| match key.as_str() {
                    "UNIQ_KEY" => (key, value.len().to_string()),
                    _ => (key, value),
                })
                .collect();
            pairs.sort();
            pairs
        };
        assert_eq!(pairs(&sent), pairs(&stock), "{frame}");
    }
    producer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_has_the_fields_of_the_stock_client() {
    let fake = Fake::start("broker-b").await;
    let client = fake.client().await;
    let producer = client.producer("PGtrace").trace(true).build().await;
    let producer = producer.unwrap();
    let message = Message::new("TopicA", "traced body").tag("TagA").key("tk1");
    let receipt = producer.send(message).await.unwrap();
    let trace = fake
        .first("a trace", request::SEND_MESSAGE_V2, |send| {
            send.ext.get("b") == Some("RMQ_SYS_TRACE_TOPIC")
        })
        .await;
    let (_, stock) = golden("310-send-message-v2.rocketmq.request.java.11");
    let fields = |command: &Command| -> Vec<String> {
        let text = String::from_utf8(command.body.to_vec()).unwrap();
        let record = text.strip_suffix('\u{2}').unwrap().to_owned();
        record.split('\u{1}').map(str::to_owned).collect()
    };
    let (own, stock_fields) = (fields(&trace), fields(&stock));
    assert_eq!(own.len(), stock_fields.len());
    for (at, (own, stock)) in own.iter().zip(&stock_fields).enumerate() {
        match at {
            // Times, ids, the broker's address, the length of the body.
            1 | 5 | 8 | 9 | 10 | 12 => {}
            _ => assert_eq!(own, stock, "field {at}"),
        }
    }
    assert_eq!((&own[5], &*own[9]), (&receipt.id, "11"));
    let keys = |command: &Command| {
        let text = command.ext.get("i").unwrap().to_owned();
        Properties::new(&text).get("KEYS").map(str::to_owned)
    };
    assert_eq!(keys(&trace), Some(format!("{} tk1", receipt.id)));
    assert_eq!(
        keys(&stock),
        Some(format!("{} tk1", stock_fields[5])),
        "the stock client's keys are of that form"
    );
    producer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_asked_for_and_given_back() {
    let fake = Fake::start("broker-a").await;
    let client = fake.client().await;
    let id = client.client_id().to_owned();
    let queue = |id| MessageQueue::new("OrderT", "broker-a", id);
    let run = async |queues: Vec<MessageQueue>| {
        client
            .push_consumer("CGorder")
            .subscribe("OrderT", Filter::all())
            .allocation(Allocation::Fixed(queues))
            .run_ordered(|_| async {})
            .await
            .unwrap()
    };
    let consumer = run(vec![queue(3)]).await;
    let lock = fake.first("a lock", request::LOCK_BATCH_MQ, |_| true).await;
    let frame = "041-lock-batch-mq.rocketmq.request.java";
    assert_same_body(&lock, &id, frame, "127.0.0.1@ord");
    eventually("it has the queue", async || {
        consumer.assignment() == [queue(3)]
    })
    .await;
    consumer.shutdown().await;
    let consumer = run(vec![queue(0), queue(1)]).await;
    eventually("it has the queues", async || {
        consumer.assignment() == [queue(0), queue(1)]
    })
    .await;
    consumer.shutdown().await;
    let unlock = fake
        .first("both are given back", request::UNLOCK_BATCH_MQ, |unlock| {
            String::from_utf8_lossy(&unlock.body).contains(r#""queueId":1"#)
        })
        .await;
    let frame = "042-unlock-batch-mq.rocketmq.request.java";
    assert_same_body(&unlock, &id, frame, "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_uploaded_with_every_heartbeat() {
    let fake = Fake::start("broker-f").await;
    let builder = fake.client_builder().heartbeat(Duration::from_millis(50));
    let client = fake.client_of(builder).await;
    let consumer = filtered(&client, Filter::wasm("(module)")).await;
    let count = |code| fake.requests(code).len();
    eventually("uploads go on", async || {
        let (beats, uploads) = (
            count(request::HEART_BEAT),
            count(request::REGISTER_MESSAGE_FILTER_CLASS),
        );
        beats > 4 && uploads > 4 && beats.abs_diff(uploads) <= 1
    })
    .await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_still_compiled_is_uploaded_again_until_it_is_taken() {
    let fake = Fake::start("broker-f").await;
    fake.refuse_uploads(6);
    let client = fake.client().await;
    let consumer = filtered(&client, Filter::wasm("(module)")).await;
    eventually("all five queues are pulled", async || fake.held() == 5).await;
    assert!(fake.requests(request::REGISTER_MESSAGE_FILTER_CLASS).len() >= 7);
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_filter_server_the_consumer_waits_and_does_not_spin() {
    let fake = Fake::start("broker-f").await;
    fake.filters(false);
    let client = fake.client().await;
    let consumer = filtered(&client, Filter::wasm("(module)")).await;
    let routes = || {
        let all = fake.requests(request::GET_ROUTEINFO_BY_TOPIC);
        all.iter()
            .filter(|one| one.ext.get("topic") == Some("FilterF"))
            .count()
    };
    eventually("four queues", async || consumer.assignment().len() == 5).await;
    let (begun, before) = (std::time::Instant::now(), routes());
    eventually("it looks for one again", async || routes() >= before + 2).await;
    assert!(begun.elapsed() >= Duration::from_secs(2), "it spins");
    let pulls = fake.requests(request::PULL_MESSAGE);
    assert!(
        pulls
            .iter()
            .all(|pull| pull.ext.get("topic") != Some("FilterF")),
        "nothing is pulled unfiltered"
    );
    fake.filters(true);
    eventually("it pulls from the new one", async || {
        let pulls = fake.requests(request::PULL_MESSAGE);
        pulls
            .iter()
            .any(|pull| pull.ext.get("topic") == Some("FilterF"))
    })
    .await;
    consumer.shutdown().await;
}
