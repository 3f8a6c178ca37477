//! Settings: a file checked by the program it is for, or the settings of a running cluster compared with each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use super::pairs;
use crate::command::{CommandSpec, Kind, Opt, Outcome, long, optional};
use crate::failure::Failure;
use crate::given::{Given, Place};
use crate::report::{Colour, Report};

const FILE: Opt = Opt {
    short: '\0',
    long: "FILE",
    kind: Kind::OptionalWord,
    help: "A properties file; without one the running cluster's settings are compared",
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "configCheck",
    about: "Check a configuration file, or compare the settings of a running cluster",
    example: "configCheck conf/broker.conf",
    options: &[
        FILE,
        long(
            "role",
            Kind::Optional,
            "broker, namesrv or filtersrv; without it told from the file's keys",
        ),
        optional('c', "clusterName", "Without a file: only this cluster"),
    ],
    danger: None,
    run: |given| Box::pin(check(given)),
}];

async fn check(given: &Given) -> Outcome {
    match given.optional("FILE") {
        Some(path) => check_file(given, path),
        None => compare(given).await,
    }
}

/// The role whose program checks the file.
fn role(given: &Given, keys: &BTreeMap<String, String>) -> Result<&'static str, Failure> {
    let by_keys = || {
        if keys.contains_key("connectWhichBroker") {
            "filtersrv"
        } else if keys.contains_key("kvConfigPath") || keys.contains_key("orderMessageEnable") {
            "namesrv"
        } else {
            "broker"
        }
    };
    Ok(match given.optional("role") {
        None => by_keys(),
        Some("broker") => "broker",
        Some("namesrv") => "namesrv",
        Some("filtersrv") => "filtersrv",
        Some(other) => {
            return Err(Failure::Usage(format!(
                "--role is \"{other}\", it must be broker, namesrv or filtersrv"
            )));
        }
    })
}

fn check_file(given: &Given, path: &str) -> Outcome {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::io(format!("cannot read {path}"), error))?;
    let role = role(given, &pairs(&text))?;
    let program = beside(&format!("mq{role}"))?;
    // The others have no test of their own; printing every key reads the file as a start does.
    let test = if role == "broker" { "-t" } else { "-p" };
    let output = Command::new(&program)
        .args(["-c", path, test])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::io(format!("cannot run {}", program.display()), error))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let warnings: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    if !output.status.success() {
        return Err(Failure::Refused(warnings.join("\n")));
    }
    let good = "the configuration is good";
    let report =
        Report::new(json!({ "file": path, "role": role, "good": true, "warnings": warnings }));
    Ok(warnings
        .iter()
        .fold(report, |report, line| report.painted(Colour::Yellow, *line))
        .painted(Colour::Green, good))
}

/// A program that was installed with this one.
fn beside(name: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::io("cannot find this program's folder", error))?;
    let program = own.parent().unwrap_or(Path::new(".")).join(name);
    if program.exists() {
        return Ok(program);
    }
    Err(Failure::NotFound(format!(
        "{} is not there: the file is checked by the program it is for",
        program.display()
    )))
}

/// Settings that all brokers of a cluster should have alike, and why.
const ALIKE: &[(&str, &str)] = &[
    (
        "messageDelayLevel",
        "a delayed message would wait for another time at each broker",
    ),
    (
        "maxMessageSize",
        "a message that one broker takes would be refused by another",
    ),
    (
        "autoCreateTopicEnable",
        "whether a topic is made on demand would depend on the broker that is asked",
    ),
    (
        "autoCreateSubscriptionGroup",
        "whether a group is made on demand would depend on the broker that is asked",
    ),
    (
        "enablePropertyFilter",
        "SQL subscriptions would fail at some brokers",
    ),
    (
        "aclEnable",
        "some brokers would take requests without an account",
    ),
    (
        "flushDiskType",
        "how safe a message is would depend on its queue",
    ),
    ("msgTraceTopicName", "traces would go to different topics"),
    (
        "transactionCheckInterval",
        "transactions would be checked at another pace",
    ),
    (
        "transactionTimeOut",
        "transactions would be checked at another time",
    ),
    (
        "fileReservedTime",
        "messages would live for another time at each broker",
    ),
];

/// One thing that is worth a look.
struct Finding {
    what: String,
    why: &'static str,
}

async fn compare(given: &Given) -> Outcome {
    let places = given.places(given.optional("clusterName")).await?;
    let answers = given
        .all(&places, |place| given.admin.broker_config(&place.addr))
        .await;
    let (mut missing, mut settings) = (Vec::new(), Vec::new());
    for (place, answer) in places.iter().zip(answers) {
        match answer {
            Ok(text) => settings.push((place, pairs(&text))),
            Err(error) => missing.push(Failure::describe_error_at(&place.addr, &error)),
        }
    }
    if settings.is_empty() {
        return Err(Failure::NotFound(format!(
            "no broker told its settings: {}",
            missing.join("; ")
        )));
    }
    let findings = findings(&settings);
    let json: Vec<_> = findings
        .iter()
        .map(|one| json!({ "what": one.what, "why": one.why }))
        .collect();
    let mut report = Report::new(json!({ "brokers": settings.len(), "findings": json }));
    for one in &findings {
        report = report
            .painted(Colour::Yellow, &*one.what)
            .line(format!("  {}", one.why));
    }
    if findings.is_empty() {
        report = report.painted(
            Colour::Green,
            format!("{} brokers looked at, nothing found", settings.len()),
        );
    }
    Ok(report.missing(missing))
}

fn findings(settings: &[(&Place, BTreeMap<String, String>)]) -> Vec<Finding> {
    let mut found = Vec::new();
    let clusters: BTreeSet<&str> = settings
        .iter()
        .map(|(place, _)| place.cluster.as_str())
        .collect();
    for cluster in clusters {
        for (key, why) in ALIKE {
            let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            let own = settings
                .iter()
                .filter(|(place, _)| place.cluster == cluster);
            for (place, table) in own {
                if let Some(value) = table.get(*key) {
                    values.entry(value).or_default().push(&place.addr);
                }
            }
            if values.len() > 1 {
                let parts: Vec<String> = values
                    .iter()
                    .map(|(value, addrs)| format!("\"{value}\" at {}", addrs.join(", ")))
                    .collect();
                found.push(Finding {
                    what: format!("{key} differs in {cluster}: {}", parts.join("; ")),
                    why,
                });
            }
        }
    }
    for (place, table) in settings {
        let is = |key: &str, value: &str| {
            table
                .get(key)
                .is_some_and(|v| v.eq_ignore_ascii_case(value))
        };
        let mut add = |what: String, why| {
            found.push(Finding {
                what: format!("{}: {what}", place.addr),
                why,
            })
        };
        if is("brokerRole", "SYNC_MASTER")
            && !settings
                .iter()
                .any(|(other, _)| other.broker == place.broker && other.id != 0)
        {
            add(
                "brokerRole=SYNC_MASTER and no slave is registered".to_owned(),
                "every send is answered SLAVE_NOT_AVAILABLE; start a slave, or set ASYNC_MASTER",
            );
        }
        if is("brokerRole", "SLAVE") != (place.id != 0) {
            add(
                format!(
                    "brokerRole={} and broker id {}",
                    table.get("brokerRole").cloned().unwrap_or_default(),
                    place.id
                ),
                "a master has id 0 and a slave another",
            );
        }
        let ip = place.addr.rsplit_once(':').map_or("", |(host, _)| host);
        if ["0.0.0.0", "[::]"].contains(&ip) {
            add(
                "advertises an address that nobody can connect to".to_owned(),
                "set brokerIP1 to an address that clients reach",
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_and_lonely_masters_are_found() {
        let place = |broker: &str, id, addr: &str| Place {
            cluster: "C".to_owned(),
            broker: broker.to_owned(),
            id,
            addr: addr.to_owned(),
        };
        let table = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        let (a, b, s) = (
            place("a", 0, "10.0.0.1:1"),
            place("b", 0, "0.0.0.0:1"),
            place("a", 1, "10.0.0.3:1"),
        );
        let settings = [
            (
                &a,
                table(&[("maxMessageSize", "1"), ("brokerRole", "SYNC_MASTER")]),
            ),
            (
                &b,
                table(&[("maxMessageSize", "2"), ("brokerRole", "SYNC_MASTER")]),
            ),
            (
                &s,
                table(&[("maxMessageSize", "1"), ("brokerRole", "ASYNC_MASTER")]),
            ),
        ];
        let texts: Vec<String> = findings(&settings)
            .into_iter()
            .map(|one| one.what)
            .collect();
        assert_eq!(
            texts,
            [
                "maxMessageSize differs in C: \"1\" at 10.0.0.1:1, 10.0.0.3:1; \"2\" at 0.0.0.0:1",
                "0.0.0.0:1: brokerRole=SYNC_MASTER and no slave is registered",
                "0.0.0.0:1: advertises an address that nobody can connect to",
                "10.0.0.3:1: brokerRole=ASYNC_MASTER and broker id 1",
            ]
        );
    }
}
