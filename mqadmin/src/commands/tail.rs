//! A topic's messages as they come, filtered by tags, an SQL expression, or a WebAssembly module.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use minimq_client::admin::{Expression, PullRequest, PullStatus};
use minimq_client::{Delivery, Error, MessageQueue};
use minimq_protocol::name::TOOLS_CONSUMER_GROUP;

use super::filters::LocalFilter;
use super::shape::{message_json, message_line};
use crate::command::{CommandSpec, Kind, Outcome, default, long, word};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::{Colour, Report};

/// How long a broker may hold a pull.
const HOLD: Duration = Duration::from_secs(15);
/// Pause after a pull that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Queues followed at most.
const MAX_QUEUES: usize = 4096;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "tail",
    about: "Show a topic's messages as they come; nothing is consumed",
    example: "tail Orders --sql \"price > 10\"",
    options: &[
        word("TOPIC", "The topic"),
        default('s', "subExpression", "*", "Tags, as TagA || TagB"),
        long(
            "sql",
            Kind::Optional,
            "An SQL92 expression over properties; the broker must allow them",
        ),
        long("wasm", Kind::Optional, "A filter module, run here"),
        long(
            "last",
            Kind::Default("0"),
            "Begins with the last N messages of each queue",
        ),
        long("max", Kind::Optional, "Messages at most, then end"),
    ],
    danger: None,
    run: |given| Box::pin(tail(given)),
}];

async fn pull(
    given: &Given,
    queue: MessageQueue,
    offset: i64,
    expression: Expression<'_>,
) -> (MessageQueue, i64, Vec<Delivery>, Option<Error>) {
    let pulled = given
        .admin
        .pull_as(PullRequest {
            queue: &queue,
            expression,
            offset,
            max: 32,
            hold: HOLD,
            group: TOOLS_CONSUMER_GROUP,
        })
        .await;
    match pulled {
        Ok(pulled) => {
            // At the end of the queue the offset stays.
            let next = match pulled.status {
                PullStatus::NothingNew => offset,
                _ => pulled.next_offset,
            };
            (queue, next, pulled.messages, None)
        }
        Err(error) => {
            if error.code().is_none() {
                tokio::time::sleep(PAUSE).await;
            }
            (queue, offset, Vec::new(), Some(error))
        }
    }
}

async fn tail(given: &Given) -> Outcome {
    let topic = given.text("TOPIC")?;
    let last = given.number_in("last", 0..=i64::from(i32::MAX))?;
    let most: Option<u64> = given.optional_number("max")?;
    let expression = match given.optional("sql") {
        Some(sql) => Expression::Sql(sql),
        None => Expression::Tags(given.text("subExpression")?),
    };
    let mut filter = match given.optional("wasm") {
        Some(path) => Some(LocalFilter::load(path, topic)?),
        None => None,
    };
    let route = given.admin.topic_route(topic).await?;
    if route.readable.is_empty() {
        return Err(Failure::NotFound(format!(
            "topic {topic} has no queue to read"
        )));
    }
    if route.readable.len() > MAX_QUEUES {
        return Err(Failure::Usage(format!(
            "topic {topic} has {} queues, {MAX_QUEUES} can be followed",
            route.readable.len()
        )));
    }
    let ends = given
        .all(&route.readable, |queue| given.admin.max_offset(queue))
        .await;
    let mut pulls = FuturesUnordered::new();
    for (queue, end) in route.readable.iter().zip(ends) {
        let from = (end? - last).max(0);
        pulls.push(pull(given, queue.clone(), from, expression));
    }
    let mut shown = 0;
    let mut failing: BTreeMap<MessageQueue, String> = BTreeMap::new();
    if most == Some(0) {
        return Ok(Report::shown());
    }
    while let Some((queue, next, messages, failed)) = pulls.next().await {
        match failed {
            // A refusal stays one: an expression that does not parse, for instance.
            Some(error @ Error::Refused { .. }) => return Err(error.into()),
            Some(error) => {
                let text = error.to_string();
                if failing.insert(queue.clone(), text.clone()).is_none() {
                    eprintln!("mqadmin tail: {queue}: {text}");
                }
            }
            None => {
                failing.remove(&queue);
            }
        }
        for message in messages {
            if let Some(filter) = &mut filter {
                match filter.keeps(message.record()) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) => {
                        eprintln!("mqadmin tail: {}: {error}", message.id());
                        continue;
                    }
                }
            }
            let line = message_line(&message, true);
            let mut report = Report::new(message_json(&message));
            report = if message.attempts() > 0 {
                report.painted(Colour::Yellow, line)
            } else {
                report.line(line)
            };
            given.show(&report)?;
            shown += 1;
            if most.is_some_and(|most| shown >= most) {
                return Ok(Report::shown());
            }
        }
        pulls.push(pull(given, queue, next, expression));
    }
    Ok(Report::shown())
}
