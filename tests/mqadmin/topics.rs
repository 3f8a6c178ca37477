//! Topics: made, changed, looked at, deleted.

use serde_json::json;

use crate::support::{Lab, rows, until};

#[test]
fn a_topic_is_made_changed_shown_and_deleted() {
    let lab = Lab::shared();
    let (a, b) = (lab.broker(0), lab.broker(1));
    let made = lab.ok("updateTopic -c DefaultCluster -t Shown -r 3 -w 2 -p 6");
    assert!(
        made.contains(&format!("create topic to {a} success.\n")),
        "{made}"
    );
    assert!(
        made.contains(&format!("create topic to {b} success.\n")),
        "{made}"
    );
    assert!(
        made.ends_with("TopicConfig [topicName=Shown, readQueueNums=3, writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false]\n"),
        "{made}"
    );
    let route = until("the route", || {
        let run = lab.line("topicRoute -t Shown");
        let json: serde_json::Value = serde_json::from_str(&run.out).ok()?;
        (json["queueDatas"].as_array()?.len() == 2).then_some(json)
    });
    assert_eq!(route["queueDatas"][0]["readQueueNums"], 3);
    assert_eq!(route["queueDatas"][0]["writeQueueNums"], 2);
    assert_eq!(route["queueDatas"][0]["perm"], 6);
    assert_eq!(route["brokerDatas"][0]["cluster"], "DefaultCluster");
    assert_eq!(
        lab.json("topicRoute -t Shown")["queueDatas"],
        route["queueDatas"]
    );

    let table = lab.ok("topicRoute -t Shown -l");
    assert!(
        table.starts_with("#ClusterName") && table.contains(&format!("{{0={a}}}")),
        "{table}"
    );
    assert_eq!(rows(&table).last().unwrap(), &["Total:", "2", "6", "4"]);

    lab.send("Shown", "hello", "-b broker-a -i 1");
    lab.stored("Shown", 1);
    let status = lab.ok("topicStatus -t Shown");
    assert_eq!(rows(&status).len(), 4, "{status}");
    let written: Vec<_> = rows(&status)
        .into_iter()
        .filter(|row| row[3] == "1")
        .collect();
    assert_eq!(written.len(), 1, "{status}");
    assert_eq!(written[0][..4], ["broker-a", "1", "0", "1"]);
    assert_eq!(written[0].len(), 6, "a time: {status}");
    let status = lab.json("topicStatus -t Shown");
    let one = status
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["maxOffset"] == 1)
        .unwrap();
    assert_eq!(
        (&one["broker"], &one["queueId"]),
        (&json!("broker-a"), &json!(1))
    );
    assert!(one["lastUpdated"].as_i64().unwrap() > 0);

    assert_eq!(lab.ok("topicClusterList -t Shown"), "DefaultCluster\n");
    assert_eq!(
        lab.json("topicClusterList -t Shown"),
        json!(["DefaultCluster"])
    );
    assert!(lab.ok("topicList").lines().any(|line| line == "Shown"));
    assert!(
        lab.json("topicList")
            .as_array()
            .unwrap()
            .contains(&json!("Shown"))
    );
    let clusters = lab.ok("topicList -c");
    assert!(clusters.starts_with("#Cluster Name"), "{clusters}");
    assert!(
        rows(&clusters).contains(&vec!["DefaultCluster", "Shown"]),
        "{clusters}"
    );

    // A patch leaves what is not named.
    let patched = lab.ok("updateTopic -b broker-a -t Shown -w 3 --patch");
    assert!(
        patched.contains("readQueueNums=3, writeQueueNums=3"),
        "{patched}"
    );

    let changed = lab.ok("updateTopicPerm -b broker-a -t Shown -p 4");
    assert!(
        changed.starts_with(&format!("update topic perm from 6 to 4 in {a} success.\n")),
        "{changed}"
    );
    assert!(changed.contains("perm=R--"), "{changed}");
    assert_eq!(
        lab.ok("updateTopicPerm -b broker-a -t Shown -p 4")
            .lines()
            .next()
            .unwrap(),
        "new perm equals to the old one!"
    );
    let changed = lab.json("updateTopicPerm -c DefaultCluster -t Shown -p 2");
    assert_eq!(changed["changed"][0]["before"], 4);
    assert_eq!(
        changed["changed"][1],
        json!({ "broker": b, "before": 6, "now": 2 })
    );

    assert_eq!(
        lab.ok("deleteTopic -c DefaultCluster -t Shown"),
        "delete topic [Shown] from cluster [DefaultCluster] success.\ndelete topic [Shown] from NameServer success.\n"
    );
    until("the route gone", || {
        (lab.line("topicRoute -t Shown").status == 5).then_some(())
    });
    // Deleting what is not there is no failure.
    assert_eq!(
        lab.json("deleteTopic -c DefaultCluster -t Shown")["topic"],
        "Shown"
    );
}

#[test]
fn an_ordered_topic_has_an_order_configuration() {
    let lab = Lab::shared();
    let made = lab.ok("updateTopic -c DefaultCluster -t Ordered -r 2 -w 2 -o true");
    assert!(
        made.contains("set cluster orderConf. isOrder=true, orderConf=[broker-a:2;broker-b:2]\n"),
        "{made}"
    );
    assert_eq!(
        lab.ok("updateOrderConf -t Ordered -m get"),
        "get orderConf success. topic=[Ordered], orderConf=[broker-a:2;broker-b:2]\n"
    );
    // One broker's part leaves the other's.
    let made = lab.ok("updateTopic -b broker-a -t Ordered -r 4 -w 4 -o true");
    assert!(made.contains("set broker orderConf."), "{made}");
    let got = lab.json("updateOrderConf -t Ordered -m get");
    assert_eq!(
        got,
        json!({ "topic": "Ordered", "orderConf": "broker-a:4;broker-b:2" })
    );
    assert_eq!(
        lab.ok("updateOrderConf -t Ordered -m put -v broker-a:1"),
        "update orderConf success. topic=[Ordered], orderConf=[broker-a:1]\n"
    );
    assert_eq!(
        lab.ok("updateOrderConf -t Ordered -m delete"),
        "delete orderConf success. topic=[Ordered]\n"
    );
    lab.fails("updateOrderConf -t Ordered -m get", 5);
}

#[test]
fn queues_are_shared_out_evenly_and_completely() {
    let lab = Lab::shared();
    lab.topic("Shared", 4);
    let text = lab.ok("allocateMQ -t Shared -i 10.0.0.1,10.0.0.2,10.0.0.3");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        json,
        lab.json("allocateMQ -t Shared -i 10.0.0.1,10.0.0.2,10.0.0.3")
    );
    let result = json["result"].as_object().unwrap();
    let sizes: Vec<usize> = result
        .values()
        .map(|queues| queues.as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [3, 3, 2]);
    let mut all: Vec<String> = result
        .values()
        .flat_map(|queues| queues.as_array().unwrap())
        .map(|queue| {
            format!(
                "{}{}{}",
                queue["topic"], queue["brokerName"], queue["queueId"]
            )
        })
        .collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 8);
}

#[test]
fn a_dry_run_shows_the_requests_and_changes_nothing() {
    let lab = Lab::shared();
    let (a, b) = (lab.broker(0), lab.broker(1));
    let shown = lab.ok("updateTopic -c DefaultCluster -t NeverMade --dry-run");
    assert!(shown.starts_with("Nothing was changed."), "{shown}");
    assert_eq!(
        shown.matches("UPDATE_AND_CREATE_TOPIC").count(),
        2,
        "{shown}"
    );
    assert!(shown.contains("topic=NeverMade"), "{shown}");
    let json = lab.json("deleteTopic -c DefaultCluster -t TBW102 --dry-run");
    assert_eq!(json["dryRun"], true);
    let sent: Vec<(&str, i64)> = json["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["addr"].as_str().unwrap(), one["code"].as_i64().unwrap()))
        .collect();
    // By address, those asked at once.
    assert_eq!(
        sent,
        [(a.min(b), 215), (a.max(b), 215), (lab.name_server(), 216)]
    );
    let json = lab.json("updateAclConfig -b broker-a -a NeverMadeKey -s very-secret-1 --dry-run");
    assert!(!json.to_string().contains("very-secret-1"), "{json}");
    let json = lab.json("resetOffsetByTime -g G -t TBW102 -s now --dry-run");
    assert_eq!(json["requests"][0]["code"], 222, "{json}");
    let topics = lab.ok("topicList");
    assert!(
        topics.lines().any(|t| t == "TBW102") && !topics.contains("NeverMade"),
        "{topics}"
    );
    // What only reads runs as ever.
    assert_eq!(
        lab.ok("topicClusterList -t TBW102 --dry-run"),
        "DefaultCluster\n"
    );
}
