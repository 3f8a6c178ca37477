//! The keys of the filter server: RocketMQ's names (filter server spec 2) and the limits of what uploaded filters may
//! use.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use minimq_common::acl::AclSettings;
use minimq_common::config::{ByteSize, Invalid, Section};
use minimq_common::logging::LogConfig;
use minimq_filter_engine::EngineConfig;
use minimq_remoting::{Limits, ServerTls};

minimq_common::config! {
    /// All keys.
    pub struct FiltersrvConfig {
        /// Name servers, host:port separated by ;. Only shown: the broker tells them of this filter server.
        namesrv_addr: Option<String> = None, "namesrvAddr", important;
        /// The broker whose messages are filtered, host:port.
        connect_which_broker: String = "127.0.0.1:10911".into(), "connectWhichBroker", important;
        /// Host that consumers are told; found out unless set.
        filter_server_ip: Option<String> = None, "filterServerIP", important;
        /// Port to listen on; 0 takes a free one.
        listen_port: u16 = 0, "listenPort", important;
        /// Address to listen on.
        bind_address: String = "0.0.0.0".into(), "bindAddress", important;
        /// Whether consumers upload filters; false: they name one of filterClassRepertoryUrl.
        client_upload_filter_class_enable: bool = true, "clientUploadFilterClassEnable", important;
        /// Where the modules of repository mode are: URL/NAME.wasm, http or https.
        filter_class_repertory_url: String = String::new(), "filterClassRepertoryUrl", important;
        /// Whether a module of the repository is taken only if URL/NAME.wasm.sha256 has its SHA-256.
        filter_class_repertory_hashes: bool = false, "filterClassRepertoryHashes";
        /// Certificates, PEM, that the repository's is checked against; without it the usual public authorities.
        filter_class_repertory_trust: Option<PathBuf> = None, "filterClassRepertoryTrustCertPath";
        /// Time between two looks at the repository, ms.
        filter_class_repertory_interval: u64 = 60_000, "filterClassRepertoryInterval", range(10..=86_400_000);
        /// Time between two registrations with the broker, ms.
        register_interval: u64 = 10_000, "registerInterval", range(10..=25_000);

        /// What becomes of a message at which the filter fails: fail (the pull ends before it), pass or drop.
        filter_error_policy: String = "fail".into(), "filterErrorPolicy", important;
        /// Time a filter may take for one message, ms.
        filter_message_timeout: u64 = 10, "filterMessageTimeout", range(1..=10_000);
        /// Time a filter may take for the messages of one pull, ms; what is decided then is answered.
        filter_batch_timeout: u64 = 50, "filterBatchTimeout", range(1..=10_000);
        /// Time start function and init may take together, ms.
        filter_start_timeout: u64 = 100, "filterStartTimeout", range(1..=10_000);
        /// Largest module in its binary form.
        max_filter_module_size: ByteSize = ByteSize::mib(4), "maxFilterModuleSize", range(ByteSize(8)..=ByteSize(64 << 20));
        /// Most functions of a module.
        max_filter_functions: usize = 10_000, "maxFilterFunctions", range(1..=1_000_000);
        /// Longest code of one function, bytes.
        max_filter_function_size: usize = 256 * 1024, "maxFilterFunctionSize", range(16..=67_108_864);
        /// Largest memory of one instance.
        max_filter_memory: ByteSize = ByteSize::mib(16), "maxFilterMemory", range(ByteSize(65_536)..=ByteSize(4 << 30));
        /// Largest sum of the memories of all instances.
        max_filter_memory_total: ByteSize = ByteSize::mib(1024), "maxFilterMemoryTotal";
        /// Most instances at one time.
        max_filter_instances: usize = 2_000, "maxFilterInstances", range(1..=100_000);
        /// Most filters (topic, group and module) at one time.
        max_filters: usize = 10_000, "maxFilters", range(1..=1_000_000);
        /// Largest body after decompression; a larger one is not decodable to filters.
        max_message_size: ByteSize = ByteSize::mib(4), "maxMessageSize";
        /// A filter is forgotten when nobody has uploaded or used it for so long, ms.
        filter_expiry: u64 = 600_000, "filterExpiry", range(100..=86_400_000);
        /// Threads that run filters; 0: one a processor, at least 2.
        filter_threads: usize = 0, "filterThreads", range(0..=1_024);
        /// An upload that is not compiled after so long is told to come again, ms; stock clients give up after 5 s.
        filter_compile_wait: u64 = 4_000, "filterCompileWait", range(1..=60_000);
        /// Modules that may wait to be compiled.
        max_compile_queue: usize = 64, "maxCompileQueue", range(1..=10_000);

        /// Pulls of one group that may be under way.
        max_pulls_per_group: usize = 1_000, "maxPullsPerGroup", range(1..=1_000_000);
        /// Pulls of all groups that may be under way.
        max_pulls: usize = 20_000, "maxPulls", range(1..=10_000_000);
        /// Bytes of pulled messages that one group may have under way.
        max_pulled_bytes_per_group: ByteSize = ByteSize::mib(64), "maxPulledBytesPerGroup";
        /// Bytes of pulled messages of all groups under way.
        max_pulled_bytes: ByteSize = ByteSize::mib(512), "maxPulledBytes";
        /// Pulls go to the broker as the consumer's own group; false: as FILTERSRV_CONSUMER, as the original does.
        pull_as_own_group: bool = true, "pullAsOwnGroup";

        /// Whether uploads and pulls must be signed by an account of aclFile that may consume topic and group.
        acl_enable: bool = false, "aclEnable", important;
        /// Accounts, in the form of plain_acl.yml; created empty if it is missing.
        acl_file: PathBuf = "conf/plain_acl.yml".into(), "aclFile";
        /// Account of this filter server at the broker.
        access_key: Option<String> = None, "accessKey";
        /// Its secret.
        secret_key: Option<String> = None, "secretKey", secret;

        /// Open connections; one more is closed as it comes.
        max_connections: usize = 10_000, "maxConnections", range(1..=1_000_000);
        /// A connection on which nothing is sent or received for so long is closed, seconds.
        server_channel_max_idle_time_seconds: u32 = 120, "serverChannelMaxIdleTimeSeconds", range(1..=86_400);
        /// Time to go on serving at the end, after the broker was told, ms. Consumers see it within 30 s.
        shutdown_drain_time: u32 = 10_000, "shutdownDrainTime", range(0..=600_000);

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
        /// Bodies of so many bytes are compressed in answers.
        compress_msg_body_over_howmuch: i64 = 8192, "compressMsgBodyOverHowmuch", ignored("messages pass through as the broker stored them");
        /// Level of that compression.
        zip_compress_level: i64 = 5, "zipCompressLevel", ignored("messages pass through as the broker stored them");
        /// Outgoing calls.
        fs_server_async_semaphore_value: i64 = 2048, "fsServerAsyncSemaphoreValue", ignored("maxPulls bounds what is under way");
        /// Callback threads.
        fs_server_callback_executor_threads: i64 = 64, "fsServerCallbackExecutorThreads", ignored("filterThreads is the number of threads that run filters");
        /// Request threads.
        fs_server_worker_threads: i64 = 64, "fsServerWorkerThreads", ignored("requests run on their connection's task; there are no thread pools");
    }
    with {
        /// Where log lines go.
        logging: LogConfig,
    }
}

/// What becomes of a message at which the filter fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// What was decided before it is answered; the pull that begins with it is refused with the reason.
    Fail,
    /// It is delivered.
    Pass,
    /// It is skipped.
    Drop,
}

impl FiltersrvConfig {
    /// Rules over several keys, for [`Config::load_with`](minimq_common::config::Config::load_with).
    ///
    /// # Errors
    /// The first value that is wrong.
    pub fn finish(config: &mut Self) -> Result<(), Invalid> {
        config.bind_ip()?;
        config.error_policy()?;
        let one_of = |key, value: &str, words: &[&str]| {
            let known = words.contains(&value);
            known
                .then_some(())
                .ok_or_else(|| Invalid::new(key, words.join(" or ")))
        };
        one_of(
            "tls.server.mode",
            &config.tls_mode,
            &["disabled", "permissive", "enforcing"],
        )?;
        one_of(
            "tls.server.need.client.auth",
            &config.tls_client_auth,
            &["none", "optional", "require"],
        )?;
        match minimq_common::names::parse_list(&config.connect_which_broker) {
            Ok(list) if list.len() == 1 => config.connect_which_broker = list.concat(),
            _ => {
                return Err(Invalid::new(
                    "connectWhichBroker",
                    "the host:port of one broker",
                ));
            }
        }
        if let Some(list) = &config.namesrv_addr
            && minimq_common::names::parse_list(list).is_err()
        {
            return Err(Invalid::new(
                "namesrvAddr",
                "host:port, several separated by ;",
            ));
        }
        if config.access_key.is_some() != config.secret_key.is_some() {
            return Err(Invalid::new(
                "secretKey",
                "set together with accessKey, or neither of them",
            ));
        }
        let url = config.filter_class_repertory_url.trim();
        let http = url.starts_with("http://") || url.starts_with("https://");
        if !(http || url.is_empty() && config.client_upload_filter_class_enable) {
            return Err(Invalid::new(
                "filterClassRepertoryUrl",
                "a URL that begins with http:// or https:// (clientUploadFilterClassEnable=false needs one)",
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

    /// The address told to consumers, for a server that listens on `port`: the configured host, the bound address, or
    /// that of the interface by which this machine reaches others.
    pub fn advertised(&self, port: u16) -> String {
        let host = match (&self.filter_server_ip, self.bind_ip()) {
            (Some(host), _) => host.trim_matches(['[', ']']).to_owned(),
            (None, Ok(ip)) if !ip.is_unspecified() => ip.to_string(),
            _ => interface_address(),
        };
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }

    /// What becomes of a message at which the filter fails.
    ///
    /// # Errors
    /// Another word than the three.
    pub fn error_policy(&self) -> Result<ErrorPolicy, Invalid> {
        match self.filter_error_policy.trim() {
            "fail" => Ok(ErrorPolicy::Fail),
            "pass" => Ok(ErrorPolicy::Pass),
            "drop" => Ok(ErrorPolicy::Drop),
            _ => Err(Invalid::new("filterErrorPolicy", "fail, pass or drop")),
        }
    }

    /// Limits of connections.
    pub fn limits(&self) -> Limits {
        Limits {
            connections: self.max_connections,
            idle: Duration::from_secs(self.server_channel_max_idle_time_seconds.into()),
            begun_bytes_all: 128 << 20,
            outbox_bytes_all: 512 << 20,
            ..Limits::default()
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

    /// How accounts are read.
    pub fn acl(&self) -> AclSettings {
        AclSettings {
            default_file: self.acl_file.clone(),
            folder: None,
            admin_codes: Vec::new(),
            grants: Vec::new(),
        }
    }

    /// Limits of the engine.
    pub fn engine(&self) -> EngineConfig {
        let bytes = |size: ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        EngineConfig {
            max_module_size: bytes(self.max_filter_module_size),
            max_functions: self.max_filter_functions,
            max_function_size: self.max_filter_function_size,
            max_memory: bytes(self.max_filter_memory),
            max_instances: self.max_filter_instances,
            max_total_memory: bytes(self.max_filter_memory_total),
            max_body_size: bytes(self.max_message_size),
            message_timeout: Duration::from_millis(self.filter_message_timeout),
            start_timeout: Duration::from_millis(self.filter_start_timeout),
            ..EngineConfig::default()
        }
    }

    /// Threads that run filters.
    pub fn threads(&self) -> usize {
        match self.filter_threads {
            0 => std::thread::available_parallelism()
                .map_or(2, |n| n.get())
                .max(2),
            threads => threads,
        }
    }
}

fn interface_address() -> String {
    // No packet is sent: connecting a datagram socket only chooses the interface.
    let chosen = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket
            .connect("192.0.2.1:9")
            .and_then(|()| socket.local_addr())
    });
    chosen.map_or_else(|_| "127.0.0.1".to_owned(), |addr| addr.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use minimq_common::clock::Clock;
    use minimq_common::config::{Config, Sources, faults};

    fn load(sets: &[&str]) -> Result<Config<FiltersrvConfig>, String> {
        let mut sources = Sources::default();
        for set in sets {
            sources.set(set).map_err(|error| error.to_string())?;
        }
        Config::load_with(&sources, FiltersrvConfig::finish, Clock::system())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_declaration_has_no_faults() {
        assert_eq!(faults::<FiltersrvConfig>(), Vec::<String>::new());
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (set, key) in [
            ("bindAddress=nowhere", "bindAddress"),
            ("filterErrorPolicy=ignore", "filterErrorPolicy"),
            ("connectWhichBroker=a:1;b:2", "connectWhichBroker"),
            ("connectWhichBroker=", "connectWhichBroker"),
            (
                "clientUploadFilterClassEnable=false",
                "filterClassRepertoryUrl",
            ),
            ("filterClassRepertoryUrl=ftp://x", "filterClassRepertoryUrl"),
            ("accessKey=a", "secretKey"),
            ("tls.server.mode=off", "tls.server.mode"),
        ] {
            let error = load(&[set]).unwrap_err();
            assert!(error.contains(key), "{set}: {error}");
        }
    }

    #[test]
    fn the_advertised_address_is_the_configured_host_or_the_bound_one() {
        let config = load(&["bindAddress=127.0.0.1"]).unwrap();
        assert_eq!(config.get().advertised(7), "127.0.0.1:7");
        let config = load(&["bindAddress=127.0.0.1", "filterServerIP=::1"]).unwrap();
        assert_eq!(config.get().advertised(7), "[::1]:7");
        let config = load(&["filterServerIP=filters.example"]).unwrap();
        assert_eq!(config.get().advertised(7), "filters.example:7");
    }

    /// The supplied file: every key it shows exists, and those shown as comments show their defaults.
    #[test]
    fn the_supplied_file_shows_keys_and_defaults_as_they_are() {
        let text = include_str!("../../conf/filtersrv.conf");
        let mut defaults = std::collections::HashMap::new();
        FiltersrvConfig::default().show(&mut |key, value| {
            defaults.insert(key.name, value.unwrap_or_default());
        });
        let mut seen = 0;
        for line in text.lines() {
            let shown = line.strip_prefix('#').unwrap_or(line);
            if shown.starts_with(' ') {
                continue;
            }
            let Some((key, value)) = shown.split_once('=') else {
                continue;
            };
            assert_eq!(defaults.get(key).map(String::as_str), Some(value), "{line}");
            seen += 1;
        }
        assert!(seen > 25, "{seen}");
    }
}
