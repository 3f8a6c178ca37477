//! Brokers and clusters: who is there, figures, settings, permissions, clean-ups; and one that is away.

use std::net::TcpListener;

use serde_json::json;

use crate::support::{Lab, rows, until};

#[test]
fn the_cluster_is_listed_with_figures() {
    let lab = Lab::shared();
    let text = lab.ok("clusterList");
    for heading in [
        "#Cluster Name",
        "#BID",
        "#Version",
        "#InTPS(LOAD)",
        "#OutTPS(LOAD)",
        "#PCWait(ms)",
        "#Hour",
        "#SPACE",
    ] {
        assert!(text.lines().next().unwrap().contains(heading), "{text}");
    }
    let found = rows(&text);
    assert_eq!(found.len(), 2);
    assert_eq!(
        found[0][..4],
        ["DefaultCluster", "broker-a", "0", lab.broker(0)]
    );
    assert!(
        found[0].len() == 10 && found[0][5].ends_with("ms)"),
        "{text}"
    );
    let json = lab.json("clusterList");
    assert_eq!(
        (&json[1]["broker"], &json[1]["reached"]),
        (&json!("broker-b"), &json!(true))
    );
    assert!(
        json[1]["version"]
            .as_str()
            .is_some_and(|version| !version.is_empty())
    );
    assert!(lab.ok("clusterList -m").contains("#InTotalToday"));
    // So many rounds, one JSON document a line.
    let run = lab.line("clusterList -i 0 --times 3 -o json");
    assert_eq!((run.status, run.out.lines().count()), (0, 3), "{run:?}");
}

#[test]
fn figures_and_settings_of_brokers_are_shown_and_changed() {
    let lab = Lab::shared();
    let text = lab.ok("brokerStatus -b broker-a");
    for key in [
        "bootTimestamp",
        "brokerVersionDesc",
        "commitLogDiskRatio",
        "putTps",
        "msgPutTotalTodayNow",
    ] {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{key:<32}: ")));
        assert!(line.is_some_and(|line| line.len() > 34), "{key}: {text}");
    }
    let text = lab.ok("brokerStatus -c DefaultCluster");
    for addr in [lab.broker(0), lab.broker(1)] {
        assert!(
            text.contains(&format!("{addr:<24} bootTimestamp")),
            "{text}"
        );
    }
    let json = lab.json(&format!("brokerStatus -b {}", lab.broker(0)));
    assert!(
        json[lab.broker(0)]["runtime"].is_string() || json[lab.broker(0)]["putTps"].is_string(),
        "{json}"
    );

    let text = lab.ok("getBrokerConfig -b broker-b");
    assert!(
        text.starts_with(&format!("============{}============\n", lab.broker(1))),
        "{text}"
    );
    assert!(
        text.contains(&format!("{:<50}=  broker-b\n", "brokerName")),
        "{text}"
    );
    assert_eq!(
        lab.json("getBrokerConfig -c DefaultCluster")
            .as_object()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        lab.ok("updateBrokerConfig -b broker-b -k maxMessageSize -v 1048576"),
        format!("update broker config success, {}\n", lab.broker(1))
    );
    let json = lab.json("getBrokerConfig -b broker-b");
    assert_eq!(json[lab.broker(1)]["maxMessageSize"], "1048576");
    let json = lab.json("updateBrokerConfig -b broker-b -k maxMessageSize -v 4194304");
    assert_eq!(
        json,
        json!({ "key": "maxMessageSize", "value": "4194304", "brokers": [lab.broker(1)] })
    );
    // Refused keys: the broker, the code and its reason are named.
    let err = lab.fails(
        "updateBrokerConfig -b broker-b -k brokerConfigPath -v /tmp/x",
        3,
    );
    for part in [lab.broker(1), "CODE: 16", "try: "] {
        assert!(err.contains(part), "{part}: {err}");
    }
}

#[test]
fn write_permission_is_taken_and_given_back() {
    let lab = Lab::start(&[], 2);
    lab.topic("Written", 1);
    let server = lab.name_server();
    let text = lab.ok("wipeWritePerm -b broker-a");
    assert!(
        text.starts_with(&format!(
            "wipe write perm of broker[broker-a] in name server[{server}] OK, "
        )),
        "{text}"
    );
    let perm = |broker: &str| {
        let route = lab.json("topicRoute -t Written");
        let queues = route["queueDatas"].as_array().unwrap().clone();
        queues
            .iter()
            .find(|data| data["brokerName"] == broker)
            .unwrap()["perm"]
            .clone()
    };
    assert_eq!((perm("broker-a"), perm("broker-b")), (json!(4), json!(6)));
    let json = lab.json("addWritePerm -b broker-a");
    assert!(json[0]["topics"].as_i64().unwrap() > 0, "{json}");
    assert_eq!(perm("broker-a"), 6);
    let err = lab.fails("wipeWritePerm -b nobroker", 5);
    assert!(err.contains("known: broker-a, broker-b"), "{err}");
}

#[test]
fn clean_ups_are_done_at_one_broker_a_cluster_or_everywhere() {
    let lab = Lab::shared();
    for command in [
        "cleanExpiredCQ",
        "cleanUnusedTopic",
        "deleteExpiredCommitLog",
    ] {
        assert!(
            lab.ok(&format!("{command} -b broker-a"))
                .ends_with("\nsuccess\n")
        );
        assert_eq!(
            lab.json(&format!("{command} -c DefaultCluster"))["brokers"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        assert_eq!(lab.json(command)["brokers"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn what_one_of_two_brokers_did_not_do_is_said_with_status_4() {
    let lab = Lab::start(&[], 1);
    // A second broker is registered and not there.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    crate::support::register_ghost(&lab, "broker-z", &free.to_string());
    until("both listed", || {
        (rows(&lab.line("clusterList --timeout 2").out).len() == 2).then_some(())
    });
    for line in [
        "updateTopic -c DefaultCluster -t Half",
        "updateSubGroup -c DefaultCluster -g Half",
        "updateBrokerConfig -c DefaultCluster -k maxMessageSize -v 4194304",
        "brokerStatus -c DefaultCluster",
        "getBrokerConfig -c DefaultCluster",
        "cleanExpiredCQ -c DefaultCluster",
        "clusterList",
        "consumerProgress",
        "deleteTopic -c DefaultCluster -t Half",
    ] {
        let run = lab.line(&format!("{line} --timeout 2"));
        assert_eq!(run.status, 4, "{line}: {run:?}");
        assert!(run.err.contains(&free.to_string()), "{line}: {run:?}");
        assert!(!run.out.is_empty(), "{line}: {run:?}");
        let json = lab.line(&format!("{line} --timeout 2 --output json"));
        assert_eq!(json.status, 4, "{line}: {json:?}");
        assert!(
            serde_json::from_str::<serde_json::Value>(&json.out).is_ok(),
            "{line}: {json:?}"
        );
    }
}
