//! Telling the members of a group that its membership changed (code 40): changes that come together are told once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_protocol::header::NotifyConsumerIdsChangedRequest;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::broker::Broker;

/// Changes within this time are told together.
const GATHER: Duration = Duration::from_millis(20);
/// How often silent clients are looked for.
const SCAN: Duration = Duration::from_secs(10);

/// Groups that have changed and were not told yet.
#[derive(Debug, Default)]
pub struct Notices {
    groups: Mutex<HashSet<String>>,
    wake: Notify,
}

impl Notices {
    /// The members of this group are to be told.
    pub fn add(&self, group: &str) {
        self.groups.lock().insert(group.to_owned());
        self.wake.notify_one();
    }
}

impl Broker {
    /// Tells groups of their changes; ends when the broker stops.
    pub(crate) async fn send_notices(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = self.notices.wake.notified() => {}
            }
            tokio::time::sleep(GATHER).await;
            let groups = std::mem::take(&mut *self.notices.groups.lock());
            if !self.config.get().broker.notify_consumer_ids_changed_enable {
                continue;
            }
            for group in groups {
                for member in self.clients.members_of(&group) {
                    let header = NotifyConsumerIdsChangedRequest {
                        consumer_group: &group,
                    };
                    let notice =
                        Command::request_with(request::NOTIFY_CONSUMER_IDS_CHANGED, &header)
                            .with_serialize(member.connection.peer_serialize());
                    if let Err(error) = member.connection.oneway(notice) {
                        tracing::debug!(group, client = %member.client_id, %error, "a notice did not go out");
                    }
                }
            }
        }
    }

    /// A member left a group: the filters of a group without any are of no use until it comes back.
    pub(crate) fn consumer_group_left(&self, group: &str) {
        if self.clients.group(group).is_none() {
            self.registered_filters
                .group_gone(group, self.clock.now_ms());
        }
    }

    /// Takes out clients without a heartbeat and old locks; ends when the broker stops.
    pub(crate) async fn expire_clients(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = tokio::time::sleep(SCAN) => {}
            }
            let now_ms = self.clock.now_ms();
            self.locks.expire(now_ms);
            for connection in self.clients.expire(now_ms) {
                tracing::info!(peer = %connection.peer(), "client without a heartbeat for 120 s, closed");
                connection.close(minimq_remoting::CloseReason::Requested(
                    "no heartbeat for 120 s",
                ));
            }
        }
    }
}
