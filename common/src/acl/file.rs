//! The text of one `plain_acl.yml` (broker spec 14.1): reading it, and changing accounts and white
//! list in it so that fields nobody here knows stay in the file. (Comments do not: the YAML writer
//! has none; the content before a change stays as `.bak`.)

use std::fmt;

use serde::Deserialize;
use serde_yaml_ng::{Mapping, Value};

const WHITE_LIST: &str = "globalWhiteRemoteAddresses";
const ACCOUNTS: &str = "accounts";
const DATA_VERSION: &str = "dataVersion";
const ACCESS_KEY: &str = "accessKey";
const SECRET_KEY: &str = "secretKey";
const WHITE_ADDRESS: &str = "whiteRemoteAddress";
const ADMIN: &str = "admin";
const DEFAULT_TOPIC_PERM: &str = "defaultTopicPerm";
const DEFAULT_GROUP_PERM: &str = "defaultGroupPerm";
const TOPIC_PERMS: &str = "topicPerms";
const GROUP_PERMS: &str = "groupPerms";

/// A secret key; shown nowhere.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("******")
    }
}

/// When and how often a file of accounts was changed by requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct DataVersion {
    /// Milliseconds since 1970 of the last change.
    #[serde(default)]
    pub timestamp: i64,
    /// Number of changes.
    #[serde(default)]
    pub counter: i64,
}

/// An account as it stands in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AccountText {
    pub(super) access_key: Option<String>,
    pub(super) secret_key: Option<Secret>,
    pub(super) white_remote_address: Option<String>,
    /// `true` or `"true"`, in any case, is true; as text, since both forms are in use.
    pub(super) admin: Option<String>,
    pub(super) default_topic_perm: Option<String>,
    pub(super) default_group_perm: Option<String>,
    pub(super) topic_perms: Option<Vec<String>>,
    pub(super) group_perms: Option<Vec<String>>,
}

impl AccountText {
    pub(super) fn is_admin(&self) -> bool {
        self.admin
            .as_deref()
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }
}

/// A whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileText {
    global_white_remote_addresses: Option<Vec<String>>,
    accounts: Option<Vec<AccountText>>,
    data_version: Option<Vec<DataVersion>>,
}

impl FileText {
    /// Reads a file. `None`: it holds nothing, or comments only.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, String> {
        // Scalars are read as text, so that a secret of digits keeps its spelling.
        serde_yaml_ng::from_slice::<Option<Self>>(bytes).map_err(|error| error.to_string())
    }

    pub(super) fn white_list(&self) -> &[String] {
        self.global_white_remote_addresses
            .as_deref()
            .unwrap_or_default()
    }

    pub(super) fn accounts(&self) -> &[AccountText] {
        self.accounts.as_deref().unwrap_or_default()
    }

    pub(super) fn data_version(&self) -> Option<DataVersion> {
        self.data_version
            .as_ref()
            .and_then(|list| list.first().copied())
    }
}

/// A change of an account by request 50; fields that are `None` stay as they are.
#[derive(Debug, Clone, Default)]
pub struct AccountUpdate {
    /// The account.
    pub access_key: String,
    /// Its secret; needed for a new account.
    pub secret_key: Option<Secret>,
    /// Its white list; an empty text takes it away.
    pub white_remote_address: Option<String>,
    /// Whether it is an admin; always set.
    pub admin: bool,
    /// Permission on topics that are not listed.
    pub default_topic_perm: Option<String>,
    /// Permission on groups that are not listed.
    pub default_group_perm: Option<String>,
    /// `name=perm` items.
    pub topic_perms: Option<Vec<String>>,
    /// `name=perm` items.
    pub group_perms: Option<Vec<String>>,
}

/// A file that is being changed.
pub(super) struct Document {
    root: Mapping,
    version: Option<DataVersion>,
}

impl Document {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = FileText::parse(bytes)?.unwrap_or_default();
        let root = serde_yaml_ng::from_slice::<Option<Mapping>>(bytes)
            .map_err(|error| error.to_string())?;
        let mut document = Self {
            root: root.unwrap_or_default(),
            version: text.data_version(),
        };
        // Untyped reading takes digits for numbers; what was written counts.
        for (account, text) in document
            .accounts()
            .into_iter()
            .flatten()
            .zip(text.accounts())
        {
            let Value::Mapping(account) = account else {
                continue;
            };
            let secret = text.secret_key.as_ref().map(|secret| &secret.0);
            for (name, value) in [(ACCESS_KEY, text.access_key.as_ref()), (SECRET_KEY, secret)] {
                if let Some(value) = value {
                    put(account, name, value.as_str());
                }
            }
        }
        Ok(document)
    }

    /// Changes or adds an account.
    pub(super) fn put_account(&mut self, update: &AccountUpdate) {
        let Some(accounts) = self.accounts() else {
            return;
        };
        let place = match accounts
            .iter()
            .position(|account| has_key(account, &update.access_key))
        {
            Some(place) => place,
            None => {
                accounts.push(Value::Mapping(Mapping::new()));
                accounts.len() - 1
            }
        };
        let Some(Value::Mapping(account)) = accounts.get_mut(place) else {
            return;
        };
        put(account, ACCESS_KEY, update.access_key.as_str());
        if let Some(secret) = &update.secret_key {
            put(account, SECRET_KEY, secret.0.as_str());
        }
        put(account, ADMIN, update.admin);
        for (name, value) in [
            (WHITE_ADDRESS, &update.white_remote_address),
            (DEFAULT_TOPIC_PERM, &update.default_topic_perm),
            (DEFAULT_GROUP_PERM, &update.default_group_perm),
        ] {
            if let Some(value) = value {
                put(account, name, value.as_str());
            }
        }
        for (name, value) in [
            (TOPIC_PERMS, &update.topic_perms),
            (GROUP_PERMS, &update.group_perms),
        ] {
            if let Some(value) = value {
                put(account, name, value.clone());
            }
        }
    }

    /// Takes an account out.
    pub(super) fn remove_account(&mut self, access_key: &str) {
        if let Some(accounts) = self.accounts() {
            accounts.retain(|account| !has_key(account, access_key));
        }
    }

    pub(super) fn set_white_list(&mut self, addresses: &[String]) {
        put(&mut self.root, WHITE_LIST, addresses.to_vec());
    }

    /// The file's bytes, with the next data version.
    pub(super) fn into_bytes(mut self, now_ms: i64) -> Result<Vec<u8>, String> {
        let counter = self
            .version
            .map_or(0, |version| version.counter)
            .saturating_add(1);
        let mut version = Mapping::new();
        put(&mut version, "counter", counter);
        put(&mut version, "timestamp", now_ms);
        put(
            &mut self.root,
            DATA_VERSION,
            Value::Sequence(vec![Value::Mapping(version)]),
        );
        serde_yaml_ng::to_string(&self.root)
            .map(String::into_bytes)
            .map_err(|error| error.to_string())
    }

    /// The list of accounts, made if it is not there.
    fn accounts(&mut self) -> Option<&mut Vec<Value>> {
        let entry = self.root.entry(ACCOUNTS.into()).or_insert(Value::Null);
        if !entry.is_sequence() {
            *entry = Value::Sequence(Vec::new());
        }
        entry.as_sequence_mut()
    }
}

fn has_key(account: &Value, access_key: &str) -> bool {
    account.get(ACCESS_KEY).and_then(Value::as_str) == Some(access_key)
}

fn put(mapping: &mut Mapping, name: &str, value: impl Into<Value>) {
    mapping.insert(name.into(), value.into());
}
