//! Messages in files: one JSON object a line, as `consume` writes and `send` and `filterTest` read.

use std::io::{BufRead, BufReader, Read};

use minimq_client::Message;
use minimq_protocol::crc::body_crc;
use minimq_protocol::message::{MessageView, RecordFields};
use minimq_protocol::properties::{NAME_SEPARATOR, PAIR_SEPARATOR};
use serde_json::Value;

use crate::failure::Failure;
use crate::text;

/// Longest line, bytes.
const MAX_LINE: u64 = 64 << 20;

/// A message as a line tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) topic: Option<String>,
    pub(super) body: Vec<u8>,
    pub(super) tags: Option<String>,
    pub(super) keys: Vec<String>,
    pub(super) properties: Vec<(String, String)>,
    pub(super) flag: i32,
    pub(super) queue_id: i32,
    pub(super) queue_offset: i64,
}

/// Properties that a client or broker sets by itself.
const OWN: &[&str] = &[
    "KEYS",
    "TAGS",
    "UNIQ_KEY",
    "WAIT",
    "MSG_REGION",
    "TRACE_ON",
    "CLUSTER",
];

/// Where messages are read from; `-` is standard input.
pub(super) fn open(path: &str) -> Result<Box<dyn BufRead>, Failure> {
    if path == "-" {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::io(format!("cannot read {path}"), error))?;
    Ok(Box::new(BufReader::new(file)))
}

/// The next line without its end; none at the end of the input.
pub(super) fn next_line(input: &mut dyn BufRead) -> Result<Option<Vec<u8>>, Failure> {
    let mut line = Vec::new();
    let read = input
        .take(MAX_LINE)
        .read_until(b'\n', &mut line)
        .map_err(|error| Failure::io("cannot read the next line", error))?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() as u64 == MAX_LINE {
        return Err(Failure::Usage(format!(
            "a line has more than {MAX_LINE} bytes"
        )));
    }
    Ok(Some(line))
}

impl Described {
    /// From a line of JSON: `body` (text) or `bodyHex`, and optionally `topic`, `tags`, `keys`, `properties`, `flag`.
    pub(super) fn read(line: &[u8]) -> Result<Self, String> {
        let value: Value =
            serde_json::from_slice(line).map_err(|error| format!("no JSON: {error}"))?;
        let object = value.as_object().ok_or("not a JSON object")?;
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| object.get(key).and_then(Value::as_i64).unwrap_or(0);
        let body = match (text("bodyHex"), text("body")) {
            (Some(hex), _) => from_hex(&hex).ok_or("bodyHex is not hexadecimal")?,
            (None, Some(body)) => body.into_bytes(),
            (None, None) => return Err("it has neither body nor bodyHex".to_owned()),
        };
        let keys = match object.get("keys") {
            Some(Value::Array(keys)) => keys
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            Some(Value::String(keys)) => keys.split(' ').map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        let mut properties = Vec::new();
        for (name, value) in object
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            if name.contains([NAME_SEPARATOR as char, PAIR_SEPARATOR as char])
                || value.contains([NAME_SEPARATOR as char, PAIR_SEPARATOR as char])
            {
                return Err(format!("property {name} holds a separator of properties"));
            }
            if !OWN.contains(&name.as_str()) {
                properties.push((name.clone(), value));
            }
        }
        Ok(Self {
            topic: text("topic"),
            body,
            tags: text("tags").filter(|tag| !tag.is_empty()),
            keys,
            properties,
            flag: i32::try_from(number("flag")).unwrap_or(0),
            queue_id: i32::try_from(number("queueId")).unwrap_or(0),
            queue_offset: number("queueOffset"),
        })
    }

    /// To be sent to `topic`.
    pub(super) fn message(self, topic: &str) -> Message {
        let mut message = Message::new(topic, self.body).flag(self.flag);
        for key in self.keys {
            message = message.key(key);
        }
        if let Some(tag) = self.tags {
            message = message.tag(tag);
        }
        for (name, value) in self.properties {
            message = message.property(name, value);
        }
        message
    }

    /// As a broker would store it, for filters to look at.
    pub(super) fn record(&self, topic: &str) -> Result<MessageView, String> {
        let mut properties: Vec<(&str, String)> = Vec::new();
        if let Some(tag) = &self.tags {
            properties.push(("TAGS", tag.clone()));
        }
        if !self.keys.is_empty() {
            properties.push(("KEYS", self.keys.join(" ")));
        }
        properties.extend(
            self.properties
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        );
        let mut joined = Vec::new();
        for (name, value) in properties {
            joined.extend_from_slice(name.as_bytes());
            joined.push(NAME_SEPARATOR);
            joined.extend_from_slice(value.as_bytes());
            joined.push(PAIR_SEPARATOR);
        }
        let now = text::now_ms();
        let host = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let record = RecordFields {
            topic: self.topic.as_deref().unwrap_or(topic),
            queue_id: self.queue_id,
            flag: self.flag,
            queue_offset: self.queue_offset,
            physical_offset: 0,
            sys_flag: 0,
            born_timestamp: now,
            born_host: host,
            store_timestamp: now,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body_crc: body_crc(&self.body),
            body: &self.body,
            properties: &joined,
            appended_properties: &[],
        };
        let bytes = record.encode().map_err(|error| error.to_string())?;
        MessageView::parse(bytes).map_err(|error| error.to_string())
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from(high * 16 + low).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_a_record_that_a_filter_can_read() {
        let line = r#"{"body":"hé","tags":"TagA","keys":["k1","k2"],"properties":{"price":7,"UNIQ_KEY":"X"},"queueOffset":3}"#;
        let read = Described::read(line.as_bytes()).unwrap();
        let record = read.record("Orders").unwrap();
        assert_eq!(
            (record.topic(), record.tags(), record.keys()),
            ("Orders", Some("TagA"), Some("k1 k2"))
        );
        assert_eq!(record.properties().get("price"), Some("7"));
        assert_eq!(record.properties().get("UNIQ_KEY"), None);
        assert_eq!((record.body(), record.queue_offset()), ("hé".as_bytes(), 3));
    }

    #[test]
    fn lines_that_are_no_message_say_why() {
        for (line, why) in [
            ("nonsense", "no JSON"),
            ("[1]", "not a JSON object"),
            ("{}", "neither body nor bodyHex"),
            (r#"{"bodyHex":"0g"}"#, "not hexadecimal"),
            (r#"{"bodyHex":"012"}"#, "not hexadecimal"),
            (
                "{\"body\":\"\",\"properties\":{\"a\":\"\\u0001\"}}",
                "separator",
            ),
        ] {
            let error = Described::read(line.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
        assert_eq!(
            Described::read(br#"{"bodyHex":"00ff"}"#).unwrap().body,
            [0, 255]
        );
    }
}
