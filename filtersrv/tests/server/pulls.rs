//! Each row of filter server spec 11.2 and 11.4, what is passed on to the broker, the loop while nothing matches, the
//! three policies, and the limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use minimq_filtersrv::FilterServer;
use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_protocol::header::PullMessageRequest;
use minimq_protocol::message::RecordFields;
use minimq_protocol::properties::PropertiesBuf;
use minimq_protocol::sys_flag::pull as pull_flag;
use parking_lot::Mutex;

use crate::support::*;

/// A record with a sequence id, as a broker answers it.
fn record(n: u32) -> Vec<u8> {
    record_of(n, b"body")
}

/// As [`record`], with a body.
pub(crate) fn record_of(n: u32, body: &[u8]) -> Vec<u8> {
    let mut properties = PropertiesBuf::new();
    properties.push("SequenceId", &n.to_string());
    let fields = RecordFields {
        topic: "T",
        queue_id: 0,
        flag: 0,
        queue_offset: n.into(),
        physical_offset: i64::from(n) * 100,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: "[2001:db8::1]:5".parse().unwrap(),
        store_timestamp: 2,
        store_host: "127.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body_crc: minimq_protocol::crc::body_crc(body),
        body,
        properties: properties.as_str().as_bytes(),
        appended_properties: &[],
    };
    fields.encode().unwrap().to_vec()
}

pub(crate) fn records(from: i64, count: i64) -> Vec<u8> {
    (from..from + count)
        .flat_map(|n| record(n as u32))
        .collect()
}

/// Of a pull: offset, flags, suspend time, group, offset to commit.
type Asked = (i64, i32, i64, String, i64);

/// A broker with one queue of endless messages; remembers what it was asked.
fn endless() -> (FakeBroker, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let broker = FakeBroker::start(move |pull| {
        if pull.topic != "T" {
            return Some(Command::request(17).with_remark("topic not exist"));
        }
        assert_eq!(
            (pull.subscription, pull.expression_type),
            (Some("*"), Some("TAG"))
        );
        let asked = (
            pull.queue_offset,
            pull.sys_flag,
            pull.suspend_timeout_millis,
            pull.consumer_group.to_owned(),
            pull.commit_offset,
        );
        log.lock().push(asked);
        let count = i64::from(pull.max_msg_nums);
        Some(answer(
            0,
            pull.queue_offset + count,
            records(pull.queue_offset, count),
        ))
    });
    (broker, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_passed_on_is_the_clients_own_pull() {
    let (broker, asked) = endless();
    let server = filter_server(&broker.addr(), &[]).await;
    asked.lock().clear();
    let member = Member::new(server.local_addr(), "CG", "T");
    member.uploaded(module("i32.const 1")).await;
    let header = PullMessageRequest {
        sys_flag: pull_flag::build(true, true, false, true, false),
        commit_offset: 4,
        max_msg_nums: 3,
        ..member.pull_header(5, Duration::from_secs(15))
    };
    let pulled = member.pull_with(&header).await;
    assert_eq!(
        (pulled.code, pulled.remark.as_str(), pulled.sequence()),
        (0, "", vec![5, 6, 7])
    );
    let told = pulled.header.unwrap();
    assert_eq!(
        (told.suggest_which_broker_id, told.next_begin_offset),
        (0, 8)
    );
    assert_eq!((told.min_offset, told.max_offset), (3, 1000));
    let flag = pull_flag::build(true, true, true, false, false);
    assert_eq!(
        asked.lock().drain(..).collect::<Vec<_>>(),
        [(5, flag, 15_000, "CG".to_owned(), 4)]
    );
    // A longer suspend time is cut; records keep an IPv6 host.
    let pulled = member
        .pull_with(&member.pull_header(0, Duration::from_secs(60)))
        .await;
    assert_eq!(asked.lock().pop().unwrap().2, 19_000);
    assert_eq!(
        pulled.records[0].born_host(),
        "[2001:db8::1]:5".parse().unwrap()
    );
    assert_eq!(pulled.records[0].raw(), record(0));

    let original = filter_server(&broker.addr(), &["pullAsOwnGroup=false"]).await;
    let member = Member::new(original.local_addr(), "CG", "T");
    member.uploaded(module("i32.const 1")).await;
    member.pull_with(&header).await;
    let flag = pull_flag::build(false, true, true, false, false);
    assert_eq!(
        asked.lock().pop().unwrap(),
        (5, flag, 15_000, "FILTERSRV_CONSUMER".to_owned(), 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nothing_matches_the_server_pulls_on() {
    let (broker, asked) = endless();
    let server = filter_server(&broker.addr(), &[]).await;
    asked.lock().clear();
    let member = Member::new(server.local_addr(), "CG", "T");
    member.uploaded(modulo(1000, 100)).await;
    let mut header = member.pull_header(0, Duration::from_secs(15));
    header.sys_flag |= pull_flag::COMMIT_OFFSET;
    let pulled = member.pull_with(&header).await;
    assert_eq!(
        (pulled.code, pulled.sequence(), pulled.next()),
        (0, vec![100], 128)
    );
    let asked_for: Vec<_> = asked
        .lock()
        .drain(..)
        .map(|(offset, flag, ..)| (offset, flag & 1))
        .collect();
    assert_eq!(
        asked_for,
        [(0, 1), (32, 0), (64, 0), (96, 0)],
        "the commit bit goes with the first only"
    );
    let none = Member::new(server.local_addr(), "None", "T");
    none.uploaded(module("i32.const 0")).await;
    let pulled = none.pull(0).await;
    assert_eq!((pulled.code, pulled.records.len()), (20, 0));
    // 16 batches, unless the machine was so slow that the time was used up.
    let batches = asked.lock().len() as i64;
    assert!((1..=16).contains(&batches));
    assert_eq!(pulled.next(), 32 * batches);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_the_broker_are_passed_on_by_their_code() {
    let broker = FakeBroker::start(|pull| {
        Some(match pull.queue_offset {
            19 => answer(19, 19, Vec::new()),
            20 => answer(20, 25, Vec::new()),
            21 => answer(21, 500, Vec::new()),
            24 => Command::request(24).with_remark("no subscription"),
            // Some that do not match, then each of the above.
            offset @ 100.. => answer(0, offset - 100, records(offset, 1)),
            _ => Command::request(0),
        })
    });
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    member.uploaded(module("i32.const 0")).await;
    for (offset, next) in [(19, 19), (20, 25), (21, 500)] {
        let pulled = member.pull(offset).await;
        let told = pulled.header.as_ref().unwrap();
        assert_eq!(i64::from(pulled.code), offset);
        assert_eq!(
            (told.next_begin_offset, told.min_offset, told.max_offset),
            (next, 3, 1000)
        );
        assert_eq!(
            (told.suggest_which_broker_id, pulled.remark.as_str()),
            (0, "")
        );
    }
    let pulled = member.pull(24).await;
    assert_eq!(
        (pulled.code, pulled.remark.as_str()),
        (1, "Pull Callback Exception, CODE: 24 DESC: no subscription")
    );
    assert!(pulled.header.is_none());
    let pulled = member.pull(1).await;
    assert!(
        pulled
            .remark
            .starts_with("Pull Callback Exception, the broker's answer 0: "),
        "{}",
        pulled.remark
    );
    // Queue offsets out of range never reach the broker.
    for header in [
        PullMessageRequest {
            queue_offset: -1,
            ..member.pull_header(0, Duration::ZERO)
        },
        PullMessageRequest {
            max_msg_nums: 0,
            ..member.pull_header(0, Duration::ZERO)
        },
    ] {
        let pulled = member.pull_with(&header).await;
        assert_eq!(
            (pulled.code, pulled.remark.contains("must")),
            (1, true),
            "{}",
            pulled.remark
        );
    }
    assert_eq!(
        member
            .call(Command::request(request::PULL_MESSAGE))
            .await
            .code,
        1
    );
}

/// The fault case filter-03, and what follows from a refused upload.
#[tokio::test(flavor = "multi_thread")]
async fn filter_03_without_a_filter_the_pull_waits_a_second_and_says_upload_first() {
    let (broker, _) = endless();
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    let begin = Instant::now();
    let pulled = member.pull(0).await;
    assert_eq!(pulled.code, 1);
    assert!(
        pulled
            .remark
            .starts_with("Find Filter class failed, not registered, upload first"),
        "{}",
        pulled.remark
    );
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(member.upload("no module").await.0, 1);
    let pulled = member.pull(0).await;
    assert_eq!(
        (
            pulled.code,
            pulled.remark.contains("the upload was refused")
        ),
        (1, true),
        "{}",
        pulled.remark
    );
    for code in [10, 34, 105, 999] {
        assert_eq!(member.call(Command::request(code)).await.code, 3);
    }
    member.uploaded(module("i32.const 1")).await;
    assert_eq!(member.pull(0).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_first_registration_pulls_are_refused_and_uploads_taken() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let server = FilterServer::start(&config(&nobody.to_string(), &[])).unwrap();
    let member = Member::new(server.local_addr(), "CG", "T");
    member.uploaded(SEQUENCE_ID).await;
    let pulled = member.pull(0).await;
    assert_eq!(
        (
            pulled.code,
            pulled.remark.contains("not registered with its broker")
        ),
        (1, true),
        "{}",
        pulled.remark
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_filter_keeps_what_it_decided_before() {
    let (broker, _) = endless();
    let server = filter_server(&broker.addr(), &[]).await;
    for (group, how, reason) in [
        ("own", "(return (i32.const -7))", "its own error -7"),
        (
            "trap",
            "unreachable",
            "wasm `unreachable` instruction executed",
        ),
    ] {
        let member = Member::new(server.local_addr(), group, "T");
        member.uploaded(fails_at(10, how)).await;
        let pulled = member.pull(0).await;
        assert_eq!(
            (pulled.code, pulled.sequence(), pulled.next()),
            (0, (0..10).collect(), 10)
        );
        for _ in 0..2 {
            let pulled = member.pull(10).await;
            assert_eq!(pulled.code, 1);
            let begin = format!(
                "do Message Filter Exception, ConsumerGroup: {group} Topic: T queue offset 10: "
            );
            assert!(pulled.remark.starts_with(&begin), "{}", pulled.remark);
            assert!(pulled.remark.contains(reason), "{}", pulled.remark);
            let told = pulled.header.unwrap();
            assert_eq!(
                (told.next_begin_offset, told.min_offset, told.max_offset),
                (10, 3, 1000)
            );
        }
        assert_eq!(
            member.pull(11).await.sequence().len(),
            32,
            "the messages behind it are well"
        );
    }
    let figures = server.figures();
    for filter in &figures.filters {
        assert_eq!((filter.failed, filter.matched), (3, 42));
        assert!(
            filter
                .last_error
                .as_ref()
                .unwrap()
                .starts_with("queue offset 10: "),
            "{filter:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_policy_a_message_without_a_verdict_is_passed_or_dropped() {
    let (broker, _) = endless();
    for (policy, expected) in [
        ("pass", (0..32).collect::<Vec<u32>>()),
        ("drop", (0..32).filter(|n| *n != 10).collect()),
    ] {
        let server = filter_server(&broker.addr(), &[&format!("filterErrorPolicy={policy}")]).await;
        for (group, how) in [("own", "(return (i32.const -7))"), ("trap", "unreachable")] {
            let member = Member::new(server.local_addr(), group, "T");
            member.uploaded(fails_at(10, how)).await;
            let pulled = member.pull(0).await;
            assert_eq!((pulled.code, pulled.next()), (0, 32));
            assert_eq!(pulled.sequence(), expected, "{policy} {group}");
        }
        assert!(
            server
                .figures()
                .filters
                .iter()
                .all(|filter| filter.failed == 1)
        );
        // After a time-out what is decided is answered, and the filter rests.
        let slow = Member::new(server.local_addr(), "slow", "T");
        slow.uploaded(fails_at(10, "(loop (br 0))")).await;
        let pulled = slow.pull(0).await;
        assert_eq!((pulled.code, pulled.next()), (0, 11));
        assert_eq!(
            pulled.sequence().len(),
            if policy == "pass" { 11 } else { 10 }
        );
        let resting = slow.pull(11).await;
        assert!(
            resting.code == 0 || resting.remark.contains("is not run for another"),
            "{}",
            resting.remark
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_time_is_used_up_is_answered_as_far_as_it_came() {
    let (broker, _) = endless();
    let sets = ["filterBatchTimeout=1", "filterMessageTimeout=2000"];
    let server = filter_server(&broker.addr(), &sets).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    let slow = "(local $i i32) (loop (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if 0 (i32.lt_u (local.get $i) (i32.const 5000000)))) i32.const 1";
    member.uploaded(module(slow)).await;
    let mut offset = 0;
    for _ in 0..3 {
        let pulled = member.pull(offset).await;
        assert_eq!(pulled.code, 0, "{}", pulled.remark);
        assert!(
            !pulled.records.is_empty() && pulled.records.len() < 32,
            "{}",
            pulled.records.len()
        );
        assert_eq!(pulled.sequence()[0], offset as u32);
        offset += pulled.records.len() as i64;
        assert_eq!(pulled.next(), offset);
    }
    assert_eq!(server.figures().filters[0].failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_and_their_bytes_are_bounded_by_group_and_in_all() {
    let broker = FakeBroker::start(|pull| match pull.topic {
        "held" => None,
        "large" => Some(answer(0, 1, vec![7; 100_000])),
        _ => Some(answer(19, 0, Vec::new())),
    });
    let server = filter_server(&broker.addr(), &["maxPullsPerGroup=2", "maxPulls=3"]).await;
    let (a, b) = (
        Member::new(server.local_addr(), "A", "held"),
        Member::new(server.local_addr(), "B", "held"),
    );
    a.uploaded(SEQUENCE_ID).await;
    b.uploaded(SEQUENCE_ID).await;
    let hold = |member: &Member| {
        let member = member.clone();
        tokio::spawn(async move {
            let command = Command::request_with(
                request::PULL_MESSAGE,
                &member.pull_header(0, Duration::from_secs(15)),
            );
            member.client.call(&member.server, command, TIMEOUT).await
        })
    };
    let held = [hold(&a), hold(&a)];
    until("two are held", || server.figures().pulls == 2).await;
    let refused = a.pull(0).await;
    assert_eq!(
        (refused.code, refused.remark.contains("2 pulls of group A")),
        (2, true),
        "{}",
        refused.remark
    );
    let other = hold(&b);
    until("three are held", || server.figures().pulls == 3).await;
    let refused = b.pull(0).await;
    assert_eq!(
        (refused.code, refused.remark.starts_with("[OVERLOAD]")),
        (2, true),
        "{}",
        refused.remark
    );
    // Those of a closed connection are given up at once.
    a.client.close(&a.server);
    until("the pulls are gone", || server.figures().pulls == 1).await;
    for pull in held {
        assert!(pull.await.unwrap().is_err());
    }
    b.client.close(&b.server);
    assert!(other.await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn held_pulls_are_answered_when_the_server_stops() {
    let broker =
        FakeBroker::start(|pull| (pull.topic != "held").then(|| answer(19, 0, Vec::new())));
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "A", "held");
    member.uploaded(SEQUENCE_ID).await;
    let pulling = tokio::spawn({
        let member = member.clone();
        async move {
            member
                .pull_with(&member.pull_header(5, Duration::from_secs(15)))
                .await
        }
    });
    until("it is held", || server.figures().pulls == 1).await;
    server.stop(Duration::ZERO).await;
    let pulled = pulling.await.unwrap();
    assert_eq!((pulled.code, pulled.next()), (20, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_a_broker_answers_brings_the_server_down() {
    let counter = Arc::new(AtomicUsize::new(0));
    let count = counter.clone();
    let broker = FakeBroker::start(move |pull| {
        // The same every run: a linear congruence over the number of the pull.
        let n = count.fetch_add(1, Ordering::SeqCst);
        let mut state = n as u64 + 1;
        let mut byte = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        let mut body = records(pull.queue_offset, 4);
        match n % 4 {
            0 => body = (0..200).map(|_| byte()).collect(),
            1 => {
                let at = usize::from(byte()) % body.len();
                body[at] = byte();
            }
            2 => body.truncate(usize::from(byte()) % body.len()),
            _ => body.extend((0..20).map(|_| byte())),
        }
        Some(answer(0, pull.queue_offset + 4, body))
    });
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    member.uploaded(module("i32.const 1")).await;
    for n in 0..400 {
        let command = Command::request_with(
            request::PULL_MESSAGE,
            &member.pull_header(n, Duration::ZERO),
        );
        let answer = member.call(command).await;
        assert!([0, 1, 20].contains(&answer.code), "{answer:?}");
    }
    assert!(counter.load(Ordering::SeqCst) >= 400);
}
