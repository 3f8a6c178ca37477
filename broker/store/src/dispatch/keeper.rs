//! The thread that brings queues and index to disk and notes in the checkpoint how far (store spec 4.5, 6.1).
//!
//! Not here: the log's own flush (`flush`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::dispatcher::Dispatcher;
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
    interval: Duration,
    least_pages: u64,
    thorough_interval: Duration,
    stop: AtomicBool,
    stopped: Signal,
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
            interval: Duration::from_millis(config.flush_interval_consume_queue_ms.max(1)),
            least_pages: config.flush_consume_queue_least_pages,
            thorough_interval: Duration::from_millis(
                config.flush_consume_queue_thorough_interval_ms,
            ),
            stop: AtomicBool::new(false),
            stopped: Signal::default(),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.stopped.notify();
    }

    /// The thread's work.
    pub(crate) fn run(&self) {
        let mut thorough = Instant::now();
        while !self
            .stopped
            .wait(self.interval, || self.stop.load(Ordering::Acquire))
        {
            let due = thorough.elapsed() >= self.thorough_interval;
            if due {
                thorough = Instant::now();
            }
            let flushed = if due {
                self.flush_all()
            } else {
                self.queues.flush(self.least_pages)
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
