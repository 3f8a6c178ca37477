//! Figures, probes and exports.

use serde_json::{Value, json};

use crate::support::{Lab, rows, until};

#[test]
fn rates_of_topics_and_groups_are_shown() {
    let lab = Lab::shared();
    lab.topic("Rated", 1);
    lab.send("Rated", "hello", "-b broker-a -i 0");
    let text = lab.ok("statsAll -t Rated");
    assert!(text.starts_with("#Topic"), "{text}");
    for heading in [
        "#Consumer Group",
        "#Accumulation",
        "#InTPS",
        "#OutTPS",
        "#InMsg24Hour",
        "#OutMsg24Hour",
    ] {
        assert!(text.contains(heading), "{text}");
    }
    assert!(text.trim_end().ends_with("NO_CONSUMER"), "{text}");
    let json = lab.json("statsAll");
    let one = json
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["topic"] == "Rated")
        .unwrap();
    assert_eq!(
        (&one["group"], &one["accumulation"]),
        (&Value::Null, &json!(0))
    );
    lab.ok("statsAll -a");
    let text = lab.ok("brokerConsumeStats -b broker-a");
    assert!(
        text.starts_with("#Topic") && text.contains("\nDiff Total: "),
        "{text}"
    );
    assert!(
        lab.json("brokerConsumeStats -b broker-a -l 1000000 -t 9000")["queues"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn probes_send_and_measure() {
    let lab = Lab::shared();
    lab.topic("Probed", 2);
    let text = lab.ok("sendMsgStatus -b broker-a -s 32 -c 3");
    assert_eq!(text.lines().count(), 3, "{text}");
    for line in text.lines() {
        assert!(
            line.starts_with("rt=")
                && line.contains("ms, SendResult=SendResult [sendStatus=SEND_OK, msgId="),
            "{text}"
        );
        assert!(
            line.contains(
                "messageQueue=MessageQueue [topic=broker-a, brokerName=broker-a, queueId=0]"
            ),
            "{text}"
        );
    }
    assert_eq!(
        lab.json("sendMsgStatus -b broker-b -c 1")[0]["status"],
        "SEND_OK"
    );
    let text = lab.ok("checkMsgSendRT -t Probed -a 5 -s 16");
    assert!(
        text.starts_with("#Broker Name") && text.lines().last().unwrap().starts_with("Avg RT: "),
        "{text}"
    );
    assert_eq!(rows(&text).len(), 6, "{text}");
    assert!(
        rows(&text)[..5].iter().all(|row| row[2] == "true"),
        "{text}"
    );
    assert!(
        lab.ok("checkMsgSendRT -t Probed -a 1")
            .ends_with("Avg RT: NaN\n")
    );
    let json = lab.json("checkMsgSendRT -t Probed -a 2");
    assert!(json["averageMs"].as_f64().unwrap() > 0.0);
    let text = lab.ok("clusterRT -a 2 -s 16 -c DefaultCluster -i 0 --times 1");
    let found = rows(&text);
    assert_eq!(found.len(), 2, "{text}");
    assert_eq!(
        (found[0][1], found[0][3], found[0][4]),
        ("broker-a", "2", "0"),
        "{text}"
    );
    let log = lab.ok("clusterRT -a 1 -p true -m room-1 -i 0 --times 1");
    assert!(log.contains("|room-1|DefaultCluster|broker-a|"), "{log}");
    lab.fails("checkMsgSendRT -t Probed --dry-run", 1);
}

#[test]
fn topics_groups_settings_and_figures_are_exported() {
    let lab = Lab::shared();
    lab.topic("Exported", 3);
    lab.ok("updateSubGroup -c DefaultCluster -g ExportedCG -q 2");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let read = |file: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(folder.path().join(file)).unwrap()).unwrap()
    };
    let text = lab.ok(&format!("exportMetadata -c DefaultCluster -f {path}"));
    assert_eq!(text, format!("export {path}/metadata.json success\n"));
    let metadata = read("metadata.json");
    // The numbers of both brokers are added up.
    assert_eq!(metadata["topicConfigTable"]["Exported"]["readQueueNums"], 6);
    assert_eq!(metadata["topicConfigTable"]["Exported"]["perm"], 6);
    assert_eq!(
        metadata["subscriptionGroupTable"]["ExportedCG"]["retryQueueNums"],
        4
    );
    assert!(metadata["exportTime"].as_i64().unwrap() > 0);
    for system in [
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "broker-a",
        "DefaultCluster",
    ] {
        assert_eq!(
            metadata["topicConfigTable"][system],
            Value::Null,
            "{system}"
        );
    }
    lab.ok(&format!("exportMetadata -b broker-a -f {path} -t"));
    let topics = read("topic.json");
    assert_eq!(topics["topicConfigTable"]["Exported"]["readQueueNums"], 3);
    assert_eq!(topics["subscriptionGroupTable"], Value::Null);
    let json = lab.json(&format!("exportMetadata -b broker-a -f {path} -g -s"));
    assert_eq!(json["content"], read("subscriptionGroup.json"));

    lab.ok(&format!("exportConfigs -c DefaultCluster -f {path}"));
    let configs = read("configs.json");
    assert_eq!(
        configs["clusterScale"],
        json!({ "namesrvSize": 1, "masterBrokerSize": 2, "slaveBrokerSize": 0 })
    );
    let golden = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/mqadmin/written-files/export__configs.json"
    ))
    .unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    for key in golden["brokerConfigs"]["broker-a"]
        .as_object()
        .unwrap()
        .keys()
    {
        let own = &configs["brokerConfigs"]["broker-a"][key];
        assert!(
            own.as_str().is_some_and(|value| !value.is_empty()),
            "{key}: {own}"
        );
    }

    lab.ok(&format!("exportMetrics -c DefaultCluster -f {path}"));
    let metrics = read("metrics.json");
    let one = &metrics["evaluateReport"]["broker-a"];
    assert_eq!(one["runtimeVersion"]["rocketmqVersion"], "V4_9_8");
    assert!(
        one["runtimeQuota"]["topicSize"].as_u64().unwrap() > 0,
        "{one}"
    );
    assert!(
        one["runtimeQuota"]["diskRatio"]["commitLogDiskRatio"].is_string(),
        "{one}"
    );
    assert!(
        metrics["totalData"]["totalTps"]["totalNormalInTps"].is_number(),
        "{metrics}"
    );
    assert!(
        metrics["totalData"]["totalOneDayNum"]["normalOneDayInNum"].is_number(),
        "{metrics}"
    );
}

#[test]
fn monitoring_tells_of_a_group_that_falls_behind() {
    let lab = Lab::shared();
    lab.topic("Watched", 1);
    lab.send("Watched", "hello", "-b broker-a -i 0");
    lab.ok("updateSubGroup -c DefaultCluster -g WatchedCG");
    // The group has an offset and no member.
    crate::support::commit(&lab, "WatchedCG", "Watched", 0);
    let found = until("the group's lag", || {
        let run = lab.line("startMonitoring --times 1 --behind 1 --output json");
        let lines: Vec<Value> = run
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let own: Vec<String> = lines
            .iter()
            .filter(|line| line["group"] == "WatchedCG")
            .map(|line| line["kind"].as_str().unwrap().to_owned())
            .collect();
        (!own.is_empty()).then_some(own)
    });
    assert_eq!(found, ["behind", "no consumer"]);
    let text = lab.line("startMonitoring --times 1 --behind 1").out;
    assert!(
        text.contains("[MONITOR] group WatchedCG is 1 messages behind"),
        "{text}"
    );
}
