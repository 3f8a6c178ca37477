//! Which message of a queue was stored at a given time (store spec 4.8), with 4.9.8's answers: the nearer of two
//! neighbours, the earlier on a tie; before all the first, after all the last (not the end). Of several messages
//! stored in one millisecond it is the one the bisection meets, as there.
//!
//! 4.9.8 picks the file by its modification time, which a copied store has lost; here it is the store time of the
//! file's last message, which is what the modification time stood for.

use super::entry::QueueEntry;
use super::queue::ConsumeQueue;
use crate::error::StoreError;

/// Store time of a record given by physical offset and size; `None` if it cannot be read.
pub(crate) type StoreTimeOf<'a> = dyn FnMut(i64, i32) -> Option<i64> + 'a;

impl ConsumeQueue {
    /// The queue offset for `timestamp`; 0 for a queue without entries. `log_min`: where the log begins.
    pub(crate) fn offset_by_time(
        &self,
        timestamp: i64,
        log_min: i64,
        time_of: &mut StoreTimeOf<'_>,
    ) -> Result<i64, StoreError> {
        let (min, max) = (self.min_offset(), self.max_offset());
        if min >= max {
            return Ok(if max == 0 { 0 } else { min });
        }
        let per_file = self.entries_per_file();
        let mut probe = |number: i64| -> Result<Probe, StoreError> {
            Ok(match self.entry(number)? {
                None => Probe::Unreadable,
                Some(entry) if entry.is_filler() || entry.physical_offset < log_min => Probe::Gone,
                Some(QueueEntry {
                    physical_offset,
                    size,
                    ..
                }) => time_of(physical_offset, size).map_or(Probe::Unreadable, Probe::At),
            })
        };
        // The first file whose last message was stored at or after the time, else the last file.
        let (mut file, mut last_file) = (min / per_file, (max - 1) / per_file);
        while file < last_file {
            let middle = file + (last_file - file) / 2;
            match probe(middle * per_file + per_file - 1)? {
                Probe::At(time) if time >= timestamp => last_file = middle,
                _ => file = middle + 1,
            }
        }
        let first = (file * per_file).max(min);
        let last = (file * per_file + per_file).min(max) - 1;
        Ok(bisect(first, last, timestamp, &mut probe)?.unwrap_or(min))
    }
}

/// What is known of one entry.
enum Probe {
    /// Stored at this time.
    At(i64),
    /// Its record was cleaned away, or it never had one.
    Gone,
    /// Its record should be there but cannot be read.
    Unreadable,
}

fn bisect(
    first: i64,
    last: i64,
    timestamp: i64,
    probe: &mut impl FnMut(i64) -> Result<Probe, StoreError>,
) -> Result<Option<i64>, StoreError> {
    let (mut low, mut high) = (first, last);
    let mut earlier: Option<(i64, i64)> = None;
    let mut later: Option<(i64, i64)> = None;
    while high >= low {
        let middle = low + (high - low) / 2;
        match probe(middle)? {
            Probe::Gone => low = middle + 1,
            Probe::Unreadable => return Ok(None),
            Probe::At(time) if time == timestamp => return Ok(Some(middle)),
            Probe::At(time) if time > timestamp => {
                high = middle - 1;
                later = Some((middle, time));
            }
            Probe::At(time) => {
                low = middle + 1;
                earlier = Some((middle, time));
            }
        }
    }
    Ok(match (earlier, later) {
        (Some((before, time)), Some((after, later_time))) => {
            let nearer_after = timestamp.abs_diff(time) > timestamp.abs_diff(later_time);
            Some(if nearer_after { after } else { before })
        }
        (Some((number, _)), None) | (None, Some((number, _))) => Some(number),
        (None, None) => None,
    })
}
