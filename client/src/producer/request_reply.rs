//! Request and reply over topics (client spec 3.13).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use minimq_protocol::name::reply_topic;
use minimq_protocol::properties::name as property;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::send::{Outgoing, Target};
use super::{SendReceipt, Shared};
use crate::Delivery;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::random;

/// Takes the waiting request out of the table, however it ends.
struct Waiting<'a> {
    core: &'a Core,
    correlation: String,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.core.replies.remove(&self.correlation);
    }
}

pub(super) async fn request(
    shared: &Arc<Shared>,
    mut message: Message,
    timeout: Duration,
) -> Result<Delivery> {
    let core = &shared.core;
    let deadline = Instant::now() + timeout;
    let correlation = random::id();
    message.reserve(property::CORRELATION_ID, correlation.clone());
    message.reserve(property::REPLY_TO_CLIENT, core.client_id.clone());
    message.reserve(property::TTL, timeout.as_millis().to_string());
    let outgoing = Outgoing::single(shared, message)?;
    let late = || Error::Timeout {
        what: format!("no reply to a request to topic {}", outgoing.topic),
        after: timeout,
    };
    // Every broker that may get the reply has to know this client.
    let introduced = introduce(shared, &outgoing.topic);
    tokio::time::timeout_at(deadline, introduced)
        .await
        .map_err(|_| late())??;
    let (sender, reply) = oneshot::channel();
    core.replies.insert(correlation.clone(), sender);
    let _waiting = Waiting { core, correlation };
    let left = deadline.saturating_duration_since(Instant::now());
    shared.send_within(&outgoing, Target::Any, left).await?;
    match tokio::time::timeout_at(deadline, reply).await {
        Ok(Ok(delivery)) => Ok(delivery),
        Ok(Err(_)) => Err(Error::Closed),
        Err(_) => Err(late()),
    }
}

async fn introduce(shared: &Shared, topic: &str) -> Result<()> {
    let core = &shared.core;
    if core.routes.get(topic).is_some() {
        return Ok(());
    }
    let route = core
        .route_to_send(topic, shared.settings.new_topic_queues)
        .await?;
    let mut clusters: Vec<_> = route
        .data
        .broker_datas
        .iter()
        .filter_map(|broker| broker.cluster.as_deref())
        .collect();
    clusters.sort_unstable();
    clusters.dedup();
    for cluster in clusters {
        if let Err(error) = core.route(&reply_topic(cluster)).await {
            tracing::debug!(%cluster, %error, "the reply topic has no route");
        }
    }
    core.heartbeat().await;
    Ok(())
}

pub(super) async fn reply(shared: &Arc<Shared>, to: &Delivery, body: Bytes) -> Result<SendReceipt> {
    let needed = |name: &'static str| {
        to.property(name).map(str::to_owned).ok_or_else(|| {
            Error::invalid(
                "request",
                format!("the message has no property {name}: it expects no reply"),
            )
        })
    };
    let cluster = needed(property::CLUSTER)?;
    let mut message = Message::new(reply_topic(&cluster), body);
    message.reserve(property::CORRELATION_ID, needed(property::CORRELATION_ID)?);
    message.reserve(
        property::REPLY_TO_CLIENT,
        needed(property::REPLY_TO_CLIENT)?,
    );
    if let Some(ttl) = to.property(property::TTL) {
        message.reserve(property::TTL, ttl);
    }
    message.reserve(property::MSG_TYPE, "reply");
    let outgoing = Outgoing::single(shared, message)?;
    shared.send(&outgoing, Target::Any).await
}
