//! Settings (security-01, wire-10), tables, progress, deletions, calls passed on, our own requests.

use minimq_protocol::Command;
use minimq_protocol::body::*;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::*;

use crate::support::{Harness, TIMEOUT, send_request, until};

async fn configure(broker: &Harness, text: &str) -> Command {
    let update = Command::request(request::UPDATE_BROKER_CONFIG).with_body(text.to_owned());
    broker.call(update).await
}

async fn settings(broker: &Harness) -> String {
    let answer = broker
        .call(Command::request(request::GET_BROKER_CONFIG))
        .await;
    let header: GetBrokerConfigResponse<'_> = answer.header().unwrap();
    assert!(header.version.contains("\"counter\":"));
    String::from_utf8(answer.body.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn security_01_keys_that_could_run_code_or_move_files_never_change() {
    let broker = Harness::start(&[]).await;
    let before = settings(&broker).await;
    for text in [
        "brokerConfigPath=/tmp/x",
        "rocketmqHome=/tmp/x;touch /tmp/pwned",
        "configBlackList=",
        "traceOn=false\nrocketmqHome=/tmp/x",
        "  rocketmqHome  =  /tmp/x",
        "brokerConfig\\u0050ath=/tmp/x",
        "storePathRootDir=/tmp/x",
        "brokerName=other",
        "brokerRole=SLAVE",
        "aclEnable=false",
        "aclFile=/etc/passwd",
        "filterServerNums=1",
        "listenPort=1",
    ] {
        let answer = configure(&broker, text).await;
        assert_eq!(
            answer.code,
            response::NO_PERMISSION,
            "{text}: {}",
            answer.remark()
        );
        assert_eq!(settings(&broker).await, before, "{text}");
    }
    for text in [
        "noSuchKey=1",
        "brokerPermission=abc",
        "maxMessageSize=0",
        "\\uZZZZ=1",
    ] {
        let answer = configure(&broker, text).await;
        assert_eq!(answer.code, 1, "{text}: {}", answer.remark());
        assert_eq!(settings(&broker).await, before, "{text}");
    }
    assert_eq!(configure(&broker, "").await.code, 0);
    let binary = Command::request(request::UPDATE_BROKER_CONFIG).with_body(vec![0xff, 0, 1, 0xfe]);
    assert_ne!(broker.call(binary).await.code, 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_may_change_act_at_once() {
    let broker = Harness::start(&[]).await;
    for key in [
        "deleteWhen=25",
        "deleteWhen=",
        "deleteWhen=04;x",
        "diskMaxUsedSpaceRatio=5",
        "logLevel=loud",
    ] {
        assert_eq!(configure(&broker, key).await.code, 1, "{key}");
    }
    for key in [
        "messageIndexEnable=false",
        "messageIndexSafe=true",
        "clusterTopicEnable=false",
    ] {
        let answer = configure(&broker, key).await;
        assert_eq!(answer.code, response::NO_PERMISSION, "{key}");
    }
    broker.create_topic("SettingsT", 1).await;
    for number in 0..5 {
        broker.send("SettingsT", &[], &format!("m{number}")).await;
    }
    let count = async || broker.messages("SettingsT", 0).await.len();
    until("all are readable", async || count().await == 5).await;
    let all = "maxTransferCountOnMessageInMemory=2\ndeleteWhen=04;16\nfileReservedTime=48\n\
        flushIntervalCommitLog=100\nsyncFlushTimeout=1000\nlogLevel=debug\nlongPollingEnable=false\n\
        registerNameServerPeriod=10000\nflushConsumerOffsetInterval=1000\nmaxMessageSize=1000";
    let answer = configure(&broker, all).await;
    assert_eq!(answer.code, 0, "{}", answer.remark());
    assert_eq!(count().await, 2);
    let refused = broker
        .call(send_request("SettingsT", &[], &"x".repeat(1001)))
        .await;
    assert_eq!(
        refused.code,
        response::MESSAGE_ILLEGAL,
        "{}",
        refused.remark()
    );
    assert!(settings(&broker).await.contains("deleteWhen=04;16"));
    broker.stop().await;
}

/// Writes a frame by hand and reads the one that is answered.
async fn raw(addr: &str, header: &str, body: &str) -> Command {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut frame = Vec::new();
    frame.extend_from_slice(&(4 + header.len() as u32 + body.len() as u32).to_be_bytes());
    frame.extend_from_slice(&(header.len() as u32).to_be_bytes());
    frame.extend_from_slice(header.as_bytes());
    frame.extend_from_slice(body.as_bytes());
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    stream.write_all(&frame).await.unwrap();
    let len = stream.read_u32().await.unwrap();
    let mut answer = len.to_be_bytes().to_vec();
    answer.resize(4 + len as usize, 0);
    stream.read_exact(&mut answer[4..]).await.unwrap();
    minimq_protocol::frame::parse(answer.into()).unwrap()
}

/// Names of the processes that this one has started, but the `tar` of the tests beside this one.
fn children() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let ids: String = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .collect();
    ids.split_whitespace()
        .filter_map(|id| std::fs::read_to_string(format!("/proc/{id}/comm")).ok())
        .filter(|name| name.trim() != "tar")
        .collect()
}

/// CVE-2023-33246: what is sent by the exploits that were published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn security_01_published_exploits_change_nothing_and_are_logged() {
    let lines = crate::support::warnings();
    let broker = Harness::start(&[]).await;
    let before = settings(&broker).await;
    let file = broker.folder.path().join("broker.conf");
    let header = r#"{"code":25,"flag":0,"language":"JAVA","opaque":0,"serializeTypeCurrentRPC":"JSON","version":395}"#;
    let mark = broker.folder.path().join("mark");
    for (body, logged) in [
        (
            format!(
                "filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch {};\n",
                mark.display()
            ),
            "rocketmqHome",
        ),
        (
            format!(
                "namesrvAddr=127.0.0.1:9876;touch {}\nfilterServerNums=1\n",
                mark.display()
            ),
            "namesrvAddr",
        ),
        (
            "brokerConfigPath=/tmp/x\nfilterServerNums=1\n".to_owned(),
            "brokerConfigPath",
        ),
        (
            "configBlackList=\nrocketmqHome=-c $@|sh . id".to_owned(),
            "configBlackList",
        ),
    ] {
        let from = lines.lock().unwrap().len();
        let answer = raw(&broker.addr, header, &body).await;
        assert_eq!(answer.code, response::NO_PERMISSION, "{body}");
        let named = |line: &String| line.contains(logged) && line.contains("refused");
        let lines = lines.lock().unwrap();
        assert!(lines[from..].iter().any(named), "{body}: {lines:?}");
    }
    assert_eq!(settings(&broker).await, before);
    assert!(!file.exists() && !mark.exists());
    let started = children();
    // Before a process that was just forked has its name, it has that of this one.
    let own = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert!(started.iter().all(|name| *name == own), "{started:?}");
    broker.stop().await;
}

/// 4.9.8 starts filter servers through a shell, 5 s after its start and every 30 s, with `rocketmqHome` in the command.
/// `MINIMQ_SOAK_S` says for how long it is watched, up to 60 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn security_01_no_setting_starts_a_process() {
    let soak = std::env::var("MINIMQ_SOAK_S").map_or(6, |text| text.parse().unwrap());
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    let mark = folder.path().join("mark");
    let fragment = format!("$(touch {0});touch {0} #", mark.display());
    let home = format!("rocketmqHome={fragment}");
    let broker = Harness::start(&["filterServerNums=1", &home]).await;
    let own = std::fs::read_to_string("/proc/self/comm").unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(soak.min(60));
    while std::time::Instant::now() < end {
        let started = children();
        assert!(started.iter().all(|name| *name == own), "{started:?}");
        assert!(!mark.exists());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let answer = broker.send("T", &[], "it serves").await;
    assert_eq!(answer.code, 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_takes_effect_at_once_and_keeps_the_files_comments() {
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "# kept\ntraceOn=true\n\nbrokerName=b0\n").unwrap();
    let broker = Harness::start_in(folder, &[]).await;
    assert_eq!(
        configure(&broker, "maxMessageSize=1048576\ntraceOn=nonsense")
            .await
            .code,
        0
    );
    let all = settings(&broker).await;
    assert!(
        all.contains("maxMessageSize=1048576\n") && all.contains("traceOn=false\n"),
        "{all}"
    );
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("# kept\ntraceOn=false\n\nbrokerName=b0\n"),
        "{text}"
    );
    assert!(text.contains("maxMessageSize=1048576"), "{text}");

    let exact = broker
        .call(send_request("T", &[], &"x".repeat(1_048_576)))
        .await;
    assert_eq!(exact.code, 0, "{}", exact.remark());
    let larger = broker
        .call(send_request("T", &[], &"x".repeat(1_048_577)))
        .await;
    assert_eq!(larger.code, response::MESSAGE_ILLEGAL);

    let version = broker.broker.topics.version();
    assert_eq!(configure(&broker, "brokerPermission=4").await.code, 0);
    assert_eq!(broker.broker.topics.version().counter, version.counter + 1);
    broker.stop().await;
}

async fn commit(broker: &Harness, group: &str, topic: &str, commit_offset: i64) {
    let header = UpdateConsumerOffsetRequest {
        consumer_group: group,
        topic,
        queue_id: 0,
        commit_offset,
        bname: None,
    };
    let update = Command::request_with(request::UPDATE_CONSUMER_OFFSET, &header);
    assert_eq!(broker.call(update).await.code, 0);
}

async fn three_messages(broker: &Harness) {
    broker.create_topic("T", 1).await;
    for body in ["1", "2", "3"] {
        broker.send("T", &[], body).await;
    }
    until("them", async || {
        broker.broker.store.reader().max_offset("T", 0).get() == 3
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_told_by_group_topic_and_time() {
    let broker = Harness::start(&[]).await;
    three_messages(&broker).await;
    commit(&broker, "G", "T", 2).await;
    let queue = MessageQueue::new("T", "b0", 0);
    let times: Vec<i64> = broker
        .messages("T", 0)
        .await
        .iter()
        .map(|m| m.store_timestamp())
        .collect();

    let header = GetConsumeStatsRequest {
        consumer_group: "G",
        topic: None,
        topic_list: None,
    };
    let answer = broker
        .call(Command::request_with(request::GET_CONSUME_STATS, &header))
        .await;
    let stats = ConsumeStats::from_json(&answer.body).unwrap();
    let expected = OffsetWrapper {
        broker_offset: 3,
        consumer_offset: 2,
        last_timestamp: times[1],
    };
    assert_eq!(stats.offset_table[&queue], expected);

    let header = GetTopicStatsInfoRequest { topic: "T" };
    let answer = broker
        .call(Command::request_with(
            request::GET_TOPIC_STATS_INFO,
            &header,
        ))
        .await;
    let stats = TopicStatsTable::from_json(&answer.body).unwrap();
    let expected = TopicOffset {
        min_offset: 0,
        max_offset: 3,
        last_update_timestamp: times[2],
    };
    assert_eq!(stats.offset_table[&queue], expected);

    let header = QueryConsumeTimeSpanRequest {
        topic: "T",
        group: "G",
    };
    let answer = broker
        .call(Command::request_with(
            request::QUERY_CONSUME_TIME_SPAN,
            &header,
        ))
        .await;
    let spans = QueryConsumeTimeSpanBody::from_json(&answer.body)
        .unwrap()
        .consume_time_span_set;
    let span = &spans[0];
    assert_eq!(
        (
            span.min_time_stamp,
            span.max_time_stamp,
            span.consume_time_stamp
        ),
        (times[0], times[2], times[1])
    );
    assert!(span.delay_time >= 0);

    let header = GetConsumeStatsInBroker { is_order: false };
    let answer = broker
        .call(Command::request_with(
            request::GET_BROKER_CONSUME_STATS,
            &header,
        ))
        .await;
    let list = ConsumeStatsList::from_json(&answer.body).unwrap();
    assert_eq!(list.broker_addr.as_deref(), Some(broker.addr.as_str()));

    commit(&broker, "G2", "T", 1).await;
    let correction = async |filter_groups, compare_group| {
        let header = QueryCorrectionOffsetRequest {
            filter_groups,
            compare_group,
            topic: "T",
        };
        let answer = broker
            .call(Command::request_with(
                request::QUERY_CORRECTION_OFFSET,
                &header,
            ))
            .await;
        QueryCorrectionOffsetBody::from_json(&answer.body)
            .unwrap()
            .correction_offsets[&0]
    };
    assert_eq!(correction(None, "G").await, 1);
    assert_eq!(correction(Some("G2"), "G").await, 2);
    assert_eq!(correction(Some("G2"), "G2").await, i64::MAX);
    assert_eq!(
        broker.broker.offsets.get("G2", "T", 0),
        Some(1),
        "leaving a group out deletes nothing"
    );

    for code in [
        request::GET_TOPIC_STATS_INFO,
        request::QUERY_CONSUME_TIME_SPAN,
    ] {
        let unknown = Command::request(code)
            .with_ext("topic", "NO")
            .with_ext("group", "G");
        let answer = broker.call(unknown).await;
        assert_eq!((answer.code, answer.remark()), (17, "topic[NO] not exist"));
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_tables_are_those_a_slave_reads() {
    let broker = Harness::start(&[]).await;
    three_messages(&broker).await;
    commit(&broker, "G", "T", 2).await;
    let table = async |code| broker.call(Command::request(code)).await.body;
    let topics =
        TopicConfigWrapper::from_json(&table(request::GET_ALL_TOPIC_CONFIG).await).unwrap();
    assert_eq!(topics.topic_config_table["T"].write_queue_nums, 1);
    assert_eq!(topics.data_version, broker.broker.topics.version());
    let offsets = ConsumerOffsetWrapper::from_json(&table(request::GET_ALL_CONSUMER_OFFSET).await);
    assert_eq!(offsets.unwrap().offset_table["T@G"][&0], 2);
    DelayOffsetWrapper::from_json(&table(request::GET_ALL_DELAY_OFFSET).await).unwrap();
    let groups = table(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG).await;
    let groups = SubscriptionGroupWrapper::from_json(&groups).unwrap();
    assert!(
        groups
            .subscription_group_table
            .contains_key("TOOLS_CONSUMER")
    );
    let own =
        TopicList::from_json(&table(request::GET_SYSTEM_TOPIC_LIST_FROM_BROKER).await).unwrap();
    for topic in [
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "b0",
        "C1",
        "C1_REPLY_TOPIC",
    ] {
        assert!(own.topic_list.iter().any(|known| known == topic), "{topic}");
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topic_of_message_traces_is_there_when_its_key_says_so() {
    for (settings, made) in [(vec!["traceTopicEnable=true"], true), (vec![], false)] {
        let broker = Harness::start(&settings).await;
        let topic = broker.broker.topics.get("RMQ_SYS_TRACE_TOPIC");
        assert_eq!(
            topic.map(|t| (t.write_queue_nums, t.perm)),
            made.then_some((1, 6))
        );
        // What tells clients whether to trace, and the traces themselves.
        let sent = broker.send("T", &[], "x").await;
        assert_eq!(sent.ext.get("TRACE_ON"), Some("true"));
        let sent = broker
            .send("RMQ_SYS_TRACE_TOPIC", &[("KEYS", "k1 k2")], "traces")
            .await;
        assert_eq!(sent.code, 0);
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_topics_and_groups_take_their_offsets_along() {
    let broker = Harness::start(&[]).await;
    three_messages(&broker).await;
    commit(&broker, "G", "T", 2).await;
    commit(&broker, "G2", "T", 2).await;
    let group = |remove_offset, clean_offset| DeleteSubscriptionGroupRequest {
        group_name: "G2",
        remove_offset,
        clean_offset,
    };
    let delete = |header| Command::request_with(request::DELETE_SUBSCRIPTIONGROUP, &header);
    assert_eq!(broker.call(delete(group(false, None))).await.code, 0);
    assert_eq!(broker.broker.offsets.get("G2", "T", 0), Some(2));
    assert_eq!(broker.call(delete(group(false, Some(true)))).await.code, 0);
    assert_eq!(broker.broker.offsets.get("G2", "T", 0), None);

    let topic = DeleteTopicRequest { topic: "T" };
    let delete = Command::request_with(request::DELETE_TOPIC_IN_BROKER, &topic);
    assert_eq!(broker.call(delete).await.code, 0);
    assert_eq!(broker.broker.offsets.get("G", "T", 0), None);
    broker.create_topic("T", 1).await;
    let answer = broker.send("T", &[], "anew").await;
    assert_eq!(
        answer
            .header::<SendMessageResponse<'_>>()
            .unwrap()
            .queue_offset,
        0
    );
    for code in [
        request::CLEAN_EXPIRED_CONSUMEQUEUE,
        request::CLEAN_UNUSED_TOPIC,
        request::DELETE_EXPIRED_COMMITLOG,
    ] {
        assert_eq!(broker.call(Command::request(code)).await.code, 0, "{code}");
    }
    until("the message", async || {
        broker.messages("T", 0).await.len() == 1
    })
    .await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_passed_on_to_the_client_meant() {
    let broker = Harness::start(&[]).await;
    let sent = broker.send("T", &[], "the message").await;
    let id = sent
        .header::<SendMessageResponse<'_>>()
        .unwrap()
        .msg_id
        .to_owned();
    broker.register_consumer("G", "T", ("TAG", "*"), 1).await;
    let info = |client_id| GetConsumerRunningInfoRequest {
        consumer_group: "G",
        client_id,
        jstack_enable: true,
    };
    let relay = |header| Command::request_with(request::GET_CONSUMER_RUNNING_INFO, &header);
    let answer = broker
        .call(relay(info("client")).with_body("question"))
        .await;
    assert_eq!((answer.code, &answer.body[..]), (0, &b"question"[..]));
    let passed = broker.received.of_code(request::GET_CONSUMER_RUNNING_INFO);
    assert_eq!(passed[0].ext.get("jstackEnable"), Some("true"));
    let answer = broker.call(relay(info("other"))).await;
    assert_eq!(
        (answer.code, answer.remark()),
        (1, "The Consumer <G> <other> not online")
    );

    let directly = |msg_id| ConsumeMessageDirectlyResultRequest {
        consumer_group: "G",
        client_id: Some("client"),
        msg_id: Some(msg_id),
        broker_name: Some("elsewhere"),
    };
    let relay = |header| Command::request_with(request::CONSUME_MESSAGE_DIRECTLY, &header);
    let answer = broker.call(relay(directly(&id))).await;
    assert_eq!(crate::support::records(&answer)[0].body(), b"the message");
    let passed = broker.received.of_code(request::CONSUME_MESSAGE_DIRECTLY);
    assert_eq!(passed[0].ext.get("brokerName"), Some("b0"));
    for wrong in ["", "no id", &"7".repeat(32)] {
        assert_eq!(broker.call(relay(directly(wrong))).await.code, 1, "{wrong}");
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_own_requests_show_what_the_broker_knows() {
    let broker = Harness::start(&[]).await;
    broker.create_topic("T", 1).await;
    broker.register_consumer("G", "T", ("TAG", "A"), 1).await;
    let (second, _received) = crate::support::new_client();
    let other = crate::support::consumer("G", "T", ("TAG", "B"), 2);
    let beat = Command::request(request::HEART_BEAT).with_body(other.to_wire());
    assert_eq!(
        second.call(&broker.addr, beat, TIMEOUT).await.unwrap().code,
        0
    );
    let ask = async |code| {
        let answer = broker.call(Command::request(code)).await;
        assert_eq!(answer.code, 0, "{}", answer.remark());
        answer.body
    };
    let mixed =
        MixedSubscriptions::from_json(&ask(request::GET_MIXED_SUBSCRIPTIONS).await).unwrap();
    assert_eq!(mixed.groups["G"][0].topics, ["T"]);

    let lock = LockBatchBody {
        client_id: "client".into(),
        consumer_group: "G".into(),
        mq_set: vec![MessageQueue::new("T", "b0", 0)],
    };
    let lock = Command::request(request::LOCK_BATCH_MQ).with_body(lock.to_wire());
    assert_eq!(broker.call(lock).await.code, 0);
    let locks = QueueLockList::from_json(&ask(request::GET_QUEUE_LOCKS).await).unwrap();
    assert_eq!(
        (locks.locks[0].client_id.as_str(), locks.locks.len()),
        ("client", 1)
    );

    let mut pull = crate::support::pull_request("G", "T", 0, ("TAG", "*"));
    pull.ext.set("sysFlag", "6");
    pull.ext.set("suspendTimeoutMillis", "15000");
    let connection = broker.client.connection(&broker.addr).unwrap();
    let held = connection.start_call(pull, TIMEOUT).unwrap();
    until("the pull to be held", async || {
        let held = HeldPullList::from_json(&ask(request::GET_HELD_PULLS).await).unwrap();
        held.pulls.iter().map(|queue| queue.count).sum::<i64>() == 1
    })
    .await;
    drop(held);
    let damaged = DamagedRecordList::from_json(&ask(request::GET_DAMAGED_RECORDS).await).unwrap();
    assert!(damaged.records.is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_a_send_makes_is_on_disk_before_the_send_is_acknowledged() {
    let broker = Harness::start(&[]).await;
    let path = broker.folder.path().join("store/config/topics.json");
    for n in 0..20 {
        let topic = format!("Made-{n}");
        broker.send(&topic, &[], "x").await;
        let saved = std::fs::read_to_string(&path).unwrap();
        assert!(saved.contains(&format!("\"{topic}\"")), "{topic}");
    }
    broker.stop().await;
}
