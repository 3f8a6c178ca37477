//! Requests recorded between stock clients and brokers, sent to ours byte for byte: the answer's code and the names of
//! its fields must be ones that were recorded for that request.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
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
        Some("signed: access control is off here and has its own cases")
    } else if code == 307 || code == 309 {
        Some("passed on to a client that would have to answer: has a test of its own")
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

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_get_answers_of_a_recorded_shape() {
    let folder = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/golden/frames"
    ));
    let index = std::fs::read(folder.join("index.json")).expect("recorded frames");
    let index: Vec<serde_json::Value> = serde_json::from_slice(&index).unwrap();
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
        let bytes = std::fs::read(folder.join(file)).expect("a recorded frame");
        let request = frame::parse(Bytes::from(bytes.clone())).unwrap();
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
