//! Codes, versions, flags and header words hold against the tables recorded from the 4.9.8 classes.

mod support;

use minimq_protocol::code::{request, response};
use minimq_protocol::command::{FLAG_ONEWAY, FLAG_RESPONSE};
use minimq_protocol::{Command, SerializeType, version};
use support::{number, rows, string};

#[test]
fn request_and_result_codes_have_their_names() {
    for row in rows("request-code") {
        assert_eq!(
            request::name(number(&row[0])),
            Some(&*string(&row[1])),
            "request code {}",
            row[0]
        );
    }
    for row in rows("response-code") {
        assert_eq!(
            response::name(number(&row[0])),
            Some(&*string(&row[1])),
            "result code {}",
            row[0]
        );
    }
    for table in [request::ALL, response::ALL] {
        assert!(
            table.is_sorted_by_key(|(code, _)| code),
            "names are found by binary search"
        );
    }
    assert_eq!(request::name(9999), None);
}

#[test]
fn version_numbers_have_their_names() {
    for row in rows("mqversion") {
        assert_eq!(
            version::name(number(&row[0])),
            string(&row[1]),
            "version {}",
            row[0]
        );
    }
    for (number, name) in [
        (version::V3_0_7_SNAPSHOT, "V3_0_7_SNAPSHOT"),
        (version::V3_0_11, "V3_0_11"),
        (version::V3_1_8_SNAPSHOT, "V3_1_8_SNAPSHOT"),
        (version::V3_4_9, "V3_4_9"),
        (version::V4_1_0_SNAPSHOT, "V4_1_0_SNAPSHOT"),
        (version::V4_2_0_SNAPSHOT, "V4_2_0_SNAPSHOT"),
        (version::V4_9_3, "V4_9_3"),
        (version::V4_9_4, "V4_9_4"),
        (version::CURRENT, "V4_9_8"),
        (version::V5_0_0, "V5_0_0"),
        (version::HIGHER_VERSION - 1, "V5_9_9"),
        (version::HIGHER_VERSION, "HIGHER_VERSION"),
        (i32::MAX, "HIGHER_VERSION"),
        (i32::MIN, "HIGHER_VERSION"),
    ] {
        assert_eq!(version::name(number), name);
    }
}

#[test]
fn flag_bits_mean_what_they_mean_in_java() {
    for row in rows("flag-bits") {
        let mut command = Command::request(request::HEART_BEAT);
        command.flag = number(&row[0]);
        assert_eq!(command.is_response().to_string(), row[1], "flag {}", row[0]);
        assert_eq!(command.is_oneway().to_string(), row[2], "flag {}", row[0]);
    }
    assert_eq!((FLAG_RESPONSE, FLAG_ONEWAY), (1, 2));
}

#[test]
fn header_words_are_java_s() {
    for row in rows("remoting-mark") {
        let serialize = if string(&row[1]) == "JSON" {
            SerializeType::Json
        } else {
            SerializeType::Rocketmq
        };
        let word = serialize.header_word(number(&row[0]));
        assert_eq!(format!("{word:08x}"), row[2]);
        assert_eq!((word & 0xFF_FFFF).to_string(), row[3]);
        let read = SerializeType::from_byte((word >> 24) as u8).map(SerializeType::name);
        assert_eq!(read, Some(&*string(&row[4])));
    }
}
