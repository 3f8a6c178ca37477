//! Offsets of groups: resetting, skipping, copying.

use minimq_client::Error;
use minimq_protocol::code::response;
use serde_json::json;

use crate::command::{CommandSpec, Outcome, default, flag, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;
use crate::text;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "resetOffsetByTime",
        about: "Reset consumer offset by timestamp(without client restart).",
        example: "resetOffsetByTime -g billing -t Orders -s 2026-01-05#09:30:00:000",
        options: &[
            required('g', "group", "The consumer group"),
            required('t', "topic", "The topic"),
            required(
                's',
                "timestamp",
                "now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS",
            ),
            default('f', "force", "true", "Offsets may move forward too"),
            flag('c', "cplus", "The clients are C++ clients"),
        ],
        danger: Some("moves the group: messages are consumed again or skipped"),
        run: |given| Box::pin(reset(given)),
    },
    CommandSpec {
        name: "skipAccumulatedMessage",
        about: "Skip all messages that are accumulated (not consumed) currently",
        example: "skipAccumulatedMessage -g billing -t Orders",
        options: &[
            required('g', "group", "The consumer group"),
            required('t', "topic", "The topic"),
            default('f', "force", "true", "Offsets may move forward"),
        ],
        danger: Some("skips every message the group has not consumed"),
        run: |given| Box::pin(skip(given)),
    },
    CommandSpec {
        name: "cloneGroupOffset",
        about: "clone offset from other group.",
        example: "cloneGroupOffset -s billing -d billing-new -t Orders",
        options: &[
            required('s', "srcGroup", "The group to copy from"),
            required('d', "destGroup", "The group to copy to"),
            required('t', "topic", "The topic"),
            optional(
                'o',
                "offline",
                "true: also topics the source group does not subscribe now",
            ),
        ],
        danger: Some("overwrites the offsets of the other group in that topic"),
        run: |given| Box::pin(clone(given)),
    },
];

async fn reset(given: &Given) -> Outcome {
    let when = given.text("timestamp")?;
    let timestamp = text::parse_time(when).map_err(Failure::Usage)?;
    let force = given.boolean("force")?;
    let (group, topic) = (given.text("group")?, given.text("topic")?);
    let first = format!(
        "rollback consumer offset by specified group[{group}], topic[{topic}], force[{force}], timestamp(string)[{when}], timestamp(long)[{timestamp}]"
    );
    move_to(given, timestamp, force, Some(first)).await
}

async fn skip(given: &Given) -> Outcome {
    let force = given.boolean("force")?;
    move_to(given, -1, force, None).await
}

async fn move_to(given: &Given, timestamp: i64, force: bool, first: Option<String>) -> Outcome {
    let (group, topic) = (given.text("group")?, given.text("topic")?);
    match given
        .admin
        .reset_offsets(topic, group, timestamp, force)
        .await
    {
        Ok(table) => {
            let json = table.iter().map(|(queue, offset)| {
                json!({ "broker": queue.broker_name, "queueId": queue.queue_id, "offset": offset })
            });
            let report = Report::new(json!({ "online": true, "queues": json.collect::<Vec<_>>() }));
            let report = first.into_iter().fold(report, Report::line);
            let rows = table.iter().map(|(queue, offset)| {
                vec![
                    queue.broker_name.clone(),
                    queue.queue_id.to_string(),
                    offset.to_string(),
                ]
            });
            Ok(report.table(&["#brokerName", "#queueId", "#offset"], rows))
        }
        // Nobody is there who could be told: the broker's table is changed directly.
        Err(Error::Refused {
            code: response::CONSUMER_NOT_ONLINE,
            ..
        }) => {
            let resets = given
                .admin
                .reset_offsets_offline(topic, group, timestamp, force)
                .await?;
            let json = resets.iter().map(|reset| {
                json!({
                    "broker": reset.queue.broker_name, "queueId": reset.queue.queue_id,
                    "brokerOffset": reset.broker_offset, "consumerOffset": reset.consumer_offset,
                    "timestampOffset": reset.timestamp_offset, "rollbackOffset": reset.new_offset,
                })
            });
            let report =
                Report::new(json!({ "online": false, "queues": json.collect::<Vec<_>>() }));
            let report = first.into_iter().fold(report, Report::line);
            let rows = resets.iter().map(|reset| {
                vec![
                    reset.queue.broker_name.clone(),
                    reset.queue.queue_id.to_string(),
                    reset.broker_offset.to_string(),
                    reset.consumer_offset.to_string(),
                    reset.timestamp_offset.to_string(),
                    reset.new_offset.to_string(),
                ]
            });
            let headings = [
                "#brokerName",
                "#queueId",
                "#brokerOffset",
                "#consumerOffset",
                "#timestampOffset",
                "#rollbackOffset",
            ];
            Ok(report.table(&headings, rows))
        }
        Err(error) => Err(error.into()),
    }
}

async fn clone(given: &Given) -> Outcome {
    let (from, to, topic) = (
        given.text("srcGroup")?,
        given.text("destGroup")?,
        given.text("topic")?,
    );
    let offline = given
        .optional("offline")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    given
        .admin
        .clone_offsets(from, to, Some(topic), offline)
        .await?;
    Ok(Report::done(format!(
        "clone group offset success. srcGroup[{from}], destGroup=[{to}], topic[{topic}]"
    )))
}
