//! Keys of the sockets (broker spec 17.3, 17.4).

minimq_common::config! {
    /// The sockets' keys.
    pub struct ServerKeys {
        /// Main port; fast port is −2, HA port +1.
        listen_port: u16 = 10911, "listenPort";
        /// Codec threads.
        server_worker_threads: i64 = 8, "serverWorkerThreads", ignored("requests run on their connection's task; there are no thread pools");
        /// 0 → 4.
        server_callback_executor_threads: i64 = 0, "serverCallbackExecutorThreads", ignored("requests run on their connection's task; there are no thread pools");
        /// Server selector threads.
        server_selector_threads: i64 = 3, "serverSelectorThreads", ignored("requests run on their connection's task; there are no thread pools");
        /// Concurrent one-way calls to clients.
        server_oneway_semaphore_value: i64 = 256, "serverOnewaySemaphoreValue", ignored("the transport has its own limits");
        /// Concurrent async calls to clients.
        server_async_semaphore_value: i64 = 64, "serverAsyncSemaphoreValue", ignored("the transport has its own limits");
        /// Server channel max idle time seconds.
        server_channel_max_idle_time_seconds: i64 = 120, "serverChannelMaxIdleTimeSeconds";
        /// 0 = leave to the system.
        server_socket_snd_buf_size: i64 = 0, "serverSocketSndBufSize", ignored("the transport has its own limits");
        /// 0 = leave to the system.
        server_socket_rcv_buf_size: i64 = 0, "serverSocketRcvBufSize", ignored("the transport has its own limits");
        /// 0 = library default.
        write_buffer_high_water_mark: i64 = 0, "writeBufferHighWaterMark", ignored("the transport has its own limits");
        /// 0 = library default.
        write_buffer_low_water_mark: i64 = 0, "writeBufferLowWaterMark", ignored("the transport has its own limits");
        /// Server socket backlog.
        server_socket_backlog: i64 = 1024, "serverSocketBacklog", ignored("the transport has its own limits");
        /// Server pooled byte buf allocator enable.
        server_pooled_byte_buf_allocator_enable: bool = true, "serverPooledByteBufAllocatorEnable", ignored("the transport has its own limits");
        /// Use epoll native selector.
        use_epoll_native_selector: bool = false, "useEpollNativeSelector", ignored("the transport has its own limits");
        /// Client worker threads.
        client_worker_threads: i64 = 4, "clientWorkerThreads", ignored("requests run on their connection's task; there are no thread pools");
        /// Client callback executor threads.
        client_callback_executor_threads: i64 = 0, "clientCallbackExecutorThreads", ignored("requests run on their connection's task; there are no thread pools");
        /// Client oneway semaphore value.
        client_oneway_semaphore_value: i64 = 65_535, "clientOnewaySemaphoreValue", ignored("the transport has its own limits");
        /// Client async semaphore value.
        client_async_semaphore_value: i64 = 65_535, "clientAsyncSemaphoreValue", ignored("the transport has its own limits");
        /// Connect timeout millis.
        connect_timeout_millis: i64 = 3000, "connectTimeoutMillis", ignored("the transport has its own limits");
        /// Channel not active interval.
        channel_not_active_interval: i64 = 60_000, "channelNotActiveInterval", ignored("without effect in RocketMQ 4.9.8 too");
        /// Client channel max idle time seconds.
        client_channel_max_idle_time_seconds: i64 = 120, "clientChannelMaxIdleTimeSeconds", ignored("the transport has its own limits");
        /// Client socket snd buf size.
        client_socket_snd_buf_size: i64 = 0, "clientSocketSndBufSize", ignored("the transport has its own limits");
        /// Client socket rcv buf size.
        client_socket_rcv_buf_size: i64 = 0, "clientSocketRcvBufSize", ignored("the transport has its own limits");
        /// Client pooled byte buf allocator enable.
        client_pooled_byte_buf_allocator_enable: bool = false, "clientPooledByteBufAllocatorEnable", ignored("without effect in RocketMQ 4.9.8 too");
        /// Client close socket if timeout.
        client_close_socket_if_timeout: bool = true, "clientCloseSocketIfTimeout", ignored("the transport has its own limits");
        /// Use t l s.
        use_tls: bool = false, "useTLS", ignored("see tls.server.mode and tls.client keys");
    }
}
