//! Limits over real requests: bytes of pulled messages under way, a compilation that takes long, instances that have
//! grown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use minimq_protocol::Command;
use minimq_protocol::code::{request, response};
use tokio::io::AsyncWriteExt;

use crate::pulls::{record_of, records};
use crate::support::*;

/// A filter that thinks for a while about each message.
fn slow() -> String {
    module(
        "(local $i i32) (loop (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if 0 (i32.lt_u (local.get $i) (i32.const 100000000)))) i32.const 1",
    )
}

/// As long as the answer of one pull is being filtered, a second one of the group is refused, and served later.
async fn second_pull_is_refused(setting: &str, groups: [&str; 2], remark: &str) {
    let broker = FakeBroker::start(|pull| {
        let body = records(pull.queue_offset, 1);
        Some(answer(0, pull.queue_offset + 1, body))
    });
    let size = records(0, 1).len();
    let limit = format!("{setting}={}", size + size / 2);
    let sets = [
        limit.as_str(),
        "filterMessageTimeout=10000",
        "filterBatchTimeout=10000",
    ];
    let server = filter_server(&broker.addr(), &sets).await;
    let members = groups.map(|group| Member::new(server.local_addr(), group, "T"));
    members[1].uploaded(module("i32.const 1")).await;
    members[0].uploaded(slow()).await;
    // One after the other: a busy machine may look at the second only when the first is over.
    let ended = Arc::new(AtomicBool::new(false));
    let first = tokio::spawn({
        let (member, ended) = (members[0].clone(), ended.clone());
        async move {
            while !ended.load(Ordering::Relaxed) {
                let pulled = member.pull(0).await;
                assert!(
                    pulled.code == response::SYSTEM_BUSY || pulled.sequence() == [0],
                    "{pulled:?}"
                );
            }
        }
    });
    until("the first is under way", || server.figures().pulls >= 1).await;
    let refused = until_some("the second is refused", || async {
        let pulled = members[1].pull(1).await;
        (pulled.code == response::SYSTEM_BUSY).then_some(pulled)
    })
    .await;
    assert!(
        refused.remark.starts_with("[OVERLOAD]") && refused.remark.contains(remark),
        "{}",
        refused.remark
    );
    ended.store(true, Ordering::Relaxed);
    first.await.unwrap();
    // What was held is given back.
    assert_eq!(members[1].pull(1).await.sequence(), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_one_groups_pulls_under_way_are_bounded() {
    second_pull_is_refused(
        "maxPulledBytesPerGroup",
        ["CG", "CG"],
        "bytes of group CG wait to be filtered or taken",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_all_pulls_under_way_are_bounded() {
    second_pull_is_refused(
        "maxPulledBytes",
        ["Slow", "Other"],
        "bytes wait to be filtered or taken",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_a_consumer_does_not_take_count_until_it_does() {
    const SIZE: usize = 1 << 20;
    let broker = FakeBroker::start(|pull| {
        let body = record_of(pull.queue_offset as u32, &vec![b'x'; SIZE]);
        Some(answer(0, pull.queue_offset + 1, body))
    });
    let server = filter_server(&broker.addr(), &["maxPulledBytesPerGroup=2M"]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    member.uploaded(module("i32.const 1")).await;
    // It asks again and again and reads nothing.
    let mut lazy = tokio::net::TcpStream::connect(server.local_addr())
        .await
        .unwrap();
    let pull = member.pull_header(0, Duration::ZERO);
    let request = Command::request_with(request::PULL_MESSAGE, &pull).to_frame();
    let refused = until_some("the other member is refused", || async {
        let _ = lazy.try_write(&request);
        let pulled = member.pull(0).await;
        (pulled.code == response::SYSTEM_BUSY).then_some(pulled)
    })
    .await;
    assert!(
        refused
            .remark
            .contains("bytes of group CG wait to be filtered or taken"),
        "{}",
        refused.remark
    );
    // Once it reads, or goes, there is room.
    lazy.shutdown().await.unwrap();
    drop(lazy);
    until_some("the other member is served", || async {
        let pulled = member.pull(0).await;
        (pulled.sequence() == [0]).then_some(())
    })
    .await;
}

/// A module that takes long to compile.
fn large(n: usize) -> String {
    module(&format!(
        "{} i32.const {n}",
        "(drop (i32.mul (i32.const 3) (i32.const 5)))".repeat(8000)
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_takes_too_long_to_compile_is_told_to_come_again_and_is_taken_then() {
    let broker = FakeBroker::start(|_| Some(answer(19, 0, Bytes::new())));
    let server = filter_server(&broker.addr(), &["filterCompileWait=1"]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    let module = large(1);
    let (code, remark) = member.upload(&module).await;
    assert_eq!(code, response::SYSTEM_ERROR);
    assert!(
        remark.starts_with("compiling, upload again: the module "),
        "{remark}"
    );
    // It is compiled all the same, and in use even before it is uploaded again.
    until("it is in use", || server.figures().filters.len() == 1).await;
    assert_eq!(member.upload(&module).await, (0, String::new()));
    assert_eq!(member.pull(0).await.code, 19);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_in_use_serves_until_the_next_one_is_compiled() {
    let broker = FakeBroker::start(|pull| {
        let body = records(pull.queue_offset, 1);
        Some(answer(0, pull.queue_offset + 1, body))
    });
    let server = filter_server(&broker.addr(), &["filterCompileWait=1"]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    until_some("the first is in use", || async {
        let (code, _) = member.upload(modulo(1, 0)).await;
        (code == 0).then_some(())
    })
    .await;
    // Keeps nothing.
    let next = large(0);
    assert_eq!(member.upload(&next).await.0, response::SYSTEM_ERROR);
    let (mut kept, mut refused) = (0, 0);
    until_some("the next one is in use", || async {
        let pulled = member.pull(0).await;
        match pulled.code {
            0 => None,
            20 => Some(()),
            code => panic!("{code} {}", pulled.remark),
        }
    })
    .await;
    for _ in 0..20 {
        match member.pull(0).await.code {
            0 => kept += 1,
            20 => {}
            _ => refused += 1,
        }
    }
    assert_eq!(
        (kept, refused),
        (0, 0),
        "without a gap and without a way back"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_whose_memory_passed_half_the_limit_is_renewed_between_messages() {
    let broker = FakeBroker::start(|pull| {
        let body = records(pull.queue_offset, 8);
        Some(answer(0, pull.queue_offset + 8, body))
    });
    let server = filter_server(&broker.addr(), &["maxFilterMemory=1M"]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    // Takes 192 KiB a message, and keeps a message only while its memory is small: after the third the instance is
    // a new one.
    member
        .uploaded(module(
            "(drop (memory.grow (i32.const 3))) (i32.lt_u (memory.size) (i32.const 12))",
        ))
        .await;
    let pulled = member.pull(0).await;
    assert_eq!(pulled.sequence(), (0..8).collect::<Vec<_>>());
    let figures = server.figures();
    assert_eq!(
        (figures.filters[0].failed, figures.instances),
        (0, 1),
        "{figures:?}"
    );
    assert!(figures.instance_memory <= 1 << 20, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_is_told() {
    let broker = FakeBroker::start(|_| None);
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    member.uploaded(SEQUENCE_ID).await;
    let held = tokio::spawn({
        let member = member.clone();
        async move {
            let pull = member.pull_header(0, Duration::from_secs(15));
            let command = Command::request_with(request::PULL_MESSAGE, &pull);
            member.client.call(&member.server, command, TIMEOUT).await
        }
    });
    until("it is counted", || server.figures().pulls == 1).await;
    let told = Member::new(server.local_addr(), "Other", "T")
        .figures()
        .await;
    assert_eq!((told.pulls, told.filters.len()), (1, 1));
    assert_eq!(told.broker_name.as_deref(), Some("fake"));
    held.abort();
    member.client.close(&member.server);
    until("it is gone", || server.figures().pulls == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_was_quick_for_long_and_then_loops_ends_as_any_other() {
    const PULL: i64 = 32;
    let broker = FakeBroker::start(|pull| {
        let body = records(pull.queue_offset, PULL);
        Some(answer(0, pull.queue_offset + PULL, body))
    });
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    let at = 200 * PULL + 5;
    member.uploaded(fails_at(at as u32, "(loop (br 0))")).await;
    // What comes before it is answered.
    assert_eq!(member.consume(0, at).await.len() as i64, at);
    let pulled = member.pull(at).await;
    assert_eq!((pulled.code, pulled.records.len()), (1, 0));
    assert!(
        pulled.remark.contains("took longer than 10 ms"),
        "{}",
        pulled.remark
    );
    let figures = server.figures();
    let filter = &figures.filters[0];
    assert_eq!(
        (filter.matched, filter.failed, filter.state.as_str()),
        (at, 1, "backing off"),
        "{figures:?}"
    );
}
