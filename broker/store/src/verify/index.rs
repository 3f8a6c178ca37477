//! Index files beside the records of the log: both are in its order.

use std::collections::VecDeque;
use std::path::PathBuf;

use minimq_protocol::hash::index_key_hash;

use super::files::{Layout, read_at};
use super::report::{Finding, Findings, IndexCounts};
use crate::dispatch_record::DispatchRecord;
use crate::error::StoreError;
use crate::index::{IndexEntries, IndexPlace};
use crate::offset::PhysicalOffset;

/// Transaction bits of a record that was rolled back: it is not indexed.
const ROLLBACK: i32 = 0xC;
/// Bytes read at a time.
const BLOCK: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct IndexCheck {
    files: VecDeque<PathBuf>,
    sizes: Option<(u32, u32)>,
    /// Slots are up to date only after a clean stop.
    check_slots: bool,
    log_min: i64,
    current: Option<IndexEntries>,
    /// The next entry that no record claimed yet.
    next: Option<IndexPlace>,
    began: bool,
    counts: IndexCounts,
}

impl IndexCheck {
    pub(super) fn new(layout: &Layout, log_min: i64, clean: bool) -> Result<Self, StoreError> {
        let mut check = Self {
            files: layout.index.iter().cloned().collect(),
            sizes: layout.sizes.index,
            check_slots: clean,
            log_min,
            current: None,
            next: None,
            began: false,
            counts: IndexCounts {
                files: layout.index.len() as u64,
                ..IndexCounts::default()
            },
        };
        check.advance(&mut Findings::default())?;
        Ok(check)
    }

    pub(super) fn counts(&self) -> IndexCounts {
        self.counts
    }

    fn advance(&mut self, findings: &mut Findings) -> Result<(), StoreError> {
        let Some(sizes) = self.sizes else {
            return Ok(());
        };
        loop {
            if let Some(current) = &mut self.current {
                let read =
                    |path: &std::path::Path, at, len: usize| read_at(path, at, len.min(BLOCK));
                self.next = current.next(&read)?;
                if self.next.is_some() {
                    return Ok(());
                }
                if let Some(reason) = current.fault(self.check_slots, &read)? {
                    findings.add(Finding::IndexFile {
                        path: current.path().to_owned(),
                        reason,
                    });
                }
            }
            let Some(path) = self.files.pop_front() else {
                (self.current, self.next) = (None, None);
                return Ok(());
            };
            let head = read_at(&path, 0, 40)?;
            self.current = Some(IndexEntries::new(path, &head, sizes));
        }
    }

    /// The entry the walk stands at does not belong to a record of the log.
    fn dangling(&mut self, findings: &mut Findings) -> Result<(), StoreError> {
        if let (Some(place), Some(current)) = (&self.next, &self.current)
            && place.physical >= self.log_min
        {
            findings.add(Finding::KeyDangling {
                path: current.path().to_owned(),
                number: place.number,
                at: PhysicalOffset(place.physical),
            });
        }
        self.advance(findings)
    }

    pub(super) fn record(
        &mut self,
        record: &DispatchRecord<'_>,
        findings: &mut Findings,
    ) -> Result<(), StoreError> {
        if self.sizes.is_none() || record.damaged || record.sys_flag & ROLLBACK == ROLLBACK {
            return Ok(());
        }
        let at = record.physical_offset.get();
        while self.next.as_ref().is_some_and(|place| place.physical < at) {
            self.dangling(findings)?;
        }
        let keys = record
            .uniq_key
            .into_iter()
            .chain(record.keys.split(' ').filter(|key| !key.is_empty()));
        let mut wanted: Vec<(i32, &str)> = keys
            .map(|key| (index_key_hash(record.topic, key), key))
            .collect();
        while let Some(place) = self.next.as_ref().filter(|place| place.physical == at) {
            self.began = true;
            match wanted.iter().position(|(hash, _)| *hash == place.key_hash) {
                Some(found) => {
                    wanted.remove(found);
                    self.counts.matched += 1;
                    self.advance(findings)?;
                }
                None => self.dangling(findings)?,
            }
        }
        if self.next.is_none() {
            self.counts.behind += wanted.len() as u64;
        } else if self.began {
            for (_, key) in wanted {
                findings.add(Finding::KeyMissing {
                    at: record.physical_offset,
                    key: format!("{}#{key}", record.topic),
                });
            }
        }
        Ok(())
    }

    /// After the last record: entries that are left point behind the log's end.
    pub(super) fn finish(&mut self, findings: &mut Findings) -> Result<(), StoreError> {
        while self.next.is_some() {
            self.dangling(findings)?;
        }
        Ok(())
    }
}
