//! Every JSON body recorded from RocketMQ 4.9.8, 4.2.0 and the Go client decodes into its type and comes back as the same
//! value; what Java wrote comes back byte for byte wherever order means something.

use minimq_protocol::body::*;
use minimq_protocol::json::{self, BodyError, Flavour, FromValue, ToJson, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;

fn golden(path: &str) -> Vec<u8> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden")).join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn golden_json(path: &str) -> serde_json::Value {
    serde_json::from_slice(&golden(path)).unwrap()
}

/// A body read as its type and written again in both flavours.
struct Rewritten {
    java: Vec<u8>,
    standard: Vec<u8>,
}

fn rewrite<T: FromValue + ToJson + PartialEq + std::fmt::Debug>(
    bytes: &[u8],
) -> Result<Rewritten, BodyError> {
    let typed: T = json::decode(bytes)?;
    let java = json::encode(&typed, Flavour::Fastjson);
    let standard = json::encode(&typed, Flavour::Standard);
    for written in [
        &java,
        &standard,
        &json::encode_pretty(&typed, Flavour::Fastjson),
    ] {
        assert_eq!(
            json::decode::<T>(written).as_ref(),
            Ok(&typed),
            "what is written reads back"
        );
    }
    Ok(Rewritten { java, standard })
}

/// The type of the JSON body of a request code and direction; `None` lists a kind that is not typed.
fn rewrite_body(code: i64, direction: &str, bytes: &[u8]) -> Option<Result<Rewritten, BodyError>> {
    let array_form = code == 220 && bytes.starts_with(br#"{"offsetTable":["#);
    Some(match (code, direction) {
        (21, "response") => rewrite::<TopicConfigWrapper>(bytes),
        (28 | 103 | 219, "response") => rewrite::<KvTable>(bytes),
        (34, "request") => rewrite::<HeartbeatData>(bytes),
        (38, "response") => rewrite::<ConsumerIdList>(bytes),
        (41, "request") => rewrite::<LockBatchBody>(bytes),
        (41, "response") => rewrite::<LockBatchResponseBody>(bytes),
        (42, "request") => rewrite::<UnlockBatchBody>(bytes),
        (43, "response") => rewrite::<ConsumerOffsetWrapper>(bytes),
        (45, "response") => rewrite::<DelayOffsetWrapper>(bytes),
        (46, "request") => rewrite::<CheckClientRequestBody>(bytes),
        (103, "request") => rewrite::<RegisterBrokerBody>(bytes),
        (105, "response") => rewrite::<TopicRouteData>(bytes),
        (106, "response") => rewrite::<ClusterInfo>(bytes),
        (200, "request") => rewrite::<SubscriptionGroupConfig>(bytes),
        (201, "response") => rewrite::<SubscriptionGroupWrapper>(bytes),
        (202, "response") => rewrite::<TopicStatsTable>(bytes),
        (203, "response") => rewrite::<ConsumerConnection>(bytes),
        (204, "response") => rewrite::<ProducerConnection>(bytes),
        (206 | 224 | 304 | 305 | 311 | 312 | 313, "response") => rewrite::<TopicList>(bytes),
        (208, "response") => rewrite::<ConsumeStats>(bytes),
        (220, "request") if array_form => rewrite::<ResetOffsetBodyForC>(bytes),
        (220, "request") | (222, "response") => rewrite::<ResetOffsetBody>(bytes),
        (221 | 223, "response") => rewrite::<GetConsumerStatusBody>(bytes),
        (300, "response") => rewrite::<GroupList>(bytes),
        (303, "response") => rewrite::<QueryConsumeTimeSpanBody>(bytes),
        (307, "response") => rewrite::<ConsumerRunningInfo>(bytes),
        (308, "response") => rewrite::<QueryCorrectionOffsetBody>(bytes),
        (309, "response") => rewrite::<ConsumeMessageDirectlyResult>(bytes),
        (315, "response") => rewrite::<BrokerStatsData>(bytes),
        (317, "response") => rewrite::<ConsumeStatsList>(bytes),
        (321, "response") => rewrite::<QueryConsumeQueueResponseBody>(bytes),
        (322, _) => rewrite::<DataVersion>(bytes),
        (328, "response") => rewrite::<ProducerTableInfo>(bytes),
        _ => return None,
    })
}

/// `value` with the members of all objects in one order, and keys that are numbers as text.
fn sorted(value: &Value<'_>) -> Value<'static> {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Object(members) => {
            let mut members: Vec<_> = members
                .iter()
                .map(|(key, value)| (sorted_key(key), sorted(value)))
                .collect();
            members.sort_by_key(|(key, _)| json::encode(key, Flavour::Fastjson));
            Value::Object(members)
        }
        Value::Null => Value::Null,
        Value::Bool(value) => Value::Bool(*value),
        Value::Integer(number) => Value::Integer(*number),
        Value::Decimal(text) => Value::Decimal(text.clone().into_owned().into()),
        Value::Text(text) => Value::Text(text.clone().into_owned().into()),
        Value::Reference(path) => Value::Reference(path.clone().into_owned().into()),
    }
}

fn sorted_key(key: &Value<'_>) -> Value<'static> {
    match key {
        Value::Integer(number) => Value::Text(number.to_string().into()),
        other => sorted(other),
    }
}

/// Go sends the hash codes of tags as strings; they are numbers.
fn code_sets_as_numbers(value: &mut Value<'_>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(code_sets_as_numbers),
        Value::Object(members) => {
            for (key, child) in members {
                match child {
                    Value::Array(codes) if key.as_text() == Some("codeSet") => {
                        codes.iter_mut().for_each(|code| {
                            if let Some(number) = code.as_text().and_then(|text| text.parse().ok())
                            {
                                *code = Value::Integer(number);
                            }
                        })
                    }
                    other => code_sets_as_numbers(other),
                }
            }
        }
        _ => {}
    }
}

fn read(bytes: &[u8]) -> Value<'_> {
    json::read(std::str::from_utf8(bytes).unwrap()).unwrap()
}

/// Checks one recorded body; false if its kind is not typed. `java`: a Java program wrote it.
fn check(name: &str, code: i64, direction: &str, bytes: &[u8], java: bool) -> bool {
    let Some(rewritten) = rewrite_body(code, direction, bytes) else {
        return false;
    };
    let rewritten = rewritten.unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut recorded = sorted(&read(bytes));
    code_sets_as_numbers(&mut recorded);
    assert_eq!(sorted(&read(&rewritten.java)), recorded, "{name}");

    if java {
        let untyped = json::encode(&read(bytes), Flavour::Fastjson);
        assert_eq!(
            String::from_utf8_lossy(&untyped),
            String::from_utf8_lossy(bytes),
            "{name}"
        );
        let written = if serde_json::from_slice::<serde_json::Value>(bytes).is_ok() && code == 105 {
            &rewritten.standard
        } else {
            &rewritten.java
        };
        let (mut ours, mut theirs) = (written.clone(), bytes.to_vec());
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(
            ours, theirs,
            "{name}: other bytes than Java's, not only in another order"
        );
    }
    true
}

#[test]
fn every_recorded_body_decodes_into_its_type_and_encodes_to_the_same_value() {
    let index = golden_json("bodies/index.json");
    let (mut typed, mut not_typed) = (0, Vec::new());
    for entry in index.as_array().unwrap() {
        let file = entry["file"].as_str().unwrap();
        if !file.ends_with(".json") {
            continue;
        }
        let (code, direction) = (
            entry["requestCode"].as_i64().unwrap(),
            entry["direction"].as_str().unwrap(),
        );
        let java = entry["senderLanguage"] == "JAVA";
        if check(
            file,
            code,
            direction,
            &golden(&format!("bodies/{file}")),
            java,
        ) {
            typed += 1;
        } else {
            not_typed.push(file.to_owned());
        }
    }
    assert!(
        not_typed.is_empty(),
        "body kinds without a type: {not_typed:#?}"
    );
    assert_eq!(typed, 108);
}

/// The body of a frame: after the length word, the header word and the header it announces.
fn body_of_frame(frame: &[u8]) -> &[u8] {
    let header_word = u32::from_be_bytes(frame[4..8].try_into().unwrap());
    &frame[8 + (header_word & 0x00ff_ffff) as usize..]
}

#[test]
fn the_bodies_inside_recorded_frames_do_the_same() {
    let index = golden_json("frames/index.json");
    let (mut json_bodies, mut compressed, mut not_typed) = (0, 0, BTreeSet::new());
    for entry in index.as_array().unwrap() {
        let file = entry["file"].as_str().unwrap();
        let (code, direction) = (
            entry["requestCode"].as_i64().unwrap(),
            entry["direction"].as_str().unwrap(),
        );
        let frame = golden(&format!("frames/{file}"));
        let body = body_of_frame(&frame);
        match entry["bodyKind"].as_str().unwrap() {
            "json" => {
                json_bodies += 1;
                if !check(file, code, direction, body, entry["language"] == "JAVA") {
                    not_typed.insert((code, direction.to_owned()));
                }
            }
            "zlib" if code == 103 => {
                compressed += 1;
                check_compressed(file, body);
            }
            _ => {}
        }
    }
    assert!(
        not_typed.is_empty(),
        "body kinds without a type: {not_typed:?}"
    );
    assert_eq!((json_bodies, compressed), (179, 2));
}

fn inflate(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::ZlibDecoder::new(bytes)
        .read_to_end(&mut plain)
        .unwrap();
    plain
}

/// Data version, topics in alphabetical order, filter servers: the parts of an inflated registration.
fn parts(mut plain: &[u8]) -> (Vec<u8>, BTreeSet<Vec<u8>>, Vec<u8>) {
    let number = |plain: &mut &[u8]| {
        let (number, rest) = plain.split_first_chunk().unwrap();
        *plain = rest;
        u32::from_be_bytes(*number) as usize
    };
    let block = |plain: &mut &[u8]| {
        let length = number(plain);
        let (block, rest) = plain.split_at(length);
        *plain = rest;
        block.to_vec()
    };
    let version = block(&mut plain);
    let (count, rest) = plain.split_first_chunk().unwrap();
    plain = rest;
    let topics: BTreeSet<_> = (0..u32::from_be_bytes(*count))
        .map(|_| block(&mut plain))
        .collect();
    let filter_servers = block(&mut plain);
    assert!(plain.is_empty());
    (version, topics, filter_servers)
}

fn check_compressed(name: &str, bytes: &[u8]) -> RegisterBrokerBody {
    let body = RegisterBrokerBody::from_registration(bytes, true, 409)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let again = inflate(&body.to_compressed());
    assert_eq!(parts(&again), parts(&inflate(bytes)), "{name}");
    assert_eq!(
        RegisterBrokerBody::from_compressed(&body.to_compressed(), 1 << 20).as_ref(),
        Ok(&body)
    );
    body
}

#[test]
fn the_recorded_compressed_registration_holds_what_its_index_says() {
    let index = golden_json("bodies/index.json");
    let entries: Vec<_> = index
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["inflatedFile"].is_string())
        .collect();
    assert_eq!(entries.len(), 1);
    for entry in entries {
        let file = entry["file"].as_str().unwrap();
        let bytes = golden(&format!("bodies/{file}"));
        assert_eq!(
            inflate(&bytes),
            golden(&format!(
                "bodies/{}",
                entry["inflatedFile"].as_str().unwrap()
            ))
        );
        let body = check_compressed(file, &bytes);

        let decoded = &entry["inflatedDecoded"];
        let wrapper = &body.topic_config_serialize_wrapper;
        let version = decoded["dataVersion"].as_str().unwrap();
        assert_eq!(wrapper.data_version.to_wire(), version.as_bytes());
        let ours: BTreeSet<String> = wrapper
            .topic_config_table
            .values()
            .map(|topic| {
                let (read, write, perm) =
                    (topic.read_queue_nums, topic.write_queue_nums, topic.perm);
                format!(
                    "{} {read} {write} {perm} {}",
                    topic.topic_name, topic.topic_filter_type
                )
            })
            .collect();
        let theirs = decoded["topics"].as_array().unwrap();
        assert_eq!(
            ours,
            theirs
                .iter()
                .map(|topic| topic.as_str().unwrap().to_owned())
                .collect()
        );
        assert_eq!(body.filter_server_list, Some(Vec::new()));
    }
}

#[test]
fn the_configuration_files_java_wrote_come_back_in_the_same_bytes() {
    let mut seen = BTreeMap::new();
    for store in ["clean", "cqext", "killed"] {
        let manifest = golden_json(&format!("store/{store}.manifest.json"));
        for (file, text) in manifest["configFiles"].as_object().unwrap() {
            let text = text.as_str().unwrap();
            if !file.ends_with(".json") {
                continue;
            }
            *seen.entry(file.clone()).or_insert(0) += 1;
            let value = json::read(text).unwrap();
            let untyped = json::encode_pretty(&value, Flavour::Fastjson);
            assert_eq!(String::from_utf8(untyped).unwrap(), text, "{store} {file}");

            let typed = match file.as_str() {
                "topics.json" => pretty::<TopicConfigWrapper>(text),
                "consumerOffset.json" => pretty::<ConsumerOffsetWrapper>(text),
                "delayOffset.json" => pretty::<DelayOffsetWrapper>(text),
                "subscriptionGroup.json" => pretty::<SubscriptionGroupWrapper>(text),
                "consumerFilter.json" => pretty::<ConsumerFilterTable>(text),
                other => panic!("no type for {other}"),
            };
            let in_order = json::encode_pretty(&sorted_as_text(&value), Flavour::Fastjson);
            assert_eq!(
                typed,
                String::from_utf8(in_order).unwrap(),
                "{store} {file}"
            );
        }
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

fn pretty<T: FromValue + ToJson>(text: &str) -> String {
    let typed: T = json::decode(text.as_bytes()).unwrap();
    String::from_utf8(json::encode_pretty(&typed, Flavour::Fastjson)).unwrap()
}

/// Members in order, keys left as they are: the typed tables write theirs in this order too.
fn sorted_as_text<'a>(value: &Value<'a>) -> Value<'a> {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(sorted_as_text).collect()),
        Value::Object(members) => {
            let mut members: Vec<_> = members
                .iter()
                .map(|(key, child)| (key.clone(), sorted_as_text(child)))
                .collect();
            members.sort_by_key(|(key, _)| match key {
                Value::Integer(number) => (*number, String::new()),
                key => (0, key.as_text().unwrap_or_default().to_owned()),
            });
            Value::Object(members)
        }
        other => other.clone(),
    }
}

#[test]
fn a_dead_filter_is_recognised_as_java_recognises_it() {
    let mut seen = BTreeSet::new();
    for store in ["clean", "cqext", "killed"] {
        let manifest = golden_json(&format!("store/{store}.manifest.json"));
        let text = manifest["configFiles"]["consumerFilter.json"]
            .as_str()
            .unwrap();
        let table = ConsumerFilterTable::from_json(text.as_bytes()).unwrap();
        for topic in table.filter_data_by_topic.values() {
            for filter in topic.group_filter_data.values() {
                assert_eq!(
                    filter.is_dead(),
                    filter.dead,
                    "{store} {}",
                    filter.consumer_group
                );
                seen.insert(filter.dead);
            }
        }
    }
    assert_eq!(seen.len(), 2, "both dead and living filters are recorded");
}

#[test]
fn an_indented_route_looks_as_the_java_tool_prints_it() {
    let mut routes = 0;
    for case in golden_json("mqadmin/topicRoute.json").as_array().unwrap() {
        let printed = case["stdout"].as_str().unwrap();
        if !printed.starts_with('{') {
            continue;
        }
        let route = TopicRouteData::from_json(printed.as_bytes()).unwrap();
        let written = String::from_utf8(route.to_json_pretty(Flavour::Fastjson)).unwrap();
        assert_eq!(written + "\n", printed);
        routes += 1;
    }
    assert!(routes > 0);
}

#[test]
fn the_files_the_java_tool_exported_come_back_in_the_same_bytes() {
    // `metrics` has a set, which a parsed text does not tell from a list.
    for name in ["configs", "metadata", "subscriptionGroup", "topic"] {
        let exported = golden(&format!("mqadmin/written-files/export__{name}.json"));
        let written = json::encode_pretty(&read(&exported), Flavour::Fastjson);
        assert_eq!(
            String::from_utf8_lossy(&written),
            String::from_utf8_lossy(&exported),
            "{name}"
        );
    }
}
