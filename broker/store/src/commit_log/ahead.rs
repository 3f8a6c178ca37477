//! Files and pages made ready before they are needed, by threads of their own, so that an append never makes a file,
//! touches a page that is not there, or waits for a disk. One makes pages ready, the other the next file: making that
//! durable may take a second on a disk that is busy writing, and pages are needed meanwhile.
//!
//! One number, `ready`, says up to which offset an append may go. It reaches into the next file, the *spare*, which is
//! allocated, durable under its name and mapped before the current one is full. How far it runs ahead follows the load:
//! a little while little comes in, doubling while appends use it up quickly.
//!
//! Under `ASYNC_FLUSH` pages are written with zeros and populated for writing. Under `SYNC_FLUSH` they are written with zeros and synced first:
//! blocks written once need no change of the file system's own records later, so that one flush is one write. That is
//! done to the spare, little by little while the current file is filled, so that no flush of the current one waits for it;
//! only of the first file after a start, or if messages come too quickly, is it done just ahead of them.
//!
//! The thread of the pages gives cold ones back, see [`CommitLog::cool`].

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::CommitLog;
use super::file::LogFile;
use super::folders;
use crate::config::{FlushDiskType, StoreConfig};
use crate::counters::add;
use crate::error::{Refusal, StoreError};
use crate::gate::Gate;
use crate::io;
use crate::region::{Populate, Region, RegionWriter};
use crate::signal::Signal;

/// Pages are made ready in steps of this many bytes.
const STEP: i64 = 1 << 20;
/// Every step ends at a multiple of this: the system then takes memory for it in pieces as large as one write of zeros
/// ([`io::write_zeros`]), and writes back and maps a piece as a whole.
const PIECE: i64 = io::ZEROS_LEN as i64;
/// The same as [`STEP`] under `SYNC_FLUSH`, where each step is synced.
const SYNCED_STEP: i64 = 4 << 20;
/// A file or page that could not be had is tried again after this long.
const RETRY: Duration = Duration::from_millis(200);
/// Refills closer together than this mean load.
const BUSY: Duration = Duration::from_millis(20);
/// Without a refill for this long there is no load.
const QUIET: Duration = Duration::from_secs(1);

/// Says which state of readiness an append saw: waiting with it misses nothing that happened since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomTicket(u64);

/// The next file, ready to be written.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) file: Arc<LogFile>,
    pub(crate) writer: RegionWriter,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ahead {
    log: Arc<CommitLog>,
    gate: Arc<Gate>,
    idle: i64,
    load: i64,
    zero_first: bool,
    ready: AtomicI64,
    /// An append needs pages up to here.
    wanted: AtomicI64,
    /// Once appends reach this offset there is work.
    wake_at: AtomicI64,
    generation: AtomicU64,
    work: Signal,
    nudged: AtomicBool,
    /// The next file is missing.
    spare_wanted: Signal,
    stop: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    spare: Option<Spare>,
    /// Where the next spare begins; `None` until a slave knows where its log begins.
    next_base: Option<i64>,
    /// Why pages cannot be had now.
    page_trouble: Option<Arc<Refusal>>,
    /// Why the next file cannot be had now.
    spare_trouble: Option<Arc<Refusal>>,
    wakers: Vec<Waker>,
}

impl State {
    /// Where the missing spare begins.
    fn missing(&self) -> Option<i64> {
        self.next_base.filter(|_| self.spare.is_none())
    }
}

impl Ahead {
    /// For a log that ends at its published end; the next file begins at `next_base`.
    pub(crate) fn new(
        log: Arc<CommitLog>,
        gate: Arc<Gate>,
        config: &StoreConfig,
        next_base: Option<i64>,
    ) -> Self {
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX).max(4096);
        let end = log.max_offset().get();
        Self {
            idle: bytes(config.populate_idle_bytes),
            load: bytes(config.populate_load_bytes.max(config.populate_idle_bytes)),
            zero_first: config.flush_disk_type == FlushDiskType::SyncFlush,
            log,
            gate,
            ready: AtomicI64::new(end),
            wanted: AtomicI64::new(0),
            wake_at: AtomicI64::new(i64::MAX),
            generation: AtomicU64::new(0),
            work: Signal::default(),
            nudged: AtomicBool::new(true),
            spare_wanted: Signal::default(),
            stop: AtomicBool::new(false),
            state: Mutex::new(State {
                next_base,
                ..State::default()
            }),
            changed: Condvar::new(),
        }
    }

    /// Starts the threads.
    pub(crate) fn start(self: &Arc<Self>) -> Result<Vec<JoinHandle<()>>, StoreError> {
        let start = |name: &str, run: fn(&Self)| {
            let this = Arc::clone(self);
            std::thread::Builder::new()
                .name(name.into())
                .spawn(move || run(&this))
                .map_err(|error| StoreError::io(name, "start thread", error))
        };
        Ok(vec![
            start("store-ahead", Self::run_pages)?,
            start("store-spare", Self::run_spares)?,
        ])
    }

    /// Ends the threads soon.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.work.notify();
        self.spare_wanted.notify();
        self.announce(|_| {});
    }

    /// Removes the spare file, which holds nothing. After the threads ended.
    pub(crate) fn remove_spare(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let Some(spare) = &state.spare else {
            return Ok(());
        };
        let path = &spare.file.path;
        self.log
            .disk
            .remove_file(path)
            .map_err(|error| StoreError::io(path, "remove", error))?;
        state.spare = None;
        Ok(())
    }

    /// Whether pages up to `end` are ready. If not, they will be.
    pub(crate) fn is_ready(&self, end: i64) -> bool {
        if end <= self.ready.load(Ordering::Acquire) {
            return true;
        }
        self.wanted.fetch_max(end, Ordering::AcqRel);
        self.nudge();
        false
    }

    /// Appends have reached `end`.
    pub(crate) fn consumed(&self, end: i64) {
        if end >= self.wake_at.load(Ordering::Relaxed) {
            self.nudge();
        }
    }

    /// The next file, if it begins at `base` and is there. Else why it cannot be had, or nothing if it is coming.
    pub(crate) fn take_spare(&self, base: i64) -> Result<Spare, Option<Arc<Refusal>>> {
        let mut state = self.state.lock();
        if state
            .spare
            .as_ref()
            .is_some_and(|spare| spare.file.base == base)
            && let Some(spare) = state.spare.take()
        {
            state.next_base = Some(spare.file.end());
            drop(state);
            self.spare_wanted.notify();
            self.nudge();
            return Ok(spare);
        }
        Err(state.spare_trouble.clone())
    }

    /// An empty slave's log begins in the middle.
    pub(crate) fn begin_at(&self, at: i64) {
        self.state.lock().next_base = Some(at - at.rem_euclid(self.log.file_size()));
        self.ready.store(at, Ordering::Release);
        self.spare_wanted.notify();
        self.nudge();
    }

    /// Why pages of the current file cannot be had now.
    pub(crate) fn page_trouble(&self) -> Option<Arc<Refusal>> {
        self.state.lock().page_trouble.clone()
    }

    /// A ticket for the state now; taken before looking whether there is room.
    pub(crate) fn ticket(&self) -> RoomTicket {
        RoomTicket(self.generation.load(Ordering::Acquire))
    }

    /// Has `waker` woken at the next change; `true` if there was one since the ticket.
    pub(crate) fn changed_since(&self, ticket: RoomTicket, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        let changed = self.ticket() != ticket;
        if !changed && !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        changed
    }

    /// Waits for a change since the ticket, until `deadline`.
    pub(crate) fn wait(&self, ticket: RoomTicket, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while self.ticket() == ticket {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return self.ticket() != ticket;
            }
        }
        true
    }

    fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.work.notify();
    }

    /// Changes the state and tells all who wait.
    fn announce<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.generation.fetch_add(1, Ordering::AcqRel);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    fn run_spares(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let missing = self.state.lock().missing();
            match missing.map(|base| self.make_spare(base)) {
                Some(Ok(())) => self.nudge(),
                Some(Err(refusal)) => {
                    self.announce(|state| state.spare_trouble = Some(Arc::new(refusal)));
                    self.spare_wanted
                        .wait(RETRY, || self.stop.load(Ordering::Acquire));
                }
                None => {
                    self.spare_wanted.wait(QUIET, || {
                        self.stop.load(Ordering::Acquire) || self.state.lock().missing().is_some()
                    });
                }
            }
        }
    }

    fn run_pages(&self) {
        let mut ahead = self.idle;
        let mut last_refill = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            self.nudged.store(false, Ordering::Release);
            self.log.cool();
            let pause = match self.work_once(ahead) {
                Ok(true) => {
                    if self.page_trouble().is_some() {
                        self.announce(|state| state.page_trouble = None);
                    }
                    continue;
                }
                Ok(false) => QUIET,
                Err(refusal) => {
                    self.announce(|state| state.page_trouble = Some(Arc::new(refusal)));
                    RETRY
                }
            };
            let refilled = Instant::now();
            let nudged = self.work.wait(pause, || {
                self.nudged.load(Ordering::Acquire) || self.stop.load(Ordering::Acquire)
            });
            ahead = match refilled.duration_since(last_refill) {
                gap if gap < BUSY && nudged => ahead.saturating_mul(2).min(self.load),
                _ if !nudged => self.idle,
                _ => ahead,
            };
            last_refill = refilled;
        }
    }

    /// Makes pages ready, one step; `false` if there is nothing to do. Those of the current file come first: appends wait
    /// for the nearer ones.
    fn work_once(&self, ahead: i64) -> Result<bool, Refusal> {
        Ok(self.populate(ahead)? || self.zero_spare()?)
    }

    /// Under `SYNC_FLUSH`: writes the next part of the spare, in step with how much of the current file is used; `false`
    /// if there is nothing to do.
    fn zero_spare(&self) -> Result<bool, Refusal> {
        let spare = self
            .state
            .lock()
            .spare
            .as_ref()
            .map(|spare| Arc::clone(&spare.file));
        let Some(file) = spare.filter(|_| self.zero_first) else {
            return Ok(false);
        };
        let used = (self.log.max_offset().get() - (file.base - file.size)).max(0);
        let from = file.zeroed_to();
        if from >= file.end() || from - file.base > used.saturating_add(self.load) {
            return Ok(false);
        }
        self.zero(&file, (from + SYNCED_STEP).min(file.end()))?;
        Ok(true)
    }

    /// Writes zeros to a file up to `to`, where that was not done yet, and syncs it.
    fn zero(&self, file: &LogFile, to: i64) -> Result<(), Refusal> {
        let from = file
            .zeroed_to()
            .max(self.ready.load(Ordering::Acquire).min(file.end()));
        if from >= to {
            return Ok(());
        }
        write_zeros(file, from, to)?;
        if let Err(error) = file.file.sync_data() {
            // The system tells of a failed write once. It may have been one of appended bytes, and whoever waits for
            // those would hear that all is well.
            return Err((*self.gate.fail(&file.path, format!("sync failed: {error}"))).clone());
        }
        file.set_zeroed_to(to);
        Ok(())
    }

    fn make_spare(&self, base: i64) -> Result<(), Refusal> {
        let size = self.log.file_size();
        let made = match self.log.folders.for_new(&*self.log.disk, base, size) {
            Some(path) => folders::create(&*self.log.disk, &path, base, size).and_then(|file| {
                let region = file
                    .map(0)
                    .map_err(|error| StoreError::io(&path, "map", error))?;
                Ok((file, region))
            }),
            None => Err(StoreError::Config {
                key: "storePathCommitLog",
                value: String::new(),
                reason: "every folder is also in readOnlyCommitLogStorePaths".into(),
            }),
        };
        match made {
            Ok((file, region)) => {
                let spare = region.writer().map(|writer| Spare {
                    file: Arc::new(file),
                    writer,
                });
                add(&self.log.counters.files_made, 1);
                self.announce(|state| {
                    // A slave may have learned meanwhile that its log begins elsewhere.
                    if state.next_base == Some(base) {
                        state.spare = spare;
                    }
                    state.spare_trouble = None;
                });
                Ok(())
            }
            Err(error) => {
                add(&self.log.counters.files_not_made, 1);
                Err(refusal_of(error))
            }
        }
    }

    /// Makes the next step of pages ready; `false` if enough are.
    fn populate(&self, ahead: i64) -> Result<bool, Refusal> {
        let from = self.ready.load(Ordering::Acquire);
        let position = self.log.max_offset().get();
        let target = position
            .saturating_add(ahead)
            .max(self.wanted.load(Ordering::Acquire));
        self.wake_at.store(
            from.saturating_sub(ahead / 2).max(position),
            Ordering::Relaxed,
        );
        if from >= target {
            return Ok(false);
        }
        let Some((file, region)) = self.file_for(from) else {
            return Ok(false);
        };
        let step = if self.zero_first { SYNCED_STEP } else { STEP };
        let to = whole_pieces((from + step).min(target)).min(file.end());
        if self.zero_first {
            self.zero(&file, to)?;
        }
        let range = file.within(from) as usize..file.within(to) as usize;
        let how = if self.zero_first {
            Populate::Clean
        } else {
            // The kernel takes memory for a write in large pieces, for a fault page by page, which costs ten times as much
            // where a virtual machine first has to get it. Nobody appends from the mark on.
            write_zeros(&file, from, to)?;
            Populate::ForWriting
        };
        region
            .populate(range, how)
            .map_err(|error| not_ready(&file, &error))?;
        self.ready.store(to, Ordering::Release);
        self.wake_at.store(
            to.saturating_sub(ahead / 2).max(position),
            Ordering::Relaxed,
        );
        add(
            &self.log.counters.populated_bytes,
            u64::try_from(to - from).unwrap_or(0),
        );
        self.announce(|_| {});
        Ok(true)
    }

    /// The file whose pages at `from` are to be made ready: the current one or the spare.
    fn file_for(&self, from: i64) -> Option<(Arc<LogFile>, Arc<Region>)> {
        if let Some(file) = self.log.file_at(from) {
            let region = file.region()?;
            return Some((file, region));
        }
        let state = self.state.lock();
        let spare = state
            .spare
            .as_ref()
            .filter(|spare| spare.file.base <= from && from < spare.file.end())?;
        Some((Arc::clone(&spare.file), Arc::clone(spare.writer.region())))
    }
}

/// The next multiple of [`PIECE`].
fn whole_pieces(at: i64) -> i64 {
    at.saturating_add(PIECE - 1) / PIECE * PIECE
}

fn write_zeros(file: &LogFile, from: i64, to: i64) -> Result<(), Refusal> {
    let (from, len) = (file.within(from), u64::try_from(to - from).unwrap_or(0));
    io::write_zeros(&*file.file, from, len).map_err(|error| not_ready(file, &error))
}

fn not_ready(file: &LogFile, error: &std::io::Error) -> Refusal {
    let reason = format!("making pages ready failed: {error}");
    Refusal {
        path: file.path.clone(),
        reason,
        until_restart: false,
    }
}

fn refusal_of(error: StoreError) -> Refusal {
    match error {
        StoreError::Io {
            path,
            operation,
            source,
        } => Refusal {
            path,
            reason: format!("{operation} failed: {source}"),
            until_restart: false,
        },
        other => Refusal {
            path: Path::new("commitlog").into(),
            reason: other.to_string(),
            until_restart: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_at_whole_pieces() {
        assert_eq!(
            [0, 1, PIECE - 1, PIECE, PIECE + 1, i64::MAX].map(whole_pieces),
            [0, PIECE, PIECE, PIECE, 2 * PIECE, i64::MAX / PIECE * PIECE]
        );
    }
}
