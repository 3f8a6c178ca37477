//! The cluster on one screen: `status`, and `top`, which goes on.

use std::collections::BTreeMap;

use minimq_protocol::version;
use serde_json::{Value, json};

use super::brokers::{first_rate, number};
use super::progress::{GroupProgress, all_groups};
use crate::command::{CommandSpec, Kind, Outcome, default, long};
use crate::failure::Failure;
use crate::given::{Given, Place};
use crate::report::{Colour, Form, Report, Row};
use crate::text;

/// Share of the disk from which it is pointed out: the broker's own limits are 0.75 (cleaning) and 0.90 (refusing).
const DISK_HIGH: f64 = 0.75;
const DISK_FULL: f64 = 0.88;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "status",
        about: "The cluster on one screen: roles, versions, health, throughput, lag, disk, filter servers",
        example: "status",
        options: &[default(
            'c',
            "count",
            "10",
            "Groups shown, those furthest behind first",
        )],
        danger: None,
        run: |given| Box::pin(status(given)),
    },
    CommandSpec {
        name: "top",
        about: "Brokers and groups with most to do, again and again",
        example: "top --interval 2",
        options: &[
            long("interval", Kind::Default("2"), "Seconds between rounds"),
            long("times", Kind::Optional, "So many rounds, then end"),
            long("once", Kind::Flag, "One round"),
            default('c', "count", "10", "Groups shown"),
        ],
        danger: None,
        run: |given| Box::pin(top(given)),
    },
];

/// One broker as it is now.
struct BrokerState {
    place: Place,
    figures: Result<BTreeMap<String, String>, String>,
}

impl BrokerState {
    fn disk(&self) -> f64 {
        let ratio = |key: &str| {
            let table = self.figures.as_ref().ok()?;
            table.get(key)?.parse::<f64>().ok()
        };
        ratio("commitLogDiskRatio")
            .into_iter()
            .chain(ratio("consumeQueueDiskRatio"))
            .fold(0.0, f64::max)
    }

    fn colour(&self) -> Option<Colour> {
        match &self.figures {
            Err(_) => Some(Colour::Red),
            Ok(_) if self.disk() >= DISK_FULL => Some(Colour::Red),
            Ok(_) if self.disk() >= DISK_HIGH => Some(Colour::Yellow),
            Ok(_) => None,
        }
    }

    fn health(&self) -> &'static str {
        match self.colour() {
            Some(Colour::Red) if self.figures.is_err() => "AWAY",
            Some(Colour::Red) => "DISK FULL",
            Some(Colour::Yellow) => "DISK HIGH",
            _ => "OK",
        }
    }

    fn role(&self) -> String {
        match self.place.id {
            0 => "master".to_owned(),
            id => format!("slave {id}"),
        }
    }

    fn json(&self) -> Value {
        let empty = BTreeMap::new();
        let table = self.figures.as_ref().unwrap_or(&empty);
        json!({
            "cluster": self.place.cluster, "broker": self.place.broker, "id": self.place.id, "addr": self.place.addr,
            "role": self.role(), "health": self.health(), "error": self.figures.as_ref().err(),
            "version": table.get("brokerVersionDesc"), "inTps": first_rate(table, "putTps"),
            "outTps": first_rate(table, "getTransferedTps"), "diskRatio": self.disk(),
            "dispatchBehindBytes": number(table, "dispatchBehindBytes"), "uptime": table.get("runtime"),
        })
    }

    fn row(&self) -> Row {
        let mut cells = vec![
            self.place.cluster.clone(),
            self.place.broker.clone(),
            self.role(),
            self.place.addr.clone(),
            self.health().to_owned(),
        ];
        if let Ok(table) = &self.figures {
            cells.extend([
                table.get("brokerVersionDesc").cloned().unwrap_or_default(),
                format!("{:.1}", first_rate(table, "putTps")),
                format!("{:.1}", first_rate(table, "getTransferedTps")),
                format!("{:.0}%", self.disk() * 100.0),
                text::size(u64::try_from(number(table, "dispatchBehindBytes")).unwrap_or(0)),
            ]);
        }
        Row {
            cells,
            colour: self.colour(),
        }
    }
}

const BROKER_HEADINGS: [&str; 10] = [
    "#Cluster", "#Broker", "#Role", "#Addr", "#Health", "#Version", "#In/s", "#Out/s", "#Disk",
    "#Behind",
];

async fn broker_states(given: &Given) -> Result<Vec<BrokerState>, Failure> {
    let places = given.places(None).await?;
    let answers = given
        .all(&places, |place| given.admin.broker_runtime(&place.addr))
        .await;
    Ok(places
        .into_iter()
        .zip(answers)
        .map(|(place, answer)| BrokerState {
            place,
            figures: answer.map_err(|error| error.to_string()),
        })
        .collect())
}

/// The groups furthest behind.
async fn busiest(given: &Given) -> Result<(Vec<GroupProgress>, Vec<String>), Failure> {
    let shown = given.number_in("count", 1..=100_000usize)?;
    let (mut groups, missing) = match all_groups(given).await {
        Ok(found) => found,
        // No master answers: the brokers' table has said so.
        Err(failure) if failure.status() == 2 => (Vec::new(), Vec::new()),
        Err(failure) => return Err(failure),
    };
    groups.sort_by(|a, b| b.diff.cmp(&a.diff).then_with(|| a.group.cmp(&b.group)));
    groups.truncate(shown);
    Ok((groups, missing))
}

fn group_json(group: &GroupProgress) -> Value {
    json!({
        "group": group.group, "members": group.clients.len(), "tps": group.tps, "diffTotal": group.diff,
        "topics": group.topics, "queues": group.queues,
    })
}

fn group_row(group: &GroupProgress) -> Row {
    let version = group.newest.map(|v| version::name(v).into_owned());
    Row {
        cells: vec![
            group.group.clone(),
            group.clients.len().to_string(),
            version.unwrap_or_else(|| "OFFLINE".to_owned()),
            format!("{:.1}", group.tps),
            group.diff.to_string(),
        ],
        colour: (group.clients.is_empty() && group.diff > 0).then_some(Colour::Yellow),
    }
}

const GROUP_HEADINGS: [&str; 5] = ["#Group", "#Members", "#Version", "#Out/s", "#Behind"];

async fn status(given: &Given) -> Outcome {
    let servers = given.admin.name_servers();
    let reached = given
        .all(&servers, |server| given.admin.name_server_config(server))
        .await;
    let mut name_rows = Vec::new();
    let mut name_json = Vec::new();
    let mut missing = Vec::new();
    for (server, answer) in servers.iter().zip(&reached) {
        // One that does not tell its settings answers all the same.
        let error = answer.as_ref().err().filter(|error| error.code().is_none());
        if let Some(error) = error {
            missing.push(Failure::describe_error_at(server, error));
        }
        name_json.push(json!({ "addr": server, "reached": error.is_none() }));
        name_rows.push(Row {
            cells: vec![
                server.clone(),
                if error.is_some() { "AWAY" } else { "OK" }.to_owned(),
            ],
            colour: error.map(|_| Colour::Red),
        });
    }
    let brokers = broker_states(given).await?;
    for broker in &brokers {
        if let Err(error) = &broker.figures {
            missing.push(format!(
                "{} at {}: {error}",
                broker.place.broker, broker.place.addr
            ));
        }
    }
    let filters = given.admin.filter_servers().await.unwrap_or_default();
    let filters: Vec<String> = filters.into_values().flatten().collect();
    let figures = given
        .all(&filters, |addr| given.admin.filter_stats(addr))
        .await;
    let (mut filter_rows, mut filter_json) = (Vec::new(), Vec::new());
    for (addr, answer) in filters.iter().zip(figures) {
        let (cells, colour) = match &answer {
            Ok(stats) => (
                vec![
                    addr.clone(),
                    "OK".to_owned(),
                    stats.broker_name.clone().unwrap_or_default(),
                    stats.filters.len().to_string(),
                    stats.instances.to_string(),
                    text::size(u64::try_from(stats.instance_memory).unwrap_or(0)),
                ],
                None,
            ),
            Err(error) => {
                missing.push(Failure::describe_error_at(addr, error));
                (vec![addr.clone(), "AWAY".to_owned()], Some(Colour::Red))
            }
        };
        filter_json.push(json!({
            "addr": addr, "reached": answer.is_ok(), "filters": answer.as_ref().ok().map(|stats| stats.filters.len()),
        }));
        filter_rows.push(Row { cells, colour });
    }
    let (groups, untold) = busiest(given).await?;
    missing.extend(untold);
    let json = json!({
        "nameServers": name_json,
        "brokers": brokers.iter().map(BrokerState::json).collect::<Vec<_>>(),
        "filterServers": filter_json,
        "groups": groups.iter().map(group_json).collect::<Vec<_>>(),
    });
    let mut report = Report::new(json)
        .table(&["#Name Server", "#Health"], name_rows)
        .line("")
        .table(&BROKER_HEADINGS, brokers.iter().map(BrokerState::row));
    if !filter_rows.is_empty() {
        let headings = [
            "#Filter Server",
            "#Health",
            "#Broker",
            "#Filters",
            "#Instances",
            "#Memory",
        ];
        report = report.line("").table(&headings, filter_rows);
    }
    if !groups.is_empty() {
        report = report
            .line("")
            .table(&GROUP_HEADINGS, groups.iter().map(group_row));
    }
    Ok(report.missing(missing))
}

async fn top(given: &Given) -> Outcome {
    if given.flag("once") {
        return round(given).await;
    }
    let live = given.form == Form::Text && std::io::IsTerminal::is_terminal(&std::io::stdout());
    super::repeat(given, "interval", || async move {
        let report = round(given).await?;
        if live {
            // The screen is cleared only when the new picture is there.
            crate::report::print("\x1b[H\x1b[2J")?;
        }
        Ok(report)
    })
    .await
}

async fn round(given: &Given) -> Outcome {
    let brokers = broker_states(given).await?;
    let (groups, missing) = busiest(given).await?;
    let sum = |key: &str| -> f64 {
        let tables = brokers
            .iter()
            .filter_map(|broker| broker.figures.as_ref().ok());
        tables.map(|table| first_rate(table, key)).sum()
    };
    let (incoming, outgoing) = (sum("putTps"), sum("getTransferedTps"));
    let behind: i64 = groups.iter().map(|group| group.diff).sum();
    let now = text::now_ms();
    let json = json!({
        "time": now, "inTps": incoming, "outTps": outgoing,
        "brokers": brokers.iter().map(BrokerState::json).collect::<Vec<_>>(),
        "groups": groups.iter().map(group_json).collect::<Vec<_>>(),
    });
    let away = brokers.iter().filter_map(|broker| {
        let error = broker.figures.as_ref().err()?;
        Some(format!(
            "{} at {}: {error}",
            broker.place.broker, broker.place.addr
        ))
    });
    Ok(Report::new(json)
        .painted(
            Colour::Bold,
            format!(
                "{}  in {incoming:.1}/s  out {outgoing:.1}/s  behind {behind}",
                text::time_or_na(now)
            ),
        )
        .table(&BROKER_HEADINGS, brokers.iter().map(BrokerState::row))
        .line("")
        .table(&GROUP_HEADINGS, groups.iter().map(group_row))
        .missing(away.collect::<Vec<_>>())
        .missing(missing))
}
