//! What message traces say of a message (client spec 3.15): who sent it, and who consumed it, how long it took.

use std::collections::BTreeMap;

use super::{Admin, MessageLookup};
use crate::core::now_ms;
use crate::error::Result;

/// Records of one trace message and fields of one record that are read at most.
const MAX_RECORDS: usize = 100_000;
/// Trace messages of one broker that a query finds at most.
const MAX_FOUND: i32 = 64;
const FIELD: char = '\u{1}';
const RECORD: char = '\u{2}';

/// A send.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SendTrace {
    /// Producer group.
    pub group: String,
    /// Topic.
    pub topic: String,
    /// Tag; `null` if it has none.
    pub tags: String,
    /// Keys; `null` if it has none.
    pub keys: String,
    /// Address of the producer, as far as the trace tells.
    pub client_host: String,
    /// Address of the broker it was stored at.
    pub store_host: String,
    /// When it was sent, ms.
    pub time: i64,
    /// How long it took, ms.
    pub cost_ms: i64,
    /// Whether it was stored.
    pub success: bool,
}

impl SendTrace {
    /// The record that a trace message holds of it, for a message of that id.
    pub fn record(&self, id: &str, offset_id: &str, body_length: usize) -> String {
        let (time, length, cost) = (
            self.time.to_string(),
            body_length.to_string(),
            self.cost_ms.to_string(),
        );
        let success = self.success.to_string();
        let fields = [
            "Pub",
            &time,
            "DefaultRegion",
            &self.group,
            &self.topic,
            id,
            &self.tags,
            &self.keys,
            &self.store_host,
            &length,
            &cost,
            // A normal message.
            "0",
            offset_id,
            &success,
        ];
        let mut text = fields.join(&FIELD.to_string());
        text.push(RECORD);
        text
    }
}

/// A consumption.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConsumeTrace {
    /// Consumer group.
    pub group: String,
    /// Address of the consumer, as far as the trace tells.
    pub client_host: String,
    /// When it began, ms.
    pub time: i64,
    /// How long it took, ms; −1: no end was recorded.
    pub cost_ms: i64,
    /// Whether the handler was content.
    pub success: bool,
    /// Failed deliveries before.
    pub retries: i32,
}

/// All that traces say of one message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageTrace {
    /// Its sends: one, or more for a repeated send.
    pub sends: Vec<SendTrace>,
    /// Its consumptions, by time.
    pub consumptions: Vec<ConsumeTrace>,
}

impl Admin {
    /// What the trace topic says of the message with that unique id.
    pub async fn message_trace(&self, trace_topic: &str, id: &str) -> Result<MessageTrace> {
        let found = self
            .messages_by_key(MessageLookup {
                topic: trace_topic,
                key: id,
                max: MAX_FOUND,
                begin_ms: 0,
                end_ms: now_ms(),
            })
            .await?;
        let parts = found.iter().map(|message| {
            let body = String::from_utf8_lossy(message.body()).into_owned();
            (body, message.born_host().ip().to_string())
        });
        Ok(read_traces(parts, id))
    }
}

/// Reads the bodies of trace messages, each with the host that sent it, for one message id.
pub fn read_traces(bodies: impl IntoIterator<Item = (String, String)>, id: &str) -> MessageTrace {
    let mut trace = MessageTrace::default();
    // A consumption's begin and end come in two records that share a request id.
    let mut begun: BTreeMap<String, ConsumeTrace> = BTreeMap::new();
    let mut ended: BTreeMap<String, (i64, bool)> = BTreeMap::new();
    for (body, host) in bodies {
        for record in body.split(RECORD).take(MAX_RECORDS) {
            let fields: Vec<&str> = record.split(FIELD).collect();
            let text = |at: usize| fields.get(at).copied().unwrap_or_default();
            let number = |at: usize| text(at).parse::<i64>().unwrap_or(0);
            match text(0) {
                "Pub" if text(5) == id => {
                    // Later versions put further fields at the end.
                    let success = text(13) != "false";
                    trace.sends.push(SendTrace {
                        group: text(3).to_owned(),
                        topic: text(4).to_owned(),
                        tags: text(6).to_owned(),
                        keys: text(7).to_owned(),
                        client_host: host.clone(),
                        store_host: text(8).to_owned(),
                        time: number(1),
                        cost_ms: number(10),
                        success,
                    });
                }
                "SubBefore" if text(5) == id => {
                    begun.insert(
                        text(4).to_owned(),
                        ConsumeTrace {
                            group: text(3).to_owned(),
                            client_host: host.clone(),
                            time: number(1),
                            cost_ms: -1,
                            success: false,
                            retries: i32::try_from(number(6)).unwrap_or(0),
                        },
                    );
                }
                "SubAfter" if text(2) == id => {
                    ended.insert(text(1).to_owned(), (number(3), text(4) == "true"));
                }
                _ => {}
            }
        }
    }
    for (request, (cost_ms, success)) in ended {
        if let Some(one) = begun.get_mut(&request) {
            (one.cost_ms, one.success) = (cost_ms, success);
        }
    }
    trace.consumptions = begun.into_values().collect();
    trace
        .consumptions
        .sort_by(|a, b| (a.time, &a.group).cmp(&(b.time, &b.group)));
    trace.sends.sort_by_key(|send| send.time);
    trace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begin_and_end_of_a_consumption_are_joined_and_other_messages_are_left_out() {
        let publish = [
            "Pub",
            "100",
            "R",
            "PG",
            "T",
            "ID1",
            "TagA",
            "k1",
            "127.0.0.1:10911",
            "5",
            "7",
            "0",
            "OFF",
            "true",
        ];
        let before = ["SubBefore", "200", "R", "CG", "REQ", "ID1", "2", "k1"];
        let after = [
            "SubAfter", "REQ", "ID1", "9", "true", "k1", "0", "210", "CG",
        ];
        let other = [
            "Pub", "100", "R", "PG", "T", "ID2", "null", "null", "b:1", "5", "7", "0", "OFF",
            "true",
        ];
        let lost = ["SubBefore", "300", "R", "CG2", "REQ2", "ID1", "0", "k1"];
        let body = |records: &[&[&str]]| -> String {
            records
                .iter()
                .map(|fields| format!("{}\u{2}", fields.join("\u{1}")))
                .collect()
        };
        let trace = read_traces(
            [
                (body(&[&publish, &other]), "10.0.0.1".to_owned()),
                (body(&[&after]), "10.0.0.2".to_owned()),
                (body(&[&before, &lost]), "10.0.0.2".to_owned()),
            ],
            "ID1",
        );
        assert_eq!(trace.sends.len(), 1);
        let send = trace.sends.first().unwrap();
        assert_eq!(
            (
                send.group.as_str(),
                send.cost_ms,
                send.success,
                send.client_host.as_str()
            ),
            ("PG", 7, true, "10.0.0.1")
        );
        let shown: Vec<_> = trace
            .consumptions
            .iter()
            .map(|one| (one.group.as_str(), one.cost_ms, one.success, one.retries))
            .collect();
        assert_eq!(shown, [("CG", 9, true, 2), ("CG2", -1, false, 0)]);
        let written = send.record("ID1", "OFF", 5);
        let again = read_traces([(written, "10.0.0.1".to_owned())], "ID1");
        assert_eq!(again.sends, trace.sends);
        assert_eq!(
            read_traces([("\u{2}\u{1}junk".to_owned(), String::new())], "x"),
            MessageTrace::default()
        );
    }
}
