//! How the tool is called: names, options, help, mistakes, and servers that are not there (case cli-01).

use serde_json::Value;

use crate::support::{Lab, bare, finish, tool};

#[test]
fn the_list_and_the_help_name_every_command_with_an_example() {
    let list = bare("");
    assert_eq!(list.status, 0);
    assert!(
        list.out
            .starts_with("The most commonly used mqadmin commands are:\n")
    );
    let names: Vec<&str> = list
        .out
        .lines()
        .filter_map(|line| line.strip_prefix("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() >= 56, "{names:?}");
    assert_eq!(bare("help").out, list.out);
    assert_eq!(bare("--help").out, list.out);
    for name in names {
        let help = bare(&format!("help {name}"));
        assert_eq!((help.status, help.err.as_str()), (0, ""), "{name}");
        assert!(
            help.out.contains(&format!("Example:\n  mqadmin {name}")),
            "{name}: {}",
            help.out
        );
        assert_eq!(bare(&format!("{name} --help")).out, help.out, "{name}");
    }
}

#[test]
fn unknown_commands_are_named_with_a_near_one() {
    for line in ["topicRout -t X", "help topicRout"] {
        let run = bare(line);
        assert_eq!(run.status, 1);
        assert!(
            run.err
                .contains("The sub command topicRout not exist. Did you mean topicRoute?"),
            "{}",
            run.err
        );
    }
    assert!(
        bare("xyzzy")
            .err
            .contains("The sub command xyzzy not exist.")
    );
}

#[test]
fn a_missing_or_wrong_option_is_named() {
    let lab = Lab::shared();
    let missing = [
        ("updateTopic -c DefaultCluster", "--topic"),
        ("deleteTopic -t X", "--clusterName"),
        ("updateSubGroup -c DefaultCluster", "--groupName"),
        ("updateBrokerConfig -b broker-a -k k", "--value"),
        ("topicRoute", "--topic"),
        ("topicStatus", "--topic"),
        ("topicClusterList", "--topic"),
        ("queryMsgById", "--msgId"),
        ("queryMsgByKey -t X", "--msgKey"),
        ("queryMsgByUniqueKey -t X", "--msgId"),
        ("queryMsgByOffset -t X -b b -i 0", "--offset"),
        ("queryMsgTraceById", "--msgId"),
        ("printMsg", "--topic"),
        ("printMsgByQueue -t X -a b", "--queueId"),
        ("sendMsgStatus", "--brokerName"),
        ("brokerConsumeStats", "--brokerAddr"),
        ("producerConnection -g G", "--topic"),
        ("consumerConnection", "--consumerGroup"),
        ("consumerStatus", "--consumerGroup"),
        ("cloneGroupOffset -s A -d B", "--topic"),
        ("producer", "--broker"),
        ("updateKvConfig -s N -k K", "--value"),
        ("deleteKvConfig -s N", "--key"),
        ("wipeWritePerm", "--brokerName"),
        ("resetOffsetByTime -g G -t T", "--timestamp"),
        ("skipAccumulatedMessage -g G", "--topic"),
        ("updateOrderConf -t T", "--method"),
        ("allocateMQ -t T", "--ipList"),
        ("checkMsgSendRT", "--topic"),
        ("updateNamesrvConfig -k k", "--value"),
        ("getConsumerConfig", "--groupName"),
        ("queryCq -t T -q 0", "--index"),
        ("sendMessage -t T", "--body"),
        ("consumeMessage", "--topic"),
        ("updateAclConfig -a A", "--secretKey"),
        ("deleteAclConfig -b b", "--accessKey"),
        ("updateGlobalWhiteAddr -b b", "--globalWhiteRemoteAddresses"),
        ("exportConfigs", "--clusterName"),
        ("exportMetrics", "--clusterName"),
    ];
    for (line, option) in missing {
        let err = lab.fails(line, 1);
        assert!(err.contains(option), "{line}: {err}");
    }
    let neither = [
        "updateTopic -t X",
        "updateSubGroup -g X",
        "deleteSubGroup -g X",
        "updateTopicPerm -t TBW102 -p 6",
        "brokerStatus",
        "getBrokerConfig",
        "updateBrokerConfig -k k -v v",
        "updateAclConfig -a accesskey -s secretkey",
        "clusterAclConfigVersion",
        "exportMetadata -f /nowhere",
    ];
    for line in neither {
        let err = lab.fails(line, 1);
        assert!(err.contains("-b") && err.contains("-c"), "{line}: {err}");
    }
    let wrong = [
        ("updateTopic -c DefaultCluster -t X -r abc", "\"abc\""),
        ("updateTopic -c DefaultCluster -t X -p 5", "--perm is 5"),
        (
            "updateTopic -c DefaultCluster -t X -r 0",
            "--readQueueNums is 0",
        ),
        ("updateTopic -c DefaultCluster -t X -o maybe", "\"maybe\""),
        (
            "updateTopic -c DefaultCluster -t X --parallel 0",
            "--parallel is 0",
        ),
        ("topicList --timeout soon", "--timeout is \"soon\""),
        ("updateTopic -c DefaultCluster -t a/b", "a/b"),
        ("resetOffsetByTime -g G -t T -s yesterday", "\"yesterday\""),
        ("updateOrderConf -t T -m change", "\"change\""),
        (
            "updateOrderConf -t T -m put",
            "please set orderConf with option -v.",
        ),
        (
            "sendMessage -t T -p x -i 0",
            "Broker name must be set if the queue is chosen!",
        ),
        (
            "consumeMessage -t T -i 0",
            "Please set the brokerName before queueId!",
        ),
        (
            "consumeMessage -t T -b b -o 0",
            "Please set queueId before offset!",
        ),
        (
            "consumeMessage -t T -c 0",
            "Please input a positive messageNumber!",
        ),
        ("clusterList -z", "-z"),
        ("topicList -n nowhere", "nowhere"),
    ];
    for (line, text) in wrong {
        let run = if line.contains(" -n ") {
            bare(line)
        } else {
            lab.line(line)
        };
        assert_eq!(run.status, 1, "{line}: {run:?}");
        assert!(run.err.contains(text), "{line}: {}", run.err);
    }
    // None of them made a topic.
    let topics = lab.json("topicList");
    let topics: Vec<&str> = topics
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(!topics.contains(&"X"), "{topics:?}");
}

#[test]
fn what_is_not_there_is_said_with_status_5() {
    let lab = Lab::shared();
    for line in [
        "topicRoute -t NoSuchTopic",
        "topicStatus -t NoSuchTopic",
        "topicClusterList -t NoSuchTopic",
        "allocateMQ -t NoSuchTopic -i a",
        "statsAll -t NoSuchTopic",
        "printMsg -t NoSuchTopic",
        "consumeMessage -t NoSuchTopic",
        "queryMsgByKey -t NoSuchTopic -k k",
        "updateTopicPerm -b broker-a -t NoSuchTopic -p 6",
        "consumerConnection -g NoGroup",
        "consumerProgress -g NoGroup",
        "consumerStatus -g NoGroup",
        "cloneGroupOffset -s NoGroup -d X -t TBW102",
    ] {
        let err = lab.fails(line, 5);
        assert!(err.contains("CODE: 17"), "{line}: {err}");
        assert!(err.contains("try: "), "{line}: {err}");
    }
    for line in [
        "updateTopic -c NoCluster -t NoSuchTopic",
        "deleteTopic -c NoCluster -t NoSuchTopic",
        "updateSubGroup -c NoCluster -g X",
        "cleanExpiredCQ -c NoCluster",
        "exportConfigs -c NoCluster -f /nowhere",
        "clusterRT -c NoCluster --times 1",
        "brokerStatus -c NoCluster",
    ] {
        let err = lab.fails(line, 5);
        assert!(err.contains("clusterName exists"), "{line}: {err}");
        assert!(err.contains("known: DefaultCluster"), "{line}: {err}");
    }
    for line in ["brokerStatus -b nobroker", "sendMsgStatus -b nobroker"] {
        let err = lab.fails(line, 5);
        assert!(err.contains("known: broker-a, broker-b"), "{line}: {err}");
    }
    assert!(
        lab.fails("getConsumerConfig -g NoGroup", 5)
            .contains("NoGroup")
    );
    assert!(
        lab.fails("updateOrderConf -t NoSuchTopic -m get", 5)
            .contains("NoSuchTopic")
    );
}

#[test]
fn servers_that_do_not_answer_are_named_with_status_2() {
    let lab = Lab::shared();
    for line in [
        "topicList",
        "clusterList",
        "topicRoute -t T",
        "updateTopic -c C -t T",
    ] {
        let run = bare(&format!("{line} -n 127.0.0.1:1"));
        assert_eq!((run.status, run.out.as_str()), (2, ""), "{run:?}");
        assert!(run.err.contains("127.0.0.1:1"), "{run:?}");
        assert!(run.err.contains("NAMESRV_ADDR"), "{run:?}");
    }
    for line in [
        "brokerStatus -b 127.0.0.1:1",
        "getBrokerConfig -b 127.0.0.1:1",
        "updateTopic -b 127.0.0.1:1 -t T",
        "producer -b 127.0.0.1:1",
        "brokerConsumeStats -b 127.0.0.1:1",
        "cleanExpiredCQ -b 127.0.0.1:1",
    ] {
        let err = lab.fails(line, 2);
        assert!(err.contains("127.0.0.1:1"), "{line}: {err}");
    }
}

#[test]
fn the_name_server_comes_from_the_option_then_the_environment() {
    let lab = Lab::shared();
    let run = finish(
        tool()
            .arg("topicList")
            .env("NAMESRV_ADDR", lab.name_server()),
    );
    assert_eq!(run.status, 0, "{run:?}");
    let run = finish(
        tool()
            .args(["topicList", "-n", lab.name_server()])
            .env("NAMESRV_ADDR", "127.0.0.1:1"),
    );
    assert_eq!(run.status, 0, "{run:?}");
}

#[test]
fn the_stock_liberties_with_arguments_work() {
    let lab = Lab::shared();
    for line in [
        "TOPICROUTE -t TBW102",
        "topicRoute -topic TBW102",
        "topicRoute --topic=TBW102",
        "topicRoute -tTBW102",
        "topicRoute -t TBW102 surplus words",
        "topicRoute -lt TBW102",
    ] {
        let run = lab.line(line);
        assert_eq!(run.status, 0, "{line}: {run:?}");
        assert!(run.out.contains("broker-a"), "{line}: {run:?}");
    }
    // The stock tool's second name of a command.
    assert!(lab.line("deleteAccessConfig").err.contains("--accessKey"));
}

#[test]
fn output_that_goes_to_no_terminal_has_no_colour_and_a_reader_that_leaves_is_no_failure() {
    let lab = Lab::shared();
    assert!(!lab.ok("clusterList").contains('\x1b'));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = tool()
        .args(["topicList", "-n", lab.name_server()])
        .stdout(writer)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}
