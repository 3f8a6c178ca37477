//! Any bytes as a JSON header: what is read can be written, and reads the same again; what another reader takes for a
//! command, ours does too.

use bytes::Bytes;
use minimq_protocol::{Command, Language, SerializeType, frame};
use serde_json::{Map, Value};

pub(crate) fn run(header: &[u8]) {
    let mut bytes = (4 + header.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(
        &SerializeType::Json
            .header_word(header.len() as u32)
            .to_be_bytes(),
    );
    bytes.extend_from_slice(header);
    let read = frame::parse(Bytes::from(bytes));
    if let Some(members) = plain_command(header) {
        let command = read
            .as_ref()
            .unwrap_or_else(|error| panic!("{members:?}: {error}"));
        compare(command, &members);
    }
    let Ok(mut command) = read else { return };
    let again = frame::parse(command.to_frame()).expect("what was read can be written");
    if matches!(command.language, Language::Unknown(_)) {
        command.language = Language::Other;
    }
    assert_eq!(again, command);
    let mut binary = command.clone();
    binary.serialize = SerializeType::Rocketmq;
    let binary = frame::parse(binary.to_frame()).expect("what was read can be written");
    assert_eq!(
        (&binary.ext, binary.remark()),
        (&command.ext, command.remark())
    );
}

/// The members, if this is JSON in the strict sense, of a command as the specification has it, not nested deeply.
fn plain_command(header: &[u8]) -> Option<Map<String, Value>> {
    if header
        .iter()
        .filter(|byte| matches!(byte, b'[' | b'{'))
        .count()
        > 20
    {
        return None;
    }
    let Ok(Value::Object(members)) = serde_json::from_slice(header) else {
        return None;
    };
    for number in ["code", "version", "opaque", "flag"] {
        let fits = |value: &Value| {
            value
                .as_i64()
                .is_some_and(|number| i32::try_from(number).is_ok())
        };
        if members.get(number).is_some_and(|value| !fits(value)) {
            return None;
        }
    }
    if members
        .get("extFields")
        .is_some_and(|value| !value.is_object() && !value.is_null())
    {
        return None;
    }
    // Names that are only similar count as well, and strict readers do not see doubled ones.
    let names = [
        "code",
        "version",
        "opaque",
        "flag",
        "remark",
        "extFields",
        "language",
    ];
    let text = String::from_utf8_lossy(header)
        .to_ascii_lowercase()
        .replace(['_', '-', '\\'], "");
    for name in names {
        let quoted = format!("\"{}\"", name.to_ascii_lowercase());
        if text.matches(&quoted).count() > usize::from(members.contains_key(name)) {
            return None;
        }
    }
    (!header.contains(&b'\\') || !members.keys().any(|name| !names.contains(&&**name)))
        .then_some(members)
}

fn compare(command: &Command, members: &Map<String, Value>) {
    let number = |name: &str| {
        members
            .get(name)
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    assert_eq!(i64::from(command.code), number("code"));
    assert_eq!(i64::from(command.version), number("version"));
    assert_eq!(i64::from(command.opaque), number("opaque"));
    assert_eq!(i64::from(command.flag), number("flag"));
    if let Some(Value::String(remark)) = members.get("remark") {
        assert_eq!(command.remark(), remark);
    }
    for (key, value) in members
        .get("extFields")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        match value {
            Value::String(value) => assert_eq!(command.ext.get(key), Some(&**value)),
            Value::Bool(value) => assert_eq!(
                command.ext.get(key),
                Some(if *value { "true" } else { "false" })
            ),
            Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                assert!(command.ext.contains(key))
            }
            Value::Null => {}
        }
    }
}
