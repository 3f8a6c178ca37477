//! What the stock tool of 4.9.8 printed for the same calls: headings, keys and fixed words are here too, and where it has
//! values ours has some.

use serde_json::Value;

use crate::support::{Lab, commit, rows, until};

/// Calls recorded for a command: (words behind the command, standard output).
fn recorded(command: &str) -> Vec<(String, String)> {
    let path = format!(
        "{}/tests/golden/mqadmin/{command}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let calls: Value = serde_json::from_str(&text).unwrap();
    let calls = calls.as_array().unwrap().iter();
    calls
        .map(|call| {
            let line = call["commandLine"].as_str().unwrap();
            let out = call["stdout"].as_str().unwrap();
            (line.to_owned(), out.to_owned())
        })
        .collect()
}

/// Headings of a text, each from # to the next.
fn headings(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines
        .flat_map(|line| {
            line.split('#')
                .skip(1)
                .map(|heading| heading.trim().to_owned())
        })
        .collect()
}

#[test]
fn tables_have_the_stock_headings_in_the_stock_order() {
    let lab = Lab::shared();
    lab.topic("GoldenT", 2);
    let id = lab.send("GoldenT", "hello", "-k golden-key -b broker-a -i 0 -m true");
    lab.stored("GoldenT", 1);
    lab.ok("updateSubGroup -c DefaultCluster -g GoldenCG");
    lab.ok("updateTopic -c DefaultCluster -t %RETRY%GoldenCG -r 1 -w 1");
    commit(&lab, "GoldenCG", "GoldenT", 0);
    for line in [
        format!("queryMsgTraceById -i {id}"),
        "queryMsgByKey -t GoldenT -k golden-key".to_owned(),
        "consumerProgress -g GoldenCG".to_owned(),
    ] {
        until("what is looked at", || {
            (lab.line(&line).status == 0).then_some(())
        });
    }
    // Ours, the command recorded, and a part of the line that was recorded.
    let calls = [
        ("clusterList", "clusterList", "-n 127.0.0.1:9876"),
        ("clusterList -m", "clusterList", " -m"),
        ("topicList -c", "topicList", " -c"),
        ("topicRoute -t GoldenT -l", "topicRoute", " -l"),
        ("topicStatus -t GoldenT", "topicStatus", "-t TopicA"),
        ("consumerProgress", "consumerProgress", "-n 127.0.0.1:9876"),
        (
            "consumerProgress -g GoldenCG",
            "consumerProgress",
            "-g CGlive",
        ),
        (
            "consumerProgress -g GoldenCG -s true",
            "consumerProgress",
            "-s true",
        ),
        ("statsAll", "statsAll", "-a"),
        (
            "brokerConsumeStats -b broker-a",
            "brokerConsumeStats",
            "-b ",
        ),
        ("sendMessage -t GoldenT -p x", "sendMessage", "-t TopicA"),
        (
            "checkMsgSendRT -t GoldenT -a 1",
            "checkMsgSendRT",
            "-t TopicA",
        ),
        ("clusterRT -a 1 -i 0 --times 1", "clusterRT", "-a 2"),
        (
            "queryMsgByKey -t GoldenT -k golden-key",
            "queryMsgByKey",
            "-k ",
        ),
    ];
    for (line, command, part) in calls {
        let own = lab.ok(line);
        let calls = recorded(command);
        let (_, stock) = calls
            .iter()
            .find(|(line, out)| line.contains(part) && out.starts_with('#'))
            .unwrap_or_else(|| panic!("{command} {part} is not recorded"));
        // A table that is repeated has its headings once more.
        let mut stock = headings(stock);
        stock.dedup();
        let count = headings(&own).len();
        assert_eq!(headings(&own), stock[..count.min(stock.len())], "{line}");
        assert!(!rows(&own).is_empty(), "{line}: {own}");
    }
    let own = lab.ok(&format!("queryMsgTraceById -i {id}"));
    let (_, stock) = recorded("queryMsgTraceById").remove(0);
    assert_eq!(headings(&own), headings(&stock));
}

#[test]
fn a_broker_tells_every_figure_that_a_stock_broker_tells() {
    let lab = Lab::shared();
    let (_, stock) = recorded("brokerStatus").remove(0);
    let own = lab.json("brokerStatus -b broker-a");
    let own = own[lab.broker(0)].as_object().unwrap();
    let mut looked_at = 0;
    for line in stock.lines() {
        let (key, value) = line.split_once(':').unwrap();
        let key = key.trim();
        // The name of one holds the path of the store; delay levels have figures once they were used.
        if key.contains('/') || key.starts_with("scheduleMessageOffset_") || value.trim().is_empty()
        {
            continue;
        }
        let told = own.get(key).and_then(Value::as_str);
        assert!(told.is_some_and(|told| !told.is_empty()), "{key}: {told:?}");
        looked_at += 1;
    }
    assert!(looked_at > 30, "{looked_at}");
}

#[test]
fn fixed_words_of_the_stock_tool_are_said() {
    let lab = Lab::shared();
    lab.topic("WordsT", 1);
    // Each line of the recorded output, with what differs from cluster to cluster replaced.
    let own_of = |text: &str| {
        text.replace("127.0.0.1:10911", lab.broker(0))
            .replace("127.0.0.1:9876", lab.name_server())
            .replace("TopicA", "WordsT")
    };
    for (command, line) in [
        ("updateKvConfig", "updateKvConfig -s WORDS_NS -k k -v v"),
        ("deleteKvConfig", "deleteKvConfig -s WORDS_NS -k k"),
        (
            "updateBrokerConfig",
            "updateBrokerConfig -b broker-a -k maxMessageSize -v 4194304",
        ),
        (
            "updateNamesrvConfig",
            "updateNamesrvConfig -k clusterTest -v false",
        ),
        ("topicClusterList", "topicClusterList -t WordsT"),
    ] {
        let (_, stock) = recorded(command).remove(0);
        let own = lab.ok(line);
        assert_eq!(own.trim_end(), own_of(&stock).trim_end(), "{command}");
    }
}
