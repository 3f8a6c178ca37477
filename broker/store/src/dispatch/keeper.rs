//! The thread that brings queues and index to disk and notes in the checkpoint how far (store spec 4.5, 6.1).
//!
//! Not here: the log's own flush (`flush`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::dispatcher::Dispatcher;
use parking_lot::RwLock;

use crate::checkpoint::Checkpoint;
use crate::config::StoreConfig;
use crate::consume_queue::ConsumeQueues;
use crate::error::StoreError;
use crate::index::Index;
use crate::signal::Signal;

/// Flushes queues and index of one store.
#[derive(Debug)]
pub(crate) struct Keeper {
    queues: Arc<ConsumeQueues>,
    index: Arc<Index>,
    dispatcher: Arc<Dispatcher>,
    checkpoint: Arc<Checkpoint>,
    settings: RwLock<Settings>,
    /// Counts changes of the settings.
    changes: AtomicUsize,
    stop: AtomicBool,
    woken: Signal,
}

/// Settings that may change while it runs.
#[derive(Clone, Copy, Debug)]
struct Settings {
    interval: Duration,
    least_pages: u64,
    thorough_interval: Duration,
}

impl Settings {
    fn of(config: &StoreConfig) -> Self {
        Self {
            interval: Duration::from_millis(config.flush_interval_consume_queue_ms.max(1)),
            least_pages: config.flush_consume_queue_least_pages,
            thorough_interval: Duration::from_millis(
                config.flush_consume_queue_thorough_interval_ms,
            ),
        }
    }
}

impl Keeper {
    pub(crate) fn new(
        config: &StoreConfig,
        queues: Arc<ConsumeQueues>,
        index: Arc<Index>,
        dispatcher: Arc<Dispatcher>,
        checkpoint: Arc<Checkpoint>,
    ) -> Self {
        Self {
            queues,
            index,
            dispatcher,
            checkpoint,
            settings: RwLock::new(Settings::of(config)),
            changes: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            woken: Signal::default(),
        }
    }

    /// Takes over changed settings, at once.
    pub(crate) fn reconfigure(&self, config: &StoreConfig) {
        *self.settings.write() = Settings::of(config);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.woken.notify();
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.woken.notify();
    }

    /// The thread's work.
    pub(crate) fn run(&self) {
        let mut thorough = Instant::now();
        loop {
            let (settings, changes) = (*self.settings.read(), self.changes.load(Ordering::Acquire));
            self.woken.wait(settings.interval, || {
                self.stop.load(Ordering::Acquire) || self.changes.load(Ordering::Acquire) != changes
            });
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let settings = *self.settings.read();
            let due = thorough.elapsed() >= settings.thorough_interval;
            if due {
                thorough = Instant::now();
            }
            let flushed = if due {
                self.flush_all()
            } else {
                self.queues.flush(settings.least_pages)
            };
            if let Err(error) = flushed {
                // What is not flushed is not in the checkpoint: the next start makes it again from the log.
                tracing::error!(%error, "consume queues or index cannot be flushed");
            }
        }
    }

    /// Brings everything that is dispatched to disk, then the checkpoint that says so.
    pub(crate) fn flush_all(&self) -> Result<(), StoreError> {
        // Noted before, true after.
        let (position, timestamp) = (
            self.dispatcher.position().get(),
            self.dispatcher.store_timestamp(),
        );
        self.queues.flush(0)?;
        self.queues.rest();
        self.queues.write_catalogue()?;
        if timestamp > 0 {
            self.checkpoint.set_dispatched(position, timestamp);
        }
        if let Some(timestamp) = self.index.flush()? {
            self.checkpoint.set_index_timestamp(timestamp);
        }
        self.checkpoint.write_if_changed()
    }
}
