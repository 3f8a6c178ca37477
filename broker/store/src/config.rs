//! Every setting of the store with its RocketMQ key and default (store spec, appendix A). Reading files and command
//! lines is the broker's affair; here are only values.

use std::path::PathBuf;

use crate::error::StoreError;

const MIB: u64 = 1 << 20;

/// `flushDiskType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushDiskType {
    /// A message is acknowledged when it is in the page cache.
    #[default]
    AsyncFlush,
    /// A message is acknowledged when it is on the disk.
    SyncFlush,
}

/// `brokerRole`, as far as the store cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreRole {
    /// Takes messages from producers.
    #[default]
    Master,
    /// Takes log bytes from a master; refuses messages.
    Slave,
}

/// Settings of one store. `StoreConfig::new(root)` has the defaults.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// `storePathRootDir`.
    pub store_path_root_dir: PathBuf,
    /// `storePathCommitLog`, split at its commas: folders over which the files of the log are spread. Empty: `commitlog`
    /// under the root.
    pub store_path_commit_log: Vec<PathBuf>,
    /// `readOnlyCommitLogStorePaths`, split: folders that are read but get no new files.
    pub read_only_commit_log_store_paths: Vec<PathBuf>,
    /// `mappedFileSizeCommitLog`, bytes.
    pub mapped_file_size_commit_log: u64,
    /// `mappedFileSizeConsumeQueue`, bytes; rounded up to a multiple of 20 by [`StoreConfig::consume_queue_file_size`].
    pub mapped_file_size_consume_queue: u64,
    /// `enableConsumeQueueExt`.
    pub enable_consume_queue_ext: bool,
    /// `mappedFileSizeConsumeQueueExt`, bytes.
    pub mapped_file_size_consume_queue_ext: u64,
    /// `maxMessageSize`: longest body, bytes. May change at run time, see `Store::reconfigure`.
    pub max_message_size: usize,
    /// `flushDiskType`.
    pub flush_disk_type: FlushDiskType,
    /// `brokerRole`.
    pub role: StoreRole,
    /// `flushIntervalCommitLog`, ms.
    pub flush_interval_commit_log_ms: u64,
    /// `flushCommitLogTimed`: flush every interval; `false`: appends may wake the flush thread earlier.
    pub flush_commit_log_timed: bool,
    /// `flushCommitLogLeastPages`: fewer dirty 4 KiB pages than this wait for a later round.
    pub flush_commit_log_least_pages: u64,
    /// `flushCommitLogThoroughInterval`, ms: after this long everything is flushed, however little.
    pub flush_commit_log_thorough_interval_ms: u64,
    /// `flushIntervalConsumeQueue`, ms.
    pub flush_interval_consume_queue_ms: u64,
    /// `flushConsumeQueueLeastPages`.
    pub flush_consume_queue_least_pages: u64,
    /// `flushConsumeQueueThoroughInterval`, ms.
    pub flush_consume_queue_thorough_interval_ms: u64,
    /// `syncFlushTimeout`, ms: when a waiter of a flush hears that it is still running.
    pub sync_flush_timeout_ms: u64,
    /// How long an append may wait for the next file before it is refused, ms (RocketMQ: fixed 5000).
    pub next_file_timeout_ms: u64,
    /// `checkCRCOnRecover`.
    pub check_crc_on_recover: bool,
    /// `cleanResourceInterval`, ms.
    pub clean_resource_interval_ms: u64,
    /// `deleteCommitLogFilesInterval`, ms.
    pub delete_commit_log_files_interval_ms: u64,
    /// `deleteConsumeQueueFilesInterval`, ms.
    pub delete_consume_queue_files_interval_ms: u64,
    /// `deleteWhen`: local hours, split at their semicolons.
    pub delete_when: Vec<u8>,
    /// `diskMaxUsedSpaceRatio`, percent: above, expired files are deleted at any hour.
    pub disk_max_used_space_ratio: u8,
    /// `rocketmq.broker.diskSpaceCleanForciblyRatio`, percent: above, age does not count.
    pub disk_space_clean_forcibly_ratio: u8,
    /// `rocketmq.broker.diskSpaceWarningLevelRatio`, percent: above, messages are refused.
    pub disk_space_warning_level_ratio: u8,
    /// `fileReservedTime`, hours.
    pub file_reserved_time_hours: u64,
    /// `cleanFileForciblyEnable`.
    pub clean_file_forcibly_enable: bool,
    /// `maxTransferBytesOnMessageInMemory`.
    pub max_transfer_bytes_on_message_in_memory: usize,
    /// `maxTransferCountOnMessageInMemory`.
    pub max_transfer_count_on_message_in_memory: usize,
    /// `maxTransferBytesOnMessageInDisk`.
    pub max_transfer_bytes_on_message_in_disk: usize,
    /// `maxTransferCountOnMessageInDisk`.
    pub max_transfer_count_on_message_in_disk: usize,
    /// `accessMessageInMemoryMaxRatio`, percent of the machine's memory.
    pub access_message_in_memory_max_ratio: u8,
    /// `messageIndexEnable`.
    pub message_index_enable: bool,
    /// `messageIndexSafe`.
    pub message_index_safe: bool,
    /// `maxHashSlotNum`.
    pub max_hash_slot_num: u32,
    /// `maxIndexNum`.
    pub max_index_num: u32,
    /// `maxMsgsNumBatch`: most results of a query by key.
    pub max_msgs_num_batch: usize,
    /// `defaultQueryMaxNum`: most results of a query by unique key.
    pub default_query_max_num: usize,
    /// `messageDelayLevel`.
    pub message_delay_level: String,
    /// `offsetCheckInSlave`.
    pub offset_check_in_slave: bool,
    /// `enableMultiDispatch`.
    pub enable_multi_dispatch: bool,
    /// `enableLmq`.
    pub enable_lmq: bool,
    /// `maxLmqConsumeQueueNum`.
    pub max_lmq_consume_queue_num: usize,
    /// Bytes behind the append position that are served from the mapping; older ones are read from the file, and their
    /// pages leave the process (page cache keeps them as it sees fit).
    pub hot_window_bytes: u64,
    /// Bytes of pages made ready ahead of the append position when there is little to do.
    pub populate_idle_bytes: u64,
    /// Bytes of pages made ready ahead of the append position under load.
    pub populate_load_bytes: u64,
}

impl StoreConfig {
    /// RocketMQ's defaults, with everything below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            store_path_root_dir: root.into(),
            store_path_commit_log: Vec::new(),
            read_only_commit_log_store_paths: Vec::new(),
            mapped_file_size_commit_log: 1 << 30,
            mapped_file_size_consume_queue: 6_000_000,
            enable_consume_queue_ext: false,
            mapped_file_size_consume_queue_ext: 48 * MIB,
            max_message_size: 4 << 20,
            flush_disk_type: FlushDiskType::AsyncFlush,
            role: StoreRole::Master,
            flush_interval_commit_log_ms: 500,
            flush_commit_log_timed: true,
            flush_commit_log_least_pages: 4,
            flush_commit_log_thorough_interval_ms: 10_000,
            flush_interval_consume_queue_ms: 1_000,
            flush_consume_queue_least_pages: 2,
            flush_consume_queue_thorough_interval_ms: 60_000,
            sync_flush_timeout_ms: 5_000,
            next_file_timeout_ms: 5_000,
            check_crc_on_recover: true,
            clean_resource_interval_ms: 10_000,
            delete_commit_log_files_interval_ms: 100,
            delete_consume_queue_files_interval_ms: 100,
            delete_when: vec![4],
            disk_max_used_space_ratio: 75,
            disk_space_clean_forcibly_ratio: 85,
            disk_space_warning_level_ratio: 90,
            file_reserved_time_hours: 72,
            clean_file_forcibly_enable: true,
            max_transfer_bytes_on_message_in_memory: 262_144,
            max_transfer_count_on_message_in_memory: 32,
            max_transfer_bytes_on_message_in_disk: 65_536,
            max_transfer_count_on_message_in_disk: 8,
            access_message_in_memory_max_ratio: 40,
            message_index_enable: true,
            message_index_safe: false,
            max_hash_slot_num: 5_000_000,
            max_index_num: 20_000_000,
            max_msgs_num_batch: 64,
            default_query_max_num: 32,
            message_delay_level: "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
                .into(),
            offset_check_in_slave: false,
            enable_multi_dispatch: false,
            enable_lmq: false,
            max_lmq_consume_queue_num: 20_000,
            hot_window_bytes: 64 * MIB,
            populate_idle_bytes: 4 * MIB,
            populate_load_bytes: 64 * MIB,
        }
    }

    /// Folders that get commit-log files: `storePathCommitLog`, or `commitlog` under the root.
    #[must_use]
    pub fn commit_log_paths(&self) -> Vec<PathBuf> {
        if self.store_path_commit_log.is_empty() {
            vec![self.store_path_root_dir.join("commitlog")]
        } else {
            self.store_path_commit_log.clone()
        }
    }

    /// `mappedFileSizeConsumeQueue` rounded up to whole entries of 20 bytes.
    #[must_use]
    pub fn consume_queue_file_size(&self) -> u64 {
        self.mapped_file_size_consume_queue.div_ceil(20) * 20
    }

    /// Refuses settings with which the store cannot work.
    ///
    /// # Errors
    /// [`StoreError::Config`] with key, value and reason.
    pub fn check(&self) -> Result<(), StoreError> {
        let refuse = |key, value: String, reason: &str| {
            Err(StoreError::Config {
                key,
                value,
                reason: reason.into(),
            })
        };
        let size = self.mapped_file_size_commit_log;
        if !(512..=i32::MAX as u64).contains(&size) {
            return refuse(
                "mappedFileSizeCommitLog",
                size.to_string(),
                "must be between 512 and 2147483647 bytes",
            );
        }
        let size = self.consume_queue_file_size();
        if !(20..=i32::MAX as u64).contains(&size) {
            return refuse(
                "mappedFileSizeConsumeQueue",
                size.to_string(),
                "must be between 20 and 2147483647 bytes",
            );
        }
        let size = self.mapped_file_size_consume_queue_ext;
        if self.enable_consume_queue_ext && !(32_772..=i32::MAX as u64).contains(&size) {
            let reason = "must hold the longest unit, 32768 bytes, and an end mark of 4";
            return refuse("mappedFileSizeConsumeQueueExt", size.to_string(), reason);
        }
        if self.message_index_enable && (self.max_hash_slot_num == 0 || self.max_index_num < 2) {
            let value = format!("{} / {}", self.max_hash_slot_num, self.max_index_num);
            return refuse(
                "maxHashSlotNum / maxIndexNum",
                value,
                "an index file needs a slot and two entries",
            );
        }
        if self.max_message_size == 0 || self.max_message_size > (1 << 30) {
            return refuse(
                "maxMessageSize",
                self.max_message_size.to_string(),
                "must be between 1 byte and 1 GiB",
            );
        }
        Ok(())
    }
}
