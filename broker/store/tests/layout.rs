//! README.md says which byte of each file means what. Here a store is written, and each file read at just those offsets.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use minimq_store::io::RealDisk;
use minimq_store::{AppendMessage, FilterBits, Store, StoreClock, StoreConfig};
use support::{message, small_config};

const STORED: i64 = 1_700_000_111_000;
const PROPERTIES: &str = "TAGS\u{1}TagA\u{2}KEYS\u{1}order-1";

/// The big-endian number of `N` bytes at `at`.
fn number<const N: usize>(bytes: &[u8], at: usize) -> i64 {
    let bytes: [u8; N] = bytes[at..at + N].try_into().unwrap();
    let value = bytes
        .iter()
        .fold(0, |value: i64, byte| value << 8 | i64::from(*byte));
    // Sign-extended.
    let unused = 64 - 8 * N as u32;
    value << unused >> unused
}

fn i32_at(bytes: &[u8], at: usize) -> i64 {
    number::<4>(bytes, at)
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    number::<8>(bytes, at)
}

struct Bits;

impl FilterBits for Bits {
    fn bits_of(&self, _record: &minimq_store::DispatchRecord<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0xA5, 0x5A, 0x01]);
    }
}

fn config(root: &Path) -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: 2048,
        mapped_file_size_consume_queue_ext: 40_000,
        enable_consume_queue_ext: true,
        max_message_size: 1024,
        ..small_config(root)
    }
}

fn open(root: &Path) -> Store {
    let (clock, _) = StoreClock::manual(STORED);
    Store::open_on(&config(root), Arc::new(RealDisk), clock, |_| {}).unwrap()
}

/// Appends at the times `STORED`, `STORED` + 1000, and so on, brings all to disk and stops without a clean end.
fn written(root: &Path, messages: &[AppendMessage<'_>]) {
    let (clock, time) = StoreClock::manual(STORED);
    let store = Store::open_on(&config(root), Arc::new(RealDisk), clock, |_| {}).unwrap();
    store.set_filter_bits(Some(Arc::new(Bits)));
    for message in messages {
        let mut outcomes = Vec::new();
        store.append_blocking(&[*message], &mut outcomes);
        outcomes.pop().unwrap().unwrap();
        time.fetch_add(1000, Ordering::SeqCst);
    }
    store.log_store().flush().unwrap();
    let (end, long) = (store.log().max_offset(), Duration::from_secs(60));
    assert!(store.dispatcher().wait_for(end, long));
    assert!(store.indexer().unwrap().wait_for(end, long));
    store.flush_queues().unwrap();
}

fn read(root: &Path, name: &str) -> Vec<u8> {
    std::fs::read(root.join(name)).unwrap()
}

/// A record with a value of its own in every field.
fn full_record(body: &[u8]) -> AppendMessage<'_> {
    AppendMessage {
        flag: 0x0102_0304,
        sys_flag: 0x8,
        born_timestamp: 1_700_000_000_123,
        reconsume_times: 16,
        prepared_transaction_offset: 0x0A0B_0C0D_0E0F,
        ..message("TopicTest", 3, body, PROPERTIES)
    }
}

/// Two whole records, IPv4 and IPv6, then two that do not fit into what is left of the first file together.
fn messages() -> Vec<AppendMessage<'static>> {
    let large = message("Large", 0, &[7; 1024], "");
    let over_ipv6 = AppendMessage {
        born_host: "[2001:db8::7]:1234".parse().unwrap(),
        store_host: "[fe80::1]:10911".parse().unwrap(),
        ..full_record(b"hello")
    };
    vec![full_record(b"hello"), over_ipv6, large, large]
}

const FIRST: usize = 75 + 8 + 8 + 5 + 9 + PROPERTIES.len();
const SECOND: usize = FIRST + 24;
const LARGE: usize = 91 + 5 + 1024;

/// Checks a record as the README's table lays it out, with host fields of `b` and `s` bytes.
fn check_record(bytes: &[u8], at: usize, number: i64, sys_flag: i64, (b, s): (usize, usize)) {
    let (n, t, p) = (5, "TopicTest".len(), PROPERTIES.len());
    let record = &bytes[at..at + 75 + b + s + n + t + p];
    assert_eq!(i32_at(record, 0), record.len() as i64, "totalSize");
    assert_eq!(record[4..8], [0xDA, 0xA3, 0x20, 0xA7], "magicCode");
    assert_eq!(i32_at(record, 8), 0x3610_A686, "bodyCRC");
    assert_eq!(i32_at(record, 12), 3, "queueId");
    assert_eq!(i32_at(record, 16), 0x0102_0304, "flag");
    assert_eq!(i64_at(record, 20), number, "queueOffset");
    assert_eq!(i64_at(record, 28), at as i64, "physicalOffset");
    assert_eq!(i32_at(record, 36), sys_flag, "sysFlag");
    assert_eq!(i64_at(record, 40), 1_700_000_000_123, "bornTimestamp");
    assert_eq!(i32_at(record, 48 + b - 4), 1234, "port of bornHost");
    assert_eq!(
        i64_at(record, 48 + b),
        STORED + 1000 * number,
        "storeTimestamp"
    );
    assert_eq!(i32_at(record, 56 + b + s - 4), 10_911, "port of storeHost");
    assert_eq!(i32_at(record, 56 + b + s), 16, "reconsumeTimes");
    assert_eq!(
        i64_at(record, 60 + b + s),
        0x0A0B_0C0D_0E0F,
        "preparedTransactionOffset"
    );
    assert_eq!(i32_at(record, 68 + b + s), n as i64, "bodyLength");
    assert_eq!(&record[72 + b + s..][..n], b"hello", "body");
    assert_eq!(usize::from(record[72 + b + s + n]), t, "topicLength");
    assert_eq!(&record[73 + b + s + n..][..t], b"TopicTest", "topic");
    let length = 73 + b + s + n + t;
    assert_eq!(
        crate::number::<2>(record, length),
        p as i64,
        "propertiesLength"
    );
    assert_eq!(&record[length + 2..], PROPERTIES.as_bytes(), "properties");
}

#[test]
fn records_and_the_end_mark_of_the_commit_log() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &messages());
    let file = read(folder.path(), "commitlog/00000000000000000000");
    check_record(&file, 0, 0, 0x8, (8, 8));
    assert_eq!(file[48..52], [127, 0, 0, 1], "bornHost");
    assert_eq!(file[64..68], [10, 11, 12, 13], "storeHost");
    check_record(&file, FIRST, 1, 0x38, (20, 20));
    let ipv6 = &file[FIRST..];
    assert_eq!(ipv6[48..52], [0x20, 0x01, 0x0d, 0xb8], "bornHost");
    assert_eq!(ipv6[76..78], [0xfe, 0x80], "storeHost");

    let mark = FIRST + SECOND + LARGE;
    assert_eq!(file.len(), 2048);
    assert_eq!(i32_at(&file, mark), (2048 - mark) as i64, "bytes left");
    assert_eq!(file[mark + 4..mark + 8], [0xCB, 0xD4, 0x31, 0x94], "magic");
    assert!(file[mark + 8..].iter().all(|byte| *byte == 0));
    let next = read(folder.path(), "commitlog/00000000000000002048");
    assert_eq!(i32_at(&next, 0), LARGE as i64);
    assert_eq!(i64_at(&next, 28), 2048);
    assert!(next[LARGE..].iter().all(|byte| *byte == 0));
}

#[test]
fn queue_entries_and_extension_units() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &messages());
    let queue = read(
        folder.path(),
        "consumequeue/TopicTest/3/00000000000000000000",
    );
    let units = read(
        folder.path(),
        "consumequeue_ext/TopicTest/3/00000000000000000000",
    );
    assert_eq!((queue.len(), units.len()), (400, 40_000));
    let tags_code = 2_598_919;
    for (index, (at, len)) in [(0, FIRST), (FIRST, SECOND)].into_iter().enumerate() {
        let entry = &queue[20 * index..];
        assert_eq!(i64_at(entry, 0), at as i64, "place of the record");
        assert_eq!(i32_at(entry, 8), len as i64, "length of the record");
        let unit_at = i64_at(entry, 12) - i64::MIN;
        assert_eq!(unit_at, 23 * index as i64, "address of a unit");
        let unit = &units[23 * index..];
        assert_eq!(number::<2>(unit, 0), 23, "length of the unit");
        assert_eq!(i64_at(unit, 2), tags_code, "tags code");
        assert_eq!(i64_at(unit, 10), STORED + 1000 * index as i64, "store time");
        assert_eq!(number::<2>(unit, 18), 3, "length of the bits");
        assert_eq!(unit[20..23], [0xA5, 0x5A, 0x01], "bits");
    }
    assert!(queue[40..].iter().all(|byte| *byte == 0), "not written");
}

#[test]
fn header_slots_and_entries_of_the_index() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &messages());
    let names: Vec<_> = std::fs::read_dir(folder.path().join("index"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let [name] = &names[..] else {
        panic!("{names:?}")
    };
    assert_eq!(name.len(), "yyyyMMddHHmmssSSS".len());
    let file = read(folder.path(), &format!("index/{name}"));
    let (slots, entries) = (10, 40);
    assert_eq!(file.len(), 40 + 4 * slots + 20 * entries);
    assert_eq!(i64_at(&file, 0), STORED, "time of the first");
    assert_eq!(i64_at(&file, 8), STORED + 1000, "time of the last");
    assert_eq!(i64_at(&file, 16), 0, "place of the first");
    assert_eq!(i64_at(&file, 24), FIRST as i64, "place of the last");
    assert_eq!(i32_at(&file, 32), 1, "slots in use");
    assert_eq!(i32_at(&file, 36), 3, "number of the next entry");
    // Both have the same key, so the second continues the chain of the first.
    let hash = "TopicTest#order-1"
        .bytes()
        .fold(0_i32, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(i32::from(byte))
        })
        .unsigned_abs();
    let slot = hash as usize % slots;
    assert_eq!(i32_at(&file, 40 + 4 * slot), 2, "newest of the chain");
    for (number, place) in [(1, 0), (2, FIRST)] {
        let entry = &file[40 + 4 * slots + 20 * number..];
        assert_eq!(i32_at(entry, 0), i64::from(hash), "hash of the key");
        assert_eq!(i64_at(entry, 4), place as i64, "place of the record");
        assert_eq!(i32_at(entry, 12), number as i64 - 1, "seconds");
        assert_eq!(i32_at(entry, 16), number as i64 - 1, "entry before");
    }
}

#[test]
fn checkpoint_abort_lock_and_the_list_of_queues() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &messages());
    let file = read(folder.path(), "checkpoint");
    assert_eq!(file.len(), 4096);
    let (last, end) = (STORED + 3000, 2048 + LARGE as i64);
    assert_eq!(i64_at(&file, 0), last, "physicMsgTimestamp");
    assert_eq!(i64_at(&file, 8), last, "logicsMsgTimestamp");
    assert_eq!(i64_at(&file, 24), 0);
    assert_eq!(&file[32..40], b"mqstore1");
    assert_eq!(i64_at(&file, 40), end, "flushed offset");
    assert_eq!(i64_at(&file, 48), end, "dispatched offset");
    assert_eq!(file[56..80], file[..24], "copy of the times");
    let sum = crc32fast::hash(&file[32..80]).cast_signed();
    assert_eq!(i32_at(&file, 80), i64::from(sum), "CRC-32");
    assert_eq!(i64_at(&file, 84), end, "entered offset");
    let sum = crc32fast::hash(&file[32..92]).cast_signed();
    assert_eq!(i32_at(&file, 92), i64::from(sum), "CRC-32");
    assert!(file[96..].iter().all(|byte| *byte == 0));

    assert_eq!(read(folder.path(), "abort"), b"");
    assert_eq!(read(folder.path(), "lock"), b"lock");
    assert_eq!(
        String::from_utf8(read(folder.path(), "queues")).unwrap(),
        "Large\t0\t2\nTopicTest\t3\t2\n"
    );
}

#[test]
fn deleted_topics_in_the_list_of_queues() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &messages());
    let store = open(folder.path());
    let end = store.log().max_offset();
    store.delete_topic("Large").unwrap();
    assert_eq!(
        String::from_utf8(read(folder.path(), "queues")).unwrap(),
        format!("Large\tdeleted\t{end}\nTopicTest\t3\t2\n")
    );
}

#[test]
fn the_list_of_damaged_parts() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &messages());
    let path = folder.path().join("commitlog/00000000000000000000");
    let mut file = std::fs::read(&path).unwrap();
    // Of the first record the body changes; of the third not even a head is left.
    file[88] ^= 1;
    file[FIRST + SECOND..][..88].fill(0);
    std::fs::write(&path, file).unwrap();
    drop(open(folder.path()));
    let text = String::from_utf8(read(folder.path(), "damaged")).unwrap();
    let lines: Vec<Vec<_>> = text
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    let [body, head] = &lines[..] else {
        panic!("{text}")
    };
    let (to, from) = (FIRST.to_string(), (FIRST + SECOND).to_string());
    assert_eq!(body[..5], ["0", &to, "TopicTest", "3", "0"]);
    assert_eq!(head[..5], [&from, "2048", "-", "-", "-"]);
    for line in [body, head] {
        assert!(line.len() == 6 && !line[5].is_empty(), "reason: {text}");
    }
    assert!(text.ends_with('\n'));
    assert!(!folder.path().join("damaged.tmp").exists());
}
