//! Keys of the broker itself (broker spec 17.1), with RocketMQ's names and defaults. `enablePropertyFilter` is on here:
//! SQL filters work unless they are switched off.

minimq_common::config! {
    /// The broker's own keys.
    pub struct BrokerKeys {
        /// Installation directory; required.
        rocketmq_home: Option<String> = None, "rocketmqHome", ignored("nothing is read from an installation directory");
        /// Name servers, `;`-separated.
        namesrv_addr: Option<String> = None, "namesrvAddr", important;
        /// Address given to clients and name servers, and stored as store host.
        broker_ip1: Option<String> = None, "brokerIP1", important;
        /// Address slaves use for HA.
        broker_ip2: Option<String> = None, "brokerIP2";
        /// Master and slaves share it.
        broker_name: String = super::default_broker_name(), "brokerName", important;
        /// Cluster it belongs to.
        broker_cluster_name: String = "DefaultCluster".into(), "brokerClusterName", important;
        /// 0 master, > 0 slave.
        broker_id: i64 = 0, "brokerId", important, range(0..=i64::MAX);
        /// Broker permission.
        broker_permission: i32 = 6, "brokerPermission", mutable, range(0..=15);
        /// Queues of TBW102, upper bound for auto-created topics.
        default_topic_queue_nums: i64 = 8, "defaultTopicQueueNums", mutable, range(1..=1024);
        /// TBW102 exists and creates topics.
        auto_create_topic_enable: bool = true, "autoCreateTopicEnable", mutable, important;
        /// Cluster topic readable and writable.
        cluster_topic_enable: bool = true, "clusterTopicEnable";
        /// Broker topic readable and writable.
        broker_topic_enable: bool = true, "brokerTopicEnable";
        /// Auto create subscription group.
        auto_create_subscription_group: bool = true, "autoCreateSubscriptionGroup", mutable, important;
        /// Class names wrapped around the store.
        message_store_plug_in: String = String::new(), "messageStorePlugIn", ignored("the store has no plug-ins");
        /// Trace topic.
        msg_trace_topic_name: String = "RMQ_SYS_TRACE_TOPIC".into(), "msgTraceTopicName", important;
        /// Create it.
        trace_topic_enable: bool = false, "traceTopicEnable", important;
        /// Send message thread pool nums.
        send_message_thread_pool_nums: i64 = 0, "sendMessageThreadPoolNums", ignored("requests run on their connection's task; there are no thread pools");
        /// Put message future thread pool nums.
        put_message_future_thread_pool_nums: i64 = 0, "putMessageFutureThreadPoolNums", ignored("requests run on their connection's task; there are no thread pools");
        /// Pull message thread pool nums.
        pull_message_thread_pool_nums: i64 = 0, "pullMessageThreadPoolNums", ignored("requests run on their connection's task; there are no thread pools");
        /// Process reply message thread pool nums.
        process_reply_message_thread_pool_nums: i64 = 0, "processReplyMessageThreadPoolNums", ignored("requests run on their connection's task; there are no thread pools");
        /// Query message thread pool nums.
        query_message_thread_pool_nums: i64 = 0, "queryMessageThreadPoolNums", ignored("requests run on their connection's task; there are no thread pools");
        /// Admin broker thread pool nums.
        admin_broker_thread_pool_nums: i64 = 16, "adminBrokerThreadPoolNums", ignored("requests run on their connection's task; there are no thread pools");
        /// Client manage thread pool nums.
        client_manage_thread_pool_nums: i64 = 32, "clientManageThreadPoolNums", ignored("requests run on their connection's task; there are no thread pools");
        /// Consumer manage thread pool nums.
        consumer_manage_thread_pool_nums: i64 = 32, "consumerManageThreadPoolNums", ignored("requests run on their connection's task; there are no thread pools");
        /// Heartbeat thread pool nums.
        heartbeat_thread_pool_nums: i64 = 0, "heartbeatThreadPoolNums", ignored("requests run on their connection's task; there are no thread pools");
        /// End transaction thread pool nums.
        end_transaction_thread_pool_nums: i64 = 0, "endTransactionThreadPoolNums", ignored("requests run on their connection's task; there are no thread pools");
        /// Offset persistence period.
        flush_consumer_offset_interval: i64 = 5000, "flushConsumerOffsetInterval", mutable;
        /// Flush consumer offset history interval.
        flush_consumer_offset_history_interval: i64 = 60_000, "flushConsumerOffsetHistoryInterval", ignored("without effect in RocketMQ 4.9.8 too");
        /// Refuse half messages.
        reject_transaction_message: bool = false, "rejectTransactionMessage", mutable, important;
        /// Fetch namesrv addr by address server.
        fetch_namesrv_addr_by_address_server: bool = false, "fetchNamesrvAddrByAddressServer", important, ignored("name servers are named by namesrvAddr, -n or NAMESRV_ADDR");
        /// Full → `OVERLOAD`.
        send_thread_pool_queue_capacity: i64 = 10_000, "sendThreadPoolQueueCapacity", ignored("there is no queue between a connection and its handler");
        /// Put thread pool queue capacity.
        put_thread_pool_queue_capacity: i64 = 10_000, "putThreadPoolQueueCapacity", ignored("there is no queue between a connection and its handler");
        /// Pull thread pool queue capacity.
        pull_thread_pool_queue_capacity: i64 = 100_000, "pullThreadPoolQueueCapacity", ignored("there is no queue between a connection and its handler");
        /// Reply thread pool queue capacity.
        reply_thread_pool_queue_capacity: i64 = 10_000, "replyThreadPoolQueueCapacity", ignored("there is no queue between a connection and its handler");
        /// Query thread pool queue capacity.
        query_thread_pool_queue_capacity: i64 = 20_000, "queryThreadPoolQueueCapacity", ignored("there is no queue between a connection and its handler");
        /// Client manager thread pool queue capacity.
        client_manager_thread_pool_queue_capacity: i64 = 1_000_000, "clientManagerThreadPoolQueueCapacity", ignored("there is no queue between a connection and its handler");
        /// That pool's queue is unbounded.
        consumer_manager_thread_pool_queue_capacity: i64 = 1_000_000, "consumerManagerThreadPoolQueueCapacity", ignored("there is no queue between a connection and its handler");
        /// Heartbeat thread pool queue capacity.
        heartbeat_thread_pool_queue_capacity: i64 = 50_000, "heartbeatThreadPoolQueueCapacity", ignored("there is no queue between a connection and its handler");
        /// End transaction pool queue capacity.
        end_transaction_pool_queue_capacity: i64 = 100_000, "endTransactionPoolQueueCapacity", ignored("there is no queue between a connection and its handler");
        /// .0: filter servers to keep running.
        filter_server_nums: i64 = 0, "filterServerNums", ignored("this broker starts no process; start mqfiltersrv beside it");
        /// Long polling enable.
        long_polling_enable: bool = true, "longPollingEnable", mutable;
        /// Short polling time mills.
        short_polling_time_mills: i64 = 1000, "shortPollingTimeMills", mutable;
        /// Notify consumer ids changed enable.
        notify_consumer_ids_changed_enable: bool = true, "notifyConsumerIdsChangedEnable", mutable;
        /// High speed mode.
        high_speed_mode: bool = false, "highSpeedMode", ignored("without effect in RocketMQ 4.9.8 too");
        /// Commercial enable.
        commercial_enable: bool = true, "commercialEnable", ignored("without effect in RocketMQ 4.9.8 too");
        /// Commercial timer count.
        commercial_timer_count: i64 = 1, "commercialTimerCount", ignored("without effect in RocketMQ 4.9.8 too");
        /// Commercial trans count.
        commercial_trans_count: i64 = 1, "commercialTransCount", ignored("without effect in RocketMQ 4.9.8 too");
        /// Commercial big count.
        commercial_big_count: i64 = 1, "commercialBigCount", ignored("without effect in RocketMQ 4.9.8 too");
        /// Factor in hook figures.
        commercial_base_count: i64 = 1, "commercialBaseCount", ignored("without effect in RocketMQ 4.9.8 too");
        /// Copy pulled messages instead of sending from files.
        transfer_msg_by_heap: bool = true, "transferMsgByHeap", ignored("pulled messages always leave without a copy");
        /// Max delay time.
        max_delay_time: i64 = 40, "maxDelayTime", ignored("without effect in RocketMQ 4.9.8 too");
        /// `MSG_REGION`.
        region_id: String = "DefaultRegion".into(), "regionId";
        /// Register broker timeout mills.
        register_broker_timeout_mills: i64 = 6000, "registerBrokerTimeoutMills", mutable;
        /// Advise slaves when consumption lags.
        slave_read_enable: bool = false, "slaveReadEnable", mutable;
        /// Disable consume if consumer read slowly.
        disable_consume_if_consumer_read_slowly: bool = false, "disableConsumeIfConsumerReadSlowly", ignored("a slow consumer costs the others nothing here");
        /// bytes.
        consumer_fallbehind_threshold: i64 = 17_179_869_184, "consumerFallbehindThreshold", ignored("a slow consumer costs the others nothing here");
        /// Broker fast failure enable.
        broker_fast_failure_enable: bool = true, "brokerFastFailureEnable", ignored("there is no queue between a connection and its handler");
        /// Wait time mills in send queue.
        wait_time_mills_in_send_queue: i64 = 200, "waitTimeMillsInSendQueue", ignored("there is no queue between a connection and its handler");
        /// Wait time mills in pull queue.
        wait_time_mills_in_pull_queue: i64 = 5000, "waitTimeMillsInPullQueue", ignored("there is no queue between a connection and its handler");
        /// Wait time mills in heartbeat queue.
        wait_time_mills_in_heartbeat_queue: i64 = 31_000, "waitTimeMillsInHeartbeatQueue", ignored("there is no queue between a connection and its handler");
        /// Wait time mills in transaction queue.
        wait_time_mills_in_transaction_queue: i64 = 3000, "waitTimeMillsInTransactionQueue", ignored("there is no queue between a connection and its handler");
        /// Sends refused before this time.
        start_accept_send_request_time_stamp: i64 = 0, "startAcceptSendRequestTimeStamp", mutable;
        /// `TRACE_ON`.
        trace_on: bool = true, "traceOn", mutable;
        /// Enable calc filter bit map.
        enable_calc_filter_bit_map: bool = false, "enableCalcFilterBitMap";
        /// Expect consumer num use filter.
        expect_consumer_num_use_filter: i64 = 32, "expectConsumerNumUseFilter", range(1..=1_000_000);
        /// 1–99.
        max_error_rate_of_bloom_filter: i32 = 20, "maxErrorRateOfBloomFilter", range(1..=99);
        /// Filter data clean time span.
        filter_data_clean_time_span: i64 = 86_400_000, "filterDataCleanTimeSpan", mutable;
        /// SQL filter also on retry topics.
        filter_support_retry: bool = false, "filterSupportRetry", mutable;
        /// Allow SQL92.
        enable_property_filter: bool = true, "enablePropertyFilter", mutable;
        /// Compressed register.
        compressed_register: bool = false, "compressedRegister", mutable;
        /// Force register.
        force_register: bool = true, "forceRegister", mutable;
        /// Clamped 10000–60000.
        register_name_server_period: i64 = 30_000, "registerNameServerPeriod", mutable;
        /// Age before the first check.
        transaction_time_out: i64 = 6000, "transactionTimeOut", mutable, important;
        /// Checks before discarding.
        transaction_check_max: i64 = 15, "transactionCheckMax", mutable, important, range(1..=1000);
        /// Transaction check interval.
        transaction_check_interval: i64 = 60_000, "transactionCheckInterval", mutable, important;
        /// Section 14.
        acl_enable: bool = false, "aclEnable", important;
        /// Section 12.
        store_reply_message_enable: bool = true, "storeReplyMessageEnable", mutable;
        /// Per-queue statistics.
        enable_detail_stat: bool = true, "enableDetailStat", mutable;
        /// Drop statistics with topics and groups.
        auto_delete_unused_stats: bool = false, "autoDeleteUnusedStats", mutable;
        /// Per-broker log directory.
        isolate_log_enable: bool = false, "isolateLogEnable", ignored("see logPath");
        /// Config black list.
        config_black_list: String = "configBlackList;brokerConfigPath".into(), "configBlackList";
    }
}
