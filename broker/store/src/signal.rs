//! Waking a thread that waits for something to grow, for next to nothing when nobody waits.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Threads wait until a condition over atomics holds; whoever changes those calls [`Signal::notify`] after.
#[derive(Debug, Default)]
pub struct Signal {
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    condvar: Condvar,
}

impl Signal {
    /// Wakes all that wait. One load if nobody does.
    pub fn notify(&self) {
        // The change must be visible before the look at `sleepers`; its counterpart is the fence in `wait`.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            drop(self.lock.lock());
            self.condvar.notify_all();
        }
    }

    /// Waits until `condition` holds, at most `limit`. Gives whether it held.
    pub fn wait(&self, limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
        if condition() {
            return true;
        }
        let deadline = Instant::now() + limit;
        let mut guard = self.lock.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let held = loop {
            if condition() {
                break true;
            }
            if self.condvar.wait_until(&mut guard, deadline).timed_out() {
                break condition();
            }
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        held
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_waiter_wakes_when_the_condition_comes_true_and_gives_up_when_it_does_not() {
        let shared = Arc::new((Signal::default(), AtomicBool::new(false)));
        let other = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            other.1.store(true, Ordering::Release);
            other.0.notify();
        });
        assert!(
            shared
                .0
                .wait(Duration::from_secs(60), || shared.1.load(Ordering::Acquire))
        );
        thread.join().unwrap();
        assert!(!shared.0.wait(Duration::from_millis(1), || false));
    }
}
