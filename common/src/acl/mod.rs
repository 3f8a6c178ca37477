//! Access control by `plain_acl.yml` (ACL 1.0; broker spec 14, wire spec 8.3): who signs a request
//! rightly, or comes from a listed address, may do what its account allows. Used by broker, name
//! server and filter server; what a request needs is passed in, so no role's types are known here.
//!
//! * [`AccessControl`]: the rules in force, and the check
//! * [`needs_of`], [`Need`]: what a request needs · [`Permission`]: what an account owns
//! * files are read at start, polled for changes, and changed by requests 50, 51 and 53
//!
//! Different from 4.9.8 on purpose: all sending codes need PUB, retry and dead-letter topics follow
//! their group, changes of accounts need an admin, changes by request are in force at once, and a
//! white-list entry with `::` is expanded before its range.
//!
//! Signatures themselves are computed in `minimq_protocol::acl_signature`.

mod address;
mod file;
mod files;
mod needs;
mod permission;
mod rules;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use minimq_protocol::acl_signature::{ACCESS_KEY, SIGNATURE};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub use address::{AddressError, AddressList};
pub use file::{AccountUpdate, DataVersion, Secret};
pub use files::{AclFileError, FileVersion, Poll};
pub use needs::{BROKER_ADMIN_CODES, Need, Needs, Resource, needs_of};
pub use permission::Permission;

use files::Files;
use rules::Rules;

use crate::clock::Clock;

/// Topic of message traces, to which every account may publish.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";

/// What a role tells about its access control.
#[derive(Debug, Clone)]
pub struct AclSettings {
    /// The file that new accounts go to; created if it is missing.
    pub default_file: PathBuf,
    /// A folder of which every `.yml` and `.yaml` file, at any depth, is read too.
    pub folder: Option<PathBuf>,
    /// Request codes that need an admin account, as [`BROKER_ADMIN_CODES`].
    pub admin_codes: Vec<i32>,
    /// Admin codes that one more account may use: a filter server registers (301) without being
    /// an admin.
    pub grants: Vec<(i32, String)>,
}

/// One request, as far as its check needs it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a, F> {
    /// Request code.
    pub code: i32,
    /// Gives all ext fields in the order of the frame; called once or twice.
    pub fields: F,
    /// The body's bytes.
    pub body: &'a [u8],
    /// Address of the sender's connection.
    pub peer: IpAddr,
}

/// Why a request is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Its address is in a global white list; nothing else was looked at.
    GlobalWhiteList,
    /// Its address is in its account's white list; no signature was looked at.
    AccountWhiteList,
    /// It is signed, and its account has what it needs.
    Signed,
}

/// Why a request is refused. The text is that of 4.9.8; [`AclError::remark`] is the whole remark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// No `AccessKey`.
    #[error("No accessKey is configured")]
    NoAccessKey,
    /// There is no such account.
    #[error("No acl config for {0}")]
    UnknownAccount(String),
    /// The signature is missing or wrong.
    #[error("Check signature failed for accessKey={0}")]
    WrongSignature(String),
    /// Only admin accounts may do this.
    #[error("Need admin permission for request code={code}, but accessKey={access_key} is not")]
    NeedsAdmin {
        /// Request code.
        code: i32,
        /// The account.
        access_key: String,
    },
    /// The account lacks a permission on a topic.
    #[error("No default permission for topic:{0}")]
    NoTopicPermission(String),
    /// The account lacks a permission on a group.
    #[error("No default permission for group:{0}")]
    NoGroupPermission(String),
}

impl AclError {
    /// Result code of the answer: SYSTEM_ERROR.
    pub const CODE: i32 = minimq_protocol::code::response::SYSTEM_ERROR;

    /// Remark of the answer; clients look for the class name.
    #[must_use]
    pub fn remark(&self) -> String {
        format!("org.apache.rocketmq.acl.common.AclException: {self}")
    }
}

/// The rules in force. Checks take no lock.
pub struct AccessControl {
    rules: ArcSwap<Rules>,
    files: Mutex<Files>,
    admin_codes: Vec<i32>,
    grants: Vec<(i32, String)>,
}

impl AccessControl {
    /// Reads all files.
    ///
    /// # Errors
    /// The first fault of any file: a role does not start with rules it only half understands.
    pub fn open(settings: AclSettings, clock: Clock) -> Result<Self, AclFileError> {
        let AclSettings {
            default_file,
            folder,
            mut admin_codes,
            grants,
        } = settings;
        admin_codes.sort_unstable();
        let (files, rules) = Files::open(default_file, folder, clock)?;
        Ok(Self {
            rules: ArcSwap::from_pointee(rules),
            files: Mutex::new(files),
            admin_codes,
            grants,
        })
    }

    /// Checks one request. `needs` is looked at only when permissions decide.
    ///
    /// # Errors
    /// [`AclError`], in the order of broker spec 14.3.
    pub fn check<'f, 'n, F, I>(
        &self,
        request: &Request<'_, F>,
        needs: impl IntoIterator<Item = Need<'n>>,
    ) -> Result<Pass, AclError>
    where
        F: Fn() -> I,
        I: IntoIterator<Item = (&'f str, &'f str)>,
    {
        let rules = self.rules.load();
        if rules.white_list.matches(request.peer) {
            return Ok(Pass::GlobalWhiteList);
        }
        let (mut access_key, mut signature) = ("", "");
        for (name, value) in (request.fields)() {
            match name {
                ACCESS_KEY => access_key = value,
                SIGNATURE => signature = value,
                _ => {}
            }
        }
        if access_key.trim().is_empty() {
            return Err(AclError::NoAccessKey);
        }
        let account = rules
            .accounts
            .get(access_key)
            .ok_or_else(|| AclError::UnknownAccount(access_key.to_owned()))?;
        if account.white_list.matches(request.peer) {
            return Ok(Pass::AccountWhiteList);
        }
        if !account
            .signing_key
            .verify((request.fields)(), request.body, signature)
        {
            return Err(AclError::WrongSignature(access_key.to_owned()));
        }
        if self.admin_codes.binary_search(&request.code).is_ok()
            && !account.admin
            && !self
                .grants
                .iter()
                .any(|(code, key)| *code == request.code && key == access_key)
        {
            return Err(AclError::NeedsAdmin {
                code: request.code,
                access_key: access_key.to_owned(),
            });
        }
        if account.is_unlimited() {
            return Ok(Pass::Signed);
        }
        for need in needs {
            if need == Need::publish(TRACE_TOPIC) {
                continue;
            }
            account.has(need).map_err(|resource| match resource {
                Resource::Topic(name) => AclError::NoTopicPermission(name.to_owned()),
                Resource::Group(name) => AclError::NoGroupPermission(name.to_owned()),
            })?;
        }
        Ok(Pass::Signed)
    }

    /// Whether nobody can pass: no account and no white list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let rules = self.rules.load();
        rules.accounts.is_empty() && rules.white_list == AddressList::default()
    }

    /// Looks at the files once, and takes over what has changed. A file that is broken or empty
    /// keeps its rules of before; why is logged once per content.
    pub fn poll(&self) -> Poll {
        let mut files = self.files.lock();
        let (poll, rules) = files.poll();
        if let Some(rules) = rules {
            self.rules.store(Arc::new(rules));
        }
        poll
    }

    /// Polls until cancelled; the original looks every 5 s.
    pub async fn watch(self: Arc<Self>, period: Duration, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let control = Arc::clone(&self);
            if tokio::task::spawn_blocking(move || control.poll())
                .await
                .is_err()
            {
                tracing::error!(
                    "the look at the access-control files failed; the next one is tried in time"
                );
            }
        }
    }

    /// Adds or changes an account (request 50), in the file and at once.
    ///
    /// # Errors
    /// What is wrong with the change, for the remark of code 209; nothing is changed then.
    pub fn update_account(&self, update: &AccountUpdate) -> Result<(), AclFileError> {
        self.change(|files| files.update_account(update))
    }

    /// Deletes an account (request 51), in its file and at once.
    ///
    /// # Errors
    /// There is no such account, or its file could not be written; for code 210.
    pub fn delete_account(&self, access_key: &str) -> Result<(), AclFileError> {
        self.change(|files| files.delete_account(access_key))
    }

    /// Replaces the global white list of one file (request 53), the default one if `file` is `None`
    /// or empty, and at once.
    ///
    /// # Errors
    /// An entry that is no address, or a file that is not one of those in force; for code 211.
    pub fn update_white_list(
        &self,
        addresses: &[String],
        file: Option<&str>,
    ) -> Result<(), AclFileError> {
        self.change(|files| files.update_white_list(addresses, file))
    }

    /// The files in force with their versions, the default file first (request 52).
    #[must_use]
    pub fn versions(&self) -> Vec<FileVersion> {
        self.files.lock().versions()
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Files) -> Result<Rules, AclFileError>,
    ) -> Result<(), AclFileError> {
        let mut files = self.files.lock();
        // What was edited by hand since the last look must not be undone.
        let (poll, rules) = files.poll();
        if let Some(rules) = rules {
            self.rules.store(Arc::new(rules));
        }
        if poll == Poll::Kept {
            let fault = files.fault().unwrap_or("a file cannot be read");
            return Err(AclFileError::Refused(format!(
                "no change while the files are not in order: {fault}"
            )));
        }
        let rules = change(&mut files)?;
        self.rules.store(Arc::new(rules));
        Ok(())
    }
}

impl std::fmt::Debug for AccessControl {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AccessControl")
            .field("accounts", &self.rules.load().accounts.len())
            .finish_non_exhaustive()
    }
}
