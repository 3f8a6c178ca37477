//! Settings at run time: 318, 319 (name server spec 10).

use minimq_common::config::{UpdateError, find_key};
use minimq_common::properties_file::PropertiesFile;
use minimq_protocol::Command;
use minimq_protocol::code::response;
use minimq_remoting::Connection;

use super::{Answered, Refusal, State, done};
use crate::config::{NamesrvConfig, is_forbidden};

impl State {
    /// Changes settings: all that are named or, if one is forbidden or wrong, none. Keys that nobody knows or that
    /// have no effect here are passed over, as tools send them to every kind of name server.
    pub(super) fn update_config(&self, request: &Command, connection: &Connection) -> Answered {
        let peer = connection.peer();
        let unreadable = |_| Refusal::error("string2Properties error");
        let wanted = PropertiesFile::parse(&request.body).map_err(unreadable)?;
        let config = self.config.get();
        for entry in wanted.entries() {
            let key = entry.key.trim();
            // By its own name, whatever spelling was used.
            let name = find_key::<NamesrvConfig>(key).map_or(key, |key| key.name);
            if is_forbidden(name, &config) || is_forbidden(key, &config) {
                tracing::warn!(%peer, "change of {key} refused: no request may change it");
                return Err(Refusal::With(
                    response::NO_PERMISSION,
                    "Can not update config in black list.".to_owned(),
                ));
            }
        }
        let mut known = PropertiesFile::parse(b"").map_err(unreadable)?;
        for entry in wanted.entries() {
            match find_key::<NamesrvConfig>(entry.key) {
                Some(key) if key.ignored.is_none() => known.set(key.name, entry.value),
                _ => tracing::warn!(%peer, "{} has no effect here", entry.key),
            }
        }
        let update = self.config.update(&known).map_err(|error| {
            if matches!(error, UpdateError::NotStored(_)) {
                tracing::error!(%peer, "{error}");
            } else {
                tracing::warn!(%peer, "change of settings refused: {error}");
            }
            Refusal::error(error)
        })?;
        for change in &update.changed {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let (old, new) = (text(&change.old), text(&change.new));
            tracing::info!(%peer, "{} changed from {old} to {new}", change.key);
        }
        for (key, origin) in &update.overridden_at_start {
            tracing::warn!("{key} is set by {origin}, which counts again at the next start");
        }
        (self.on_update)(&update, &self.config.get());
        Ok(done(request))
    }

    pub(super) fn show_config(&self, request: &Command) -> Command {
        done(request).with_body(self.config.export())
    }
}
