//! The clock of running filters: a thread that raises the engine's epoch each millisecond while
//! something runs, and sleeps otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// One epoch.
pub(crate) const TICK: Duration = Duration::from_millis(1);

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
    pub(crate) fn start(engine: wasmtime::Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            running: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let seen = shared.clone();
        let handle = thread::Builder::new()
            .name("filter-ticker".to_owned())
            .spawn(move || {
                while !seen.stop.load(Ordering::Acquire) {
                    if seen.running.load(Ordering::Acquire) == 0 {
                        thread::park();
                    } else {
                        thread::sleep(TICK);
                        engine.increment_epoch();
                    }
                }
            })?;
        Ok(Self {
            shared,
            thread: handle.thread().clone(),
        })
    }

    /// Keeps the epoch rising until the guard is dropped.
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

/// While it lives the epoch rises.
#[derive(Debug)]
pub(crate) struct Running {
    ticker: Arc<Ticker>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ticker.shared.running.fetch_sub(1, Ordering::AcqRel);
    }
}
