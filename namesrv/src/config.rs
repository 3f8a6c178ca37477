//! The keys of the name server, with RocketMQ's names and defaults (name server spec 12). Which of them a request may
//! change is here too; how changes are made is `minimq_common::config`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use minimq_common::config::{ByteSize, Invalid, Section};
use minimq_common::logging::LogConfig;
use minimq_remoting::{Limits, ServerTls};

use crate::registry::Rules;

minimq_common::config! {
    /// All keys.
    pub struct NamesrvConfig {
        /// Port to listen on; 0 takes a free one.
        listen_port: u16 = 9876, "listenPort", important;
        /// Address to listen on.
        bind_address: String = "0.0.0.0".into(), "bindAddress", important;
        /// File of the KV configuration.
        kv_config_path: PathBuf = home().join("namesrv/kvConfig.json"), "kvConfigPath", important;
        /// File that keeps changes made at run time; the file of -c unless set.
        config_store_path: PathBuf = home().join("namesrv/namesrv.properties"), "configStorePath", important;
        /// Whether routes carry the order configuration of their topic.
        order_message_enable: bool = false, "orderMessageEnable", mutable, important;
        /// Whether brokers are told the order configurations when they register.
        return_order_topic_config_to_broker: bool = true, "returnOrderTopicConfigToBroker", mutable;
        /// Whether topics that a master no longer has go with its next changed registration.
        delete_topic_with_broker_registration: bool = false, "deleteTopicWithBrokerRegistration";
        /// Keys that requests may not change, separated by ; (besides the fixed ones).
        config_black_list: String = "configBlackList;configStorePath;kvConfigPath".into(), "configBlackList";
        /// Time between two looks for silent brokers, ms.
        scan_not_active_broker_interval: u64 = 10_000, "scanNotActiveBrokerInterval", range(10..=3_600_000);
        /// A broker that is silent for so long is taken out, ms.
        broker_inactive_time: u32 = 120_000, "brokerInactiveTime", range(100..=86_400_000);
        /// Whether old clients get routes in standard JSON too, which all known ones read.
        standard_json_for_all: bool = false, "standardJsonForAll", mutable;

        /// Whether requests that change something must be signed by an account of aclFile.
        acl_enable: bool = false, "aclEnable", important;
        /// Accounts, in the form of plain_acl.yml; created empty if it is missing.
        acl_file: PathBuf = "conf/plain_acl.yml".into(), "aclFile";
        /// Access keys that may register brokers without being admin accounts, separated by ;.
        broker_access_keys: String = String::new(), "brokerAccessKeys";

        /// Open connections; one more is closed as it comes.
        max_connections: usize = 10_000, "maxConnections", range(1..=1_000_000);
        /// Topics of all brokers together; a registration beyond that is refused.
        max_topics: usize = 1_000_000, "maxTopics", range(1..=100_000_000);
        /// Broker addresses; a registration beyond that is refused.
        max_brokers: usize = 10_000, "maxBrokers", range(1..=1_000_000);
        /// Filter servers of one broker.
        max_filter_servers: usize = 256, "maxFilterServers", range(0..=100_000);
        /// Names, keys and values of the KV configuration together.
        max_kv_config_size: ByteSize = ByteSize::mib(8), "maxKvConfigSize", range(ByteSize(1024)..=ByteSize(1 << 30));
        /// Large requests (registrations, lists, changes of files) at work at the same time.
        max_slow_requests: usize = 4, "maxSlowRequests", range(1..=256);
        /// Connections whose large requests wait for their turn; those of one more are answered "system busy".
        max_waiting_requests: usize = 512, "maxWaitingRequests", range(1..=100_000);
        /// A connection on which nothing is sent or received for so long is closed, seconds.
        server_channel_max_idle_time_seconds: u32 = 120, "serverChannelMaxIdleTimeSeconds", range(1..=86_400);
        /// Time that open requests have at the end, ms.
        shutdown_drain_time: u32 = 5_000, "shutdownDrainTime", range(0..=600_000);

        /// TLS on the port: disabled, permissive or enforcing.
        tls_mode: String = "permissive".into(), "tls.server.mode";
        /// A certificate made up at start; the files below are not used.
        tls_test_mode: bool = true, "tls.test.mode.enable";
        /// Whether clients show a certificate: none, optional or require.
        tls_client_auth: String = "none".into(), "tls.server.need.client.auth";
        /// Private key, PEM.
        tls_key: Option<PathBuf> = None, "tls.server.keyPath";
        /// Password of the private key.
        tls_key_password: Option<String> = None, "tls.server.keyPassword", secret;
        /// Certificate chain, PEM.
        tls_cert: Option<PathBuf> = None, "tls.server.certPath";
        /// Whether certificates of clients are checked.
        tls_auth_client: bool = false, "tls.server.authClient";
        /// Certificates that those of clients are checked against, PEM.
        tls_trust: Option<PathBuf> = None, "tls.server.trustCertPath";

        /// Installation directory.
        rocketmq_home: Option<PathBuf> = None, "rocketmqHome", ignored("nothing is read from an installation directory");
        /// Name of the environment that a test cluster falls back to.
        product_env_name: String = "center".into(), "productEnvName", ignored("there is no cluster-test mode");
        /// Answer unknown topics from the name servers of another environment.
        cluster_test: bool = false, "clusterTest", ignored("there is no cluster-test mode");
        /// Codec threads.
        server_worker_threads: i64 = 8, "serverWorkerThreads", ignored("requests run on their connection's task; there are no thread pools");
        /// Callback threads.
        server_callback_executor_threads: i64 = 0, "serverCallbackExecutorThreads", ignored("requests run on their connection's task; there are no thread pools");
        /// I/O threads.
        server_selector_threads: i64 = 3, "serverSelectorThreads", ignored("requests run on their connection's task; there are no thread pools");
        /// Outgoing one-way calls.
        server_oneway_semaphore_value: i64 = 256, "serverOnewaySemaphoreValue", ignored("the name server sends no requests");
        /// Outgoing calls.
        server_async_semaphore_value: i64 = 64, "serverAsyncSemaphoreValue", ignored("the name server sends no requests");
        /// Send buffer of a socket.
        server_socket_snd_buf_size: i64 = 0, "serverSocketSndBufSize", ignored("the kernel sizes socket buffers");
        /// Receive buffer of a socket.
        server_socket_rcv_buf_size: i64 = 0, "serverSocketRcvBufSize", ignored("the kernel sizes socket buffers");
        /// Bytes waiting at which writing pauses.
        write_buffer_high_water_mark: i64 = 0, "writeBufferHighWaterMark", ignored("the transport has limits of its own");
        /// Bytes waiting at which writing goes on.
        write_buffer_low_water_mark: i64 = 0, "writeBufferLowWaterMark", ignored("the transport has limits of its own");
        /// Connections the kernel holds until they are accepted.
        server_socket_backlog: i64 = 1024, "serverSocketBacklog", ignored("it is 1024 always");
        /// Pooled buffers.
        server_pooled_byte_buf_allocator_enable: bool = true, "serverPooledByteBufAllocatorEnable", ignored("buffers are pooled always");
        /// Native selector.
        use_epoll_native_selector: bool = false, "useEpollNativeSelector", ignored("epoll is used always");
    }
    with {
        /// Where log lines go.
        logging: LogConfig,
    }
}

/// Keys that decide which files are read and written, who may do what, or which of those keys are closed: no request
/// changes them, whatever `configBlackList` says. The first four are the original's, since CVE-2023-37582.
const FORBIDDEN: &[&str] = &[
    "configBlackList",
    "configStorePath",
    "kvConfigPath",
    "rocketmqHome",
    "aclEnable",
    "aclFile",
    "brokerAccessKeys",
    "logDir",
];

/// Whether no request may change this key (name server spec 10.3).
pub fn is_forbidden(key: &str, config: &NamesrvConfig) -> bool {
    let mut listed = config.config_black_list.split(';').map(str::trim);
    FORBIDDEN.contains(&key) || key.starts_with("tls.") || listed.any(|name| name == key)
}

fn home() -> PathBuf {
    std::env::home_dir().unwrap_or_else(|| PathBuf::from("."))
}

impl NamesrvConfig {
    /// Rules over several keys, for [`Config::load_with`](minimq_common::config::Config::load_with).
    ///
    /// # Errors
    /// A `bindAddress` that is no IP address, or a word that a `tls.` key does not take.
    pub fn finish(config: &mut Self) -> Result<(), Invalid> {
        config.bind_ip()?;
        let modes = ["disabled", "permissive", "enforcing"];
        if !modes.contains(&config.tls_mode.as_str()) {
            return Err(Invalid::new("tls.server.mode", modes.join(" or ")));
        }
        let auths = ["none", "optional", "require"];
        if !auths.contains(&config.tls_client_auth.as_str()) {
            return Err(Invalid::new(
                "tls.server.need.client.auth",
                auths.join(" or "),
            ));
        }
        Ok(())
    }

    /// Where to listen.
    ///
    /// # Errors
    /// `bindAddress` is no IP address.
    pub fn listen_addr(&self) -> Result<SocketAddr, Invalid> {
        Ok(SocketAddr::new(self.bind_ip()?, self.listen_port))
    }

    fn bind_ip(&self) -> Result<IpAddr, Invalid> {
        let text = self.bind_address.trim();
        text.trim_matches(['[', ']'])
            .parse()
            .map_err(|_| Invalid::new("bindAddress", "an IP address, as 127.0.0.1 or ::"))
    }

    /// Limits of connections.
    pub fn limits(&self) -> Limits {
        Limits {
            connections: self.max_connections,
            idle: Duration::from_secs(self.server_channel_max_idle_time_seconds.into()),
            // A registration may take a frame; a peer's answers are small, or shared with those of others.
            outbox_bytes: 32 << 20,
            begun_bytes_all: 128 << 20,
            outbox_bytes_all: 256 << 20,
            ..Limits::default()
        }
    }

    /// What the registry allows.
    pub fn rules(&self) -> Rules {
        Rules {
            max_topics: self.max_topics,
            max_brokers: self.max_brokers,
            max_filter_servers: self.max_filter_servers,
            inactive_ms: self.broker_inactive_time.into(),
            mirror_deletions: self.delete_topic_with_broker_registration,
            ..Rules::default()
        }
    }

    /// The port's TLS.
    pub fn tls(&self) -> ServerTls {
        let mut values = std::collections::HashMap::new();
        self.show(&mut |key, value| {
            if let (true, Some(value)) = (key.name.starts_with("tls."), value) {
                values.insert(key.name, value);
            }
        });
        ServerTls::from_keys(|key| values.get(key).cloned())
    }

    /// The accounts that may register brokers.
    pub fn broker_accounts(&self) -> impl Iterator<Item = &str> {
        let keys = self.broker_access_keys.split(';').map(str::trim);
        keys.filter(|key| !key.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minimq_common::config::{Config, Sources, faults};

    fn load(sets: &[&str]) -> Result<Config<NamesrvConfig>, String> {
        let mut sources = Sources::default();
        for set in sets {
            sources.set(set).map_err(|error| error.to_string())?;
        }
        Config::load_with(
            &sources,
            NamesrvConfig::finish,
            minimq_common::clock::Clock::system(),
        )
        .map_err(|error| error.to_string())
    }

    #[test]
    fn the_declaration_has_no_faults() {
        assert_eq!(faults::<NamesrvConfig>(), Vec::<String>::new());
    }

    #[test]
    fn every_key_that_names_a_file_or_an_account_is_forbidden() {
        let config = NamesrvConfig::default();
        let mut open = Vec::new();
        config.show(&mut |key, _| {
            let touchy = [
                "Path",
                "File",
                "Dir",
                "acl",
                "AccessKey",
                "Home",
                "tls.",
                "BlackList",
            ];
            if touchy.iter().any(|part| key.name.contains(part))
                && key.name != "logMaxFiles"
                && key.name != "logMaxFileSize"
                && !is_forbidden(key.name, &config)
            {
                open.push(key.name);
            }
        });
        assert_eq!(open, Vec::<&str>::new());
        assert!(!is_forbidden("orderMessageEnable", &config));
    }

    #[test]
    fn the_black_list_adds_to_the_fixed_keys_and_takes_none_away() {
        let config = load(&["configBlackList=orderMessageEnable; standardJsonForAll"]).unwrap();
        let config = config.get();
        for key in [
            "orderMessageEnable",
            "standardJsonForAll",
            "kvConfigPath",
            "configBlackList",
        ] {
            assert!(is_forbidden(key, &config), "{key}");
        }
        assert!(!is_forbidden("returnOrderTopicConfigToBroker", &config));
    }

    #[test]
    fn wrong_addresses_and_words_are_refused_by_name() {
        for (set, key) in [
            ("bindAddress=nowhere", "bindAddress"),
            ("tls.server.mode=off", "tls.server.mode"),
            (
                "tls.server.need.client.auth=yes",
                "tls.server.need.client.auth",
            ),
            ("listenPort=70000", "listenPort"),
        ] {
            let error = load(&[set]).unwrap_err();
            assert!(error.contains(key), "{error}");
        }
        let config = load(&["bindAddress=[::1]", "listenPort=1"]).unwrap();
        assert_eq!(
            config.get().listen_addr().unwrap(),
            "[::1]:1".parse().unwrap()
        );
    }
}
