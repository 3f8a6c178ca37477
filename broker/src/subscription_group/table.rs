//! The table of consumer groups and its file, `subscriptionGroup.json`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use minimq_common::atomic_file::AtomicFileError;
use minimq_protocol::body::{DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper};
use minimq_protocol::json::Flavour;
use minimq_protocol::name;
use parking_lot::RwLock;

use crate::broker::Broker;
use crate::saved::SavedFile;

/// Groups present from the start (broker spec 15.2).
const SYSTEM_GROUPS: [&str; 7] = [
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
];

#[derive(Debug, Default)]
struct Groups {
    groups: HashMap<String, Arc<SubscriptionGroupConfig>>,
    version: DataVersion,
}

/// All consumer groups of the broker.
#[derive(Debug)]
pub struct GroupTable {
    table: RwLock<Groups>,
    file: SavedFile,
}

impl GroupTable {
    /// The system's groups, then those of `subscriptionGroup.json`.
    pub fn load(root: &Path, now_ms: i64) -> Result<Self, AtomicFileError> {
        let file = SavedFile::new(root, "subscriptionGroup.json");
        let mut groups: HashMap<String, Arc<SubscriptionGroupConfig>> = SYSTEM_GROUPS
            .iter()
            .map(|group| {
                (
                    (*group).to_owned(),
                    Arc::new(SubscriptionGroupConfig::new(*group)),
                )
            })
            .collect();
        let mut version = DataVersion {
            counter: 0,
            timestamp: now_ms,
        };
        if let Some(saved) = file.read(SubscriptionGroupWrapper::from_json)? {
            version = saved.data_version;
            groups.extend(
                saved
                    .subscription_group_table
                    .into_iter()
                    .map(|(name, mut group)| {
                        group.group_name.clone_from(&name);
                        (name, Arc::new(group))
                    }),
            );
        }
        Ok(Self {
            table: RwLock::new(Groups { groups, version }),
            file,
        })
    }

    /// A group that is there.
    pub fn get(&self, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        self.table.read().groups.get(group).cloned()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.read().groups.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The table as body of 201 and of `subscriptionGroup.json`.
    pub fn to_wrapper(&self) -> SubscriptionGroupWrapper {
        let table = self.table.read();
        SubscriptionGroupWrapper {
            data_version: table.version,
            subscription_group_table: table
                .groups
                .iter()
                .map(|(name, group)| (name.clone(), (**group).clone()))
                .collect(),
        }
    }

    /// Adds or replaces a group.
    pub fn put(&self, group: SubscriptionGroupConfig, now_ms: i64) {
        let mut table = self.table.write();
        table
            .groups
            .insert(group.group_name.clone(), Arc::new(group));
        table.version = table.version.next(now_ms);
    }

    /// Removes a group; whether there was one.
    pub fn remove(&self, group: &str, now_ms: i64) -> bool {
        let mut table = self.table.write();
        let removed = table.groups.remove(group).is_some();
        if removed {
            table.version = table.version.next(now_ms);
        }
        removed
    }

    fn put_if_absent(&self, group: &str, now_ms: i64) -> (Arc<SubscriptionGroupConfig>, bool) {
        let mut table = self.table.write();
        if let Some(known) = table.groups.get(group) {
            return (known.clone(), false);
        }
        let made = Arc::new(SubscriptionGroupConfig::new(group));
        table.groups.insert(group.to_owned(), made.clone());
        table.version = table.version.next(now_ms);
        (made, true)
    }

    /// Writes `subscriptionGroup.json` if it is not what was written last.
    pub fn save(&self) {
        self.file
            .write_or_log(|| self.to_wrapper().to_json_pretty(Flavour::Fastjson));
    }
}

impl Broker {
    /// A group, made with the defaults if groups may appear by themselves (broker spec 15.3).
    pub fn group_or_create(self: &Arc<Self>, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        if let Some(known) = self.groups.get(group) {
            return Some(known);
        }
        let config = self.config.get();
        let may = config.broker.auto_create_subscription_group || name::is_system_group(group);
        if !may || group.is_empty() || self.groups.len() >= config.max_groups {
            return None;
        }
        let (group, new) = self.groups.put_if_absent(group, self.clock.now_ms());
        if new {
            tracing::info!(group = %group.group_name, "consumer group created");
            self.in_background(|broker| broker.groups.save());
        }
        Some(group)
    }
}
