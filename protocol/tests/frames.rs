//! Frames: the test vectors of the wire spec, bad frames, limits, and streams split anywhere.

use bytes::{Bytes, BytesMut};
use minimq_protocol::code::{request, response};
use minimq_protocol::frame::{self, Check, FrameError, MAX_FRAME_LEN};
use minimq_protocol::header::{GetRouteInfoRequest, SendMessageRequest, SendMessageRequestV2};
use minimq_protocol::{Command, Language, NoHeader, SerializeType, encode_answer_head, hex};

fn unhex(text: &str) -> Bytes {
    hex::decode(text).expect("hexadecimal").into()
}

fn parse(text: &str) -> Command {
    frame::parse(unhex(text)).expect("a good frame")
}

const D1: &str =
    "000000260100002200690001990000000100000000000000000000000d0005746f706963000000025431";
const D2: &str = "000000210100001d00110001990000000c00000001000000086e6f20746f70696300000000";
const D3_HEADER: &str = "{\"code\":310,\"extFields\":{\"a\":\"pg\",\"b\":\"T1\",\"c\":\"TBW102\",\"d\":\"4\",\
    \"e\":\"0\",\"f\":\"0\",\"g\":\"1700000000000\",\"h\":\"0\",\"i\":\"WAIT\\u0001true\",\"j\":\"0\",\"k\":\"false\",\
    \"m\":\"false\",\"n\":\"brk-a\",\"Signature\":\"kEDxR0ECu3H2C7uAx3A6spO+Bqo=\",\"AccessKey\":\"RocketMQ\"},\
    \"flag\":0,\"language\":\"JAVA\",\"opaque\":12,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}";
const D4: &str = "000000ec010000e601360001990000000c0000000000000000000000d1000161000000027067000162000000025431\
    000163000000065442573130320001640000000134000165000000013000016600000001300001670000000d3137303030303030303030\
    303000016800000001300001690000000957414954017472756500016a000000013000016b0000000566616c736500016d000000056661\
    6c736500016e0000000562726b2d6100095369676e61747572650000001c6b4544785230454375334832433775417833413673704f2b42\
    716f3d00094163636573734b657900000008526f636b65744d516869";

#[test]
fn a_binary_request_reads_and_writes_as_recorded() {
    let command = parse(D1);
    assert_eq!(
        (command.code, command.opaque, command.flag, command.version),
        (105, 1, 0, 409)
    );
    assert_eq!(command.language, Language::Java);
    assert_eq!(
        command
            .header::<GetRouteInfoRequest<'_>>()
            .expect("typed")
            .topic,
        "T1"
    );
    assert_eq!(command.to_frame(), unhex(D1));

    let header = GetRouteInfoRequest {
        topic: "T1",
        accept_standard_json_only: None,
    };
    let mut built = Command::request_with(request::GET_ROUTEINFO_BY_TOPIC, &header)
        .with_serialize(SerializeType::Rocketmq);
    built.opaque = 1;
    assert_eq!(built.to_frame(), unhex(D1));
}

#[test]
fn a_binary_answer_reads_and_writes_as_recorded() {
    let command = parse(D2);
    assert_eq!(
        (command.code, command.opaque),
        (response::TOPIC_NOT_EXIST, 12)
    );
    assert!(command.is_response() && !command.is_oneway());
    assert_eq!(command.remark(), "no topic");
    assert_eq!(command.to_frame(), unhex(D2));

    let mut request = parse(D1);
    request.opaque = 12;
    request.mark_oneway();
    let built = Command::response_to(&request, response::TOPIC_NOT_EXIST).with_remark("no topic");
    assert_eq!(built.to_frame(), unhex(D2));

    let mut head = BytesMut::new();
    let remark = Some("no topic");
    encode_answer_head(
        &mut head,
        SerializeType::Rocketmq,
        12,
        17,
        remark,
        None::<&NoHeader>,
        0,
    );
    assert_eq!(head, unhex(D2));
}

#[test]
fn one_signed_send_reads_the_same_from_both_encodings() {
    let mut json = BytesMut::from(&unhex("0000014c00000146")[..]);
    json.extend_from_slice(D3_HEADER.as_bytes());
    json.extend_from_slice(b"hi");
    let json = frame::parse(json.freeze()).expect("D3");
    let binary = parse(D4);
    assert_eq!(binary.to_frame(), unhex(D4));
    assert_eq!(
        Command {
            serialize: SerializeType::Rocketmq,
            ..json.clone()
        },
        binary
    );
    for command in [json, binary] {
        assert_eq!(command.body, "hi");
        assert_eq!(command.ext.len(), 15);
        let header = SendMessageRequest::decode_for(command.code, &command.ext).expect("typed");
        assert_eq!(header.properties, Some("WAIT\u{1}true"));
        assert_eq!(header.born_timestamp, 1_700_000_000_000);
        assert_eq!(
            (header.max_reconsume_times, header.bname),
            (None, Some("brk-a"))
        );
        assert_eq!(
            command
                .header::<SendMessageRequestV2<'_>>()
                .expect("typed")
                .0,
            header
        );
    }
}

#[test]
fn bad_frames_are_refused_as_soon_as_they_can_be() {
    let too_large = Err(FrameError::TooLarge {
        len: 16_777_217,
        max: MAX_FRAME_LEN,
    });
    assert_eq!(frame::check(&unhex("00fffffd"), MAX_FRAME_LEN), too_large);
    let negative = Err(FrameError::BadLength { length: -1 });
    assert_eq!(frame::check(&unhex("ffffffff"), MAX_FRAME_LEN), negative);
    for length in [0, 1, 2, 3] {
        let word = unhex(&format!("0000000{length}"));
        assert_eq!(
            frame::check(&word, MAX_FRAME_LEN),
            Err(FrameError::BadLength { length })
        );
    }
    let header = Err(FrameError::HeaderTooLong {
        header_len: 5,
        length: 4,
    });
    assert_eq!(
        frame::check(&unhex("0000000400000005"), MAX_FRAME_LEN),
        header
    );
    let header = Err(FrameError::HeaderTooLong {
        header_len: 1000,
        length: 20,
    });
    assert_eq!(
        frame::check(&unhex("00000014000003e8"), MAX_FRAME_LEN),
        header
    );
    let kind = Err(FrameError::SerializeType(2));
    assert_eq!(
        frame::check(&unhex("00000006020000027b7d"), MAX_FRAME_LEN),
        kind
    );
    let http = frame::check(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", MAX_FRAME_LEN);
    assert!(matches!(http, Err(FrameError::TooLarge { .. })), "{http:?}");
    // Whole, but with a header that cannot be read.
    for header in [
        "",
        "{]",
        "{not json",
        "[]",
        "1",
        "{\"code\":1",
        "{\"code\":1}}",
        "{\"code\":\"x\"}",
    ] {
        let error = frame::parse(json_frame(header)).expect_err(header);
        assert!(
            matches!(error, FrameError::Json { .. }),
            "{header}: {error}"
        );
    }
}

fn json_frame(header: &str) -> Bytes {
    frame_of(0, header.as_bytes(), b"")
}

fn frame_of(kind: u32, header: &[u8], body: &[u8]) -> Bytes {
    let mut frame = Vec::new();
    frame.extend_from_slice(&(4 + header.len() as u32 + body.len() as u32).to_be_bytes());
    frame.extend_from_slice(&(kind << 24 | header.len() as u32).to_be_bytes());
    frame.extend_from_slice(header);
    frame.extend_from_slice(body);
    frame.into()
}

#[test]
fn the_largest_frame_allowed_is_accepted_and_waited_for() {
    let prefix = unhex("00fffffc0000000d");
    assert_eq!(
        frame::check(&prefix, MAX_FRAME_LEN),
        Ok(Check::Incomplete {
            need: MAX_FRAME_LEN
        })
    );
    assert_eq!(
        frame::check(&prefix, MAX_FRAME_LEN - 1),
        Err(FrameError::TooLarge {
            len: MAX_FRAME_LEN,
            max: MAX_FRAME_LEN - 1
        })
    );
    let header = b"{\"code\":9999}";
    let body = vec![0; 16_777_212 - 4 - header.len()];
    let whole = frame_of(0, header, &body);
    assert_eq!(
        frame::check(&whole, MAX_FRAME_LEN),
        Ok(Check::Whole { len: MAX_FRAME_LEN })
    );
    let command = frame::parse(whole).expect("the largest frame");
    assert_eq!((command.code, command.body.len()), (9999, body.len()));
}

#[test]
fn a_frame_is_incomplete_until_its_last_byte() {
    let frame = unhex(D4);
    for len in 0..frame.len() {
        let need = if len < 4 { 8 } else { frame.len() };
        assert_eq!(
            frame::check(&frame[..len], MAX_FRAME_LEN),
            Ok(Check::Incomplete { need })
        );
        let error = frame::parse(frame.slice(..len)).expect_err("cut");
        assert_eq!(error, FrameError::NotOneFrame { len });
    }
    let mut two = BytesMut::from(&frame[..]);
    two.extend_from_slice(&frame);
    assert_eq!(
        frame::check(&two, MAX_FRAME_LEN),
        Ok(Check::Whole { len: frame.len() })
    );
    assert_eq!(
        frame::parse(two.freeze()),
        Err(FrameError::NotOneFrame {
            len: 2 * frame.len()
        })
    );
}

#[test]
fn binary_headers_whose_lengths_run_past_their_block_are_refused() {
    let fixed = "00690001990000000100000000";
    for (header, what) in [
        (
            "0069000199000000010000000000000000000000",
            "shorter than 21 bytes",
        ),
        (
            &format!("{fixed}0000000100000000"),
            "ext fields longer than the header",
        ),
        (
            &format!("{fixed}0000000500000000"),
            "remark longer than the header",
        ),
        (
            &format!("{fixed}ffffffff00000000"),
            "remark longer than the header",
        ),
        (
            &format!("{fixed}000000007fffffff"),
            "ext fields longer than the header",
        ),
        (
            &format!("{fixed}0000000080000000"),
            "ext fields longer than the header",
        ),
        (
            &format!("{fixed}000000000000000100"),
            "key longer than the ext fields",
        ),
        (
            &format!("{fixed}00000000000000030005aa"),
            "key longer than the ext fields",
        ),
        (
            &format!("{fixed}0000000000000003ffffaa"),
            "key longer than the ext fields",
        ),
        (
            &format!("{fixed}000000000000000300016b"),
            "value longer than the ext fields",
        ),
        (
            &format!("{fixed}000000000000000700016bffffffff"),
            "value longer than the ext fields",
        ),
        (
            &format!("{fixed}000000000000000700016b00000001"),
            "value longer than the ext fields",
        ),
    ] {
        let error = frame::parse(frame_of(1, &unhex(header), b"")).expect_err(header);
        let FrameError::Binary { what: found, .. } = error else {
            panic!("{header}: {error}")
        };
        assert_eq!(found, what, "{header}");
    }
}

#[test]
fn a_binary_header_is_read_as_leniently_as_java_reads_it() {
    // Language byte 99, bytes behind the block, a doubled key, an empty value, invalid UTF-8 in a value.
    let ext = "0001610000000131000161000000013200016200000000000163 00000002c328".replace(' ', "");
    let header = format!(
        "0069630199000000010000000000000000{:08x}{ext}beef",
        ext.len() / 2
    );
    let command = frame::parse(frame_of(1, &unhex(&header), b"body")).expect("a good frame");
    assert_eq!(command.language, Language::Unknown(99));
    assert_eq!(command.body, "body");
    assert_eq!(command.ext.get("a"), Some("2"));
    assert_eq!(
        command.ext.get("b"),
        None,
        "Java reads an empty value as null"
    );
    assert_eq!(command.ext.get("c"), Some("\u{FFFD}("));
    let fields: Vec<_> = command.ext.iter().collect();
    assert_eq!(
        fields,
        [("a", "1"), ("a", "2"), ("b", ""), ("c", "\u{FFFD}(")]
    );
}

#[test]
fn what_cannot_be_sent_becomes_a_small_header_that_says_so() {
    let huge = "x".repeat(16_777_216);
    let long_key = "k".repeat(40_000);
    for (command, serialize) in [
        (
            Command::request(11).with_ext("topic", &huge),
            SerializeType::Json,
        ),
        (
            Command::request(11).with_ext("topic", &huge),
            SerializeType::Rocketmq,
        ),
        (
            Command::request(11).with_ext(&long_key, "v"),
            SerializeType::Rocketmq,
        ),
        (
            Command::request(11).with_remark(&huge),
            SerializeType::Rocketmq,
        ),
    ] {
        let request = command.with_serialize(serialize).with_body("body");
        let read = frame::parse(request.to_frame()).expect("a good frame");
        assert_eq!((read.code, read.body.as_ref()), (11, &b"body"[..]));
        assert!(
            read.remark().contains("cannot be sent"),
            "{}",
            read.remark()
        );
        assert!(read.ext.is_empty());

        let mut answer = request;
        answer.flag = 1;
        let read = frame::parse(answer.to_frame()).expect("a good frame");
        assert_eq!(read.code, response::SYSTEM_ERROR);
    }
}
