//! What a JSON header may look like (wire spec 1.2, 6.1): all that official clients send and the Java peer accepts.

use bytes::Bytes;
use minimq_protocol::frame::{self, FrameError};
use minimq_protocol::header::{PullMessageRequest, SendMessageRequest};
use minimq_protocol::{Command, HeaderError, Language, SerializeType};

fn read_bytes(header: &[u8]) -> Result<Command, FrameError> {
    let mut bytes = (4 + header.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&(header.len() as u32).to_be_bytes());
    bytes.extend_from_slice(header);
    frame::parse(Bytes::from(bytes))
}

fn read(header: &str) -> Command {
    read_bytes(header.as_bytes()).unwrap_or_else(|error| panic!("{header}: {error}"))
}

fn refuse(header: &str) -> FrameError {
    match read_bytes(header.as_bytes()) {
        Err(error) => error,
        Ok(command) => panic!("{header} was read as {command:?}"),
    }
}

fn ext(fields: &str) -> Command {
    read(&format!("{{\"code\":11,\"extFields\":{{{fields}}}}}"))
}

#[test]
fn missing_members_have_their_defaults() {
    let command = read("{}");
    assert_eq!(
        command,
        Command {
            serialize: SerializeType::Json,
            ..Command::default()
        }
    );
    assert_eq!(
        (command.code, command.version, command.flag, command.opaque),
        (0, 0, 0, 0)
    );
    assert_eq!(command.language, Language::Java);
    assert_eq!(command.remark, None);
    assert!(!command.ext.is_present());
    assert!(read("{\"extFields\":{}}").ext.is_present());
    assert!(!read("{\"extFields\":null}").ext.is_present());
}

#[test]
fn white_space_and_a_trailing_newline_are_no_matter() {
    let command = read(
        " \r\n\t{ \"code\" : 105 ,\n\"extFields\" : { \"topic\" : \"T1\" } , \"flag\" : 2 } \n",
    );
    assert_eq!((command.code, command.flag), (105, 2));
    assert_eq!(command.ext.get("topic"), Some("T1"));
    let command = ext("\"a\":\"1\",\"b\":\"2\" ,\"c\": \"3\",\"d\" :\"4\"");
    let fields: Vec<_> = command.ext.iter().collect();
    assert_eq!(fields, [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]);
}

#[test]
fn values_of_every_kind_become_text() {
    let command = ext(
        "\"queueId\":3,\"neg\":-12,\"frac\":1.50,\"exp\":2E-3,\"yes\":true,\"no\":false,\"none\":null,\
         \"list\":[1, {\"a\":[]}],\"map\":{\"k\":\"v}\"},\"empty\":\"\"",
    );
    let fields: Vec<_> = command.ext.iter().collect();
    assert_eq!(
        fields,
        [
            ("queueId", "3"),
            ("neg", "-12"),
            ("frac", "1.50"),
            ("exp", "2E-3"),
            ("yes", "true"),
            ("no", "false"),
            ("list", "[1, {\"a\":[]}]"),
            ("map", "{\"k\":\"v}\"}"),
            ("empty", "")
        ]
    );
    assert_eq!(command.ext.get("none"), None);
    assert_eq!(command.ext.get("empty"), Some(""));
}

#[test]
fn header_numbers_may_be_text_or_fractions_or_missing() {
    let command = read("{\"code\":\"11\",\"version\":\"\",\"opaque\":-2147483648,\"flag\":1.9}");
    assert_eq!(
        (command.code, command.version, command.opaque, command.flag),
        (11, 0, i32::MIN, 1)
    );
    let command = read("{\"code\":null,\"version\":true,\"opaque\":1e3,\"flag\":\"+2\"}");
    assert_eq!(
        (command.code, command.version, command.opaque, command.flag),
        (0, 1, 1000, 2)
    );
    for header in [
        "{\"code\":2147483648}",
        "{\"code\":99999999999999999999}",
        "{\"opaque\":\"4294967296\"}",
        "{\"code\":\"abc\"}",
        "{\"code\":\"inf\"}",
        "{\"code\":[]}",
        "{\"code\":{}}",
        "{\"code\":1e10}",
    ] {
        assert!(
            matches!(
                refuse(header),
                FrameError::Json {
                    what: "not a 32-bit number",
                    ..
                }
            ),
            "{header}"
        );
    }
}

#[test]
fn a_language_never_fails_the_frame() {
    for (text, language) in [
        ("\"JAVA\"", Language::Java),
        ("\"Cpp\"", Language::Cpp),
        ("\"node_js\"", Language::NodeJs),
        ("9", Language::Go),
        ("12", Language::Rust),
        ("99", Language::Unknown(99)),
        ("300", Language::UNKNOWN_NAME),
        ("-1", Language::UNKNOWN_NAME),
        ("\"KLINGON\"", Language::UNKNOWN_NAME),
        ("\"\"", Language::UNKNOWN_NAME),
        ("null", Language::UNKNOWN_NAME),
        ("{}", Language::UNKNOWN_NAME),
    ] {
        assert_eq!(
            read(&format!("{{\"language\":{text}}}")).language,
            language,
            "{text}"
        );
    }
}

#[test]
fn unknown_members_are_skipped_whatever_they_hold() {
    let command = read(
        "{\"x\":{\"y\":[1,2,{\"z\":null}]},\"code\":105,\"serializeTypeCurrentRPC\":\"ROCKETMQ\",\
         \"brokers\":{0:\"a\",{\"queueId\":0}:5},\"w\":\"a\\\"b\"}",
    );
    assert_eq!(
        (command.code, command.serialize),
        (105, SerializeType::Json)
    );
}

#[test]
fn of_doubled_keys_the_last_wins() {
    let command = read("{\"code\":1,\"remark\":\"a\",\"code\":2,\"remark\":null}");
    assert_eq!((command.code, command.remark), (2, None));
    assert_eq!(
        ext("\"topic\":\"T1\",\"topic\":\"T2\"").ext.get("topic"),
        Some("T2")
    );
    let command = read("{\"extFields\":{\"a\":\"1\"},\"extFields\":{\"b\":\"2\"}}");
    assert_eq!(command.ext.iter().collect::<Vec<_>>(), [("b", "2")]);
    let command = read("{\"extFields\":{\"a\":\"1\"},\"extFields\":null}");
    assert!(command.ext.is_empty() && !command.ext.is_present());
}

#[test]
fn fastjson_s_liberties_are_taken() {
    let command = read("{code:11,'remark':'it',}");
    assert_eq!((command.code, command.remark()), (11, "it"));
    let command = read("{\"CODE\":12,\"ext_fields\":{,\"a\":'1',,},\"Op-aque\":7}");
    assert_eq!(
        (command.code, command.opaque, command.ext.get("a")),
        (12, 7, Some("1"))
    );
    // A bare number or word as a key of the ext fields.
    assert_eq!(
        ext("0:\"a\",b:\"c\"").ext.iter().collect::<Vec<_>>(),
        [("0", "a"), ("b", "c")]
    );
}

#[test]
fn escapes_are_resolved_in_names_values_and_remarks() {
    let command = read(
        "{\"remark\":\"a\\tb\\u00e4\\\"\",\"extFields\":{\"i\":\"WAIT\\u0001true\\u0002k\\u0001\\uD83D\\uDE00\",\
         \"\\u0074opic\":\"\\/\\\\\\b\\f\\n\\r\\x41\\v\\0\\'\",\"half\":\"\\ud83dx\\ud83d\\u0041\\udc00\"}}",
    );
    assert_eq!(command.remark(), "a\tb\u{e4}\"");
    assert_eq!(
        command.ext.get("i"),
        Some("WAIT\u{1}true\u{2}k\u{1}\u{1F600}")
    );
    assert_eq!(command.ext.get("topic"), Some("/\\\u{8}\u{c}\n\rA\u{b}\0'"));
    assert_eq!(command.ext.get("half"), Some("\u{FFFD}x\u{FFFD}A\u{FFFD}"));
    for header in [
        "\"\\q\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\",
        "\"\\u",
        "\"abc",
        "'abc\"",
    ] {
        refuse(&format!("{{\"remark\":{header}"));
    }
}

#[test]
fn invalid_utf_8_is_replaced_where_it_stands() {
    let command = read_bytes(
        b"{\"remark\":\"\xFFr\",\"extFields\":{\"k\xC3\":\"v\xC3(\\n\xE2\x82\",\"ok\":\"\xC3\xA4\"}}",
    )
    .expect("replaced, not refused");
    let nested = read_bytes(b"{\"x\":[\"\xFF\"],\"extFields\":{\"k\":[\"\xFF\\u0041\\\"\"]}}");
    let nested = nested.expect("replaced, not refused");
    assert_eq!(nested.ext.get("k"), Some("[\"\u{FFFD}\\u0041\\\"\"]"));
    assert_eq!(command.remark(), "\u{FFFD}r");
    let fields: Vec<_> = command.ext.iter().collect();
    assert_eq!(
        fields,
        [("k\u{FFFD}", "v\u{FFFD}(\n\u{FFFD}"), ("ok", "\u{e4}")]
    );
}

#[test]
fn what_is_not_an_object_is_refused() {
    for header in [
        "",
        " ",
        "null",
        "\"\"",
        "[1]",
        "{",
        "{\"code\"",
        "{\"code\":",
        "{\"code\":1",
        "{\"code\":1,",
        "{\"code\" 1}",
        "{\"code\":1 \"flag\":0}",
        "{\"code\":1}x",
        "{\"code\":1}{}",
        "{\"code\":01x}",
        "{\"code\":--1}",
        "{\"code\":1.}",
        "{\"code\":nul}",
        "{\"extFields\":[]}",
        "{\"extFields\":\"{}\"}",
        "{\"extFields\":{\"a\"}}",
        "{\"extFields\":{\"a\":\"1\" \"b\":\"2\"}}",
        "{\"extFields\":{\"a\":\"1\"\"b\":\"2\"}}",
        "{\"extFields\":{\"a\":\"1\"",
        "{\"extFields\":{\"a\":[\"x\\\"]}}",
        "{\"x\":[1 2]}",
        "{\"x\":[}",
        "{\"x\":{]}",
        "{:1}",
    ] {
        refuse(header);
    }
}

#[test]
fn nesting_and_the_number_of_fields_are_limited() {
    let nested = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    read(&nested(32));
    assert!(matches!(
        refuse(&nested(33)),
        FrameError::Json {
            what: "nested too deeply",
            ..
        }
    ));
    refuse(&nested(1_000_000));

    let fields = |count: usize| format!("{{\"extFields\":{{{}}}}}", "\"a\":1,".repeat(count));
    assert_eq!(read(&fields(65_536)).ext.len(), 65_536);
    assert!(matches!(
        refuse(&fields(65_537)),
        FrameError::Json {
            what: "too many ext fields",
            ..
        }
    ));
}

#[test]
fn typed_headers_name_the_field_and_the_value_that_fail() {
    let pull = "\"consumerGroup\":\"g\",\"topic\":\"T\",\"queueOffset\":\"0\",\"maxMsgNums\":32,\"sysFlag\":0,\
        \"commitOffset\":\"0\",\"suspendTimeoutMillis\":\"0\",\"subVersion\":\"0\"";
    let decode = |queue_id: &str| {
        let command = ext(&format!("{pull}{queue_id}"));
        command
            .header::<PullMessageRequest<'_>>()
            .map(|header| header.queue_id)
    };
    assert_eq!(decode(",\"queueId\":3"), Ok(3));
    assert_eq!(decode(",\"queueId\":\"+3\""), Ok(3));
    assert_eq!(
        decode(",\"queueId\":\"abc\",\"queueId\":\"-4\""),
        Ok(-4),
        "only the last counts"
    );
    assert_eq!(decode(""), Err(HeaderError::Missing { field: "queueId" }));
    assert_eq!(
        decode(",\"queueId\":null"),
        Err(HeaderError::Missing { field: "queueId" })
    );
    for bad in ["abc", "4294967296", "", " 3", "3 ", "3.0", "0x3", "+"] {
        let error = decode(&format!(",\"queueId\":\"{bad}\"")).expect_err(bad);
        assert_eq!(
            error,
            HeaderError::malformed("queueId", bad, "a 32-bit number")
        );
        assert_eq!(
            error.to_string(),
            format!("header field queueId is \"{bad}\", not a 32-bit number")
        );
    }
    let command = ext(&format!(
        "{pull},\"queueId\":0,\"subVersion\":\"9223372036854775808\""
    ));
    let error = command
        .header::<PullMessageRequest<'_>>()
        .expect_err("out of range");
    assert_eq!(
        error,
        HeaderError::malformed("subVersion", "9223372036854775808", "a 64-bit number")
    );
    let error = Command::request(11)
        .header::<PullMessageRequest<'_>>()
        .expect_err("no fields");
    assert_eq!(error.to_string(), "header field consumerGroup is missing");
}

#[test]
fn what_the_c_plus_plus_client_sends_is_read() {
    // Bare numbers, empty credentials, a newline at the end.
    let command = read(
        "{\"code\":310,\"extFields\":{\"AccessKey\":\"\",\"OnsChannel\":\"\",\"Signature\":\"\",\"a\":\"pg\",\
         \"b\":\"T1\",\"c\":\"TBW102\",\"d\":4,\"e\":0,\"f\":0,\"g\":\"1700000000000\",\"h\":0,\
         \"i\":\"WAIT\\u0001true\\u0002\",\"j\":\"0\",\"k\":\"false\",\"l\":0,\"m\":\"TRUE\"},\"flag\":0,\
         \"language\":\"CPP\",\"opaque\":3,\"remark\":\"\",\"version\":333}\n",
    );
    let header = SendMessageRequest::decode_for(command.code, &command.ext).expect("typed");
    assert_eq!(
        (header.default_topic_queue_nums, header.max_reconsume_times),
        (4, Some(0))
    );
    assert!(header.batch && !header.unit_mode);
    assert_eq!(
        (command.language, command.remark.as_deref()),
        (Language::Cpp, Some(""))
    );
    assert_eq!(command.ext.get("OnsChannel"), Some(""));
}
