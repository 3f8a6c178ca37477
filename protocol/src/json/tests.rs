//! The dialect read and both flavours written.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn text(text: &str) -> Value<'_> {
    Value::Text(text.into())
}

fn rewritten(json: &str, flavour: Flavour) -> String {
    let value = read(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    String::from_utf8(encode(&value, flavour)).unwrap()
}

fn problem(json: &str) -> Problem {
    read(json).expect_err(json).problem
}

#[test]
fn reads_what_the_java_library_reads_beyond_json() {
    for (json, standard) in [
        (r#"{0:"a",1:"b"}"#, r#"{"0":"a","1":"b"}"#),
        (r#"{"0":"a",-1:"b"}"#, r#"{"0":"a","-1":"b"}"#),
        (r#"{{"q":1}:5}"#, r#"{"{\"q\":1}":5}"#),
        ("{'a':'it\\'s \"x\"'}", r#"{"a":"it's \"x\""}"#),
        (
            "{a:1,b_$2:2,größe:3}",
            r#"{"a":1,"b_$2":2,"gr\u00F6\u00DFe":3}"#,
        ),
        ("{,\"a\":1,,\"b\":[1,2,],}\n", r#"{"a":1,"b":[1,2]}"#),
        ("\u{feff} /* x */ {\"a\": // y\n 1}\t\r\n", r#"{"a":1}"#),
        (
            r#"{"a":undefined,"b":NaN,"c":null,"d":Set[1]}"#,
            r#"{"d":[1]}"#,
        ),
        (
            "[1L,2.5F,3D,.5,5.,-.5e2,007,00.5,1e3,-0.,5.E1]",
            "[1,2.5,3,0.5,5.0,-0.5e2,7,0.5,1e3,-0.0,5.0E1]",
        ),
        (
            "[123456789012345678901234567890]",
            "[123456789012345678901234567890]",
        ),
        (r#"["\x41\u0042\/\v\7"]"#, r#"["AB/\u000B\u0007"]"#),
        ("[\"two\nlines\"]", r#"["two\nlines"]"#),
        (
            r#"["\uD83D\uDE00","\uD83Dx","\uDE00"]"#,
            r#"["\uD83D\uDE00","\uFFFDx","\uFFFD"]"#,
        ),
        (r#""just text""#, r#""just text""#),
    ] {
        assert_eq!(rewritten(json, Flavour::Standard), standard, "{json}");
    }
}

#[test]
fn broken_texts_name_the_place_and_what_is_wrong() {
    assert_eq!(
        read("{x").unwrap_err().to_string(),
        "JSON: the text ends too early at byte 2"
    );
    assert_eq!(problem(""), Problem::Ended);
    assert_eq!(problem("{\"a\" 1}"), Problem::Expected("':'"));
    assert_eq!(
        problem("{\"a\":1 \"b\":2}"),
        Problem::Expected("',' or '}'")
    );
    assert_eq!(problem("[1 2]"), Problem::Expected("',' or ']'"));
    assert_eq!(problem("{} {}"), Problem::Trailing);
    assert_eq!(problem("\"a"), Problem::Ended);
    assert_eq!(problem("\"\\q\""), Problem::Escape);
    assert_eq!(problem("\"\\u12"), Problem::Ended);
    assert_eq!(problem("\"\\u12é\""), Problem::Escape);
    assert_eq!(problem("truth"), Problem::Expected("a value"));
    assert_eq!(problem("-"), Problem::Ended);
    assert_eq!(problem("1e"), Problem::Ended);
    assert_eq!(problem("/* never ends"), Problem::Ended);
}

#[test]
fn depth_and_size_are_limited() {
    let deep = "[".repeat(64) + &"]".repeat(64);
    assert!(read(&deep).is_ok());
    assert_eq!(problem(&format!("[{deep}]")), Problem::TooDeep(64));
    assert_eq!(problem(&"[".repeat(1_000_000)), Problem::TooDeep(64));
    assert_eq!(problem(&"{{".repeat(1_000_000)), Problem::TooDeep(64));
    let limits = Limits { depth: 3, nodes: 5 };
    assert!(read_with("[1,2,3,4]", limits).is_ok());
    assert_eq!(
        read_with("[1,2,3,4,5]", limits).unwrap_err().problem,
        Problem::TooMany(5)
    );
    assert_eq!(
        read_with("{a:1,b:2,c:3}", limits).unwrap_err().problem,
        Problem::TooMany(5)
    );
}

#[test]
fn references_to_earlier_places_are_resolved_and_others_read_as_absent() {
    let json = r#"{"a":{"x":[1,{"y":2}]},"b":{"$ref":"$.a"},"c":{"$ref":"$.b.x[1]"},"%R-t":3,"d":{"$ref":"$.\\%R\\-t"},
        "e":{"$ref":"$['a'].x[0]"},"f":{0:4},"g":{"$ref":"$.f[0]"}}"#;
    let resolved = r#"{"a":{"x":[1,{"y":2}]},"b":{"x":[1,{"y":2}]},"c":{"y":2},"%R-t":3,"d":3,"e":1,"f":{0:4},"g":4}"#;
    assert_eq!(rewritten(json, Flavour::Fastjson), resolved);

    for path in ["$", "..", "@", "$.list", "$.nothing", "$.list[7]", "", "$x"] {
        let json = format!(r#"{{"list":["a",{{"$ref":"{path}"}},"b"]}}"#);
        let lists: BTreeMap<String, Vec<String>> = decode(json.as_bytes()).unwrap();
        assert_eq!(lists["list"], ["a", "b"], "{path}");
    }
}

#[test]
fn references_cannot_multiply_a_text() {
    // Each line doubles the one before: 2^40 values if it were allowed.
    let mut json = r#"{"a0":[1,1,1,1,1,1,1,1]"#.to_owned();
    for line in 1..=40 {
        let before = line - 1;
        json.push_str(&format!(
            r#","a{line}":[{{"$ref":"$.a{before}"}},{{"$ref":"$.a{before}"}}]"#
        ));
    }
    json.push('}');
    let value = read_with(
        &json,
        Limits {
            depth: 30,
            nodes: 100_000,
        },
    )
    .unwrap();
    assert!(encode(&value, Flavour::Standard).len() < 1_000_000);
}

#[test]
fn members_are_found_exactly_first_then_without_case_and_underscores() {
    let value = read(r#"{"client_ID":1,"CLIENTID":2,"a":3,"a":4}"#).unwrap();
    let members = value.members().unwrap();
    assert_eq!(members.get(&["clientId"]), Some(&Value::Integer(2)));
    assert_eq!(members.get(&["client_ID"]), Some(&Value::Integer(1)));
    assert_eq!(members.get(&["b", "client_ID"]), Some(&Value::Integer(1)));
    assert_eq!(members.get(&["a"]), Some(&Value::Integer(4)));
    assert_eq!(members.get(&["client"]), None);
}

#[test]
fn numbers_strings_and_booleans_convert_as_java_converts_them() {
    fn as_<T: FromValue>(value: Value<'_>) -> Option<T> {
        T::from_value(&value).unwrap()
    }
    assert_eq!(as_::<i64>(text("1700000000000")), Some(1_700_000_000_000));
    assert_eq!(as_::<i32>(text(" -7 ")), Some(-7));
    assert_eq!(as_::<i32>(text("")), None);
    assert_eq!(as_::<i32>(text("null")), None);
    assert_eq!(as_::<i64>(Value::Decimal("1.9".into())), Some(1));
    assert_eq!(as_::<i64>(Value::Bool(true)), Some(1));
    assert_eq!(as_::<f64>(text("0.5")), Some(0.5));
    assert_eq!(as_::<f64>(Value::Integer(3)), Some(3.0));
    assert_eq!(as_::<bool>(text("TRUE")), Some(true));
    assert_eq!(as_::<bool>(Value::Integer(0)), Some(false));
    assert_eq!(as_::<String>(Value::Integer(5)), Some("5".to_owned()));
    assert_eq!(
        as_::<String>(read("{\"a\":[1]}").unwrap()),
        Some("{\"a\":[1]}".to_owned())
    );
    assert_eq!(
        as_::<Vec<i32>>(read("[1,null,\"2\"]").unwrap()),
        Some(vec![1, 2])
    );
    let offsets: BTreeMap<i32, i64> = as_(read("{0:5,\"1\":\"6\",2:null}").unwrap()).unwrap();
    assert_eq!(offsets, BTreeMap::from([(0, 5), (1, 6)]));
}

#[test]
fn a_value_of_the_wrong_form_is_named_with_its_path() {
    let error = decode::<BTreeMap<String, Vec<i32>>>(br#"{"a":[1],"b":[1,2,"x"]}"#).unwrap_err();
    assert_eq!(
        error.to_string(),
        "b[2]: expected a whole number, found \"x\""
    );
    let error = decode::<Vec<i32>>(b"[5000000000]").unwrap_err();
    assert_eq!(
        error.to_string(),
        "[0]: expected a whole number of 32 bits, found 5000000000"
    );
    assert_eq!(
        decode::<i32>(b"{}").unwrap_err().to_string(),
        "body: expected a whole number, found an object"
    );
    assert_eq!(decode::<i32>(b" \n"), Err(BodyError::Empty));
    assert_eq!(decode::<i32>(b"null"), Err(BodyError::Empty));
}

#[test]
fn bytes_that_are_not_utf8_read_as_replacement_characters() {
    assert_eq!(decode::<String>(b"\"a\xffb\""), Ok("a\u{fffd}b".to_owned()));
}

#[test]
fn strings_are_escaped_as_the_java_library_escapes_them() {
    let all = "\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1f}\u{7f}\u{9f}\u{2028}ü€😀";
    let common = r#""\"\\/\b\f\n\r\t\u0001\u001F\u007F\u009F\u2028"#;
    assert_eq!(
        String::from_utf8(encode(all, Flavour::Fastjson)).unwrap(),
        format!("{common}ü€😀\"")
    );
    assert_eq!(
        String::from_utf8(encode(all, Flavour::Standard)).unwrap(),
        format!("{common}\\u00FC\\u20AC\\uD83D\\uDE00\"")
    );
}

#[test]
fn doubles_always_have_a_fraction() {
    for (number, written) in [
        (0.0, "0.0"),
        (-2.0, "-2.0"),
        (0.7500275013750689, "0.7500275013750689"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9_999_999.0, "9999999.0"),
        (10_000_000.0, "1.0E7"),
        (1.234e10, "1.234E10"),
        (f64::MAX, "1.7976931348623157E308"),
        (f64::NAN, "null"),
        (f64::INFINITY, "null"),
    ] {
        assert_eq!(
            String::from_utf8(encode(&number, Flavour::Fastjson)).unwrap(),
            written
        );
    }
}

#[test]
fn indented_text_looks_as_java_writes_configuration_files() {
    let value = read(r#"{a:{},b:[],c:[1,2],d:["x",{y:1}],e:{0:1,1:2},f:{{q:1}:{0:5}}}"#).unwrap();
    let expected = "{\n\t\"a\":{},\n\t\"b\":[],\n\t\"c\":[1,2],\n\t\"d\":[\n\t\t\"x\",\n\t\t{\n\t\t\t\"y\":1\n\t\t}\n\t],\n\
        \t\"e\":{0:1,1:2\n\t},\n\t\"f\":{{\n\t\t\t\"q\":1\n\t\t}:{0:5\n\t\t}\n\t}\n}";
    assert_eq!(
        String::from_utf8(encode_pretty(&value, Flavour::Fastjson)).unwrap(),
        expected
    );
}

#[test]
fn indented_sets_stay_on_one_line() {
    let set = BTreeSet::from(["JAVA%V4_9_8".to_owned(), "GO%V4_9_8".to_owned()]);
    let table = BTreeMap::from([("clientInfo".to_owned(), set)]);
    let written = String::from_utf8(encode_pretty(&table, Flavour::Fastjson)).unwrap();
    assert_eq!(
        written,
        "{\n\t\"clientInfo\":[\"GO%V4_9_8\",\"JAVA%V4_9_8\"]\n}"
    );
    assert_eq!(decode(written.as_bytes()), Ok(table));
}

/// Any value whose keys are strings, numbers or flat objects.
fn any_value() -> impl Strategy<Value = Value<'static>> {
    let number = "-?(0|[1-9][0-9]{0,30})\\.[0-9]{1,5}".prop_map(|text| Value::Decimal(text.into()));
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Integer),
        number,
        any::<String>().prop_map(|text| Value::Text(text.into())),
    ];
    let key = prop_oneof![
        any::<String>().prop_map(|text| Value::Text(format!("k{text}").into())),
        any::<i64>().prop_map(Value::Integer),
        any::<i64>().prop_map(|id| Value::Object(vec![(
            Value::Text("queueId".into()),
            Value::Integer(id)
        )])),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(Value::Object),
        ]
    })
}

proptest! {
    #[test]
    fn every_value_written_in_the_java_flavour_reads_back(value in any_value()) {
        for written in [encode(&value, Flavour::Fastjson), encode_pretty(&value, Flavour::Fastjson)] {
            let text = std::str::from_utf8(&written).unwrap();
            prop_assert_eq!(&read(text).unwrap(), &value);
        }
    }

    #[test]
    fn the_standard_flavour_is_legal_ascii_json(value in any_value()) {
        let written = encode(&value, Flavour::Standard);
        prop_assert!(written.is_ascii());
        let legal: Result<serde_json::Value, _> = serde_json::from_slice(&written);
        prop_assert!(legal.is_ok(), "{:?}", legal);
    }

    #[test]
    fn any_text_is_read_or_refused(json in any::<String>()) {
        let _ = read(&json);
    }

    #[test]
    fn any_text_of_json_characters_is_read_or_refused(json in "[\\[\\]{}:,\"'\\\\/*u0-9a-f.$\\-refE \n]{0,60}") {
        if let Ok(value) = read(&json) {
            let _ = encode(&value, Flavour::Standard);
        }
    }
}
