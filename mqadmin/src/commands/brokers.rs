//! Brokers and clusters: who is there, figures, settings, permissions.

use std::collections::BTreeMap;

use serde_json::json;

use super::pairs;
use super::shape::key_lines;
use crate::command::{CommandSpec, Kind, Outcome, flag, long, optional, required};
use crate::given::{Given, Place};
use crate::report::{Colour, Report, Row};
use crate::text;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "clusterList",
        about: "List all of clusters",
        example: "clusterList",
        options: &[
            flag(
                'm',
                "moreStats",
                "Totals of yesterday and today instead of rates",
            ),
            optional('i', "interval", "Again every so many seconds"),
            long("times", Kind::Optional, "With -i: so many times, then end"),
        ],
        danger: None,
        run: |given| Box::pin(clusters(given)),
    },
    CommandSpec {
        name: "brokerStatus",
        about: "Fetch broker runtime status data",
        example: "brokerStatus -b 127.0.0.1:10911",
        options: &[
            optional('b', "brokerAddr", "The broker, name or host:port"),
            optional('c', "clusterName", "All masters and slaves of this cluster"),
        ],
        danger: None,
        run: |given| Box::pin(status(given)),
    },
    CommandSpec {
        name: "getBrokerConfig",
        about: "Get broker config by cluster or special broker!",
        example: "getBrokerConfig -b 127.0.0.1:10911",
        options: &[
            optional('b', "brokerAddr", "The broker, name or host:port"),
            optional('c', "clusterName", "All masters and slaves of this cluster"),
        ],
        danger: None,
        run: |given| Box::pin(get_config(given)),
    },
    CommandSpec {
        name: "updateBrokerConfig",
        about: "Update broker's config",
        example: "updateBrokerConfig -b 127.0.0.1:10911 -k maxMessageSize -v 1048576",
        options: &[
            optional('b', "brokerAddr", "The broker, name or host:port"),
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
];

/// The first of the numbers of a rate, as "12.3 12.1 11.9".
pub(super) fn first_rate(table: &BTreeMap<String, String>, key: &str) -> f64 {
    table
        .get(key)
        .and_then(|text| text.split_whitespace().next())
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0)
}

pub(super) fn number(table: &BTreeMap<String, String>, key: &str) -> i64 {
    table
        .get(key)
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

async fn clusters(given: &Given) -> Outcome {
    super::repeat(given, "interval", || cluster_table(given)).await
}

async fn cluster_table(given: &Given) -> Outcome {
    let places = given.places(None).await?;
    let tables = given
        .all(&places, |place| given.admin.broker_runtime(&place.addr))
        .await;
    let (mut rows, mut json, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let more = given.flag("moreStats");
    for (place, table) in places.into_iter().zip(tables) {
        let Place {
            cluster,
            broker: name,
            id,
            addr,
        } = place;
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
        let cells = if more {
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
            let hours = if earliest > 0 {
                (text::now_ms() - earliest) as f64 / 3_600_000.0
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
        };
        rows.push(Row {
            cells,
            colour: (!reached).then_some(Colour::Red),
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
    Ok(Report::new(json.into())
        .table(headings, rows)
        .missing(missing))
}

async fn status(given: &Given) -> Outcome {
    let brokers = given.brokers_and_slaves().await?;
    let (done, missing) = given
        .each(&brokers, |addr| given.admin.broker_runtime(addr))
        .await?;
    let (mut json, mut report) = (serde_json::Map::new(), Report::default());
    let named = given.optional("brokerAddr").is_none();
    for (addr, table) in done {
        report = report.lines(key_lines(&table).map(|line| {
            if named {
                format!("{addr:<24} {line}")
            } else {
                line
            }
        }));
        json.insert(addr.to_owned(), json!(table));
    }
    Ok(report.with_json(json.into()).missing(missing))
}

async fn get_config(given: &Given) -> Outcome {
    let brokers = given.brokers_and_slaves().await?;
    let (done, missing) = given
        .each(&brokers, |addr| given.admin.broker_config(addr))
        .await?;
    let (mut json, mut report) = (serde_json::Map::new(), Report::default());
    for (addr, text) in done {
        let table = pairs(&text);
        report = report
            .line(format!("============{addr}============"))
            .lines(
                table
                    .iter()
                    .map(|(key, value)| format!("{key:<50}=  {value}")),
            );
        json.insert(addr.to_owned(), json!(table));
    }
    Ok(report.with_json(json.into()).missing(missing))
}

async fn update_config(given: &Given) -> Outcome {
    let (key, value) = (given.text("key")?, given.text("value")?);
    let settings = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let brokers = given.brokers().await?;
    let (done, missing) = given
        .each(&brokers, |addr| {
            given.admin.update_broker_config(addr, &settings)
        })
        .await?;
    let addrs: Vec<&str> = done.iter().map(|(addr, ())| *addr).collect();
    let lines = addrs
        .iter()
        .map(|addr| format!("update broker config success, {addr}"));
    Ok(
        Report::new(json!({ "key": key, "value": value, "brokers": addrs }))
            .lines(lines)
            .missing(missing),
    )
}

async fn permission(given: &Given, add: bool) -> Outcome {
    let broker = given.text("brokerName")?;
    let verb = if add { "add" } else { "wipe" };
    let servers = given.admin.name_servers();
    let (done, missing) = given
        .each(&servers, |server| async move {
            if add {
                given.admin.add_write_permission(server, broker).await
            } else {
                given.admin.wipe_write_permission(server, broker).await
            }
        })
        .await?;
    if done.iter().all(|(_, topics)| *topics == 0) {
        // No topic at all: it may be that there is no such broker.
        given.broker_addr(broker).await?;
    }
    let json: Vec<_> = done
        .iter()
        .map(|(server, topics)| json!({ "nameServer": server, "topics": topics }))
        .collect();
    let lines = done.iter().map(|(server, topics)| {
        format!("{verb} write perm of broker[{broker}] in name server[{server}] OK, {topics}")
    });
    let missing = missing
        .into_iter()
        .map(|error| format!("{verb} write perm of broker[{broker}] Failed: {error}"));
    Ok(Report::new(json.into()).lines(lines).missing(missing))
}
