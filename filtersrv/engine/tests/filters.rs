//! What modules are accepted, what they are told of a message, and how their faults end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_filter_engine::{
    CompileError, Engine, EngineConfig, Failure, Filter, FilterContext, InstanceError,
};
use minimq_protocol::compression::CompressionType;
use minimq_protocol::message::{MessageView, RecordFields};
use minimq_protocol::properties::PropertiesBuf;

fn engine() -> Engine {
    Engine::new(EngineConfig::default()).unwrap()
}

/// A filter whose body is `code`, with memory and the imports named.
fn module(imports: &[(&str, &str)], code: &str) -> String {
    let imports: String = imports
        .iter()
        .map(|(name, form)| format!("(import \"minimq\" \"{name}\" (func ${name} {form}))\n"))
        .collect();
    format!(
        "(module {imports} (memory (export \"memory\") 1)
           (func (export \"minimq_filter_abi_1\"))
           (func (export \"filter\") (result i32) {code}))"
    )
}

fn context() -> FilterContext {
    FilterContext {
        topic: "T".into(),
        group: "CG".into(),
        class_name: "org.example.MyFilter".into(),
    }
}

fn message(properties: &[(&str, &str)], body: &[u8], sys_flag: i32) -> MessageView<Bytes> {
    let mut text = PropertiesBuf::new();
    for (name, value) in properties {
        text.push(name, value);
    }
    let host: SocketAddr = "127.0.0.1:10911".parse().unwrap();
    let record = RecordFields {
        topic: "TopicA",
        queue_id: 3,
        flag: 17,
        queue_offset: 40,
        physical_offset: 5000,
        sys_flag,
        born_timestamp: 1_700_000_000_001,
        born_host: "[::1]:4000".parse().unwrap(),
        store_timestamp: 1_700_000_000_002,
        store_host: host,
        reconsume_times: 2,
        prepared_transaction_offset: 9,
        body_crc: minimq_protocol::crc::body_crc(body),
        body,
        properties: text.as_str().as_bytes(),
        appended_properties: &[],
    };
    MessageView::parse(record.encode().unwrap()).unwrap()
}

fn verdict(filter: &Arc<Filter>, message: &MessageView<Bytes>) -> Result<bool, Failure> {
    filter.instantiate(context()).unwrap().batch().run(message)
}

/// The example of the documentation: every third `SequenceId` above 10.
const SEQUENCE_ID: &str = r#"(module
  (import "minimq" "property_i64" (func $i64 (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "SequenceId")
  (func (export "minimq_filter_abi_1"))
  (func (export "filter") (result i32)
    (local $code i32)
    (local.set $code (call $i64 (i32.const 0) (i32.const 10) (i32.const 16)))
    (if (i32.eq (local.get $code) (i32.const -1)) (then (return (i32.const 0))))
    (if (local.get $code) (then (return (local.get $code))))
    (i32.and
      (i64.gt_s (i64.load (i32.const 16)) (i64.const 10))
      (i64.eqz (i64.rem_s (i64.load (i32.const 16)) (i64.const 3))))))"#;

#[test]
fn the_example_keeps_every_third_above_ten() {
    let filter = engine().compile(SEQUENCE_ID.as_bytes()).unwrap();
    let mut instance = filter.instantiate(context()).unwrap();
    let mut batch = instance.batch();
    let kept: Vec<u32> = (0..100u32)
        .filter(|n| {
            batch
                .run(&message(&[("SequenceId", &n.to_string())], b"x", 0))
                .unwrap()
        })
        .collect();
    assert_eq!(kept, (12..100).step_by(3).collect::<Vec<_>>());
    assert!(!batch.run(&message(&[], b"x", 0)).unwrap());
    let not_a_number = message(&[("SequenceId", "twelve")], b"x", 0);
    assert_eq!(batch.run(&not_a_number), Err(Failure::Guest(-3)));
    assert!(
        !batch.is_spent(),
        "the guest's own error leaves the instance usable"
    );
}

#[test]
fn binary_text_and_base64_are_the_same_filter_in_three_forms() {
    use base64::Engine as _;
    let engine = engine();
    let binary = wat::parse_str(SEQUENCE_ID).unwrap();
    let mut base64 = base64::engine::general_purpose::STANDARD.encode(&binary);
    base64.insert(60, '\n');
    for upload in [
        SEQUENCE_ID.as_bytes(),
        &binary,
        base64.as_bytes(),
        base64.trim_end_matches('=').as_bytes(),
    ] {
        let filter = engine.compile(upload).unwrap();
        assert_eq!(filter.size(), binary.len());
        assert!(verdict(&filter, &message(&[("SequenceId", "12")], b"x", 0)).unwrap());
        let again = engine.compile(upload).unwrap();
        assert!(Arc::ptr_eq(&filter, &again), "compiled once");
    }
}

fn refusal(upload: &[u8]) -> String {
    engine().compile(upload).unwrap_err().to_string()
}

fn refused_text(text: &str) -> String {
    refusal(text.as_bytes())
}

#[test]
fn each_refusal_names_the_fault() {
    let head = "(memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\"))";
    let filter = "(func (export \"filter\") (result i32) i32.const 1)";
    let cases = [
        (String::from("hello"), "not a WebAssembly module"),
        (
            String::from("(module (func $f (result i32) i32.const))"),
            "the text form does not parse",
        ),
        (
            format!("(module {filter} (memory (export \"memory\") 1))"),
            "minimq_filter_abi_1",
        ),
        (format!("(module {head})"), "must export \"filter\""),
        (
            format!("(module {head} (func (export \"filter\")))"),
            "must export \"filter\"",
        ),
        (
            format!("(module (func (export \"minimq_filter_abi_1\")) {filter})"),
            "its memory as \"memory\"",
        ),
        (
            format!("(module {head} {filter} (func (export \"init\") (param i32)))"),
            "\"init\"",
        ),
        (
            format!(
                "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func)) {head} {filter})"
            ),
            "import wasi_snapshot_preview1.fd_write is not allowed",
        ),
        (
            format!("(module (import \"minimq\" \"shutdown\" (func)) {head} {filter})"),
            "import minimq.shutdown is not allowed",
        ),
        (
            format!("(module (import \"minimq\" \"text\" (func (param i64))) {head} {filter})"),
            "import minimq.text must be a function (i32, i32, i32) -> i32",
        ),
        (
            format!("(module {head} {filter} (memory 1))"),
            "more than one memory",
        ),
        (
            format!(
                "(module (memory (export \"memory\") 1 2 shared) (func (export \"minimq_filter_abi_1\")) {filter})"
            ),
            "threads (shared memory)",
        ),
        (
            format!(
                "(module (memory (export \"memory\") i64 1) (func (export \"minimq_filter_abi_1\")) {filter})"
            ),
            "64-bit memory",
        ),
        (format!("(module {head} {filter} (tag))"), "exceptions"),
        (
            format!("(module {head} {filter} (type (struct)))"),
            "garbage collection",
        ),
        (
            format!("(module {head} {filter} (func $r return_call $r))"),
            "tail calls",
        ),
        (
            format!(
                "(module (memory (export \"memory\") 257) (func (export \"minimq_filter_abi_1\")) {filter})"
            ),
            "bytes of memory at start: 16842752, at most 16777216",
        ),
        (
            format!("(module {head} {filter} (table 10001 funcref))"),
            "elements of the table: 10001",
        ),
        (
            format!("(module {head} {filter} (table 1 funcref) (table 1 funcref))"),
            "tables: 2",
        ),
        (
            format!("(module {head} {filter} {})", "(func)".repeat(10_001)),
            "functions: 10003",
        ),
        (
            format!(
                "(module {head} {filter} (func {}))",
                "i32.const 1 drop ".repeat(100_000)
            ),
            "bytes of one function: 300002",
        ),
        (
            format!("(module {head} {filter} (func $s unreachable) (start $s))"),
            "does not start: the filter trapped",
        ),
        (
            format!("(module {head} {filter} (func $s (loop br 0)) (start $s))"),
            "does not start: the filter took longer than 100 ms",
        ),
        (
            format!("(module {head} {filter} (func (export \"init\") (result i32) i32.const -7))"),
            "does not start: the filter answered its own error -7",
        ),
        (String::from("(component)"), "component"),
    ];
    for (text, expected) in cases {
        let remark = refused_text(&text);
        assert!(
            remark.contains(expected),
            "{}: {remark}",
            &text[..text.len().min(120)]
        );
    }
}

#[test]
fn damaged_and_oversized_binaries_are_refused() {
    let binary = wat::parse_str(SEQUENCE_ID).unwrap();
    // Cut between two sections, what is before may be a module too.
    let ends = section_ends(&binary);
    for length in (0..binary.len()).filter(|length| !ends.contains(length)) {
        assert!(engine_refuses(&binary[..length]), "cut at {length}");
    }
    let mut flipped = binary.clone();
    flipped[4] = 9;
    assert!(engine_refuses(&flipped));
    let mut huge = binary;
    huge.resize(16 * 1024 * 1024, 0);
    let error = engine().compile(&huge).unwrap_err();
    assert_eq!(
        error,
        CompileError::TooLarge {
            size: 16 << 20,
            limit: 4 << 20
        }
    );
}

/// Where the sections of a binary end whose sections are all shorter than 128 bytes.
fn section_ends(binary: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 8;
    while let Some(length) = binary.get(at + 1) {
        assert!(*length < 128);
        at += 2 + usize::from(*length);
        ends.push(at);
    }
    ends
}

fn engine_refuses(upload: &[u8]) -> bool {
    thread_local!(static ENGINE: Engine = engine());
    ENGINE.with(|engine| engine.compile(upload).is_err())
}

/// A module that answers what the host function called with these arguments answers, and keeps
/// what it wrote at 64 for the next look: it is compared with `expected` there.
fn asks(function: &str, form: &str, arguments: &str, expected: &[u8]) -> String {
    let hex: String = expected.iter().map(|b| format!("\\{b:02x}")).collect();
    format!(
        "(module (import \"minimq\" \"{function}\" (func $ask {form}))
           (memory (export \"memory\") 1)
           (data (i32.const 0) \"colour\\00price\\00none\") (data (i32.const 1024) \"{hex}\")
           (func (export \"minimq_filter_abi_1\"))
           (func (export \"filter\") (result i32) (local $answer i32) (local $i i32)
             (local.set $answer (call $ask {arguments}))
             (block $same (loop $next
               (br_if $same (i32.ge_u (local.get $i) (i32.const {})))
               (if (i32.ne (i32.load8_u offset=64 (local.get $i)) (i32.load8_u offset=1024 (local.get $i)))
                 (then (return (i32.const -1000))))
               (local.set $i (i32.add (local.get $i) (i32.const 1)))
               (br $next)))
             (i32.sub (i32.const -100) (local.get $answer))))",
        expected.len()
    )
}

/// Runs `asks`: the host's answer, if the bytes written are as expected.
fn answer_of(
    function: &str,
    arguments: &str,
    expected: &[u8],
    message: &MessageView<Bytes>,
) -> i32 {
    let (_, parameters, _) = minimq_filter_engine::abi::FUNCTIONS
        .into_iter()
        .find(|(name, ..)| *name == function)
        .unwrap();
    let form = format!("(param {}) (result i32)", "i32 ".repeat(parameters));
    let text = asks(function, &form, arguments, expected);
    let filter = engine().compile(text.as_bytes()).unwrap();
    match verdict(&filter, message) {
        Err(Failure::Guest(-1000)) => panic!("{function} {arguments} wrote other bytes"),
        Err(Failure::Guest(code)) => -100 - code,
        other => panic!("{other:?}"),
    }
}

fn constants(values: &[i64]) -> String {
    values.iter().map(|v| format!("(i32.const {v})")).collect()
}

#[test]
fn a_guest_is_told_everything_of_a_message() {
    let m = message(
        &[
            ("colour", "green"),
            ("price", "12.5"),
            ("TAGS", "TagA"),
            ("KEYS", "k1 k2"),
            ("UNIQ_KEY", "0A0B"),
        ],
        b"the body",
        0,
    );
    let property = |at, length, expected: &[u8]| {
        answer_of("property", &constants(&[at, length, 64, 100]), expected, &m)
    };
    assert_eq!(property(0, 6, b"green"), 5);
    assert_eq!(property(14, 4, b""), -1);
    // No more than the room given is written.
    assert_eq!(
        answer_of("property", &constants(&[0, 6, 64, 2]), b"gr\0\0", &m),
        5
    );
    assert_eq!(
        answer_of(
            "property_f64",
            &constants(&[7, 5, 64]),
            &12.5f64.to_le_bytes(),
            &m
        ),
        0
    );
    assert_eq!(
        answer_of("property_i64", &constants(&[7, 5, 64]), b"", &m),
        -3
    );
    assert_eq!(answer_of("property_count", "", b"", &m), 5);
    assert_eq!(
        answer_of("property_name", &constants(&[1, 64, 100]), b"price", &m),
        5
    );
    assert_eq!(
        answer_of("property_name", &constants(&[5, 64, 100]), b"", &m),
        -1
    );
    let offset_id = m.message_id().to_string();
    for (which, text) in [
        (0, "TopicA"),
        (1, "CG"),
        (2, "TagA"),
        (3, "k1 k2"),
        (4, "0A0B"),
        (5, "[::1]:4000"),
        (6, "127.0.0.1:10911"),
        (7, offset_id.as_str()),
        (8, "org.example.MyFilter"),
    ] {
        let answer = answer_of("text", &constants(&[which, 64, 500]), text.as_bytes(), &m);
        assert_eq!(answer, text.len() as i32, "text {which}");
    }
    assert_eq!(answer_of("text", &constants(&[9, 64, 100]), b"", &m), -4);
    for (which, number) in [
        (0, 3),
        (1, 40),
        (2, 5000),
        (3, 1_700_000_000_001),
        (4, 1_700_000_000_002),
        (5, 17),
        (6, i64::from(m.sys_flag())),
        (7, 2),
        (8, 8),
        (9, 8),
        (10, i64::from(m.body_crc())),
        (11, 9),
        (12, m.size() as i64),
    ] {
        let answer = answer_of(
            "number",
            &constants(&[which, 64]),
            &i64::to_le_bytes(number),
            &m,
        );
        assert_eq!(answer, 0, "number {which}");
    }
    assert_eq!(answer_of("number", &constants(&[13, 64]), b"", &m), -4);
    assert_eq!(answer_of("body", &constants(&[4, 64, 100]), b"body", &m), 4);
    assert_eq!(answer_of("body", &constants(&[100, 64, 100]), b"", &m), 0);
    let bare = message(&[], b"x", 0);
    assert_eq!(answer_of("text", &constants(&[2, 64, 9]), b"", &bare), -1);
    let id = bare.message_id().to_string();
    assert_eq!(
        answer_of("text", &constants(&[4, 64, 99]), id.as_bytes(), &bare),
        id.len() as i32
    );
}

#[test]
fn bodies_are_decompressed_on_demand_and_never_beyond_the_limit() {
    let plain = "compressible ".repeat(1000);
    for kind in [
        CompressionType::Zlib,
        CompressionType::Lz4,
        CompressionType::Zstd,
    ] {
        let stored = kind.compress(plain.as_bytes(), 5).unwrap();
        let m = message(&[], &stored, kind.sys_flag() | 1);
        assert_eq!(
            answer_of("body", &constants(&[13, 64, 13]), b"compressible ", &m),
            13
        );
        let length = (plain.len() as i64).to_le_bytes();
        assert_eq!(answer_of("number", &constants(&[8, 64]), &length, &m), 0);
        let stored_length = (stored.len() as i64).to_le_bytes();
        assert_eq!(
            answer_of("number", &constants(&[9, 64]), &stored_length, &m),
            0
        );
    }
    let garbage = message(&[], b"not zlib at all", 1);
    assert_eq!(
        answer_of("body", &constants(&[0, 64, 10]), b"", &garbage),
        -5
    );
    assert_eq!(answer_of("number", &constants(&[8, 64]), b"", &garbage), -5);
    let bomb = CompressionType::Zlib
        .compress(&vec![0; 64 << 20], 9)
        .unwrap();
    let bomb = message(&[], &bomb, CompressionType::Zlib.sys_flag() | 1);
    assert_eq!(answer_of("body", &constants(&[0, 64, 10]), b"", &bomb), -5);
}

#[test]
fn bad_pointers_are_answered_and_never_trap() {
    let m = message(&[("colour", "green")], b"body", 0);
    let far = [
        -1i64,
        i64::from(i32::MIN),
        65_536,
        65_535,
        i64::from(i32::MAX),
    ];
    for at in far {
        for length in [8, i64::from(i32::MAX), -1, i64::from(i32::MIN)] {
            for (function, arguments) in [
                ("property", vec![at, length, 64, 8]),
                ("property", vec![0, 6, at, length]),
                ("property_i64", vec![at, length, 64]),
                ("property_f64", vec![at, length, 64]),
                ("property_name", vec![0, at, length]),
                ("text", vec![0, at, length]),
                ("body", vec![0, at, length]),
                ("body", vec![-1, 64, 8]),
                ("number", vec![0, at]),
            ] {
                let answer = answer_of(function, &constants(&arguments), b"", &m);
                assert_eq!(answer, -2, "{function} {arguments:?}");
            }
        }
    }
}

#[test]
fn endless_loops_end_at_the_time_limit() {
    let filter = engine()
        .compile(module(&[], "(loop (br 0)) i32.const 0").as_bytes())
        .unwrap();
    let mut instance = filter.instantiate(context()).unwrap();
    let begin = Instant::now();
    let failure = instance.batch().run(&message(&[], b"", 0)).unwrap_err();
    assert_eq!(failure, Failure::TimedOut(Duration::from_millis(10)));
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    assert!(instance.is_spent());
}

#[test]
fn recursion_traps_and_memory_stays_within_its_limit() {
    let recursion = "(module (memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\"))
        (func $f (export \"filter\") (result i32) (i32.add (call $f) (i32.const 1))))";
    let m = message(&[], b"", 0);
    let engine = engine();
    let filter = engine.compile(recursion.as_bytes()).unwrap();
    assert!(matches!(verdict(&filter, &m), Err(Failure::Trapped(text)) if text.contains("stack")));
    // Grows until refused and answers the pages it has.
    let bomb = module(
        &[],
        "(loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
        (i32.sub (i32.const 0) (memory.size))",
    );
    let filter = engine.compile(bomb.as_bytes()).unwrap();
    let mut instance = filter.instantiate(context()).unwrap();
    assert_eq!(
        instance.batch().run(&m),
        Err(Failure::Guest(-241)),
        "pages of 64 KiB"
    );
    assert!(instance.memory() <= 16 << 20);
    assert!(instance.is_spent(), "past half its memory it is renewed");
    drop(instance);
    assert_eq!((engine.instances(), engine.instance_memory()), (0, 0));
}

#[test]
fn instances_and_their_memory_are_bounded_over_all_filters() {
    let config = EngineConfig {
        max_instances: 3,
        max_total_memory: 2 << 16,
        ..EngineConfig::default()
    };
    let engine = Engine::new(config).unwrap();
    let filter = engine
        .compile(module(&[], "i32.const 1").as_bytes())
        .unwrap();
    let first = filter.instantiate(context()).unwrap();
    let second = filter.instantiate(context()).unwrap();
    assert!(
        matches!(filter.instantiate(context()), Err(InstanceError::Start(_))),
        "memory used up"
    );
    drop(first);
    let third = filter.instantiate(context()).unwrap();
    drop((second, third));
    let none = Engine::new(EngineConfig {
        max_instances: 0,
        ..EngineConfig::default()
    })
    .unwrap();
    let refused = none
        .compile(module(&[], "i32.const 1").as_bytes())
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("0 filter instances run already"),
        "{refused}"
    );
}

#[test]
fn an_abort_of_assemblyscript_is_a_failure_with_its_text() {
    let units: String = "bad input"
        .encode_utf16()
        .map(|u| format!("\\{:02x}\\{:02x}", u & 255, u >> 8))
        .collect();
    let text = format!(
        "(module (import \"env\" \"abort\" (func $abort (param i32 i32 i32 i32)))
           (memory (export \"memory\") 1) (data (i32.const 16) \"\\12\\00\\00\\00{units}\")
           (func (export \"minimq_filter_abi_1\"))
           (func (export \"filter\") (result i32)
             (call $abort (i32.const 20) (i32.const 0) (i32.const 7) (i32.const 3)) i32.const 1))"
    );
    let filter = engine().compile(text.as_bytes()).unwrap();
    let failure = verdict(&filter, &message(&[], b"", 0)).unwrap_err();
    assert_eq!(failure, Failure::Aborted("bad input (:7:3)".to_owned()));
}

#[test]
fn a_filter_dropped_by_all_is_forgotten() {
    let engine = engine();
    let filter = engine.compile(SEQUENCE_ID.as_bytes()).unwrap();
    let hash = filter.hash();
    assert!(engine.find(&hash).is_some());
    drop(filter);
    assert!(engine.find(&hash).is_none());
    assert_eq!(hash.to_string().len(), 64);
}

#[test]
fn logging_is_bounded_and_accepts_any_pointer() {
    let code = "(call $log (i32.const 2) (i32.const 0) (i32.const 65536))
        (call $log (i32.const 9) (i32.const -1) (i32.const -1)) i32.const 1";
    let filter = engine()
        .compile(module(&[("log", "(param i32 i32 i32)")], code).as_bytes())
        .unwrap();
    let mut instance = filter.instantiate(context()).unwrap();
    let mut batch = instance.batch();
    for _ in 0..1000 {
        assert_eq!(batch.run(&message(&[], b"", 0)), Ok(true));
    }
}
