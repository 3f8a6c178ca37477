//! Consumer and producer groups: settings, members, progress.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use minimq_protocol::body::{ConsumeStats, MessageModel, SubscriptionGroupConfig};
use minimq_protocol::{name, version};
use serde_json::json;

use crate::command::{CommandSpec, Given, Outcome, default, flag, optional, required};
use crate::failure::Failure;
use crate::report::Report;
use crate::text;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "updateSubGroup",
        about: "Update or create subscription group",
        example: "updateSubGroup -c DefaultCluster -g billing -r 3",
        options: &[
            optional('b', "brokerAddr", "The broker, host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
            required('g', "groupName", "The consumer group"),
            default('s', "consumeEnable", "true", "May consume at all"),
            default(
                'm',
                "consumeFromMinEnable",
                "true",
                "May begin at the smallest offset",
            ),
            default(
                'd',
                "consumeBroadcastEnable",
                "true",
                "May consume as broadcast",
            ),
            default('q', "retryQueueNums", "1", "Queues of the retry topic"),
            default(
                'r',
                "retryMaxTimes",
                "16",
                "Deliveries before a message is a dead letter",
            ),
            default('i', "brokerId", "0", "Broker id to read from"),
            default(
                'w',
                "whichBrokerWhenConsumeSlowly",
                "1",
                "Broker id suggested when far behind",
            ),
            default(
                'a',
                "notifyConsumerIdsChanged",
                "true",
                "Tell members of changes",
            ),
        ],
        danger: None,
        run: |given| Box::pin(update(given)),
    },
    CommandSpec {
        name: "deleteSubGroup",
        about: "Delete subscription group from broker.",
        example: "deleteSubGroup -c DefaultCluster -g billing",
        options: &[
            optional('b', "brokerAddr", "The broker, host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
            required('g', "groupName", "The consumer group"),
            default('r', "removeOffset", "false", "Delete its offsets too"),
        ],
        danger: Some("deletes the consumer group"),
        run: |given| Box::pin(delete(given)),
    },
    CommandSpec {
        name: "getConsumerConfig",
        about: "Get consumer config by subscription group name!",
        example: "getConsumerConfig -g billing",
        options: &[required('g', "groupName", "The consumer group")],
        danger: None,
        run: |given| Box::pin(config(given)),
    },
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
        name: "consumerProgress",
        about: "Query consumers's progress, speed",
        example: "consumerProgress -g billing",
        options: &[
            optional(
                'g',
                "groupName",
                "One group, queue by queue; without it all groups",
            ),
            default(
                's',
                "showClientIP",
                "false",
                "With the client of each queue",
            ),
        ],
        danger: None,
        run: |given| Box::pin(progress(given)),
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

async fn update(given: &Given) -> Outcome {
    let group = SubscriptionGroupConfig {
        consume_enable: given.boolean("consumeEnable")?,
        consume_from_min_enable: given.boolean("consumeFromMinEnable")?,
        consume_broadcast_enable: given.boolean("consumeBroadcastEnable")?,
        retry_queue_nums: given.number("retryQueueNums")?,
        retry_max_times: given.number("retryMaxTimes")?,
        broker_id: given.number("brokerId")?,
        which_broker_when_consume_slowly: given.number("whichBrokerWhenConsumeSlowly")?,
        notify_consumer_ids_changed_enable: given.boolean("notifyConsumerIdsChanged")?,
        ..SubscriptionGroupConfig::new(given.text("groupName")?)
    };
    let brokers = given.brokers().await?;
    let mut report = Report::new(json!({ "group": group.group_name, "brokers": brokers }));
    for addr in &brokers {
        given.admin.create_group(addr, &group).await?;
        report = report.line(format!("create subscription group to {addr} success."));
    }
    Ok(report)
}

async fn delete(given: &Given) -> Outcome {
    let (group, offsets) = (given.text("groupName")?, given.boolean("removeOffset")?);
    let brokers = given.brokers().await?;
    let mut report = Report::new(json!({ "group": group, "brokers": brokers }));
    for addr in &brokers {
        given.admin.delete_group(addr, group, offsets).await?;
        report = report.line(format!(
            "delete subscription group [{group}] from broker [{addr}] success."
        ));
    }
    Ok(report)
}

async fn config(given: &Given) -> Outcome {
    let group = given.text("groupName")?;
    let info = given.admin.cluster_info().await?;
    let (mut json, mut report) = (Vec::new(), Report::default());
    for broker in info.broker_addr_table.values() {
        let Some(addr) = broker.broker_addrs.get(&0) else {
            continue;
        };
        let Some(found) = given.admin.group_config(addr, group).await? else {
            continue;
        };
        let bytes = found.to_json(minimq_protocol::json::Flavour::Standard);
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        report = report.line(format!("broker {} ({addr})", broker.broker_name));
        for (key, value) in value.as_object().into_iter().flatten() {
            report = report.line(format!("  {key:<32} = {value}"));
        }
        json.push(json!({ "broker": broker.broker_name, "config": value }));
    }
    if json.is_empty() {
        return Err(Failure::NotFound(format!(
            "no broker knows consumer group {group}"
        )));
    }
    let text = report.to_text();
    Ok(Report::new(json.into()).line(text.trim_end()))
}

fn language(language: &Option<String>) -> String {
    language.clone().unwrap_or_default()
}

async fn connections(given: &Given) -> Outcome {
    let group = given.text("consumerGroup")?;
    let found = given
        .admin
        .consumer_connections(group, given.optional("brokerAddr"))
        .await?;
    let bytes = found.to_json(minimq_protocol::json::Flavour::Standard);
    let json = serde_json::from_slice(&bytes).unwrap_or_default();
    let clients = found.connection_set.iter().map(|c| {
        vec![
            c.client_id.clone(),
            c.client_addr.clone(),
            language(&c.language),
            version::name(c.version).into_owned(),
        ]
    });
    let subscriptions = found
        .subscription_table
        .values()
        .map(|s| vec![s.topic.clone(), s.sub_string.clone()]);
    let shown = |value: Option<String>| value.unwrap_or_default();
    Ok(Report::new(json)
        .table(
            &["#ClientId", "#ClientAddr", "#Language", "#Version"],
            clients.collect(),
        )
        .line("")
        .line("Below is subscription:")
        .table(&["#Topic", "#SubExpression"], subscriptions.collect())
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
    let found = given
        .admin
        .producer_connections(given.text("producerGroup")?, given.text("topic")?)
        .await?;
    let bytes = found.to_json(minimq_protocol::json::Flavour::Standard);
    let rows = found.connection_set.iter().map(|c| {
        vec![
            c.client_id.clone(),
            c.client_addr.clone(),
            language(&c.language),
            version::name(c.version).into_owned(),
        ]
    });
    Ok(
        Report::new(serde_json::from_slice(&bytes).unwrap_or_default()).table(
            &["#ClientId", "#ClientAddr", "#Language", "#Version"],
            rows.collect(),
        ),
    )
}

async fn producers(given: &Given) -> Outcome {
    let found = given.admin.producers(given.text("broker")?).await?;
    let bytes = found.to_json(minimq_protocol::json::Flavour::Standard);
    let rows = found.data.iter().flat_map(|(group, members)| {
        members.iter().map(move |m| {
            vec![
                group.clone(),
                m.client_id.clone(),
                m.remote_ip.clone(),
                language(&m.language),
                version::name(m.version).into_owned(),
                text::time(m.last_update_timestamp),
            ]
        })
    });
    let headings = [
        "#Group",
        "#ClientId",
        "#ClientAddr",
        "#Language",
        "#Version",
        "#Last Heartbeat",
    ];
    Ok(
        Report::new(serde_json::from_slice(&bytes).unwrap_or_default())
            .table(&headings, rows.collect()),
    )
}

/// Which client has which queue, of the members that tell.
async fn owners(
    given: &Given,
    group: &str,
) -> BTreeMap<minimq_protocol::body::MessageQueue, String> {
    let mut owners = BTreeMap::new();
    for id in given
        .admin
        .consumer_ids(group, None)
        .await
        .unwrap_or_default()
    {
        if let Ok(info) = given.admin.running_info(group, &id, false).await {
            owners.extend(info.mq_table.into_keys().map(|queue| (queue, id.clone())));
        }
    }
    owners
}

async fn progress(given: &Given) -> Outcome {
    let Some(group) = given.optional("groupName") else {
        return progress_of_all(given).await;
    };
    let stats = given.admin.consume_stats(group, None).await?;
    let owners = if given.boolean("showClientIP")? {
        owners(given, group).await
    } else {
        BTreeMap::new()
    };
    let mut total = 0;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (queue, offsets) in &stats.offset_table {
        let diff = offsets.broker_offset - offsets.consumer_offset;
        total += diff;
        let owner = owners.get(queue).cloned().unwrap_or_default();
        json.push(json!({
            "topic": queue.topic, "broker": queue.broker_name, "queueId": queue.queue_id,
            "brokerOffset": offsets.broker_offset, "consumerOffset": offsets.consumer_offset, "diff": diff,
            "lastTime": offsets.last_timestamp, "client": owner,
        }));
        rows.push(vec![
            queue.topic.clone(),
            queue.broker_name.clone(),
            queue.queue_id.to_string(),
            offsets.broker_offset.to_string(),
            offsets.consumer_offset.to_string(),
            diff.to_string(),
            text::time(offsets.last_timestamp),
            owner,
        ]);
    }
    let headings = [
        "#Topic",
        "#Broker Name",
        "#QID",
        "#Broker Offset",
        "#Consumer Offset",
        "#Diff",
        "#LastTime",
        "#Client IP",
    ];
    let shown = if owners.is_empty() {
        &headings[..7]
    } else {
        &headings[..]
    };
    let tps = stats.consume_tps;
    Ok(Report::new(
        json!({ "group": group, "queues": json, "diffTotal": total, "consumeTps": tps }),
    )
    .table(shown, rows)
    .line("")
    .line(format!("Consume TPS: {tps:.2}"))
    .line(format!("Diff Total: {total}")))
}

/// Groups that every broker has.
fn is_shown(group: &str) -> bool {
    !name::is_system_group(group)
        && !["TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"].contains(&group)
        && !group.starts_with("CID_ONS")
}

async fn progress_of_all(given: &Given) -> Outcome {
    let info = given.admin.cluster_info().await?;
    let masters: Vec<String> = info
        .broker_addr_table
        .values()
        .filter_map(|broker| broker.broker_addrs.get(&0).cloned())
        .collect();
    let mut groups = BTreeSet::new();
    let mut report = Report::default();
    for (addr, known) in masters
        .iter()
        .zip(join_all(masters.iter().map(|addr| given.admin.groups(addr))).await)
    {
        match known {
            Ok(known) => groups.extend(
                known
                    .subscription_group_table
                    .into_keys()
                    .filter(|group| is_shown(group)),
            ),
            Err(error) => report = report.partly(format!("{addr}: {error}")),
        }
    }
    let groups: Vec<String> = groups.into_iter().collect();
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for part in groups.chunks(32) {
        let all = part.iter().map(|group| async {
            let stats = given
                .admin
                .consume_stats(group, None)
                .await
                .unwrap_or_else(|_| ConsumeStats::default());
            (
                stats,
                given.admin.consumer_connections(group, None).await.ok(),
            )
        });
        for (group, (stats, online)) in part.iter().zip(join_all(all).await) {
            let diff: i64 = stats
                .offset_table
                .values()
                .map(|o| o.broker_offset - o.consumer_offset)
                .sum();
            let count = online.as_ref().map_or(0, |c| c.connection_set.len());
            let newest = online
                .as_ref()
                .and_then(|c| c.connection_set.iter().map(|c| c.version).max());
            let version = newest.map_or("OFFLINE".to_owned(), |v| version::name(v).into_owned());
            let model = online.as_ref().and_then(|c| c.message_model);
            let kind = online.as_ref().and_then(|c| c.consume_type).map(|kind| {
                if kind == minimq_protocol::body::ConsumeType::ConsumeActively {
                    "PULL"
                } else {
                    "PUSH"
                }
            });
            json.push(json!({
                "group": group, "count": count, "version": version, "type": kind,
                "model": model.map(|m: MessageModel| m.to_string()), "tps": stats.consume_tps, "diffTotal": diff,
            }));
            rows.push(vec![
                group.clone(),
                count.to_string(),
                version,
                kind.unwrap_or_default().to_owned(),
                model.map(|m| m.to_string()).unwrap_or_default(),
                format!("{:.0}", stats.consume_tps),
                diff.to_string(),
            ]);
        }
    }
    let missing = report.missing().to_vec();
    let headings = [
        "#Group",
        "#Count",
        "#Version",
        "#Type",
        "#Model",
        "#TPS",
        "#Diff Total",
    ];
    let report = Report::new(json.into()).table(&headings, rows);
    Ok(missing.into_iter().fold(report, Report::partly))
}

async fn status(given: &Given) -> Outcome {
    let group = given.text("consumerGroup")?;
    let ids = match given.optional("clientId") {
        Some(id) => vec![id.to_owned()],
        None => {
            given
                .admin
                .consumer_ids(group, given.optional("brokerAddr"))
                .await?
        }
    };
    let (mut json, mut report) = (Vec::new(), Report::default());
    for id in ids {
        let info = match given
            .admin
            .running_info(group, &id, given.flag("jstack"))
            .await
        {
            Ok(info) => info,
            Err(error) => {
                report = report.partly(format!("{id}: {error}"));
                continue;
            }
        };
        let bytes = info.to_json(minimq_protocol::json::Flavour::Standard);
        json.push(json!({ "clientId": id, "info": serde_json::from_slice::<serde_json::Value>(&bytes).unwrap_or_default() }));
        report = report.line(format!("#Consumer {id}"));
        for line in super::key_lines(&info.properties) {
            report = report.line(format!("  {line}"));
        }
        let rows = info.mq_table.iter().map(|(queue, state)| {
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
        let headings = [
            "#Topic",
            "#Broker Name",
            "#QID",
            "#Offset",
            "#Cached",
            "#Locked",
            "#Last Pull",
            "#Last Consume",
        ];
        report = report.table(&headings, rows.collect());
        if let Some(stacks) = info.jstack {
            report = report.line(stacks);
        }
    }
    let (text, missing) = (report.to_text(), report.missing().to_vec());
    let report = Report::new(json.into()).line(text.trim_end());
    Ok(missing.into_iter().fold(report, Report::partly))
}
