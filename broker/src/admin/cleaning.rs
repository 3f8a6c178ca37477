//! Clean-ups on request: codes 306, 316, 329.

use std::collections::HashSet;
use std::sync::Arc;

use minimq_protocol::Command;

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success};

/// Code 306: queues all of whose messages are gone.
pub fn expired_queues(broker: &Arc<Broker>, request: &Command) -> Handled {
    let deleted = broker
        .store
        .clean_expired_queues()
        .map_err(|error| Refusal::error(format!("old queues cannot be deleted: {error}")))?;
    tracing::info!(
        queues = deleted.len(),
        "queues without messages deleted on request"
    );
    Ok(success(request))
}

/// Code 316: queues of topics that are not in the table.
pub fn unused_topics(broker: &Arc<Broker>, request: &Command) -> Handled {
    let (_, topics) = broker.topics.snapshot();
    let in_use: HashSet<String> = topics
        .iter()
        .map(|topic| topic.topic_name.clone())
        .collect();
    let deleted = broker
        .store
        .clean_unused_topics(&in_use)
        .map_err(|error| Refusal::error(format!("unused queues cannot be deleted: {error}")))?;
    tracing::info!(?deleted, "queues of unknown topics deleted on request");
    Ok(success(request))
}

/// Code 329: expired log files, whatever the hour.
pub fn expired_log(broker: &Arc<Broker>, request: &Command) -> Handled {
    broker.store.cleaner().clean_now();
    Ok(success(request))
}
