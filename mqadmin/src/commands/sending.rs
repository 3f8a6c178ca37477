//! Sending single messages, as the stock tool does.

use std::time::Instant;

use minimq_client::admin::SendTrace;
use minimq_client::{Message, SendReceipt, SendStatus};
use minimq_protocol::body::MessageQueue;
use serde_json::{Value, json};

use crate::command::{CommandSpec, Outcome, default, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;
use crate::text;

/// Group of the producer.
pub(super) const PRODUCER_GROUP: &str = "MQADMIN_PRODUCER";
/// Where traces go.
const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
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
        default('m', "msgTraceEnable", "false", "Writes a trace of it too"),
    ],
    danger: None,
    run: |given| Box::pin(send(given)),
}];

/// The stock tool's word for how safely a message was stored.
pub(super) fn status_name(status: SendStatus) -> &'static str {
    match status {
        SendStatus::Stored => "SEND_OK",
        SendStatus::FlushTimeout => "FLUSH_DISK_TIMEOUT",
        SendStatus::SlaveTimeout => "FLUSH_SLAVE_TIMEOUT",
        SendStatus::NoSlave => "SLAVE_NOT_AVAILABLE",
    }
}

/// What became of a send as JSON.
pub(super) fn receipt_json(receipt: &SendReceipt) -> Value {
    json!({
        "broker": receipt.queue.broker_name, "queueId": receipt.queue.queue_id, "status": status_name(receipt.status),
        "id": receipt.id, "offsetId": receipt.offset_id, "queueOffset": receipt.queue_offset,
    })
}

async fn send(given: &Given) -> Outcome {
    let topic = given.text("topic")?;
    let body = given.verbatim("body").unwrap_or_default();
    let traced = given.boolean("msgTraceEnable")?;
    let queue_id: Option<i32> = given.optional_number("qid")?;
    let broker = given.optional("broker");
    if queue_id.is_some() && broker.is_none() {
        return Err(Failure::Usage(
            "Broker name must be set if the queue is chosen!".to_owned(),
        ));
    }
    let mut message = Message::new(topic, body.to_owned());
    if let Some(key) = given.optional("key") {
        message = message.key(key);
    }
    if let Some(tag) = given.optional("tags") {
        message = message.tag(tag);
    }
    if given.dry_run {
        return Ok(Report::done(format!(
            "would send {} bytes to {topic}",
            body.len()
        )));
    }
    let producer = given.client.producer(PRODUCER_GROUP).build().await?;
    let (started, begin) = (text::now_ms(), Instant::now());
    let receipt = match broker {
        Some(broker) => {
            let queue = MessageQueue::new(topic, broker, queue_id.unwrap_or(0));
            producer.send_to(&queue, message).await?
        }
        None => producer.send(message).await?,
    };
    let mut report = Report::new(receipt_json(&receipt)).table(
        &["#Broker Name", "#QID", "#Send Result", "#MsgId"],
        [vec![
            receipt.queue.broker_name.clone(),
            receipt.queue.queue_id.to_string(),
            status_name(receipt.status).to_owned(),
            receipt.id.clone(),
        ]],
    );
    if traced {
        let trace = SendTrace {
            group: PRODUCER_GROUP.to_owned(),
            topic: topic.to_owned(),
            tags: given.optional("tags").unwrap_or("null").to_owned(),
            keys: given.optional("key").unwrap_or("null").to_owned(),
            client_host: String::new(),
            store_host: receipt.queue.broker_name.clone(),
            time: started,
            cost_ms: i64::try_from(begin.elapsed().as_millis()).unwrap_or(i64::MAX),
            success: true,
        };
        let record = trace.record(&receipt.id, &receipt.offset_id, body.len());
        let written = producer
            .send(Message::new(TRACE_TOPIC, record).key(&receipt.id))
            .await;
        if let Err(error) = written {
            report = report.partly(format!("the message is sent, its trace is not: {error}"));
        }
    }
    producer.shutdown().await;
    Ok(report)
}
