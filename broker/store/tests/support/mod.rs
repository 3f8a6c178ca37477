//! What the store's tests share: messages, a stand-in for queues that notes what it is given, golden stores; whole stores
//! ([`store`]).
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod store;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use minimq_store::io::{Disk, RealDisk};
use minimq_store::recovery::{Derived, RecordPlace};
use minimq_store::{
    AppendMessage, AppendOutcome, DispatchRecord, FlushOutcome, LogStore, PhysicalOffset,
    QueueOffset, StoreClock, StoreConfig, StoreError,
};

/// A record as it was given to queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    pub at: i64,
    pub size: i32,
    pub topic: String,
    pub queue_id: i32,
    pub queue_offset: i64,
    pub tags_code: i64,
    pub damaged: bool,
}

/// Queues that only exist in memory.
#[derive(Clone, Debug, Default)]
pub struct NotedQueues {
    pub records: Vec<Noted>,
    /// Where records begin, as queues on disk would tell.
    pub places: Vec<RecordPlace>,
}

impl Derived for NotedQueues {
    fn largest_end(&self) -> PhysicalOffset {
        self.places
            .last()
            .map_or(PhysicalOffset(0), |place| place.at.plus(place.size.into()))
    }

    fn needed_from(&mut self, log_min: PhysicalOffset) -> PhysicalOffset {
        log_min
    }

    fn rewind(&mut self, from: PhysicalOffset) -> Result<(), StoreError> {
        self.records.retain(|record| record.at < from.get());
        Ok(())
    }

    fn record_starts(&self, range: Range<PhysicalOffset>) -> Result<Vec<RecordPlace>, StoreError> {
        Ok(self
            .places
            .iter()
            .filter(|place| range.contains(&place.at))
            .copied()
            .collect())
    }

    fn accept(&mut self, record: &DispatchRecord<'_>) -> Result<(), StoreError> {
        self.records.push(Noted {
            at: record.physical_offset.get(),
            size: record.size,
            topic: record.topic.to_owned(),
            queue_id: record.queue_id,
            queue_offset: record.queue_offset.get(),
            tags_code: record.tags_code,
            damaged: record.damaged,
        });
        Ok(())
    }

    fn truncate(&mut self, end: PhysicalOffset) -> Result<(), StoreError> {
        self.records.retain(|record| record.at < end.get());
        Ok(())
    }

    fn next_offsets(&self, visit: &mut dyn FnMut(&str, i32, QueueOffset)) {
        let mut next = BTreeMap::new();
        for record in &self.records {
            next.insert(
                (record.topic.as_str(), record.queue_id),
                record.queue_offset + 1,
            );
        }
        next.into_iter()
            .for_each(|((topic, queue_id), next)| visit(topic, queue_id, QueueOffset(next)));
    }
}

/// Small files, so that they roll over often.
pub fn small_config(root: impl Into<PathBuf>) -> StoreConfig {
    let mut config = StoreConfig::new(root);
    config.mapped_file_size_commit_log = 16 * 1024;
    config.mapped_file_size_consume_queue = 400;
    config.max_hash_slot_num = 10;
    config.max_index_num = 40;
    config.max_message_size = 12 * 1024;
    // Whatever this machine's disk says.
    config.disk_space_clean_forcibly_ratio = 100;
    config.disk_space_warning_level_ratio = 100;
    config
}

pub fn message<'a>(
    topic: &'a str,
    queue_id: i32,
    body: &'a [u8],
    properties: &'a str,
) -> AppendMessage<'a> {
    AppendMessage {
        topic,
        queue_id,
        flag: 7,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: "127.0.0.1:1234".parse().unwrap(),
        store_host: "10.11.12.13:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: properties.as_bytes(),
        appended_properties: b"",
        joins_previous: false,
    }
}

/// Opens a log on any disk, giving the queues what recovery gives.
pub fn open(config: &StoreConfig, disk: &Arc<dyn Disk>) -> (LogStore, NotedQueues) {
    let mut queues = NotedQueues::default();
    let log = open_with(config, disk, &mut queues);
    (log, queues)
}

pub fn open_with(config: &StoreConfig, disk: &Arc<dyn Disk>, queues: &mut NotedQueues) -> LogStore {
    LogStore::open(config, Arc::clone(disk), StoreClock::System, queues, |_| {}).unwrap()
}

pub fn real() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

pub fn append_one(log: &LogStore, message: AppendMessage<'_>) -> AppendOutcome {
    let mut outcomes = Vec::new();
    log.append_blocking(&[message], &mut outcomes);
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// Waits for a flush on this thread.
pub fn wait_flushed(log: &LogStore, end: PhysicalOffset) -> FlushOutcome {
    let (sender, receiver) = std::sync::mpsc::channel();
    log.wait_flushed(end, Box::new(move |outcome| sender.send(outcome).unwrap()));
    receiver.recv().unwrap()
}

/// Unpacks a golden store into a folder; gives its root. A missing archive is a failure.
pub fn golden(name: &str, into: &Path) -> PathBuf {
    let archive = golden_file(&format!("{name}.tar.gz"));
    let status = Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(into)
        .status()
        .unwrap();
    assert!(status.success(), "unpacking {}", archive.display());
    into.join("store")
}

pub fn golden_file(name: &str) -> PathBuf {
    let path = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/store"
    ))
    .join(name);
    assert!(path.exists(), "golden data is missing: {}", path.display());
    path
}

pub fn manifest(name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(golden_file(&format!("{name}.manifest.json"))).unwrap())
        .unwrap()
}

/// The sizes golden stores were made with.
pub fn golden_config(root: &Path) -> StoreConfig {
    let mut config = StoreConfig::new(root);
    config.mapped_file_size_commit_log = 65_536;
    config.mapped_file_size_consume_queue = 20_000;
    config.max_hash_slot_num = 100;
    config.max_index_num = 400;
    config.max_message_size = 65_536;
    // Whatever this machine's disk says.
    config.disk_space_clean_forcibly_ratio = 100;
    config.disk_space_warning_level_ratio = 100;
    config
}
