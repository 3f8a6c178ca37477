//! What the store's benches share: where they lie, what they send, queues that take everything.
#![allow(dead_code, unreachable_pub, reason = "each bench uses its part")]

use std::ops::Range;
use std::path::PathBuf;

use minimq_store::recovery::{Derived, RecordPlace};
use minimq_store::{
    AppendMessage, DispatchRecord, PhysicalOffset, QueueOffset, StoreConfig, StoreError,
};

pub const MIB: u64 = 1 << 20;
const TOPIC: &str = "BenchmarkTest";
const PROPERTIES: &str =
    "UNIQ_KEY\u{1}7F0000010C395FFD2B27955118E8010E\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA";

/// A folder under `MINIMQ_BENCH_DIR`, or the temporary one.
pub fn folder() -> tempfile::TempDir {
    match std::env::var_os("MINIMQ_BENCH_DIR") {
        Some(folder) => tempfile::tempdir_in(PathBuf::from(folder)).unwrap(),
        None => tempfile::tempdir().unwrap(),
    }
}

pub fn config(folder: &tempfile::TempDir, file_size: u64) -> StoreConfig {
    let mut config = StoreConfig::new(folder.path());
    config.mapped_file_size_commit_log = file_size;
    // Whatever this machine's disk says.
    config.disk_space_clean_forcibly_ratio = 100;
    config.disk_space_warning_level_ratio = 100;
    config
}

pub fn message(body: &[u8]) -> AppendMessage<'_> {
    AppendMessage {
        topic: TOPIC,
        queue_id: 3,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: "127.0.0.1:1234".parse().unwrap(),
        store_host: "127.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: PROPERTIES.as_bytes(),
        appended_properties: b"",
        joins_previous: false,
    }
}

/// Bytes of the record of a [`message`].
pub const fn record_len(body: usize) -> usize {
    91 + TOPIC.len() + PROPERTIES.len() + body
}

/// Queues that only count the records they are given.
#[derive(Default)]
pub struct Counting(u64);

impl Derived for Counting {
    fn largest_end(&self) -> PhysicalOffset {
        PhysicalOffset(0)
    }
    fn needed_from(&mut self, log_min: PhysicalOffset) -> PhysicalOffset {
        log_min
    }
    fn rewind(&mut self, _from: PhysicalOffset) -> Result<(), StoreError> {
        Ok(())
    }
    fn record_starts(&self, _: Range<PhysicalOffset>) -> Result<Vec<RecordPlace>, StoreError> {
        Ok(Vec::new())
    }
    fn accept(&mut self, record: &DispatchRecord<'_>) -> Result<(), StoreError> {
        self.0 += u64::from(record.tags_code != 0);
        Ok(())
    }
    fn truncate(&mut self, _end: PhysicalOffset) -> Result<(), StoreError> {
        Ok(())
    }
    fn next_offsets(&self, _visit: &mut dyn FnMut(&str, i32, QueueOffset)) {}
}
