//! Messages and tables in the forms that several families share.

use std::collections::BTreeMap;

use minimq_client::Delivery;
use serde_json::{Value, json};

use crate::report::Report;
use crate::text;

/// A message as JSON.
pub(super) fn message_json(message: &Delivery) -> Value {
    let properties: BTreeMap<&str, &str> = message.properties().iter().collect();
    let record = message.record();
    json!({
        "id": message.id(), "offsetId": message.offset_id(), "topic": record.topic(),
        "broker": message.queue().broker_name, "queueId": record.queue_id(), "queueOffset": message.queue_offset(),
        "commitLogOffset": record.physical_offset(), "tags": message.tag(),
        "keys": message.keys().collect::<Vec<_>>(), "reconsumeTimes": record.reconsume_times(),
        "born": message.born_ms(), "stored": message.stored_ms(), "bornHost": message.born_host().to_string(),
        "storeHost": record.store_host().to_string(), "sysFlag": record.sys_flag(), "flag": message.flag(),
        "properties": properties, "bodyLength": message.body().len(), "body": String::from_utf8_lossy(message.body()),
    })
}

/// The labels of the stock tool; the body is shown instead of being written to a file.
pub(super) fn describe(report: Report, message: &Delivery) -> Report {
    let properties: Vec<String> = message
        .properties()
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let keys: Vec<&str> = message.keys().collect();
    let record = message.record();
    let rows = [
        ("OffsetID:", message.offset_id()),
        ("Topic:", record.topic().to_owned()),
        ("Tags:", format!("[{}]", message.tag().unwrap_or("null"))),
        ("Keys:", format!("[{}]", keys.join(" "))),
        ("Queue ID:", record.queue_id().to_string()),
        ("Queue Offset:", message.queue_offset().to_string()),
        ("CommitLog Offset:", record.physical_offset().to_string()),
        ("Reconsume Times:", record.reconsume_times().to_string()),
        ("Born Timestamp:", text::time(message.born_ms())),
        ("Store Timestamp:", text::time(message.stored_ms())),
        ("Born Host:", message.born_host().to_string()),
        ("Store Host:", record.store_host().to_string()),
        ("System Flag:", record.sys_flag().to_string()),
        ("Properties:", format!("{{{}}}", properties.join(", "))),
        (
            "Message Body:",
            String::from_utf8_lossy(message.body()).into_owned(),
        ),
    ];
    report.lines(
        rows.into_iter()
            .map(|(label, value)| format!("{label:<20} {value}")),
    )
}

/// One line of a message, as the printing commands have it.
pub(super) fn message_line(message: &Delivery, body: bool) -> String {
    let shown = if body {
        String::from_utf8_lossy(message.body()).into_owned()
    } else {
        "NOT PRINT BODY".to_owned()
    };
    format!(
        "MSGID: {} broker={} queueId={} queueOffset={} tags={} keys={} stored={} BODY: {shown}",
        message.id(),
        message.queue().broker_name,
        message.record().queue_id(),
        message.queue_offset(),
        message.tag().unwrap_or("null"),
        message.keys().collect::<Vec<_>>().join(" "),
        text::time(message.stored_ms()),
    )
}

/// The JSON form of a body of the protocol.
pub(super) fn value_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// `key : value` lines, sorted by key.
pub(super) fn key_lines(values: &BTreeMap<String, String>) -> impl Iterator<Item = String> + '_ {
    values
        .iter()
        .map(|(key, value)| format!("{key:<32}: {value}"))
}
