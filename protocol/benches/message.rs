//! Records, properties, checksums, hashes and signatures: `cargo bench -p minimq-protocol --bench message`.

use bytes::Bytes;
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use minimq_protocol::acl_signature::SigningKey;
use minimq_protocol::batch::{self, BatchRecord};
use minimq_protocol::compression::CompressionType;
use minimq_protocol::crc::body_crc;
use minimq_protocol::hash::tags_code;
use minimq_protocol::message::{MessageView, RecordFields, VerifyBody, check, split_records};
use minimq_protocol::properties::Properties;
use minimq_protocol::unique_key::UniqueKeyGenerator;

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

const BODIES: [usize; 3] = [128, 1024, 4096];
const PROPERTIES: &str = "KEYS\u{1}order-1000017\u{2}UNIQ_KEY\u{1}7F0000013B2A5FFD2B279541C3240016\u{2}WAIT\u{1}true\
     \u{2}TAGS\u{1}TagA\u{2}region\u{1}eu-west\u{2}CLUSTER\u{1}DefaultCluster";

fn main() {
    divan::main();
}

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

fn fields(body: &[u8]) -> RecordFields<'_> {
    RecordFields {
        topic: "TopicTest",
        queue_id: 3,
        flag: 0,
        queue_offset: 7,
        physical_offset: 1000,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: ([10, 0, 0, 9], 5000).into(),
        store_timestamp: 1_700_000_000_001,
        store_host: ([10, 0, 0, 1], 10911).into(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body_crc: body_crc(body),
        body,
        properties: PROPERTIES.as_bytes(),
        appended_properties: &[],
    }
}

/// The checksum is made before, as the broker does outside its lock.
#[divan::bench(args = BODIES)]
fn record_encode(bencher: Bencher, len: usize) {
    let body = body(len);
    let fields = fields(&body);
    let mut out = vec![0; fields.encoded_len()];
    bencher
        .counter(BytesCount::new(out.len()))
        .bench_local(|| black_box(&fields).encode_into(black_box(&mut out)));
}

/// Parse, and read what a consumer reads: topic, queue, offset, tag, body.
#[divan::bench(args = BODIES)]
fn record_decode(bencher: Bencher, len: usize) {
    let record = fields(&body(len)).encode().unwrap();
    bencher
        .counter(BytesCount::new(record.len()))
        .bench_local(|| {
            let view = MessageView::parse(black_box(record.clone())).unwrap();
            black_box((
                view.topic().len(),
                view.queue_id(),
                view.queue_offset(),
                view.tags().map(str::len),
                view.body().len(),
            ));
        });
}

/// A pull answer of 32 records, split and measured.
#[divan::bench(args = BODIES)]
fn pull_answer_split(bencher: Bencher, len: usize) {
    let record = fields(&body(len)).encode().unwrap();
    let answer = Bytes::from(record.repeat(32));
    bencher
        .counter(BytesCount::new(answer.len()))
        .counter(ItemsCount::new(32_usize))
        .bench_local(|| {
            split_records(black_box(answer.clone()))
                .filter(Result::is_ok)
                .count()
        });
}

/// What recovery does to each record.
#[divan::bench(args = BODIES)]
fn record_check_with_crc(bencher: Bencher, len: usize) {
    let record = fields(&body(len)).encode().unwrap();
    bencher
        .counter(BytesCount::new(record.len()))
        .bench_local(|| {
            black_box(check(black_box(&record), VerifyBody::Crc));
        });
}

#[divan::bench(args = [128, 1024, 4096, 65536])]
fn crc(bencher: Bencher, len: usize) {
    let body = body(len);
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| body_crc(black_box(&body)));
}

#[divan::bench]
fn properties_get_one(bencher: Bencher) {
    bencher
        .counter(BytesCount::new(PROPERTIES.len()))
        .bench_local(|| Properties::new(black_box(PROPERTIES)).get("TAGS"));
}

#[divan::bench]
fn properties_walk_all(bencher: Bencher) {
    bencher
        .counter(BytesCount::new(PROPERTIES.len()))
        .bench_local(|| Properties::new(black_box(PROPERTIES)).iter_bytes().count());
}

#[divan::bench]
fn tags_code_of_a_short_tag(bencher: Bencher) {
    bencher.bench_local(|| tags_code(black_box(Some("TagA"))));
}

#[divan::bench]
fn batch_of_32_decode(bencher: Bencher) {
    let body = body(128);
    let mut encoded = Vec::new();
    for _ in 0..32 {
        BatchRecord {
            flag: 0,
            body: &body,
            properties: PROPERTIES.as_bytes(),
        }
        .encode(&mut encoded)
        .unwrap();
    }
    bencher
        .counter(BytesCount::new(encoded.len()))
        .counter(ItemsCount::new(32_usize))
        .bench_local(|| {
            batch::records(black_box(&encoded))
                .filter(Result::is_ok)
                .count()
        });
}

#[divan::bench]
fn unique_key(bencher: Bencher) {
    let keys = UniqueKeyGenerator::new([10, 0, 0, 9].into(), 1, 2, jiff::tz::TimeZone::UTC);
    let mut buffer = [0; 56];
    bencher.bench_local(|| keys.write(black_box(1_700_000_000_000), &mut buffer).len());
}

#[divan::bench]
fn signature_verify(bencher: Bencher) {
    let body = body(1024);
    let fields = [
        ("a", "ProducerGroup"),
        ("b", "TopicTest"),
        ("c", "TBW102"),
        ("d", "4"),
        ("e", "0"),
        ("f", "0"),
        ("g", "1700000000000"),
        ("h", "0"),
        ("i", PROPERTIES),
        ("j", "0"),
        ("k", "false"),
        ("m", "false"),
        ("n", "broker-a"),
        ("AccessKey", "RocketMQ"),
    ];
    let key = SigningKey::new("12345678");
    let signature = key.sign(fields, &body);
    bencher.bench_local(|| key.verify(black_box(fields), black_box(&body), &signature));
}

#[divan::bench(args = [CompressionType::Zlib, CompressionType::Lz4, CompressionType::Zstd])]
fn decompress_4k_text(bencher: Bencher, kind: CompressionType) {
    let text: Vec<u8> = b"{\"order\":1000017,\"amount\":\"12.50\"},"
        .iter()
        .copied()
        .cycle()
        .take(4096)
        .collect();
    let compressed = kind.compress(&text, 5).unwrap();
    bencher
        .counter(BytesCount::new(text.len()))
        .bench_local(|| kind.decompress(black_box(&compressed), 1 << 22));
}
