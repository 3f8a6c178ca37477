//! All connections of a server or client, and the look over them that finds those to be closed: idle ones, ones
//! that take nothing, ones that do not finish a frame. Connections carry no timers of their own for that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::budget::{Budget, Budgets};
use crate::connection::Connection;
use crate::error::CloseReason;
use crate::limits::Limits;

/// A connection and the progress it had made when it was last looked at.
struct Entry {
    connection: Connection,
    received: u64,
    sent: u64,
    frames: u64,
    /// Since when nothing has been received or sent; nothing sent; no frame finished.
    quiet_since: Instant,
    sent_since: Instant,
    frames_since: Instant,
}

pub(crate) struct Registry {
    limits: Arc<Limits>,
    budgets: Arc<Budgets>,
    next_id: AtomicU64,
    entries: Mutex<HashMap<u64, Entry>>,
}

impl Registry {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let budgets = Budgets {
            begun: Budget::new(limits.begun_bytes_all),
            queued: Budget::new(limits.outbox_bytes_all),
        };
        Arc::new(Self {
            limits: Arc::new(limits),
            budgets: Arc::new(budgets),
            next_id: AtomicU64::new(1),
            entries: Mutex::default(),
        })
    }

    pub(crate) fn budgets(&self) -> &Arc<Budgets> {
        &self.budgets
    }

    pub(crate) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// A number for a connection.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Adds a connection, unless there are as many as there may be. It is in for as long as its [`Membership`] lives.
    pub(crate) fn add(self: &Arc<Self>, connection: &Connection) -> Option<Membership> {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        if entries.len() >= self.limits.connections {
            return None;
        }
        let entry = Entry {
            connection: connection.clone(),
            received: 0,
            sent: 0,
            frames: 0,
            quiet_since: now,
            sent_since: now,
            frames_since: now,
        };
        entries.insert(connection.id(), entry);
        Some(Membership {
            registry: self.clone(),
            connection: connection.clone(),
        })
    }

    pub(crate) fn connections(&self) -> Vec<Connection> {
        self.entries
            .lock()
            .values()
            .map(|entry| entry.connection.clone())
            .collect()
    }

    /// Looks over all connections again and again, as long as the registry exists.
    pub(crate) async fn watch(registry: Weak<Self>) {
        let pause = match registry.upgrade() {
            Some(registry) => registry.pause(),
            None => return,
        };
        loop {
            tokio::time::sleep(pause).await;
            let Some(registry) = registry.upgrade() else {
                return;
            };
            registry.look_over();
        }
    }

    /// A quarter of the shortest time limit, so that none is exceeded by more than that.
    fn pause(&self) -> Duration {
        let Limits {
            idle,
            write_stall,
            frame_time,
            ..
        } = *self.limits;
        (idle.min(write_stall).min(frame_time) / 4)
            .clamp(Duration::from_millis(5), Duration::from_secs(5))
    }

    fn look_over(&self) {
        let now = Instant::now();
        for entry in self.entries.lock().values_mut() {
            if let Some(reason) = entry.look(now, &self.limits) {
                entry.connection.close(reason);
            }
        }
    }
}

/// A connection's place in the registry. Goes with the connection's task, however that ends, and tells those who
/// wait for the end.
pub(crate) struct Membership {
    registry: Arc<Registry>,
    connection: Connection,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.connection.end(&CloseReason::Shutdown);
        {
            let mut entries = self.registry.entries.lock();
            entries.remove(&self.connection.id());
            if entries.is_empty() {
                entries.shrink_to(64);
            }
        }
        self.connection.set_ended();
    }
}

impl Entry {
    fn look(&mut self, now: Instant, limits: &Limits) -> Option<CloseReason> {
        let shared = &self.connection.shared;
        let received = shared.received.load(Ordering::Relaxed);
        let sent = shared.sent.load(Ordering::Relaxed);
        let frames = shared.frames.load(Ordering::Relaxed);
        let waiting = self.connection.queued_bytes();
        let begun = shared.begun.load(Ordering::Relaxed);

        if received != self.received || sent != self.sent {
            self.quiet_since = now;
        }
        if sent != self.sent || waiting == 0 {
            self.sent_since = now;
        }
        if frames != self.frames || !begun {
            self.frames_since = now;
        }
        (self.received, self.sent, self.frames) = (received, sent, frames);

        let after = |since: Instant, limit: Duration| now.duration_since(since) >= limit;
        if after(self.sent_since, limits.write_stall) {
            Some(CloseReason::WriteStall {
                after: limits.write_stall,
                waiting,
            })
        } else if after(self.frames_since, limits.frame_time) {
            Some(CloseReason::SlowFrame {
                after: limits.frame_time,
            })
        } else if after(self.quiet_since, limits.idle) {
            Some(CloseReason::Idle { after: limits.idle })
        } else {
            None
        }
    }
}
