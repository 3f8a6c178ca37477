//! What only our own brokers tell: damaged parts of the log, members that disagree with their group, pulls that wait, locks.

use minimq_client::Error;
use minimq_protocol::body::MessageQueue;
use minimq_protocol::code::response;
use serde_json::{Value, json};

use crate::command::{CommandSpec, Opt, Outcome, optional};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;
use crate::text;

const BROKER: Opt = optional(
    'b',
    "brokerAddr",
    "The broker, name or host:port; without -b and -c: all",
);
const CLUSTER: Opt = optional('c', "clusterName", "All masters of this cluster");

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "damagedRecords",
        about: "Parts of the commit log that are never served, and why",
        example: "damagedRecords -b broker-a",
        options: &[BROKER, CLUSTER],
        danger: None,
        run: |given| Box::pin(damaged(given)),
    },
    CommandSpec {
        name: "mixedSubscriptions",
        about: "Members that subscribe otherwise than their group",
        example: "mixedSubscriptions",
        options: &[BROKER, CLUSTER],
        danger: None,
        run: |given| Box::pin(mixed(given)),
    },
    CommandSpec {
        name: "heldPulls",
        about: "Pulls that wait at brokers for messages, by queue",
        example: "heldPulls -b broker-a",
        options: &[BROKER, CLUSTER],
        danger: None,
        run: |given| Box::pin(held(given)),
    },
    CommandSpec {
        name: "queueLocks",
        about: "Queues locked for ordered consumption, and by whom",
        example: "queueLocks -c DefaultCluster",
        options: &[BROKER, CLUSTER],
        danger: None,
        run: |given| Box::pin(locks(given)),
    },
];

/// The brokers chosen, else all masters.
pub(super) async fn chosen(given: &Given) -> Result<Vec<String>, Failure> {
    let all = given.optional("brokerAddr").is_none() && given.optional("clusterName").is_none();
    if !all {
        return given.brokers().await;
    }
    let places = given.places(None).await?.into_iter();
    Ok(places
        .filter(|place| place.id == 0)
        .map(|place| place.addr)
        .collect())
}

/// Whether a broker is of a kind that does not know the request.
pub(super) fn is_foreign(error: &Error) -> bool {
    error.code() == Some(response::REQUEST_CODE_NOT_SUPPORTED)
}

/// The cells that name a queue.
fn queue_cells(queue: &MessageQueue) -> Vec<String> {
    vec![queue.topic.clone(), queue.queue_id.to_string()]
}

fn queue_json(queue: &MessageQueue) -> Value {
    json!({ "topic": queue.topic, "broker": queue.broker_name, "queueId": queue.queue_id })
}

async fn damaged(given: &Given) -> Outcome {
    let brokers = chosen(given).await?;
    let (done, missing) = given
        .each(&brokers, |addr| given.admin.damaged_records(addr))
        .await?;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (addr, list) in done {
        for one in list.records {
            json.push(json!({
                "addr": addr, "from": one.from, "to": one.to, "queue": one.queue.as_ref().map(queue_json),
                "queueOffset": (one.queue_offset >= 0).then_some(one.queue_offset), "reason": one.reason,
            }));
            let queue = one.queue.map_or("unknown".to_owned(), |q| {
                format!("{}-{}", q.topic, q.queue_id)
            });
            rows.push(vec![
                addr.to_owned(),
                one.from.to_string(),
                (one.to - one.from).to_string(),
                queue,
                one.queue_offset.to_string(),
                one.reason,
            ]);
        }
    }
    let headings = [
        "#Addr",
        "#Offset",
        "#Bytes",
        "#Queue",
        "#Queue Offset",
        "#Reason",
    ];
    Ok(Report::new(json.into())
        .table(&headings, rows)
        .missing(missing))
}

async fn mixed(given: &Given) -> Outcome {
    let brokers = chosen(given).await?;
    let (done, missing) = given
        .each(&brokers, |addr| given.admin.mixed_subscriptions(addr))
        .await?;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (addr, found) in done {
        for (group, members) in found.groups {
            for member in members {
                rows.push(vec![
                    addr.to_owned(),
                    group.clone(),
                    member.client_id.clone(),
                    member.topics.join(", "),
                ]);
                json.push(json!({
                    "addr": addr, "group": group, "clientId": member.client_id, "topics": member.topics,
                }));
            }
        }
    }
    let headings = ["#Addr", "#Group", "#ClientId", "#Topics"];
    Ok(Report::new(json.into())
        .table(&headings, rows)
        .missing(missing))
}

async fn held(given: &Given) -> Outcome {
    let brokers = chosen(given).await?;
    let (done, missing) = given
        .each(&brokers, |addr| given.admin.held_pulls(addr))
        .await?;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (addr, list) in done {
        let mut pulls = list.pulls;
        pulls.sort_by(|a, b| a.queue.cmp(&b.queue));
        for one in pulls {
            json.push(json!({
                "addr": addr, "queue": queue_json(&one.queue), "count": one.count, "longestMs": one.longest_ms,
            }));
            let mut row = vec![addr.to_owned()];
            row.extend(queue_cells(&one.queue));
            row.extend([one.count.to_string(), one.longest_ms.to_string()]);
            rows.push(row);
        }
    }
    let headings = ["#Addr", "#Topic", "#QID", "#Count", "#Longest(ms)"];
    Ok(Report::new(json.into())
        .table(&headings, rows)
        .missing(missing))
}

async fn locks(given: &Given) -> Outcome {
    let brokers = chosen(given).await?;
    let (done, missing) = given
        .each(&brokers, |addr| given.admin.queue_locks(addr))
        .await?;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (addr, list) in done {
        let mut locks = list.locks;
        locks.sort_by(|a, b| a.queue.cmp(&b.queue));
        for one in locks {
            json.push(json!({
                "addr": addr, "queue": queue_json(&one.queue), "group": one.group, "clientId": one.client_id,
                "refreshed": one.refreshed_timestamp,
            }));
            let mut row = vec![addr.to_owned()];
            row.extend(queue_cells(&one.queue));
            row.extend([
                one.group,
                one.client_id,
                text::time_or_na(one.refreshed_timestamp),
            ]);
            rows.push(row);
        }
    }
    let headings = [
        "#Addr",
        "#Topic",
        "#QID",
        "#Group",
        "#ClientId",
        "#Refreshed",
    ];
    Ok(Report::new(json.into())
        .table(&headings, rows)
        .missing(missing))
}
