//! Bytes that all connections of a server or client share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes and how many of them are used.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
        }
    }

    /// Takes bytes if there are so many left.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.limit {
            self.give(bytes);
            return false;
        }
        true
    }

    /// Takes bytes that are there in any case.
    pub(crate) fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives bytes back.
    pub(crate) fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Is it used up?
    pub(crate) fn is_full(&self) -> bool {
        self.used() >= self.limit
    }
}

/// What the connections of one server or client share.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// Frames that have begun.
    pub(crate) begun: Budget,
    /// Frames that wait to be written.
    pub(crate) queued: Budget,
}
