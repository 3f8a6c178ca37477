//! Access control in front of all requests (broker spec 14), if `aclEnable` is set; the rules themselves are in
//! `minimq_common::acl`. And the requests that change them: 50 to 53.

mod requests;

use std::sync::Arc;
use std::time::Duration;

use minimq_common::acl::{
    AccessControl, AclError, AclFileError, AclSettings, BROKER_ADMIN_CODES, Need, Request, needs_of,
};
use minimq_common::clock::Clock;
use minimq_protocol::Command;
use minimq_protocol::body::HeartbeatData;
use minimq_protocol::code::request;
use minimq_remoting::Connection;

use crate::broker::Broker;
use crate::config::BrokerConfig;

pub use requests::{delete_account, info, update_account, update_white_list};

/// How often the files are looked at.
const WATCH: Duration = Duration::from_secs(5);
/// Folder with further files, beside the main one.
const FOLDER: &str = "acl";

/// Reads the rules; `None` when access control is off.
///
/// # Errors
/// The first fault of any file.
pub fn open(
    config: &BrokerConfig,
    clock: Clock,
) -> Result<Option<Arc<AccessControl>>, AclFileError> {
    if !config.broker.acl_enable {
        if let Some(warning) = warning_without(config) {
            tracing::warn!("{warning}");
        }
        return Ok(None);
    }
    let default_file = config.acl_file.clone();
    let folder = default_file.parent().map(|parent| parent.join(FOLDER));
    let filter_server = config.filter_server_access_key.clone();
    let settings = AclSettings {
        default_file,
        folder,
        admin_codes: BROKER_ADMIN_CODES.to_vec(),
        grants: filter_server
            .map(|account| (request::REGISTER_FILTER_SERVER, account))
            .into_iter()
            .collect(),
    };
    let control = AccessControl::open(settings, clock)?;
    if control.is_empty() {
        tracing::warn!("access control is on without accounts and white lists: nobody passes");
    }
    Ok(Some(Arc::new(control)))
}

/// What the log says at a start without access control; nothing while only this machine reaches the port.
fn warning_without(config: &BrokerConfig) -> Option<&'static str> {
    let beyond = config.bind_ip().is_ok_and(|ip| !ip.is_loopback());
    beyond.then_some(
        "access control is off (aclEnable=false) and the port is open beyond this machine: whoever reaches it may do everything",
    )
}

impl Broker {
    /// Takes over changes of the files; ends when the broker stops.
    pub(crate) async fn watch_access(self: Arc<Self>) {
        if let Some(control) = self.access.clone() {
            control.watch(WATCH, self.stopping.clone()).await;
        }
    }
}

/// Whether a request may be handled.
///
/// # Errors
/// Why not, in the order of broker spec 14.3.
pub fn check(
    control: &AccessControl,
    connection: &Connection,
    command: &Command,
) -> Result<(), AclError> {
    let checked = Request {
        code: command.code,
        fields: || command.ext.iter(),
        body: &command.body,
        peer: connection.peer().ip(),
    };
    let passed = match needs_of(command.code, |field| command.ext.get(field)) {
        Some(needs) => control.check(&checked, needs),
        // A body that is no heartbeat needs nothing: its handler refuses it.
        None => match HeartbeatData::from_json(&command.body) {
            Ok(heartbeat) => control.check(&checked, needs_of_heartbeat(&heartbeat)),
            Err(_) => control.check(&checked, []),
        },
    };
    passed.map(drop).inspect_err(|error| {
        tracing::info!(code = command.code, peer = %connection.peer(), %error, "refused");
    })
}

fn needs_of_heartbeat(heartbeat: &HeartbeatData) -> impl Iterator<Item = Need<'_>> {
    heartbeat.consumer_data_set.iter().flat_map(|consumer| {
        let topics = consumer.subscription_data_set.iter();
        std::iter::once(Need::consume_as(&consumer.group_name))
            .chain(topics.map(|subscription| Need::subscribe(&subscription.topic)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_off_by_default_with_a_warning_beyond_this_machine() {
        let mut config = BrokerConfig::default();
        assert!(!config.broker.acl_enable);
        config.bind_address = "0.0.0.0".into();
        assert!(warning_without(&config).is_some_and(|line| line.contains("aclEnable")));
        for local in ["127.0.0.1", "::1"] {
            config.bind_address = local.into();
            assert_eq!(warning_without(&config), None, "{local}");
        }
    }
}
