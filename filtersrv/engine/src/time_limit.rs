//! The time limit of a guest. It is the guest's own processor time that counts, so that a filter is not blamed for
//! a busy machine: when the clock of epochs says that the limit may be reached, the thread's processor time is looked
//! at, and what the guest did not have is granted. No message pays for that but one that takes too long.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::ticker::TICK;

/// Processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Epochs after which `time` has passed for certain: the first may be about to end.
pub(crate) fn ticks(time: Duration) -> u64 {
    (time.as_micros().div_ceil(TICK.as_micros()) as u64).saturating_add(1)
}

/// The limit of one run, on one thread, of one or more calls.
#[derive(Debug)]
pub(crate) struct TimeLimit {
    limit: Duration,
    /// The limit in epochs, reckoned once.
    limit_ticks: u64,
    /// When the run began, by both clocks.
    begin: Instant,
    begin_processor: Duration,
    /// This call runs at least so long by the wall clock.
    running: Duration,
    /// Processor time when the limit was first looked at.
    first_look: Option<Duration>,
}

impl TimeLimit {
    /// A run begins.
    pub(crate) fn begin(limit: Duration) -> Self {
        Self {
            limit,
            limit_ticks: ticks(limit),
            begin: Instant::now(),
            begin_processor: processor_time(),
            running: limit,
            first_look: None,
        }
    }

    /// A call begins; it may take so many epochs before the limit is looked at.
    pub(crate) fn begin_call(&mut self) -> u64 {
        self.running = self.limit;
        self.first_look = None;
        self.limit_ticks
    }

    /// The epochs granted are over: how many more there are, `None` for none.
    pub(crate) fn look(&mut self) -> Option<u64> {
        self.decide(self.begin.elapsed(), processor_time())
    }

    fn decide(&mut self, since_begin: Duration, processor: Duration) -> Option<u64> {
        // What calls before this one used is not known, but not more than the time they had.
        let before = since_begin.saturating_sub(self.running);
        let run = processor.saturating_sub(self.begin_processor);
        let first_look = *self.first_look.get_or_insert(processor);
        let used = run
            .saturating_sub(before)
            .max(processor.saturating_sub(first_look));
        // The clocks differ by less than an epoch.
        let left = self.limit.saturating_sub(used).saturating_sub(TICK / 2);
        if left.is_zero() {
            return None;
        }
        self.running += left;
        Some(ticks(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn limit() -> TimeLimit {
        TimeLimit {
            limit: ms(10),
            limit_ticks: ticks(ms(10)),
            begin: Instant::now(),
            begin_processor: ms(100),
            running: ms(10),
            first_look: None,
        }
    }

    #[test]
    fn on_a_free_processor_the_first_look_is_the_last() {
        assert_eq!(limit().decide(ms(10), ms(110)), None);
        // After 40 ms of calls before it.
        assert_eq!(limit().decide(ms(50), ms(150)), None);
    }

    #[test]
    fn time_that_others_had_is_granted() {
        let mut time = limit();
        // 30 ms have passed, in 4 ms of which the thread ran.
        assert_eq!(time.decide(ms(30), ms(104)), Some(11));
        assert_eq!(time.decide(ms(60), ms(111)), Some(ticks(ms(3) - TICK / 2)));
        assert_eq!(time.decide(ms(70), ms(114)), None);
    }

    #[test]
    fn an_endless_call_has_twice_the_limit_at_most() {
        let mut time = limit();
        let (mut wall, mut processor) = (ms(40), ms(110));
        let mut looks = 0;
        // A third of the processor is its.
        while time.decide(wall, processor).is_some() {
            wall += ms(3);
            processor += ms(1);
            looks += 1;
        }
        assert!(processor <= ms(120), "{processor:?}");
        assert!(looks <= 11);
    }
}
