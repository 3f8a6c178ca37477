//! The log of an open store: opening it, appending, flushing, closing. [`crate`]'s facade puts queues, index and reads
//! beside it.
//!
//! Opening: lock → checkpoint, `abort` → files → recovery → cut behind the end → sync → threads → `abort`. Closing, in
//! reverse: gate shut → flush → threads → checkpoint → spare file removed → `abort` removed → lock.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::append::message::{AppendMessage, AppendOutcome};
use crate::append::{Appended, Appender, ReplicaAppended, Tell};
use crate::checkpoint::Checkpoint;
use crate::clock::StoreClock;
use crate::commit_log::CommitLog;
use crate::commit_log::ahead::{Ahead, RoomTicket};
use crate::commit_log::file::LogFile;
use crate::commit_log::folders::LogFolders;
use crate::config::{StoreConfig, StoreRole};
use crate::counters::Counters;
use crate::damage::DamageList;
use crate::delay_level::DelayLevels;
use crate::error::{AppendError, Refusal, StoreError};
use crate::flush::{FlushWaiter, Flusher};
use crate::gate::Gate;
use crate::io::Disk;
use crate::offset::{PhysicalOffset, QueueOffset};
use crate::recovery::scan::Scan;
use crate::recovery::{Derived, RecoveryProgress, RecoveryReport};
use crate::region::RegionWriter;

/// The log of a store, open. Dropped without [`LogStore::close`] it leaves what a crash would leave.
#[derive(Debug)]
pub struct LogStore {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    log: Arc<CommitLog>,
    appender: Appender,
    ahead: Arc<Ahead>,
    flusher: Arc<Flusher>,
    gate: Arc<Gate>,
    checkpoint: Arc<Checkpoint>,
    damage: Arc<DamageList>,
    counters: Arc<Counters>,
    report: RecoveryReport,
    next_file_timeout: Duration,
    ahead_threads: Mutex<Vec<JoinHandle<()>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<Box<dyn Any + Send + Sync>>>,
}

impl LogStore {
    /// Opens, recovering first. `derived` is loaded, it is given the records it lacks, and cut where the log ends.
    ///
    /// # Errors
    /// Nothing was changed if the store is locked, or the configuration does not fit the files.
    pub fn open(
        config: &StoreConfig,
        disk: Arc<dyn Disk>,
        clock: StoreClock,
        derived: &mut dyn Derived,
        mut progress: impl FnMut(RecoveryProgress),
    ) -> Result<Self, StoreError> {
        config.check()?;
        let delay_levels = DelayLevels::parse(&config.message_delay_level).map_err(|piece| {
            StoreError::Config {
                key: "messageDelayLevel",
                value: config.message_delay_level.clone(),
                reason: format!("'{piece}' is no number followed by s, m, h or d"),
            }
        })?;
        let root = config.store_path_root_dir.clone();
        let lock = Self::lock(&*disk, &root)?;
        let folders = LogFolders::of(config);
        for folder in folders.writable() {
            disk.create_folder(folder)
                .map_err(|error| StoreError::io(folder, "create folder", error))?;
        }
        let clean = !disk.exists(&root.join("abort"));
        let checkpoint = Checkpoint::load(&*disk, &root)?;
        let size = config.mapped_file_size_commit_log as i64;
        let mut extended = Vec::new();
        let files = Arc::new(folders.load(&*disk, size, &mut extended)?);

        derived.load(clean, &checkpoint)?;
        let damage = DamageList::load(&*disk, &root)?;
        if checkpoint.flushed_offset.is_none() {
            // Another broker was at work since, which may have written other records there.
            damage.forget();
        }
        // An entry that is made again may point to another extension unit: until the next flush neither is sure.
        let before_rewind = |from| checkpoint.put_down(&*disk, &root, from);
        let scan = Scan {
            config,
            files: Arc::clone(&files),
            checkpoint,
            clean,
            delay_levels: &delay_levels,
            known_damage: damage.ranges(),
            before_rewind: &before_rewind,
        };
        let mut scanned = scan.run(derived, &mut progress)?;
        derived.truncate(scanned.report.end)?;
        if scan.lacks_records(&scanned.queues, derived) {
            tracing::warn!("consume queues end before the log does: all of them are rebuilt");
            scanned = scan.run_all(scanned.report.durable.get(), derived, &mut progress)?;
            derived.truncate(scanned.report.end)?;
        }
        let end = scanned.report.end;
        scanned.report.extended = extended;
        let (files, current) = cut(&*disk, &files, end.get(), &mut scanned.report)?;
        let min = files.first().map_or(0, |file| file.base);
        damage.update(
            &*disk,
            &scanned.report.damaged,
            (min, scanned.report.scanned_from.get(), end.get()),
        )?;
        derived.next_offsets(&mut |topic, queue_id, next| {
            scanned.queues.raise(topic, queue_id, next.get())
        });
        tell(&scanned.report);

        let counters = Arc::<Counters>::default();
        let last_stored = match scanned.last_store_timestamp {
            0 => checkpoint.physic_timestamp,
            stored => stored,
        };
        let log = CommitLog::new(
            config,
            Arc::clone(&disk),
            files,
            end.get(),
            last_stored,
            Arc::clone(&counters),
        );
        let log = Arc::new(log);
        let gate = Arc::<Gate>::default();
        if config.role == StoreRole::Slave {
            let reason = "brokerRole=SLAVE: this store takes its log from a master".into();
            gate.set_slave(Some(Refusal {
                path: root.clone(),
                reason,
                until_restart: true,
            }));
        }
        let next_base = match &current {
            Some((file, _)) => Some(file.end()),
            // An empty slave's log begins where its master says.
            None if config.role == StoreRole::Slave && end.get() == 0 => None,
            None => Some(end.get()),
        };
        let ahead = Arc::new(Ahead::new(
            Arc::clone(&log),
            Arc::clone(&gate),
            config,
            next_base,
        ));
        let was_flushed = checkpoint.flushed_offset;
        let checkpoint = Arc::new(Checkpoint::open(
            &*disk,
            &root,
            checkpoint,
            Arc::clone(&counters),
        )?);
        // Entries from there on were made again, and are on disk only at the next flush.
        checkpoint.restart_at(end.get(), scanned.dispatched_from);
        // What it says of offsets beyond the end must not be believed of the records that come there now.
        let says_too_much = was_flushed.is_some_and(|flushed| flushed > end.get());
        // And without it the next start would not believe what is damaged, whose numbers may be given again now.
        if says_too_much || (was_flushed.is_none() && !damage.ranges().is_empty()) {
            checkpoint.write()?;
        }
        let flusher = Arc::new(Flusher::new(
            Arc::clone(&log),
            Arc::clone(&gate),
            Arc::clone(&checkpoint),
            config,
        ));
        let appender = Appender::new(
            Arc::clone(&log),
            Arc::clone(&ahead),
            Arc::clone(&gate),
            clock,
            config.max_message_size,
            current,
            scanned.queues,
        );
        mark_running(&*disk, &root)?;
        let ahead_threads = ahead.start()?;
        let threads = flusher.start()?;
        Ok(Self {
            disk,
            root,
            log,
            appender,
            ahead,
            flusher,
            gate,
            checkpoint,
            damage: Arc::new(damage),
            counters,
            report: scanned.report,
            next_file_timeout: Duration::from_millis(config.next_file_timeout_ms),
            ahead_threads: Mutex::new(ahead_threads),
            threads: Mutex::new(threads),
            lock: Mutex::new(Some(lock)),
        })
    }

    fn lock(disk: &dyn Disk, root: &Path) -> Result<Box<dyn Any + Send + Sync>, StoreError> {
        disk.create_folder(root)
            .map_err(|error| StoreError::io(root, "create folder", error))?;
        let path = root.join("lock");
        disk.lock(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => StoreError::Locked { path },
            _ => StoreError::io(&path, "lock", error),
        })
    }

    /// Appends messages in order and pushes an outcome for each. Never waits for a disk: with [`Appended::Waiting`] the
    /// rest has no outcome yet, wait with [`LogStore::poll_room`] or [`LogStore::wait_room`] and append it again.
    pub fn append(
        &self,
        messages: &[AppendMessage<'_>],
        outcomes: &mut Vec<AppendOutcome>,
    ) -> Appended {
        self.appender.append(messages, outcomes, Tell::Now)
    }

    /// As [`LogStore::append`], without a system call to wake those that follow the log: the caller must call
    /// [`LogStore::tell_followers`] soon, whatever happens. What is there with [`Appended::Waiting`] they were told of.
    pub fn append_untold(
        &self,
        messages: &[AppendMessage<'_>],
        outcomes: &mut Vec<AppendOutcome>,
    ) -> Appended {
        self.appender.append(messages, outcomes, Tell::Caller)
    }

    /// Wakes who follows the log (dispatch, flush) after [`LogStore::append_untold`]. Costs next to nothing if they are
    /// awake.
    pub fn tell_followers(&self) {
        self.log.appended();
    }

    /// As [`LogStore::append`], waiting on this thread where there is no room, for as long as the next file may take.
    pub fn append_blocking(
        &self,
        messages: &[AppendMessage<'_>],
        outcomes: &mut Vec<AppendOutcome>,
    ) {
        let before = outcomes.len();
        let mut deadline = None;
        loop {
            let done = outcomes.len() - before;
            let rest = messages.get(done..).unwrap_or_default();
            let Appended::Waiting(ticket) = self.append(rest, outcomes) else {
                return;
            };
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.next_file_timeout);
            if !self.ahead.wait(ticket, deadline) {
                let reason = format!("not ready within {} ms", self.next_file_timeout.as_millis());
                let refusal = Arc::new(Refusal {
                    path: self.root.clone(),
                    reason,
                    until_restart: false,
                });
                let done = outcomes.len() - before;
                outcomes.extend(
                    (done..messages.len())
                        .map(|_| Err(AppendError::NoNextFile(Arc::clone(&refusal)))),
                );
                return;
            }
        }
    }

    /// `true` if there may be room since the ticket was given; else `waker` is woken when there is.
    pub fn poll_room(&self, ticket: RoomTicket, waker: &Waker) -> bool {
        self.ahead.changed_since(ticket, waker)
    }

    /// Waits on this thread until there may be room, or until `deadline`; gives which.
    pub fn wait_room(&self, ticket: RoomTicket, deadline: Instant) -> bool {
        self.ahead.wait(ticket, deadline)
    }

    /// Appends bytes of a master's log at `at`, which must be this log's end: all of them or none.
    ///
    /// # Errors
    /// When the store takes nothing any more, or has no place for a next file.
    pub fn append_replica(
        &self,
        at: PhysicalOffset,
        bytes: &[u8],
    ) -> Result<ReplicaAppended, AppendError> {
        self.appender.append_replica(at, bytes)
    }

    /// Has `waiter` called once when all below `end` is on disk, or the flush failed, or `syncFlushTimeout` is over.
    pub fn wait_flushed(&self, end: PhysicalOffset, waiter: Box<dyn FlushWaiter>) {
        self.flusher.wait_flushed(end, waiter);
    }

    /// Makes all that was appended durable, on this thread.
    ///
    /// # Errors
    /// When the sync fails, or one failed before: the store takes no messages then.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.flusher.flush().map_err(StoreError::Refused)
    }

    /// The log, to read from.
    #[must_use]
    pub fn log(&self) -> &Arc<CommitLog> {
        &self.log
    }

    /// Whether messages are taken, and why not.
    #[must_use]
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// What a restart will be told.
    #[must_use]
    pub fn checkpoint(&self) -> &Arc<Checkpoint> {
        &self.checkpoint
    }

    /// Parts of the log that must not be served.
    #[must_use]
    pub fn damage(&self) -> &Arc<DamageList> {
        &self.damage
    }

    /// What the store did so far.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// What recovery found when the store was opened.
    #[must_use]
    pub fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// The disk it lies on.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// See [`crate::Store::reconfigure`].
    pub fn reconfigure(&self, config: &StoreConfig) {
        self.appender.set_max_message_size(config.max_message_size);
        self.flusher.reconfigure(config);
    }

    /// Whether messages are to be acknowledged only once they are on disk (`flushDiskType=SYNC_FLUSH`).
    #[must_use]
    pub fn is_sync_flush(&self) -> bool {
        self.log.is_sync_flush()
    }

    /// How long the append lock has been held by who has it now, ms (store spec 3.5).
    #[must_use]
    pub fn append_lock_held_ms(&self) -> i64 {
        self.appender.held_ms()
    }

    /// The offset the next message of a queue will get; 0 for one never seen.
    #[must_use]
    pub fn next_queue_offset(&self, topic: &str, queue_id: i32) -> QueueOffset {
        QueueOffset(
            self.appender
                .with_queues(|queues| queues.get(topic, queue_id).unwrap_or(0)),
        )
    }

    /// A topic's queues start at 0 again. Gives the log's end at that moment: all its messages from there on count anew.
    pub fn forget_topic(&self, topic: &str) -> PhysicalOffset {
        self.appender.with_queues(|queues| {
            queues.forget_topic(topic);
            self.log.max_offset()
        })
    }

    /// A queue starts at 0 again, if its next message would get the number `next`. Gives the log's end at that moment;
    /// `None` if it would get another.
    pub fn forget_queue(
        &self,
        topic: &str,
        queue_id: i32,
        next: QueueOffset,
    ) -> Option<PhysicalOffset> {
        self.appender.with_queues(|queues| {
            (queues.get(topic, queue_id).unwrap_or(0) == next.get()).then(|| {
                queues.forget_queue(topic, queue_id);
                self.log.max_offset()
            })
        })
    }

    /// Takes no more messages. The first step of closing: what is appended stays readable. The file that was made ahead
    /// goes: on a full disk, what is still to be written can use the room.
    ///
    /// # Errors
    /// When the file cannot be removed; that may be tried again.
    pub fn stop_appends(&self) -> Result<(), StoreError> {
        self.gate.close();
        self.appender.close();
        self.ahead.stop();
        let threads = std::mem::take(&mut *self.ahead_threads.lock());
        threads.into_iter().for_each(join);
        self.ahead.remove_spare()
    }

    /// Flushes, stops, and leaves a store that the next start need not repair.
    ///
    /// # Errors
    /// When something could not be made durable: then the `abort` file stays, and the next start looks closer.
    pub fn close(&self) -> Result<(), StoreError> {
        let stopped = self.stop_appends();
        let flushed = self.flush();
        self.stop_threads();
        self.flusher.abandon();
        flushed?;
        self.checkpoint.write()?;
        stopped?;
        let abort = self.root.join("abort");
        self.disk
            .remove_file(&abort)
            .map_err(|error| StoreError::io(&abort, "remove", error))?;
        self.disk
            .sync_folder(&self.root)
            .map_err(|error| StoreError::io(&self.root, "sync", error))?;
        self.lock.lock().take();
        Ok(())
    }

    fn stop_threads(&self) {
        self.ahead.stop();
        self.flusher.stop();
        let ahead = std::mem::take(&mut *self.ahead_threads.lock());
        let others = std::mem::take(&mut *self.threads.lock());
        ahead.into_iter().chain(others).for_each(join);
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the store panicked");
    }
}

impl Drop for LogStore {
    fn drop(&mut self) {
        self.stop_threads();
        self.flusher.abandon();
    }
}

/// Makes the log end at `end`: files behind it go, the rest of the file that holds it is zeros, all is durable. Gives the
/// files that stay, and the one that is written on.
#[allow(clippy::type_complexity, reason = "a pair, named in the text")]
fn cut(
    disk: &dyn Disk,
    files: &[Arc<LogFile>],
    end: i64,
    report: &mut RecoveryReport,
) -> Result<(Vec<Arc<LogFile>>, Option<(Arc<LogFile>, RegionWriter)>), StoreError> {
    let (kept, behind): (Vec<_>, Vec<_>) = files
        .iter()
        .cloned()
        .partition(|file| file.base <= end && file.base < end.max(1));
    for file in behind.iter().rev() {
        disk.remove_file(&file.path)
            .map_err(|error| StoreError::io(&file.path, "remove", error))?;
        report.deleted.push(file.path.clone());
    }
    let last = kept.last().filter(|file| end < file.end());
    if let Some(file) = last {
        let from = file.within(end);
        // Stale bytes behind the end could pass for records later, and a hole could not be filled on a full disk.
        file.file
            .zero(from, file.size as u64 - from)
            .map_err(|error| StoreError::io(&file.path, "zero", error))?;
        file.file
            .allocate(0, file.size as u64)
            .map_err(|error| StoreError::io(&file.path, "allocate", error))?;
    }
    for file in kept
        .iter()
        .filter(|file| file.end() > report.scanned_from.get())
    {
        file.file
            .sync_data()
            .map_err(|error| StoreError::io(&file.path, "sync", error))?;
    }
    let mut current = None;
    if let Some(file) = last {
        let from = usize::try_from(file.within(end)).unwrap_or(0);
        let region = file
            .map(from)
            .map_err(|error| StoreError::io(&file.path, "map", error))?;
        current = region.writer().map(|writer| (Arc::clone(file), writer));
    }
    for file in &behind {
        let folder = file.path.parent().unwrap_or(Path::new("."));
        disk.sync_folder(folder)
            .map_err(|error| StoreError::io(folder, "sync", error))?;
    }
    Ok((kept, current))
}

/// Makes the `abort` file, whose presence at a start says that the last stop was none.
fn mark_running(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
    let path = root.join("abort");
    disk.create(&path)
        .map_err(|error| StoreError::io(&path, "create", error))?;
    disk.sync_folder(root)
        .map_err(|error| StoreError::io(root, "sync", error))
}

fn tell(report: &RecoveryReport) {
    let (end, records) = (report.end.get(), report.records);
    tracing::info!(
        clean = report.clean,
        scanned_from = report.scanned_from.get(),
        end,
        records,
        "commit log recovered"
    );
    if let Some(cut) = &report.cut {
        tracing::warn!(at = cut.at.get(), records = cut.records.len(), reason = %cut.reason, "commit log cut");
    }
    for path in &report.deleted {
        tracing::info!(path = %path.display(), "commit-log file behind the end deleted");
    }
}
