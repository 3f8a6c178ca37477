//! Entries of consume queues.

use minimq_protocol::json::Flavour;

use super::shape::value_of;
use crate::command::{CommandSpec, Outcome, default, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "queryCq",
    about: "Query cq command.",
    example: "queryCq -t Orders -q 0 -i 0 -b broker-a",
    options: &[
        required('t', "topic", "The topic"),
        required('q', "queue", "The queue"),
        required('i', "index", "The first entry"),
        default('c', "count", "10", "Entries"),
        optional('b', "broker", "The broker, name or host:port"),
        optional('g', "consumer", "A group whose filter is tried"),
    ],
    danger: None,
    run: |given| Box::pin(entries(given)),
}];

async fn entries(given: &Given) -> Outcome {
    let topic = given.text("topic")?;
    let queue_id = given.number("queue")?;
    let (index, count) = (given.number("index")?, given.number("count")?);
    let addr = match given.optional("broker") {
        Some(broker) => given.broker_addr(broker).await?,
        None => {
            let brokers = given.admin.brokers_of(topic).await?;
            let first = brokers.into_iter().next().map(|(_, addr)| addr);
            first.ok_or_else(|| Failure::NotFound(format!("topic {topic} has no broker")))?
        }
    };
    let group = given.optional("consumer");
    let found = given
        .admin
        .consume_queue(&addr, (topic, queue_id), index, count, group)
        .await?;
    let rule = "=".repeat(38);
    let mut report = Report::new(value_of(&found.to_json(Flavour::Standard)));
    if let Some(subscription) = &found.subscription_data {
        let text = String::from_utf8_lossy(&subscription.to_json(Flavour::Standard)).into_owned();
        report = report
            .line(format!("Subscription data: \n{text}"))
            .line(&*rule);
    }
    if let Some(filter) = &found.filter_data {
        report = report.line(format!("Filter data: \n{filter}")).line(&*rule);
    }
    report = report.line(format!(
        "Queue data: \nmax: {}, min: {}",
        found.max_queue_index, found.min_queue_index
    ));
    for (at, entry) in found.queue_data.iter().flatten().enumerate() {
        report = report
            .line(&*rule)
            .line(format!("idx: {}", index + at as i64))
            .line(format!(
                "ConsumeQueueData{{physicOffset={}, physicSize={}, tagsCode={}, extendDataJson='{}', bitMap='{}', eval={}, msg='{}'}}",
                entry.physic_offset,
                entry.physic_size,
                entry.tags_code,
                entry.extend_data_json.as_deref().unwrap_or("null"),
                entry.bit_map.as_deref().unwrap_or("null"),
                entry.eval,
                entry.msg.as_deref().unwrap_or("null")
            ));
    }
    Ok(report.line(rule))
}
