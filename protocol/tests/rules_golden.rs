//! Names, subscriptions, unique keys, delay levels, compression and signatures against values computed and requests signed
//! by RocketMQ 4.9.8 and its clients.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::tz::TimeZone;
use minimq_protocol::acl_signature::{self, SigningKey};
use minimq_protocol::compression::{CompressionError, CompressionType};
use minimq_protocol::delay_level::{self, DelayLevels};
use minimq_protocol::message::split_records;
use minimq_protocol::subscription::TagExpression;
use minimq_protocol::unique_key::{UniqueKey, UniqueKeyGenerator};
use minimq_protocol::{hex, name, perm, sys_flag};
use support::{bytes, frame_body, frame_index, json, number, optional, rows, string};

/// The longest body these tests inflate to.
const LIMIT: usize = 4 * 1024 * 1024;

#[test]
fn permissions_read_as_java_reads_them() {
    for row in rows("perm") {
        let bits: i32 = number(&row[0]);
        assert_eq!(perm::text(bits), string(&row[1]), "{row:?}");
        assert_eq!(perm::is_readable(bits), number::<bool>(&row[2]), "{row:?}");
        assert_eq!(perm::is_writable(bits), number::<bool>(&row[3]), "{row:?}");
        assert_eq!(perm::is_inherited(bits), number::<bool>(&row[4]), "{row:?}");
    }
}

#[test]
fn names_are_refused_with_the_original_s_words() {
    /// Java's client adds a line to its messages.
    const MORE: &str =
        "\nFor more information, please visit the url, http://rocketmq.apache.org/docs/faq/";
    for row in rows("name-validation") {
        // Java tells an absent name from an empty one only by failing where the latter does not.
        let absent = optional(&row[0]).is_none();
        let text = optional(&row[0]).unwrap_or_default();
        let told = |result: Result<(), String>| result.err().unwrap_or_else(|| "ok".to_owned());

        let server = name::validate_topic(&text).map_err(|error| format!("1 {error}"));
        assert_eq!(told(server), string(&row[1]), "{row:?}");

        let topic = name::check_topic(&text).map_err(|error| format!("-1 {error} | {error}{MORE}"));
        assert_eq!(told(topic), string(&row[3]), "{row:?}");
        let group = name::check_group(&text).map_err(|error| format!("{error}{MORE}"));
        assert_eq!(told(group), string(&row[4]), "{row:?}");
        let sending = name::check_send_allowed(&text).map_err(|error| format!("{error}{MORE}"));
        assert_eq!(told(sending), string(&row[5]), "{row:?}");
        if name::is_send_forbidden(&text) {
            assert!(
                string(&row[5]).starts_with(&name::send_forbidden_remark(&text)),
                "{row:?}"
            );
        }
        if absent {
            continue;
        }
        let system = if name::is_system_topic(&text) {
            format!("1 {}", name::system_topic_remark(&text))
        } else {
            "no".to_owned()
        };
        assert_eq!(system, string(&row[2]), "{row:?}");
        assert_eq!(
            name::is_system_group(&text).to_string(),
            string(&row[6]),
            "{row:?}"
        );
    }
}

#[test]
fn a_topic_of_127_characters_is_the_longest() {
    // Case wire-11.
    assert_eq!(name::validate_topic(&"a".repeat(127)), Ok(()));
    assert_eq!(
        name::validate_topic(&"a".repeat(128)),
        Err(name::TopicNameError::TooLong)
    );
    for bad in ["a.b", "bad topic!", "主题", "a\u{0}"] {
        assert_eq!(
            name::validate_topic(bad),
            Err(name::TopicNameError::IllegalCharacters),
            "{bad}"
        );
    }
    for blank in ["", " ", "\t\n", "\u{3000}", "\u{1C}"] {
        assert_eq!(
            name::validate_topic(blank),
            Err(name::TopicNameError::Blank),
            "{blank:?}"
        );
    }
    assert_eq!(
        name::validate_topic("\u{A0}"),
        Err(name::TopicNameError::IllegalCharacters)
    );
}

#[test]
fn namespaces_are_put_on_and_taken_off_as_java_does() {
    for row in rows("namespace") {
        let (resource, namespace) = (string(&row[0]), string(&row[1]));
        assert_eq!(
            name::with_namespace(&resource, &namespace),
            string(&row[2]),
            "{row:?}"
        );
        assert_eq!(
            name::without_any_namespace(&resource),
            string(&row[3]),
            "{row:?}"
        );
        assert_eq!(
            name::without_namespace(&resource, &namespace),
            string(&row[4]),
            "{row:?}"
        );
        assert_eq!(name::namespace_of(&resource), string(&row[5]), "{row:?}");
    }
}

#[test]
fn retry_and_dead_letter_topics_belong_to_a_group() {
    assert_eq!(name::retry_topic("g"), "%RETRY%g");
    assert_eq!(name::dlq_topic("g"), "%DLQ%g");
    assert_eq!(name::group_of_retry_topic("%RETRY%g"), Some("g"));
    assert_eq!(name::group_of_dlq_topic("%DLQ%g"), Some("g"));
    assert_eq!(name::group_of_retry_topic("%DLQ%g"), None);
    assert_eq!(
        name::reply_topic("DefaultCluster"),
        "DefaultCluster_REPLY_TOPIC"
    );
}

#[test]
fn tag_expressions_are_read_as_java_reads_them() {
    for row in rows("subscription-parse") {
        let parsed = TagExpression::parse(optional(&row[0]).as_deref());
        if string(&row[1]) == "error" {
            assert_eq!(
                format!("Exception: {}", parsed.unwrap_err()),
                string(&row[2]),
                "{row:?}"
            );
            continue;
        }
        let parsed = parsed.unwrap();
        assert_eq!(parsed.text, string(&row[2]), "{row:?}");
        let tags: BTreeSet<String> = serde_json::from_str(&row[3]).unwrap();
        let codes: BTreeSet<i32> = serde_json::from_str(&row[4]).unwrap();
        assert_eq!(
            parsed.tags.iter().cloned().collect::<BTreeSet<_>>(),
            tags,
            "{row:?}"
        );
        assert_eq!(
            parsed.codes.iter().copied().collect::<BTreeSet<_>>(),
            codes,
            "{row:?}"
        );
    }
}

#[test]
fn tags_of_one_hash_pass_the_broker_and_not_the_consumer() {
    let expression = TagExpression::parse(Some("AaAa || TagB")).unwrap();
    let code = minimq_protocol::hash::tags_code;
    for (tag, broker, consumer) in [
        (Some("AaAa"), true, true),
        (Some("BBBB"), true, false),
        (Some("C"), false, false),
        (None, false, false),
    ] {
        assert_eq!(expression.may_match_code(code(tag)), broker, "{tag:?}");
        assert_eq!(expression.matches(tag), consumer, "{tag:?}");
    }
    let all = TagExpression::parse(Some("*")).unwrap();
    assert!(all.takes_all() && all.matches(None) && all.may_match_code(0));
}

#[test]
fn delay_levels_are_read_or_refused_as_the_broker_does() {
    for row in rows("delay-level-parse") {
        let levels = DelayLevels::parse(&string(&row[0]));
        if string(&row[1]) == "false" {
            assert!(levels.is_err(), "{row:?}");
            continue;
        }
        let levels = levels.unwrap();
        assert_eq!(levels.max_level(), number::<i32>(&row[2]), "{row:?}");
        let table: BTreeMap<String, i64> = serde_json::from_str(&row[3]).unwrap();
        let found: BTreeMap<String, i64> = levels
            .iter()
            .map(|(level, ms)| (level.to_string(), ms))
            .collect();
        assert_eq!(found, table, "{row:?}");
    }
    assert_eq!(
        DelayLevels::parse(delay_level::DEFAULT),
        Ok(DelayLevels::default())
    );
}

#[test]
fn a_level_above_the_highest_is_the_highest_and_none_is_no_delay() {
    let levels = DelayLevels::default();
    assert_eq!(levels.due(3, 1_700_000_000_000), Some(1_700_000_010_000));
    assert_eq!(
        (levels.effective(99), levels.delay_ms(99)),
        (Some(18), Some(7_200_000))
    );
    assert_eq!((levels.due(0, 5), levels.due(-1, 5)), (None, None));
    let error = DelayLevels::parse("1s 5x").unwrap_err().to_string();
    assert!(error.contains("level 2") && error.contains("5x"), "{error}");
}

#[test]
fn unique_keys_are_read_as_java_reads_them() {
    for row in rows("unique-id-decode") {
        let key = UniqueKey::parse(&string(&row[0]));
        let Ok(ip) = string(&row[2]).parse() else {
            assert_eq!(key, None, "{row:?}");
            continue;
        };
        let key = key.unwrap();
        assert_eq!((key.ip, key.pid), (ip, number(&row[3])), "{row:?}");
        if let Some((_, since)) = string(&row[4])
            .rsplit_once("= ")
            .filter(|(_, since)| !since.is_empty())
        {
            assert_eq!(key.since_month_start_ms, number::<u32>(since), "{row:?}");
        }
    }
}

#[test]
fn unique_keys_carry_address_process_time_and_count() {
    let zone =
        TimeZone::get("Asia/Shanghai").unwrap_or_else(|_| TimeZone::fixed(jiff::tz::offset(8)));
    // 2023-11-15 06:13:20 in Shanghai.
    let now = 1_700_000_000_000;
    let month_start = 1_698_768_000_000;
    let keys = UniqueKeyGenerator::new(
        "10.0.0.9".parse().unwrap(),
        0x1_04D2,
        0x18B4_AAC2,
        zone.clone(),
    );
    let (first, second) = (keys.next(now), keys.next(now));
    assert_eq!(
        first,
        format!("0A00000904D218B4AAC2{:08X}0000", now - month_start)
    );
    assert_eq!(
        second,
        format!("0A00000904D218B4AAC2{:08X}0001", now - month_start)
    );
    let key = UniqueKey::parse(&second).unwrap();
    assert_eq!((key.pid, key.salt, key.counter), (0x04D2, 0x18B4_AAC2, 1));
    assert_eq!(key.near_time(now + 1, &zone), Some(now));
    // Seen in the next month, before that day of it: it must be of the month before.
    assert_eq!(
        key.near_time(month_start + 31 * 86_400_000, &zone),
        Some(now)
    );

    // The month turns, and the clock steps back over the turn.
    let next_month = month_start + 30 * 86_400_000;
    assert_eq!(
        UniqueKey::parse(&keys.next(next_month + 7))
            .unwrap()
            .since_month_start_ms,
        7
    );
    assert_eq!(
        UniqueKey::parse(&keys.next(next_month - 500))
            .unwrap()
            .since_month_start_ms,
        0
    );

    let v6 = UniqueKeyGenerator::new("2001:db8::1".parse().unwrap(), 1, 2, TimeZone::UTC).next(now);
    assert_eq!(v6.len(), 56);
    assert_eq!(
        UniqueKey::parse(&v6).unwrap().ip,
        "2001:db8::1".parse::<std::net::IpAddr>().unwrap()
    );
    for opaque in ["", "order-17", "7f00", "Ω00000010000000000000000000000F"] {
        assert_eq!(UniqueKey::parse(opaque), None);
    }
}

#[test]
fn unique_keys_do_not_repeat_within_a_millisecond() {
    let keys = UniqueKeyGenerator::new("10.0.0.9".parse().unwrap(), 1, 2, TimeZone::UTC);
    let made: BTreeSet<String> = (0..10_000).map(|_| keys.next(1_700_000_000_000)).collect();
    assert_eq!(made.len(), 10_000);
}

#[test]
fn kinds_of_compression_have_java_s_numbers_names_and_errors() {
    for row in rows("compression-type") {
        let kind: CompressionType = string(&row[0]).parse().unwrap();
        assert_eq!(
            (kind.value(), kind.sys_flag()),
            (number(&row[1]), number(&row[2])),
            "{row:?}"
        );
        assert_eq!(kind.name(), string(&row[0]));
        assert_eq!(
            CompressionType::of_sys_flag(kind.sys_flag() | 1).unwrap(),
            kind
        );
    }
    for row in rows("compression-of") {
        let told = match string(&row[0]).parse::<CompressionType>() {
            Ok(kind) => kind.name().to_owned(),
            Err(error) => format!("RuntimeException: {error}"),
        };
        assert_eq!(told, string(&row[1]), "{row:?}");
    }
    for row in rows("message-sysflag") {
        let told = match CompressionType::of_sys_flag(number(&row[0])) {
            Ok(kind) => kind.name().to_owned(),
            Err(error) => format!("RuntimeException: {error}"),
        };
        assert_eq!(told, string(&row[6]), "{row:?}");
    }
}

#[test]
fn bodies_compressed_by_java_inflate_and_ours_do_too() {
    for row in rows("compression") {
        let kind: CompressionType = string(&row[0]).parse().unwrap();
        let (plain, compressed) = (bytes(&row[2]), bytes(&row[3]));
        assert_eq!(
            kind.decompress(&compressed, LIMIT).unwrap(),
            plain,
            "{row:?}"
        );
        assert_eq!(
            kind.decompress(&compressed, plain.len()).unwrap(),
            plain,
            "{row:?}"
        );
        let ours = kind.compress(&plain, number(&row[1])).unwrap();
        assert_eq!(kind.decompress(&ours, LIMIT).unwrap(), plain, "{row:?}");
        if let Some(less) = plain.len().checked_sub(1) {
            assert!(
                matches!(kind.decompress(&compressed, less), Err(CompressionError::TooLarge { limit }) if limit == less),
                "{row:?}"
            );
        }
    }
}

#[test]
fn recorded_zlib_bodies_inflate() {
    let mut inflated = 0;
    for entry in frame_index() {
        let sys_flag = match entry["requestCode"].as_i64() {
            Some(10) => &entry["extFields"]["sysFlag"],
            Some(310) => &entry["extFields"]["f"],
            _ => &serde_json::Value::Null,
        };
        if sys_flag
            .as_str()
            .is_some_and(|flag| sys_flag::message::is_compressed(flag.parse().unwrap()))
        {
            assert!(
                !CompressionType::Zlib
                    .decompress(&frame_body(&entry), LIMIT)
                    .unwrap()
                    .is_empty()
            );
            inflated += 1;
        }
        if entry["requestCode"] == 11
            && entry["direction"] == "response"
            && entry["bodyLength"] != 0
        {
            for view in split_records(Bytes::from(frame_body(&entry))) {
                let view = view.unwrap();
                let plain = view.plain_body(LIMIT).unwrap();
                if sys_flag::message::is_compressed(view.sys_flag()) {
                    assert!(plain.len() > view.body().len());
                    inflated += 1;
                } else {
                    assert_eq!(plain, view.body());
                }
            }
        }
    }
    assert!(inflated >= 3, "only {inflated} compressed bodies found");
}

#[test]
fn the_inflation_limit_holds_for_bombs_and_cut_bodies_are_errors() {
    let bomb = vec![0; 20_000_000];
    let text = b"compress me, compress me, compress me".repeat(100);
    for kind in [
        CompressionType::Zlib,
        CompressionType::Lz4,
        CompressionType::Zstd,
    ] {
        let compressed = kind.compress(&bomb, 5).unwrap();
        assert!(compressed.len() < 200_000);
        for limit in [0, 1000, LIMIT] {
            assert!(
                matches!(
                    kind.decompress(&compressed, limit),
                    Err(CompressionError::TooLarge { .. })
                ),
                "{kind:?}"
            );
        }
        let compressed = kind.compress(&text, 5).unwrap();
        assert_eq!(kind.decompress(&compressed, text.len()).unwrap(), text);
        for cut in [0, 1, 5, compressed.len() / 2, compressed.len() - 5] {
            let result = kind.decompress(&compressed[..cut], LIMIT);
            assert!(
                matches!(result, Err(CompressionError::Broken { .. })),
                "{kind:?} cut to {cut}: {result:?}"
            );
        }
        assert!(kind.decompress(&text, LIMIT).is_err());
    }
}

/// Ext fields as pairs.
fn fields(map: &serde_json::Value) -> Vec<(&str, &str)> {
    map.as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
        .collect()
}

#[test]
fn signed_bytes_and_signature_are_java_s() {
    for row in rows("acl-signature") {
        let map = json(&row[0]);
        let body = if row[1] == "null" {
            Vec::new()
        } else {
            bytes(&row[1])
        };
        let (access_key, secret, token) = (string(&row[2]), string(&row[3]), optional(&row[4]));
        let mut fields = fields(&map);
        fields.push((acl_signature::ACCESS_KEY, &access_key));
        if let Some(token) = &token {
            fields.push((acl_signature::SECURITY_TOKEN, token));
        }
        let content = acl_signature::content(fields.iter().copied(), &body);
        assert_eq!(hex::encode(&content), row[5], "{row:?}");
        let signature = acl_signature::sign(&secret, fields.iter().copied(), &body);
        assert_eq!(signature, string(&row[6]), "{row:?}");
        fields.push((acl_signature::SIGNATURE, &signature));
        let key = SigningKey::new(&secret);
        assert!(
            key.verify(fields.iter().copied(), &body, &signature),
            "{row:?}"
        );
        assert!(
            !SigningKey::new("another secret").verify(fields.iter().copied(), &body, &signature),
            "{row:?}"
        );
        for wrong in [
            "",
            "?",
            &signature[1..],
            &signature.replace('=', ""),
            &"A".repeat(28),
            &"A".repeat(400),
        ] {
            assert!(!key.verify(fields.iter().copied(), &body, wrong), "{wrong}");
        }
    }
}

#[test]
fn hmac_is_java_s() {
    for row in rows("acl-hmac-sha1") {
        let signature = acl_signature::sign(&string(&row[1]), [], &bytes(&row[0]));
        assert_eq!(signature, string(&row[2]), "{row:?}");
    }
}

#[test]
fn the_wire_spec_s_signature_is_made() {
    // Test vector D5.
    let fields = [
        ("a", "pg"),
        ("b", "T1"),
        ("c", "TBW102"),
        ("d", "4"),
        ("e", "0"),
        ("f", "0"),
        ("g", "1700000000000"),
        ("h", "0"),
        ("i", "WAIT\u{1}true"),
        ("j", "0"),
        ("k", "false"),
        ("m", "false"),
        ("n", "brk-a"),
        ("AccessKey", "RocketMQ"),
    ];
    assert_eq!(
        acl_signature::content(fields, b"hi"),
        b"RocketMQpgT1TBW10240017000000000000WAIT\x01true0falsefalsebrk-ahi"
    );
    assert_eq!(
        acl_signature::sign("12345678", fields, b"hi"),
        "kEDxR0ECu3H2C7uAx3A6spO+Bqo="
    );
}

#[test]
fn recorded_signatures_verify_and_those_with_a_wrong_secret_do_not() {
    let accounts = BTreeMap::from([
        ("GoldAdminAK", "goldadminsecret12"),
        ("GoldUserAK", "golduser12345678"),
    ]);
    // One client had a wrong secret on purpose: its route query, its send, which the broker refused, and its farewell.
    let wrong = [
        "035-unregister-client.json.request.java.6.bin",
        "035-unregister-client.rocketmq.request.java.6.bin",
        "105-get-routeinfo-by-topic.json.request.java.5.bin",
        "105-get-routeinfo-by-topic.rocketmq.request.java.5.bin",
        "310-send-message-v2.json.request.java.10.bin",
        "310-send-message-v2.rocketmq.request.java.10.bin",
    ];
    let (mut verified, mut refused) = (0, Vec::new());
    for entry in frame_index() {
        let Some(signature) = entry["extFields"][acl_signature::SIGNATURE].as_str() else {
            continue;
        };
        let (fields, body) = (fields(&entry["extFields"]), frame_body(&entry));
        let secret = accounts[entry["extFields"][acl_signature::ACCESS_KEY]
            .as_str()
            .unwrap()];
        if acl_signature::verify(secret, fields.iter().copied(), &body, signature) {
            verified += 1;
        } else {
            refused.push(entry["file"].as_str().unwrap().to_owned());
        }
    }
    refused.sort();
    assert_eq!(refused, wrong);
    assert!(verified >= 20, "only {verified} signatures found");
}

#[test]
fn a_doubled_field_counts_once_and_fields_sort_as_java_sorts() {
    assert_eq!(
        acl_signature::content(
            [("b", "1"), ("a", "2"), ("b", "3"), ("Signature", "x")],
            b""
        ),
        b"23"
    );
    // U+1F600 is a pair of code units below U+FFFD, so Java puts it first.
    assert_eq!(
        acl_signature::content([("\u{FFFD}", "1"), ("\u{1F600}", "2")], b""),
        b"21"
    );
}

#[test]
fn a_unique_key_query_verifies_however_the_client_signed_it() {
    let signed = [("topic", "T"), ("AccessKey", "RocketMQ")];
    let sent = [
        ("topic", "T"),
        ("_UNIQUE_KEY_QUERY", "true"),
        ("AccessKey", "RocketMQ"),
    ];
    let key = SigningKey::new("12345678");
    // 4.9.3 and older add the field after signing; later ones sign it.
    assert!(key.verify(sent, b"", &key.sign(signed, b"")));
    assert!(key.verify(sent, b"", &key.sign(sent, b"")));
    assert!(!key.verify(sent, b"x", &key.sign(sent, b"")));
}
