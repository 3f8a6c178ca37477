//! Brokers and clusters: who is there, figures, settings, permissions, clean-ups.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::json;

use crate::command::{CommandSpec, Given, Outcome, default, flag, no_cluster, optional, required};
use crate::failure::Failure;
use crate::report::Report;

use super::{key_lines, pairs};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "clusterList",
        about: "List all of clusters",
        example: "clusterList",
        options: &[flag(
            'm',
            "moreStats",
            "Totals of yesterday and today instead of rates",
        )],
        danger: None,
        run: |given| Box::pin(clusters(given)),
    },
    CommandSpec {
        name: "brokerStatus",
        about: "Fetch broker runtime status data",
        example: "brokerStatus -b 127.0.0.1:10911",
        options: &[
            optional('b', "brokerAddr", "The broker, host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
        ],
        danger: None,
        run: |given| Box::pin(status(given)),
    },
    CommandSpec {
        name: "getBrokerConfig",
        about: "Get broker config by cluster or special broker!",
        example: "getBrokerConfig -b 127.0.0.1:10911",
        options: &[
            optional('b', "brokerAddr", "The broker, host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
        ],
        danger: None,
        run: |given| Box::pin(get_config(given)),
    },
    CommandSpec {
        name: "updateBrokerConfig",
        about: "Update broker's config",
        example: "updateBrokerConfig -b 127.0.0.1:10911 -k maxMessageSize -v 1048576",
        options: &[
            optional('b', "brokerAddr", "The broker, host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
            required('k', "key", "The key"),
            required('v', "value", "Its new value"),
        ],
        danger: None,
        run: |given| Box::pin(update_config(given)),
    },
    CommandSpec {
        name: "wipeWritePerm",
        about: "Wipe write perm of broker in all name server you defined in the -n param",
        example: "wipeWritePerm -b broker-a",
        options: &[required('b', "brokerName", "The broker's name")],
        danger: Some("keeps producers away from the broker"),
        run: |given| Box::pin(permission(given, false)),
    },
    CommandSpec {
        name: "addWritePerm",
        about: "Add write perm of broker in all name server you defined in the -n param",
        example: "addWritePerm -b broker-a",
        options: &[required('b', "brokerName", "The broker's name")],
        danger: None,
        run: |given| Box::pin(permission(given, true)),
    },
    CommandSpec {
        name: "cleanExpiredCQ",
        about: "Clean expired ConsumeQueue on broker.",
        example: "cleanExpiredCQ -b 127.0.0.1:10911",
        options: &[
            optional(
                'b',
                "brokerAddr",
                "The broker, host:port; without -b and -c: all",
            ),
            optional('c', "cluster", "All masters of this cluster"),
        ],
        danger: None,
        run: |given| Box::pin(clean(given, Clean::ExpiredQueues)),
    },
    CommandSpec {
        name: "cleanUnusedTopic",
        about: "Clean unused topic on broker.",
        example: "cleanUnusedTopic -b 127.0.0.1:10911",
        options: &[
            optional(
                'b',
                "brokerAddr",
                "The broker, host:port; without -b and -c: all",
            ),
            optional('c', "cluster", "All masters of this cluster"),
        ],
        danger: Some("deletes the queues of topics that no broker has any more"),
        run: |given| Box::pin(clean(given, Clean::UnusedTopics)),
    },
    CommandSpec {
        name: "deleteExpiredCommitLog",
        about: "Delete expired CommitLog files",
        example: "deleteExpiredCommitLog -b 127.0.0.1:10911",
        options: &[
            optional(
                'b',
                "brokerAddr",
                "The broker, host:port; without -b and -c: all",
            ),
            optional('c', "cluster", "All masters of this cluster"),
        ],
        danger: Some("deletes commit-log files older than fileReservedTime now"),
        run: |given| Box::pin(clean(given, Clean::ExpiredLog)),
    },
    CommandSpec {
        name: "brokerConsumeStats",
        about: "Fetch broker consume stats data",
        example: "brokerConsumeStats -b 127.0.0.1:10911 -l 100",
        options: &[
            required('b', "brokerAddr", "The broker, host:port"),
            default('l', "level", "0", "Smallest difference shown"),
            default('o', "order", "false", "Ordered topics only"),
        ],
        danger: None,
        run: |given| Box::pin(consume_stats(given)),
    },
];

/// The first of the numbers of a rate, as "12.3 12.1 11.9".
fn first_rate(table: &BTreeMap<String, String>, key: &str) -> f64 {
    table
        .get(key)
        .and_then(|text| text.split_whitespace().next())
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0)
}

fn number(table: &BTreeMap<String, String>, key: &str) -> i64 {
    table
        .get(key)
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

async fn clusters(given: &Given) -> Outcome {
    let info = given.admin.cluster_info().await?;
    let mut brokers = Vec::new();
    for (cluster, names) in &info.cluster_addr_table {
        for name in names {
            for (id, addr) in info
                .broker_addr_table
                .get(name)
                .into_iter()
                .flat_map(|b| &b.broker_addrs)
            {
                brokers.push((cluster.clone(), name.clone(), *id, addr.clone()));
            }
        }
    }
    brokers.sort();
    let tables = join_all(
        brokers
            .iter()
            .map(|(_, _, _, addr)| given.admin.broker_runtime(addr)),
    )
    .await;
    let (mut rows, mut json, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let more = given.flag("moreStats");
    for ((cluster, name, id, addr), table) in brokers.into_iter().zip(tables) {
        let reached = table.is_ok();
        let table = table.unwrap_or_else(|error| {
            missing.push(format!("broker {name} at {addr}: {error}"));
            BTreeMap::new()
        });
        let (put, get) = (
            first_rate(&table, "putTps"),
            first_rate(&table, "getTransferedTps"),
        );
        let n = |key: &str| number(&table, key);
        let yesterday = |kind: &str| {
            n(&format!("msg{kind}TotalTodayMorning"))
                - n(&format!("msg{kind}TotalYesterdayMorning"))
        };
        let today = |kind: &str| {
            n(&format!("msg{kind}TotalTodayNow")) - n(&format!("msg{kind}TotalTodayMorning"))
        };
        let version = table.get("brokerVersionDesc").cloned().unwrap_or_default();
        let space = table
            .get("commitLogDiskRatio")
            .and_then(|t| t.parse::<f64>().ok())
            .unwrap_or(0.0);
        json.push(json!({
            "cluster": cluster, "broker": name, "id": id, "addr": addr, "reached": reached, "version": version,
            "inTps": put, "outTps": get, "diskRatio": space, "inToday": today("Put"), "outToday": today("Get"),
            "inYesterday": yesterday("Put"), "outYesterday": yesterday("Get"),
        }));
        rows.push(if more {
            let totals = [
                yesterday("Put"),
                yesterday("Get"),
                today("Put"),
                today("Get"),
            ];
            let mut row = vec![cluster, name];
            row.extend(totals.map(|total| total.to_string()));
            row
        } else {
            let load = |rate: f64, pool: &str| {
                format!(
                    "{rate:.2}({},{}ms)",
                    n(&format!("{pool}ThreadPoolQueueSize")),
                    n(&format!("{pool}ThreadPoolQueueHeadWaitTimeMills"))
                )
            };
            let earliest = n("earliestMessageTimeStamp");
            let now = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap_or_default();
            let hours = if earliest > 0 {
                (now.as_millis() as f64 - earliest as f64) / 3_600_000.0
            } else {
                0.0
            };
            vec![
                cluster,
                name,
                id.to_string(),
                addr,
                version,
                load(put, "send"),
                load(get, "pull"),
                n("pageCacheLockTimeMills").to_string(),
                format!("{hours:.2}"),
                format!("{space:.4}"),
            ]
        });
    }
    let headings: &[&str] = if more {
        &[
            "#Cluster Name",
            "#Broker Name",
            "#InTotalYest",
            "#OutTotalYest",
            "#InTotalToday",
            "#OutTotalToday",
        ]
    } else {
        &[
            "#Cluster Name",
            "#Broker Name",
            "#BID",
            "#Addr",
            "#Version",
            "#InTPS(LOAD)",
            "#OutTPS(LOAD)",
            "#PCWait(ms)",
            "#Hour",
            "#SPACE",
        ]
    };
    let report = Report::new(json.into()).table(headings, rows);
    Ok(missing.into_iter().fold(report, Report::partly))
}

async fn status(given: &Given) -> Outcome {
    let brokers = given.brokers().await?;
    let (mut json, mut report) = (serde_json::Map::new(), Report::default());
    for addr in &brokers {
        let table = given.admin.broker_runtime(addr).await?;
        for line in key_lines(&table) {
            report = report.line(if brokers.len() > 1 {
                format!("{addr:<24} {line}")
            } else {
                line
            });
        }
        json.insert(addr.clone(), json!(table));
    }
    let text = report.to_text();
    Ok(Report::new(json.into()).line(text.trim_end()))
}

async fn get_config(given: &Given) -> Outcome {
    let brokers = given.brokers().await?;
    let (mut json, mut report) = (serde_json::Map::new(), Report::default());
    for addr in &brokers {
        let table = pairs(&given.admin.broker_config(addr).await?);
        report = report.line(format!("============{addr}============"));
        report = table.iter().fold(report, |report, (key, value)| {
            report.line(format!("{key:<50}=  {value}"))
        });
        json.insert(addr.clone(), json!(table));
    }
    let text = report.to_text();
    Ok(Report::new(json.into()).line(text.trim_end()))
}

async fn update_config(given: &Given) -> Outcome {
    let (key, value) = (given.text("key")?, given.text("value")?);
    let settings = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let brokers = given.brokers().await?;
    let mut report = Report::new(json!({ "key": key, "value": value, "brokers": brokers }));
    for addr in &brokers {
        given.admin.update_broker_config(addr, &settings).await?;
        report = report.line(format!("update broker config success, {addr}"));
    }
    Ok(report)
}

async fn permission(given: &Given, add: bool) -> Outcome {
    let broker = given.text("brokerName")?;
    let verb = if add { "add" } else { "wipe" };
    let (mut json, mut report, mut failed) = (Vec::new(), Report::default(), None);
    for server in given.admin.name_servers() {
        let changed = if add {
            given.admin.add_write_permission(&server, broker).await
        } else {
            given.admin.wipe_write_permission(&server, broker).await
        };
        match changed {
            Ok(topics) => {
                json.push(json!({ "nameServer": server, "topics": topics }));
                report = report.line(format!(
                    "{verb} write perm of broker[{broker}] in name server[{server}] OK, {topics}"
                ));
            }
            Err(error) => {
                report = report.partly(format!(
                    "{verb} write perm of broker[{broker}] in name server[{server}] Failed: {error}"
                ));
                failed = Some(error);
            }
        }
    }
    match failed {
        Some(error) if json.is_empty() => Err(error.into()),
        _ => {
            let (text, missing) = (report.to_text(), report.missing().to_vec());
            let report = Report::new(json.into()).line(text.trim_end());
            Ok(missing.into_iter().fold(report, Report::partly))
        }
    }
}

#[derive(Clone, Copy)]
enum Clean {
    ExpiredQueues,
    UnusedTopics,
    ExpiredLog,
}

async fn clean(given: &Given, what: Clean) -> Outcome {
    let brokers = match (given.optional("brokerAddr"), given.optional("cluster")) {
        (None, None) => {
            let info = given.admin.cluster_info().await?;
            info.broker_addr_table
                .into_values()
                .flat_map(|b| b.broker_addrs.into_values())
                .collect()
        }
        (Some(addr), _) => vec![addr.to_owned()],
        (None, Some(cluster)) => given
            .admin
            .masters_of_cluster(cluster)
            .await?
            .into_iter()
            .map(|(_, a)| a)
            .collect(),
    };
    if brokers.is_empty() {
        return Err(given.optional("cluster").map_or_else(
            || Failure::NotFound("no broker is registered".to_owned()),
            no_cluster,
        ));
    }
    let mut report = Report::new(json!({ "brokers": brokers }));
    for addr in &brokers {
        match what {
            Clean::ExpiredQueues => given.admin.clean_expired_queues(addr).await?,
            Clean::UnusedTopics => given.admin.clean_unused_topics(addr).await?,
            Clean::ExpiredLog => given.admin.delete_expired_commit_log(addr).await?,
        }
        report = report.line(format!("success {addr}"));
    }
    Ok(report.line("success"))
}

async fn consume_stats(given: &Given) -> Outcome {
    let level: i64 = given.number("level")?;
    let stats = given
        .admin
        .broker_consume_stats(given.text("brokerAddr")?, given.boolean("order")?)
        .await?;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    let groups = stats.consume_stats_list.iter().flatten();
    for (group, tables) in groups {
        for (queue, offsets) in tables.iter().flat_map(|table| &table.offset_table) {
            let diff = offsets.broker_offset - offsets.consumer_offset;
            if diff < level {
                continue;
            }
            json.push(json!({
                "group": group, "topic": queue.topic, "broker": queue.broker_name, "queueId": queue.queue_id,
                "brokerOffset": offsets.broker_offset, "consumerOffset": offsets.consumer_offset, "diff": diff,
            }));
            rows.push(vec![
                queue.topic.clone(),
                group.clone(),
                queue.broker_name.clone(),
                queue.queue_id.to_string(),
                offsets.broker_offset.to_string(),
                offsets.consumer_offset.to_string(),
                diff.to_string(),
                crate::text::time(offsets.last_timestamp),
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
