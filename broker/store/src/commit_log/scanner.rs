//! Records one after the other: what dispatch and recovery walk the log with.
//!
//! Hot bytes are looked at where they lie; others are read in large pieces. Not here: what to do about damage
//! (`recovery`), and how a torn property text is told from an odd one (`damage`).

use std::sync::Arc;

use minimq_protocol::message::{
    BLANK_LEN, Damage, MAGIC_AT, MAGIC_BLANK, MIN_RECORD_LEN, MessageError, RecordRef,
    TOTAL_SIZE_AT, Verdict, VerifyBody, check,
};
use minimq_protocol::properties::Soundness;

use super::CommitLog;
use super::file::LogFile;
use crate::damage::is_torn;
use crate::error::StoreError;
use crate::region::Published;

/// Bytes read from a file at a time: large enough for the disk, small enough to stay in a core's cache.
const READ_LEN: usize = 1 << 20;

/// What the scanner met.
#[derive(Debug)]
pub enum Step<'a> {
    /// A whole record at its own place; the scanner stands behind it.
    Record(RecordRef<'a>),
    /// The end mark of a file; the scanner stands at the start of the next one.
    EndOfFile,
    /// No more bytes below the limit; the scanner stays.
    CaughtUp,
    /// A record whose lengths hold and that lies at its own place, with a bad body or property text. The scanner stays;
    /// [`LogScanner::seek`] goes on.
    Damaged {
        /// Its whole length.
        size: usize,
        /// Its fields as far as they can be read.
        record: Option<RecordRef<'a>>,
        /// What is wrong.
        reason: String,
    },
    /// What stands here is no record of this place. The scanner stays.
    Nothing {
        /// What is wrong.
        reason: String,
        /// The length it claims, if it lies at its own place and its magic is right.
        size: Option<usize>,
    },
}

/// Walks records from a place on.
#[derive(Debug)]
pub struct LogScanner {
    source: Source,
    at: i64,
    verify: VerifyBody,
    /// Records are looked at a second time: only their lengths are read.
    again: bool,
    window: Window,
}

#[derive(Debug)]
enum Source {
    /// The living log: bounded by what is published, hot bytes from memory.
    Log(Arc<CommitLog>),
    /// Files before the log is opened; what cannot be read is zeros.
    Files(Arc<Vec<Arc<LogFile>>>),
}

/// Bytes at hand: those of `bytes` from log offset `at` on.
#[derive(Debug, Default)]
struct Window {
    at: i64,
    bytes: WindowBytes,
    /// End of the file they are from.
    file_end: i64,
}

#[derive(Debug)]
enum WindowBytes {
    Hot(Published),
    Read(Vec<u8>),
}

impl Default for WindowBytes {
    fn default() -> Self {
        Self::Read(Vec::new())
    }
}

impl Window {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            WindowBytes::Hot(bytes) => bytes.as_ref(),
            WindowBytes::Read(bytes) => bytes,
        }
    }

    fn end(&self) -> i64 {
        self.at + self.bytes().len() as i64
    }

    fn from(&self, at: i64, limit: i64) -> &[u8] {
        let bytes = self.bytes();
        let start = usize::try_from(at - self.at).unwrap_or(usize::MAX);
        let end = usize::try_from(limit - self.at)
            .unwrap_or(0)
            .min(bytes.len());
        bytes.get(start..end).unwrap_or_default()
    }
}

impl LogScanner {
    /// Over the living log from `at` on. Bodies are not verified: they were when they came in.
    #[must_use]
    pub fn over(log: Arc<CommitLog>, at: i64) -> Self {
        Self {
            source: Source::Log(log),
            at,
            verify: VerifyBody::Skip,
            again: false,
            window: Window::default(),
        }
    }

    /// Over files that nobody has opened yet.
    pub(crate) fn over_files(files: Arc<Vec<Arc<LogFile>>>, at: i64, verify: VerifyBody) -> Self {
        Self {
            source: Source::Files(files),
            at,
            verify,
            again: false,
            window: Window::default(),
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn position(&self) -> i64 {
        self.at
    }

    /// Goes on at `at`.
    pub fn seek(&mut self, at: i64) {
        self.at = at;
    }

    /// From now on, whether what lies ahead was walked before, so that whole records need no second judgement.
    pub(crate) fn set_again(&mut self, again: bool) {
        self.again = again;
    }

    /// Looks at what stands at the position, up to `limit`.
    ///
    /// # Errors
    /// When the living log's disk cannot read.
    pub fn step(&mut self, limit: i64) -> Result<Step<'_>, StoreError> {
        if self.at >= limit || !self.load(limit, BLANK_LEN)? {
            return Ok(Step::CaughtUp);
        }
        let head = self.window.from(self.at, limit);
        let in_file = self.window.file_end - self.at;
        if let (Some(size), Some(magic)) = (read_i32(head, TOTAL_SIZE_AT), read_i32(head, MAGIC_AT))
            && magic != MAGIC_BLANK
            && let Ok(size) = usize::try_from(size)
            && size > head.len()
            && size as i64 + BLANK_LEN as i64 <= in_file
        {
            self.load(limit, size)?;
        }
        let (at, file_end) = (self.at, self.window.file_end);
        let bytes = self.window.from(at, limit.min(file_end));
        if self.again
            && let Ok(record) = RecordRef::parse_slice(bytes)
        {
            return Ok(place(record, at, &mut self.at));
        }
        match check(bytes, self.verify) {
            Verdict::Blank { size } if i64::from(size) == file_end - at => {
                self.at = file_end;
                Ok(Step::EndOfFile)
            }
            Verdict::Blank { size } => {
                let reason = format!(
                    "an end mark of {size} bytes where the file has {}",
                    file_end - at
                );
                Ok(Step::Nothing { reason, size: None })
            }
            Verdict::Whole(record) => Ok(place(record, at, &mut self.at)),
            Verdict::Damaged {
                record: Some(record),
                damage: Damage::Properties(soundness),
                ..
            } if soundness != Soundness::Sound && !is_torn(record.properties().as_bytes()) => {
                Ok(place(record, at, &mut self.at))
            }
            Verdict::Damaged {
                size,
                record,
                damage,
            } => match physical_offset(bytes) {
                Some(own) if own == at => Ok(Step::Damaged {
                    size,
                    record,
                    reason: damage.to_string(),
                }),
                own => Ok(Step::Nothing {
                    reason: misplaced(own),
                    size: None,
                }),
            },
            Verdict::NotARecord(error) => {
                let own = physical_offset(bytes) == Some(at)
                    && !matches!(error, MessageError::Magic { .. });
                let size =
                    read_i32(bytes, TOTAL_SIZE_AT).and_then(|size| usize::try_from(size).ok());
                Ok(Step::Nothing {
                    reason: error.to_string(),
                    size: size.filter(|size| own && *size >= MIN_RECORD_LEN),
                })
            }
        }
    }

    /// Bytes at log offset `at` without moving: fewer than asked for at the end of the file.
    pub(crate) fn peek(&mut self, at: i64, len: usize) -> Result<&[u8], StoreError> {
        let old = std::mem::replace(&mut self.at, at);
        let loaded = self.load(i64::MAX, len);
        self.at = old;
        loaded?;
        let bytes = self.window.from(at, i64::MAX);
        Ok(bytes.get(..len).unwrap_or(bytes))
    }

    /// Brings at least `want` bytes at the position into the window, or all there are to the end of the file or `limit`.
    /// `false` if there is no byte at all.
    fn load(&mut self, limit: i64, want: usize) -> Result<bool, StoreError> {
        let at = self.at;
        let enough = |window: &Window| {
            let have = window.end().min(limit) - at;
            window.at <= at
                && at < window.end()
                && (have >= want as i64 || window.end() >= limit.min(window.file_end))
        };
        if enough(&self.window) {
            return Ok(true);
        }
        match &self.source {
            Source::Log(log) => {
                let Some(file) = log.file_at(at) else {
                    return Ok(false);
                };
                let hot = log.hot_bytes(crate::offset::PhysicalOffset(at));
                self.window.file_end = file.end();
                self.window.at = at;
                if let Some(bytes) = hot {
                    self.window.bytes = WindowBytes::Hot(bytes);
                } else {
                    let mut buffer = self.window.take_buffer(want.max(READ_LEN));
                    let read = log.read_cold(crate::offset::PhysicalOffset(at), &mut buffer, true);
                    buffer.truncate(read.as_ref().ok().copied().flatten().unwrap_or(0));
                    self.window.bytes = WindowBytes::Read(buffer);
                    read?;
                }
            }
            Source::Files(files) => {
                let index = files.partition_point(|file| file.end() <= at);
                let Some(file) = files.get(index).filter(|file| file.base <= at) else {
                    return Ok(false);
                };
                let mut buffer = self.window.take_buffer(want.max(READ_LEN));
                let (len, given_up) = file.salvage(at, &mut buffer);
                if given_up {
                    tracing::warn!(path = %file.path.display(), at, "part of the commit log cannot be read");
                }
                buffer.truncate(len);
                self.window = Window {
                    at,
                    bytes: WindowBytes::Read(buffer),
                    file_end: file.end(),
                };
            }
        }
        Ok(!self.window.bytes().is_empty())
    }
}

impl Window {
    fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = match std::mem::take(&mut self.bytes) {
            WindowBytes::Read(buffer) => buffer,
            WindowBytes::Hot(_) => Vec::new(),
        };
        buffer.resize(len, 0);
        buffer
    }
}

/// A whole record is one only at its own place; then the scanner moves behind it.
fn place<'a>(record: RecordRef<'a>, at: i64, position: &mut i64) -> Step<'a> {
    if record.physical_offset() != at {
        return Step::Nothing {
            reason: misplaced(Some(record.physical_offset())),
            size: None,
        };
    }
    *position = at + record.size() as i64;
    Step::Record(record)
}

fn misplaced(own: Option<i64>) -> String {
    match own {
        Some(own) => format!("a record of another place: it says physical offset {own}"),
        None => "a record cut short".into(),
    }
}

fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| i32::from_be_bytes(*bytes))
}

fn physical_offset(bytes: &[u8]) -> Option<i64> {
    let at = minimq_protocol::message::PHYSICAL_OFFSET_AT;
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| i64::from_be_bytes(*bytes))
}
