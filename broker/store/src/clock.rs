//! The clock the store reads: the machine's, or one that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
#[derive(Clone, Debug, Default)]
pub enum StoreClock {
    /// The machine's.
    #[default]
    System,
    /// Whatever the number says.
    Manual(Arc<AtomicI64>),
}

impl StoreClock {
    /// A clock that stands at `now_ms` until the number is changed.
    #[must_use]
    pub fn manual(now_ms: i64) -> (Self, Arc<AtomicI64>) {
        let time = Arc::new(AtomicI64::new(now_ms));
        (Self::Manual(Arc::clone(&time)), time)
    }

    /// The time now.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        match self {
            Self::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| {
                    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
                }),
            Self::Manual(time) => time.load(Ordering::Acquire),
        }
    }
}
