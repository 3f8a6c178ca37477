//! How the queues of a topic would be shared out among some consumers.

use std::collections::BTreeMap;

use minimq_client::rebalance::Allocation;
use serde_json::{Value, json};

use crate::command::{CommandSpec, Outcome, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

/// Consumers asked about at most.
const MAX_CONSUMERS: usize = 100_000;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "allocateMQ",
    about: "Allocate MQ",
    example: "allocateMQ -t Orders -i 10.0.0.1,10.0.0.2",
    options: &[
        required('t', "topic", "The topic"),
        required('i', "ipList", "The consumers, separated by ,"),
    ],
    danger: None,
    run: |given| Box::pin(allocate(given)),
}];

async fn allocate(given: &Given) -> Outcome {
    let mut consumers: Vec<String> = given
        .text("ipList")?
        .split(',')
        .map(|ip| ip.trim().to_owned())
        .filter(|ip| !ip.is_empty())
        .collect();
    consumers.sort();
    consumers.dedup();
    if consumers.len() > MAX_CONSUMERS {
        return Err(Failure::Usage(format!(
            "--ipList has {} consumers, {MAX_CONSUMERS} are the limit",
            consumers.len()
        )));
    }
    let route = given.admin.topic_route(given.text("topic")?).await?;
    let mut result: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for consumer in &consumers {
        let shared = Allocation::Average
            .allocate(consumer, &route.readable, &consumers)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let queues = shared.iter().map(|queue| {
            json!({ "brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic })
        });
        result.insert(consumer, queues.collect());
    }
    let json = json!({ "result": result });
    let line = json.to_string();
    Ok(Report::new(json).line(line))
}
