//! Statistics (315) and runtime information (28).

use minimq_protocol::Command;
use minimq_protocol::body::{BrokerStatsData, KvTable};
use minimq_protocol::code::request;
use minimq_protocol::header::ViewBrokerStatsDataRequest;

use crate::support::{Harness, until};

async fn view(broker: &Harness, stats_name: &str, stats_key: &str) -> Command {
    let header = ViewBrokerStatsDataRequest {
        stats_name,
        stats_key,
    };
    broker
        .call(Command::request_with(
            request::VIEW_BROKER_STATS_DATA,
            &header,
        ))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_put_and_taken_is_counted_by_topic_and_group() {
    let broker = Harness::start(&[]).await;
    broker.create_topic("T", 1).await;
    for _ in 0..3 {
        broker.send("T", &[], "x").await;
    }
    until("them", async || {
        broker.broker.store.reader().max_offset("T", 0).get() == 3
    })
    .await;
    let sizes: usize = broker
        .messages("T", 0)
        .await
        .iter()
        .map(|m| m.raw().len())
        .sum();
    // The next sample is up to 10 s away.
    until("a sample", async || {
        let answer = view(&broker, "GROUP_GET_SIZE", "T@G").await;
        answer.code == 0
            && BrokerStatsData::from_json(&answer.body)
                .unwrap()
                .stats_minute
                .sum
                > 0
    })
    .await;
    for (name, key, sum, avgpt) in [
        ("TOPIC_PUT_NUMS", "T", 3, 1.0),
        ("TOPIC_PUT_SIZE", "T", sizes as i64, sizes as f64 / 3.0),
        ("GROUP_GET_NUMS", "T@G", 3, 3.0),
        ("GROUP_GET_SIZE", "T@G", sizes as i64, sizes as f64),
        ("BROKER_PUT_NUMS", "C1", 3, 1.0),
        ("BROKER_GET_NUMS", "C1", 3, 3.0),
    ] {
        let answer = view(&broker, name, key).await;
        assert_eq!(answer.code, 0, "{name}");
        let minute = BrokerStatsData::from_json(&answer.body)
            .unwrap()
            .stats_minute;
        assert_eq!((minute.sum, minute.avgpt), (sum, avgpt), "{name}");
        assert!(minute.tps > 0.0, "{name}");
    }
    assert_eq!(view(&broker, "GROUP_GET_LATENCY", "0@T@G").await.code, 0);
    for (name, key) in [
        ("TOPIC_PUT_NUMS", "NO"),
        ("NO", "T"),
        ("", ""),
        ("GROUP_GET_FROM_DISK_NUMS", "T@G"),
    ] {
        let answer = view(&broker, name, key).await;
        assert_eq!(answer.code, 1);
        let remark = format!("The stats <{name}> <{key}> not exist");
        assert!(answer.remark().starts_with(&remark), "{}", answer.remark());
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtime_information_has_every_key_that_tools_read() {
    let broker = Harness::start(&["messageDelayLevel=1s"]).await;
    broker.create_topic("T", 1).await;
    broker.send("T", &[("DELAY", "1")], "x").await;
    until("the delivery", async || {
        broker.broker.store.reader().max_offset("T", 0).get() == 1
    })
    .await;
    let answer = broker
        .call(Command::request(request::GET_BROKER_RUNTIME_INFO))
        .await;
    let table = KvTable::from_json(&answer.body).unwrap().table;
    for key in [
        "brokerVersionDesc",
        "brokerVersion",
        "msgPutTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "sendThreadPoolQueueSize",
        "sendThreadPoolQueueCapacity",
        "pullThreadPoolQueueSize",
        "pullThreadPoolQueueCapacity",
        "queryThreadPoolQueueSize",
        "queryThreadPoolQueueCapacity",
        "EndTransactionQueueSize",
        "EndTransactionThreadPoolQueueCapacity",
        "dispatchBehindBytes",
        "pageCacheLockTimeMills",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "queryThreadPoolQueueHeadWaitTimeMills",
        "earliestMessageTimeStamp",
        "startAcceptSendRequestTimeStamp",
        "remainTransientStoreBufferNumbs",
        "remainHowManyDataToCommit",
        "remainHowManyDataToFlush",
        "commitLogDirCapacity",
        "bootTimestamp",
        "runtime",
        "putMessageEntireTimeMax",
        "putMessageTimesTotal",
        "putMessageFailedTimes",
        "putMessageSizeTotal",
        "putMessageDistributeTime",
        "putMessageAverageSize",
        "dispatchMaxBuffer",
        "getMessageEntireTimeMax",
        "putTps",
        "getFoundTps",
        "getMissTps",
        "getTotalTps",
        "getTransferedTps",
        "putLatency99",
        "putLatency999",
        "commitLogDiskRatio",
        "consumeQueueDiskRatio",
        "scheduleMessageOffset_1",
        "commitLogMinOffset",
        "commitLogMaxOffset",
    ] {
        assert!(table.contains_key(key), "{key}");
    }
    assert_eq!(table["brokerVersionDesc"], "V4_9_8");
    assert_eq!(table["putMessageTimesTotal"], "2");
    assert!(table["earliestMessageTimeStamp"].parse::<i64>().unwrap() > 0);
    let ratio: f64 = table["commitLogDiskRatio"].parse().unwrap();
    assert!((0.0..=1.0).contains(&ratio));
    // Stage by stage, beyond 4.9.8.
    for key in [
        "store.append_holds",
        "store.appended_messages",
        "store.dispatched_messages",
        "store.dispatch_nanos",
    ] {
        assert!(table[key].parse::<u64>().unwrap() > 0, "{key}");
    }
    broker.stop().await;
}

/// One read in 32 of a connection is timed; each of these holds one send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtime_information_tells_where_the_time_of_sends_goes() {
    let broker = Harness::start(&[]).await;
    broker.create_topic("T", 1).await;
    for _ in 0..100 {
        broker.send("T", &[], "x").await;
    }
    let answer = broker
        .call(Command::request(request::GET_BROKER_RUNTIME_INFO))
        .await;
    let table = KvTable::from_json(&answer.body).unwrap().table;
    let figure = |key: &str| table[&format!("send.{key}")].parse::<u64>().unwrap();
    assert_eq!((figure("timed_reads"), figure("timed_messages")), (3, 3));
    for stage in ["parse_nanos", "append_nanos", "answer_nanos", "write_nanos"] {
        // Of a send, less than its answer took.
        assert!((1..60_000_000_000).contains(&figure(stage)), "{stage}");
    }
    broker.stop().await;
}
