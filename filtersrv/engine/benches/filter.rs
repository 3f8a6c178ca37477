//! Messages through filters: `cargo bench -p minimq-filter-engine --bench filter`. The time is that of a batch of 32;
//! the items are messages.

use bytes::Bytes;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use minimq_filter_engine::{Engine, EngineConfig, FilterContext, Instance};
use minimq_protocol::crc::body_crc;
use minimq_protocol::message::{MessageView, RecordFields};
use minimq_protocol::properties::PropertiesBuf;

const BATCH: usize = 32;

/// Reads two of a message's eight properties as numbers.
const TWO_PROPERTIES: &str = r#"(module
  (import "minimq" "property_i64" (func $i64 (param i32 i32 i32) (result i32)))
  (import "minimq" "property_f64" (func $f64 (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "SequenceIdprice")
  (func (export "minimq_filter_abi_1"))
  (func (export "filter") (result i32)
    (if (call $i64 (i32.const 0) (i32.const 10) (i32.const 32)) (then (return (i32.const 0))))
    (if (call $f64 (i32.const 10) (i32.const 5) (i32.const 40)) (then (return (i32.const 0))))
    (i32.and
      (i64.eqz (i64.rem_s (i64.load (i32.const 32)) (i64.const 10)))
      (f64.ge (f64.load (i32.const 40)) (f64.const 0)))))"#;
/// Looks at nothing: what a call costs.
const NOTHING: &str = r#"(module (memory (export "memory") 1)
  (func (export "minimq_filter_abi_1")) (func (export "filter") (result i32) i32.const 1))"#;
/// Compares the tag's text.
const TAG: &str = r#"(module
  (import "minimq" "text" (func $text (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "minimq_filter_abi_1"))
  (func (export "filter") (result i32)
    (drop (call $text (i32.const 2) (i32.const 0) (i32.const 16)))
    (i32.eq (i32.load (i32.const 0)) (i32.const 0x41676154))))"#;

fn main() {
    divan::main();
}

fn message(n: usize) -> MessageView<Bytes> {
    let mut properties = PropertiesBuf::new();
    for (name, value) in [
        ("KEYS", "order-1000017"),
        ("UNIQ_KEY", "7F0000013B2A5FFD2B279541C3240016"),
        ("WAIT", "true"),
        ("TAGS", "TagA"),
        ("region", "eu-west"),
        ("SequenceId", &n.to_string()),
        ("price", "99.25"),
        ("CLUSTER", "DefaultCluster"),
    ] {
        properties.push(name, value);
    }
    let body = vec![b'x'; 1024];
    let host = ([127, 0, 0, 1], 10911).into();
    let record = RecordFields {
        topic: "TopicTest",
        queue_id: 3,
        flag: 0,
        queue_offset: n as i64,
        physical_offset: 1000,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: host,
        store_timestamp: 1_700_000_000_001,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body_crc: body_crc(&body),
        body: &body,
        properties: properties.as_str().as_bytes(),
        appended_properties: &[],
    };
    MessageView::parse(record.encode().unwrap()).unwrap()
}

fn instance(module: &str) -> Instance {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let filter = engine.compile(module.as_bytes()).unwrap();
    filter.instantiate(FilterContext::default()).unwrap()
}

fn run(bencher: Bencher<'_, '_>, module: &str) {
    let messages: Vec<_> = (0..BATCH).map(message).collect();
    let mut instance = instance(module);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        let mut batch = instance.batch();
        let mut keep = |message| batch.run(message).unwrap();
        black_box(&messages).iter().filter(|m| keep(m)).count()
    });
}

#[divan::bench]
fn two_properties(bencher: Bencher<'_, '_>) {
    run(bencher, TWO_PROPERTIES);
}

#[divan::bench]
fn nothing(bencher: Bencher<'_, '_>) {
    run(bencher, NOTHING);
}

#[divan::bench]
fn tag(bencher: Bencher<'_, '_>) {
    run(bencher, TAG);
}

/// Text form to a filter that can be run.
#[divan::bench]
fn compile(bencher: Bencher<'_, '_>) {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    // Dropped, it is forgotten: each time it is compiled anew.
    bencher.bench_local(|| engine.compile(TWO_PROPERTIES.as_bytes()).unwrap());
}

/// A fresh sandbox of a compiled filter.
#[divan::bench]
fn instantiate(bencher: Bencher<'_, '_>) {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let filter = engine.compile(TWO_PROPERTIES.as_bytes()).unwrap();
    bencher.bench_local(|| filter.instantiate(FilterContext::default()).unwrap());
}
