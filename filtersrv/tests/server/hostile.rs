//! Modules that mean harm, while a second group is served (filter server spec 19, T8; fault case filter-05), and
//! garbage at the port.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::support::*;

/// Modules that are taken and do harm when they run, with what their pulls are answered.
fn harmful() -> Vec<(&'static str, String, &'static str)> {
    let deep = "(module (memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\"))
        (func $f (export \"filter\") (result i32) (i32.add (call $f) (i32.const 1))))";
    let bulk =
        "(loop (memory.fill (i32.const 0) (i32.const 7) (i32.const 65536)) (br 0)) i32.const 1";
    let bomb = "(loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    vec![
        (
            "loop",
            module("(loop (br 0)) i32.const 1"),
            "took longer than 10 ms",
        ),
        ("deep", deep.to_owned(), "trapped"),
        ("memory", module(bomb), "trapped"),
        ("bulk", module(bulk), "took longer than 10 ms"),
        ("trap", module("unreachable"), "trapped"),
        ("far", module("(i32.load (i32.const -1))"), "trapped"),
        (
            "zero",
            module("(i32.div_s (i32.const 1) (i32.const 0))"),
            "trapped",
        ),
    ]
}

/// Uploads that are refused, with a part of the remark.
fn refused() -> Vec<(Vec<u8>, &'static str)> {
    let head = "(memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\"))";
    let filter = "(func (export \"filter\") (result i32) i32.const 1)";
    let binary = wat::parse_str(SEQUENCE_ID).unwrap();
    let mut huge = binary.clone();
    huge.resize(15 << 20, 0);
    vec![
        (huge, "the module has 15728640 bytes, at most 4194304"),
        (
            binary[..binary.len() / 2].to_vec(),
            "invalid module at byte",
        ),
        (b"\0asm\x01\0\0\0garbage".to_vec(), "invalid module at byte"),
        (
            (0..=255).cycle().take(5000).collect(),
            "not a WebAssembly module",
        ),
        (
            format!("(module {head} {filter} (func $s (loop (br 0))) (start $s))").into_bytes(),
            "took longer than 100 ms",
        ),
        (
            format!("(module {head} {filter} (func $s unreachable) (start $s))").into_bytes(),
            "trapped",
        ),
        (
            format!("(module {head} {filter} {})", "(func)".repeat(10_001)).into_bytes(),
            "functions: 10003, at most 10000",
        ),
        (
            format!("(module (import \"env\" \"system\" (func)) {head} {filter})").into_bytes(),
            "import env.system is not allowed",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_05_hostile_modules_are_answered_in_bounded_time_while_others_are_served() {
    let s = Setting::start(&[]).await;
    s.send_sequence("TopicA", 200).await;
    let good = s.member("Good", "TopicA");
    good.uploaded(SEQUENCE_ID).await;
    let mut attacks = tokio::task::JoinSet::new();
    for (group, text, reason) in harmful() {
        let member = s.member(group, "TopicA");
        attacks.spawn(async move {
            member.uploaded(text).await;
            for _ in 0..5 {
                let begin = Instant::now();
                let pulled = member.pull(0).await;
                assert!(
                    begin.elapsed() < Duration::from_secs(5),
                    "{group}: {:?}",
                    begin.elapsed()
                );
                assert_eq!((pulled.code, pulled.records.len()), (1, 0), "{group}");
                assert!(pulled.remark.contains(reason), "{group}: {}", pulled.remark);
            }
        });
    }
    for (n, (body, reason)) in refused().into_iter().enumerate() {
        let member = s.member(&format!("Refused{n}"), "TopicA");
        attacks.spawn(async move {
            let begin = Instant::now();
            let (code, remark) = member.upload(body).await;
            assert!(
                begin.elapsed() < Duration::from_secs(5),
                "{reason}: {:?}",
                begin.elapsed()
            );
            assert_eq!(code, 1);
            assert!(remark.contains(reason), "{remark}");
        });
    }
    let mut rounds = 0;
    while !attacks.is_empty() || rounds < 3 {
        let begin = Instant::now();
        let ids: Vec<_> = good.consume(0, 200).await.iter().map(sequence_id).collect();
        assert_eq!(ids, (12..200).step_by(3).collect::<Vec<_>>());
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{:?}",
            begin.elapsed()
        );
        rounds += 1;
        while let Some(done) = attacks.try_join_next() {
            done.unwrap();
        }
    }
    let figures = s.server.figures();
    assert!(
        figures.instance_memory <= 8 * (16 << 20),
        "{}",
        figures.instance_memory
    );
    let resting = figures
        .filters
        .iter()
        .find(|filter| filter.consumer_group == "loop")
        .unwrap();
    assert!(
        resting.failed < 5,
        "a filter that times out is left alone: {resting:?}"
    );
    assert!(
        resting.last_error.as_ref().unwrap().contains("took longer"),
        "{resting:?}"
    );
}

/// Every function of the host, with pointers and lengths outside the memory: each call is answered −2, or the message
/// is not kept.
#[tokio::test(flavor = "multi_thread")]
async fn bad_pointers_to_every_host_function_are_answered_and_nothing_more() {
    let s = Setting::start(&[]).await;
    s.send_sequence("TopicA", 40).await;
    let functions = [
        (
            "property",
            "(param i32 i32 i32 i32) (result i32)",
            "BAD BAD BAD BAD",
        ),
        (
            "property_i64",
            "(param i32 i32 i32) (result i32)",
            "BAD BAD BAD",
        ),
        (
            "property_f64",
            "(param i32 i32 i32) (result i32)",
            "BAD BAD BAD",
        ),
        (
            "property_name",
            "(param i32 i32 i32) (result i32)",
            "(i32.const 0) BAD BAD",
        ),
        (
            "text",
            "(param i32 i32 i32) (result i32)",
            "(i32.const 0) BAD BAD",
        ),
        (
            "number",
            "(param i32 i32) (result i32)",
            "(i32.const 0) BAD",
        ),
        (
            "body",
            "(param i32 i32 i32) (result i32)",
            "(i32.const 0) BAD BAD",
        ),
    ];
    let (mut imports, mut calls) = (String::new(), String::new());
    for (name, form, arguments) in functions {
        imports += &format!("(import \"minimq\" \"{name}\" (func ${name} {form}))");
        for bad in [
            "(i32.const -1)",
            "(i32.const 65535)",
            "(i32.const 0x7fffffff)",
        ] {
            let arguments = arguments.replace("BAD", bad);
            calls += &format!(
                "(if (i32.ne (call ${name} {arguments}) (i32.const -2)) (then (return (i32.const 0))))"
            );
        }
    }
    let text = format!(
        "(module {imports} (import \"minimq\" \"log\" (func $log (param i32 i32 i32)))
           (memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\"))
           (func (export \"filter\") (result i32)
             (call $log (i32.const 1) (i32.const -1) (i32.const -1)) {calls} i32.const 1))"
    );
    let member = s.member("CG", "TopicA");
    member.uploaded(text).await;
    assert_eq!(member.consume(0, 40).await.len(), 40);
    assert_eq!(s.server.figures().filters[0].failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_any_bytes_are_refused_as_uploads() {
    let broker = FakeBroker::start(|_| Some(answer(19, 0, Vec::new())));
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    let binary = wat::parse_str(SEQUENCE_ID).unwrap();
    let mut state = 1u64;
    let mut byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for n in 0..300 {
        let mut body = binary.clone();
        for _ in 0..=n % 4 {
            let at = byte() % body.len();
            body[at] = byte() as u8;
        }
        let (code, remark) = member.upload(&body).await;
        assert!(
            code == 0 || (code == 1 && !remark.is_empty()),
            "{code} {remark}"
        );
    }
    member.uploaded(SEQUENCE_ID).await;
    assert_eq!(member.pull(0).await.code, 19);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_at_the_port_closes_that_connection_only() {
    let broker = FakeBroker::start(|_| Some(answer(19, 0, Vec::new())));
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    member.uploaded(SEQUENCE_ID).await;
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64],
        &[0; 64],
        &[0, 0, 0, 8, 0, 0, 0, 200, 1, 2, 3, 4],
    ] {
        let mut stream = std::net::TcpStream::connect(server.local_addr()).unwrap();
        stream.write_all(garbage).unwrap();
    }
    until("only the member is connected", || {
        server.connection_count() == 1
    })
    .await;
    assert_eq!(member.pull(0).await.code, 19);
}
