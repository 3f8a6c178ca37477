//! Any damage to the files of a stopped store: opening it neither panics nor hangs, and no message is invented.
//!
//! The input is a program of damage. First byte: bit 0 leaves the `abort` file, bit 1 is SYNC_FLUSH. Then instructions of 7
//! bytes: what is done, to which file (of all, in order), where (3 bytes), how many bytes or with what (2 bytes).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use minimq_protocol::message::MessageView;
use minimq_store::commit_log::scanner::{LogScanner, Step};
use minimq_store::io::{Disk, SimulatedDisk};
use minimq_store::{
    AppendMessage, Blocking, FlushDiskType, GetRequest, NoFilter, QueueOffset, Store, StoreClock,
    StoreConfig,
};

const TOPICS: [&str; 3] = ["TopicA", "TopicB", "SCHEDULE_TOPIC_XXXX"];
const LONG: Duration = Duration::from_secs(30);

/// A stopped store, and what was stored in it: body by physical offset.
struct Original {
    files: Vec<(PathBuf, Vec<u8>)>,
    bodies: BTreeMap<i64, Vec<u8>>,
}

fn config(sync: bool) -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: 4096,
        mapped_file_size_consume_queue: 200,
        max_hash_slot_num: 8,
        max_index_num: 32,
        max_message_size: 2048,
        flush_disk_type: if sync {
            FlushDiskType::SyncFlush
        } else {
            FlushDiskType::AsyncFlush
        },
        ..StoreConfig::new("/s")
    }
}

fn message<'a>(topic: &'a str, queue_id: i32, body: &'a [u8]) -> AppendMessage<'a> {
    AppendMessage {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: ([127, 0, 0, 1], 1).into(),
        store_host: ([127, 0, 0, 1], 2).into(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: b"KEYS\x01k\x02DELAY\x013",
        appended_properties: b"",
        joins_previous: false,
    }
}

fn original() -> &'static Original {
    static ORIGINAL: OnceLock<Original> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        let disk = SimulatedDisk::new();
        let store = open(&config(false), &disk).unwrap();
        let mut bodies = BTreeMap::new();
        for number in 0..60_u8 {
            let body: Vec<u8> = (0..20 + usize::from(number) * 7 % 500)
                .map(|at| number ^ at as u8 | 1)
                .collect();
            let mut outcomes = Vec::new();
            let topic = TOPICS[usize::from(number) % 3];
            store.append_blocking(
                &[message(topic, i32::from(number / 3 % 2), &body)],
                &mut outcomes,
            );
            bodies.insert(outcomes.remove(0).unwrap().physical_offset.get(), body);
        }
        assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
        store.close().unwrap();
        let content = |path: PathBuf| disk.content(&path).map(|content| (path, content));
        let files = disk.paths().into_iter().filter_map(content).collect();
        Original { files, bodies }
    })
}

fn open(config: &StoreConfig, disk: &SimulatedDisk) -> Result<Store, minimq_store::StoreError> {
    Store::open_on(config, Arc::new(disk.clone()), StoreClock::System, |_| {})
}

/// Damages the files as the program says.
fn damaged(mut program: &[u8], abort: bool) -> SimulatedDisk {
    let mut files = original().files.clone();
    if abort {
        files.push(("/s/abort".into(), Vec::new()));
    }
    while let Some((instruction, rest)) = program.split_first_chunk::<7>() {
        program = rest;
        let [what, file, at0, at1, at2, a, b] = *instruction;
        let at = u32::from_be_bytes([0, at0, at1, at2]) as usize;
        let (file, operand) = (
            usize::from(file) % files.len(),
            u16::from_be_bytes([a, b]) as usize,
        );
        let content = &mut files[file].1;
        let len = content.len();
        let from = at % len.max(1);
        match what % 8 {
            0 => content
                .iter_mut()
                .skip(from)
                .take(1)
                .for_each(|byte| *byte ^= 1 << (a % 8)),
            1 => content
                .iter_mut()
                .skip(from)
                .take(operand)
                .for_each(|byte| *byte = 0),
            2 => content.truncate(from),
            3 => {
                files.remove(file);
                if files.is_empty() {
                    break;
                }
            }
            4 => content
                .iter_mut()
                .skip(from)
                .take(operand % 64)
                .for_each(|byte| *byte = b),
            // A sector of another place: what a lost or misdirected write leaves.
            5 => {
                let (from, to) = (from / 512 * 512, operand * 512 % len.max(1) / 512 * 512);
                let sector: Vec<u8> = content.iter().skip(from).take(512).copied().collect();
                content
                    .iter_mut()
                    .skip(to)
                    .zip(sector)
                    .for_each(|(to, from)| *to = from);
            }
            6 => {
                let other = files[operand % files.len()].1.clone();
                files[file].1 = other;
            }
            _ => content.extend(std::iter::repeat_n(b, operand % 5000)),
        }
    }
    let disk = SimulatedDisk::new();
    disk.create_folder(Path::new("/s")).unwrap();
    files
        .into_iter()
        .for_each(|(path, content)| disk.put(&path, content));
    disk
}

/// See the file's text.
pub(crate) fn run(data: &[u8]) {
    let (first, program) = data.split_first().unwrap_or((&0, &[]));
    let config = config(first & 2 != 0);
    let disk = damaged(program.get(..70).unwrap_or(program), first & 1 != 0);
    // Files of another size, say, are refused with an error.
    let Ok(store) = open(&config, &disk) else {
        return;
    };
    look_at(&store);
    let mut outcomes = Vec::new();
    store.append_blocking(&[message("TopicA", 0, b"after")], &mut outcomes);
    let stored = outcomes.remove(0);
    let closed = store.close();
    drop(store);
    let (Ok(stored), Ok(())) = (stored, closed) else {
        return;
    };
    let store = open(&config, &disk).unwrap();
    assert!(store.log_store().report().clean);
    assert_eq!(store.log_store().report().end, stored.end());
    let record = store
        .reader()
        .record(stored.physical_offset, Blocking::Allowed)
        .unwrap()
        .unwrap();
    assert_eq!(MessageView::parse(record).unwrap().body(), b"after");
}

/// Every message that can be read was stored there.
fn look_at(store: &Store) {
    let bodies = &original().bodies;
    assert!(
        store
            .dispatcher()
            .wait_for(store.log().dispatch_limit(), LONG),
        "{:?}",
        store.dispatcher().trouble()
    );
    let (min, end) = (
        store.log().min_offset().get().max(0),
        store.log().max_offset().get(),
    );
    let mut scanner = LogScanner::over(Arc::clone(store.log()), min);
    let damage = store.log_store().damage().ranges();
    loop {
        let at = scanner.position();
        if let Some(range) = damage.iter().find(|range| range.from.get() == at) {
            scanner.seek(range.to.get());
            continue;
        }
        match scanner.step(end).unwrap() {
            // The scanner leaves bodies to those who read them.
            Step::Record(record) if !record.body_crc_holds() => {}
            Step::Record(record) => assert_eq!(
                bodies.get(&at).map(Vec::as_slice),
                Some(record.body()),
                "at {at}"
            ),
            Step::EndOfFile => {}
            Step::CaughtUp => break,
            // Damage in a part that is not looked at after a clean stop: found when it is read.
            Step::Damaged { .. } | Step::Nothing { .. } => break,
        }
    }
    for queue in store.queues().all() {
        let (topic, queue_id) = (queue.topic(), queue.queue_id());
        let mut offset = store.reader().min_offset(topic, queue_id);
        let max = store.reader().max_offset(topic, queue_id);
        for _ in 0..200 {
            if offset >= max {
                break;
            }
            let request = GetRequest {
                topic,
                queue_id,
                offset,
                max_count: 32,
                max_bytes: usize::MAX,
            };
            let mut records = Vec::new();
            let Ok(result) =
                store
                    .reader()
                    .get(&request, &mut NoFilter, Blocking::Allowed, &mut records)
            else {
                break;
            };
            for record in records {
                let record = MessageView::parse(record).unwrap();
                let stored = bodies.get(&record.physical_offset()).map(Vec::as_slice);
                assert_eq!(stored, Some(record.body()), "{topic}/{queue_id}");
            }
            assert!(result.next_begin_offset > offset, "{result:?}");
            offset = QueueOffset(result.next_begin_offset.get());
        }
    }
    let _ = store.query("TopicA", "k", 64, 0, i64::MAX).unwrap();
}
