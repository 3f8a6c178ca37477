//! Keys of the store (broker spec 17.2, store spec appendix A).

use std::path::PathBuf;

use super::{BrokerRole, FlushDiskType};

minimq_common::config! {
    /// The store's keys.
    pub struct StoreKeys {
        /// Store path root dir.
        store_path_root_dir: PathBuf = super::default_store_path(), "storePathRootDir", important;
        /// Several, separated by `,` (system property `rocketmq.broker.multiPathSplitter`).
        store_path_commit_log: String = String::new(), "storePathCommitLog", important, derived(|c| c.store_path_root_dir.join("commitlog").display().to_string());
        /// Store path d ledger commit log.
        store_path_dledger_commit_log: Option<String> = None, "storePathDLedgerCommitLog", important, ignored("there is no DLedger mode");
        /// Extra commit-log paths, read only.
        read_only_commit_log_store_paths: Option<String> = None, "readOnlyCommitLogStorePaths";
        /// Mapped file size commit log.
        mapped_file_size_commit_log: i64 = 1_073_741_824, "mappedFileSizeCommitLog", alias("mapedFileSizeCommitLog");
        /// Bytes; rounded up to a multiple of 20.
        mapped_file_size_consume_queue: i64 = 6_000_000, "mappedFileSizeConsumeQueue", alias("mapedFileSizeConsumeQueue");
        /// Index extension.
        enable_consume_queue_ext: bool = false, "enableConsumeQueueExt";
        /// Mapped file size consume queue ext.
        mapped_file_size_consume_queue_ext: i64 = 50_331_648, "mappedFileSizeConsumeQueueExt";
        /// Overwritten by.
        bit_map_length_consume_queue_ext: i64 = 64, "bitMapLengthConsumeQueueExt", ignored("follows from the filter keys, as in RocketMQ");
        /// Async flush period.
        flush_interval_commit_log: i64 = 500, "flushIntervalCommitLog", mutable, important;
        /// Transient pool.
        commit_interval_commit_log: i64 = 200, "commitIntervalCommitLog", important, ignored("appends write the mapped file directly; there is no off-heap pool");
        /// Else spin lock.
        use_reentrant_lock_when_put_message: bool = true, "useReentrantLockWhenPutMessage", ignored("the append lock is of one kind");
        /// Fixed period instead of wake-up.
        flush_commit_log_timed: bool = true, "flushCommitLogTimed", mutable, important;
        /// Flush interval consume queue.
        flush_interval_consume_queue: i64 = 1000, "flushIntervalConsumeQueue", mutable;
        /// Clean resource interval.
        clean_resource_interval: i64 = 10_000, "cleanResourceInterval", mutable;
        /// Pause between deletions.
        delete_commit_log_files_interval: i64 = 100, "deleteCommitLogFilesInterval", mutable;
        /// Delete consume queue files interval.
        delete_consume_queue_files_interval: i64 = 100, "deleteConsumeQueueFilesInterval", mutable;
        /// Wait before dropping a file still in use.
        destroy_maped_file_interval_forcibly: i64 = 120_000, "destroyMapedFileIntervalForcibly", ignored("a deleted file's pages live until the last reader is done");
        /// Redelete hanged file interval.
        redelete_hanged_file_interval: i64 = 120_000, "redeleteHangedFileInterval", ignored("a deleted file's pages live until the last reader is done");
        /// Hours, `;`-separated.
        delete_when: super::Hours = super::Hours::default(), "deleteWhen", mutable, important;
        /// 10–95.
        disk_max_used_space_ratio: i32 = 75, "diskMaxUsedSpaceRatio", mutable, range(10..=95);
        /// Hours; also limits half messages.
        file_reserved_time: i64 = 72, "fileReservedTime", mutable, important, range(0..=1_000_000);
        /// Put msg index hight water.
        put_msg_index_hight_water: i64 = 600_000, "putMsgIndexHightWater", ignored("without effect in RocketMQ 4.9.8 too");
        /// Body limit.
        max_message_size: i64 = 4_194_304, "maxMessageSize", mutable, range(1..=16_000_000);
        /// Check c r c on recover.
        check_crc_on_recover: bool = true, "checkCRCOnRecover";
        /// Flush commit log least pages.
        flush_commit_log_least_pages: i64 = 4, "flushCommitLogLeastPages", mutable;
        /// Commit commit log least pages.
        commit_commit_log_least_pages: i64 = 4, "commitCommitLogLeastPages", ignored("appends write the mapped file directly; there is no off-heap pool");
        /// Flush least pages when warm maped file.
        flush_least_pages_when_warm_maped_file: i64 = 4096, "flushLeastPagesWhenWarmMapedFile", ignored("files are always populated ahead of the append position");
        /// Flush consume queue least pages.
        flush_consume_queue_least_pages: i64 = 2, "flushConsumeQueueLeastPages", mutable;
        /// Flush commit log thorough interval.
        flush_commit_log_thorough_interval: i64 = 10_000, "flushCommitLogThoroughInterval", mutable;
        /// Commit commit log thorough interval.
        commit_commit_log_thorough_interval: i64 = 200, "commitCommitLogThoroughInterval", ignored("appends write the mapped file directly; there is no off-heap pool");
        /// Flush consume queue thorough interval.
        flush_consume_queue_thorough_interval: i64 = 60_000, "flushConsumeQueueThoroughInterval", mutable;
        /// Max transfer bytes on message in memory.
        max_transfer_bytes_on_message_in_memory: i64 = 262_144, "maxTransferBytesOnMessageInMemory", mutable, important;
        /// Max transfer count on message in memory.
        max_transfer_count_on_message_in_memory: i64 = 32, "maxTransferCountOnMessageInMemory", mutable, important;
        /// Max transfer bytes on message in disk.
        max_transfer_bytes_on_message_in_disk: i64 = 65_536, "maxTransferBytesOnMessageInDisk", mutable, important;
        /// Max transfer count on message in disk.
        max_transfer_count_on_message_in_disk: i64 = 8, "maxTransferCountOnMessageInDisk", mutable, important;
        /// Percent of physical memory counted as cached.
        access_message_in_memory_max_ratio: i32 = 40, "accessMessageInMemoryMaxRatio", mutable, important, range(0..=95);
        /// Key queries work.
        message_index_enable: bool = true, "messageIndexEnable", important;
        /// Max hash slot num.
        max_hash_slot_num: i64 = 5_000_000, "maxHashSlotNum";
        /// Max index num.
        max_index_num: i64 = 20_000_000, "maxIndexNum";
        /// Messages per key query.
        max_msgs_num_batch: i64 = 64, "maxMsgsNumBatch", mutable;
        /// Recovery point includes the index.
        message_index_safe: bool = false, "messageIndexSafe", important;
        /// Always listenPort + 1.
        ha_listen_port: u16 = 10912, "haListenPort", ignored("always listenPort + 1; there is no slave replication yet");
        /// Ha send heartbeat interval.
        ha_send_heartbeat_interval: i64 = 5000, "haSendHeartbeatInterval", ignored("there is no slave replication yet");
        /// Ha housekeeping interval.
        ha_housekeeping_interval: i64 = 20_000, "haHousekeepingInterval", ignored("there is no slave replication yet");
        /// Ha transfer batch size.
        ha_transfer_batch_size: i64 = 32_768, "haTransferBatchSize", ignored("there is no slave replication yet");
        /// Fixed HA master.
        ha_master_address: Option<String> = None, "haMasterAddress", important, ignored("there is no slave replication yet");
        /// Ha slave fallbehind max.
        ha_slave_fallbehind_max: i64 = 268_435_456, "haSlaveFallbehindMax", ignored("there is no slave replication yet");
        /// Or SYNC_MASTER, SLAVE.
        broker_role: BrokerRole = BrokerRole::AsyncMaster, "brokerRole", important;
        /// Or SYNC_FLUSH.
        flush_disk_type: FlushDiskType = FlushDiskType::AsyncFlush, "flushDiskType", important;
        /// Sync flush timeout.
        sync_flush_timeout: i64 = 5000, "syncFlushTimeout", mutable;
        /// Slave timeout.
        slave_timeout: i64 = 3000, "slaveTimeout", ignored("there is no slave replication yet");
        /// Section 9.
        message_delay_level: String = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".into(), "messageDelayLevel";
        /// Flush delay offset interval.
        flush_delay_offset_interval: i64 = 10_000, "flushDelayOffsetInterval", mutable;
        /// Clean file forcibly enable.
        clean_file_forcibly_enable: bool = true, "cleanFileForciblyEnable", mutable, important;
        /// Warm maped file enable.
        warm_maped_file_enable: bool = false, "warmMapedFileEnable", ignored("files are always populated ahead of the append position");
        /// Offset check in slave.
        offset_check_in_slave: bool = false, "offsetCheckInSlave", mutable;
        /// Write stacks when the put lock is held long.
        debug_lock_enable: bool = false, "debugLockEnable", ignored("the append lock is of one kind");
        /// Dispatch only confirmed data.
        duplication_enable: bool = false, "duplicationEnable", ignored("there is no slave replication yet");
        /// Needed for.
        disk_fall_recorded: bool = true, "diskFallRecorded", ignored("always recorded");
        /// Os page cache busy time out mills.
        os_page_cache_busy_time_out_mills: i64 = 1000, "osPageCacheBusyTimeOutMills", mutable;
        /// Default query max num.
        default_query_max_num: i64 = 32, "defaultQueryMaxNum", mutable;
        /// Only with ASYNC_FLUSH on a master.
        transient_store_pool_enable: bool = false, "transientStorePoolEnable", important, ignored("appends write the mapped file directly; there is no off-heap pool");
        /// Transient store pool size.
        transient_store_pool_size: i64 = 5, "transientStorePoolSize", ignored("appends write the mapped file directly; there is no off-heap pool");
        /// Fast fail if no buffer in store pool.
        fast_fail_if_no_buffer_in_store_pool: bool = false, "fastFailIfNoBufferInStorePool", ignored("appends write the mapped file directly; there is no off-heap pool");
        /// Spelling as shown.
        enable_dleger_commit_log: bool = false, "enableDLegerCommitLog", ignored("there is no DLedger mode");
        /// D leger group.
        dleger_group: Option<String> = None, "dLegerGroup", ignored("there is no DLedger mode");
        /// D leger peers.
        dleger_peers: Option<String> = None, "dLegerPeers", ignored("there is no DLedger mode");
        /// D leger self id.
        dleger_self_id: Option<String> = None, "dLegerSelfId", ignored("there is no DLedger mode");
        /// Preferred leader id.
        preferred_leader_id: Option<String> = None, "preferredLeaderId", ignored("there is no DLedger mode");
        /// DLedger; listed by GET_BROKER_CONFIG as isEnableBatchPush.
        enable_batch_push: bool = false, "enableBatchPush", ignored("there is no DLedger mode");
        /// Enable schedule message stats.
        enable_schedule_message_stats: bool = true, "enableScheduleMessageStats", mutable;
        /// Light queues.
        enable_lmq: bool = false, "enableLmq", ignored("there are no light queues");
        /// Enable multi dispatch.
        enable_multi_dispatch: bool = false, "enableMultiDispatch", ignored("there are no light queues");
        /// Max lmq consume queue num.
        max_lmq_consume_queue_num: i64 = 20_000, "maxLmqConsumeQueueNum", ignored("there are no light queues");
        /// Enable schedule async deliver.
        enable_schedule_async_deliver: bool = false, "enableScheduleAsyncDeliver", ignored("delayed messages are delivered in batches");
        /// Schedule async deliver max pending limit.
        schedule_async_deliver_max_pending_limit: i64 = 2000, "scheduleAsyncDeliverMaxPendingLimit", ignored("delayed messages are delivered in batches");
        /// Schedule async deliver max resend num2 blocked.
        schedule_async_deliver_max_resend_num2_blocked: i64 = 3, "scheduleAsyncDeliverMaxResendNum2Blocked", ignored("delayed messages are delivered in batches");
    }
}
