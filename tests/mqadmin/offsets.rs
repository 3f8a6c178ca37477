//! Offsets of groups: reset, skipped, copied.

use serde_json::json;

use crate::support::{Lab, commit, rows, until};

#[test]
fn offsets_of_a_group_without_members_are_moved() {
    let lab = Lab::shared();
    lab.topic("Moved", 1);
    lab.ok("updateSubGroup -c DefaultCluster -g MovedCG");
    for body in ["one", "two", "three"] {
        lab.send("Moved", body, "-b broker-a -i 0");
    }
    lab.stored("Moved", 3);
    commit(&lab, "MovedCG", "Moved", 1);
    let text = lab.ok("resetOffsetByTime -g MovedCG -t Moved -s 1000");
    assert!(
        text.starts_with("rollback consumer offset by specified group[MovedCG], topic[Moved], force[true], timestamp(string)[1000], timestamp(long)[1000]\n"),
        "{text}"
    );
    for heading in [
        "#brokerOffset",
        "#consumerOffset",
        "#timestampOffset",
        "#rollbackOffset",
    ] {
        assert!(text.contains(heading), "{text}");
    }
    let row = rows(&text)
        .into_iter()
        .find(|row| row[0] == "broker-a")
        .unwrap();
    assert_eq!(row, ["broker-a", "0", "3", "1", "0", "0"], "{text}");
    let json = lab.json("skipAccumulatedMessage -g MovedCG -t Moved");
    assert_eq!(json["online"], false);
    let queue = json["queues"]
        .as_array()
        .unwrap()
        .iter()
        .find(|q| q["broker"] == "broker-a")
        .unwrap();
    assert_eq!(
        (&queue["consumerOffset"], &queue["rollbackOffset"]),
        (&json!(0), &json!(3))
    );
    // Without force it moves back only.
    for (when, expected) in [("1000", 0), ("now", 0)] {
        let json = lab.json(&format!(
            "resetOffsetByTime -g MovedCG -t Moved -s {when} -f false"
        ));
        let queues = json["queues"].as_array().unwrap();
        let queue = queues.iter().find(|q| q["broker"] == "broker-a").unwrap();
        assert_eq!(queue["rollbackOffset"], expected, "{when}");
    }
    lab.fails("resetOffsetByTime -g MovedCG -t NoSuchTopic -s now", 5);
}

#[test]
fn offsets_are_copied_to_another_group() {
    let lab = Lab::shared();
    lab.topic("Copied", 1);
    lab.send("Copied", "one", "-b broker-a -i 0");
    for group in ["CopiedFrom", "CopiedTo"] {
        lab.ok(&format!("updateSubGroup -c DefaultCluster -g {group}"));
        lab.ok(&format!(
            "updateTopic -c DefaultCluster -t %RETRY%{group} -r 1 -w 1"
        ));
    }
    until("the routes", || {
        let routes = ["CopiedFrom", "CopiedTo"]
            .map(|group| lab.line(&format!("topicRoute -t %RETRY%{group}")).status);
        (routes == [0, 0]).then_some(())
    });
    lab.stored("Copied", 1);
    commit(&lab, "CopiedFrom", "Copied", 1);
    assert_eq!(
        lab.ok("cloneGroupOffset -s CopiedFrom -d CopiedTo -t Copied -o true"),
        "clone group offset success. srcGroup[CopiedFrom], destGroup=[CopiedTo], topic[Copied]\n"
    );
    let progress = lab.json("consumerProgress -g CopiedTo");
    let queue = progress["queues"]
        .as_array()
        .unwrap()
        .iter()
        .find(|q| q["topic"] == "Copied")
        .unwrap();
    assert_eq!(
        (&queue["consumerOffset"], &queue["diff"]),
        (&json!(1), &json!(0))
    );
}
