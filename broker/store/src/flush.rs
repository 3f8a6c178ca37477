//! Making the log durable (store spec 3.7): in the background, or for those who wait, many with one sync.
//!
//! *Truth on failure.* A sync that failed is never retried as if nothing had happened: pages it lost may look clean. All
//! who wait hear that it failed, the store takes no messages until a restart, and `flushed` stays where it was.
//!
//! *Groups.* Those who were answered together tend to come back together. So after a sync the thread waits for as many as
//! it answered, for at most half the time a sync takes: else every other sync would find only the quickest of them, and all
//! the others would wait for two. Who comes alone, or when nothing was synced just before, waits for nobody.
//!
//! *Time.* A thread of its own tells waiters whose time is up that the sync is still running; it does not depend on the
//! thread that hangs in it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::checkpoint::Checkpoint;
use crate::commit_log::CommitLog;
use crate::config::{FlushDiskType, StoreConfig};
use crate::counters::add;
use crate::error::{Refusal, StoreError};
use crate::gate::Gate;
use crate::offset::PhysicalOffset;
use crate::signal::Signal;

/// `flushCommitLogLeastPages` counts these.
const PAGE: i64 = 4096;
/// The checkpoint is written when it is older than this.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// Gathering takes at most this part of the time of a sync.
const GATHER_PART: u32 = 2;
/// The thread that gathers is awake for so long, since waking it again would take as long; then it sleeps, so that those
/// who are to come have the processor.
const GATHER_AWAKE: Duration = Duration::from_micros(50);
/// Gathering takes at most this long.
const GATHER_MOST: Duration = Duration::from_micros(500);

/// What a waiter hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlushOutcome {
    /// It is on disk.
    Flushed,
    /// `syncFlushTimeout` is over and the flush still runs: it may or may not be kept.
    TimedOut,
    /// The flush failed: nothing is known about it.
    Failed(Arc<Refusal>),
}

/// Someone who wants to know when bytes are on disk. Called once, on a thread of the store: it must be quick.
pub trait FlushWaiter: Send {
    /// The answer.
    fn done(self: Box<Self>, outcome: FlushOutcome);
}

impl<F: FnOnce(FlushOutcome) + Send> FlushWaiter for F {
    fn done(self: Box<Self>, outcome: FlushOutcome) {
        self(outcome);
    }
}

struct Waiting {
    end: i64,
    deadline: Instant,
    waiter: Box<dyn FlushWaiter>,
}

#[derive(Default)]
struct Queue {
    /// In the order of their deadlines.
    waiting: VecDeque<Waiting>,
    /// The thread of the deadlines sleeps until it is called.
    deadlines_rest: bool,
    stop: bool,
}

/// Memory of the flush in progress.
#[derive(Default)]
struct Round {
    done: Vec<Waiting>,
    left: VecDeque<Waiting>,
}

/// Settings that may change while it runs.
#[derive(Clone, Copy)]
struct Settings {
    timed: bool,
    interval: Duration,
    thorough: Duration,
    least_bytes: i64,
    timeout: Duration,
}

impl Settings {
    fn of(config: &StoreConfig) -> Self {
        Self {
            timed: config.flush_commit_log_timed,
            interval: Duration::from_millis(config.flush_interval_commit_log_ms.max(1)),
            thorough: Duration::from_millis(config.flush_commit_log_thorough_interval_ms),
            least_bytes: i64::try_from(config.flush_commit_log_least_pages)
                .unwrap_or(0)
                .saturating_mul(PAGE),
            timeout: Duration::from_millis(config.sync_flush_timeout_ms),
        }
    }
}

/// Flushes the log of one store.
pub(crate) struct Flusher {
    log: Arc<CommitLog>,
    gate: Arc<Gate>,
    checkpoint: Arc<Checkpoint>,
    sync: bool,
    settings: RwLock<Settings>,
    /// Counts changes of the settings.
    changes: AtomicUsize,
    queue: Mutex<Queue>,
    /// Length of the queue, for a look without its lock.
    waiting: AtomicUsize,
    /// So many must wait for the flush thread to be called while it gathers.
    gather: AtomicUsize,
    gathered: Signal,
    stop: AtomicBool,
    /// For the thread of the deadlines: the first deadline changed, or the store stops.
    deadlines: Condvar,
    /// One flush at a time.
    flushing: Mutex<Round>,
}

impl fmt::Debug for Flusher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Flusher")
            .field("waiting", &self.queue.lock().waiting.len())
            .finish_non_exhaustive()
    }
}

impl Flusher {
    pub(crate) fn new(
        log: Arc<CommitLog>,
        gate: Arc<Gate>,
        checkpoint: Arc<Checkpoint>,
        config: &StoreConfig,
    ) -> Self {
        Self {
            log,
            gate,
            checkpoint,
            sync: config.flush_disk_type == FlushDiskType::SyncFlush,
            settings: RwLock::new(Settings::of(config)),
            changes: AtomicUsize::new(0),
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            gather: AtomicUsize::new(usize::MAX),
            gathered: Signal::default(),
            stop: AtomicBool::new(false),
            deadlines: Condvar::new(),
            flushing: Mutex::default(),
        }
    }

    fn settings(&self) -> Settings {
        *self.settings.read()
    }

    /// Takes over changed settings, at once.
    pub(crate) fn reconfigure(&self, config: &StoreConfig) {
        let settings = Settings::of(config);
        *self.settings.write() = settings;
        self.log.set_flush_on_append(self.sync || !settings.timed);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.log.flush_wanted().notify();
        // Under the lock, so that the thread is not on its way to sleep by the old settings.
        let _queue = self.queue.lock();
        self.deadlines.notify_all();
    }

    /// Starts the threads.
    pub(crate) fn start(self: &Arc<Self>) -> Result<Vec<JoinHandle<()>>, StoreError> {
        let flush = Arc::clone(self);
        let deadlines = Arc::clone(self);
        let failed = |error| StoreError::io("store-flush", "start thread", error);
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        Ok(vec![
            thread("store-flush")
                .spawn(move || flush.run())
                .map_err(failed)?,
            thread("store-deadline")
                .spawn(move || deadlines.run_deadlines())
                .map_err(failed)?,
        ])
    }

    /// Ends the threads. Waiters that are left hear nothing until [`Flusher::abandon`].
    pub(crate) fn stop(&self) {
        self.queue.lock().stop = true;
        self.stop.store(true, Ordering::Release);
        self.log.flush_wanted().notify();
        self.gathered.notify();
        self.deadlines.notify_all();
    }

    /// Answers those who still wait: with the failure, or as timed out.
    pub(crate) fn abandon(&self) {
        let waiting = std::mem::take(&mut self.queue.lock().waiting);
        let outcome = self
            .gate
            .failure()
            .map_or(FlushOutcome::TimedOut, FlushOutcome::Failed);
        waiting
            .into_iter()
            .for_each(|waiting| waiting.waiter.done(outcome.clone()));
    }

    /// Calls `waiter` once all below `end` is on disk, or the flush failed, or the time is up. At once, on this thread, if
    /// the answer is known.
    pub(crate) fn wait_flushed(&self, end: PhysicalOffset, waiter: Box<dyn FlushWaiter>) {
        let mut queue = self.queue.lock();
        let known = if self.log.flushed_offset() >= end {
            Some(FlushOutcome::Flushed)
        } else {
            self.gate.failure().map(FlushOutcome::Failed)
        };
        if let Some(outcome) = known {
            drop(queue);
            return waiter.done(outcome);
        }
        let deadline = Instant::now() + self.settings().timeout;
        // At the end, unless the time limit has become shorter.
        let place = queue
            .waiting
            .iter()
            .rposition(|waiting| waiting.deadline <= deadline)
            .map_or(0, |last| last + 1);
        let waiting = Waiting {
            end: end.get(),
            deadline,
            waiter,
        };
        queue.waiting.insert(place, waiting);
        let count = queue.waiting.len();
        self.waiting.store(count, Ordering::Release);
        let first = place == 0 && count > 1;
        let call = std::mem::take(&mut queue.deadlines_rest) || first;
        drop(queue);
        self.log.flush_wanted().notify();
        if count >= self.gather.load(Ordering::Acquire) {
            self.gathered.notify();
        }
        if call {
            self.deadlines.notify_one();
        }
    }

    /// Makes all that is published now durable. On the caller's thread.
    ///
    /// # Errors
    /// The failure, which is told to all who wait, and shuts the store.
    pub(crate) fn flush(&self) -> Result<(), Arc<Refusal>> {
        self.flush_and_answer().map(|_| ())
    }

    /// Gives how many waiters were answered.
    fn flush_and_answer(&self) -> Result<usize, Arc<Refusal>> {
        let mut round = self.flushing.lock();
        let flushed = self.flush_published();
        let answered = self.answer(&flushed, &mut round);
        flushed.map(|()| answered)
    }

    fn flush_published(&self) -> Result<(), Arc<Refusal>> {
        // After a failure nothing is known, and another sync would say that all is well.
        if let Some(failure) = self.gate.failure() {
            return Err(failure);
        }
        let store_timestamp = self.log.last_store_timestamp();
        let (from, to) = (self.log.flushed_offset().get(), self.log.max_offset().get());
        if from >= to {
            return Ok(());
        }
        let counters = &self.log.counters;
        let begun = Instant::now();
        for file in self.log.files_in(from, to) {
            file.map_for_reading(from, to);
            if let Err(error) = file.file.sync_data() {
                add(&counters.flush_failures, 1);
                return Err(self.gate.fail(&file.path, format!("sync failed: {error}")));
            }
        }
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        add(&counters.flushes, 1);
        add(&counters.flush_nanos, nanos);
        add(
            &counters.flushed_bytes,
            u64::try_from(to - from).unwrap_or(0),
        );
        counters.flush_nanos_max.fetch_max(nanos, Ordering::Relaxed);
        self.checkpoint.set_flushed(to, store_timestamp);
        self.log.set_flushed(to);
        Ok(())
    }

    /// Tells those who waited for what is flushed now; all of them after a failure. Gives how many.
    fn answer(&self, flushed: &Result<(), Arc<Refusal>>, round: &mut Round) -> usize {
        let end = self.log.flushed_offset().get();
        {
            let mut queue = self.queue.lock();
            for waiting in queue.waiting.drain(..) {
                if flushed.is_err() || waiting.end <= end {
                    round.done.push(waiting);
                } else {
                    round.left.push_back(waiting);
                }
            }
            std::mem::swap(&mut queue.waiting, &mut round.left);
            self.waiting.store(queue.waiting.len(), Ordering::Release);
        }
        let answered = round.done.len();
        add(&self.log.counters.flush_waiters, answered as u64);
        for waiting in round.done.drain(..) {
            waiting.waiter.done(match flushed {
                Err(failure) if waiting.end > end => FlushOutcome::Failed(Arc::clone(failure)),
                _ => FlushOutcome::Flushed,
            });
        }
        answered
    }

    fn run(&self) {
        let mut last_flush = Instant::now();
        let mut last_checkpoint = Instant::now();
        let (mut answered, mut sync_time) = (0, Duration::ZERO);
        while !self.stop.load(Ordering::Acquire) {
            self.gather(answered, sync_time);
            answered = 0;
            let (interval, changes) = (
                self.settings().interval,
                self.changes.load(Ordering::Acquire),
            );
            self.log.flush_wanted().wait(interval, || {
                self.is_wanted() || self.changes.load(Ordering::Acquire) != changes
            });
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            if self.is_wanted() || self.is_due(last_flush.elapsed()) {
                last_flush = Instant::now();
                answered = self.flush_and_answer().unwrap_or(0);
                sync_time = last_flush.elapsed();
            }
            if last_checkpoint.elapsed() >= CHECKPOINT_INTERVAL {
                last_checkpoint = Instant::now();
                if let Err(error) = self.checkpoint.write_if_changed() {
                    tracing::warn!(%error, "the checkpoint could not be written");
                }
            }
        }
    }

    /// Waits a little for as many as were answered together, after a sync that took `sync_time`.
    fn gather(&self, answered: usize, sync_time: Duration) {
        if answered == 0 {
            return;
        }
        let limit = (sync_time / GATHER_PART).min(GATHER_MOST);
        let all_here = || {
            self.waiting.load(Ordering::Acquire) >= answered || self.stop.load(Ordering::Acquire)
        };
        let begun = Instant::now();
        while begun.elapsed() < GATHER_AWAKE.min(limit) {
            if all_here() {
                return;
            }
            std::hint::spin_loop();
        }
        self.gather.store(answered, Ordering::Release);
        self.gathered.wait(limit, all_here);
        self.gather.store(usize::MAX, Ordering::Release);
    }

    /// Whether to flush now: someone waits, or nothing is to stay unflushed.
    fn is_wanted(&self) -> bool {
        let failed = self.gate.failure().is_some();
        let settings = self.settings();
        let at_once = || match (self.sync, settings.timed) {
            (true, _) => self.unflushed() > 0,
            (false, true) => false,
            (false, false) => self.unflushed() >= settings.least_bytes.max(1),
        };
        self.stop.load(Ordering::Acquire)
            || self.waiting.load(Ordering::Acquire) > 0
            || (!failed && at_once())
    }

    /// Whether to flush after the interval though nobody asked.
    fn is_due(&self, since_last: Duration) -> bool {
        let (unflushed, settings) = (self.unflushed(), self.settings());
        unflushed > 0 && (unflushed >= settings.least_bytes || since_last >= settings.thorough)
    }

    fn unflushed(&self) -> i64 {
        self.log.max_offset().get() - self.log.flushed_offset().get()
    }

    fn run_deadlines(&self) {
        let mut queue = self.queue.lock();
        while !queue.stop {
            let now = Instant::now();
            let overdue = queue
                .waiting
                .partition_point(|waiting| waiting.deadline <= now);
            if overdue > 0 {
                let late: Vec<_> = queue.waiting.drain(..overdue).collect();
                self.waiting.store(queue.waiting.len(), Ordering::Release);
                drop(queue);
                add(&self.log.counters.flush_timeouts, late.len() as u64);
                late.into_iter()
                    .for_each(|waiting| waiting.waiter.done(FlushOutcome::TimedOut));
                queue = self.queue.lock();
                continue;
            }
            match queue.waiting.front().map(|waiting| waiting.deadline) {
                Some(deadline) => {
                    self.deadlines.wait_until(&mut queue, deadline);
                }
                // Who comes while it sleeps has a later deadline; only after a while of nothing does it need to be called.
                None => {
                    let timed_out = self
                        .deadlines
                        .wait_for(&mut queue, self.settings().timeout)
                        .timed_out();
                    if timed_out && queue.waiting.is_empty() && !queue.stop {
                        queue.deadlines_rest = true;
                        self.deadlines.wait(&mut queue);
                        queue.deadlines_rest = false;
                    }
                }
            }
        }
    }
}
