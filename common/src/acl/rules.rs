//! The rules of all files, ready to be asked: nothing here reads a file or allocates in a check.

use std::collections::HashMap;
use std::path::Path;

use minimq_protocol::acl_signature::SigningKey;

use super::address::AddressList;
use super::file::{AccountText, FileText};
use super::needs::{DEAD_LETTER_PREFIX, Need, RETRY_PREFIX, Resource};
use super::permission::Permission;

/// Keys and secrets are longer than this, counted as Java counts characters.
const LONGER_THAN: usize = 6;

/// What is in force: the files together.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) white_list: AddressList,
    pub(super) accounts: HashMap<Box<str>, Account>,
}

/// One account.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) signing_key: SigningKey,
    pub(super) white_list: AddressList,
    pub(super) admin: bool,
    default_topic: Permission,
    default_group: Permission,
    topics: HashMap<Box<str>, Permission>,
    groups: HashMap<Box<str>, Permission>,
}

impl Rules {
    /// Joins files in order. An access key counts where it stands first; what is odd but not wrong
    /// is reported to `warn`.
    ///
    /// # Errors
    /// Path, account and field of what is wrong.
    pub(super) fn of<'a>(
        files: impl IntoIterator<Item = (&'a Path, &'a FileText)>,
        mut warn: impl FnMut(String),
    ) -> Result<Self, String> {
        let mut rules = Self::default();
        for (path, text) in files {
            for address in text.white_list() {
                let added = rules.white_list.add(address);
                added.map_err(|error| {
                    format!("{}: globalWhiteRemoteAddresses: {error}", path.display())
                })?;
            }
            for account in text.accounts() {
                let name = account.access_key.as_deref().unwrap_or_default();
                let in_file =
                    |message: String| format!("{}: account `{name}`: {message}", path.display());
                let compiled =
                    Account::of(account, |message| warn(in_file(message))).map_err(in_file)?;
                if rules.accounts.contains_key(name) {
                    warn(in_file(
                        "stands more than once; the first one counts".into(),
                    ));
                } else {
                    rules.accounts.insert(name.into(), compiled);
                }
            }
        }
        Ok(rules)
    }
}

impl Account {
    fn of(text: &AccountText, mut warn: impl FnMut(String)) -> Result<Self, String> {
        let secret = text.secret_key.as_ref().map_or("", |secret| &secret.0);
        check_length("accessKey", text.access_key.as_deref().unwrap_or_default())?;
        check_length("secretKey", secret)?;
        let white_list =
            AddressList::parse(text.white_remote_address.as_deref().unwrap_or_default())
                .map_err(|error| format!("whiteRemoteAddress: {error}"))?;
        let mut permission = |field: &str, text: &str| {
            Permission::parse(text).unwrap_or_else(|| {
                warn(format!(
                    "{field}: `{text}` counts as DENY; known are DENY, PUB, SUB, PUB|SUB"
                ));
                Permission::DENY
            })
        };
        let mut default = |field, text: &Option<String>| match text.as_deref() {
            None | Some("") => Permission::DENY,
            Some(text) => permission(field, text),
        };
        let default_topic = default("defaultTopicPerm", &text.default_topic_perm);
        let default_group = default("defaultGroupPerm", &text.default_group_perm);
        let mut list = |field: &str, items: &Option<Vec<String>>| {
            let mut list = HashMap::new();
            for item in items.iter().flatten() {
                let (name, text) =
                    split_item(item).ok_or_else(|| format!("{field}: {}", not_an_item(item)))?;
                list.insert(name.into(), permission(field, text));
            }
            Ok::<_, String>(list)
        };
        let topics = list("topicPerms", &text.topic_perms)?;
        let groups = list("groupPerms", &text.group_perms)?;
        Ok(Self {
            signing_key: SigningKey::new(secret),
            white_list,
            admin: text.is_admin(),
            default_topic,
            default_group,
            topics,
            groups,
        })
    }

    /// An admin without lists of its own may do everything.
    pub(super) fn is_unlimited(&self) -> bool {
        self.admin && self.topics.is_empty() && self.groups.is_empty()
    }

    /// Whether this account has what is needed; if not, the resource that decided.
    pub(super) fn has<'a>(&self, need: Need<'a>) -> Result<(), Resource<'a>> {
        let of_group = |name| self.groups.get(name).copied();
        let (decides, owned, needed) = match need.resource {
            Resource::Group(group) => (
                need.resource,
                of_group(group).unwrap_or(self.default_group),
                need.permission,
            ),
            Resource::Topic(topic) => {
                let listed = self.topics.get(topic).copied();
                let group = topic
                    .strip_prefix(RETRY_PREFIX)
                    .or_else(|| topic.strip_prefix(DEAD_LETTER_PREFIX));
                match (listed, group) {
                    // A topic of a group that is not listed by itself: the right to consume decides.
                    (None, Some(group)) => (
                        Resource::Group(group),
                        of_group(group).unwrap_or(self.default_group),
                        Permission::SUB,
                    ),
                    (listed, _) => (
                        need.resource,
                        listed.unwrap_or(self.default_topic),
                        need.permission,
                    ),
                }
            }
        };
        if owned.allows(needed) {
            Ok(())
        } else {
            Err(decides)
        }
    }
}

/// Refuses keys and secrets that are too short, without showing them.
pub(super) fn check_length(field: &str, text: &str) -> Result<(), String> {
    if text.encode_utf16().take(LONGER_THAN + 1).count() > LONGER_THAN {
        return Ok(());
    }
    Err(format!(
        "{field} must be longer than {LONGER_THAN} characters"
    ))
}

/// Refuses an item that is not `name=perm` with a known permission.
pub(super) fn check_item(item: &str) -> Result<(), String> {
    let known = split_item(item).is_some_and(|(_, text)| Permission::parse(text).is_some());
    if known {
        Ok(())
    } else {
        Err(not_an_item(item))
    }
}

fn not_an_item(item: &str) -> String {
    format!("`{item}` is wrong: expected name=perm with DENY, PUB, SUB or PUB|SUB")
}

/// `name=perm`, blanks around either do not count.
fn split_item(item: &str) -> Option<(&str, &str)> {
    let (name, permission) = item.split_once('=')?;
    let (name, permission) = (name.trim(), permission.trim());
    (!name.is_empty() && !permission.contains('=')).then_some((name, permission))
}
