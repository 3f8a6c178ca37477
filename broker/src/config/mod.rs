//! Configuration of a broker: RocketMQ's keys (broker spec 17) and a few of our own.

mod broker_keys;
mod server_keys;
mod store_keys;

use std::net::IpAddr;
use std::path::PathBuf;

use minimq_common::config::{Reading, Value};
use minimq_store::config as store;

pub use broker_keys::BrokerKeys;
pub use server_keys::ServerKeys;
pub use store_keys::StoreKeys;

minimq_common::config_enum! {
    /// What the broker is in its group (broker spec 1.9).
    pub enum BrokerRole {
        /// Answers before a slave has the message.
        AsyncMaster = "ASYNC_MASTER",
        /// Says when no slave has the message.
        SyncMaster = "SYNC_MASTER",
        /// Takes no messages.
        Slave = "SLAVE",
    }
}

minimq_common::config_enum! {
    /// Whether a send waits for the disk.
    pub enum FlushDiskType {
        /// Answered when in memory.
        AsyncFlush = "ASYNC_FLUSH",
        /// Answered when on disk.
        SyncFlush = "SYNC_FLUSH",
    }
}

minimq_common::config! {
    /// All keys of a broker.
    pub struct BrokerConfig {
        /// Address the sockets are bound to; what clients are told is brokerIP1.
        bind_address: String = "0.0.0.0".into(), "bindAddress", important;
        /// Connections at one time.
        max_connections: usize = 65_536, "maxConnections", range(1..=1_000_000);
        /// Pulls held at one time.
        max_held_pulls: usize = 200_000, "maxHeldPulls", mutable, range(1..=10_000_000);
        /// Topics at most.
        max_topics: usize = 200_000, "maxTopics", mutable, range(1..=10_000_000);
        /// Consumer groups at most.
        max_groups: usize = 200_000, "maxGroups", mutable, range(1..=10_000_000);
        /// Administration requests worked on at one time.
        admin_concurrency: usize = 8, "adminConcurrency", range(1..=1024);
        /// Percent of a disk in use above which messages are refused; 100: only a disk without any space refuses. A system
        /// property of RocketMQ (`rocketmq.broker.diskSpaceWarningLevelRatio`, store spec 7.3).
        disk_space_warning_level_ratio: i32 = 90, "diskSpaceWarningLevelRatio", mutable, range(10..=100);
        /// Percent of a disk in use above which the oldest log files go whatever their age; 100: never. A system property of
        /// RocketMQ (`rocketmq.broker.diskSpaceCleanForciblyRatio`, store spec 7.3).
        disk_space_clean_forcibly_ratio: i32 = 85, "diskSpaceCleanForciblyRatio", mutable, range(10..=100);
        /// Access control files: plain_acl.yml and the folder acl beside it.
        acl_file: PathBuf = "conf/plain_acl.yml".into(), "aclFile";
        /// Account of the filter servers beside this broker; it may register (301) without being an admin.
        filter_server_access_key: Option<String> = None, "filterServerAccessKey";
        /// A filter server that has not registered again for so long is forgotten, ms.
        filter_server_expiry: u64 = 30_000, "filterServerExpiry", range(1_000..=600_000);
        /// TLS on the port: disabled, permissive or enforcing.
        tls_mode: String = "permissive".into(), "tls.server.mode";
        /// Certificate chain of the server, PEM.
        tls_cert: Option<PathBuf> = None, "tls.server.certPath";
        /// Private key of the server, PEM.
        tls_key: Option<PathBuf> = None, "tls.server.keyPath";
        /// Certificates that clients' certificates are checked against, PEM.
        tls_trust: Option<PathBuf> = None, "tls.server.trustCertPath";
        /// Client certificates: none, optional or require.
        tls_client_auth: String = "none".into(), "tls.server.need.client.auth";
    }
    with {
        /// The broker's own keys.
        broker: BrokerKeys,
        /// The store's keys.
        store: StoreKeys,
        /// The sockets' keys.
        server: ServerKeys,
        /// Where log lines go.
        logging: minimq_common::logging::LogConfig,
    }
}

/// Hours of the day, as in `04;16`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours(String);

impl Default for Hours {
    fn default() -> Self {
        Self("04".into())
    }
}

impl Hours {
    /// The hours.
    #[must_use]
    pub fn list(&self) -> Vec<u8> {
        self.0.split(';').filter_map(hour).collect()
    }
}

impl Value for Hours {
    const EXPECTED: &'static str = "hours from 00 to 23, separated by ;";

    fn parse(text: &str, _reading: Reading) -> Result<Self, String> {
        if text.split(';').any(|text| hour(text).is_none()) {
            return Err(Self::EXPECTED.into());
        }
        Ok(Self(text.trim().to_owned()))
    }

    fn show(&self) -> Option<String> {
        Some(self.0.clone())
    }
}

fn hour(text: &str) -> Option<u8> {
    text.trim().parse().ok().filter(|hour| *hour < 24)
}

/// The machine's name, as RocketMQ names a broker without a key.
fn default_broker_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name
        .trim()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
        .collect();
    if name.is_empty() {
        "DEFAULT_BROKER".to_owned()
    } else {
        name
    }
}

fn default_store_path() -> PathBuf {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
    home.join("store")
}

fn number(value: i64) -> u64 {
    value.max(0) as u64
}

impl BrokerConfig {
    /// The store's settings.
    pub fn store_config(&self) -> store::StoreConfig {
        let keys = &self.store;
        let paths = |text: &str| -> Vec<PathBuf> {
            text.split(',')
                .map(str::trim)
                .filter(|p| !p.is_empty())
                .map(PathBuf::from)
                .collect()
        };
        let mut config = store::StoreConfig::new(keys.store_path_root_dir.clone());
        config.store_path_commit_log = paths(&keys.store_path_commit_log);
        config.read_only_commit_log_store_paths = paths(
            keys.read_only_commit_log_store_paths
                .as_deref()
                .unwrap_or_default(),
        );
        config.mapped_file_size_commit_log = number(keys.mapped_file_size_commit_log);
        config.mapped_file_size_consume_queue = number(keys.mapped_file_size_consume_queue);
        config.enable_consume_queue_ext = keys.enable_consume_queue_ext;
        config.mapped_file_size_consume_queue_ext = number(keys.mapped_file_size_consume_queue_ext);
        config.max_message_size = number(keys.max_message_size) as usize;
        config.flush_disk_type = match keys.flush_disk_type {
            FlushDiskType::AsyncFlush => store::FlushDiskType::AsyncFlush,
            FlushDiskType::SyncFlush => store::FlushDiskType::SyncFlush,
        };
        config.role = match keys.broker_role {
            BrokerRole::AsyncMaster | BrokerRole::SyncMaster => store::StoreRole::Master,
            BrokerRole::Slave => store::StoreRole::Slave,
        };
        config.flush_interval_commit_log_ms = number(keys.flush_interval_commit_log);
        config.flush_commit_log_timed = keys.flush_commit_log_timed;
        config.flush_commit_log_least_pages = number(keys.flush_commit_log_least_pages);
        config.flush_commit_log_thorough_interval_ms =
            number(keys.flush_commit_log_thorough_interval);
        config.flush_interval_consume_queue_ms = number(keys.flush_interval_consume_queue);
        config.flush_consume_queue_least_pages = number(keys.flush_consume_queue_least_pages);
        config.flush_consume_queue_thorough_interval_ms =
            number(keys.flush_consume_queue_thorough_interval);
        config.sync_flush_timeout_ms = number(keys.sync_flush_timeout);
        config.check_crc_on_recover = keys.check_crc_on_recover;
        config.clean_resource_interval_ms = number(keys.clean_resource_interval);
        config.delete_commit_log_files_interval_ms = number(keys.delete_commit_log_files_interval);
        config.delete_consume_queue_files_interval_ms =
            number(keys.delete_consume_queue_files_interval);
        config.delete_when = keys.delete_when.list();
        config.disk_max_used_space_ratio =
            u8::try_from(keys.disk_max_used_space_ratio).unwrap_or(75);
        config.disk_space_warning_level_ratio =
            u8::try_from(self.disk_space_warning_level_ratio).unwrap_or(90);
        config.disk_space_clean_forcibly_ratio =
            u8::try_from(self.disk_space_clean_forcibly_ratio).unwrap_or(85);
        config.file_reserved_time_hours = number(keys.file_reserved_time);
        config.clean_file_forcibly_enable = keys.clean_file_forcibly_enable;
        config.max_transfer_bytes_on_message_in_memory =
            number(keys.max_transfer_bytes_on_message_in_memory) as usize;
        config.max_transfer_count_on_message_in_memory =
            number(keys.max_transfer_count_on_message_in_memory) as usize;
        config.max_transfer_bytes_on_message_in_disk =
            number(keys.max_transfer_bytes_on_message_in_disk) as usize;
        config.max_transfer_count_on_message_in_disk =
            number(keys.max_transfer_count_on_message_in_disk) as usize;
        config.access_message_in_memory_max_ratio =
            u8::try_from(keys.access_message_in_memory_max_ratio).unwrap_or(40);
        config.message_index_enable = keys.message_index_enable;
        config.message_index_safe = keys.message_index_safe;
        config.max_hash_slot_num = u32::try_from(keys.max_hash_slot_num).unwrap_or(u32::MAX);
        config.max_index_num = u32::try_from(keys.max_index_num).unwrap_or(u32::MAX);
        config.max_msgs_num_batch = number(keys.max_msgs_num_batch) as usize;
        config.default_query_max_num = number(keys.default_query_max_num) as usize;
        config.message_delay_level = keys.message_delay_level.clone();
        config.offset_check_in_slave = keys.offset_check_in_slave;
        config
    }

    /// The address the sockets are bound to.
    ///
    /// # Errors
    /// When the key's text is no IP address.
    pub fn bind_ip(&self) -> Result<IpAddr, String> {
        self.bind_address
            .trim()
            .parse()
            .map_err(|_| format!("bindAddress: \"{}\" is no IP address", self.bind_address))
    }

    /// Whether this broker takes no messages.
    pub fn is_slave(&self) -> bool {
        self.store.broker_role == BrokerRole::Slave
    }
}
