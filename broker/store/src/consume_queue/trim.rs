//! Both ends of a queue: where it ends after a stop (store spec 6.4, 6.8), where it begins once the log was cleaned
//! (4.4, 7.5).
//!
//! Recovery takes three steps. [`ConsumeQueue::recover`] finds the entries that are on disk.
//! [`ConsumeQueue::rewind`] goes back, in memory only, to the point from which the log is dispatched again; the entries
//! beyond stay readable for [`ConsumeQueue::record_starts`]. [`ConsumeQueue::truncate`] drops what the log no longer
//! has and erases stale bytes behind the end, which a later recovery would otherwise take for entries.

use std::ops::Range;

use super::Blocking;
use super::ReadError;
use super::entry::{ENTRY_LEN, QueueEntry, entries};
use super::ext::{self, ExtWriter};
use super::queue::{ConsumeQueue, ENTRY, Writer};
use crate::error::StoreError;
use crate::offset::PhysicalOffset;
use crate::recovery::RecordPlace;

/// Files from the end at which recovery begins to look.
const RECOVERED_FILES: usize = 3;

/// Entries read at a time when walking.
const BLOCK: i64 = 3200;

/// Entries read at a time when searching.
const PROBE: i64 = 32;

/// What [`ConsumeQueue::recover`] found on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OnDisk {
    /// Number just past the last entry.
    end: i64,
    /// Whether bytes behind it have to be erased.
    dirty: bool,
}

impl ConsumeQueue {
    /// Finds the entries on disk, up to the first that was not written or points backwards. After an unclean stop bytes
    /// behind them are not to be trusted. Entries of records below `trusted` are on disk for sure.
    ///
    /// If files are missing in the middle, the queue is of no use and begins without files; it gives the number of its
    /// next message then.
    pub(super) fn recover(&self, clean: bool, trusted: i64) -> Result<Option<i64>, StoreError> {
        let starts = self.files.load(!clean)?;
        if let Some(files) = &self.ext_files {
            files.load(!clean)?;
        }
        let run = last_run(&starts, self.files.file_len());
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return Ok(None);
        };
        let scanned_from = self.scan_start(run, trusted)?;
        let end = self.scan(scanned_from / ENTRY, last / ENTRY + self.entries_per_file())?;
        let mut writer = self.writer.lock();
        self.min
            .store(first / ENTRY, std::sync::atomic::Ordering::Release);
        self.go_on_at(&mut writer, end)?;
        writer.on_disk = OnDisk {
            end,
            dirty: !clean || end * ENTRY < *last,
        };
        drop(writer);
        if clean {
            self.set_flushed(self.write_for_flush()?);
        }
        if run.len() < starts.len() {
            tracing::warn!(folder = %self.files.folder().display(), from = first, "files missing in a consume queue: it is made again from the log");
            return self.start_over().map(Some);
        }
        Ok(None)
    }

    /// The start of the file at which the search for the end begins: the last but two, or an earlier one, up to which
    /// every entry is on disk. A power cut may take whole files of entries that were not flushed, and leave later ones.
    fn scan_start(&self, run: &[i64], trusted: i64) -> Result<i64, StoreError> {
        let mut place = run.len().saturating_sub(RECOVERED_FILES);
        while place > 0 {
            let first = self.raw_entry(run[place] / ENTRY)?;
            if first
                .is_some_and(|e| e.is_written() && !e.is_filler() && e.physical_offset < trusted)
            {
                break;
            }
            place -= 1;
        }
        Ok(run[place])
    }

    /// Number just past the last good entry in `[from, to)`.
    fn scan(&self, from: i64, to: i64) -> Result<i64, StoreError> {
        let mut end = from;
        let mut physical_end = 0;
        self.walk(from, to, |entry| {
            let forward = entry.is_filler() || entry.physical_offset >= physical_end;
            if !entry.is_written() || !forward {
                return false;
            }
            physical_end = entry.physical_end().unwrap_or(physical_end);
            end += 1;
            true
        })?;
        Ok(end)
    }

    /// Calls `visit` with the entries of `[from, to)` in the files until it returns false.
    fn walk(
        &self,
        from: i64,
        to: i64,
        mut visit: impl FnMut(&QueueEntry) -> bool,
    ) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        let mut next = from;
        while next < to {
            self.read_files(next, (to - next).min(BLOCK), &mut bytes)?;
            if bytes.is_empty() || !entries(&bytes).all(|e| visit(&e)) {
                return Ok(());
            }
            next += (bytes.len() / ENTRY_LEN) as i64;
        }
        Ok(())
    }

    /// Entries as the files have them, published or not, at most to the end of a file.
    fn read_files(&self, from: i64, count: i64, out: &mut Vec<u8>) -> Result<(), StoreError> {
        out.clear();
        out.resize(count as usize * ENTRY_LEN, 0);
        let read = self.files.read(from * ENTRY, out, Blocking::Allowed);
        out.truncate(read.map_err(ReadError::into_store_error)?);
        Ok(())
    }

    /// Sets the end after entry `next - 1`.
    fn go_on_at(&self, writer: &mut Writer, next: i64) -> Result<(), StoreError> {
        let physical_end = self
            .last_message(next)?
            .and_then(|e| e.physical_end())
            .unwrap_or(0);
        self.set_end(writer, next, physical_end);
        writer.empty = next == 0;
        if let Some(files) = &self.ext_files {
            let unit = self.last_before(next, |e| ext::is_address(e.tags_code))?;
            let end = match unit {
                Some(entry) => ext::end_of_unit(files, entry.tags_code)?,
                None => None,
            };
            let end = match end {
                Some(end) => end,
                None => ext::scan_end(files, &files.list()?)?,
            };
            writer.ext = ExtWriter::at(end);
        }
        Ok(())
    }

    /// The last entry below `before` that is no filler.
    fn last_message(&self, before: i64) -> Result<Option<QueueEntry>, StoreError> {
        self.last_before(before, |e| e.is_written() && !e.is_filler())
    }

    /// The last entry below `before`, of its file and the one before, that is `wanted`.
    fn last_before(
        &self,
        before: i64,
        wanted: impl Fn(&QueueEntry) -> bool,
    ) -> Result<Option<QueueEntry>, StoreError> {
        let per_file = self.entries_per_file();
        let lowest =
            (before - 1 - (before - 1).rem_euclid(per_file) - per_file).max(self.min_offset());
        let mut bytes = Vec::new();
        let mut to = before;
        while to > lowest {
            let file_first = (to - 1) - (to - 1) % per_file;
            let from = (to - PROBE).max(file_first).max(lowest);
            self.read_files(from, to - from, &mut bytes)?;
            if let Some(entry) = entries(&bytes).rev().find(&wanted) {
                return Ok(Some(entry));
            }
            to = from;
        }
        Ok(None)
    }

    /// The first message in `[from, to)` with its number, filler passed over.
    fn next_message(&self, from: i64, to: i64) -> Result<Option<(i64, QueueEntry)>, StoreError> {
        let mut bytes = Vec::new();
        let mut next = from;
        while next < to {
            self.read_files(next, (to - next).min(PROBE), &mut bytes)?;
            let found = (next..)
                .zip(entries(&bytes))
                .find(|(_, e)| e.is_written() && !e.is_filler());
            if found.is_some() || bytes.is_empty() {
                return Ok(found);
            }
            next += (bytes.len() / ENTRY_LEN) as i64;
        }
        Ok(None)
    }

    /// Number of the first entry below `to` that belongs to a record at or after `physical`; filler belongs to the
    /// message that follows it. `to` if there is none.
    fn first_at_or_after(&self, physical: i64, to: i64) -> Result<i64, StoreError> {
        let (mut low, mut high) = (self.min_offset(), to);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.next_message(middle, high)? {
                Some((number, entry)) if entry.physical_offset < physical => low = number + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Goes back so that records from `physical` on can be entered again. Nothing on disk changes.
    pub(super) fn rewind(&self, physical: i64) -> Result<(), StoreError> {
        self.write_out()?;
        let mut writer = self.writer.lock();
        let max = self.max_offset();
        writer.on_disk.end = writer.on_disk.end.max(max);
        let number = self.first_at_or_after(physical, max)?;
        // Filler at the very end says nothing about where its records were, but it keeps their numbers taken.
        if self.next_message(number, max)?.is_some() {
            self.go_on_at(&mut writer, number)?;
        }
        Ok(())
    }

    /// Drops the entries of records that end after `physical`, the new end of the log, and erases what recovery found
    /// behind the end.
    pub(super) fn truncate(&self, physical: i64) -> Result<(), StoreError> {
        self.write_out()?;
        let mut writer = self.writer.lock();
        let max = self.max_offset();
        let mut number = self.first_at_or_after(physical, max)?;
        if self.next_message(number, max)?.is_none() {
            number = max;
        }
        while number > self.min_offset()
            && self.raw_entry(number - 1)?.and_then(|e| e.physical_end()) > Some(physical)
        {
            number -= 1;
        }
        let cut = number < max;
        if cut {
            tracing::info!(
                topic = self.topic(),
                queue = self.queue_id(),
                from = number,
                to = max,
                "entries beyond the end of the log dropped"
            );
            self.go_on_at(&mut writer, number)?;
        }
        let was = std::mem::take(&mut writer.on_disk);
        if cut || was.dirty || was.end > number {
            self.files.erase_from(number * ENTRY)?;
            if let Some(files) = &self.ext_files {
                files.erase_from(writer.ext.written())?;
            }
            self.erased
                .store(true, std::sync::atomic::Ordering::Release);
        }
        Ok(())
    }

    fn raw_entry(&self, number: i64) -> Result<Option<QueueEntry>, StoreError> {
        let mut bytes = Vec::new();
        self.read_files(number, 1, &mut bytes)?;
        Ok(entries(&bytes).next())
    }

    /// Adds where records begin in `range`, as far as the entries found by [`Self::recover`] tell.
    pub(super) fn record_starts(
        &self,
        range: &Range<PhysicalOffset>,
        out: &mut Vec<RecordPlace>,
    ) -> Result<(), StoreError> {
        self.write_out()?;
        let end = self.writer.lock().on_disk.end.max(self.max_offset());
        let from = self.first_at_or_after(range.start.get(), end)?;
        self.walk(from, end, |entry| {
            let at = PhysicalOffset(entry.physical_offset);
            let message = entry.is_written() && !entry.is_filler();
            if message && range.contains(&at) {
                out.push(RecordPlace {
                    at,
                    size: entry.size,
                });
            }
            !message || at < range.end
        })
    }

    /// Moves the minimum up to the first message that the log, which now begins at `log_min`, still has.
    pub(super) fn raise_min(&self, log_min: i64) -> Result<(), StoreError> {
        let generation = self.writer.lock().generation;
        let (min, max) = (self.min_offset(), self.max_offset());
        if self
            .entry(min)?
            .is_some_and(|e| !e.is_filler() && e.physical_offset >= log_min)
        {
            return Ok(());
        }
        self.write_out()?;
        let number = self.first_at_or_after(log_min, max)?;
        let number = self
            .next_message(number, max)?
            .map_or(max, |(number, _)| number);
        let writer = self.writer.lock();
        if writer.generation == generation {
            self.min
                .fetch_max(number, std::sync::atomic::Ordering::AcqRel);
        }
        Ok(())
    }

    /// Raises the minimum and deletes the files wholly below it, never the last one. Returns how many.
    pub(crate) fn clean(&self, log_min: i64) -> Result<usize, StoreError> {
        self.raise_min(log_min)?;
        // Held so that the queue does not begin again with files of the same names.
        let _writer = self.writer.lock();
        let min = self.min_offset();
        let starts = self.files.list()?;
        let mut deleted = 0;
        for start in starts.iter().take(starts.len().saturating_sub(1)) {
            if start / ENTRY + self.entries_per_file() > min {
                break;
            }
            self.files.delete(*start)?;
            deleted += 1;
        }
        if let (Some(files), Some(entry)) = (&self.ext_files, self.entry(min)?)
            && ext::is_address(entry.tags_code)
        {
            ext::delete_below(files, entry.tags_code)?;
        }
        Ok(deleted)
    }
}

/// The files at the end that follow each other without a gap.
fn last_run(starts: &[i64], file_len: i64) -> &[i64] {
    let breaks = starts
        .windows(2)
        .rposition(|w| matches!(w, [a, b] if *b != a + file_len));
    &starts[breaks.map_or(0, |at| at + 1)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_ends_at_a_gap() {
        assert_eq!(last_run(&[], 20), &[] as &[i64]);
        assert_eq!(last_run(&[0, 20, 40], 20), [0, 20, 40]);
        assert_eq!(last_run(&[0, 20, 60, 80], 20), [60, 80]);
    }
}
