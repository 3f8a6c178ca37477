//! Topics: creating, changing, deleting, looking at them.

use minimq_client::Error;
use minimq_protocol::body::TopicConfig;
use minimq_protocol::{name, perm};
use serde_json::json;

use super::shape::value_of;
use crate::command::{CommandSpec, Kind, Outcome, default, flag, long, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;
use crate::text;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "updateTopic",
        about: "Update or create topic",
        example: "updateTopic -c DefaultCluster -t Orders -r 8 -w 8",
        options: &[
            optional('b', "brokerAddr", "The broker, name or host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
            required('t', "topic", "The topic"),
            default('r', "readQueueNums", "8", "Queues to read from"),
            default('w', "writeQueueNums", "8", "Queues to write to"),
            default('p', "perm", "6", "2 write, 4 read, 6 both"),
            default(
                'o',
                "order",
                "false",
                "Keep the order configuration of an ordered topic",
            ),
            default('u', "unit", "false", "Unit topic"),
            default('s', "hasUnitSub", "false", "Has unit subscriptions"),
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
        name: "deleteTopic",
        about: "Delete topic from broker and NameServer.",
        example: "deleteTopic -c DefaultCluster -t Orders",
        options: &[
            required('c', "clusterName", "The cluster"),
            required('t', "topic", "The topic"),
        ],
        danger: Some("deletes the topic and all its queues"),
        run: |given| Box::pin(delete(given)),
    },
    CommandSpec {
        name: "updateTopicPerm",
        about: "Update topic perm",
        example: "updateTopicPerm -c DefaultCluster -t Orders -p 4",
        options: &[
            optional('b', "brokerAddr", "The broker, name or host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
            required('t', "topic", "The topic"),
            required('p', "perm", "2 write, 4 read, 6 both"),
        ],
        danger: None,
        run: |given| Box::pin(update_permission(given)),
    },
    CommandSpec {
        name: "topicRoute",
        about: "Examine topic route info",
        example: "topicRoute -t Orders -l",
        options: &[
            required('t', "topic", "The topic"),
            flag('l', "list", "A table instead of JSON"),
        ],
        danger: None,
        run: |given| Box::pin(route(given)),
    },
    CommandSpec {
        name: "topicStatus",
        about: "Examine topic Status info",
        example: "topicStatus -t Orders",
        options: &[required('t', "topic", "The topic")],
        danger: None,
        run: |given| Box::pin(status(given)),
    },
    CommandSpec {
        name: "topicClusterList",
        about: "get cluster info for topic",
        example: "topicClusterList -t Orders",
        options: &[required('t', "topic", "The topic")],
        danger: None,
        run: |given| Box::pin(clusters(given)),
    },
    CommandSpec {
        name: "topicList",
        about: "Fetch all topic list from name server",
        example: "topicList -c",
        options: &[flag(
            'c',
            "clusterModel",
            "With clusters and consumer groups",
        )],
        danger: None,
        run: |given| Box::pin(list(given)),
    },
    CommandSpec {
        name: "updateOrderConf",
        about: "Create or update or delete order conf",
        example: "updateOrderConf -t Orders -m put -v broker-a:4",
        options: &[
            required('t', "topic", "The topic"),
            required('m', "method", "put, get or delete"),
            optional('v', "orderConf", "For put: broker:queues, several with ;"),
        ],
        danger: None,
        run: |given| Box::pin(order(given)),
    },
];

fn describe(topic: &TopicConfig) -> String {
    format!(
        "TopicConfig [topicName={}, readQueueNums={}, writeQueueNums={}, perm={}, topicFilterType={}, topicSysFlag={}, order={}]",
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        perm::text(topic.perm),
        topic.topic_filter_type,
        topic.topic_sys_flag,
        topic.order
    )
}

fn permission(given: &Given) -> Result<i32, Failure> {
    match given.number("perm")? {
        allowed @ (2 | 4 | 6) => Ok(allowed),
        other => Err(Failure::Usage(format!(
            "--perm is {other}, it must be 2 (write), 4 (read) or 6 (both)"
        ))),
    }
}

fn queues(given: &Given, long: &str) -> Result<i32, Failure> {
    match given.number(long)? {
        count @ 1..=65_536 => Ok(count),
        other => Err(Failure::Usage(format!(
            "--{long} is {other}, it must be from 1 to 65536"
        ))),
    }
}

/// `base` with the options: all of them, or only those that were given.
fn changed(given: &Given, base: TopicConfig, all: bool) -> Result<TopicConfig, Failure> {
    let mut topic = base;
    let wanted = |long: &str| all || given.was_given(long);
    if wanted("readQueueNums") {
        topic.read_queue_nums = queues(given, "readQueueNums")?;
    }
    if wanted("writeQueueNums") {
        topic.write_queue_nums = queues(given, "writeQueueNums")?;
    }
    if wanted("perm") {
        topic.perm = permission(given)?;
    }
    if wanted("order") {
        topic.order = given.boolean("order")?;
    }
    if wanted("unit") || wanted("hasUnitSub") {
        topic.topic_sys_flag =
            i32::from(given.boolean("unit")?) | (i32::from(given.boolean("hasUnitSub")?) << 1);
    }
    Ok(topic)
}

async fn update(given: &Given) -> Outcome {
    let name = given.text("topic")?;
    let patch = given.flag("patch");
    let whole = changed(given, TopicConfig::new(name), true)?;
    let brokers = given.brokers().await?;
    let (done, missing) = given
        .each(&brokers, |addr| {
            let whole = &whole;
            async move {
                let topic = match given.admin.topic_config(addr, name).await {
                    Ok(Some(old)) if patch => {
                        changed(given, old, false).unwrap_or_else(|_| whole.clone())
                    }
                    Err(error) if patch => return Err(error),
                    _ => whole.clone(),
                };
                given.admin.create_topic(addr, &topic).await?;
                Ok::<_, Error>(topic)
            }
        })
        .await?;
    let addrs: Vec<&str> = done.iter().map(|(addr, _)| *addr).collect();
    let mut report = Report::new(json!({ "topic": name, "brokers": addrs }));
    for addr in &addrs {
        report = report.line(format!("create topic to {addr} success."));
    }
    if whole.order {
        let names = given.admin.cluster_info().await?;
        let own = names
            .broker_addr_table
            .values()
            .filter(|b| b.broker_addrs.values().any(|a| addrs.contains(&a.as_str())));
        let value: Vec<String> = own
            .map(|b| format!("{}:{}", b.broker_name, whole.write_queue_nums))
            .collect();
        let value = value.join(";");
        // One broker's part is merged into what is there; a cluster replaces it.
        let replaces = given.optional("brokerAddr").is_none();
        given.admin.set_order_config(name, &value, replaces).await?;
        let scope = if replaces { "cluster" } else { "broker" };
        report = report.line(format!(
            "set {scope} orderConf. isOrder=true, orderConf=[{value}]"
        ));
    }
    let last = done.last().map(|(_, topic)| describe(topic));
    Ok(report.lines(last).missing(missing))
}

async fn delete(given: &Given) -> Outcome {
    let (cluster, topic) = (given.text("clusterName")?, given.text("topic")?);
    let mut places = given.places(Some(cluster)).await?;
    places.retain(|place| place.id == 0);
    let masters: Vec<String> = places.into_iter().map(|place| place.addr).collect();
    let (done, missing) = given
        .each(&masters, |addr| {
            given.admin.delete_topic_at_broker(addr, topic)
        })
        .await?;
    let addrs: Vec<&str> = done.iter().map(|(addr, ())| *addr).collect();
    let report = Report::new(json!({ "topic": topic, "cluster": cluster, "brokers": addrs }));
    if !missing.is_empty() {
        // A name server that forgot it would hear of it again from the broker that still has it.
        return Ok(report
            .lines(
                addrs
                    .iter()
                    .map(|addr| format!("delete topic [{topic}] from broker [{addr}] success.")),
            )
            .missing(missing));
    }
    let servers = given.admin.name_servers();
    let (_, missing) = given
        .each(&servers, |server| {
            given
                .admin
                .delete_topic_at_name_server(server, topic, Some(cluster))
        })
        .await?;
    Ok(report
        .line(format!(
            "delete topic [{topic}] from cluster [{cluster}] success."
        ))
        .line(format!("delete topic [{topic}] from NameServer success."))
        .missing(missing))
}

async fn update_permission(given: &Given) -> Outcome {
    let (name, wanted) = (given.text("topic")?, permission(given)?);
    given.admin.topic_route(name).await?;
    let brokers = given.brokers().await?;
    let (done, mut missing) = given
        .each(&brokers, |addr| async move {
            let Some(topic) = given.admin.topic_config(addr, name).await? else {
                return Ok(None);
            };
            let before = topic.perm;
            let now = TopicConfig {
                perm: wanted,
                ..topic
            };
            if before != wanted {
                given.admin.create_topic(addr, &now).await?;
            }
            Ok::<_, Error>(Some((before, now)))
        })
        .await?;
    let (mut changed, mut lines, mut last) = (Vec::new(), Vec::new(), None);
    for (addr, outcome) in done {
        let Some((before, now)) = outcome else {
            missing.push(format!("topic {name} is not at {addr}"));
            continue;
        };
        changed.push(json!({ "broker": addr, "before": before, "now": wanted }));
        lines.push(if before == wanted {
            "new perm equals to the old one!".to_owned()
        } else {
            last = Some(format!("{}.", describe(&now)));
            format!("update topic perm from {before} to {wanted} in {addr} success.")
        });
    }
    if changed.is_empty() {
        return Err(Failure::NotFound(format!(
            "topic {name} is at none of {}",
            brokers.join(", ")
        )));
    }
    if given.optional("brokerAddr").is_some() {
        lines.extend(last);
    }
    Ok(Report::new(json!({ "topic": name, "changed": changed }))
        .lines(lines)
        .missing(missing))
}

async fn route(given: &Given) -> Outcome {
    let route = given.admin.topic_route(given.text("topic")?).await?.data;
    let bytes = route.to_json(minimq_protocol::json::Flavour::Standard);
    let json = value_of(&bytes);
    if !given.flag("list") {
        let text = serde_json::to_string_pretty(&json).unwrap_or_default();
        return Ok(Report::new(json).line(text));
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    let (mut reads, mut writes) = (0, 0);
    for queues in &route.queue_datas {
        let broker = route
            .broker_datas
            .iter()
            .find(|b| b.broker_name == queues.broker_name);
        let addresses = broker.map(|b| {
            let list: Vec<String> = b
                .broker_addrs
                .iter()
                .map(|(id, addr)| format!("{id}={addr}"))
                .collect();
            format!("{{{}}}", list.join(", "))
        });
        let cluster = broker.and_then(|b| b.cluster.clone()).unwrap_or_default();
        reads += queues.read_queue_nums;
        writes += queues.write_queue_nums;
        rows.push(vec![
            cluster,
            queues.broker_name.clone(),
            addresses.unwrap_or_default(),
            queues.read_queue_nums.to_string(),
            queues.write_queue_nums.to_string(),
            queues.perm.to_string(),
        ]);
    }
    let total = rows.len();
    rows.push(vec![
        "Total:".into(),
        total.to_string(),
        String::new(),
        reads.to_string(),
        writes.to_string(),
    ]);
    let headings = [
        "#ClusterName",
        "#BrokerName",
        "#BrokerAddrs",
        "#ReadQueue",
        "#WriteQueue",
        "#Perm",
    ];
    Ok(Report::new(json).table(&headings, rows))
}

async fn status(given: &Given) -> Outcome {
    let table = given
        .admin
        .topic_stats(given.text("topic")?)
        .await?
        .offset_table;
    let json = table.iter().map(|(queue, offsets)| {
        json!({
            "broker": queue.broker_name, "queueId": queue.queue_id, "minOffset": offsets.min_offset,
            "maxOffset": offsets.max_offset, "lastUpdated": offsets.last_update_timestamp,
        })
    });
    let rows = table.iter().map(|(queue, offsets)| {
        vec![
            queue.broker_name.clone(),
            queue.queue_id.to_string(),
            offsets.min_offset.to_string(),
            offsets.max_offset.to_string(),
            text::time(offsets.last_update_timestamp),
        ]
    });
    let headings = [
        "#Broker Name",
        "#QID",
        "#Min Offset",
        "#Max Offset",
        "#Last Updated",
    ];
    Ok(Report::new(json.collect()).table(&headings, rows))
}

async fn clusters(given: &Given) -> Outcome {
    let clusters = given.admin.clusters_of_topic(given.text("topic")?).await?;
    let report = Report::new(json!(clusters));
    Ok(clusters
        .iter()
        .fold(report, |report, cluster| report.line(cluster)))
}

async fn list(given: &Given) -> Outcome {
    let mut topics = given.admin.topics().await?;
    topics.sort();
    if !given.flag("clusterModel") {
        let report = Report::new(json!(topics));
        return Ok(topics
            .iter()
            .fold(report, |report, topic| report.line(topic)));
    }
    topics.retain(|topic| {
        !topic.starts_with(name::RETRY_PREFIX) && !topic.starts_with(name::DLQ_PREFIX)
    });
    let answers = given
        .all(&topics, |topic| async move {
            let clusters = given.admin.clusters_of_topic(topic).await?;
            let groups = given.admin.groups_of_topic(topic).await;
            Ok::<_, Error>((clusters, groups))
        })
        .await;
    let (mut rows, mut json, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (topic, answer) in topics.iter().zip(answers) {
        let (clusters, groups) = match answer {
            Ok(found) => found,
            // Names of clusters are topics without a route of their own.
            Err(Error::TopicNotFound { .. }) => continue,
            Err(error) => {
                missing.push(format!("{topic}: {error}"));
                continue;
            }
        };
        let groups = groups.unwrap_or_else(|error| {
            missing.push(format!("{topic}: {error}"));
            Vec::new()
        });
        for cluster in &clusters {
            json.push(json!({ "cluster": cluster, "topic": topic, "groups": groups }));
            let mut shown = groups.clone();
            if shown.is_empty() {
                shown.push(String::new());
            }
            rows.extend(
                shown
                    .into_iter()
                    .map(|group| vec![cluster.clone(), topic.clone(), group]),
            );
        }
    }
    Ok(Report::new(json.into())
        .table(&["#Cluster Name", "#Topic", "#Consumer Group"], rows)
        .missing(missing))
}

async fn order(given: &Given) -> Outcome {
    let topic = given.text("topic")?;
    match given.text("method")? {
        "get" => {
            let conf = given.admin.order_config(topic).await?.ok_or_else(|| {
                Failure::NotFound(format!("topic {topic} has no order configuration"))
            })?;
            Ok(
                Report::new(json!({ "topic": topic, "orderConf": conf })).line(format!(
                    "get orderConf success. topic=[{topic}], orderConf=[{conf}]"
                )),
            )
        }
        "put" => {
            let conf = given
                .optional("orderConf")
                .ok_or_else(|| Failure::Usage("please set orderConf with option -v.".to_owned()))?;
            given.admin.set_order_config(topic, conf, true).await?;
            Ok(Report::done(format!(
                "update orderConf success. topic=[{topic}], orderConf=[{conf}]"
            )))
        }
        "delete" => {
            given.admin.delete_order_config(topic).await?;
            Ok(Report::done(format!(
                "delete orderConf success. topic=[{topic}]"
            )))
        }
        other => Err(Failure::Usage(format!(
            "--method is \"{other}\", it must be put, get or delete"
        ))),
    }
}
