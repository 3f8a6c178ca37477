//! Group commit: acknowledged messages a second beside raw syncs × waiters, and where the time of a round goes.
//! `cargo bench -p minimq-store --bench group_commit [-- disk | even [WAITERS]]`.
//!
//! Two kinds of disk. `disk` is the one `MINIMQ_BENCH_DIR` (default: the temporary folder) lies on: its syncs are as fast
//! as whatever else uses it allows. `even` is the same with syncs that only take a fixed time, so that what the store
//! adds to a sync can be told on a machine whose disk others use. Limit and store take turns in short slices; the median
//! of the slices' ratios counts.

mod support;

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use minimq_store::io::{Disk, DiskFile, FolderEntry, RealDisk, Space};
use minimq_store::region::{Region, RegionWriter};
use minimq_store::{AppendMessage, FlushDiskType, FlushOutcome, LogStore, StoreClock, StoreConfig};
use support::{Counting, MIB, config, folder, message, record_len};

const SLICE: Duration = Duration::from_millis(250);
const SLICES: usize = 9;
const BODY: usize = 1024;
const RECORD: usize = record_len(BODY);

fn main() {
    let mut wanted = std::env::args().skip(1).filter(|a| !a.starts_with('-'));
    let kind = wanted.next().unwrap_or_default();
    let waiters = match wanted.next().and_then(|number| number.parse().ok()) {
        Some(waiters) => vec![waiters],
        None => vec![1, 8, 32],
    };
    let even = |micros| (micros, Arc::new(EvenDisk(Duration::from_micros(micros))));
    for waiters in waiters {
        if "disk".contains(&kind) {
            group_commit("disk", waiters, &(Arc::new(RealDisk) as Arc<dyn Disk>));
        }
        for (micros, disk) in [even(100), even(500)] {
            if "even".contains(&kind) {
                let disk: Arc<dyn Disk> = disk;
                group_commit(&format!("even, {micros} us"), waiters, &disk);
            }
        }
    }
}

/// The real disk, but a sync writes nothing and takes this long: the thread sleeps meanwhile, as in a real one.
#[derive(Debug)]
struct EvenDisk(Duration);

#[derive(Debug)]
struct EvenFile(Arc<dyn DiskFile>, Duration);

impl EvenDisk {
    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(EvenFile(file, self.0))
    }
}

impl Disk for EvenDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.open(path).map(|file| self.file(file))
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.create(path).map(|file| self.file(file))
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        RealDisk.list(folder)
    }
    fn exists(&self, path: &Path) -> bool {
        RealDisk.exists(path)
    }
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        RealDisk.create_folder(folder)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }
    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        RealDisk.remove_folder(folder)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        RealDisk.sync_folder(folder)
    }
    fn sync_all(&self, folder: &Path) -> io::Result<()> {
        RealDisk.sync_all(folder)
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        RealDisk.lock(path)
    }
}

impl DiskFile for EvenFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.allocate(offset, len)
    }
    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.zero(offset, len)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn read_at_nowait(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at_nowait(buffer, offset)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        std::thread::sleep(self.1);
        Ok(())
    }
    fn modified(&self) -> io::Result<SystemTime> {
        self.0.modified()
    }
    fn map(&self, published: usize) -> io::Result<Arc<Region>> {
        self.0.map(published)
    }
}

fn open(folder: &tempfile::TempDir, disk: &Arc<dyn Disk>) -> LogStore {
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::SyncFlush,
        ..config(folder, 256 * MIB)
    };
    LogStore::open(
        &config,
        Arc::clone(disk),
        StoreClock::System,
        &mut Counting::default(),
        |_| {},
    )
    .unwrap()
}

/// A mapped file that was written once already, so that a sync is one write.
struct Raw {
    file: Arc<dyn DiskFile>,
    writer: RegionWriter,
}

impl Raw {
    fn new(folder: &tempfile::TempDir, name: &str, disk: &Arc<dyn Disk>, len: u64) -> Self {
        let file = disk.create(&folder.path().join(name)).unwrap();
        file.allocate(0, len).unwrap();
        let zeros = vec![0; MIB as usize];
        (0..len / MIB).for_each(|at| file.write_all_at(&zeros, at * MIB).unwrap());
        file.sync_data().unwrap();
        let writer = file.map(0).unwrap().writer().unwrap();
        Self { file, writer }
    }

    /// Writes the next bytes, from the start again at the end of the file.
    fn write(writer: &mut RegionWriter, bytes: usize) {
        if writer.room() < bytes {
            writer.rewind(0);
        }
        writer.next(bytes).unwrap().fill(0x5A);
        writer.advance(bytes);
    }

    /// Syncs a second, with `bytes` written before each by the thread that syncs.
    fn rate(&mut self, bytes: usize) -> f64 {
        let begun = Instant::now();
        let mut syncs = 0;
        while begun.elapsed() < SLICE {
            Self::write(&mut self.writer, bytes);
            self.file.sync_data().unwrap();
            syncs += 1;
        }
        f64::from(syncs) / begun.elapsed().as_secs_f64()
    }

    /// The same with the bytes written by another thread, as in any store whose senders do not sync themselves: each sync
    /// has to take the pages from the other processor. They hand over without sleeping.
    fn rate_of_two_threads(&mut self, bytes: usize) -> f64 {
        let (turn, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (file, writer) = (&self.file, &mut self.writer);
        let mut syncs = 0;
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for even in (0..).step_by(2) {
                    while turn.load(Ordering::Acquire) == even {
                        if stop.load(Ordering::Acquire) {
                            return;
                        }
                        std::thread::yield_now();
                    }
                    Self::write(writer, bytes);
                    turn.store(even + 2, Ordering::Release);
                }
            });
            while begun.elapsed() < SLICE {
                let even = turn.fetch_add(1, Ordering::AcqRel) + 1;
                while turn.load(Ordering::Acquire) == even {
                    std::thread::yield_now();
                }
                file.sync_data().unwrap();
                syncs += 1;
            }
            stop.store(true, Ordering::Release);
        });
        f64::from(syncs) / begun.elapsed().as_secs_f64()
    }
}

/// Senders, each of which waits for its message to be on disk before it sends the next. As in a broker, one thread serves
/// them all.
struct Senders<'a> {
    log: &'a LogStore,
    message: AppendMessage<'a>,
    answers: (Sender<FlushOutcome>, Receiver<FlushOutcome>),
    waiters: usize,
}

/// What a slice of them gave.
#[derive(Default)]
struct Commits {
    rate: f64,
    /// Messages a sync.
    group: f64,
    /// Microseconds of a sync, and from one's end to the next one's beginning.
    sync: f64,
    between: f64,
}

impl<'a> Senders<'a> {
    fn new(log: &'a LogStore, waiters: usize) -> Self {
        Self {
            log,
            message: message(&[0x5A; BODY]),
            answers: channel(),
            waiters,
        }
    }

    fn send(&self, outcomes: &mut Vec<minimq_store::AppendOutcome>) {
        outcomes.clear();
        self.log
            .append_blocking(std::slice::from_ref(&self.message), outcomes);
        let end = outcomes[0].as_ref().unwrap().end();
        let sender = self.answers.0.clone();
        self.log
            .wait_flushed(end, Box::new(move |outcome| sender.send(outcome).unwrap()));
    }

    fn run(&self, during: Duration) -> Commits {
        let mut outcomes = Vec::with_capacity(1);
        let counters = self.log.counters();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let now = || {
            (
                count(&counters.flushes),
                count(&counters.flush_nanos),
                count(&counters.flush_waiters),
            )
        };
        let before = now();
        let begun = Instant::now();
        (0..self.waiters).for_each(|_| self.send(&mut outcomes));
        let mut answered = 0;
        while begun.elapsed() < during {
            assert_eq!(self.answers.1.recv().unwrap(), FlushOutcome::Flushed);
            answered += 1;
            self.send(&mut outcomes);
        }
        let elapsed = begun.elapsed().as_secs_f64();
        let after = now();
        let flushes = (after.0 - before.0).max(1.0);
        for _ in 0..self.waiters {
            assert_eq!(self.answers.1.recv().unwrap(), FlushOutcome::Flushed);
        }
        let sync = (after.1 - before.1) / flushes / 1e3;
        Commits {
            rate: f64::from(answered) / elapsed,
            group: (after.2 - before.2) / flushes,
            sync,
            between: elapsed * 1e6 / flushes - sync,
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn group_commit(name: &str, waiters: usize, disk: &Arc<dyn Disk>) {
    let bytes = waiters * RECORD;
    let folder = folder();
    let mut raw = Raw::new(&folder, "raw", disk, 64 * MIB);
    let log = open(&folder, disk);
    let senders = Senders::new(&log, waiters);
    senders.run(SLICE);
    let (mut one, mut two, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SLICES {
        one.push(raw.rate(bytes) * waiters as f64);
        ours.push(senders.run(SLICE));
        two.push(raw.rate_of_two_threads(bytes) * waiters as f64);
    }
    let of = |limit: &[f64]| {
        let ratios = ours
            .iter()
            .zip(limit)
            .map(|(ours, limit)| ours.rate / limit);
        100.0 * median(ratios.collect())
    };
    let (of_one, of_two) = (of(&one), of(&two));
    let mid = |of: fn(&Commits) -> f64| median(ours.iter().map(of).collect());
    println!(
        "group commit, {name}, {waiters:>2} waiters: {:>6.0}/s, {of_one:.0} % of {:.0} raw, {of_two:.0} % of {:.0} with another \
         thread writing; {:.1} a sync of {:.0} us, {:.0} us between",
        mid(|c| c.rate),
        median(one),
        median(two),
        mid(|c| c.group),
        mid(|c| c.sync),
        mid(|c| c.between),
    );
    log.close().unwrap();
}
