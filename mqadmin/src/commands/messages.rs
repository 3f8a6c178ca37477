//! Messages: finding, showing, sending, consuming them.

use std::collections::BTreeMap;

use minimq_client::admin::{MessageLookup, PullStatus};
use minimq_client::{Delivery, Message};
use minimq_protocol::body::MessageQueue;
use serde_json::{Value, json};

use crate::command::{CommandSpec, Given, Outcome, default, optional, required};
use crate::failure::Failure;
use crate::report::Report;
use crate::text;

/// Messages of one broker that a key query shows at most.
const MAX_BY_KEY: i32 = 64;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "queryMsgById",
        about: "Query Message by Id",
        example: "queryMsgById -i 7F00000100002A9F0000000000000000",
        options: &[required('i', "msgId", "The broker's id, several with ,")],
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
    CommandSpec {
        name: "printMsg",
        about: "Print Message Detail",
        example: "printMsg -t Orders -s TagA",
        options: &[
            required('t', "topic", "The topic"),
            default('s', "subExpression", "*", "Tags, as TagA || TagB"),
            optional(
                'b',
                "beginTimestamp",
                "Stored not before: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS",
            ),
            optional('e', "endTimestamp", "Stored before"),
            default('d', "printBody", "true", "With the bodies"),
        ],
        danger: None,
        run: |given| Box::pin(print(given)),
    },
    CommandSpec {
        name: "sendMessage",
        about: "Send a message",
        example: "sendMessage -t Orders -p hello -c TagA -k order-17",
        options: &[
            required('t', "topic", "The topic"),
            required('p', "body", "The body, UTF-8"),
            optional('k', "key", "The key"),
            optional('c', "tags", "The tag"),
            optional('b', "broker", "The broker's name"),
            optional('i', "qid", "The queue, with -b"),
        ],
        danger: None,
        run: |given| Box::pin(send(given)),
    },
    CommandSpec {
        name: "consumeMessage",
        about: "Consume message",
        example: "consumeMessage -t Orders -b broker-a -i 0 -c 10",
        options: &[
            required('t', "topic", "The topic"),
            optional('b', "brokerName", "Only this broker"),
            optional('i', "queueId", "Only this queue, with -b"),
            optional('o', "offset", "From here on, with -i"),
            optional(
                's',
                "beginTimestamp",
                "Stored not before: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS",
            ),
            optional('e', "endTimestamp", "Stored before"),
            default('c', "MessageNumber", "128", "Messages at most"),
        ],
        danger: None,
        run: |given| Box::pin(consume(given)),
    },
    CommandSpec {
        name: "queryCq",
        about: "Query cq command.",
        example: "queryCq -t Orders -q 0 -i 0 -b 127.0.0.1:10911",
        options: &[
            required('t', "topic", "The topic"),
            required('q', "queue", "The queue"),
            required('i', "index", "The first entry"),
            default('c', "count", "10", "Entries"),
            optional('b', "broker", "The broker, host:port"),
            optional('g', "consumer", "A group whose filter is tried"),
        ],
        danger: None,
        run: |given| Box::pin(queue_entries(given)),
    },
];

fn to_json(message: &Delivery) -> Value {
    let properties: BTreeMap<&str, &str> = message.properties().iter().collect();
    json!({
        "id": message.id(), "offsetId": message.offset_id(), "topic": message.topic(),
        "queueId": message.record().queue_id(), "queueOffset": message.queue_offset(),
        "commitLogOffset": message.record().physical_offset(), "tags": message.tag(),
        "keys": message.keys().collect::<Vec<_>>(), "reconsumeTimes": message.record().reconsume_times(),
        "born": message.born_ms(), "stored": message.stored_ms(), "bornHost": message.born_host().to_string(),
        "storeHost": message.record().store_host().to_string(), "sysFlag": message.record().sys_flag(),
        "properties": properties, "body": String::from_utf8_lossy(message.body()),
    })
}

/// The labels of the stock tool; the body is shown instead of being written to a file.
fn describe(report: Report, message: &Delivery) -> Report {
    let properties: Vec<String> = message
        .properties()
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let keys: Vec<&str> = message.keys().collect();
    let rows = [
        ("OffsetID:", message.offset_id()),
        ("Topic:", message.topic().to_owned()),
        ("Tags:", format!("[{}]", message.tag().unwrap_or("null"))),
        ("Keys:", format!("[{}]", keys.join(" "))),
        ("Queue ID:", message.record().queue_id().to_string()),
        ("Queue Offset:", message.queue_offset().to_string()),
        (
            "CommitLog Offset:",
            message.record().physical_offset().to_string(),
        ),
        (
            "Reconsume Times:",
            message.record().reconsume_times().to_string(),
        ),
        ("Born Timestamp:", text::time(message.born_ms())),
        ("Store Timestamp:", text::time(message.stored_ms())),
        ("Born Host:", message.born_host().to_string()),
        ("Store Host:", message.record().store_host().to_string()),
        ("System Flag:", message.record().sys_flag().to_string()),
        ("Properties:", format!("{{{}}}", properties.join(", "))),
        (
            "Message Body:",
            String::from_utf8_lossy(message.body()).into_owned(),
        ),
    ];
    rows.into_iter().fold(report, |report, (label, value)| {
        report.line(format!("{label:<20} {value}"))
    })
}

async fn with_tracks(given: &Given, message: &Delivery) -> Outcome {
    let tracks = given
        .admin
        .message_tracks(message)
        .await
        .unwrap_or_default();
    let mut json = to_json(message);
    json["tracks"] = tracks
        .iter()
        .map(|track| json!({ "group": track.group, "state": format!("{:?}", track.state), "error": track.error }))
        .collect();
    let mut report = describe(Report::new(json), message).line("");
    for track in &tracks {
        let why = track.error.as_deref().unwrap_or("null");
        report = report.line(format!(
            "MessageTrack [consumerGroup={}, trackType={:?}, exceptionDesc={why}]",
            track.group, track.state
        ));
    }
    Ok(report)
}

async fn by_id(given: &Given) -> Outcome {
    let ids: Vec<&str> = given
        .text("msgId")?
        .split(',')
        .map(str::trim)
        .filter(|id| !id.is_empty())
        .collect();
    match ids.as_slice() {
        [id] => with_tracks(given, &given.admin.message_by_offset_id(id).await?).await,
        ids => {
            let (mut json, mut report) = (Vec::new(), Report::default());
            for id in ids {
                let message = given.admin.message_by_offset_id(id).await?;
                json.push(to_json(&message));
                report = describe(report, &message).line("");
            }
            let text = report.to_text();
            Ok(Report::new(json.into()).line(text.trim_end()))
        }
    }
}

async fn by_key(given: &Given) -> Outcome {
    let lookup = MessageLookup {
        topic: given.text("topic")?,
        key: given.text("msgKey")?,
        max: MAX_BY_KEY,
        begin_ms: 0,
        end_ms: i64::MAX,
    };
    let found = given.admin.messages_by_key(lookup).await?;
    if found.is_empty() {
        return Err(Failure::NotFound(format!(
            "topic {} holds no message with key {}",
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
    Ok(Report::new(found.iter().map(to_json).collect())
        .table(&["#Message ID", "#QID", "#Offset"], rows.collect()))
}

async fn by_unique_key(given: &Given) -> Outcome {
    let (topic, id) = (given.text("topic")?, given.text("msgId")?);
    let found = given.admin.message_by_unique_id(topic, id).await?;
    let message = found
        .ok_or_else(|| Failure::NotFound(format!("topic {topic} holds no message with id {id}")))?;
    with_tracks(given, &message).await
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
            Failure::NotFound(format!(
                "{queue} has no message at {offset}: it begins at {} and ends before {}",
                pulled.min_offset, pulled.max_offset
            ))
        })?;
    with_tracks(given, &message).await
}

/// A time option in milliseconds.
fn time(given: &Given, long: &str) -> Result<Option<i64>, Failure> {
    given
        .optional(long)
        .map(|text| text::parse_time(text).map_err(Failure::Usage))
        .transpose()
}

/// Walks a queue from an offset to another.
async fn walk(
    given: &Given,
    queue: &MessageQueue,
    tags: &str,
    (from, to): (i64, i64),
    mut each: impl FnMut(Delivery) -> bool,
) -> Result<(), Failure> {
    let mut offset = from;
    while offset < to {
        let pulled = given.admin.pull(queue, tags, offset, 32).await?;
        for message in pulled.messages {
            if message.queue_offset() >= to || !each(message) {
                return Ok(());
            }
        }
        if pulled.status == PullStatus::NothingNew || pulled.next_offset <= offset {
            return Ok(());
        }
        offset = pulled.next_offset;
    }
    Ok(())
}

async fn range(given: &Given, queue: &MessageQueue) -> Result<(i64, i64), Failure> {
    let (min, max) = (
        given.admin.min_offset(queue).await?,
        given.admin.max_offset(queue).await?,
    );
    let from = match time(given, "beginTimestamp")? {
        Some(when) => given.admin.search_offset(queue, when).await?.max(min),
        None => min,
    };
    let to = match time(given, "endTimestamp")? {
        Some(when) => given.admin.search_offset(queue, when).await?,
        None => max,
    };
    Ok((from, to))
}

async fn print(given: &Given) -> Outcome {
    let (topic, tags, bodies) = (
        given.text("topic")?,
        given.text("subExpression")?,
        given.boolean("printBody")?,
    );
    let route = given.admin.topic_route(topic).await?;
    let (mut json, mut lines) = (Vec::new(), Vec::new());
    for queue in route.readable.iter() {
        let (from, to) = range(given, queue).await?;
        lines.push(format!("minOffset={from}, maxOffset={to}, {queue}"));
        walk(given, queue, tags, (from, to), |message| {
            let body = if bodies {
                format!(" BODY: {}", String::from_utf8_lossy(message.body()))
            } else {
                String::new()
            };
            lines.push(format!(
                "MSGID: {} queueOffset={} tags={} stored={}{body}",
                message.id(),
                message.queue_offset(),
                message.tag().unwrap_or_default(),
                text::time(message.stored_ms())
            ));
            json.push(to_json(&message));
            true
        })
        .await?;
    }
    Ok(lines
        .into_iter()
        .fold(Report::new(json.into()), Report::line))
}

async fn send(given: &Given) -> Outcome {
    let topic = given.text("topic")?;
    let mut message = Message::new(topic, given.text("body")?.to_owned());
    if let Some(key) = given.optional("key") {
        message = message.key(key);
    }
    if let Some(tag) = given.optional("tags") {
        message = message.tag(tag);
    }
    let queue_id: Option<i32> = given
        .optional("qid")
        .map(|_| given.number("qid"))
        .transpose()?;
    let producer = given.client.producer("MQADMIN_PRODUCER").build().await?;
    let receipt = match (given.optional("broker"), queue_id) {
        (Some(broker), id) => {
            let queue = MessageQueue::new(topic, broker, id.unwrap_or(0));
            producer.send_to(&queue, message).await?
        }
        (None, Some(_)) => {
            return Err(Failure::Usage(
                "Broker name must be set if the queue is chosen!".to_owned(),
            ));
        }
        (None, None) => producer.send(message).await?,
    };
    producer.shutdown().await;
    let status = match receipt.status {
        minimq_client::SendStatus::Stored => "SEND_OK",
        minimq_client::SendStatus::FlushTimeout => "FLUSH_DISK_TIMEOUT",
        minimq_client::SendStatus::SlaveTimeout => "FLUSH_SLAVE_TIMEOUT",
        minimq_client::SendStatus::NoSlave => "SLAVE_NOT_AVAILABLE",
    };
    let row = vec![
        receipt.queue.broker_name.clone(),
        receipt.queue.queue_id.to_string(),
        status.to_owned(),
        receipt.id.clone(),
    ];
    let json = json!({
        "broker": receipt.queue.broker_name, "queueId": receipt.queue.queue_id, "status": status,
        "id": receipt.id, "offsetId": receipt.offset_id, "queueOffset": receipt.queue_offset,
    });
    Ok(Report::new(json).table(
        &["#Broker Name", "#QID", "#Send Result", "#MsgId"],
        vec![row],
    ))
}

async fn consume(given: &Given) -> Outcome {
    let topic = given.text("topic")?;
    let (broker, most) = (
        given.optional("brokerName"),
        given.number::<usize>("MessageNumber")?,
    );
    let queue_id: Option<i32> = given
        .optional("queueId")
        .map(|_| given.number("queueId"))
        .transpose()?;
    let offset: Option<i64> = given
        .optional("offset")
        .map(|_| given.number("offset"))
        .transpose()?;
    if queue_id.is_some() && broker.is_none() {
        return Err(Failure::Usage(
            "give the broker's name with -b if a queue is chosen with -i".to_owned(),
        ));
    }
    if offset.is_some() && queue_id.is_none() {
        return Err(Failure::Usage(
            "choose a queue with -b and -i if an offset is given with -o".to_owned(),
        ));
    }
    let route = given.admin.topic_route(topic).await?;
    let wanted = |queue: &&MessageQueue| {
        broker.is_none_or(|name| queue.broker_name == name)
            && queue_id.is_none_or(|id| queue.queue_id == id)
    };
    let queues: Vec<&MessageQueue> = route.readable.iter().filter(wanted).collect();
    if queues.is_empty() {
        return Err(Failure::NotFound(format!(
            "topic {topic} has no such queue"
        )));
    }
    let (mut json, mut lines) = (Vec::new(), Vec::new());
    for queue in queues {
        let (from, to) = range(given, queue).await?;
        walk(given, queue, "*", (offset.unwrap_or(from), to), |message| {
            if json.len() >= most {
                return false;
            }
            lines.push(format!(
                "MSGID: {} queue={}-{} offset={} BODY: {}",
                message.id(),
                queue.broker_name,
                queue.queue_id,
                message.queue_offset(),
                String::from_utf8_lossy(message.body())
            ));
            json.push(to_json(&message));
            true
        })
        .await?;
    }
    Ok(lines
        .into_iter()
        .fold(Report::new(json.into()), Report::line))
}

async fn queue_entries(given: &Given) -> Outcome {
    let topic = given.text("topic")?;
    let addr = match given.optional("broker") {
        Some(addr) => addr.to_owned(),
        None => {
            let brokers = given.admin.brokers_of(topic).await?;
            brokers
                .into_iter()
                .next()
                .map(|(_, addr)| addr)
                .ok_or_else(|| Failure::NotFound(format!("topic {topic} has no broker")))?
        }
    };
    let place = (topic, given.number("queue")?);
    let found = given
        .admin
        .consume_queue(
            &addr,
            place,
            given.number("index")?,
            given.number("count")?,
            given.optional("consumer"),
        )
        .await?;
    let bytes = found.to_json(minimq_protocol::json::Flavour::Standard);
    let report = Report::new(serde_json::from_slice(&bytes).unwrap_or_default()).line(format!(
        "min index {}, max index {}",
        found.min_queue_index, found.max_queue_index
    ));
    let rows = found
        .queue_data
        .unwrap_or_default()
        .into_iter()
        .map(|entry| {
            vec![
                entry.physic_offset.to_string(),
                entry.physic_size.to_string(),
                entry.tags_code.to_string(),
                entry.eval.to_string(),
            ]
        });
    Ok(report.table(
        &["#Physical Offset", "#Size", "#Tags Code", "#Matches"],
        rows.collect(),
    ))
}
