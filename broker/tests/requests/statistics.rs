//! Statistics (315) and runtime information (28).

use minimq_protocol::Command;
use minimq_protocol::body::{BrokerStatsData, KvTable};
use minimq_protocol::code::request;
use minimq_protocol::header::ViewBrokerStatsDataRequest;

use minimq_broker::stats::Period;

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
        // Kept for the log only by 4.9.8, and not served.
        ("GROUP_GET_FALL_SIZE", "0@T@G"),
        ("GROUP_GET_FALL_TIME", "0@T@G"),
    ] {
        let answer = view(&broker, name, key).await;
        assert_eq!(answer.code, 1);
        let remark = format!("The stats <{name}> <{key}> not exist");
        assert!(answer.remark().starts_with(&remark), "{}", answer.remark());
    }
    broker.stop().await;
}

/// Minute, hour and day of an item, as 315 tells them: sum, rate and average.
async fn spans(broker: &Harness, name: &str, key: &str) -> [(i64, f64, f64); 3] {
    let answer = view(broker, name, key).await;
    assert_eq!(answer.code, 0, "{name} {key}: {}", answer.remark());
    let data = BrokerStatsData::from_json(&answer.body).unwrap();
    [data.stats_minute, data.stats_hour, data.stats_day].map(|one| (one.sum, one.tps, one.avgpt))
}

/// Hours pass by the time that is given to the samples.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_and_a_day_are_counted_apart_from_the_minute() {
    const TEN_MINUTES: i64 = 600_000;
    const HOUR: i64 = 3_600_000;
    let broker = Harness::start(&[]).await;
    broker.create_topic("T", 1).await;
    for _ in 0..3 {
        broker.send("T", &[], "x").await;
    }
    until("them", async || {
        broker.broker.store.reader().max_offset("T", 0).get() == 3
    })
    .await;
    assert_eq!(broker.messages("T", 0).await.len(), 3);
    let stats = &broker.broker.stats;
    let begin = broker.broker.clock.now_ms();
    let day = |hours: i64| stats.sample(Period::Day, begin + hours * HOUR);
    let hour = |times: i64| stats.sample(Period::Hour, begin + times * TEN_MINUTES);
    // As in 4.9.8 the first sample follows one of zero, an interval before it.
    hour(0);
    day(0);
    let rate = |sum: i64, ms: i64| sum as f64 * 1000.0 / ms as f64;
    let [_, in_hour, in_day] = spans(&broker, "TOPIC_PUT_NUMS", "T").await;
    assert_eq!(in_hour, (3, rate(3, TEN_MINUTES), 1.0));
    assert_eq!(in_day, (3, rate(3, HOUR), 1.0));
    let [_, in_hour, in_day] = spans(&broker, "GROUP_GET_NUMS", "T@G").await;
    assert_eq!((in_hour.0, in_day.0), (3, 3));
    // Two more in the second hour: the hour knows only them once the first three are an hour away, the day all.
    for times in 1..=6 {
        hour(times);
    }
    for _ in 0..2 {
        broker.send("T", &[], "x").await;
    }
    hour(7);
    day(1);
    let [_, in_hour, in_day] = spans(&broker, "TOPIC_PUT_NUMS", "T").await;
    assert_eq!(in_hour, (2, rate(2, 6 * TEN_MINUTES), 1.0));
    assert_eq!(in_day, (5, rate(5, 2 * HOUR), 1.0));
    // Nothing more came: an hour later its sum is 0, a day later that of the day too.
    for times in 8..=13 {
        hour(times);
    }
    let [_, in_hour, in_day] = spans(&broker, "TOPIC_PUT_NUMS", "T").await;
    assert_eq!((in_hour, in_day.0), ((0, 0.0, 0.0), 5));
    for hours in 2..=25 {
        day(hours);
    }
    let [_, _, in_day] = spans(&broker, "TOPIC_PUT_NUMS", "T").await;
    assert_eq!(in_day, (0, 0.0, 0.0));
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
