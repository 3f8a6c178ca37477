//! Members of groups: who is connected, and what a consumer says of itself.

use std::collections::BTreeMap;

use minimq_client::Error;
use minimq_protocol::body::{Connection, ConsumerConnection, ConsumerRunningInfo};
use minimq_protocol::json::Flavour;
use minimq_protocol::version;
use serde_json::json;

use super::shape::{key_lines, value_of};
use crate::command::{CommandSpec, Outcome, flag, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::{Colour, Report};
use crate::text;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "consumerConnection",
        about: "Query consumer's socket connection, client version and subscription",
        example: "consumerConnection -g billing",
        options: &[
            required('g', "consumerGroup", "The consumer group"),
            optional('b', "brokerAddr", "The broker to ask, host:port"),
        ],
        danger: None,
        run: |given| Box::pin(connections(given)),
    },
    CommandSpec {
        name: "producerConnection",
        about: "Query producer's socket connection and client version",
        example: "producerConnection -g shop -t Orders",
        options: &[
            required('g', "producerGroup", "The producer group"),
            required('t', "topic", "A topic it sends to"),
        ],
        danger: None,
        run: |given| Box::pin(producer_connections(given)),
    },
    CommandSpec {
        name: "producer",
        about: "Query producer's instances, connection, status, etc.",
        example: "producer -b 127.0.0.1:10911",
        options: &[required('b', "broker", "The broker, host:port")],
        danger: None,
        run: |given| Box::pin(producers(given)),
    },
    CommandSpec {
        name: "consumerStatus",
        about: "Query consumer's internal data structure",
        example: "consumerStatus -g billing -i 127.0.0.1@4711",
        options: &[
            required('g', "consumerGroup", "The consumer group"),
            optional('i', "clientId", "One member"),
            optional('b', "brokerAddr", "The broker to ask for the members"),
            flag('s', "jstack", "With the stacks of its threads"),
        ],
        danger: None,
        run: |given| Box::pin(status(given)),
    },
];

/// What the brokers of a group say of its members, put together: a member that is connected to one of them is not missing.
async fn all_connections(given: &Given, group: &str) -> Result<ConsumerConnection, Failure> {
    let brokers: Vec<String> = match given.optional("brokerAddr") {
        Some(broker) => vec![given.broker_addr(broker).await?],
        None => {
            let brokers = given.admin.brokers_of_group(group).await?;
            brokers.into_iter().map(|(_, addr)| addr).collect()
        }
    };
    let answers = given
        .all(&brokers, |addr| {
            given.admin.consumer_connections(group, Some(addr))
        })
        .await;
    let (mut all, mut failed, mut found) = (ConsumerConnection::default(), None, false);
    for answer in answers {
        match answer {
            Ok(part) => {
                found = true;
                for one in part.connection_set {
                    let known = all.connection_set.iter();
                    if !known.clone().any(|c| c.client_id == one.client_id) {
                        all.connection_set.push(one);
                    }
                }
                all.subscription_table.extend(part.subscription_table);
                all.consume_type = all.consume_type.or(part.consume_type);
                all.message_model = all.message_model.or(part.message_model);
                all.consume_from_where = all.consume_from_where.or(part.consume_from_where);
            }
            Err(error) => failed = Some(error),
        }
    }
    all.connection_set
        .sort_by(|a, b| a.client_id.cmp(&b.client_id));
    match failed {
        Some(error) if !found => Err(error.into()),
        _ => Ok(all),
    }
}

fn language(connection: &Connection) -> String {
    connection.language.clone().unwrap_or_default()
}

async fn connections(given: &Given) -> Outcome {
    let found = all_connections(given, given.text("consumerGroup")?).await?;
    let clients = found.connection_set.iter().map(|c| {
        vec![
            c.client_id.clone(),
            c.client_addr.clone(),
            language(c),
            version::name(c.version).into_owned(),
        ]
    });
    let subscriptions = found
        .subscription_table
        .values()
        .map(|s| vec![s.topic.clone(), s.sub_string.clone()]);
    let shown = |value: Option<String>| value.unwrap_or_default();
    Ok(Report::new(value_of(&found.to_json(Flavour::Standard)))
        .table(
            &["#ClientId", "#ClientAddr", "#Language", "#Version"],
            clients,
        )
        .line("")
        .line("Below is subscription:")
        .table(&["#Topic", "#SubExpression"], subscriptions)
        .line("")
        .line(format!(
            "ConsumeType: {}",
            shown(found.consume_type.map(|t| t.to_string()))
        ))
        .line(format!(
            "MessageModel: {}",
            shown(found.message_model.map(|m| m.to_string()))
        ))
        .line(format!(
            "ConsumeFromWhere: {}",
            shown(found.consume_from_where.map(|w| w.to_string()))
        )))
}

async fn producer_connections(given: &Given) -> Outcome {
    let (group, topic) = (given.text("producerGroup")?, given.text("topic")?);
    let found = given.admin.producer_connections(group, topic).await?;
    let lines = found.connection_set.iter().enumerate().map(|(at, c)| {
        format!(
            "{:04}  {:<32}  {:<22}  {:<8}  {}",
            at + 1,
            c.client_id,
            c.client_addr,
            language(c),
            version::name(c.version)
        )
    });
    Ok(Report::new(value_of(&found.to_json(Flavour::Standard))).lines(lines))
}

async fn producers(given: &Given) -> Outcome {
    let addr = given.broker_addr(given.text("broker")?).await?;
    let found = given.admin.producers(&addr).await?;
    let mut lines = Vec::new();
    if found.data.is_empty() {
        lines.push(format!("no producer is connected to {addr}"));
    }
    for (group, members) in &found.data {
        if members.is_empty() {
            lines.push(format!("producer group ({group}) instances are empty"));
        }
        lines.extend(members.iter().map(|m| {
            format!(
                "producer group ({group}) instance : clientId={},remoteIP={}, language={}, version={}, lastUpdateTimestamp={}",
                m.client_id,
                m.remote_ip,
                m.language.as_deref().unwrap_or_default(),
                m.version,
                m.last_update_timestamp
            )
        }));
    }
    Ok(Report::new(value_of(&found.to_json(Flavour::Standard))).lines(lines))
}

/// Time without consumption from which a queue with messages counts as blocked, ms.
const BLOCKED_MS: i64 = 60_000;

async fn status(given: &Given) -> Outcome {
    let group = given.text("consumerGroup")?;
    let ids = match given.optional("clientId") {
        Some(id) => vec![id.to_owned()],
        None => {
            let members = all_connections(given, group).await?;
            let members = members.connection_set.into_iter();
            members.map(|member| member.client_id).collect()
        }
    };
    let answers = given
        .all(&ids, |id| {
            given.admin.running_info(group, id, given.flag("jstack"))
        })
        .await;
    let mut report = Report::default();
    let mut told: BTreeMap<&str, ConsumerRunningInfo> = BTreeMap::new();
    let mut failed: Option<Error> = None;
    for (id, answer) in ids.iter().zip(answers) {
        match answer {
            Ok(info) => {
                told.insert(id, info);
            }
            Err(error) => {
                report = report.partly(format!("{id}: {error}"));
                failed = Some(error);
            }
        }
    }
    if let (true, Some(error)) = (told.is_empty(), failed) {
        return Err(error.into());
    }
    let problems = problems(&told);
    let clients: Vec<_> = told
        .iter()
        .map(|(id, info)| json!({ "clientId": id, "info": value_of(&info.to_json(Flavour::Standard)) }))
        .collect();
    report = report.with_json(json!({ "group": group, "clients": clients, "problems": problems }));
    if given.optional("clientId").is_none() {
        let rows = told.iter().enumerate().map(|(at, (id, info))| {
            let version = info.properties.get(ConsumerRunningInfo::CLIENT_VERSION);
            vec![
                (at + 1).to_string(),
                (*id).to_owned(),
                version.cloned().unwrap_or_default(),
            ]
        });
        report = report
            .table(&["#Index", "#ClientId", "#Version"], rows)
            .line("");
        if problems.is_empty() {
            report = report
                .painted(
                    Colour::Green,
                    "Same subscription in the same group of consumer",
                )
                .painted(Colour::Green, "Rebalance OK");
        }
    }
    for problem in problems {
        report = report.painted(Colour::Yellow, problem);
    }
    for (id, info) in told {
        report = details(report.line("").line(format!("#Consumer {id}")), info);
    }
    Ok(report)
}

/// What is wrong among the members that told: different subscriptions, queues shared by two, queues that stand still.
fn problems(told: &BTreeMap<&str, ConsumerRunningInfo>) -> Vec<String> {
    let mut problems = Vec::new();
    let subscriptions = |info: &ConsumerRunningInfo| -> BTreeMap<String, String> {
        let all = info.subscription_set.iter();
        all.map(|s| (s.topic.clone(), s.sub_string.clone()))
            .collect()
    };
    let mut others = told.values().map(subscriptions);
    if let Some(first) = others.next()
        && others.any(|other| other != first)
    {
        problems.push("WARN: Different subscription in the same group of consumer!!!".to_owned());
    }
    let mut owners: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    let now = text::now_ms();
    for (id, info) in told {
        let shared = info
            .properties
            .get("messageModel")
            .is_none_or(|model| model != "BROADCASTING");
        let ordered = info
            .properties
            .get(ConsumerRunningInfo::CONSUME_ORDERLY)
            .is_some_and(|value| value == "true");
        for (queue, state) in &info.mq_table {
            if shared && !state.dropped {
                owners.entry(queue).or_default().push(id);
            }
            let since = now - state.last_consume_timestamp;
            if state.cached_msg_count > 0 && since > BLOCKED_MS {
                problems.push(format!(
                    "{id} {queue} can't consume for a while, maybe blocked, {since}ms"
                ));
            }
            let since = now - state.last_lock_timestamp;
            if ordered && !state.locked && since > BLOCKED_MS {
                problems.push(format!("{id} {queue} can't lock for a while, {since}ms"));
            }
            if ordered && state.try_unlock_times > 0 {
                problems.push(format!(
                    "{id} {queue} unlock {} times, still failed",
                    state.try_unlock_times
                ));
            }
        }
    }
    for (queue, ids) in owners {
        if ids.len() > 1 {
            problems.push(format!(
                "Rebalance Failed: {queue} is consumed by {}",
                ids.join(" and ")
            ));
        }
    }
    problems
}

/// The running information of one member.
fn details(report: Report, info: ConsumerRunningInfo) -> Report {
    let report = report
        .line("#Consumer Properties#")
        .lines(key_lines(&info.properties));
    let subscriptions = info.subscription_set.iter().map(|s| {
        vec![
            s.topic.clone(),
            s.class_filter_mode.to_string(),
            s.sub_string.clone(),
        ]
    });
    let queues = info.mq_table.iter().map(|(queue, state)| {
        vec![
            queue.topic.clone(),
            queue.broker_name.clone(),
            queue.queue_id.to_string(),
            state.commit_offset.to_string(),
            state.cached_msg_count.to_string(),
            state.locked.to_string(),
            text::time(state.last_pull_timestamp),
            text::time(state.last_consume_timestamp),
        ]
    });
    let speeds = info.status_table.iter().map(|(topic, speed)| {
        vec![
            topic.clone(),
            format!("{:.2}", speed.pull_rt),
            format!("{:.2}", speed.pull_tps),
            format!("{:.2}", speed.consume_rt),
            format!("{:.2}", speed.consume_ok_tps),
            format!("{:.2}", speed.consume_failed_tps),
            speed.consume_failed_msgs.to_string(),
        ]
    });
    let queue_headings = [
        "#Topic",
        "#Broker Name",
        "#QID",
        "#Offset",
        "#Cached",
        "#Locked",
        "#Last Pull",
        "#Last Consume",
    ];
    let speed_headings = [
        "#Topic",
        "#Pull RT",
        "#Pull TPS",
        "#Consume RT",
        "#ConsumeOK TPS",
        "#ConsumeFailed TPS",
        "#ConsumeFailedMsgsInHour",
    ];
    let mut report = report
        .line("#Consumer Subscription#")
        .table(&["#Topic", "#ClassFilter", "#SubExpression"], subscriptions)
        .line("#Consumer MQ Detail#")
        .table(&queue_headings, queues)
        .line("#Consumer RT&TPS#")
        .table(&speed_headings, speeds);
    if let Some(stacks) = info.jstack {
        report = report.line("#Consumer jstack#").line(stacks);
    }
    report
}
