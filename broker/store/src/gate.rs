//! Whether messages are taken at all, and why not (store spec 3.6).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::error::{AppendError, Refusal};

/// Open, or shut with reasons. One load while it is open.
#[derive(Debug, Default)]
pub struct Gate {
    shut: AtomicBool,
    reasons: RwLock<Reasons>,
}

#[derive(Debug, Default)]
struct Reasons {
    closed: bool,
    slave: Option<Arc<Refusal>>,
    failure: Option<Arc<Refusal>>,
    disk_full: Option<Arc<Refusal>>,
    dispatch: Option<Arc<Refusal>>,
}

impl Reasons {
    fn first(&self) -> Option<&Arc<Refusal>> {
        self.failure
            .as_ref()
            .or(self.slave.as_ref())
            .or(self.disk_full.as_ref())
            .or(self.dispatch.as_ref())
    }
}

impl Gate {
    /// Takes no message until a restart: after a failed write or sync, what is on disk is not known. The first reason
    /// stays.
    pub fn fail(&self, path: &Path, reason: impl Into<String>) -> Arc<Refusal> {
        let refusal = Refusal {
            path: path.to_owned(),
            reason: reason.into(),
            until_restart: true,
        };
        let mut reasons = self.reasons.write();
        let kept = Arc::clone(reasons.failure.get_or_insert_with(|| {
            tracing::error!(%refusal, "the store takes no more messages until it is restarted");
            Arc::new(refusal)
        }));
        self.update(&reasons);
        kept
    }

    /// Shuts while a disk is too full, with path and reason; `None` opens again.
    pub fn set_disk_full(&self, refusal: Option<Refusal>) {
        let mut reasons = self.reasons.write();
        reasons.disk_full = refusal.map(Arc::new);
        self.update(&reasons);
    }

    /// Shuts while messages cannot be entered into their queues, where nobody could read them; `None` opens again.
    pub fn set_dispatch_trouble(&self, refusal: Option<Arc<Refusal>>) {
        let mut reasons = self.reasons.write();
        reasons.dispatch = refusal;
        self.update(&reasons);
    }

    /// Shuts for producers, because the log comes from a master.
    pub fn set_slave(&self, refusal: Option<Refusal>) {
        let mut reasons = self.reasons.write();
        reasons.slave = refusal.map(Arc::new);
        self.update(&reasons);
    }

    /// Shuts for good.
    pub fn close(&self) {
        let mut reasons = self.reasons.write();
        reasons.closed = true;
        self.update(&reasons);
    }

    /// Whether the store was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.reasons.read().closed
    }

    /// Why messages are refused, if they are and the store is not just closed.
    #[must_use]
    pub fn refusal(&self) -> Option<Arc<Refusal>> {
        self.reasons.read().first().cloned()
    }

    /// The failure after which only a restart helps.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<Refusal>> {
        self.reasons.read().failure.clone()
    }

    /// Whether the disk-full state is on.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.reasons.read().disk_full.is_some()
    }

    /// Whether a producer's message may be appended.
    ///
    /// # Errors
    /// [`AppendError::Closed`] or [`AppendError::Refused`].
    pub fn check(&self) -> Result<(), AppendError> {
        if !self.shut.load(Ordering::Acquire) {
            return Ok(());
        }
        let reasons = self.reasons.read();
        if reasons.closed {
            return Err(AppendError::Closed);
        }
        reasons.first().map_or(Ok(()), |refusal| {
            Err(AppendError::Refused(Arc::clone(refusal)))
        })
    }

    /// Whether a master's bytes may be appended: a slave's gate is shut for producers only.
    ///
    /// # Errors
    /// [`AppendError::Closed`] or [`AppendError::Refused`].
    pub fn check_replica(&self) -> Result<(), AppendError> {
        let reasons = self.reasons.read();
        if reasons.closed {
            return Err(AppendError::Closed);
        }
        reasons.failure.as_ref().map_or(Ok(()), |refusal| {
            Err(AppendError::Refused(Arc::clone(refusal)))
        })
    }

    fn update(&self, reasons: &Reasons) {
        self.shut.store(
            reasons.closed || reasons.first().is_some(),
            Ordering::Release,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Refusal {
        Refusal {
            path: "/d".into(),
            reason: "91 % used".into(),
            until_restart: false,
        }
    }

    #[test]
    fn a_full_disk_shuts_until_there_is_room_and_a_failure_for_good() {
        let gate = Gate::default();
        assert_eq!(gate.check(), Ok(()));
        gate.set_disk_full(Some(full()));
        assert_eq!(gate.check(), Err(AppendError::Refused(Arc::new(full()))));
        gate.set_disk_full(None);
        assert_eq!(gate.check(), Ok(()));
        gate.fail(Path::new("/f"), "sync failed: EIO");
        gate.fail(Path::new("/g"), "later");
        gate.set_disk_full(None);
        let AppendError::Refused(refusal) = gate.check().unwrap_err() else {
            panic!()
        };
        assert_eq!(refusal.to_string(), "/f: sync failed: EIO");
    }

    #[test]
    fn a_slave_takes_log_bytes_but_no_messages() {
        let gate = Gate::default();
        gate.set_slave(Some(Refusal {
            path: "/s".into(),
            reason: "brokerRole=SLAVE".into(),
            until_restart: true,
        }));
        assert!(gate.check().is_err());
        assert_eq!(gate.check_replica(), Ok(()));
        gate.close();
        assert_eq!(
            (gate.check(), gate.check_replica()),
            (Err(AppendError::Closed), Err(AppendError::Closed))
        );
    }
}
