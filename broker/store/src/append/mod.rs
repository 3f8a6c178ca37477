//! How a message gets into the log (store spec 3).
//!
//! Before the lock: limits, lengths, body checksum ([`message`]). Under it, for at most 64 messages or 256 KiB: take the
//! next queue offset, write the record where it will stay, move the published end once. Nothing there waits for a disk:
//! files and pages are made ready by another thread (`commit_log::ahead`), and where they are not ready yet the caller
//! gets a [`RoomTicket`] to wait with. No allocation per message or batch once the scratch memory has grown.
//!
//! Lock order: the append lock, then `ahead`'s state, then the log's file list; none of them is held during I/O.

pub mod message;
pub(crate) mod queue_offsets;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Instant;

use minimq_protocol::message::{BLANK_LEN, MAGIC_BLANK};
use minimq_protocol::sys_flag::message::{TRANSACTION_COMMIT, TRANSACTION_NONE, transaction};
use parking_lot::Mutex;

use self::message::{AppendMessage, AppendOutcome, AppendResult, Limits, Prepared};
use self::queue_offsets::QueueOffsets;
use crate::clock::StoreClock;
use crate::commit_log::CommitLog;
use crate::commit_log::ahead::{Ahead, RoomTicket, Spare};
use crate::commit_log::file::LogFile;
use crate::counters::{Counters, add, add_locked};
use crate::error::AppendError;
use crate::gate::Gate;
use crate::offset::{PhysicalOffset, QueueOffset};
use crate::recent_records::RecentRecord;
use crate::region::RegionWriter;

/// Most messages of one hold of the lock.
const HOLD_MESSAGES: usize = 64;
/// Most bytes of one hold of the lock; a single message or batch may be longer.
const HOLD_BYTES: usize = 256 * 1024;
/// One hold in so many is timed.
const TIME_ONE_IN: u64 = 64;

/// How far an append came.
#[derive(Debug)]
#[must_use = "messages may be left over"]
pub enum Appended {
    /// Every message has its outcome.
    All,
    /// There is no room for the next message yet; those before it have their outcomes. Wait with the ticket, then append
    /// the rest.
    Waiting(RoomTicket),
}

/// Who tells those that follow the log that it grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// The append.
    Now,
    /// Its caller, soon.
    Caller,
}

/// The writing end of the log.
#[derive(Debug)]
pub(crate) struct Appender {
    log: Arc<CommitLog>,
    ahead: Arc<Ahead>,
    gate: Arc<Gate>,
    counters: Arc<Counters>,
    clock: StoreClock,
    max_message_size: AtomicUsize,
    state: Mutex<State>,
    /// When the lock was taken by who has it, ms; 0 while nobody has.
    held_since: AtomicI64,
}

#[derive(Debug)]
struct State {
    current: Option<Current>,
    queues: QueueOffsets,
    holds: u64,
    /// Records of this hold, for those that follow the log.
    written: Vec<RecentRecord>,
}

/// The file that is written now.
#[derive(Debug)]
struct Current {
    file: Arc<LogFile>,
    writer: RegionWriter,
}

impl Current {
    /// Offset of the next byte in the log.
    fn at(&self) -> i64 {
        self.file.base + self.writer.position() as i64
    }
}

/// What ends a hold.
enum Hold {
    /// So many messages have their outcome.
    Done(usize),
    /// As `Done`, and the next one needs room.
    NoRoom(usize),
}

thread_local! {
    /// What was computed about the messages of one append, kept for its memory.
    static SCRATCH: RefCell<Vec<Prepared>> = const { RefCell::new(Vec::new()) };
}

impl Appender {
    /// Appends at the end of `log`, whose last file is `current`.
    pub(crate) fn new(
        log: Arc<CommitLog>,
        ahead: Arc<Ahead>,
        gate: Arc<Gate>,
        clock: StoreClock,
        max_message_size: usize,
        current: Option<(Arc<LogFile>, RegionWriter)>,
        queues: QueueOffsets,
    ) -> Self {
        Self {
            counters: Arc::clone(&log.counters),
            log,
            ahead,
            gate,
            clock,
            max_message_size: AtomicUsize::new(max_message_size),
            state: Mutex::new(State {
                current: current.map(|(file, writer)| Current { file, writer }),
                queues,
                holds: 0,
                written: Vec::new(),
            }),
            held_since: AtomicI64::new(0),
        }
    }

    /// See [`crate::Store::append`].
    pub(crate) fn append(
        &self,
        messages: &[AppendMessage<'_>],
        outcomes: &mut Vec<AppendOutcome>,
        tell: Tell,
    ) -> Appended {
        let mut scratch = SCRATCH.with(RefCell::take);
        let limits = Limits {
            max_message_size: self.max_message_size.load(Ordering::Relaxed),
            file_size: usize::try_from(self.log.file_size()).unwrap_or(usize::MAX),
        };
        scratch.clear();
        scratch.extend(messages.iter().map(|message| message.prepare(limits)));
        let appended = self.append_prepared(messages, &mut scratch, outcomes, tell);
        scratch.clear();
        SCRATCH.with(|place| place.replace(scratch));
        appended
    }

    fn append_prepared(
        &self,
        messages: &[AppendMessage<'_>],
        prepared: &mut [Prepared],
        outcomes: &mut Vec<AppendOutcome>,
        tell: Tell,
    ) -> Appended {
        let (mut messages, mut prepared) = (messages, prepared);
        while !messages.is_empty() {
            if let Err(shut) = self.gate.check() {
                add(&self.counters.refused_messages, messages.len() as u64);
                outcomes.extend(messages.iter().map(|_| Err(shut.clone())));
                return Appended::All;
            }
            let ticket = self.ahead.ticket();
            let (done, room) = match self.hold(messages, prepared, outcomes) {
                Hold::Done(done) => (done, true),
                Hold::NoRoom(done) => (done, false),
            };
            // Whoever waits for room does not keep what is stored from its readers meanwhile.
            if done > 0 && (tell == Tell::Now || !room) {
                self.log.appended();
            }
            messages = messages.get(done..).unwrap_or_default();
            prepared = prepared.get_mut(done..).unwrap_or_default();
            if !room {
                add(&self.counters.room_waits, 1);
                return Appended::Waiting(ticket);
            }
        }
        Appended::All
    }

    /// Appends as many messages as one hold of the lock may take.
    fn hold(
        &self,
        messages: &[AppendMessage<'_>],
        prepared: &mut [Prepared],
        outcomes: &mut Vec<AppendOutcome>,
    ) -> Hold {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let now = self.clock.now_ms();
        self.held_since.store(now, Ordering::Relaxed);
        state.holds += 1;
        let timer = state.holds.is_multiple_of(TIME_ONE_IN).then(Instant::now);

        let (mut done, mut stored, mut bytes, mut refused) = (0, 0, 0, 0);
        let mut room = true;
        while let Some(unit) = unit_len(messages.get(done..).unwrap_or_default()) {
            let range = done..done + unit;
            let (Some(unit_messages), Some(unit_prepared)) =
                (messages.get(range.clone()), prepared.get_mut(range))
            else {
                break;
            };
            let len: usize = unit_prepared.iter().map(|prepared| prepared.len).sum();
            if stored > 0 && (stored + unit > HOLD_MESSAGES || bytes + len > HOLD_BYTES) {
                break;
            }
            match self.place(state, unit_messages, unit_prepared, len, now, outcomes) {
                Placed::Stored => {
                    stored += unit;
                    bytes += len;
                }
                Placed::Refused => refused += unit,
                Placed::NoRoom => {
                    room = false;
                    break;
                }
            }
            done += unit;
        }
        if stored > 0
            && let Some(current) = &mut state.current
        {
            self.log.recent_records.add(&mut state.written);
            current.writer.publish();
            self.log.publish(current.at(), now);
            add_locked(&self.counters.appended_messages, stored as u64);
            add_locked(&self.counters.appended_bytes, bytes as u64);
        }
        add_locked(&self.counters.append_holds, 1);
        if let Some(timer) = timer {
            let nanos = u64::try_from(timer.elapsed().as_nanos()).unwrap_or(u64::MAX);
            add_locked(&self.counters.append_hold_nanos, nanos);
            add_locked(&self.counters.append_holds_timed, 1);
        }
        self.held_since.store(0, Ordering::Relaxed);
        drop(guard);

        if refused > 0 {
            add(&self.counters.refused_messages, refused as u64);
        }
        if stored > 0 {
            self.ahead.consumed(self.log.max_offset().get());
        }
        if room {
            Hold::Done(done)
        } else {
            Hold::NoRoom(done)
        }
    }

    /// Stores one message, or one batch, or refuses it whole.
    fn place(
        &self,
        state: &mut State,
        messages: &[AppendMessage<'_>],
        prepared: &mut [Prepared],
        len: usize,
        now: i64,
        outcomes: &mut Vec<AppendOutcome>,
    ) -> Placed {
        let file_size = self.log.file_size() as u64;
        let refused = if prepared.iter().any(|prepared| prepared.refused.is_some()) {
            Some(AppendError::BatchRefused)
        } else if (len + BLANK_LEN) as u64 > file_size {
            Some(AppendError::LargerThanFile {
                len: len as u64,
                file_size,
            })
        } else {
            match self.room(state, len) {
                Room::Ready => None,
                Room::Later => return Placed::NoRoom,
                Room::Never(error) => Some(error),
            }
        };
        if let Some(error) = refused {
            let own =
                |prepared: &mut Prepared| prepared.refused.take().unwrap_or_else(|| error.clone());
            outcomes.extend(prepared.iter_mut().map(|prepared| Err(own(prepared))));
            return Placed::Refused;
        }
        let State {
            current: Some(current),
            queues,
            written: records,
            ..
        } = state
        else {
            return Placed::NoRoom;
        };
        for (message, prepared) in messages.iter().zip(prepared.iter()) {
            let physical_offset = current.at();
            let next = queues.next(message.topic, message.queue_id);
            let in_queue = matches!(
                transaction(message.sys_flag),
                TRANSACTION_NONE | TRANSACTION_COMMIT
            );
            let queue_offset = if in_queue { *next } else { 0 };
            let mut fields = message.fields(prepared.body_crc);
            fields.queue_offset = queue_offset;
            fields.physical_offset = physical_offset;
            fields.store_timestamp = now;
            let written = current
                .writer
                .next(prepared.len)
                .map(|memory| fields.encode_into(memory));
            // Lengths were checked outside the lock and room was checked just now.
            debug_assert!(
                matches!(written, Some(Ok(written)) if written == prepared.len),
                "{written:?}"
            );
            current.writer.advance(prepared.len);
            records.extend(prepared.digest.and_then(|digest| {
                let place = (physical_offset, prepared.len);
                RecentRecord::of(message, digest, place, queue_offset, now)
            }));
            *next += i64::from(in_queue);
            outcomes.push(Ok(AppendResult {
                physical_offset: PhysicalOffset(physical_offset),
                queue_offset: QueueOffset(queue_offset),
                size: prepared.len as i32,
                store_timestamp: now,
            }));
        }
        Placed::Stored
    }

    /// Sees to it that `len` bytes and an end mark fit into ready pages of the current file, going on to the next file if
    /// they do not fit into this one.
    fn room(&self, state: &mut State, len: usize) -> Room {
        let need = len + BLANK_LEN;
        if state
            .current
            .as_ref()
            .is_none_or(|current| current.writer.room() < need)
        {
            let base = match &state.current {
                Some(current) => current.file.end(),
                None => self.log.max_offset().get(),
            };
            let spare = match self.ahead.take_spare(base) {
                Ok(spare) => spare,
                Err(None) => return Room::Later,
                Err(Some(refusal)) => return Room::Never(AppendError::NoNextFile(refusal)),
            };
            self.roll(state, spare);
        }
        let Some(current) = &state.current else {
            return Room::Later;
        };
        let end = (current.at() + need as i64).min(current.file.end());
        if self.ahead.is_ready(end) {
            Room::Ready
        } else {
            match self.ahead.page_trouble() {
                Some(refusal) => Room::Never(AppendError::NoNextFile(refusal)),
                None => Room::Later,
            }
        }
    }

    /// Ends the current file with an end mark and goes on to `spare`.
    fn roll(&self, state: &mut State, spare: Spare) {
        if let Some(current) = &mut state.current {
            let left = current.writer.room();
            if let Some(mark) = current
                .writer
                .next(BLANK_LEN.min(left))
                .filter(|mark| mark.len() == BLANK_LEN)
            {
                let (size, magic) = mark.split_at_mut(BLANK_LEN / 2);
                size.copy_from_slice(&(left as i32).to_be_bytes());
                magic.copy_from_slice(&MAGIC_BLANK.to_be_bytes());
            }
            current.writer.advance(left);
            current.writer.publish();
        }
        let base = spare.file.base;
        self.log.push_file(Arc::clone(&spare.file));
        state.current = Some(Current {
            file: spare.file,
            writer: spare.writer,
        });
        self.log.publish(base, self.log.last_store_timestamp());
        add(&self.counters.rolls, 1);
    }

    /// See [`crate::Store::append_replica`].
    pub(crate) fn append_replica(
        &self,
        at: PhysicalOffset,
        bytes: &[u8],
    ) -> Result<ReplicaAppended, AppendError> {
        self.gate.check_replica()?;
        let ticket = self.ahead.ticket();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let end = self.log.max_offset();
        let nothing_yet =
            end.get() == 0 && state.current.is_none() && self.log.min_offset().get() < 0;
        if nothing_yet {
            self.log.begin_at(at.get());
            self.ahead.begin_at(at.get());
        } else if at != end {
            return Ok(ReplicaAppended::WrongPlace { expected: end });
        }
        if state
            .current
            .as_ref()
            .is_none_or(|current| current.writer.room() == 0)
        {
            let base = at.get() - at.get().rem_euclid(self.log.file_size());
            match self.ahead.take_spare(base) {
                Ok(mut spare) => {
                    spare
                        .writer
                        .advance(usize::try_from(at.get() - base).unwrap_or(0));
                    spare.writer.publish();
                    self.log.push_file(Arc::clone(&spare.file));
                    state.current = Some(Current {
                        file: spare.file,
                        writer: spare.writer,
                    });
                    add(&self.counters.rolls, 1);
                }
                Err(None) => return Ok(ReplicaAppended::Waiting(ticket)),
                Err(Some(refusal)) => return Err(AppendError::NoNextFile(refusal)),
            }
        }
        let Some(current) = &mut state.current else {
            return Ok(ReplicaAppended::Waiting(ticket));
        };
        let Some(memory) = (bytes.len() <= current.writer.room()).then_some(bytes.len()) else {
            let room = PhysicalOffset(current.file.end());
            return Ok(ReplicaAppended::CrossesFile { file_end: room });
        };
        if !self.ahead.is_ready(current.at() + memory as i64) {
            return match self.ahead.page_trouble() {
                Some(refusal) => Err(AppendError::NoNextFile(refusal)),
                None => Ok(ReplicaAppended::Waiting(ticket)),
            };
        }
        if let Some(memory) = current.writer.next(bytes.len()) {
            memory.copy_from_slice(bytes);
        }
        current.writer.advance(bytes.len());
        current.writer.publish();
        let end = current.at();
        self.log.publish(end, self.clock.now_ms());
        add_locked(&self.counters.appended_bytes, bytes.len() as u64);
        drop(guard);
        self.ahead.consumed(end);
        self.log.appended();
        Ok(ReplicaAppended::All {
            end: PhysicalOffset(end),
        })
    }

    /// Longest body from now on.
    pub(crate) fn set_max_message_size(&self, bytes: usize) {
        self.max_message_size.store(bytes, Ordering::Relaxed);
    }

    /// How long the lock has been held by who has it, ms; 0 while nobody has.
    pub(crate) fn held_ms(&self) -> i64 {
        match self.held_since.load(Ordering::Relaxed) {
            0 => 0,
            since => self.clock.now_ms().saturating_sub(since).max(0),
        }
    }

    /// Works on the table of queue offsets.
    pub(crate) fn with_queues<R>(&self, work: impl FnOnce(&mut QueueOffsets) -> R) -> R {
        work(&mut self.state.lock().queues)
    }

    /// Drops the writer, so that nothing is appended any more.
    pub(crate) fn close(&self) {
        self.state.lock().current = None;
    }
}

/// How an append of a master's bytes went.
#[derive(Debug)]
#[must_use = "bytes may be left over"]
pub enum ReplicaAppended {
    /// All bytes are in the log.
    All {
        /// The log's end now.
        end: PhysicalOffset,
    },
    /// None are: pages are not ready yet.
    Waiting(RoomTicket),
    /// None are: the log ends elsewhere.
    WrongPlace {
        /// Where it ends.
        expected: PhysicalOffset,
    },
    /// None are: they go beyond the file's end, which no master sends.
    CrossesFile {
        /// End of the file.
        file_end: PhysicalOffset,
    },
}

enum Placed {
    Stored,
    Refused,
    NoRoom,
}

enum Room {
    Ready,
    Later,
    Never(AppendError),
}

/// Messages at the front that are stored together: one, or a whole batch.
fn unit_len(messages: &[AppendMessage<'_>]) -> Option<usize> {
    let (_, rest) = messages.split_first()?;
    Some(
        1 + rest
            .iter()
            .take_while(|message| message.joins_previous)
            .count(),
    )
}
