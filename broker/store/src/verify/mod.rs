//! A store read without changing it: for tools, while no broker has it open (or beside one, if asked).
//!
//! [`StoreReader::open`] finds out the sizes of the files by their names and lengths, so no configuration is needed.
//! [`StoreReader::for_each_record`] gives every whole record; [`StoreReader::verify`] checks every record of the log,
//! whether queues and index agree with it, and says what a start of a broker would cut, mark or make again.
//!
//! Nothing is written: files are opened for reading, the `lock` file is only asked about.
//!
//! | module | what |
//! |---|---|
//! | `files` | which files there are, their sizes, how they are read |
//! | `queues` | consume queues beside the records of the log |
//! | `index` | index files beside the records of the log |
//! | `report` | what was found |

mod files;
mod index;
mod queues;
mod report;

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minimq_protocol::message::RecordRef;

pub use self::files::StoreSizes;
use self::files::{Layout, is_in_use};
use self::index::IndexCheck;
use self::queues::QueueCheck;
pub use self::report::{Finding, Findings, VerifyReport};
use crate::checkpoint::CheckpointContent;
use crate::commit_log::file::LogFile;
use crate::config::StoreConfig;
use crate::consume_queue::{Deletions, QueueNames};
use crate::damage::DamageList;
use crate::delay_level::DelayLevels;
use crate::dispatch_record::DispatchRecord;
use crate::error::StoreError;
use crate::offset::{PhysicalOffset, QueueOffset};
use crate::recovery::scan::Scan;
use crate::recovery::{Derived, RecordPlace, RecoveryProgress, RecoveryReport};

/// Takes a record, and says whether to go on.
pub type Visit<'a> = dyn FnMut(&RecordRef<'_>) -> ControlFlow<()> + 'a;

/// What cannot be found out from the files.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Reads although a broker has the store open: its end moves meanwhile, and looks torn.
    pub while_running: bool,
    /// Folders of the commit log (`storePathCommitLog` and read-only ones); `commitlog` under the root if empty.
    pub commit_log_folders: Vec<PathBuf>,
    /// Sizes that are known; what is `None` is found out.
    pub sizes: StoreSizes,
    /// `messageDelayLevel`: the tag field of delayed messages is their delivery time.
    pub message_delay_level: String,
    /// At most so many findings are kept; all are counted.
    pub most_findings: usize,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            while_running: false,
            commit_log_folders: Vec::new(),
            sizes: StoreSizes::default(),
            message_delay_level: StoreConfig::new("").message_delay_level,
            most_findings: 1_000,
        }
    }
}

/// A store on disk, opened for reading.
#[derive(Debug)]
pub struct StoreReader {
    root: PathBuf,
    layout: Layout,
    delay_levels: DelayLevels,
    checkpoint: CheckpointContent,
    clean: bool,
    most_findings: usize,
}

impl StoreReader {
    /// Takes in which files there are.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if a broker has the store open; when there is none; when files contradict each other.
    pub fn open(root: &Path, options: &ReaderOptions) -> Result<Self, StoreError> {
        if !root.is_dir() {
            let missing = std::io::ErrorKind::NotFound.into();
            return Err(StoreError::io(root, "open the store", missing));
        }
        let lock = root.join("lock");
        let in_use = is_in_use(&lock).map_err(|e| StoreError::io(&lock, "look at", e))?;
        if in_use && !options.while_running {
            return Err(StoreError::Locked { path: lock });
        }
        let levels = &options.message_delay_level;
        let delay_levels = DelayLevels::parse(levels).map_err(|piece| StoreError::Config {
            key: "messageDelayLevel",
            value: levels.clone(),
            reason: format!("'{piece}' is no number followed by s, m, h or d"),
        })?;
        Ok(Self {
            layout: Layout::of(root, options)?,
            delay_levels,
            checkpoint: CheckpointContent::parse(
                &std::fs::read(root.join("checkpoint")).unwrap_or_default(),
            ),
            // A broker that is at work has the file too, and will remove it.
            clean: in_use || !root.join("abort").exists(),
            root: root.to_owned(),
            most_findings: options.most_findings,
        })
    }

    /// The sizes found.
    #[must_use]
    pub fn sizes(&self) -> &StoreSizes {
        &self.layout.sizes
    }

    /// Whether the last stop was clean.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.clean
    }

    /// What the checkpoint says.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointContent {
        self.checkpoint
    }

    /// Path, first and end offset of each file of the commit log.
    #[must_use]
    pub fn log_files(&self) -> Vec<(PathBuf, PhysicalOffset, PhysicalOffset)> {
        let place = |file: &Arc<LogFile>| {
            (
                file.path.clone(),
                PhysicalOffset(file.base),
                PhysicalOffset(file.end()),
            )
        };
        self.layout.log.iter().map(place).collect()
    }

    /// Gives every whole record of the log, in its order, until `visit` breaks off. The report says what is damaged or
    /// would be cut; `None` after a break.
    ///
    /// # Errors
    /// When files cannot be read.
    pub fn for_each_record(
        &self,
        mut visit: impl FnMut(&RecordRef<'_>) -> ControlFlow<()>,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<Option<RecoveryReport>, StoreError> {
        let mut queues = QueueCheck::new(&self.layout, self.log_min())?;
        let mut walk = Walk {
            visit: Some(&mut visit),
            deletions: Deletions::default(),
            delay_levels: &self.delay_levels,
            queues: &mut queues,
            index: None,
            findings: Findings::new(0),
            stopped: false,
        };
        match self.scan(&mut walk, progress) {
            Err(_) if walk.stopped => Ok(None),
            result => result.map(Some),
        }
    }

    /// Checks everything.
    ///
    /// # Errors
    /// When files cannot be read.
    pub fn verify(
        &self,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<VerifyReport, StoreError> {
        let log_min = self.log_min();
        let mut queues = QueueCheck::new(&self.layout, log_min)?;
        let mut index = IndexCheck::new(&self.layout, log_min, self.clean)?;
        let mut walk = Walk {
            visit: None,
            deletions: self.deletions(&queues),
            delay_levels: &self.delay_levels,
            queues: &mut queues,
            index: Some(&mut index),
            findings: Findings::new(self.most_findings),
            stopped: false,
        };
        for (path, len, expected) in &self.layout.short {
            walk.findings.add(Finding::ShortFile {
                path: path.clone(),
                len: *len,
                expected: *expected,
            });
        }
        let log = self.scan(&mut walk, progress)?;
        let mut findings = walk.findings;
        for range in &log.damaged {
            findings.add(Finding::Damaged(range.clone()));
        }
        if let Some(cut) = &log.cut {
            findings.add(Finding::Cut(cut.clone()));
        }
        queues.finish(&mut findings)?;
        index.finish(&mut findings)?;
        Ok(VerifyReport {
            sizes: self.layout.sizes,
            clean: self.clean,
            checkpoint: self.checkpoint,
            log_min: PhysicalOffset(log_min),
            log,
            queues: queues.counts(),
            index: index.counts(),
            findings,
        })
    }

    /// What a start would find to be deleted.
    fn deletions(&self, queues: &QueueCheck) -> Deletions {
        let (flushed, dispatched) = (
            self.checkpoint.flushed_offset,
            self.checkpoint.dispatched_offset,
        );
        let list = std::fs::read(self.root.join("queues"));
        match (flushed.and(dispatched), list) {
            (Some(_), Ok(list)) => {
                let mut on_disk = QueueNames::new();
                for (topic, queue_id) in self.layout.queues.keys() {
                    let ids = on_disk.entry(topic.as_str().into()).or_default();
                    ids.insert(*queue_id);
                }
                Deletions::read(&String::from_utf8_lossy(&list), &self.checkpoint, on_disk)
            }
            (None, _) if self.clean => {
                let empty = self.layout.topics_without_queues(&self.root);
                Deletions::by_empty_folders(empty, queues.largest_end())
            }
            _ => Deletions::default(),
        }
    }

    fn log_min(&self) -> i64 {
        self.layout.log.first().map_or(0, |file| file.base)
    }

    fn scan(
        &self,
        walk: &mut Walk<'_>,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<RecoveryReport, StoreError> {
        let mut config = StoreConfig::new(&self.root);
        config.mapped_file_size_commit_log = self.layout.sizes.commit_log_file.unwrap_or(1 << 30);
        let scan = Scan {
            config: &config,
            files: Arc::clone(&self.layout.log),
            checkpoint: self.checkpoint,
            clean: self.clean,
            delay_levels: &self.delay_levels,
            known_damage: match self.checkpoint.flushed_offset {
                Some(_) => {
                    DamageList::parse(&std::fs::read(self.root.join("damaged")).unwrap_or_default())
                }
                None => Vec::new(),
            },
            before_rewind: &|_| Ok(()),
        };
        Ok(scan.run(walk, progress)?.report)
    }
}

/// Compares queues and index with each record as it comes.
struct Walk<'a> {
    visit: Option<&'a mut Visit<'a>>,
    deletions: Deletions,
    delay_levels: &'a DelayLevels,
    queues: &'a mut QueueCheck,
    index: Option<&'a mut IndexCheck>,
    findings: Findings,
    stopped: bool,
}

impl Walk<'_> {
    fn index(&mut self, record: &DispatchRecord<'_>) -> Result<(), StoreError> {
        match &mut self.index {
            Some(index) => index.record(record, &mut self.findings),
            None => Ok(()),
        }
    }
}

impl Derived for Walk<'_> {
    fn largest_end(&self) -> PhysicalOffset {
        PhysicalOffset(self.queues.largest_end())
    }

    fn needed_from(&mut self, log_min: PhysicalOffset) -> PhysicalOffset {
        log_min
    }

    fn rewind(&mut self, _from: PhysicalOffset) -> Result<(), StoreError> {
        Ok(())
    }

    fn record_starts(&self, range: Range<PhysicalOffset>) -> Result<Vec<RecordPlace>, StoreError> {
        self.queues.record_starts(&range)
    }

    fn see(&mut self, record: &RecordRef<'_>) -> Result<(), StoreError> {
        let Some(visit) = &mut self.visit else {
            // No queue has it, but the index keeps its keys.
            if self.deletions.is_deleted(record) {
                let record = DispatchRecord::of(record, self.delay_levels);
                self.queues.deleted(&record)?;
                self.index(&record)?;
            }
            return Ok(());
        };
        if visit(record).is_break() {
            self.stopped = true;
            return Err(StoreError::io(
                "",
                "go on",
                std::io::ErrorKind::Interrupted.into(),
            ));
        }
        Ok(())
    }

    fn is_deleted(&self, record: &RecordRef<'_>) -> bool {
        self.deletions.is_deleted(record)
    }

    fn accept(&mut self, record: &DispatchRecord<'_>) -> Result<(), StoreError> {
        if self.visit.is_some() {
            return Ok(());
        }
        if record.is_consumable() {
            self.queues.record(record, &mut self.findings)?;
        }
        self.index(record)
    }

    fn truncate(&mut self, _end: PhysicalOffset) -> Result<(), StoreError> {
        Ok(())
    }

    fn next_offsets(&self, _visit: &mut dyn FnMut(&str, i32, QueueOffset)) {}
}
