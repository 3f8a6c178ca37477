//! `clusterDiagnose`: what it finds only in clusters that are made so.

use minimq_client::{Client, Filter, StartFrom};
use serde_json::Value;

use crate::support::{Lab, finish, runtime, tool, until};

/// A module that never comes to an end.
const ENDLESS: &str = "(module (memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\")) (func (export \"filter\") (result i32) (loop $on (br $on)) (i32.const 1)))";

/// The first finding of a kind.
fn finding(lab: &Lab, kind: &str) -> Option<Value> {
    // A member that comes or goes meanwhile makes the status 4.
    let run = lab.line("clusterDiagnose -o json");
    let told: Value = serde_json::from_str(&run.out).ok()?;
    let mut findings = told["findings"].as_array()?.iter();
    findings.find(|one| one["kind"] == kind).cloned()
}

#[test]
fn queues_that_no_member_consumes_are_told() {
    let lab = Lab::start(&[], 1);
    lab.topic("HalfOne", 2);
    lab.topic("HalfTwo", 2);
    // Each member takes half of the queues of its topic: the other half belongs to the member that does not subscribe it.
    let runtime = runtime();
    let _members = runtime.block_on(async {
        let mut members = Vec::new();
        for topic in ["HalfOne", "HalfTwo"] {
            let client = Client::connect(lab.name_server()).await.unwrap();
            let consumer = client
                .push_consumer("HalfCG")
                .subscribe(topic, Filter::all())
                .run(|_| async {})
                .await
                .unwrap();
            members.push((client, consumer));
        }
        members
    });
    let found = until("queues without owner", || {
        let found = finding(&lab, "queues without owner")?;
        let what = found["what"].as_str()?.to_owned();
        (what.contains("HalfOne-broker-a-") && what.contains("HalfTwo-broker-a-")).then_some(what)
    });
    assert!(found.starts_with("group HalfCG: "), "{found}");
}

#[test]
fn a_filter_that_fails_is_told_with_its_last_error() {
    let lab = Lab::start(&[], 1);
    lab.topic("Endless", 1);
    until("the filter server in the route", || {
        let route = lab.json("topicRoute -t Endless");
        (!route["filterServerTable"].as_object()?.is_empty()).then_some(())
    });
    lab.send("Endless", "hello", "-b broker-a -i 0");
    let runtime = runtime();
    let _member = runtime.block_on(async {
        let client = Client::connect(lab.name_server()).await.unwrap();
        let consumer = client
            .push_consumer("EndlessCG")
            .start_from(StartFrom::Beginning)
            .subscribe("Endless", Filter::wasm(ENDLESS))
            .run(|_| async {})
            .await
            .unwrap();
        (client, consumer)
    });
    let found = until("the filter", || finding(&lab, "filter failing"));
    let what = found["what"].as_str().unwrap();
    assert!(what.starts_with("Endless@EndlessCG at "), "{found}");
    assert!(!found["reason"].as_str().unwrap().is_empty(), "{found}");
    let list = lab.json("filterList");
    assert!(list[0]["filters"][0]["lastError"].is_string(), "{list}");
}

#[test]
fn name_servers_that_know_other_brokers_are_told() {
    let (one, other) = (Lab::start(&[], 1), Lab::start(&[], 1));
    let servers = format!("{};{}", one.name_server(), other.name_server());
    let run = finish(tool().args(["clusterDiagnose", "-n", &servers]));
    assert_eq!(run.status, 0, "{run:?}");
    let told = run
        .out
        .lines()
        .find(|line| line.starts_with("ERROR name servers disagree: "))
        .unwrap_or_else(|| panic!("{run:?}"));
    for addr in [
        one.name_server(),
        other.name_server(),
        one.broker(0),
        other.broker(0),
    ] {
        assert!(told.contains(addr), "{told}");
    }
}
