//! Records, batches, properties and ids against values computed and frames sent by RocketMQ 4.9.8.

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use minimq_protocol::batch::{self, BatchRecord};
use minimq_protocol::hash::{JavaHash, index_key_hash, java_string_hash, tags_code};
use minimq_protocol::message::{
    Damage, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MessageError, MessageView, RecordFields, Verdict,
    VerifyBody, check, patch, split_records,
};
use minimq_protocol::message_id::{MAX_ID_LEN, OffsetId};
use minimq_protocol::properties::{Properties, PropertiesBuf, Soundness};
use minimq_protocol::{crc, hex, sys_flag};
use support::{bytes, frame_body, frame_index, json, number, optional, rows, string};

/// `1.2.3.4 5` or an IPv6 address in Java's long form and a port.
fn address(text: &str) -> SocketAddr {
    let (ip, port) = text.rsplit_once(' ').unwrap();
    SocketAddr::new(ip.parse().unwrap(), port.parse().unwrap())
}

/// A map, or null, as properties text.
fn encode_properties(map: &serde_json::Value) -> String {
    let mut text = PropertiesBuf::new();
    for (name, value) in map.as_object().into_iter().flatten() {
        if let Some(value) = value.as_str() {
            text.push(name, value);
        }
    }
    text.into_string()
}

#[test]
fn string_hash_is_java_s() {
    for row in rows("string-hashcode") {
        assert_eq!(
            java_string_hash(&string(&row[0])),
            number::<i32>(&row[1]),
            "{row:?}"
        );
    }
}

#[test]
fn tags_code_is_the_hash_of_the_whole_value() {
    for row in rows("tag-code") {
        assert_eq!(
            tags_code(optional(&row[0]).as_deref()),
            number::<i64>(&row[1]),
            "{row:?}"
        );
    }
}

#[test]
fn index_key_hash_is_the_broker_s() {
    for row in rows("index-key-hash") {
        let hash = match string(&row[0]).as_str() {
            // The key text is in the third column, made of no topic.
            "(raw)" => JavaHash::default().update(&string(&row[2])).index_hash(),
            topic => index_key_hash(topic, &string(&row[1])),
        };
        assert_eq!(hash, number::<i32>(&row[3]), "{row:?}");
        assert_eq!(hash % 5_000_000, number::<i32>(&row[4]), "{row:?}");
        assert_eq!(hash % 100, number::<i32>(&row[5]), "{row:?}");
    }
}

#[test]
fn body_crc_has_its_top_bit_cleared() {
    for row in rows("crc32") {
        assert_eq!(
            crc::body_crc(&bytes(&row[0])),
            number::<i32>(&row[1]),
            "{row:?}"
        );
    }
    // Plain CRC-32 of this body is 3207203784, top bit set.
    assert_eq!(crc::body_crc(b"q2"), 1_059_720_136);
}

#[test]
fn offset_ids_are_written_as_the_broker_writes_them() {
    for row in rows("message-id-encode") {
        let ip = string(&row[0]).parse().unwrap();
        let id = OffsetId {
            host: SocketAddr::new(ip, number(&row[1])),
            physical_offset: number(&row[2]),
        };
        assert_eq!(id.to_string(), string(&row[3]), "{row:?}");
        assert_eq!(id.write(&mut [0; MAX_ID_LEN]), string(&row[3]), "{row:?}");
    }
}

#[test]
fn offset_ids_are_read_and_garbage_is_refused() {
    for row in rows("message-id-decode") {
        let id = string(&row[0]);
        let decoded = id.parse::<OffsetId>();
        // Java takes any character for some hexadecimal digit and ignores what follows an id; both are refused here.
        let clean = matches!(id.len(), 32 | 56)
            && id.bytes().all(|character| character.is_ascii_hexdigit());
        if string(&row[1]) == "ok" && clean {
            let expected = OffsetId {
                host: address(&string(&row[2])),
                physical_offset: number(&row[3]),
            };
            assert_eq!(decoded.as_ref(), Ok(&expected), "{row:?}");
            assert_eq!(expected.to_string(), id.to_uppercase());
        } else {
            assert!(decoded.is_err(), "{row:?}");
        }
    }
}

#[test]
fn hexadecimal_text_is_upper_case_and_takes_both() {
    for row in rows("hex") {
        let text = string(&row[0]);
        // Java drops an odd digit and reads other characters as digits; both are refused here.
        if text.len().is_multiple_of(2)
            && !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            assert_eq!(
                hex::encode(&hex::decode(&text).unwrap()),
                string(&row[2]),
                "{row:?}"
            );
        } else if !text.is_empty() {
            assert_eq!(hex::decode(&text), None, "{row:?}");
        }
    }
}

#[test]
fn properties_are_written_as_4_9_8_writes_them() {
    for row in rows("properties-encode") {
        assert_eq!(
            encode_properties(&json(&row[0])),
            string(&row[1]),
            "{row:?}"
        );
    }
}

#[test]
fn properties_are_read_as_java_reads_them() {
    for row in rows("properties-decode") {
        let text = optional(&row[0]).unwrap_or_default();
        let expected: BTreeMap<String, String> = serde_json::from_str(&row[1]).unwrap();
        let properties = Properties::new(&text);
        let found: BTreeMap<String, String> = properties
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(found, expected, "{row:?}");
        for (name, value) in &expected {
            assert_eq!(properties.get(name), Some(value.as_str()), "{row:?}");
        }
        let mut copy = PropertiesBuf::new();
        copy.extend(properties, |_| true);
        let copied: BTreeMap<String, String> = copy
            .properties()
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(copied, expected, "{row:?}");
    }
}

#[test]
fn broken_pieces_of_properties_vanish_and_the_broker_s_property_stays_apart() {
    // Case wire-09.
    for (sent, expected) in [
        (
            "a\u{1}b\u{1}c\u{2}x\u{1}y\u{2}\u{2}noval\u{2}=\u{1}=\u{2}",
            &[("a", "b\u{1}c"), ("x", "y"), ("=", "="), ("CLUSTER", "C1")][..],
        ),
        ("a\u{1}\u{2}b\u{1}c", &[("b", "c"), ("CLUSTER", "C1")][..]),
        ("", &[("CLUSTER", "C1")][..]),
    ] {
        let mut stored = PropertiesBuf::new();
        stored
            .extend(Properties::new(sent), |name| name != "WAIT")
            .push("CLUSTER", "C1");
        assert_eq!(stored.properties().iter().collect::<Vec<_>>(), expected);

        let mut appended = PropertiesBuf::new();
        appended.push_text(sent).push("CLUSTER", "C1");
        assert_eq!(appended.properties().iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn records_are_written_and_read_as_java_does() {
    for row in rows("message-encode") {
        let (body, properties) = (bytes(&row[12]), encode_properties(&json(&row[13])));
        let topic = string(&row[0]);
        let fields = RecordFields {
            topic: &topic,
            queue_id: number(&row[1]),
            queue_offset: number(&row[2]),
            physical_offset: number(&row[3]),
            flag: number(&row[4]),
            sys_flag: number(&row[5]),
            born_timestamp: number(&row[6]),
            born_host: address(&string(&row[7])),
            store_timestamp: number(&row[8]),
            store_host: address(&string(&row[9])),
            reconsume_times: number(&row[10]),
            prepared_transaction_offset: number(&row[11]),
            body_crc: 0,
            body: &body,
            properties: properties.as_bytes(),
            appended_properties: &[],
        };
        let expected = bytes(&row[14]);
        assert_eq!(fields.encoded_len(), expected.len(), "{row:?}");
        let encoded = fields.encode().unwrap();
        assert_eq!(encoded, expected, "{row:?}");
        assert_eq!(
            MessageView::parse(encoded).unwrap().fields(),
            fields,
            "{row:?}"
        );
    }
}

#[test]
fn batches_are_written_and_read_as_java_does() {
    for row in rows("message-batch-encode") {
        let messages: Vec<(i32, Vec<u8>, String)> = json(&row[0])
            .as_array()
            .unwrap()
            .iter()
            .map(|message| {
                let flag = i32::try_from(message[0].as_i64().unwrap()).unwrap();
                (
                    flag,
                    bytes(message[1].as_str().unwrap()),
                    encode_properties(&message[2]),
                )
            })
            .collect();
        let records: Vec<BatchRecord<'_>> = messages
            .iter()
            .map(|(flag, body, properties)| BatchRecord {
                flag: *flag,
                body,
                properties: properties.as_bytes(),
            })
            .collect();
        let mut encoded = Vec::new();
        for record in &records {
            record.encode(&mut encoded).unwrap();
        }
        let expected = bytes(&row[1]);
        assert_eq!(encoded, expected, "{row:?}");
        assert_eq!(
            batch::records(&expected)
                .collect::<Result<Vec<_>, _>>()
                .unwrap(),
            records,
            "{row:?}"
        );
    }
}

#[test]
fn a_batch_record_keeps_its_properties_apart_from_the_request_s() {
    // Case send-02: with and without a separator at the end.
    for text in ["TAGS\u{1}T0\u{2}k\u{1}v", "TAGS\u{1}T0\u{2}k\u{1}v\u{2}"] {
        let record = sample(text.as_bytes(), b"CLUSTER\x01C1").encode().unwrap();
        let view = MessageView::parse(record).unwrap();
        let pairs: Vec<_> = view.properties().iter().collect();
        assert_eq!(pairs, [("TAGS", "T0"), ("k", "v"), ("CLUSTER", "C1")]);
        assert_eq!(
            view.properties().as_bytes(),
            b"TAGS\x01T0\x02k\x01v\x02CLUSTER\x01C1"
        );
    }
    let view = MessageView::parse(sample(b"", b"CLUSTER\x01C1").encode().unwrap()).unwrap();
    assert_eq!(view.properties().as_bytes(), b"CLUSTER\x01C1");
    let view = MessageView::parse(sample(b"k\x01v", b"").encode().unwrap()).unwrap();
    assert_eq!(view.properties().as_bytes(), b"k\x01v");
}

#[test]
fn every_recorded_record_re_encodes_byte_for_byte() {
    let mut records = 0;
    for entry in frame_index() {
        let exchange = (
            entry["requestCode"].as_i64().unwrap(),
            entry["direction"].as_str().unwrap(),
        );
        let carries_records =
            matches!(exchange, (11 | 12 | 33, "response") | (39 | 309, "request"));
        if !carries_records || entry["bodyLength"] == 0 {
            continue;
        }
        for view in split_records(Bytes::from(frame_body(&entry))) {
            let view = view.unwrap_or_else(|error| panic!("{}: {error}", entry["file"]));
            assert_eq!(
                view.fields().encode().unwrap(),
                view.raw(),
                "{}",
                entry["file"]
            );
            assert!(view.body_crc_holds(), "{}", entry["file"]);
            assert!(
                view.unique_key().is_some() || view.properties().get("CLUSTER").is_some(),
                "{}",
                entry["file"]
            );
            assert!(
                matches!(check(view.raw(), VerifyBody::Crc), Verdict::Whole(_)),
                "{}",
                entry["file"]
            );
            records += 1;
        }
    }
    assert!(records >= 40, "only {records} records found");
}

#[test]
fn every_recorded_batch_re_encodes_byte_for_byte() {
    let mut batches = 0;
    for entry in frame_index() {
        if entry["requestCode"] != 320 || entry["direction"] != "request" {
            continue;
        }
        let body = frame_body(&entry);
        let mut again = Vec::new();
        for record in batch::records(&body) {
            record.unwrap().encode(&mut again).unwrap();
        }
        assert_eq!(again, body, "{}", entry["file"]);
        batches += 1;
    }
    assert!(batches >= 2, "only {batches} batches found");
}

fn sample<'a>(properties: &'a [u8], appended_properties: &'a [u8]) -> RecordFields<'a> {
    RecordFields {
        topic: "T1",
        queue_id: 3,
        flag: 0,
        queue_offset: 7,
        physical_offset: 1000,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: "10.0.0.9:5000".parse().unwrap(),
        store_timestamp: 1_700_000_000_001,
        store_host: "10.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body_crc: crc::body_crc(b"hi"),
        body: b"hi",
        properties,
        appended_properties,
    }
}

#[test]
fn the_wire_spec_s_record_reads_and_writes() {
    // Test vector D6.
    let expected = bytes(
        "0000006cdaa320a758932aac0000000300000000000000000000000700000000000003e8000000000000018bcfe568000a00000900001388\
         0000018bcfe568010a00000100002a9f000000000000000000000000000000026869025431000d6b017602544147530154616741",
    );
    let fields = sample(b"k\x01v", b"TAGS\x01TagA");
    assert_eq!(fields.encode().unwrap(), expected);
    let view = MessageView::parse(Bytes::from(expected)).unwrap();
    assert_eq!(
        (view.topic(), view.tags(), view.body()),
        ("T1", Some("TagA"), &b"hi"[..])
    );
    assert_eq!(
        view.message_id().to_string(),
        "0A00000100002A9F00000000000003E8"
    );
    assert!(view.body_crc_holds());
}

#[test]
fn the_wire_spec_s_batch_reads_and_writes() {
    // Test vector D7.
    let expected = bytes(
        "00000028000000000000000000000000000000027831001057414954017472756502544147530141\
         000000210000000000000000000000000000000278320009574149540174727565",
    );
    let mut encoded = Vec::new();
    for (body, properties) in [
        (&b"x1"[..], &b"WAIT\x01true\x02TAGS\x01A"[..]),
        (&b"x2"[..], &b"WAIT\x01true"[..]),
    ] {
        BatchRecord {
            flag: 0,
            body,
            properties,
        }
        .encode(&mut encoded)
        .unwrap();
    }
    assert_eq!(encoded, expected);
}

#[test]
fn ipv6_hosts_take_twenty_bytes_each_and_independently() {
    let v4: SocketAddr = "10.0.0.9:5000".parse().unwrap();
    let v6: SocketAddr = "[2001:db8::1]:10911".parse().unwrap();
    for (born_host, store_host, len) in [(v4, v4, 91), (v6, v4, 103), (v4, v6, 103), (v6, v6, 115)]
    {
        // The encoder sets the bits for the hosts whatever the caller left in the flag word.
        for sys_flag in [
            0,
            sys_flag::message::BORN_HOST_V6 | sys_flag::message::STORE_HOST_V6,
        ] {
            let fields = RecordFields {
                born_host,
                store_host,
                sys_flag,
                ..sample(b"k\x01v", b"")
            };
            let mut record = fields.encode().unwrap().to_vec();
            assert_eq!(record.len(), len + 2 + 2 + 3);
            let view = MessageView::parse(Bytes::from(record.clone())).unwrap();
            assert_eq!(
                (view.born_host(), view.store_host()),
                (born_host, store_host)
            );
            assert_eq!(view.sys_flag(), fields.written_sys_flag());
            assert_eq!(view.fields().encode().unwrap(), record);

            patch(&mut record, 77, 4242, 1_800_000_000_000);
            let view = MessageView::parse(Bytes::from(record)).unwrap();
            let patched = RecordFields {
                queue_offset: 77,
                physical_offset: 4242,
                store_timestamp: 1_800_000_000_000,
                sys_flag: fields.written_sys_flag(),
                ..fields
            };
            assert_eq!(view.fields(), patched);
        }
    }
}

#[test]
fn a_topic_of_200_bytes_is_read_from_a_version_2_record() {
    let v1 = sample(b"k\x01v", b"").encode().unwrap();
    let topic = "t".repeat(200);
    // Everything up to the body, then a topic length of two bytes.
    let mut v2 = v1[..90].to_vec();
    v2.extend_from_slice(&200_i16.to_be_bytes());
    v2.extend_from_slice(topic.as_bytes());
    v2.extend_from_slice(&v1[93..]);
    let size = i32::try_from(v2.len()).unwrap();
    v2[..4].copy_from_slice(&size.to_be_bytes());
    v2[4..8].copy_from_slice(&MAGIC_V2.to_be_bytes());
    let view = MessageView::parse(Bytes::from(v2)).unwrap();
    assert_eq!(
        (view.topic(), view.magic(), view.properties().get("k")),
        (topic.as_str(), MAGIC_V2, Some("v"))
    );
}

#[test]
fn a_topic_or_properties_too_long_are_refused_and_nothing_is_written() {
    let (topic, long) = ("t".repeat(128), vec![b'x'; 32_768]);
    let mut out = vec![0xEE; 100_000];
    assert!(
        RecordFields {
            topic: &topic,
            ..sample(b"", b"")
        }
        .encode_into(&mut out)
        .is_err()
    );
    assert!(sample(&long, b"").encode_into(&mut out).is_err());
    // Each fits alone, both together do not.
    assert!(
        sample(&long[..32_760], b"CLUSTER\x01C1")
            .encode_into(&mut out)
            .is_err()
    );
    assert!(sample(b"k\x01v", b"").encode_into(&mut out[..94]).is_err());
    assert!(out.iter().all(|byte| *byte == 0xEE));
    assert!(sample(&long[..32_767], b"").encode_into(&mut out).is_ok());
}

#[test]
fn a_record_without_body_is_a_record() {
    let fields = RecordFields {
        body: b"",
        body_crc: 0,
        ..sample(b"", b"")
    };
    let record = fields.encode().unwrap();
    assert_eq!(record.len(), 93);
    assert_eq!(MessageView::parse(record.clone()).unwrap().body(), b"");
    assert!(matches!(check(&record, VerifyBody::Crc), Verdict::Whole(_)));
}

#[test]
fn damage_is_told_from_what_is_no_record() {
    let good = sample(b"TAGS\x01A\x02k\x01v", b"")
        .encode()
        .unwrap()
        .to_vec();
    let changed = |at: usize, byte: u8| {
        let mut record = good.clone();
        record[at] = byte;
        record
    };

    let flipped = changed(88, b'H');
    assert!(matches!(
        check(&flipped, VerifyBody::Crc),
        Verdict::Damaged { size, record: Some(_), damage: Damage::BodyCrc { .. } } if size == good.len()
    ));
    assert!(matches!(
        check(&flipped, VerifyBody::Skip),
        Verdict::Whole(_)
    ));

    let mut torn = good.clone();
    let end = torn.len();
    torn[end - 3..].fill(0);
    assert!(matches!(
        check(&torn, VerifyBody::Crc),
        Verdict::Damaged {
            record: Some(_),
            damage: Damage::Properties(Soundness::ZeroBytes {
                at: 7,
                to_the_end: true
            }),
            ..
        }
    ));
    assert!(matches!(
        check(&changed(end - 1, 0xFF), VerifyBody::Crc),
        Verdict::Damaged {
            damage: Damage::Properties(Soundness::NotUtf8 { at: 9 }),
            ..
        }
    ));
    assert!(matches!(
        check(&changed(92, 0), VerifyBody::Crc),
        Verdict::Damaged {
            damage: Damage::TopicZeroByte,
            ..
        }
    ));
    assert!(matches!(
        check(&changed(52, 1), VerifyBody::Crc),
        Verdict::Damaged {
            record: None,
            damage: Damage::Field(MessageError::Port { .. }),
            ..
        }
    ));

    // A length that is off by one: the record's own size is still told.
    let Verdict::NotARecord(error) = check(&changed(87, 3), VerifyBody::Crc) else {
        panic!("accepted")
    };
    assert_eq!(error.size(), Some(good.len()));
    assert!(matches!(
        check(&good[..good.len() - 1], VerifyBody::Crc),
        Verdict::NotARecord(MessageError::Size { .. })
    ));
    assert!(matches!(
        check(&[0; 200], VerifyBody::Crc),
        Verdict::NotARecord(MessageError::Magic { magic: 0 })
    ));
    assert!(matches!(
        check(&[], VerifyBody::Crc),
        Verdict::NotARecord(MessageError::Magic { magic: 0 })
    ));
    let mut blank = 234_i32.to_be_bytes().to_vec();
    blank.extend_from_slice(&MAGIC_BLANK.to_be_bytes());
    assert!(matches!(
        check(&blank, VerifyBody::Crc),
        Verdict::Blank { size: 234 }
    ));
    assert_eq!(MAGIC_V1, -626_843_481);
    assert_eq!(MAGIC_BLANK, -875_286_124);
}

#[test]
fn a_bad_record_does_not_hide_those_after_it() {
    let good = sample(b"TAGS\x01A", b"").encode().unwrap().to_vec();
    let mut bad_port = good.clone();
    bad_port[52] = 1;
    let mut all = good.clone();
    all.extend_from_slice(&bad_port);
    all.extend_from_slice(&good);
    all.extend_from_slice(&good[..40]);
    let results: Vec<bool> = split_records(Bytes::from(all))
        .map(|record| record.is_ok())
        .collect();
    assert_eq!(results, [true, false, true, false]);
}

#[test]
fn message_flags_are_read_and_changed_as_java_does() {
    for row in rows("message-sysflag") {
        let flag: i32 = number(&row[0]);
        assert_eq!(
            sys_flag::message::transaction(flag),
            number::<i32>(&row[1]),
            "{row:?}"
        );
        for (cell, transaction) in [(2, 4), (3, 8), (4, 12)] {
            assert_eq!(
                sys_flag::message::with_transaction(flag, transaction),
                number::<i32>(&row[cell]),
                "{row:?}"
            );
        }
        assert_eq!(
            sys_flag::message::clear_compressed(flag),
            number::<i32>(&row[5]),
            "{row:?}"
        );
    }
}

#[test]
fn pull_flags_are_built_and_read_as_java_does() {
    use sys_flag::pull;
    for row in rows("pull-sysflag") {
        let flag = pull::build(
            number(&row[0]),
            number(&row[1]),
            number(&row[2]),
            number(&row[3]),
            number(&row[4]),
        );
        assert_eq!(flag, number::<i32>(&row[5]), "{row:?}");
    }
    for row in rows("pull-sysflag-test") {
        let flag: i32 = number(&row[0]);
        let masks = [
            pull::COMMIT_OFFSET,
            pull::SUSPEND,
            pull::SUBSCRIPTION,
            pull::CLASS_FILTER,
            pull::LITE_PULL,
        ];
        for (mask, cell) in masks.into_iter().zip(&row[1..]) {
            assert_eq!(pull::has(flag, mask), number::<bool>(cell), "{row:?}");
        }
        assert_eq!(
            pull::clear_commit_offset(flag),
            number::<i32>(&row[6]),
            "{row:?}"
        );
    }
}

#[test]
fn topic_flags_are_read_and_changed_as_java_does() {
    use sys_flag::topic;
    for row in rows("topic-sysflag") {
        let flag: i32 = number(&row[0]);
        assert_eq!(
            topic::has(flag, topic::UNIT),
            number::<bool>(&row[1]),
            "{row:?}"
        );
        assert_eq!(
            topic::has(flag, topic::UNIT_SUB),
            number::<bool>(&row[2]),
            "{row:?}"
        );
        assert_eq!(flag | topic::UNIT, number::<i32>(&row[3]), "{row:?}");
        assert_eq!(flag & !topic::UNIT, number::<i32>(&row[4]), "{row:?}");
        assert_eq!(flag | topic::UNIT_SUB, number::<i32>(&row[5]), "{row:?}");
        assert_eq!(flag & !topic::UNIT_SUB, number::<i32>(&row[6]), "{row:?}");
    }
}
