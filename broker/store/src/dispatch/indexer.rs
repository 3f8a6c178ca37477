//! The thread that fills the index. It follows the dispatcher at its own pace, and after a crash or with an index
//! that was lost it begins further back: nobody waits for it but queries, and those not for long.
//!
//! Not here: what the index does with a record (`index`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use super::dispatcher::Dispatcher;
use super::follower::{Batch, Follower};
use crate::commit_log::CommitLog;
use crate::counters::add;
use crate::damage::DamageList;
use crate::delay_level::DelayLevels;
use crate::error::StoreError;
use crate::index::Index;
use crate::offset::PhysicalOffset;
use crate::signal::Signal;

/// Pause before something that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3600);
/// Pause once all is indexed: what comes meanwhile is indexed together, and not every message wakes a thread.
const REST: Duration = Duration::from_millis(2);

/// What is shared between the index thread and everyone else.
#[derive(Debug)]
pub struct Indexer {
    log: Arc<CommitLog>,
    index: Arc<Index>,
    dispatcher: Arc<Dispatcher>,
    damage: Arc<DamageList>,
    delay_levels: Arc<DelayLevels>,
    position: AtomicI64,
    progress: Signal,
    stop: AtomicBool,
}

impl Indexer {
    pub(crate) fn new(
        log: Arc<CommitLog>,
        index: Arc<Index>,
        dispatcher: Arc<Dispatcher>,
        damage: Arc<DamageList>,
        delay_levels: Arc<DelayLevels>,
    ) -> Self {
        let position = AtomicI64::new(index.needed_from().max(log.min_offset().get()).max(0));
        Self {
            log,
            index,
            dispatcher,
            damage,
            delay_levels,
            position,
            progress: Signal::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// Records below are in the index.
    #[must_use]
    pub fn position(&self) -> PhysicalOffset {
        PhysicalOffset(self.position.load(Ordering::Acquire))
    }

    /// Waits until all below `end` is in the index, at most `limit`. Gives whether it is.
    pub fn wait_for(&self, end: PhysicalOffset, limit: Duration) -> bool {
        self.progress
            .wait(limit, || self.position() >= end || self.is_stopped())
            && self.position() >= end
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Ends the thread after the batch it is at.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.dispatcher.progress().notify();
        self.progress.notify();
    }

    /// The thread's work.
    pub(crate) fn run(&self) {
        let (log, damage) = (Arc::clone(&self.log), Arc::clone(&self.damage));
        let mut follower = Follower::new(
            log,
            damage,
            Arc::clone(&self.delay_levels),
            self.position().get(),
        );
        follower.set_again(true);
        let mut failing = false;
        loop {
            self.dispatcher.progress().wait(LONG, || {
                self.dispatcher.position() > self.position() || self.is_stopped()
            });
            if self.is_stopped() {
                return;
            }
            match self.batch(&mut follower) {
                Ok(()) => {
                    failing = false;
                    if self.position() >= self.dispatcher.position() {
                        std::thread::sleep(REST);
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::error!(%error, "the index cannot be written; queries by key miss newer messages. Trying on");
                    }
                    self.dispatcher.progress().wait(RETRY, || self.is_stopped());
                }
            }
        }
    }

    fn batch(&self, follower: &mut Follower) -> Result<(), StoreError> {
        let from = self.position().get();
        let limit = self.dispatcher.position().get();
        debug_assert!(from <= limit, "the index follows the dispatcher");
        let mut records = 0;
        let batch = follower.batch(from, limit, |record| {
            records += 1;
            self.index.put(record)
        })?;
        self.index.write_out()?;
        let to = match batch {
            Batch::Until(to) if to > from => to,
            // The dispatcher came past this place, or it lies in a file that is missing: there is nothing in it for the
            // index either.
            Batch::Until(_) | Batch::Stuck { .. } => self
                .log
                .next_file_start(PhysicalOffset(from))
                .get()
                .min(limit),
        };
        add(&self.log.counters.indexed_records, records);
        self.position.store(to, Ordering::Release);
        self.progress.notify();
        Ok(())
    }
}
