//! Consumer groups: their settings.

use minimq_client::Error;
use minimq_protocol::body::SubscriptionGroupConfig;
use minimq_protocol::json::Flavour;
use minimq_protocol::name;
use serde_json::json;

use super::shape::value_of;
use crate::command::{CommandSpec, Kind, Outcome, default, long, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "updateSubGroup",
        about: "Update or create subscription group",
        example: "updateSubGroup -c DefaultCluster -g billing -r 3",
        options: &[
            optional('b', "brokerAddr", "The broker, name or host:port"),
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
            long(
                "patch",
                Kind::Flag,
                "Changes the settings given and leaves the others as they are",
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
            optional('b', "brokerAddr", "The broker, name or host:port"),
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
];

fn describe(group: &SubscriptionGroupConfig) -> String {
    format!(
        "SubscriptionGroupConfig [groupName={}, consumeEnable={}, consumeFromMinEnable={}, consumeBroadcastEnable={}, retryQueueNums={}, retryMaxTimes={}, brokerId={}, whichBrokerWhenConsumeSlowly={}, notifyConsumerIdsChangedEnable={}]",
        group.group_name,
        group.consume_enable,
        group.consume_from_min_enable,
        group.consume_broadcast_enable,
        group.retry_queue_nums,
        group.retry_max_times,
        group.broker_id,
        group.which_broker_when_consume_slowly,
        group.notify_consumer_ids_changed_enable
    )
}

/// `base` with the options: all of them, or only those that were given.
fn changed(
    given: &Given,
    base: SubscriptionGroupConfig,
    all: bool,
) -> Result<SubscriptionGroupConfig, Failure> {
    let mut group = base;
    let wanted = |long: &str| all || given.was_given(long);
    if wanted("consumeEnable") {
        group.consume_enable = given.boolean("consumeEnable")?;
    }
    if wanted("consumeFromMinEnable") {
        group.consume_from_min_enable = given.boolean("consumeFromMinEnable")?;
    }
    if wanted("consumeBroadcastEnable") {
        group.consume_broadcast_enable = given.boolean("consumeBroadcastEnable")?;
    }
    if wanted("retryQueueNums") {
        group.retry_queue_nums = given.number("retryQueueNums")?;
    }
    if wanted("retryMaxTimes") {
        group.retry_max_times = given.number("retryMaxTimes")?;
    }
    if wanted("brokerId") {
        group.broker_id = given.number("brokerId")?;
    }
    if wanted("whichBrokerWhenConsumeSlowly") {
        group.which_broker_when_consume_slowly = given.number("whichBrokerWhenConsumeSlowly")?;
    }
    if wanted("notifyConsumerIdsChanged") {
        group.notify_consumer_ids_changed_enable = given.boolean("notifyConsumerIdsChanged")?;
    }
    Ok(group)
}

async fn update(given: &Given) -> Outcome {
    let name = given.text("groupName")?;
    let patch = given.flag("patch");
    let whole = changed(given, SubscriptionGroupConfig::new(name), true)?;
    let brokers = given.brokers().await?;
    let (done, missing) = given
        .each(&brokers, |addr| {
            let whole = &whole;
            async move {
                let group = match given.admin.group_config(addr, name).await {
                    Ok(Some(old)) if patch => {
                        changed(given, old, false).unwrap_or_else(|_| whole.clone())
                    }
                    Err(error) if patch => return Err(error),
                    _ => whole.clone(),
                };
                given.admin.create_group(addr, &group).await?;
                Ok::<_, Error>(group)
            }
        })
        .await?;
    let addrs: Vec<&str> = done.iter().map(|(addr, _)| *addr).collect();
    let mut report = Report::new(json!({ "group": name, "brokers": addrs }));
    for addr in &addrs {
        report = report.line(format!("create subscription group to {addr} success."));
    }
    let last = done.last().map(|(_, group)| describe(group));
    Ok(report.lines(last).missing(missing))
}

async fn delete(given: &Given) -> Outcome {
    let (group, offsets) = (given.text("groupName")?, given.boolean("removeOffset")?);
    let cluster = given
        .optional("clusterName")
        .filter(|_| given.optional("brokerAddr").is_none());
    let brokers = given.brokers().await?;
    let (done, missing) = given
        .each(&brokers, |addr| {
            given.admin.delete_group(addr, group, offsets)
        })
        .await?;
    let place = cluster.map(|cluster| format!(" in cluster [{cluster}]"));
    let place = place.unwrap_or_default();
    let mut topics = Vec::new();
    let mut lines: Vec<String> = done
        .iter()
        .map(|(addr, ())| {
            format!("delete subscription group [{group}] from broker [{addr}]{place} success.")
        })
        .collect();
    // In a whole cluster the topics of the group go with it.
    if let Some(cluster) = cluster {
        for topic in [name::retry_topic(group), name::dlq_topic(group)] {
            given.admin.delete_topic(&topic, cluster).await?;
            lines.push(format!(
                "delete topic [{topic}] from cluster [{cluster}] success."
            ));
            lines.push(format!("delete topic [{topic}] from NameServer success."));
            topics.push(topic);
        }
    }
    let addrs: Vec<&str> = done.iter().map(|(addr, ())| *addr).collect();
    Ok(
        Report::new(json!({ "group": group, "brokers": addrs, "topics": topics }))
            .lines(lines)
            .missing(missing),
    )
}

async fn config(given: &Given) -> Outcome {
    let group = given.text("groupName")?;
    let places: Vec<_> = given
        .places(None)
        .await?
        .into_iter()
        .filter(|place| place.id == 0)
        .collect();
    let answers = given
        .all(&places, |place| {
            given.admin.group_config(&place.addr, group)
        })
        .await;
    let (mut json, mut report) = (Vec::new(), Report::default());
    for (place, answer) in places.iter().zip(answers) {
        let found = match answer {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                report = report.partly(Failure::from(error).describe_at(&place.addr));
                continue;
            }
        };
        let value = value_of(&found.to_json(Flavour::Standard));
        let rule = "=".repeat(29);
        report = report.line(format!("{rule}{}:{}{rule}", place.cluster, place.broker));
        for (key, value) in value.as_object().into_iter().flatten() {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            report = report.line(format!("{key:<40}=  {text}"));
        }
        json.push(json!({ "cluster": place.cluster, "broker": place.broker, "config": value }));
    }
    if json.is_empty() && report.not_done().is_empty() {
        return Err(Failure::NotFound(format!(
            "no broker knows consumer group {group}"
        )));
    }
    Ok(report.with_json(json.into()))
}
