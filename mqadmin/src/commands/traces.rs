//! What message traces say: who sent a message, who consumed it, how long that took.

use serde_json::json;

use crate::command::{CommandSpec, Outcome, default, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;
use crate::text;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "queryMsgTraceById",
    about: "query a message trace",
    example: "queryMsgTraceById -i 0A0000090DEF18B4AAC27E0F3A5C0001",
    options: &[
        required('i', "msgId", "The client's id"),
        default(
            't',
            "traceTopic",
            "RMQ_SYS_TRACE_TOPIC",
            "The topic traces are in",
        ),
    ],
    danger: None,
    run: |given| Box::pin(query(given)),
}];

fn outcome(success: bool) -> String {
    if success { "success" } else { "failed" }.to_owned()
}

async fn query(given: &Given) -> Outcome {
    let (topic, id) = (given.text("traceTopic")?, given.text("msgId")?);
    let trace = given.admin.message_trace(topic, id).await?;
    if trace.sends.is_empty() && trace.consumptions.is_empty() {
        return Err(Failure::NotFound(format!(
            "query message by key finished, but no message. (CODE: 208): topic {topic} holds no trace of {id}"
        )));
    }
    let sends = trace.sends.iter().map(|send| {
        json!({
            "group": send.group, "topic": send.topic, "tags": send.tags, "keys": send.keys, "clientHost": send.client_host,
            "storeHost": send.store_host, "time": send.time, "costMs": send.cost_ms, "success": send.success,
        })
    });
    let consumptions = trace.consumptions.iter().map(|one| {
        json!({
            "group": one.group, "clientHost": one.client_host, "time": one.time,
            "costMs": (one.cost_ms >= 0).then_some(one.cost_ms), "success": one.success, "retries": one.retries,
        })
    });
    let json = json!({
        "id": id, "sends": sends.collect::<Vec<_>>(), "consumptions": consumptions.collect::<Vec<_>>(),
    });
    let mut report = Report::new(json);
    if !trace.sends.is_empty() {
        let rows = trace.sends.iter().map(|send| {
            vec![
                "Pub".to_owned(),
                send.group.clone(),
                send.client_host.clone(),
                text::time_or_na(send.time),
                format!("{}ms", send.cost_ms),
                outcome(send.success),
            ]
        });
        let headings = [
            "#Type",
            "#ProducerGroup",
            "#ClientHost",
            "#SendTime",
            "#CostTimes",
            "#Status",
        ];
        report = report.table(&headings, rows).line("");
    }
    let mut groups: Vec<&str> = trace
        .consumptions
        .iter()
        .map(|c| c.group.as_str())
        .collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let own = trace.consumptions.iter().filter(|c| c.group == group);
        let rows = own.map(|one| {
            let cost = match one.cost_ms {
                ..0 => "N/A".to_owned(),
                ms => format!("{ms}ms"),
            };
            vec![
                "Sub".to_owned(),
                one.group.clone(),
                one.client_host.clone(),
                text::time_or_na(one.time),
                cost,
                outcome(one.success),
            ]
        });
        let headings = [
            "#Type",
            "#ConsumerGroup",
            "#ClientHost",
            "#ConsumerTime",
            "#CostTimes",
            "#Status",
        ];
        report = report.table(&headings, rows).line("");
    }
    Ok(report)
}
