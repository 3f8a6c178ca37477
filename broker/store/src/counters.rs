//! What the store did, stage by stage: plain atomics that anyone may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Sums since the store was opened.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: AtomicU64,)+
        }

        impl Counters {
            /// All names with their values now.
            #[must_use]
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)+]
            }
        }
    };
}

counters! {
    /// Append: messages stored.
    appended_messages,
    /// Append: bytes of their records.
    appended_bytes,
    /// Append: messages refused under the lock or before it.
    refused_messages,
    /// Append: times the lock was taken.
    append_holds,
    /// Append: nanoseconds the lock was held (of the holds that were timed, one in 64).
    append_hold_nanos,
    /// Append: holds that were timed.
    append_holds_timed,
    /// Append: times it had to wait for pages or the next file.
    room_waits,
    /// Append: files begun.
    rolls,
    /// Ahead: files made.
    files_made,
    /// Ahead: files that could not be made.
    files_not_made,
    /// Ahead: bytes of pages made ready.
    populated_bytes,
    /// Ahead: bytes of cold pages given back.
    released_bytes,
    /// Flush: rounds that synced.
    flushes,
    /// Flush: nanoseconds spent syncing.
    flush_nanos,
    /// Flush: the longest sync, nanoseconds.
    flush_nanos_max,
    /// Flush: bytes made durable.
    flushed_bytes,
    /// Flush: waiters answered after a sync.
    flush_waiters,
    /// Flush: waiters whose time ran out while the sync was running.
    flush_timeouts,
    /// Flush: syncs that failed.
    flush_failures,
    /// Checkpoint: times it was written.
    checkpoints,
    /// Dispatch: messages whose queue entries were written.
    dispatched_messages,
    /// Dispatch: batches of records.
    dispatch_batches,
    /// Dispatch: nanoseconds spent on them, the telling of held pulls included.
    dispatch_nanos,
    /// Index: records looked at.
    indexed_records,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Adds to a counter that is only changed under one lock: cheaper than [`add`].
pub(crate) fn add_locked(counter: &AtomicU64, by: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}
