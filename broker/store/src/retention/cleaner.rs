//! The thread that deletes what is expired or what there is no room for (store spec 7.1, 7.2, 7.5), and that shuts and
//! opens the gate for messages as disks fill and empty.
//!
//! A log file is unlinked at once, also while it is read: readers hold its bytes. After it go the queue files and index
//! files that only spoke of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::{Mutex, RwLock};

use super::watermark::{DiskUse, Full, Verdict, Watermarks};
use crate::clock::StoreClock;
use crate::commit_log::CommitLog;
use crate::commit_log::folders::used_percent;
use crate::config::StoreConfig;
use crate::consume_queue::ConsumeQueues;
use crate::error::{Refusal, StoreError};
use crate::gate::Gate;
use crate::index::Index;
use crate::offset::PhysicalOffset;
use crate::signal::Signal;

/// Files deleted in one round at most.
const FILES_A_ROUND: usize = 10;
/// Rounds that delete after [`Cleaner::clean_now`].
const MANUAL_ROUNDS: u32 = 20;
/// Before the first round.
const FIRST_ROUND: Duration = Duration::from_secs(60);
/// How often the disks are looked at.
const DISK_CHECK: Duration = Duration::from_secs(10);
/// How often while messages are refused: they are taken again soon after there is room.
const FULL_CHECK: Duration = Duration::from_millis(500);

/// What a round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Log files deleted.
    pub log_files: usize,
    /// Queue files deleted.
    pub queue_files: usize,
    /// Index files deleted.
    pub index_files: usize,
}

/// Deletes the old files of one store.
#[derive(Debug)]
pub struct Cleaner {
    log: Arc<CommitLog>,
    queues: Arc<ConsumeQueues>,
    index: Arc<Index>,
    gate: Arc<Gate>,
    clock: StoreClock,
    zone: TimeZone,
    log_folders: Vec<PathBuf>,
    root: PathBuf,
    settings: RwLock<Settings>,
    /// The settings changed since the thread looked last.
    changed: AtomicBool,
    manual: AtomicU32,
    /// Where the log began when queues and index were cleaned last.
    cleaned_to: Mutex<i64>,
    stop: AtomicBool,
    woken: Signal,
}

/// Settings that may change while it runs.
#[derive(Clone, Debug)]
struct Settings {
    watermarks: Watermarks,
    delete_when: Vec<u8>,
    reserved_ms: i64,
    forcibly: bool,
    interval: Duration,
    file_pause: Duration,
    queue_pause: Duration,
}

impl Settings {
    fn of(config: &StoreConfig) -> Self {
        let hours = i64::try_from(config.file_reserved_time_hours).unwrap_or(i64::MAX);
        Self {
            watermarks: Watermarks::of(config),
            delete_when: config.delete_when.clone(),
            reserved_ms: hours.saturating_mul(3_600_000),
            forcibly: config.clean_file_forcibly_enable,
            interval: Duration::from_millis(config.clean_resource_interval_ms.max(1)),
            file_pause: Duration::from_millis(config.delete_commit_log_files_interval_ms),
            queue_pause: Duration::from_millis(config.delete_consume_queue_files_interval_ms),
        }
    }
}

impl Cleaner {
    pub(crate) fn new(
        config: &StoreConfig,
        log: Arc<CommitLog>,
        queues: Arc<ConsumeQueues>,
        index: Arc<Index>,
        gate: Arc<Gate>,
        clock: StoreClock,
    ) -> Self {
        Self {
            cleaned_to: Mutex::new(log.min_offset().get()),
            log,
            queues,
            index,
            gate,
            clock,
            zone: TimeZone::system(),
            log_folders: config.commit_log_paths(),
            root: config.store_path_root_dir.clone(),
            settings: RwLock::new(Settings::of(config)),
            changed: AtomicBool::new(false),
            manual: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            woken: Signal::default(),
        }
    }

    /// Takes over changed settings, at once: the disks are looked at with new marks, and a round comes no later than the
    /// new interval says.
    pub(crate) fn reconfigure(&self, config: &StoreConfig) {
        *self.settings.write() = Settings::of(config);
        self.changed.store(true, Ordering::Release);
        self.woken.notify();
    }

    fn settings(&self) -> Settings {
        self.settings.read().clone()
    }

    /// Expired files are deleted in the next rounds, whatever the hour (the administrator's command).
    pub fn clean_now(&self) {
        self.manual.store(MANUAL_ROUNDS, Ordering::Release);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.woken.notify();
    }

    /// Waits; gives whether the thread is to end.
    fn pause(&self, time: Duration) -> bool {
        self.woken.wait(time, || self.stop.load(Ordering::Acquire))
    }

    /// The thread's work.
    pub(crate) fn run(&self) {
        let mut until_round = FIRST_ROUND;
        let mut until_check = Duration::ZERO;
        loop {
            let nap = until_round.min(until_check);
            self.woken.wait(nap, || {
                self.stop.load(Ordering::Acquire) || self.changed.load(Ordering::Acquire)
            });
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            if self.changed.swap(false, Ordering::AcqRel) {
                until_round = until_round.min(self.settings().interval);
                until_check = Duration::ZERO;
            } else {
                until_round -= nap;
                until_check -= nap;
            }
            if until_check.is_zero() {
                self.check_disks();
                until_check = if self.gate.is_disk_full() {
                    FULL_CHECK
                } else {
                    DISK_CHECK
                };
            }
            if until_round.is_zero() {
                self.round();
                until_round = self.settings().interval;
            }
        }
    }

    /// Looks at the disks, and shuts or opens the gate.
    pub fn check_disks(&self) -> Verdict {
        let verdict = self.settings().watermarks.judge(self.disk_use());
        let was_full = self.gate.is_disk_full();
        let refusal = verdict.refuse.map(|full| self.refusal(full));
        if let Some(refusal) = &refusal
            && !was_full
        {
            tracing::warn!(%refusal, "messages are refused");
        } else if refusal.is_none() && was_full {
            tracing::info!("the disk has room again: messages are taken");
        }
        self.gate.set_disk_full(refusal);
        verdict
    }

    fn refusal(&self, full: Full) -> Refusal {
        let (path, percent) = match full {
            Full::Log(percent) => (
                self.log_folders.first().cloned().unwrap_or_default(),
                percent,
            ),
            Full::Queues(percent) => (self.queues.folder().to_path_buf(), percent),
        };
        let mark = self.settings().watermarks.refuse;
        Refusal {
            path,
            reason: format!(
                "{percent} % of the disk are in use, messages are taken up to {mark} % (diskSpaceWarningLevelRatio)"
            ),
            until_restart: false,
        }
    }

    /// How full the disks are.
    #[must_use]
    pub fn disk_use(&self) -> DiskUse {
        let percent = |path: &PathBuf| self.log.disk.space(path).ok().map(used_percent);
        // The folder of the queues is made with the first queue; it lies on the root's disk until then.
        let queues = self.queues.folder().to_path_buf();
        DiskUse {
            log: self.log_folders.iter().filter_map(percent).min(),
            queues: percent(&queues).or_else(|| percent(&self.root)),
        }
    }

    /// One round: deletes what is to be deleted.
    pub fn round(&self) -> CleanReport {
        let verdict = self.check_disks();
        let mut report = CleanReport::default();
        if verdict.space || self.is_time() || self.takes_manual() {
            report.log_files =
                self.delete_log_files(verdict.immediately && self.settings().forcibly);
        }
        if let Err(error) = self.follow_log(&mut report) {
            tracing::error!(%error, "old queue or index files cannot be deleted");
        }
        report
    }

    /// Whether the local hour is one of `deleteWhen`.
    fn is_time(&self) -> bool {
        let now = Timestamp::from_millisecond(self.clock.now_ms()).unwrap_or_default();
        let hour = now.to_zoned(self.zone.clone()).hour();
        self.settings()
            .delete_when
            .iter()
            .any(|h| i8::try_from(*h) == Ok(hour))
    }

    fn takes_manual(&self) -> bool {
        self.manual
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
            .is_ok()
    }

    /// Deletes the oldest log files as long as they are expired, or whatever their age.
    fn delete_log_files(&self, whatever_age: bool) -> usize {
        let mut deleted = 0;
        while deleted < FILES_A_ROUND {
            if !whatever_age && !self.is_expired(self.log.min_offset()) {
                break;
            }
            match self.log.delete_oldest_file() {
                Ok(Some((path, min))) => {
                    tracing::info!(path = %path.display(), min = min.get(), whatever_age, "commit-log file deleted");
                    deleted += 1;
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "an old commit-log file cannot be deleted");
                    break;
                }
            }
            if deleted < FILES_A_ROUND && self.pause(self.settings().file_pause) {
                break;
            }
        }
        deleted
    }

    fn is_expired(&self, file: PhysicalOffset) -> bool {
        let modified = self.log.file_modified(file).ok().flatten();
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let Some(modified_ms) = since.and_then(|since| i64::try_from(since.as_millis()).ok())
        else {
            return false;
        };
        self.clock.now_ms() >= modified_ms.saturating_add(self.settings().reserved_ms)
    }

    /// Lets queues and index begin where the log begins.
    fn follow_log(&self, report: &mut CleanReport) -> Result<(), StoreError> {
        let log_min = self.log.min_offset().get();
        let mut cleaned_to = self.cleaned_to.lock();
        if log_min <= *cleaned_to {
            return Ok(());
        }
        self.queues.forget_deleted(log_min);
        let mut checked = Instant::now();
        for queue in self.queues.all() {
            let deleted = queue.clean(log_min)?;
            report.queue_files += deleted;
            if deleted > 0 && self.pause(self.settings().queue_pause) {
                return Ok(());
            }
            if checked.elapsed() >= DISK_CHECK {
                checked = Instant::now();
                self.check_disks();
            }
        }
        report.index_files = self.index.clean(log_min)?;
        *cleaned_to = log_min;
        Ok(())
    }
}
