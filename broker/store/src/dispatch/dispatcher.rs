//! The thread that fills consume queues (store spec 4.3).
//!
//! It sleeps until the log grew, takes a batch of records, adds their entries to their queues, and then tells the
//! listener, message by message, if anyone waits. Whoever appended little may do the same on its own thread
//! ([`Dispatcher::dispatch_here`]): a lone message then reaches who waits for it without the wake of another thread.
//!
//! Not here: what a queue does with an entry (`consume_queue`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::follower::{Batch, Follower};
use crate::commit_log::CommitLog;
use crate::consume_queue::{ConsumeQueue, ConsumeQueues, Pushed};
use crate::counters::add;
use crate::damage::DamageList;
use crate::delay_level::DelayLevels;
use crate::dispatch_record::DispatchRecord;
use crate::error::{Refusal, StoreError};
use crate::gate::Gate;
use crate::offset::{PhysicalOffset, QueueOffset};
use crate::signal::Signal;

/// Pause before something that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Waits are ended by signals; this only bounds what a lost one could cost.
const LONG: Duration = Duration::from_secs(3600);

/// More bytes of the log than this are for the dispatch thread.
const HERE_BYTES: i64 = 128 * 1024;
/// Batches one after the other that are dispatched on a thread with other things to do.
const HERE_BATCHES: usize = 4;

/// A message that consumers can read now.
#[derive(Clone, Copy, Debug)]
pub struct Dispatched<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its queue.
    pub queue_id: i32,
    /// The queue's maximum as this message made it: its own number plus one.
    pub new_max_offset: QueueOffset,
    /// Hash of its tags, or its delivery time.
    pub tags_code: i64,
    /// When it was stored, ms.
    pub store_timestamp: i64,
    /// Its property text as stored.
    pub properties: &'a [u8],
}

/// Who wants to know of new messages: held pulls.
pub trait DispatchListener: Send + Sync {
    /// Whether anyone waits at all; asked once a batch, after its entries are readable. Who begins to wait must look at
    /// the queue's maximum after that, or may miss a message.
    fn is_waiting(&self) -> bool;

    /// A message became readable. Called on the dispatch thread or a sender's: it must be quick.
    fn dispatched(&self, message: &Dispatched<'_>);

    /// All messages of a batch were told: the point to wake who was found.
    fn batch_end(&self) {}
}

/// Computes the bloom filter for a message's extension unit (`enableCalcFilterBitMap`).
pub trait FilterBits: Send + Sync {
    /// Appends the bits, or nothing.
    fn bits_of(&self, record: &DispatchRecord<'_>, out: &mut Vec<u8>);
}

/// What is shared between the dispatch thread and everyone else.
pub struct Dispatcher {
    log: Arc<CommitLog>,
    queues: Arc<ConsumeQueues>,
    gate: Arc<Gate>,
    listener: RwLock<Option<Arc<dyn DispatchListener>>>,
    filter_bits: RwLock<Option<Arc<dyn FilterBits>>>,
    position: AtomicI64,
    /// Store time of the last record below `position`.
    store_timestamp: AtomicI64,
    progress: Signal,
    stop: AtomicBool,
    /// Whoever holds it dispatches; `position` changes under it only.
    pass: Mutex<Pass>,
    trouble: Mutex<Option<Arc<Refusal>>>,
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Dispatcher")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Dispatcher {
    /// Goes on at the log's end: what recovery found is in the queues.
    pub(crate) fn new(
        log: Arc<CommitLog>,
        queues: Arc<ConsumeQueues>,
        damage: Arc<DamageList>,
        delay_levels: Arc<DelayLevels>,
        gate: Arc<Gate>,
    ) -> Self {
        let end = log.max_offset().get();
        let follower = Follower::new(
            Arc::clone(&log),
            Arc::clone(&damage),
            Arc::clone(&delay_levels),
            end,
        );
        Self {
            position: AtomicI64::new(end),
            pass: Mutex::new(Pass {
                follower,
                recent: RecentQueues::default(),
                bits: Vec::new(),
            }),
            store_timestamp: AtomicI64::new(log.last_store_timestamp()),
            log,
            queues,
            gate,
            listener: RwLock::default(),
            filter_bits: RwLock::default(),
            progress: Signal::default(),
            stop: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// Who is told of new messages from now on.
    pub fn set_listener(&self, listener: Option<Arc<dyn DispatchListener>>) {
        *self.listener.write() = listener;
    }

    /// Who computes the bits of extension units from now on.
    pub fn set_filter_bits(&self, bits: Option<Arc<dyn FilterBits>>) {
        *self.filter_bits.write() = bits;
    }

    /// Records below are in their queues.
    #[must_use]
    pub fn position(&self) -> PhysicalOffset {
        PhysicalOffset(self.position.load(Ordering::Acquire))
    }

    /// Store time of the last record that is in its queue, ms.
    #[must_use]
    pub fn store_timestamp(&self) -> i64 {
        self.store_timestamp.load(Ordering::Acquire)
    }

    /// Told whenever [`Dispatcher::position`] grew.
    #[must_use]
    pub fn progress(&self) -> &Signal {
        &self.progress
    }

    /// Why it cannot go on right now, if it cannot. It tries again by itself.
    #[must_use]
    pub fn trouble(&self) -> Option<Arc<Refusal>> {
        self.trouble.lock().clone()
    }

    /// Waits until all below `end` is in the queues, at most `limit`. Gives whether it is.
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
        self.log.grown().notify();
        self.progress.notify();
        // Who dispatches here has ended too.
        drop(self.pass.lock());
    }

    /// Dispatches on this thread what was just appended, if it is little, and leaves it to the dispatch thread if it
    /// is more or cannot be done. Whoever dispatches already does it too: this never waits for another thread.
    pub fn dispatch_here(&self) {
        for _ in 0..HERE_BATCHES {
            // What was appended must be visible before the lock is looked at: who holds it looks at the log again
            // after it has let go of it.
            fence(Ordering::SeqCst);
            let Some(mut pass) = self.pass.try_lock() else {
                return;
            };
            let before = self.position.load(Ordering::Relaxed);
            let limit = self.log.dispatch_limit().get();
            if limit <= before || self.is_stopped() {
                return;
            }
            if limit - before > HERE_BYTES {
                break;
            }
            match self.batch(&mut pass, before, limit) {
                Ok(Batch::Until(end)) if end > before => {}
                Ok(_) | Err(_) => break,
            }
            drop(pass);
            fence(Ordering::SeqCst);
            if !self.is_behind() {
                return;
            }
        }
        self.log.grown().notify();
    }

    fn is_behind(&self) -> bool {
        self.log.dispatch_limit().get() > self.position.load(Ordering::Relaxed)
    }

    /// The thread's work.
    pub(crate) fn run(&self) {
        loop {
            self.log
                .grown()
                .wait(LONG, || self.is_behind() || self.is_stopped());
            if self.is_stopped() {
                return;
            }
            let (before, limit, batch) = {
                let mut pass = self.pass.lock();
                let before = self.position.load(Ordering::Relaxed);
                let limit = self.log.dispatch_limit();
                if limit.get() <= before {
                    continue;
                }
                let batch = self.batch(&mut pass, before, limit.get());
                (before, limit, batch)
            };
            match batch {
                Ok(Batch::Until(end)) if end > before => self.set_trouble(None),
                // The rest of a record is still to come.
                Ok(Batch::Until(_)) => {
                    let grown = || self.log.dispatch_limit() > limit || self.is_stopped();
                    self.log.grown().wait(LONG, grown);
                }
                Ok(Batch::Stuck { at, reason }) => {
                    self.set_trouble(Some(format!(
                        "no record at offset {at} of the commit log: {reason}"
                    )));
                    self.pause();
                }
                Err(error) => {
                    self.set_trouble(Some(error.to_string()));
                    self.pause();
                }
            }
        }
    }

    fn pause(&self) {
        self.log.grown().wait(RETRY, || self.is_stopped());
    }

    /// While messages cannot be dispatched no more are taken: nobody could read them.
    fn set_trouble(&self, reason: Option<String>) {
        let mut trouble = self.trouble.lock();
        if trouble.as_ref().map(|t| &t.reason) == reason.as_ref() {
            return;
        }
        *trouble = reason.map(|reason| {
            tracing::error!(reason, "messages cannot be dispatched; trying on");
            let path = self.queues.folder().to_path_buf();
            Arc::new(Refusal {
                path,
                reason,
                until_restart: false,
            })
        });
        if trouble.is_none() {
            tracing::info!("messages are dispatched again");
        }
        self.gate.set_dispatch_trouble(trouble.clone());
    }

    /// Dispatches one batch. After an error the batch is done again from its start: queues know what they have.
    fn batch(&self, pass: &mut Pass, from: i64, limit: i64) -> Result<Batch, StoreError> {
        let begun = Instant::now();
        let (mut timestamp, mut messages) = (0, 0);
        let filter_bits = self.filter_bits.read().clone();
        let Pass {
            follower,
            recent,
            bits,
        } = pass;
        let batch = follower.batch(from, limit, |record| {
            timestamp = record.store_timestamp;
            if !record.is_consumable() {
                return Ok(());
            }
            messages += 1;
            bits.clear();
            if let Some(filter_bits) = &filter_bits {
                filter_bits.bits_of(record, bits);
            }
            enter(&self.queues, recent, record, bits, |_| 0)
        });
        if let Ok(Batch::Until(to) | Batch::Stuck { at: to, .. }) = batch {
            self.advance(from, to, timestamp, messages);
            if messages > 0 {
                self.tell(follower, from, to);
            }
            // Those who wait for a message come first, the index behind them.
            self.progress.notify();
        }
        add(&self.log.counters.dispatch_batches, 1);
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        add(&self.log.counters.dispatch_nanos, nanos);
        batch
    }

    fn advance(&self, from: i64, to: i64, timestamp: i64, messages: u64) {
        debug_assert!(
            from <= to && to <= self.log.max_offset().get(),
            "dispatch follows the log"
        );
        if timestamp != 0 {
            self.store_timestamp.store(timestamp, Ordering::Release);
        }
        add(&self.log.counters.dispatched_messages, messages);
        self.position.store(to, Ordering::Release);
    }

    /// Tells the listener of the messages in `[from, to)`.
    fn tell(&self, follower: &mut Follower, from: i64, to: i64) {
        let Some(listener) = self.listener.read().clone() else {
            return;
        };
        if !listener.is_waiting() {
            return;
        }
        follower.set_again(true);
        let told = follower.batch(from, to, |record| {
            if record.is_consumable() && !record.damaged {
                listener.dispatched(&Dispatched {
                    topic: record.topic,
                    queue_id: record.queue_id,
                    new_max_offset: record.queue_offset.plus(1),
                    tags_code: record.tags_code,
                    store_timestamp: record.store_timestamp,
                    properties: record.properties,
                });
            }
            Ok(())
        });
        follower.set_again(false);
        if let Err(error) = told {
            tracing::warn!(%error, "held pulls were not told of new messages; they find them when their time is over");
        }
        listener.batch_end();
    }
}

/// What is kept from batch to batch.
struct Pass {
    follower: Follower,
    recent: RecentQueues,
    bits: Vec<u8>,
}

/// Adds a record's entry to its queue. One that gave the record's number to an older one begins again with it, if its last
/// record ends no later than `anew_below` says for the topic.
pub(super) fn enter(
    queues: &ConsumeQueues,
    recent: &mut RecentQueues,
    record: &DispatchRecord<'_>,
    bits: &[u8],
    anew_below: impl Fn(&str) -> i64,
) -> Result<(), StoreError> {
    loop {
        let queue = recent.find(queues, record.topic, record.queue_id);
        match queue.push(record, bits)? {
            Pushed::Added | Pushed::Present => {}
            Pushed::NumberTaken => {
                if queue.begin_again_after(anew_below(record.topic))? {
                    continue;
                }
            }
            Pushed::Refused => tracing::error!(
                topic = record.topic,
                queue = record.queue_id,
                number = record.queue_offset.get(),
                at = record.physical_offset.get(),
                "a record whose number in its queue cannot be right: it gets no entry"
            ),
            Pushed::Deleted => {
                // Its files are gone; whoever deleted it may not have come to take it out of the table.
                queues.leave_out(&Arc::clone(queue));
                recent.forget();
                continue;
            }
        }
        return Ok(());
    }
}

/// Queues of the last records: the next one's is often among them, and is found here for less than in the table.
#[derive(Debug, Default)]
pub(super) struct RecentQueues {
    places: Vec<Option<Arc<ConsumeQueue>>>,
}

impl RecentQueues {
    /// Eight bytes each: a broker with some thousand busy queues still finds most of them here.
    const PLACES: usize = 4096;

    /// The queue, made if there is none.
    fn find(&mut self, queues: &ConsumeQueues, topic: &str, queue_id: i32) -> &Arc<ConsumeQueue> {
        self.places.resize(Self::PLACES, None);
        // Topics of a broker differ at the end, queues by number.
        let ends = topic
            .bytes()
            .rev()
            .take(4)
            .fold(topic.len(), |sum, byte| sum * 31 + usize::from(byte));
        let place = &mut self.places[(ends * 31 + queue_id as usize) % Self::PLACES];
        let known = place
            .take()
            .filter(|q| q.queue_id() == queue_id && q.topic() == topic);
        place.insert(known.unwrap_or_else(|| queues.get_or_create(topic, queue_id)))
    }

    /// A queue was deleted.
    fn forget(&mut self) {
        self.places.clear();
    }
}
