//! The clock of running filters: a thread that ticks each millisecond while something runs, and sleeps otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// One epoch.
pub(crate) const TICK: Duration = Duration::from_millis(1);
/// After so many ticks it rests, if nothing has run in the meantime. Waking it for each of the short runs that follow each
/// other would cost more than these ticks.
const BEFORE_REST: u32 = 16;

#[derive(Debug)]
struct Shared {
    running: AtomicUsize,
    stop: AtomicBool,
}

/// The thread; ends when dropped.
#[derive(Debug)]
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

impl Ticker {
    /// `tick` raises the epoch.
    pub(crate) fn start(mut tick: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            running: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let seen = shared.clone();
        let handle = thread::Builder::new()
            .name("filter-ticker".to_owned())
            .spawn(move || {
                let mut ticks = BEFORE_REST;
                while !seen.stop.load(Ordering::Acquire) {
                    if seen.running.load(Ordering::Acquire) == 0 && ticks >= BEFORE_REST {
                        // Returns at once if something has run since it did so last.
                        thread::park();
                        ticks = 0;
                    } else {
                        thread::sleep(TICK);
                        tick();
                        ticks = ticks.saturating_add(1);
                    }
                }
            })?;
        Ok(Self {
            shared,
            thread: handle.thread().clone(),
        })
    }

    /// Keeps it ticking until the guard is dropped.
    pub(crate) fn run(self: &Arc<Self>) -> Running {
        if self.shared.running.fetch_add(1, Ordering::AcqRel) == 0 {
            self.thread.unpark();
        }
        Running {
            ticker: self.clone(),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// While it lives the clock ticks.
#[derive(Debug)]
pub(crate) struct Running {
    ticker: Arc<Ticker>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ticker.shared.running.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    #[test]
    fn it_ticks_while_something_runs_and_rests_otherwise() {
        let ticks = Arc::new(AtomicU64::new(0));
        let counter = ticks.clone();
        let tick = move || {
            counter.fetch_add(1, Ordering::SeqCst);
        };
        let ticker = Arc::new(Ticker::start(tick).unwrap());
        let seen = || ticks.load(Ordering::SeqCst);
        assert_eq!(seen(), 0, "nothing has run yet");
        for _ in 0..3 {
            let (one, other) = (ticker.run(), ticker.run());
            drop(one);
            // The other one still runs.
            let (before, begin) = (seen(), Instant::now());
            while seen() < before + 5 {
                assert!(begin.elapsed() < Duration::from_secs(30), "it stands still");
                thread::sleep(TICK);
            }
            drop(other);
            let begin = Instant::now();
            let mut before = seen();
            let at_rest = loop {
                thread::sleep(TICK * 30);
                match seen() {
                    now if now == before => break now,
                    now => before = now,
                }
                assert!(begin.elapsed() < Duration::from_secs(30), "it never rests");
            };
            assert!(at_rest > 0);
        }
    }
}
