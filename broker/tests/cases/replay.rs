//! Requests recorded between stock clients and brokers, sent to ours byte for byte: the answer's code and the names of
//! its fields must be ones that were recorded for that request.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use minimq_protocol::message::MessageView;
use minimq_protocol::{Command, frame};
use tokio::io::AsyncWriteExt;

use crate::support::*;

/// Why a recorded request is not replayed here.
fn left_out(entry: &serde_json::Value) -> Option<&'static str> {
    let code = entry["requestCode"].as_i64().unwrap();
    let to = entry["to"].as_str().unwrap();
    if entry["direction"] != "request" {
        Some("an answer")
    } else if !to.starts_with("broker") {
        Some("for the name server, a filter server or a client")
    } else if to.starts_with("broker-c") {
        Some("signed: replayed below, against the accounts it was signed for")
    } else if code == 307 || code == 309 {
        Some("passed on to a client that has to answer: replayed below, with such a client")
    } else {
        None
    }
}

/// Where the code differs from the recorded one on purpose or by the state of the recorded cluster.
fn state_dependent(code: i32) -> bool {
    match code {
        // The member, offset, message, subscription or expression it names was there or was not.
        11 | 12 | 14 | 36 | 37 | 38 | 203 | 204 | 222 | 223 | 323 | 324 | 325 => true,
        // Brokers of 4.9.8 refuse it, those of 4.2 take it, as ours.
        301 => true,
        _ => false,
    }
}

/// What it names (a half message, the client that asked) was there when it was recorded, and was refused never.
fn refused_here(answer: &Command, code: i64) -> bool {
    matches!(code, 37 | 323 | 324 | 325) && answer.code == 1 && !answer.remark().is_empty()
}

/// Who is a member comes first, what removes something last.
fn phase(entry: &serde_json::Value) -> u8 {
    match entry["requestCode"].as_i64() {
        Some(34) => 0,
        Some(17 | 200) => 1,
        Some(10 | 310 | 320) => 2,
        Some(35 | 207 | 215) => 4,
        _ => 3,
    }
}

type Shape = (i32, Vec<String>);

fn names(answer: &Command) -> Vec<String> {
    let mut names: Vec<_> = answer.ext.iter().map(|(name, _)| name.to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn frame_bytes(file: &str) -> Bytes {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/frames");
    let bytes = std::fs::read(Path::new(folder).join(file));
    bytes.expect("a recorded frame").into()
}

fn index() -> Vec<serde_json::Value> {
    serde_json::from_slice(&frame_bytes("index.json")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_get_answers_of_a_recorded_shape() {
    let index = index();
    let mut recorded: BTreeMap<i64, BTreeSet<Shape>> = BTreeMap::new();
    // Request code and fields → codes it was answered with.
    let mut answered: BTreeMap<(i64, String), BTreeSet<i32>> = BTreeMap::new();
    for entry in index.iter().filter(|e| e["direction"] == "response") {
        let request = entry["requestCode"].as_i64().unwrap();
        let code = entry["code"].as_i64().unwrap() as i32;
        let fields = entry["extFields"].as_object();
        let mut names: Vec<String> = fields.into_iter().flat_map(|f| f.keys().cloned()).collect();
        names.sort_unstable();
        recorded.entry(request).or_default().insert((code, names));
        let asked = entry["answerTo"]["extFields"].to_string();
        answered.entry((request, asked)).or_default().insert(code);
    }

    let broker =
        TestBroker::start_with(&["longPollingEnable=false", "shortPollingTimeMills=1"]).await;
    let mut setup = broker.connect().await;
    for topic in ["TopicA", "TopicB", "GoT", "FilterF", "DelT"] {
        ok(&setup.create_topic(topic, 8, 8, 6).await);
        ok(&setup.send(&Send::new(topic, 0, b"m")).await);
        broker.until_readable(topic, 0, 1).await;
    }

    let mut faults = Vec::new();
    let mut replayed = 0;
    let mut replay: Vec<_> = index.iter().filter(|e| left_out(e).is_none()).collect();
    replay.sort_by_key(|entry| phase(entry));
    // Members stay as long as their connection.
    let mut members = broker.connect().await;
    for entry in replay {
        let file = entry["file"].as_str().unwrap();
        let bytes = frame_bytes(file);
        let request = frame::parse(bytes.clone()).unwrap();
        let mut own = broker.connect().await;
        let wire = if request.code == 34 {
            &mut members
        } else {
            &mut own
        };
        wire.stream.write_all(&bytes).await.unwrap();
        replayed += 1;
        let undecided = request.code == 37 && request.ext.get("commitOrRollback") == Some("0");
        if request.is_oneway() || undecided {
            // The next request on the connection is answered: it was taken and nothing came back.
            ok(&wire.send(&Send::new("TopicA", 0, b"m")).await);
            continue;
        }
        let answer = wire.answer(request.opaque).await;
        let code = entry["requestCode"].as_i64().unwrap();
        let shape = (answer.code, names(&answer));
        if answer.serialize != request.serialize {
            faults.push(format!("{file}: the answer has another encoding"));
        }
        if !recorded[&code].contains(&shape) && !refused_here(&answer, code) {
            faults.push(format!("{file}: answered {shape:?} {:?}", answer.remark()));
        }
        let same = answered.get(&(code, entry["extFields"].to_string()));
        if let Some(codes) = same
            && !codes.contains(&answer.code)
            && !state_dependent(request.code)
        {
            faults.push(format!(
                "{file}: answered {} {:?}, recorded was {codes:?}",
                answer.code,
                answer.remark()
            ));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    println!("{replayed} requests replayed");
    assert!(replayed >= 250, "{replayed}");
}

/// The accounts that the recorded requests were signed for, with rights to what they use.
const ACCOUNTS: &str = "
accounts:
  - accessKey: GoldAdminAK
    secretKey: goldadminsecret12
    admin: true
  - accessKey: GoldUserAK
    secretKey: golduser12345678
    topicPerms:
      - AclT=PUB|SUB
    groupPerms:
      - CGacl=SUB
";

#[tokio::test(flavor = "multi_thread")]
async fn recorded_signatures_are_taken_and_forged_ones_refused() {
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    let file = folder.path().join("plain_acl.yml");
    std::fs::write(&file, ACCOUNTS).unwrap();
    let accounts = format!("aclFile={}", file.display());
    let settings = ["aclEnable=true", &accounts, "longPollingEnable=false"];
    let broker = TestBroker::start_with(&settings).await;
    let index = index();
    let mut signed: Vec<_> = index
        .iter()
        .filter(|e| e["direction"] == "request")
        .filter(|e| {
            e["to"]
                .as_str()
                .is_some_and(|to| to.starts_with("broker-c"))
        })
        .collect();
    // The recorded order, one encoding after the other: the topic, sends, pull, accounts.
    let order = [17, 310, 11, 50, 51, 52, 53];
    signed.sort_by_key(|entry| {
        let code = entry["requestCode"].as_i64().unwrap();
        let place = order.iter().position(|known| *known == code);
        (
            entry["serializeType"].to_string(),
            place.expect("a code that is placed"),
        )
    });
    assert!(signed.len() >= 18, "{}", signed.len());
    for entry in signed {
        let file = entry["file"].as_str().unwrap();
        let request = frame::parse(frame_bytes(file)).unwrap();
        let mut forged = request.clone();
        forged.ext.set("forged", "1");
        let mut wire = broker.connect().await;
        let answer = wire.call(&forged).await;
        has_code(&answer, 1);
        assert!(answer.remark().contains("Check signature failed"), "{file}");

        wire.stream.write_all(&frame_bytes(file)).await.unwrap();
        let answer = wire.answer(request.opaque).await;
        let short_key = request.code == 50 && request.ext.get("accessKey") == Some("x");
        let expected: &[i32] = match request.code {
            50 if short_key => &[209],
            // Recorded with another secret than the account's, and refused.
            310 if request.ext.get("a") == Some("PGacl2") => &[1],
            // The queue of this pull was sent to in one of the two recordings.
            11 => &[0, 19],
            _ => &[0],
        };
        assert!(
            expected.contains(&answer.code),
            "{file}: {} {:?}",
            answer.code,
            answer.remark()
        );
        assert_eq!(answer.serialize, request.serialize, "{file}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_calls_are_passed_on_and_the_clients_recorded_answers_come_back() {
    let index = index();
    for serialize in ["json", "rocketmq"] {
        for name in [
            "307-get-consumer-running-info",
            "309-consume-message-directly",
        ] {
            let broker = TestBroker::start().await;
            let mut asking = broker.connect().await;
            ok(&asking.create_topic("TopicA", 1, 1, 6).await);
            // The call names the message at the begin of the log.
            ok(&asking.send(&Send::new("TopicA", 0, b"the message")).await);
            let bytes = frame_bytes(&format!("{name}.{serialize}.request.java.bin"));
            let request = frame::parse(bytes.clone()).unwrap();
            let place = request
                .ext
                .get("msgId")
                .map(|id| id.ends_with("0000000000000000"));
            assert_ne!(place, Some(false), "the message is the first of the log");

            let mut client = broker.connect().await;
            let group = Consumer {
                group: request.ext.get("consumerGroup").unwrap(),
                broadcasting: false,
                topics: &[("TopicA", "*")],
            };
            let id = request.ext.get("clientId").unwrap();
            ok(&client.heartbeat(id, &group).await);

            asking.stream.write_all(&bytes).await.unwrap();
            let passed_on = loop {
                let next = client.next().await.expect("the call");
                if next.code == request.code {
                    break next;
                }
            };
            let recorded = frame::parse(frame_bytes(&format!(
                "{name}.{serialize}.request.broker.bin"
            )))
            .unwrap();
            assert_eq!(names(&passed_on), names(&recorded), "{name} {serialize}");
            if request.code == 309 {
                let message = MessageView::parse(passed_on.body.clone()).unwrap();
                assert_eq!(message.body(), b"the message");
                assert_eq!(passed_on.ext.get("brokerName"), Some("b0"));
            }
            let theirs = frame::parse(frame_bytes(&format!(
                "{name}.{serialize}.response.broker.bin"
            )))
            .unwrap();
            let mut answer = theirs.clone();
            answer.opaque = passed_on.opaque;
            client.stream.write_all(&answer.to_frame()).await.unwrap();
            let back = asking.answer(request.opaque).await;
            ok(&back);
            assert_eq!(back.body, theirs.body, "{name} {serialize}");
            assert_eq!(back.serialize, request.serialize);
        }
    }
    let of_these = |e: &&serde_json::Value| {
        let code = e["requestCode"].as_i64();
        e["direction"] == "request"
            && (code == Some(307) || code == Some(309))
            && e["client"] != "broker"
    };
    assert_eq!(
        index.iter().filter(of_these).count(),
        4,
        "all that were recorded"
    );
}
