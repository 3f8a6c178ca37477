//! Single messages: finding one by id, key or place, and what became of it.

use minimq_client::admin::{MessageLookup, TrackState};
use minimq_client::{Delivery, Message};
use minimq_protocol::body::MessageQueue;
use serde_json::json;

use super::sending::{receipt_json, status_name};
use super::shape::{describe, message_json, value_of};
use crate::command::{CommandSpec, Kind, Outcome, default, flag, long, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

/// Messages of one broker that a key query shows at most, unless `--max` says otherwise.
const MAX_BY_KEY: &str = "64";

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "queryMsgById",
        about: "Query Message by Id",
        example: "queryMsgById -i 7F00000100002A9F0000000000000000",
        options: &[
            required('i', "msgId", "The broker's id, several with ,"),
            optional(
                'g',
                "consumerGroup",
                "With -d: has that group's member consume it",
            ),
            optional('d', "clientId", "The member"),
            default('s', "sendMessage", "false", "Sends it again"),
            optional('u', "unitName", "Accepted; units have no meaning here"),
        ],
        danger: None,
        run: |given| Box::pin(by_id(given)),
    },
    CommandSpec {
        name: "queryMsgByKey",
        about: "Query Message by Key",
        example: "queryMsgByKey -t Orders -k order-17",
        options: &[
            required('t', "topic", "The topic"),
            required('k', "msgKey", "The key"),
            long(
                "begin",
                Kind::Optional,
                "Stored not before: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS",
            ),
            long("end", Kind::Optional, "Stored not after"),
            long(
                "max",
                Kind::Default(MAX_BY_KEY),
                "Messages of one broker at most",
            ),
        ],
        danger: None,
        run: |given| Box::pin(by_key(given)),
    },
    CommandSpec {
        name: "queryMsgByUniqueKey",
        about: "Query Message by Unique key",
        example: "queryMsgByUniqueKey -t Orders -i 0A0000090DEF18B4AAC27E0F3A5C0001",
        options: &[
            required('i', "msgId", "The client's id"),
            required('t', "topic", "The topic"),
            optional(
                'g',
                "consumerGroup",
                "With -d: has that group's member consume it",
            ),
            optional('d', "clientId", "The member"),
            flag('a', "showAll", "All copies, not the first one only"),
        ],
        danger: None,
        run: |given| Box::pin(by_unique_key(given)),
    },
    CommandSpec {
        name: "queryMsgByOffset",
        about: "Query Message by offset",
        example: "queryMsgByOffset -t Orders -b broker-a -i 0 -o 17",
        options: &[
            required('t', "topic", "The topic"),
            required('b', "brokerName", "The broker's name"),
            required('i', "queueId", "The queue"),
            required('o', "offset", "The position in the queue"),
        ],
        danger: None,
        run: |given| Box::pin(by_offset(given)),
    },
];

fn state_name(state: TrackState) -> &'static str {
    match state {
        TrackState::Consumed => "CONSUMED",
        TrackState::ConsumedButFiltered => "CONSUMED_BUT_FILTERED",
        TrackState::Pull => "PULL",
        TrackState::NotConsumedYet => "NOT_CONSUME_YET",
        TrackState::NotOnline => "NOT_ONLINE",
        TrackState::Unknown => "UNKNOWN",
    }
}

/// Messages with what became of each; one is an object, several are a list.
async fn with_tracks(given: &Given, messages: &[Delivery]) -> Outcome {
    let (mut json, mut report) = (Vec::new(), Report::default());
    for message in messages {
        report = describe(report, message).line("").line("");
        let mut value = message_json(message);
        match given.admin.message_tracks(message).await {
            Ok(tracks) => {
                value["tracks"] = tracks
                    .iter()
                    .map(|track| {
                        json!({ "group": track.group, "state": state_name(track.state), "error": track.error })
                    })
                    .collect();
                if tracks.is_empty() {
                    report = report.line("WARN: No Consumer");
                }
                report = report.lines(tracks.iter().map(|track| {
                    format!(
                        "MessageTrack [consumerGroup={}, trackType={}, exceptionDesc={}]",
                        track.group,
                        state_name(track.state),
                        track.error.as_deref().unwrap_or("null")
                    )
                }));
            }
            Err(error) => {
                report = report.partly(format!("what became of it is not known: {error}"))
            }
        }
        json.push(value);
    }
    let json = match json.len() {
        1 => json.pop().unwrap_or_default(),
        _ => json.into(),
    };
    Ok(report.with_json(json))
}

/// The member that `-g` and `-d` name: both or neither.
fn member(given: &Given) -> Result<Option<(&str, &str)>, Failure> {
    match (given.optional("consumerGroup"), given.optional("clientId")) {
        (Some(group), Some(client)) => Ok(Some((group, client))),
        (None, None) => Ok(None),
        _ => Err(Failure::Usage(
            "to have a member consume the message give both its group with -g and its client id with -d".to_owned(),
        )),
    }
}

async fn push_to(given: &Given, (group, client): (&str, &str), topic: &str, id: &str) -> Outcome {
    if given.dry_run {
        return Ok(Report::done(format!(
            "would have member {client} of group {group} consume {id}"
        )));
    }
    let result = given
        .admin
        .consume_directly(group, client, topic, id)
        .await?;
    let name = result.consume_result.map(|r| r.to_string());
    let line = format!(
        "ConsumeMessageDirectlyResult [order={}, autoCommit={}, consumeResult={}, remark={}, spentTimeMills={}]",
        result.order,
        result.auto_commit,
        name.as_deref().unwrap_or("null"),
        result.remark.as_deref().unwrap_or("null"),
        result.spent_time_mills
    );
    let json = value_of(&result.to_json(minimq_protocol::json::Flavour::Standard));
    Ok(Report::new(json).line(line))
}

/// Names that the client or the broker sets by itself.
const OWN_PROPERTIES: &[&str] = &[
    "KEYS",
    "TAGS",
    "UNIQ_KEY",
    "WAIT",
    "MSG_REGION",
    "TRACE_ON",
    "CLUSTER",
];

async fn send_again(given: &Given, message: &Delivery) -> Outcome {
    let id = message.id();
    let topic = message.record().topic();
    if given.dry_run {
        return Ok(Report::done(format!("would send {id} again to {topic}")));
    }
    let mut copy = Message::new(topic, message.body().clone()).flag(message.flag());
    for key in message.keys() {
        copy = copy.key(key);
    }
    if let Some(tag) = message.tag() {
        copy = copy.tag(tag);
    }
    for (name, value) in message.properties().iter() {
        if !OWN_PROPERTIES.contains(&name) {
            copy = copy.property(name, value);
        }
    }
    let producer = given.client.producer("ReSendMsgById").build().await?;
    let receipt = producer.send(copy).await?;
    producer.shutdown().await;
    let line = format!(
        "prepare resend msg. originalMsgId={id} SendResult [sendStatus={}, msgId={}, offsetMsgId={}, messageQueue={}, queueOffset={}]",
        status_name(receipt.status),
        receipt.id,
        receipt.offset_id,
        receipt.queue,
        receipt.queue_offset
    );
    Ok(Report::new(json!({ "original": id, "sent": receipt_json(&receipt) })).line(line))
}

async fn by_id(given: &Given) -> Outcome {
    let ids: Vec<&str> = given
        .text("msgId")?
        .split(',')
        .map(str::trim)
        .filter(|id| !id.is_empty())
        .collect();
    let member = member(given)?;
    let again = given.boolean("sendMessage")?;
    let mut found = Vec::new();
    for id in &ids {
        found.push(given.admin.message_by_offset_id(id).await?);
    }
    if !again && member.is_none() {
        return with_tracks(given, &found).await;
    }
    let mut last = Report::default();
    for (id, message) in ids.iter().zip(&found) {
        let report = match member {
            Some(member) => push_to(given, member, message.record().topic(), id).await?,
            None => send_again(given, message).await?,
        };
        if found.len() > 1 {
            given.show(&report)?;
            last = Report::shown();
        } else {
            last = report;
        }
    }
    Ok(last)
}

async fn by_key(given: &Given) -> Outcome {
    let lookup = MessageLookup {
        topic: given.text("topic")?,
        key: given.text("msgKey")?,
        max: given.number_in("max", 1..=10_000)?,
        begin_ms: given.time("begin")?.unwrap_or(0),
        end_ms: given.time("end")?.unwrap_or(i64::MAX),
    };
    let found = given.admin.messages_by_key(lookup).await?;
    if found.is_empty() {
        return Err(Failure::NotFound(format!(
            "query message by key finished, but no message. (CODE: 208): topic {} holds no message with key {}",
            lookup.topic, lookup.key
        )));
    }
    let rows = found.iter().map(|m| {
        vec![
            m.id(),
            m.record().queue_id().to_string(),
            m.queue_offset().to_string(),
        ]
    });
    Ok(Report::new(found.iter().map(message_json).collect())
        .table(&["#Message ID", "#QID", "#Offset"], rows))
}

async fn by_unique_key(given: &Given) -> Outcome {
    let (topic, id) = (given.text("topic")?, given.text("msgId")?);
    if let Some(member) = member(given)? {
        return push_to(given, member, topic, id).await;
    }
    let found = if given.flag("showAll") {
        given.admin.copies_by_unique_id(topic, id).await?
    } else {
        let first = given.admin.message_by_unique_id(topic, id).await?;
        first.into_iter().collect()
    };
    if found.is_empty() {
        return Err(Failure::NotFound(format!(
            "query message by key finished, but no message. (CODE: 208): topic {topic} holds no message with id {id}"
        )));
    }
    with_tracks(given, &found).await
}

async fn by_offset(given: &Given) -> Outcome {
    let queue = MessageQueue::new(
        given.text("topic")?,
        given.text("brokerName")?,
        given.number("queueId")?,
    );
    let offset = given.number("offset")?;
    let pulled = given.admin.pull(&queue, "*", offset, 1).await?;
    let message = pulled
        .messages
        .into_iter()
        .find(|m| m.queue_offset() == offset)
        .ok_or_else(|| {
            let (from, to) = (pulled.min_offset, pulled.max_offset);
            let why = if (from..to).contains(&offset) {
                "; its record is gone or damaged: `mqadmin damagedRecords` shows damaged ones"
            } else {
                ""
            };
            Failure::NotFound(format!(
                "{queue} has no message at {offset}: it begins at {from} and ends before {to}{why}"
            ))
        })?;
    with_tracks(given, &[message]).await
}
