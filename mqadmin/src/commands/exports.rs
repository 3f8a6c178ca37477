//! Topics, groups, settings and figures of a cluster, written to JSON files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use minimq_protocol::body::{SubscriptionGroupConfig, TopicConfig};
use minimq_protocol::json::Flavour;
use minimq_protocol::{name, version};
use serde_json::{Map, Value, json};

use super::brokers::{first_rate, number};
use super::pairs;
use super::shape::value_of;
use crate::command::{CommandSpec, Outcome, default, flag, optional, required};
use crate::failure::Failure;
use crate::given::{Given, Place};
use crate::report::Report;
use crate::text;

/// Where the stock tool writes to.
const FOLDER: &str = "/tmp/rocketmq/export";
/// Settings that `exportConfigs` keeps.
const KEPT: &[&str] = &[
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
];

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "exportMetadata",
        about: "export metadata",
        example: "exportMetadata -c DefaultCluster -f ./export",
        options: &[
            optional(
                'c',
                "clusterName",
                "All masters of this cluster; queue numbers are added up",
            ),
            optional('b', "brokerAddr", "The broker, name or host:port"),
            default('f', "filePath", FOLDER, "The folder to write to"),
            flag('t', "topic", "Topics only"),
            flag('g', "subscriptionGroup", "Groups only"),
            flag('s', "specialTopic", "With retry and dead-letter topics"),
        ],
        danger: None,
        run: |given| Box::pin(metadata(given)),
    },
    CommandSpec {
        name: "exportConfigs",
        about: "export configs",
        example: "exportConfigs -c DefaultCluster -f ./export",
        options: &[
            required('c', "clusterName", "The cluster"),
            default('f', "filePath", FOLDER, "The folder to write to"),
        ],
        danger: None,
        run: |given| Box::pin(configs(given)),
    },
    CommandSpec {
        name: "exportMetrics",
        about: "export metrics",
        example: "exportMetrics -c DefaultCluster -f ./export",
        options: &[
            required('c', "clusterName", "The cluster"),
            default('f', "filePath", FOLDER, "The folder to write to"),
        ],
        danger: None,
        run: |given| Box::pin(metrics(given)),
    },
];

/// Writes the file whole or not at all, and says so.
fn write(given: &Given, file: &str, value: Value, missing: Vec<String>) -> Outcome {
    let folder = Path::new(given.text("filePath")?);
    let path: PathBuf = folder.join(file);
    let shown = path.display();
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::io(format!("cannot make {}", folder.display()), error))?;
    let mut text = serde_json::to_string_pretty(&value).unwrap_or_default();
    text.push('\n');
    let unfinished = folder.join(format!("{file}.tmp"));
    std::fs::write(&unfinished, text)
        .and_then(|()| std::fs::rename(&unfinished, &path))
        .map_err(|error| Failure::io(format!("cannot write {shown}"), error))?;
    let line = format!("export {shown} success");
    Ok(
        Report::new(json!({ "file": path.to_string_lossy(), "content": value }))
            .line(line)
            .missing(missing),
    )
}

async fn masters(given: &Given) -> Result<Vec<Place>, Failure> {
    let mut places = given.places(given.optional("clusterName")).await?;
    places.retain(|place| place.id == 0);
    Ok(places)
}

fn is_wanted(topic: &str, system: &BTreeSet<String>, special: bool) -> bool {
    let is_special = topic.starts_with(name::RETRY_PREFIX) || topic.starts_with(name::DLQ_PREFIX);
    !system.contains(topic) && !name::is_system_topic(topic) && (special || !is_special)
}

async fn topics_at(
    given: &Given,
    addr: &str,
    special: bool,
) -> Result<BTreeMap<String, TopicConfig>, minimq_client::Error> {
    let system = given.admin.system_topics_of_broker(addr).await?;
    let system: BTreeSet<String> = system.into_iter().collect();
    let mut topics = given.admin.topic_configs(addr).await?.topic_config_table;
    topics.retain(|topic, _| is_wanted(topic, &system, special));
    Ok(topics)
}

async fn groups_at(
    given: &Given,
    addr: &str,
) -> Result<BTreeMap<String, SubscriptionGroupConfig>, minimq_client::Error> {
    let mut groups = given.admin.groups(addr).await?.subscription_group_table;
    groups.retain(|group, _| !name::is_system_group(group));
    Ok(groups)
}

async fn metadata(given: &Given) -> Outcome {
    let (only_topics, only_groups) = (given.flag("topic"), given.flag("subscriptionGroup"));
    let special = given.flag("specialTopic");
    let brokers = given.brokers().await?;
    let (done, missing) = given
        .each(&brokers, |addr| async move {
            let topics = match only_groups && !only_topics {
                true => BTreeMap::new(),
                false => topics_at(given, addr, special).await?,
            };
            let groups = match only_topics {
                true => BTreeMap::new(),
                false => groups_at(given, addr).await?,
            };
            Ok((topics, groups))
        })
        .await?;
    let mut topics: BTreeMap<String, TopicConfig> = BTreeMap::new();
    let mut groups: BTreeMap<String, SubscriptionGroupConfig> = BTreeMap::new();
    for (_, (some_topics, some_groups)) in done {
        for (name, one) in some_topics {
            match topics.get_mut(&name) {
                Some(sum) => {
                    sum.read_queue_nums += one.read_queue_nums;
                    sum.write_queue_nums += one.write_queue_nums;
                }
                None => {
                    topics.insert(name, one);
                }
            }
        }
        for (name, one) in some_groups {
            match groups.get_mut(&name) {
                Some(sum) => sum.retry_queue_nums += one.retry_queue_nums,
                None => {
                    groups.insert(name, one);
                }
            }
        }
    }
    let topics: Map<String, Value> = topics
        .into_iter()
        .map(|(name, one)| (name, value_of(&one.to_json(Flavour::Standard))))
        .collect();
    let groups: Map<String, Value> = groups
        .into_iter()
        .map(|(name, one)| (name, value_of(&one.to_json(Flavour::Standard))))
        .collect();
    let time = text::now_ms();
    let (file, value) = match (only_topics, only_groups) {
        (true, _) => (
            "topic.json",
            json!({ "exportTime": time, "topicConfigTable": topics }),
        ),
        (false, true) => (
            "subscriptionGroup.json",
            json!({ "exportTime": time, "subscriptionGroupTable": groups }),
        ),
        (false, false) => (
            "metadata.json",
            json!({ "exportTime": time, "topicConfigTable": topics, "subscriptionGroupTable": groups }),
        ),
    };
    write(given, file, value, missing)
}

async fn configs(given: &Given) -> Outcome {
    let all = given.places(given.optional("clusterName")).await?;
    let (masters, slaves): (Vec<Place>, Vec<Place>) =
        all.into_iter().partition(|place| place.id == 0);
    let answers = given
        .all(&masters, |place| given.admin.broker_config(&place.addr))
        .await;
    let (mut brokers, mut missing) = (Map::new(), Vec::new());
    for (place, answer) in masters.iter().zip(answers) {
        match answer {
            Ok(text) => {
                let mut settings = pairs(&text);
                settings.retain(|key, _| KEPT.contains(&key.as_str()));
                brokers.insert(place.broker.clone(), json!(settings));
            }
            Err(error) => missing.push(Failure::from(error).describe_at(&place.addr)),
        }
    }
    let value = json!({
        "brokerConfigs": brokers,
        "clusterScale": {
            "namesrvSize": given.admin.name_servers().len(),
            "masterBrokerSize": masters.len(),
            "slaveBrokerSize": slaves.len(),
        },
    });
    write(given, "configs.json", value, missing)
}

/// Sums over all brokers, by the name in the file.
#[derive(Default)]
struct Totals {
    tps: BTreeMap<&'static str, f64>,
    day: BTreeMap<&'static str, i64>,
}

/// One broker's figures; what is put into the totals goes there too.
async fn metrics_of(
    given: &Given,
    place: &Place,
) -> Result<
    (
        Value,
        BTreeMap<&'static str, f64>,
        BTreeMap<&'static str, i64>,
    ),
    minimq_client::Error,
> {
    let admin = &given.admin;
    let addr = place.addr.as_str();
    let runtime = admin.broker_runtime(addr).await?;
    let config = pairs(&admin.broker_config(addr).await?);
    let groups = groups_at(given, addr).await?;
    let topics = topics_at(given, addr, false).await?;
    let rate = |topic: &'static str| async move {
        // A topic nothing was sent to has no figures.
        admin.broker_stats(addr, "TOPIC_PUT_NUMS", topic).await.ok()
    };
    let half = rate("RMQ_SYS_TRANS_HALF_TOPIC").await;
    let delayed = rate("SCHEDULE_TOPIC_XXXX").await;
    let names: Vec<&String> = groups.keys().collect();
    let members = given
        .all(&names, |group| {
            admin.consumer_connections(group, Some(addr))
        })
        .await;
    let clients: BTreeSet<String> = members
        .into_iter()
        .filter_map(Result::ok)
        .flat_map(|members| members.connection_set)
        .map(|c| {
            format!(
                "{}%{}",
                c.language.unwrap_or_default(),
                version::name(c.version)
            )
        })
        .collect();
    let day = |kind: &str| {
        number(&runtime, &format!("msg{kind}TotalTodayMorning"))
            - number(&runtime, &format!("msg{kind}TotalYesterdayMorning"))
    };
    let tps = BTreeMap::from([
        ("normalInTps", first_rate(&runtime, "putTps")),
        ("normalOutTps", first_rate(&runtime, "getTransferedTps")),
        ("transInTps", half.map_or(0.0, |data| data.stats_minute.tps)),
        (
            "scheduleInTps",
            delayed.map_or(0.0, |data| data.stats_minute.tps),
        ),
    ]);
    let days = BTreeMap::from([
        ("normalOneDayInNum", day("Put")),
        ("normalOneDayOutNum", day("Get")),
        (
            "transOneDayInNum",
            half.map_or(0, |data| data.stats_day.sum),
        ),
        (
            "scheduleOneDayInNum",
            delayed.map_or(0, |data| data.stats_day.sum),
        ),
    ]);
    let value = json!({
        "runtimeEnv": {
            "cpuNum": config.get("clientCallbackExecutorThreads"),
            "totalMemKBytes": runtime.get("totalMemKBytes"),
        },
        "runtimeQuota": {
            "diskRatio": {
                "commitLogDiskRatio": runtime.get("commitLogDiskRatio"),
                "consumeQueueDiskRatio": runtime.get("consumeQueueDiskRatio"),
            },
            "tps": tps,
            "oneDayNum": days,
            "messageAverageSize": runtime.get("putMessageAverageSize"),
            "topicSize": topics.len(),
            "groupSize": groups.len(),
        },
        "runtimeVersion": {
            "rocketmqVersion": version::name(version::CURRENT),
            "brokerVersion": runtime.get("brokerVersionDesc"),
            "clientInfo": clients,
        },
    });
    Ok((value, tps, days))
}

async fn metrics(given: &Given) -> Outcome {
    let masters = masters(given).await?;
    let answers = given.all(&masters, |place| metrics_of(given, place)).await;
    let (mut report, mut missing, mut totals) = (Map::new(), Vec::new(), Totals::default());
    for (place, answer) in masters.iter().zip(answers) {
        match answer {
            Ok((value, tps, day)) => {
                for (key, value) in tps {
                    *totals.tps.entry(total_name(key)).or_default() += value;
                }
                for (key, value) in day {
                    *totals.day.entry(key).or_default() += value;
                }
                report.insert(place.broker.clone(), value);
            }
            Err(error) => missing.push(Failure::from(error).describe_at(&place.addr)),
        }
    }
    let value = json!({
        "evaluateReport": report,
        "totalData": { "totalTps": totals.tps, "totalOneDayNum": totals.day },
    });
    write(given, "metrics.json", value, missing)
}

fn total_name(key: &str) -> &'static str {
    match key {
        "normalInTps" => "totalNormalInTps",
        "normalOutTps" => "totalNormalOutTps",
        "transInTps" => "totalTransInTps",
        _ => "totalScheduleInTps",
    }
}
