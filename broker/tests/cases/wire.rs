//! Requests that are odd or wrong: what they are answered, and that the broker goes on.

use std::time::Duration;

use minimq_protocol::Command;
use minimq_protocol::SerializeType;
use minimq_protocol::code::response;

use crate::support::*;

/// wire-05: an unknown code is answered 3, unless it is one-way.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_codes_are_answered_unless_one_way() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    let answer = wire.call(&Command::request(9999)).await;
    has_code(&answer, response::REQUEST_CODE_NOT_SUPPORTED);
    assert!(answer.remark().contains("9999"));
    let mut one_way = Command::request(9999);
    one_way.mark_oneway();
    wire.write(&one_way).await;
    assert!(wire.is_silent(Duration::from_secs(2)).await);
    ok(&wire.send(&Send::new("T", 0, b"m")).await);
}

/// wire-06: requests without fields, without the needed ones, or with fields that are no numbers are refused.
#[tokio::test(flavor = "multi_thread")]
async fn requests_without_their_fields_are_refused() {
    const CODES: [i32; 14] = [10, 310, 11, 12, 14, 15, 29, 30, 36, 37, 41, 34, 103, 215];
    const END_TRANSACTION: i32 = 37;
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    for serialize in [SerializeType::Json, SerializeType::Rocketmq] {
        for code in CODES {
            let plain = Command::request(code).with_serialize(serialize);
            let mut requests = vec![plain.clone(), plain.clone().with_ext("other", "1")];
            for value in ["abc", "4294967296", ""] {
                let mut request = plain.clone();
                for text in [
                    "topic",
                    "consumerGroup",
                    "producerGroup",
                    "group",
                    "a",
                    "b",
                    "c",
                ] {
                    request = request.with_ext(text, "T");
                }
                for numeric in [
                    "queueId",
                    "offset",
                    "d",
                    "e",
                    "maxNum",
                    "timestamp",
                    "delayLevel",
                ] {
                    request = request.with_ext(numeric, value);
                }
                requests.push(request);
            }
            for request in requests {
                let opaque = wire.write(&request).await;
                if code == END_TRANSACTION && wire.is_silent(Duration::from_millis(300)).await {
                    continue;
                }
                let answer = wire.answer(opaque).await;
                // Deleting a topic that is not there is done already.
                let deletes = code == 215 && request.ext.get("topic").is_some();
                assert!(
                    answer.code != response::SUCCESS || deletes,
                    "{request:?} was answered {answer:?}"
                );
                assert_eq!(answer.serialize, serialize);
            }
        }
    }
    ok(&wire.send(&Send::new("T", 0, b"m")).await);
}

/// The headers without extFields at all, as some clients write them.
#[tokio::test(flavor = "multi_thread")]
async fn json_headers_without_ext_fields_are_refused_and_not_dropped() {
    use tokio::io::AsyncWriteExt;
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    for (opaque, fields) in [
        (1, ""),
        (2, ",\"extFields\":null"),
        (3, ",\"extFields\":{}"),
    ] {
        let header = format!(
            r#"{{"code":10,"opaque":{opaque},"flag":0,"version":409,"language":"JAVA"{fields}}}"#
        );
        let mut bytes = ((header.len() + 4) as u32).to_be_bytes().to_vec();
        bytes.extend((header.len() as u32).to_be_bytes());
        bytes.extend(header.as_bytes());
        wire.stream.write_all(&bytes).await.unwrap();
        let answer = wire.answer(opaque).await;
        has_code(&answer, response::SYSTEM_ERROR);
    }
    ok(&wire.send(&Send::new("T", 0, b"m")).await);
}

/// wire-07: languages, members and fields that we do not know are passed over.
#[tokio::test(flavor = "multi_thread")]
async fn headers_of_strange_clients_are_understood() {
    use tokio::io::AsyncWriteExt;
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    ok(&wire.create_topic("T", 1, 1, 6).await);
    let header = r#"{"code":30,"flag":0,"language":"KLINGON","opaque":7,"serializeTypeCurrentRPC":"JSON",
        "version":409,"tlh":{"Qapla'":[1,"two",null]},"more":true,"other":1.5,
        "extFields":{"topic":"T","queueId":"0","unknown":"field","another":"one"}}"#;
    let mut bytes = ((header.len() + 4) as u32).to_be_bytes().to_vec();
    bytes.extend((header.len() as u32).to_be_bytes());
    bytes.extend(header.as_bytes());
    wire.stream.write_all(&bytes).await.unwrap();
    let answer = wire.answer(7).await;
    ok(&answer);
    assert_eq!(number(&answer, "offset"), 0);

    let request = Command::request(30)
        .with_serialize(SerializeType::Rocketmq)
        .with_ext("topic", "T")
        .with_ext("queueId", "0")
        .with_ext("unknown", "field");
    let mut bytes = request.to_frame().to_vec();
    // Length, header length, code; then the language.
    bytes[10] = 99;
    wire.stream.write_all(&bytes).await.unwrap();
    let answer = wire.answer(request.opaque).await;
    ok(&answer);
    assert_eq!(number(&answer, "offset"), 0);
}

/// wire-09: properties come out as Java reads them, whatever separators stand among them.
#[tokio::test(flavor = "multi_thread")]
async fn separators_inside_properties_do_not_merge_them() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    for (at, (sent, expected)) in [
        (
            "a\u{1}b\u{1}c\u{2}x\u{1}y\u{2}\u{2}noval\u{2}=\u{1}=\u{2}",
            vec![("=", "="), ("CLUSTER", "C1"), ("a", "b\u{1}c"), ("x", "y")],
        ),
        ("a\u{1}\u{2}b\u{1}c", vec![("CLUSTER", "C1"), ("b", "c")]),
    ]
    .into_iter()
    .enumerate()
    {
        ok(&wire.send(&Send::new("T", 0, b"m").with(sent)).await);
        broker.until_readable("T", 0, at as i64 + 1).await;
        let pulled = wire.pull(&Pull::new("T", 0, at as i64)).await;
        let properties = pulled.messages[0].properties();
        let mut found: Vec<_> = properties.iter().collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}

/// wire-13: heartbeats of other clients lack members or carry texts we do not know.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_with_gaps_are_taken_and_damaged_ones_refused() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    let odd = r#"{"clientID":"x","consumerDataSet":[{"groupName":"Odd","consumeType":"CONSUME_SOMEHOW",
        "consumeFromWhere":"FROM_NOWHERE","subscriptionDataSet":[{"topic":"T","subString":"*"}]}]}"#;
    for body in ["{}", r#"{"clientID":"x"}"#, odd] {
        ok(&wire.call(&Command::request(34).with_body(body)).await);
    }
    for body in ["{x", ""] {
        let answer = wire.call(&Command::request(34).with_body(body)).await;
        has_code(&answer, response::SYSTEM_ERROR);
    }
    let consumer = Consumer {
        group: "CG",
        broadcasting: false,
        topics: &[("T", "*")],
    };
    ok(&wire.heartbeat("client", &consumer).await);
    let listed = wire.consumers("CG").await;
    ok(&listed);
    assert!(String::from_utf8_lossy(&listed.body).contains("\"client\""));
}
