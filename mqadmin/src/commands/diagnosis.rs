//! `clusterDiagnose`: what is wrong with a cluster, why that matters, and what to do about it.

use std::collections::{BTreeMap, BTreeSet};

use minimq_client::Error;
use minimq_protocol::body::{ConsumeType, ConsumerConnection, MessageModel, MessageQueue};
use minimq_protocol::name;
use serde_json::json;

use super::internals::is_foreign;
use super::pairs;
use super::progress::{GroupProgress, all_groups};
use crate::command::{CommandSpec, Kind, Outcome, long, optional};
use crate::failure::Failure;
use crate::given::{Given, Place};
use crate::report::{Colour, Report};
use crate::text;

/// Clocks that differ by more are pointed out, s. What a broker tells has whole seconds.
const CLOCK_APART_S: &str = "5";
/// Below the broker's own limit by so much the disk is near it.
const DISK_NEAR: f64 = 0.05;
/// Groups whose members are asked for their queues at most: each is a call to every member.
const MAX_ASKED: usize = 200;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "clusterDiagnose",
    about: "Look for what is wrong with a cluster: each with reason and remedy",
    example: "clusterDiagnose",
    options: &[
        optional('c', "clusterName", "Only this cluster's brokers"),
        long(
            "clock",
            Kind::Default(CLOCK_APART_S),
            "Seconds by which clocks may differ",
        ),
    ],
    danger: None,
    run: |given| Box::pin(diagnose(given)),
}];

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Error,
    Warning,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    severity: Severity,
    kind: &'static str,
    what: String,
    reason: String,
    remedy: &'static str,
}

fn finding(
    severity: Severity,
    kind: &'static str,
    what: impl Into<String>,
    reason: impl Into<String>,
    remedy: &'static str,
) -> Finding {
    Finding {
        severity,
        kind,
        what: what.into(),
        reason: reason.into(),
        remedy,
    }
}

async fn diagnose(given: &Given) -> Outcome {
    let apart = given.number_in("clock", 1..=86_400i64)?;
    let places = given.places(given.optional("clusterName")).await?;
    let mut found = name_servers(given).await;
    let alive = brokers(given, &places, apart, &mut found).await;
    filter_servers(given, &mut found).await;
    own_figures(given, &alive, &mut found).await;
    let masters: Vec<&Place> = alive
        .iter()
        .copied()
        .filter(|place| place.id == 0)
        .collect();
    let missing = if masters.is_empty() {
        Vec::new()
    } else {
        groups(given, &masters, &mut found).await?
    };
    found.sort_by(|a, b| (a.severity, a.kind, &a.what).cmp(&(b.severity, b.kind, &b.what)));
    let json: Vec<_> = found
        .iter()
        .map(|one| {
            json!({
                "severity": match one.severity { Severity::Error => "error", Severity::Warning => "warning" },
                "kind": one.kind, "what": one.what, "reason": one.reason, "remedy": one.remedy,
            })
        })
        .collect();
    let mut report = Report::new(json!({ "brokers": places.len(), "findings": json }));
    for one in &found {
        let (colour, mark) = match one.severity {
            Severity::Error => (Colour::Red, "ERROR"),
            Severity::Warning => (Colour::Yellow, "WARN"),
        };
        report = report
            .painted(colour, format!("{mark} {}: {}", one.kind, one.what))
            .line(format!("  why:    {}", one.reason))
            .line(format!("  remedy: {}", one.remedy));
    }
    if found.is_empty() {
        report = report.painted(
            Colour::Green,
            format!("{} brokers looked at, nothing found", places.len()),
        );
    }
    Ok(report.missing(missing))
}

/// Name servers that do not answer, or know other brokers than the first one does.
async fn name_servers(given: &Given) -> Vec<Finding> {
    let servers = given.admin.name_servers();
    let answers = given
        .all(&servers, |server| given.admin.cluster_info_at(server))
        .await;
    let mut found = Vec::new();
    let mut first: Option<(&str, BTreeSet<String>)> = None;
    for (server, answer) in servers.iter().zip(answers) {
        let info = match answer {
            Ok(info) => info,
            Err(error) => {
                found.push(finding(
                    Severity::Error,
                    "name server away",
                    server,
                    error.to_string(),
                    "start it, or take its address out of the lists of brokers and clients",
                ));
                continue;
            }
        };
        let own: BTreeSet<String> = info
            .broker_addr_table
            .into_values()
            .flat_map(|broker| broker.broker_addrs.into_values())
            .collect();
        match &first {
            None => first = Some((server, own)),
            Some((other, known)) if *known != own => {
                let differing: Vec<&str> = known
                    .symmetric_difference(&own)
                    .map(String::as_str)
                    .collect();
                found.push(finding(
                    Severity::Error,
                    "name servers disagree",
                    format!("{server} and {other} differ on {}", differing.join(", ")),
                    "clients of one of them do not see all brokers",
                    "see that namesrvAddr of those brokers lists every name server",
                ));
            }
            Some(_) => {}
        }
    }
    found
}

/// Seconds of `[ 0 days, 0 hours, 10 minutes, 2 seconds ]`.
fn uptime_s(text: &str) -> Option<i64> {
    let mut sum = 0;
    let mut words = text.split([' ', ',']).filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let Ok(count) = word.parse::<i64>() else {
            continue;
        };
        sum += count
            * match words.next()? {
                unit if unit.starts_with("day") => 86_400,
                unit if unit.starts_with("hour") => 3600,
                unit if unit.starts_with("minute") => 60,
                unit if unit.starts_with("second") => 1,
                _ => return None,
            };
    }
    Some(sum)
}

/// By how much a broker's clock differs from ours, s: its start and how long it runs say what it takes for now.
fn clock_difference_s(figures: &BTreeMap<String, String>, now_ms: i64) -> Option<i64> {
    let boot: i64 = figures.get("bootTimestamp")?.parse().ok()?;
    let uptime = uptime_s(figures.get("runtime")?)?;
    Some((boot - now_ms) / 1000 + uptime)
}

/// Brokers that cannot be reached where they say, whose clocks differ, whose disks fill up; gives those that answer.
async fn brokers<'p>(
    given: &Given,
    places: &'p [Place],
    apart: i64,
    found: &mut Vec<Finding>,
) -> Vec<&'p Place> {
    let answers = given
        .all(places, |place| async {
            let figures = given.admin.broker_runtime(&place.addr).await;
            let now = text::now_ms();
            let config = given.admin.broker_config(&place.addr).await;
            (figures, now, config)
        })
        .await;
    let mut alive = Vec::new();
    for (place, (figures, now, config)) in places.iter().zip(answers) {
        let who = format!("{} ({}) at {}", place.broker, place.id, place.addr);
        let figures = match figures {
            Ok(figures) => figures,
            Err(error) if error.code().is_some() => {
                // It answers, it only does not tell.
                alive.push(place);
                continue;
            }
            Err(error) => {
                found.push(finding(
                    Severity::Error,
                    "address not reached",
                    who,
                    error.to_string(),
                    "see that the broker runs; if it does, set brokerIP1 to an address that clients reach and open the port",
                ));
                continue;
            }
        };
        alive.push(place);
        if let Some(apart_s) = clock_difference_s(&figures, now)
            && apart_s.abs() > apart
        {
            found.push(finding(
                Severity::Warning,
                "clocks apart",
                format!("{who}: its clock is {apart_s} s from this machine's"),
                "searches by time, delayed messages and retention go by the broker's clock",
                "synchronise the clocks, by NTP for instance",
            ));
        }
        let config = config.map(|text| pairs(&text)).unwrap_or_default();
        disk(&who, &figures, &config, found);
    }
    alive
}

/// A share in percent or as a fraction, as the keys allow both.
fn ratio(config: &BTreeMap<String, String>, key: &str, default: f64) -> f64 {
    match config.get(key).and_then(|text| text.parse::<f64>().ok()) {
        Some(value) if value > 1.0 => value / 100.0,
        Some(value) if value > 0.0 => value,
        _ => default,
    }
}

fn disk(
    who: &str,
    figures: &BTreeMap<String, String>,
    config: &BTreeMap<String, String>,
    found: &mut Vec<Finding>,
) {
    let used = ["commitLogDiskRatio", "consumeQueueDiskRatio"]
        .iter()
        .filter_map(|key| figures.get(*key)?.parse::<f64>().ok())
        .fold(0.0, f64::max);
    let refuses = ratio(config, "diskSpaceWarningLevelRatio", 0.90);
    // At 100 % it is switched off: the broker goes on until nothing can be written.
    if refuses < 1.0 && used >= refuses - DISK_NEAR {
        found.push(finding(
            Severity::Error,
            "disk near its limit",
            format!("{who}: {:.0} % used", used * 100.0),
            format!("at {:.0} % the broker refuses messages", refuses * 100.0),
            "free space or move the store; a smaller fileReservedTime keeps messages for less long",
        ));
    }
}

async fn filter_servers(given: &Given, found: &mut Vec<Finding>) {
    let servers: Vec<String> = match given.admin.filter_servers().await {
        Ok(table) => table.into_values().flatten().collect(),
        Err(_) => return,
    };
    let answers = given
        .all(&servers, |addr| given.admin.filter_stats(addr))
        .await;
    for (addr, answer) in servers.iter().zip(answers) {
        match answer {
            Err(error) if error.code().is_none() => found.push(finding(
                Severity::Error,
                "address not reached",
                format!("filter server {addr}"),
                error.to_string(),
                "see that mqfiltersrv runs and that its filterServerIP is an address that clients reach",
            )),
            Err(_) => {}
            Ok(stats) => {
                for filter in stats.filters.iter().filter(|filter| filter.state != "active") {
                    found.push(finding(
                        Severity::Warning,
                        "filter failing",
                        format!("{}@{} at {addr} is {}", filter.topic, filter.consumer_group, filter.state),
                        filter.last_error.clone().unwrap_or_default(),
                        "`mqadmin filterTest` runs the module over the same messages",
                    ));
                }
            }
        }
    }
}

/// What only our own brokers tell.
async fn own_figures(given: &Given, alive: &[&Place], found: &mut Vec<Finding>) {
    let answers = given
        .all(alive, |place| async {
            let damaged = given.admin.damaged_records(&place.addr).await;
            let mixed = given.admin.mixed_subscriptions(&place.addr).await;
            (damaged, mixed)
        })
        .await;
    for (place, (damaged, mixed)) in alive.iter().zip(answers) {
        if let Ok(damaged) = damaged
            && !damaged.records.is_empty()
        {
            found.push(finding(
                Severity::Error,
                "damaged records",
                format!(
                    "{} parts of the commit log at {}",
                    damaged.records.len(),
                    place.addr
                ),
                "they are never served: their messages are lost at this broker",
                "`mqadmin damagedRecords` shows them; a slave may still have the messages",
            ));
        }
        for (group, members) in mixed.map(|mixed| mixed.groups).unwrap_or_default() {
            let ids: Vec<&str> = members
                .iter()
                .map(|member| member.client_id.as_str())
                .collect();
            found.push(finding(
                Severity::Error,
                "mixed subscriptions",
                format!("group {group} at {}: {}", place.addr, ids.join(", ")),
                "the broker filters by one subscription for all members, so messages of the others are lost to the group",
                "give all members the same topics and expressions, or different groups",
            ));
        }
    }
}

/// Groups without consumers, client ids used twice, queues without an owner.
async fn groups(
    given: &Given,
    masters: &[&Place],
    found: &mut Vec<Finding>,
) -> Result<Vec<String>, Failure> {
    let (groups, missing) = all_groups(given).await?;
    // Brokers that are away are findings already.
    let missing = missing
        .into_iter()
        .filter(|text| masters.iter().any(|place| text.contains(&place.addr)))
        .collect();
    for group in &groups {
        if group.clients.is_empty() && group.queues > 0 && group.diff > 0 {
            found.push(finding(
                Severity::Warning,
                "group without consumers",
                format!("group {}: {} messages wait", group.group, group.diff),
                "no member is connected to any master",
                "start a consumer, or delete the group with `mqadmin deleteSubGroup`",
            ));
        }
    }
    duplicates(given, masters, &groups, found).await;
    orphans(given, &groups, found).await;
    Ok(missing)
}

/// Client ids that one broker sees on two connections of a group.
fn repeated(members: &ConsumerConnection) -> Vec<(String, Vec<String>)> {
    let mut addrs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for member in &members.connection_set {
        addrs
            .entry(&member.client_id)
            .or_default()
            .insert(&member.client_addr);
    }
    addrs
        .into_iter()
        .filter(|(_, addrs)| addrs.len() > 1)
        .map(|(id, addrs)| {
            (
                id.to_owned(),
                addrs.into_iter().map(str::to_owned).collect(),
            )
        })
        .collect()
}

async fn duplicates(
    given: &Given,
    masters: &[&Place],
    groups: &[GroupProgress],
    found: &mut Vec<Finding>,
) {
    let online = groups.iter().filter(|group| !group.clients.is_empty());
    let asked: Vec<(&GroupProgress, &Place)> = online
        .flat_map(|group| masters.iter().map(move |place| (group, *place)))
        .collect();
    let answers = given
        .all(&asked, |(group, place)| {
            given
                .admin
                .consumer_connections(&group.group, Some(&place.addr))
        })
        .await;
    let mut seen = BTreeSet::new();
    for ((group, _), answer) in asked.iter().zip(answers) {
        for (id, addrs) in answer.map(|members| repeated(&members)).unwrap_or_default() {
            if seen.insert((group.group.clone(), id.clone())) {
                found.push(finding(
                    Severity::Error,
                    "duplicate client id",
                    format!("{id} in group {} from {}", group.group, addrs.join(" and ")),
                    "members with one id take the same queues: messages come twice and others never",
                    "give every client an instance name of its own, and containers addresses of their own",
                ));
            }
        }
    }
}

/// Queues of subscribed topics that no member of an online group consumes.
async fn orphans(given: &Given, groups: &[GroupProgress], found: &mut Vec<Finding>) {
    let asked: Vec<&GroupProgress> = groups
        .iter()
        .filter(|group| {
            !group.clients.is_empty()
                && group.consume_type == Some(ConsumeType::ConsumePassively)
                && group.model == Some(MessageModel::Clustering)
        })
        .take(MAX_ASKED)
        .collect();
    let answers = given.all(&asked, |group| without_owner(given, group)).await;
    for (group, answer) in asked.iter().zip(answers) {
        let queues = match answer {
            Ok(queues) => queues,
            Err(error) if is_foreign(&error) => continue,
            Err(error) => {
                found.push(finding(
                    Severity::Warning,
                    "member does not answer",
                    format!("group {}", group.group),
                    error.to_string(),
                    "`mqadmin consumerStatus -g` asks its members one by one",
                ));
                continue;
            }
        };
        if !queues.is_empty() {
            let names: Vec<String> = queues
                .iter()
                .map(|queue| format!("{}-{}-{}", queue.topic, queue.broker_name, queue.queue_id))
                .collect();
            found.push(finding(
                Severity::Warning,
                "queues without owner",
                format!("group {}: {}", group.group, names.join(", ")),
                "no member consumes them, so their messages wait",
                "it may be a rebalance under way (look again in half a minute); else see that all members subscribe alike and use one allocation",
            ));
        }
    }
}

async fn without_owner(
    given: &Given,
    group: &GroupProgress,
) -> Result<BTreeSet<MessageQueue>, Error> {
    let mut owned = BTreeSet::new();
    let mut topics = BTreeSet::new();
    for id in &group.clients {
        let info = given.admin.running_info(&group.group, id, false).await?;
        owned.extend(info.mq_table.into_keys());
        topics.extend(info.subscription_set.into_iter().map(|one| one.topic));
    }
    let mut free = BTreeSet::new();
    for topic in topics {
        if topic.starts_with(name::RETRY_PREFIX) {
            continue;
        }
        let Ok(route) = given.admin.topic_route(&topic).await else {
            continue;
        };
        free.extend(
            route
                .readable
                .iter()
                .filter(|queue| !owned.contains(queue))
                .cloned(),
        );
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    use minimq_protocol::body::Connection;

    use super::*;

    #[test]
    fn a_brokers_clock_is_told_from_its_start_and_its_running_time() {
        assert_eq!(
            uptime_s("[ 1 days, 2 hours, 3 minutes, 4 seconds ]"),
            Some(93_784)
        );
        assert_eq!(uptime_s("[ 4 weeks ]"), None);
        let figures = BTreeMap::from([
            ("bootTimestamp".to_owned(), "1000000000".to_owned()),
            (
                "runtime".to_owned(),
                "[ 0 days, 0 hours, 1 minutes, 40 seconds ]".to_owned(),
            ),
        ]);
        assert_eq!(clock_difference_s(&figures, 1_000_100_000), Some(0));
        assert_eq!(clock_difference_s(&figures, 1_000_040_000), Some(60));
        assert_eq!(clock_difference_s(&BTreeMap::new(), 0), None);
    }

    #[test]
    fn a_disk_counts_as_near_its_limit_by_the_brokers_own_key() {
        let found_at = |used: &str, config: &[(&str, &str)]| {
            let figures = BTreeMap::from([("commitLogDiskRatio".to_owned(), used.to_owned())]);
            let config = config
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect();
            let mut found = Vec::new();
            disk("b", &figures, &config, &mut found);
            found.len()
        };
        assert_eq!(found_at("0.86", &[]), 1);
        assert_eq!(
            found_at("0.86", &[("diskSpaceWarningLevelRatio", "0.95")]),
            0
        );
        assert_eq!(found_at("0.99", &[("diskSpaceWarningLevelRatio", "95")]), 1);
        assert_eq!(
            found_at("0.99", &[("diskSpaceWarningLevelRatio", "100")]),
            0
        );
    }

    #[test]
    fn one_id_from_two_addresses_is_found() {
        let member = |id: &str, addr: &str| Connection {
            client_id: id.to_owned(),
            client_addr: addr.to_owned(),
            ..Connection::default()
        };
        let members = ConsumerConnection {
            connection_set: vec![member("a", "h:1"), member("a", "h:2"), member("b", "h:3")],
            ..ConsumerConnection::default()
        };
        assert_eq!(
            repeated(&members),
            [("a".to_owned(), vec!["h:1".to_owned(), "h:2".to_owned()])]
        );
    }
}
