//! Settings: all of them (26), and changes while the broker runs (25; broker spec 13.4).
//!
//! Different from 4.9.8: only keys that take effect at once may be changed, unknown keys and wrong values are
//! refused by name, and the file keeps its comments and its order.

use std::sync::Arc;

use minimq_common::config::UpdateError;
use minimq_common::logging;
use minimq_common::properties_file::PropertiesFile;
use minimq_protocol::Command;
use minimq_protocol::body::DataVersion;
use minimq_protocol::code::response;
use minimq_protocol::header::GetBrokerConfigResponse;

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success};

/// Never changed on request, whatever configBlackList says.
const BLACK_LIST: [&str; 3] = ["brokerConfigPath", "rocketmqHome", "configBlackList"];

/// Code 26.
pub fn get(broker: &Arc<Broker>, request: &Command) -> Handled {
    let version = broker.config.version();
    let version = DataVersion {
        counter: version.counter,
        timestamp: version.timestamp_ms,
    };
    let version = String::from_utf8_lossy(&version.to_wire()).into_owned();
    let header = GetBrokerConfigResponse { version: &version };
    Ok(success(request)
        .with_header(&header)
        .with_body(broker.config.export()))
}

/// Code 25.
pub fn update(broker: &Arc<Broker>, request: &Command) -> Handled {
    if request.body.is_empty() {
        return Ok(success(request));
    }
    let wanted = PropertiesFile::parse(&request.body)
        .map_err(|error| Refusal::error(format!("string2Properties error: {error}")))?;
    let black_list = broker.config.get().broker.config_black_list.clone();
    let listed = |key: &str| {
        let mut all = BLACK_LIST.into_iter().chain(black_list.split(';'));
        all.any(|listed| listed.trim() == key)
    };
    if let Some(entry) = wanted.entries().find(|entry| listed(entry.key.trim())) {
        tracing::warn!(
            key = entry.key,
            "a change of a key in the black list was refused"
        );
        return Err(Refusal::new(
            response::NO_PERMISSION,
            "Can not update config in black list.",
        ));
    }
    let update = broker.config.update(&wanted).map_err(|error| {
        tracing::warn!(%error, "a change of settings was refused");
        match &error {
            UpdateError::NotMutable { .. } => {
                Refusal::new(response::NO_PERMISSION, error.to_string())
            }
            _ => Refusal::error(error.to_string()),
        }
    })?;
    for change in &update.changed {
        tracing::info!(
            key = change.key,
            old = change.old.as_deref().unwrap_or_default(),
            new = change.new.as_deref().unwrap_or_default(),
            "setting changed"
        );
    }
    for (key, origin) in &update.overridden_at_start {
        tracing::warn!(key, "at the next start {origin} will override this change");
    }
    apply(broker);
    if update.changed("brokerPermission") {
        broker.topics.next_version(broker.clock.now_ms());
        broker.registration.changed();
    }
    Ok(success(request))
}

/// What others keep of the settings.
fn apply(broker: &Broker) {
    let config = broker.config.to_arc();
    broker.store.reconfigure(&config.store_config());
    if let Err(error) = logging::set_level(&config.logging.level) {
        tracing::warn!(%error, "logLevel");
    }
    broker.settings_changed.notify_waiters();
}
