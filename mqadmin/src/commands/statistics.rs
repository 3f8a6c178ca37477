//! Figures of brokers: how far groups are behind, and the rates of topics and groups.

use std::time::Duration;

use minimq_client::Error;
use minimq_protocol::body::BrokerStatsData;
use minimq_protocol::name;
use serde_json::json;

use crate::command::{CommandSpec, Outcome, default, flag, optional, required};
use crate::given::Given;
use crate::report::Report;
use crate::text;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "brokerConsumeStats",
        about: "Fetch broker consume stats data",
        example: "brokerConsumeStats -b 127.0.0.1:10911 -l 100",
        options: &[
            required('b', "brokerAddr", "The broker, name or host:port"),
            optional(
                't',
                "timeoutMillis",
                "Time for the request, ms [default: 50000]",
            ),
            default('l', "level", "0", "Smallest difference shown"),
            default('o', "order", "false", "Ordered topics only"),
        ],
        danger: None,
        run: |given| Box::pin(consume_stats(given)),
    },
    CommandSpec {
        name: "statsAll",
        about: "Topic and Consumer tps stats",
        example: "statsAll -t Orders",
        options: &[
            flag(
                'a',
                "activeTopic",
                "Only topics with messages in the last day",
            ),
            optional('t', "topic", "Only this topic"),
        ],
        danger: None,
        run: |given| Box::pin(stats_all(given)),
    },
];

async fn consume_stats(given: &Given) -> Outcome {
    let level: i64 = given.number("level")?;
    let ordered = given.boolean("order")?;
    let addr = given.broker_addr(given.text("brokerAddr")?).await?;
    let timeout = given.optional_number("timeoutMillis")?.unwrap_or(50_000);
    // It is a request that gets three times as much as others.
    let admin = given
        .admin
        .clone()
        .timeout(Duration::from_millis(timeout) / 3);
    let stats = admin.broker_consume_stats(&addr, ordered).await?;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    let groups = stats.consume_stats_list.iter().flatten();
    for (group, tables) in groups {
        for (queue, offsets) in tables.iter().flat_map(|table| &table.offset_table) {
            let diff = offsets.broker_offset - offsets.consumer_offset;
            // A queue that was never consumed has no time and is left out.
            if diff < level || offsets.last_timestamp <= 0 {
                continue;
            }
            json.push(json!({
                "group": group, "topic": queue.topic, "broker": queue.broker_name, "queueId": queue.queue_id,
                "brokerOffset": offsets.broker_offset, "consumerOffset": offsets.consumer_offset, "diff": diff, "lastTime": offsets.last_timestamp,
            }));
            rows.push(vec![
                queue.topic.clone(),
                group.clone(),
                queue.broker_name.clone(),
                queue.queue_id.to_string(),
                offsets.broker_offset.to_string(),
                offsets.consumer_offset.to_string(),
                diff.to_string(),
                text::time(offsets.last_timestamp),
            ]);
        }
    }
    let headings = [
        "#Topic",
        "#Group",
        "#Broker Name",
        "#QID",
        "#Broker Offset",
        "#Consumer Offset",
        "#Diff",
        "#LastTime",
    ];
    Ok(
        Report::new(json!({ "queues": json, "diffTotal": stats.total_diff }))
            .table(&headings, rows)
            .line("")
            .line(format!("Diff Total: {}", stats.total_diff)),
    )
}

/// A rate and what came of it in a day.
#[derive(Debug, Default, Clone, Copy)]
struct Rate {
    tps: f64,
    day: i64,
}

/// A topic's figures in one group.
struct TopicInGroup {
    group: String,
    diff: Option<i64>,
    out: Rate,
}

impl Rate {
    fn add(self, data: &BrokerStatsData) -> Self {
        // The longest time that something was counted in.
        let day = [&data.stats_day, &data.stats_hour, &data.stats_minute]
            .into_iter()
            .map(|item| item.sum)
            .find(|sum| *sum != 0);
        Self {
            tps: self.tps + data.stats_minute.tps,
            day: self.day + day.unwrap_or(0),
        }
    }
}

/// A figure of all masters of a topic; one without it counts as nothing.
async fn rate(given: &Given, masters: &[String], kind: &str, key: &str) -> Rate {
    let answers = given
        .all(masters, |addr| given.admin.broker_stats(addr, kind, key))
        .await;
    answers
        .iter()
        .filter_map(|answer| answer.as_ref().ok())
        .fold(Rate::default(), Rate::add)
}

async fn stats_of_topic(given: &Given, topic: &str) -> Result<(Rate, Vec<TopicInGroup>), Error> {
    let route = given.admin.topic_route(topic).await?;
    let masters: Vec<String> = route
        .data
        .broker_datas
        .iter()
        .filter_map(|broker| broker.broker_addrs.get(&0).cloned())
        .collect();
    let incoming = rate(given, &masters, "TOPIC_PUT_NUMS", topic).await;
    let mut groups = Vec::new();
    let mut names = given.admin.groups_of_topic(topic).await?;
    names.sort();
    for group in names {
        let key = format!("{topic}@{group}");
        let out = rate(given, &masters, "GROUP_GET_NUMS", &key).await;
        let stats = given.admin.consume_stats(&group, Some(topic)).await.ok();
        let diff = stats.map(|stats| {
            let offsets = stats.offset_table.values();
            offsets.map(|o| o.broker_offset - o.consumer_offset).sum()
        });
        groups.push(TopicInGroup { group, diff, out });
    }
    Ok((incoming, groups))
}

async fn stats_all(given: &Given) -> Outcome {
    let topics = match given.optional("topic") {
        Some(topic) => {
            given.admin.topic_route(topic).await?;
            vec![topic.to_owned()]
        }
        None => {
            let mut topics = given.admin.topics().await?;
            topics.retain(|topic| {
                !topic.starts_with(name::RETRY_PREFIX) && !topic.starts_with(name::DLQ_PREFIX)
            });
            topics.sort();
            topics
        }
    };
    let answers = given
        .all(&topics, |topic| stats_of_topic(given, topic))
        .await;
    let (mut rows, mut json, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (topic, answer) in topics.into_iter().zip(answers) {
        let (incoming, groups) = match answer {
            Ok(found) => found,
            // Names of clusters are topics without a route of their own.
            Err(Error::TopicNotFound { .. }) if given.optional("topic").is_none() => continue,
            Err(error) => {
                missing.push(format!("{topic}: {error}"));
                continue;
            }
        };
        let out: i64 = groups.iter().map(|one| one.out.day).sum();
        if given.flag("activeTopic") && incoming.day + out == 0 {
            continue;
        }
        let mut row = |group: &str, diff: Option<i64>, out: Option<Rate>| {
            json.push(json!({
                "topic": topic, "group": (!group.is_empty()).then_some(group), "accumulation": diff,
                "inTps": incoming.tps, "outTps": out.map(|out| out.tps),
                "inDay": incoming.day, "outDay": out.map(|out| out.day),
            }));
            rows.push(vec![
                topic.clone(),
                group.to_owned(),
                diff.map_or("N/A".to_owned(), |diff| diff.to_string()),
                format!("{:.2}", incoming.tps),
                out.map_or(String::new(), |out| format!("{:.2}", out.tps)),
                incoming.day.to_string(),
                out.map_or("NO_CONSUMER".to_owned(), |out| out.day.to_string()),
            ]);
        };
        if groups.is_empty() {
            row("", Some(0), None);
        }
        for one in &groups {
            row(&one.group, one.diff, Some(one.out));
        }
    }
    let headings = [
        "#Topic",
        "#Consumer Group",
        "#Accumulation",
        "#InTPS",
        "#OutTPS",
        "#InMsg24Hour",
        "#OutMsg24Hour",
    ];
    Ok(Report::new(json.into())
        .table(&headings, rows)
        .missing(missing))
}
