//! One item of the statistics: code 315.

use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::header::ViewBrokerStatsDataRequest;

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success};

use super::NEVER_FED;

/// Code 315.
pub fn view(broker: &Arc<Broker>, request: &Command) -> Handled {
    let header: ViewBrokerStatsDataRequest<'_> = request.header()?;
    let (name, key) = (header.stats_name, header.stats_key);
    let found = broker.stats.view(name, key).ok_or_else(|| {
        let hint = if NEVER_FED.contains(&name) {
            ": nothing is counted under this name"
        } else {
            ""
        };
        Refusal::error(format!("The stats <{name}> <{key}> not exist{hint}"))
    })?;
    Ok(success(request).with_body(found.to_wire()))
}
