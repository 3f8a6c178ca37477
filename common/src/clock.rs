//! The wall clock, through one type, so that tests can hold and move it. Timers are not here:
//! they use `tokio::time`, which tests can pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Wall-clock time in milliseconds since 1970 UTC. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    System,
    Manual(Arc<AtomicI64>),
}

/// The hand that moves a clock made by [`Clock::manual`].
#[derive(Debug, Clone)]
pub struct ManualTime(Arc<AtomicI64>);

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands at `start_ms` until its hand moves it.
    #[must_use]
    pub fn manual(start_ms: i64) -> (Self, ManualTime) {
        let time = Arc::new(AtomicI64::new(start_ms));
        (Self(Source::Manual(Arc::clone(&time))), ManualTime(time))
    }

    /// Milliseconds since 1970 UTC; negative if the machine's clock stands before that.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            Source::System => match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
                Err(before) => {
                    i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms)
                }
            },
            Source::Manual(time) => time.load(Ordering::SeqCst),
        }
    }
}

impl ManualTime {
    /// Moves the clock to this time, forwards or back.
    pub fn set_ms(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }

    /// Moves the clock forwards.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(
            i64::try_from(by.as_millis()).unwrap_or(i64::MAX),
            Ordering::SeqCst,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_past_2024() {
        assert!(Clock::system().now_ms() > 1_704_067_200_000);
    }

    #[test]
    fn a_manual_clock_moves_only_by_its_hand_and_for_all_clones() {
        let (clock, time) = Clock::manual(1000);
        let other = clock.clone();
        assert_eq!((clock.now_ms(), other.now_ms()), (1000, 1000));
        time.advance(Duration::from_secs(2));
        assert_eq!(other.now_ms(), 3000);
        time.set_ms(5);
        assert_eq!(clock.now_ms(), 5);
    }
}
