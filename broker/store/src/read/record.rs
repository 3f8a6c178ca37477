//! One record of the log, wherever its bytes are. What is given out is checked to be a record of its place: a queue
//! entry or an index entry is only a hint.

use bytes::Bytes;
use minimq_protocol::message::{
    MAGIC_AT, MAGIC_V1, MAGIC_V2, MIN_RECORD_LEN, PHYSICAL_OFFSET_AT, SYS_FLAG_AT, TOTAL_SIZE_AT,
    store_timestamp_at,
};

use super::Reader;
use super::pool::BUFFER_LEN;
use crate::consume_queue::{Blocking, ReadError};
use crate::damage::fault_of;
use crate::error::StoreError;
use crate::offset::PhysicalOffset;

/// Bytes of the log at hand.
#[derive(Debug, Default)]
pub(super) struct Span {
    at: i64,
    bytes: Bytes,
}

impl Span {
    /// `len` bytes at `at`, if all are here.
    fn get(&self, at: i64, len: usize) -> Option<Bytes> {
        let from = usize::try_from(at - self.at).ok()?;
        let to = from.checked_add(len)?;
        (to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }
}

/// The length a record claims, if a record of the place `at` begins with these bytes.
fn claimed_len(head: &[u8], at: i64) -> Option<usize> {
    let int = |from: usize| {
        head.get(from..)?
            .first_chunk()
            .map(|b| i32::from_be_bytes(*b))
    };
    let own = head
        .get(PHYSICAL_OFFSET_AT..)?
        .first_chunk()
        .map(|b| i64::from_be_bytes(*b));
    let len = usize::try_from(int(TOTAL_SIZE_AT)?).ok()?;
    (matches!(int(MAGIC_AT)?, MAGIC_V1 | MAGIC_V2) && own == Some(at) && len >= MIN_RECORD_LEN)
        .then_some(len)
}

/// Whether what was read from a file is what was stored. Recovery looks at the end of the log only, and disks forget
/// elsewhere too; beside the reading this costs little. What is still in memory from being written needs no look.
fn is_whole(bytes: &[u8], at: i64) -> bool {
    match fault_of(bytes, at) {
        None => true,
        Some(reason) => {
            tracing::error!(at, reason, "damaged record in the commit log: not served");
            false
        }
    }
}

impl Reader {
    /// `len` bytes at `at`, taken from `span`, which is moved if it does not have them. Where they are cold, as many are
    /// read at a time as `ahead` says. Empty if the log does not have them (any more).
    fn bytes_at(
        &self,
        span: &mut Span,
        at: i64,
        len: usize,
        ahead: impl FnOnce() -> usize,
        blocking: Blocking,
    ) -> Result<Bytes, ReadError> {
        if let Some(bytes) = span.get(at, len) {
            return Ok(bytes);
        }
        let place = PhysicalOffset(at);
        let bytes = match self.log.hot_span(place) {
            Some(bytes) => bytes,
            None => self.pool.filled(ahead().max(len), |buffer| {
                let read = self
                    .log
                    .read_cold(place, buffer, blocking == Blocking::Allowed)?;
                read.ok_or(ReadError::WouldBlock)
            })?,
        };
        *span = Span { at, bytes };
        Ok(span.get(at, len).unwrap_or_default())
    }

    /// The record of `len` bytes that a queue entry says begins at `at`; `None` if it does not, or is damaged.
    pub(super) fn record_of_entry(
        &self,
        span: &mut Span,
        at: i64,
        len: usize,
        ahead: impl FnOnce() -> usize,
        blocking: Blocking,
    ) -> Result<Option<Bytes>, ReadError> {
        if at < self.log.min_offset().get() || self.damage.contains(PhysicalOffset(at)) {
            return Ok(None);
        }
        // A length from a damaged entry must not make us ask for memory without end.
        let room = self.log.next_file_start(PhysicalOffset(at)).get() - at;
        if i64::try_from(len).map_or(true, |len| len > room) {
            return Ok(None);
        }
        let hot = self.log.is_hot(PhysicalOffset(at));
        let bytes = self.bytes_at(span, at, len, ahead, blocking)?;
        if claimed_len(&bytes, at) != Some(len) {
            return Ok(None);
        }
        Ok((hot || is_whole(&bytes, at)).then_some(bytes))
    }

    /// The record at `at`; `None` if none begins there, or it is damaged.
    pub(super) fn record_at(
        &self,
        at: i64,
        blocking: Blocking,
    ) -> Result<Option<Bytes>, ReadError> {
        if at < 0 || at < self.log.min_offset().get() || self.damage.contains(PhysicalOffset(at)) {
            return Ok(None);
        }
        let mut span = Span::default();
        let head = self.bytes_at(&mut span, at, MIN_RECORD_LEN, || BUFFER_LEN, blocking)?;
        let Some(len) = claimed_len(&head, at) else {
            return Ok(None);
        };
        // A length from a damaged head must not make us read for ever.
        if len as i64 > self.log.next_file_start(PhysicalOffset(at)).get() - at {
            return Ok(None);
        }
        let bytes = self.bytes_at(&mut span, at, len, || len, blocking)?;
        Ok(is_whole(&bytes, at).then_some(bytes))
    }

    /// When the record at `at` was stored; `None` if there is none. Reads its head only.
    pub(super) fn time_at(&self, at: i64) -> Result<Option<i64>, StoreError> {
        if at < 0 || at < self.log.min_offset().get() || self.damage.contains(PhysicalOffset(at)) {
            return Ok(None);
        }
        let mut span = Span::default();
        let head = self
            .bytes_at(
                &mut span,
                at,
                MIN_RECORD_LEN,
                || MIN_RECORD_LEN,
                Blocking::Allowed,
            )
            .map_err(ReadError::into_store_error)?;
        let int = |from: usize| {
            head.get(from..)?
                .first_chunk()
                .map(|b| i32::from_be_bytes(*b))
        };
        let (Some(_), Some(sys_flag)) = (claimed_len(&head, at), int(SYS_FLAG_AT)) else {
            return Ok(None);
        };
        let time = head
            .get(store_timestamp_at(sys_flag)..)
            .and_then(|rest| rest.first_chunk());
        Ok(time.map(|time| i64::from_be_bytes(*time)))
    }
}
