//! What it costs to decide about one message: a selector on the bytes of its record, tags on the hash in its queue
//! entry, stored bits on its extension unit: `cargo bench -p minimq-broker --bench filters`.

use std::net::SocketAddr;

use divan::{Bencher, black_box};
use minimq_broker::client_registry::{PullFilter, filter_of};
use minimq_broker::filter::bloom::{BloomParameters, all_set, set_bits};
use minimq_protocol::message::{RecordFields, RecordRef};

fn main() {
    divan::main();
}

/// As a producer of the 4.9 client writes them, with two of the application's own behind.
const PROPERTIES: &str = "KEYS\u{1}order-4711\u{2}UNIQ_KEY\u{1}7F0000010C395FFD2B27955118E8010E\u{2}CLUSTER\u{1}DefaultCluster\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA\u{2}region\u{1}emea\u{2}amount\u{1}1500";

fn record() -> Vec<u8> {
    let host = SocketAddr::from(([127, 0, 0, 1], 10911));
    let fields = RecordFields {
        topic: "orders",
        queue_id: 1,
        flag: 0,
        queue_offset: 7,
        physical_offset: 7_000,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: host,
        store_timestamp: 1_700_000_000_001,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body_crc: 0,
        body: &[7; 1024],
        properties: PROPERTIES.as_bytes(),
        appended_properties: b"",
    };
    fields.encode().expect("a record").to_vec()
}

fn sql(expression: &str) -> PullFilter {
    filter_of(expression, Some("SQL92"), false).expect("an expression")
}

/// Of a whole record, as a pull does it. The first two have two comparisons.
#[divan::bench(args = [
    "amount > 1000 AND region = 'emea'",
    "amount BETWEEN 1000 AND 2000",
    "amount > 1000",
    "TAGS = 'TagA'",
    "region IN ('apac', 'emea') AND amount > 1000.5 OR missing IS NOT NULL",
])]
fn selector(bencher: Bencher<'_, '_>, expression: &str) {
    let (filter, record) = (sql(expression), record());
    assert!(filter.matches_record(&record));
    bencher.bench_local(|| black_box(&filter).matches_record(black_box(&record)));
}

/// What of that is reading the record's layout and walking its properties.
#[divan::bench]
fn properties_alone(bencher: Bencher<'_, '_>) {
    let record = record();
    bencher.bench_local(|| {
        let message = RecordRef::parse_slice(black_box(&record)).expect("a record");
        message.properties().iter_bytes().count()
    });
}

#[divan::bench(args = [1, 3, 10])]
fn tags(bencher: Bencher<'_, '_>, count: usize) {
    let all: Vec<String> = (0..count).map(|n| format!("Tag{n}")).collect();
    let filter = filter_of(&all.join("||"), Some("TAG"), false).expect("tags");
    bencher.bench_local(|| black_box(&filter).may_match(black_box(2_598_919)));
}

#[divan::bench]
fn stored_bits(bencher: Bencher<'_, '_>) {
    let parameters = BloomParameters::new(20, 32).expect("the defaults");
    let positions = parameters.positions("G#T");
    let mut bits = parameters.empty_bits();
    set_bits(&mut bits, &positions);
    bencher.bench_local(|| all_set(black_box(&bits), black_box(&positions)));
}

/// Once a subscription.
#[divan::bench]
fn compile(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| {
        minimq_broker::filter::sql::Selector::parse(black_box("amount > 1000 AND region = 'emea'"))
    });
}
