//! The store as the broker sees it: log, queues, index, their threads, and reads.
//!
//! Opening: [`LogStore::open`] (which recovers the log, and queues and index with it) → threads. Closing, in reverse: no
//! more appends → log flushed → dispatcher and indexer caught up and ended → queues and index flushed → log closed.
//!
//! Threads: `store-dispatch` (log → queues), `store-index` (log → index), `store-keeper` (queues and index → disk),
//! `store-cleaner` (old files), and those of [`LogStore`].

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::append::Appended;
use crate::append::message::{AppendMessage, AppendOutcome};
use crate::clock::StoreClock;
use crate::commit_log::CommitLog;
use crate::config::StoreConfig;
use crate::consume_queue::ConsumeQueues;
use crate::delay_level::DelayLevels;
use crate::dispatch::derived::DerivedData;
use crate::dispatch::indexer::Indexer;
use crate::dispatch::keeper::Keeper;
use crate::dispatch::{DispatchListener, Dispatcher, FilterBits};
use crate::error::StoreError;
use crate::flush::FlushWaiter;
use crate::index::Index;
use crate::io::{Disk, RealDisk};
use crate::log_store::LogStore;
use crate::offset::{PhysicalOffset, QueueOffset};
use crate::read::{QueryResult, Reader};
use crate::recovery::RecoveryProgress;
use crate::retention::Cleaner;

/// How long closing waits for queues, and then for the index, to catch up with the log. What is missing then is made up
/// at the next start.
const CATCH_UP: Duration = Duration::from_secs(5);

/// How long a query by key waits for the index to have what was dispatched before it.
const INDEX_LAG: Duration = Duration::from_millis(500);

/// Topics whose queues stay although no topic table has them.
const KEPT_TOPICS: [&str; 2] = ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC"];

/// Topics of light queues begin so; they stay too.
const LIGHT_QUEUE: &str = "%LMQ%";

/// An open store. Dropped without [`Store::close`] it leaves what a crash would leave.
#[derive(Debug)]
pub struct Store {
    log_store: LogStore,
    queues: Arc<ConsumeQueues>,
    dispatcher: Arc<Dispatcher>,
    indexer: Option<Arc<Indexer>>,
    keeper: Arc<Keeper>,
    cleaner: Arc<Cleaner>,
    reader: Arc<Reader>,
    /// Topics are deleted by one at a time.
    deletion: Mutex<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Store {
    /// Opens the store that lies under `config.store_path_root_dir`, or makes a new one there.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process has it; otherwise what stands in the way.
    pub fn open(
        config: &StoreConfig,
        progress: impl FnMut(RecoveryProgress),
    ) -> Result<Self, StoreError> {
        Self::open_on(config, Arc::new(RealDisk), StoreClock::System, progress)
    }

    /// As [`Store::open`], on another disk and by another clock.
    ///
    /// # Errors
    /// As there.
    pub fn open_on(
        config: &StoreConfig,
        disk: Arc<dyn Disk>,
        clock: StoreClock,
        progress: impl FnMut(RecoveryProgress),
    ) -> Result<Self, StoreError> {
        let queues = Arc::new(ConsumeQueues::new(config, Arc::clone(&disk)));
        let index = Arc::new(Index::new(config, Arc::clone(&disk)));
        let mut derived = DerivedData::new(&queues, &index);
        let log_store = LogStore::open(config, disk, clock.clone(), &mut derived, progress)?;
        let log = Arc::clone(log_store.log());
        // Without any file the log begins where it ends.
        let log_min = match log.min_offset().get() {
            min @ 0.. => min,
            _ => log.max_offset().get(),
        };
        queues.raise_min(log_min)?;
        let (damage, gate) = (Arc::clone(log_store.damage()), Arc::clone(log_store.gate()));
        // Checked when the log was opened.
        let delay_levels =
            Arc::new(DelayLevels::parse(&config.message_delay_level).unwrap_or_default());
        let dispatcher = Arc::new(Dispatcher::new(
            Arc::clone(&log),
            Arc::clone(&queues),
            Arc::clone(&damage),
            Arc::clone(&delay_levels),
            Arc::clone(&gate),
        ));
        let indexer = config.message_index_enable.then(|| {
            let (log, index) = (Arc::clone(&log), Arc::clone(&index));
            Arc::new(Indexer::new(
                log,
                index,
                Arc::clone(&dispatcher),
                Arc::clone(&damage),
                delay_levels,
            ))
        });
        let keeper = Keeper::new(
            config,
            Arc::clone(&queues),
            Arc::clone(&index),
            Arc::clone(&dispatcher),
            Arc::clone(log_store.checkpoint()),
        );
        let cleaner = Cleaner::new(
            config,
            Arc::clone(&log),
            Arc::clone(&queues),
            Arc::clone(&index),
            gate,
            clock,
        );
        let reader = Reader::new(config, log, Arc::clone(&queues), index, damage);
        let store = Self {
            log_store,
            queues,
            dispatcher,
            indexer,
            keeper: Arc::new(keeper),
            cleaner: Arc::new(cleaner),
            reader: Arc::new(reader),
            deletion: Mutex::default(),
            threads: Mutex::default(),
        };
        store.start()?;
        Ok(store)
    }

    fn start(&self) -> Result<(), StoreError> {
        let mut threads = self.threads.lock();
        let dispatcher = Arc::clone(&self.dispatcher);
        threads.push(self.spawn("store-dispatch", move || dispatcher.run())?);
        if let Some(indexer) = self.indexer.clone() {
            threads.push(self.spawn("store-index", move || indexer.run())?);
        }
        let keeper = Arc::clone(&self.keeper);
        threads.push(self.spawn("store-keeper", move || keeper.run())?);
        let cleaner = Arc::clone(&self.cleaner);
        threads.push(self.spawn("store-cleaner", move || cleaner.run())?);
        Ok(())
    }

    fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle<()>, StoreError> {
        let spawned = std::thread::Builder::new().name(name.into()).spawn(work);
        spawned.map_err(|e| StoreError::io(self.queues.folder(), "start a thread", e))
    }

    /// The log: appending, flushing, what recovery found.
    #[must_use]
    pub fn log_store(&self) -> &LogStore {
        &self.log_store
    }

    /// The log's bytes.
    #[must_use]
    pub fn log(&self) -> &Arc<CommitLog> {
        self.log_store.log()
    }

    /// All queues.
    #[must_use]
    pub fn queues(&self) -> &Arc<ConsumeQueues> {
        &self.queues
    }

    /// Reads. May be kept as long as the store.
    #[must_use]
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// How far queues are, and whether they can go on.
    #[must_use]
    pub fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    /// How far the index is; `None` with `messageIndexEnable=false`.
    #[must_use]
    pub fn indexer(&self) -> Option<&Arc<Indexer>> {
        self.indexer.as_ref()
    }

    /// Deletion of old files.
    #[must_use]
    pub fn cleaner(&self) -> &Arc<Cleaner> {
        &self.cleaner
    }

    /// Takes over, at once, those settings that may change while the store is open: the longest message, the limits of
    /// reads, how often and from what on is flushed, how long a flush is waited for, what is deleted when, the marks of a
    /// full disk. All others stay as they were at the start.
    pub fn reconfigure(&self, config: &StoreConfig) {
        self.log_store.reconfigure(config);
        self.keeper.reconfigure(config);
        self.cleaner.reconfigure(config);
        self.reader.reconfigure(config);
    }

    /// See [`LogStore::append`].
    pub fn append(
        &self,
        messages: &[AppendMessage<'_>],
        outcomes: &mut Vec<AppendOutcome>,
    ) -> Appended {
        self.log_store.append(messages, outcomes)
    }

    /// After [`LogStore::append_untold`]: dispatches what was appended on this thread if it is little
    /// ([`Dispatcher::dispatch_here`]), and wakes who has to do the rest.
    pub fn dispatch_appended(&self) {
        self.log().appended_to_flush();
        self.dispatcher.dispatch_here();
    }

    /// See [`LogStore::append_blocking`].
    pub fn append_blocking(
        &self,
        messages: &[AppendMessage<'_>],
        outcomes: &mut Vec<AppendOutcome>,
    ) {
        self.log_store.append_blocking(messages, outcomes);
    }

    /// See [`LogStore::wait_flushed`].
    pub fn wait_flushed(&self, end: PhysicalOffset, waiter: Box<dyn FlushWaiter>) {
        self.log_store.wait_flushed(end, waiter);
    }

    /// Who is told of messages that became readable.
    pub fn on_dispatch(&self, listener: Option<Arc<dyn DispatchListener>>) {
        self.dispatcher.set_listener(listener);
    }

    /// Who computes the bits of extension units.
    pub fn set_filter_bits(&self, bits: Option<Arc<dyn FilterBits>>) {
        self.dispatcher.set_filter_bits(bits);
    }

    /// Messages by key: see [`Reader::query`]. Waits a little for the index to have what could be consumed before.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        max: usize,
        begin: i64,
        end: i64,
    ) -> Result<QueryResult, StoreError> {
        if let Some(indexer) = &self.indexer {
            indexer.wait_for(self.dispatcher.position(), INDEX_LAG);
        }
        self.reader.query(topic, key, max, begin, end)
    }

    /// Bytes of the log that are not in the queues yet.
    #[must_use]
    pub fn dispatch_behind_bytes(&self) -> i64 {
        (self.log().max_offset().get() - self.dispatcher.position().get()).max(0)
    }

    /// Deletes a topic's queues; its numbers start at 0 again. Gives how many queues there were. Once it returned they do
    /// not come back, not even after a power cut.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn delete_topic(&self, topic: &str) -> Result<usize, StoreError> {
        self.delete_topics(&[topic])
    }

    /// In this order: note that it begins → numbers from 0 → note where the new messages begin → files.
    fn delete_topics(&self, topics: &[&str]) -> Result<usize, StoreError> {
        let _one_at_a_time = self.deletion.lock();
        self.begin_deletion(topics)?;
        // Messages that come from here on are not meant: they have numbers from 0 and lie above.
        let forget = |topic: &&str| self.log_store.forget_topic(topic);
        let below: Vec<_> = topics.iter().map(forget).collect();
        // Nothing may say that messages below are deleted while a power cut could still put others there.
        self.log_store.flush()?;
        // What is still on its way to a queue would make it again.
        let all = below.iter().max().copied().unwrap_or(PhysicalOffset(0));
        self.dispatcher
            .wait_for(all.min(self.log().dispatch_limit()), CATCH_UP);
        let below = below.iter().map(|offset| offset.get());
        let topics: Vec<_> = topics.iter().copied().zip(below).collect();
        self.queues.delete_topics(&topics)
    }

    /// Has it on disk that the topics are being deleted, before the first message can begin their numbers anew: if a power
    /// cut takes that one and leaves the next, nothing in the log tells it from the old ones.
    fn begin_deletion(&self, topics: &[&str]) -> Result<(), StoreError> {
        self.log_store.flush()?;
        let from = self.log().flushed_offset();
        // So that a topic all of whose messages are on their way has queues.
        self.dispatcher
            .wait_for(from.min(self.log().dispatch_limit()), CATCH_UP);
        if !self.queues.begin_deletion(topics, from.get()) {
            return Ok(());
        }
        // A start believes the list of queues if the checkpoint says that queues were flushed since it was begun.
        let noted = self.keeper.flush_all();
        noted.inspect_err(|_| self.queues.call_off_deletion(topics))
    }

    /// Deletes the queues of all topics but those `in_use` (and those a store needs itself). Gives the topics.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn clean_unused_topics(
        &self,
        in_use: &HashSet<String>,
    ) -> Result<Vec<Box<str>>, StoreError> {
        let kept = |topic: &str| {
            in_use.contains(topic) || KEPT_TOPICS.contains(&topic) || topic.starts_with(LIGHT_QUEUE)
        };
        let unused: Vec<_> = self
            .queues
            .topics()
            .into_iter()
            .filter(|topic| !kept(topic))
            .collect();
        if !unused.is_empty() {
            let topics: Vec<_> = unused.iter().map(AsRef::as_ref).collect();
            self.delete_topics(&topics)?;
        }
        Ok(unused)
    }

    /// Deletes the queues all of whose messages are gone from the log; their numbers start at 0 again (the
    /// administrator's command; never done by itself). Gives topic and queue id of each.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn clean_expired_queues(&self) -> Result<Vec<(Box<str>, i32)>, StoreError> {
        let log_min = self.log().min_offset().get();
        let mut deleted = Vec::new();
        for queue in self.queues.all() {
            let (topic, queue_id) = (queue.topic(), queue.queue_id());
            let max = queue.max_offset();
            if topic == KEPT_TOPICS[0] || max == 0 || queue.physical_end() > log_min {
                continue;
            }
            // A message that is in the log but not in the queue yet keeps the queue.
            let Some(below) = self
                .log_store
                .forget_queue(topic, queue_id, QueueOffset(max))
            else {
                continue;
            };
            self.queues.delete_queue(topic, queue_id, below.get())?;
            deleted.push((topic.into(), queue_id));
        }
        Ok(deleted)
    }

    /// Brings queues and index to disk as far as they are, and notes it in the checkpoint; a thread does so from time to
    /// time.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn flush_queues(&self) -> Result<(), StoreError> {
        self.keeper.flush_all()
    }

    /// Takes no more messages, makes all durable and leaves a store that the next start need not repair.
    ///
    /// # Errors
    /// When something could not be made durable: then the next start looks closer.
    pub fn close(&self) -> Result<(), StoreError> {
        // What that could not do is tried again at the end.
        let _ = self.log_store.stop_appends();
        let flushed = self.log_store.flush();
        self.dispatcher
            .wait_for(self.log().dispatch_limit(), CATCH_UP);
        if let Some(indexer) = &self.indexer {
            indexer.wait_for(self.dispatcher.position(), CATCH_UP);
        }
        self.stop_threads();
        flushed?;
        self.keeper.flush_all()?;
        self.log_store.close()
    }

    fn stop_threads(&self) {
        self.dispatcher.stop();
        self.cleaner.stop();
        self.keeper.stop();
        if let Some(indexer) = &self.indexer {
            indexer.stop();
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop_threads();
    }
}
