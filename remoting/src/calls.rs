//! Our own requests that wait for an answer on one connection: matched by opaque, ended by answer, deadline or
//! close. One timer a connection: it is set to the earliest deadline, and a look over all waiting calls when it
//! fires finds the next one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use minimq_protocol::Command;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{CallError, CloseReason};

/// Not armed.
const NEVER: u64 = u64::MAX;
/// Deadlines nearer to each other than this may end together.
const GRAIN: Duration = Duration::from_millis(2);

pub(crate) type Outcome = Result<Command, CallError>;

/// Opaques are consecutive numbers: spreading their bits is all the hashing they need.
#[derive(Default)]
pub(crate) struct OpaqueHasher(u64);

impl Hasher for OpaqueHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }
    fn write_i32(&mut self, opaque: i32) {
        self.0 = (opaque as u32 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

pub(crate) struct Waiting {
    answer: oneshot::Sender<Outcome>,
    deadline: Instant,
    pub(crate) timeout: Duration,
    pub(crate) code: i32,
    /// Bytes that had come from the peer when the call began.
    pub(crate) received_before: u64,
}

impl Waiting {
    pub(crate) fn end(self, outcome: Outcome) {
        // The caller may have gone: nobody is told then.
        let _ = self.answer.send(outcome);
    }
}

#[derive(Default)]
struct Table {
    waiting: HashMap<i32, Waiting, BuildHasherDefault<OpaqueHasher>>,
    last_opaque: i32,
    ended: Option<CloseReason>,
}

impl Table {
    fn next_opaque(&mut self) -> i32 {
        // Never negative: the C++ client does not expect it.
        self.last_opaque = self.last_opaque.wrapping_add(1) & i32::MAX;
        self.last_opaque
    }
}

/// Why a call could not begin.
pub(crate) enum Refused {
    TooMany,
    Ended(CloseReason),
}

pub(crate) struct Calls {
    table: Mutex<Table>,
    /// Earliest deadline in microseconds after `base`; may be earlier than any call's, never later.
    earliest: AtomicU64,
    /// How many wait; changed under the lock.
    waiting: AtomicUsize,
    base: Instant,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            table: Mutex::default(),
            earliest: AtomicU64::new(NEVER),
            waiting: AtomicUsize::new(0),
            base: Instant::now(),
        }
    }

    /// Notes a call; its opaque and where its outcome will come.
    pub(crate) fn begin(
        &self,
        code: i32,
        timeout: Duration,
        received_before: u64,
        limit: usize,
    ) -> Result<(i32, oneshot::Receiver<Outcome>), Refused> {
        let (answer, outcome) = oneshot::channel();
        let now = Instant::now();
        let deadline = now
            .checked_add(timeout)
            .unwrap_or(now + Duration::from_secs(86_400 * 365));
        let waiting = Waiting {
            answer,
            deadline,
            timeout,
            code,
            received_before,
        };
        let micros = self.micros(deadline);
        let mut table = self.table.lock();
        if let Some(reason) = &table.ended {
            return Err(Refused::Ended(reason.clone()));
        }
        if table.waiting.len() >= limit {
            return Err(Refused::TooMany);
        }
        let mut opaque = table.next_opaque();
        while table.waiting.contains_key(&opaque) {
            opaque = table.next_opaque();
        }
        table.waiting.insert(opaque, waiting);
        self.waiting.store(table.waiting.len(), Ordering::Relaxed);
        if micros < self.earliest.load(Ordering::Relaxed) {
            self.earliest.store(micros, Ordering::Release);
        }
        Ok((opaque, outcome))
    }

    /// An opaque for a request that wants no answer.
    pub(crate) fn opaque(&self) -> i32 {
        self.table.lock().next_opaque()
    }

    /// Takes the call with that opaque out.
    pub(crate) fn take(&self, opaque: i32) -> Option<Waiting> {
        let mut table = self.table.lock();
        let waiting = table.waiting.remove(&opaque)?;
        self.waiting.store(table.waiting.len(), Ordering::Relaxed);
        if table.waiting.is_empty() && table.waiting.capacity() > 1024 {
            table.waiting.shrink_to(64);
        }
        Some(waiting)
    }

    /// Calls waiting.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// When to look for calls that are due, if there is any.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        match self.earliest.load(Ordering::Acquire) {
            NEVER => None,
            micros => Some(self.base + Duration::from_micros(micros)),
        }
    }

    /// Takes out the calls that are due.
    pub(crate) fn take_due(&self) -> Vec<Waiting> {
        let now = Instant::now() + GRAIN;
        let mut table = self.table.lock();
        let mut next = None;
        let due = table
            .waiting
            .extract_if(|_, waiting| {
                let is_due = waiting.deadline <= now;
                if !is_due && next.is_none_or(|next| waiting.deadline < next) {
                    next = Some(waiting.deadline);
                }
                is_due
            })
            .map(|(_, waiting)| waiting)
            .collect();
        self.waiting.store(table.waiting.len(), Ordering::Relaxed);
        let micros = next.map_or(NEVER, |next| self.micros(next));
        self.earliest.store(micros, Ordering::Release);
        due
    }

    /// Ends all calls, and all later ones at once.
    pub(crate) fn end_all(&self, reason: &CloseReason, error: impl Fn() -> CallError) {
        let waiting = {
            let mut table = self.table.lock();
            table.ended = Some(reason.clone());
            self.waiting.store(0, Ordering::Relaxed);
            std::mem::take(&mut table.waiting)
        };
        for (_, waiting) in waiting {
            waiting.end(Err(error()));
        }
    }

    fn micros(&self, deadline: Instant) -> u64 {
        u64::try_from(deadline.saturating_duration_since(self.base).as_micros())
            .unwrap_or(NEVER - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(calls: &Calls, ms: u64) -> (i32, oneshot::Receiver<Outcome>) {
        match calls.begin(105, Duration::from_millis(ms), 0, 10) {
            Ok(begun) => begun,
            Err(_) => panic!("refused"),
        }
    }

    #[tokio::test]
    async fn one_timer_serves_calls_with_different_deadlines() {
        let calls = Calls::new();
        assert!(calls.next_deadline().is_none());
        let before = Instant::now();
        let _late = begin(&calls, 600_000);
        let late = calls.next_deadline().unwrap();
        assert!(late >= before + Duration::from_secs(599));
        let _later = begin(&calls, 900_000);
        assert_eq!(calls.next_deadline(), Some(late));
        let _due = begin(&calls, 0);
        assert!(calls.next_deadline().unwrap() <= Instant::now());
        assert_eq!(calls.take_due().len(), 1);
        assert_eq!(calls.next_deadline(), Some(late));
        assert_eq!(calls.take_due().len(), 0);
        assert_eq!(calls.len(), 2);
    }

    #[tokio::test]
    async fn an_opaque_in_use_is_not_given_again_after_the_counter_wraps() {
        let calls = Calls::new();
        let (first, _outcome) = begin(&calls, 1000);
        calls.table.lock().last_opaque = first - 1;
        let (second, _outcome) = begin(&calls, 1000);
        assert_ne!(first, second);
        calls.table.lock().last_opaque = i32::MAX;
        assert_eq!(calls.opaque(), 0);
    }

    #[tokio::test]
    async fn ending_fails_the_waiting_and_the_later_calls() {
        let calls = Calls::new();
        let (_, outcome) = begin(&calls, 1000);
        let timeout = || CallError::Timeout {
            peer: "p".into(),
            code: 1,
            timeout: Duration::ZERO,
        };
        calls.end_all(&CloseReason::Peer, timeout);
        assert!(outcome.await.unwrap().is_err());
        assert!(matches!(
            calls.begin(1, Duration::ZERO, 0, 10),
            Err(Refused::Ended(CloseReason::Peer))
        ));
    }
}
