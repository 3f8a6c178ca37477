//! Every frame recorded from RocketMQ 4.9.8, 4.2.0 and the Go client reads as its index says, and is written again as
//! the same bytes (binary header) or the same JSON value (JSON header).

mod support;

use bytes::BytesMut;
use minimq_protocol::SerializeType;
use minimq_protocol::frame::{self, Check, MAX_FRAME_LEN};
use serde_json::{Map, Value};
use support::frames::{Golden, ext_map, golden_frames};

#[test]
fn every_frame_reads_as_its_index_says() {
    for golden in golden_frames() {
        let Golden { name, index, bytes } = &golden;
        assert_eq!(
            frame::check(bytes, MAX_FRAME_LEN),
            Ok(Check::Whole { len: bytes.len() }),
            "{name}"
        );
        let command = golden.command();
        assert_eq!(index["frameLength"], bytes.len(), "{name}");
        assert_eq!(index["bodyLength"], command.body.len(), "{name}");
        assert_eq!(index["serializeType"], command.serialize.name(), "{name}");
        assert_eq!(index["code"], command.code, "{name}");
        assert_eq!(
            index["language"],
            command.language.name().unwrap_or("unknown"),
            "{name}"
        );
        assert_eq!(index["version"], command.version, "{name}");
        assert_eq!(index["opaque"], command.opaque, "{name}");
        assert_eq!(index["flag"], command.flag, "{name}");
        assert_eq!(
            index["remark"].as_str(),
            command.remark.as_deref(),
            "{name}"
        );
        assert_eq!(
            index["direction"] == "response",
            command.is_response(),
            "{name}"
        );

        let fields = index["extFields"].as_object().cloned().unwrap_or_default();
        assert_eq!(ext_map(&command), fields, "{name}");
        for (key, value) in &fields {
            let value = value.as_str().expect("text");
            // What came as an empty text in a binary header is absent to readers.
            let read =
                (command.serialize == SerializeType::Json || !value.is_empty()).then_some(value);
            assert_eq!(command.ext.get(key), read, "{name} {key}");
        }

        let mut twice: Vec<_> = fields
            .keys()
            .filter(|key| command.ext.iter().filter(|(k, _)| k == key).count() == 2)
            .collect();
        let mut expected: Vec<_> = index["extFieldsWrittenTwice"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|key| key.as_str().expect("text"))
            .collect();
        twice.sort();
        expected.sort();
        assert_eq!(twice, expected, "{name}");
    }
}

#[test]
fn every_frame_is_written_again_as_it_came() {
    for golden in golden_frames() {
        let command = golden.command();
        let mut written = BytesMut::new();
        command.encode(&mut written);
        match command.serialize {
            SerializeType::Rocketmq => assert_eq!(written, golden.bytes, "{}", golden.name),
            SerializeType::Json => {
                let again = Golden {
                    name: golden.name.clone(),
                    index: Value::Null,
                    bytes: written.freeze(),
                };
                assert_eq!(json_header(&again), json_header(&golden), "{}", golden.name);
                assert_eq!(again.command().body, command.body, "{}", golden.name);
            }
        }
    }
}

/// The header as a value, without what has no meaning: Java's `serializeTypeCurrentRPC`, and null for absent.
fn json_header(golden: &Golden) -> Map<String, Value> {
    let mut header: Map<String, Value> =
        serde_json::from_slice(golden.header()).expect("golden headers are JSON");
    header.remove("serializeTypeCurrentRPC");
    header.retain(|_, value| !value.is_null());
    header
}

#[test]
fn every_frame_says_the_same_in_the_other_encoding() {
    for golden in golden_frames() {
        let mut command = golden.command();
        let ext = ext_map(&command);
        let absent = command.remark.as_deref() == Some("");
        command.serialize = match command.serialize {
            SerializeType::Json => SerializeType::Rocketmq,
            SerializeType::Rocketmq => SerializeType::Json,
        };
        let again = frame::parse(command.to_frame())
            .unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        assert_eq!(ext_map(&again), ext, "{}", golden.name);
        assert_eq!(
            again.remark,
            command.remark.clone().filter(|_| !absent),
            "{}",
            golden.name
        );
        assert_eq!(again.body, command.body);
        // A binary header has 16 bits for the code: 46000 arrives as -19536.
        let code = match command.serialize {
            SerializeType::Json => command.code,
            SerializeType::Rocketmq => i32::from(command.code as i16),
        };
        assert_eq!(
            (again.code, again.opaque, again.flag),
            (code, command.opaque, command.flag)
        );
        assert_eq!(
            (again.language, again.version),
            (command.language, command.version)
        );
    }
}
