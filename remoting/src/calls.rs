//! Our own requests that wait for an answer on one connection: matched by opaque, ended by answer, deadline or
//! close. One timer a connection: it is set to the earliest deadline, and a look over all waiting calls when it
//! fires finds the next one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use minimq_protocol::Command;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::{CallError, CloseReason};

/// Not armed.
const NEVER: u64 = u64::MAX;
/// Deadlines nearer to each other than this may end together.
const GRAIN: Duration = Duration::from_millis(2);
/// The table begins with so many places and returns to them when it is empty.
const FEW: usize = 64;
/// An empty table with more places than this gives its memory back.
const MANY: usize = 4096;

pub(crate) type Outcome = Result<Box<Command>, CallError>;

/// A call: waiting, or ended and not yet fetched by its caller.
struct Call {
    opaque: i32,
    waker: Option<Waker>,
    outcome: Option<Outcome>,
    due: Due,
}

/// What is told of a call that ran out of time.
#[derive(Clone, Copy)]
pub(crate) struct Due {
    deadline: Instant,
    pub(crate) timeout: Duration,
    pub(crate) code: i32,
    /// Bytes that had come from the peer when the call began.
    pub(crate) received_before: u64,
}

/// A power of two of places; a call is at the place that the low bits of its opaque name. Opaques are consecutive,
/// so a place is taken only if a call waits unusually long: its number is passed over then.
#[derive(Default)]
struct Table {
    places: Vec<Option<Call>>,
    /// Places taken.
    taken: usize,
    /// Of these, calls without an outcome.
    waiting: usize,
    last_opaque: i32,
    ended: Option<CloseReason>,
}

impl Table {
    fn next_opaque(&mut self) -> i32 {
        // Never negative: the C++ client does not expect it.
        self.last_opaque = self.last_opaque.wrapping_add(1) & i32::MAX;
        self.last_opaque
    }

    fn place(&self, opaque: i32) -> usize {
        opaque as usize & self.places.len().wrapping_sub(1)
    }

    fn place_mut(&mut self, opaque: i32) -> Option<&mut Option<Call>> {
        let place = self.place(opaque);
        let place = self.places.get_mut(place)?;
        (place.as_ref()?.opaque == opaque).then_some(place)
    }

    /// A free opaque; there is a free place for it.
    fn free_opaque(&mut self) -> i32 {
        if self.taken * 2 >= self.places.len() {
            // Numbers that differ in their low bits differ in more of them: none is in another's way.
            let more = (self.places.len() * 2).max(FEW);
            let old = std::mem::replace(
                &mut self.places,
                std::iter::repeat_with(|| None).take(more).collect(),
            );
            for call in old.into_iter().flatten() {
                let place = self.place(call.opaque);
                if let Some(free) = self.places.get_mut(place) {
                    *free = Some(call);
                }
            }
        }
        loop {
            let opaque = self.next_opaque();
            let place = self.place(opaque);
            if self.places.get(place).is_none_or(Option::is_none) {
                return opaque;
            }
        }
    }

    fn put(&mut self, call: Call) {
        let place = self.place(call.opaque);
        if let Some(free) = self.places.get_mut(place) {
            *free = Some(call);
            self.taken += 1;
            self.waiting += 1;
        }
    }

    /// The call with that opaque leaves the table.
    fn take(&mut self, opaque: i32) -> Option<Call> {
        let call = self.place_mut(opaque)?.take()?;
        self.taken -= 1;
        self.waiting -= usize::from(call.outcome.is_none());
        if self.taken == 0 && self.places.len() > MANY {
            self.places = Vec::new();
        }
        Some(call)
    }

    /// Ends a call that waits; who is to be woken. `Err`: nobody waits for it (any more).
    fn end(&mut self, opaque: i32, outcome: Outcome) -> Result<Option<Waker>, Outcome> {
        match self.place_mut(opaque) {
            Some(Some(call)) if call.outcome.is_none() => {
                call.outcome = Some(outcome);
                let waker = call.waker.take();
                self.waiting -= 1;
                Ok(waker)
            }
            _ => Err(outcome),
        }
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

    /// Notes a call; its opaque. `waker` is woken when it has ended, if that is known already.
    pub(crate) fn begin(
        &self,
        code: i32,
        timeout: Duration,
        received_before: u64,
        limit: usize,
        waker: Option<Waker>,
        now: Instant,
    ) -> Result<i32, Refused> {
        let deadline = now
            .checked_add(timeout)
            .unwrap_or(now + Duration::from_secs(86_400 * 365));
        let due = Due {
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
        if table.taken >= limit {
            return Err(Refused::TooMany);
        }
        let opaque = table.free_opaque();
        table.put(Call {
            opaque,
            waker,
            outcome: None,
            due,
        });
        self.waiting.store(table.waiting, Ordering::Relaxed);
        if micros < self.earliest.load(Ordering::Relaxed) {
            self.earliest.store(micros, Ordering::Release);
        }
        Ok(opaque)
    }

    /// An opaque for a request that wants no answer.
    pub(crate) fn opaque(&self) -> i32 {
        self.table.lock().next_opaque()
    }

    /// The outcome of a call, which then leaves the table; else its caller is woken when there is one. `None`: the call is
    /// not in the table.
    pub(crate) fn poll(&self, opaque: i32, cx: &Context<'_>) -> Poll<Option<Outcome>> {
        let mut table = self.table.lock();
        match table.place_mut(opaque) {
            Some(Some(call)) if call.outcome.is_none() => {
                let known = call.waker.as_ref();
                if !known.is_some_and(|waker| waker.will_wake(cx.waker())) {
                    let before = call.waker.replace(cx.waker().clone());
                    drop(table);
                    // Its task may go with it, and that task's own calls: not under the lock.
                    drop(before);
                }
                Poll::Pending
            }
            _ => Poll::Ready(table.take(opaque).and_then(|call| call.outcome)),
        }
    }

    /// Nobody waits for that call any more.
    pub(crate) fn forget(&self, opaque: i32) {
        // What the caller gets no more is dropped after the lock.
        let _call = {
            let mut table = self.table.lock();
            let call = table.take(opaque);
            self.waiting.store(table.waiting, Ordering::Relaxed);
            call
        };
    }

    /// Hands answers to their callers, all under one lock; `wakers` is used on the way and empty again afterwards.
    /// `stray` gets those that nobody waits for.
    #[expect(clippy::vec_box, reason = "each box goes on to its caller as it is")]
    pub(crate) fn answered(
        &self,
        answers: &mut Vec<Box<Command>>,
        wakers: &mut Vec<Waker>,
        mut stray: impl FnMut(&Command),
    ) {
        {
            let mut table = self.table.lock();
            for answer in answers.drain(..) {
                match table.end(answer.opaque, Ok(answer)) {
                    Ok(waker) => wakers.extend(waker),
                    Err(Ok(answer)) => stray(&answer),
                    Err(Err(_)) => {}
                }
            }
            self.waiting.store(table.waiting, Ordering::Relaxed);
        }
        wakers.drain(..).for_each(Waker::wake);
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

    /// Ends the calls that are due, each with what `error` says of it; their number.
    pub(crate) fn end_due(&self, mut error: impl FnMut(&Due) -> CallError) -> usize {
        let now = Instant::now() + GRAIN;
        let (mut ended, mut wakers) = (0, Vec::new());
        {
            let mut table = self.table.lock();
            let mut next: Option<Instant> = None;
            let waiting = table.places.iter_mut().flatten();
            for call in waiting.filter(|call| call.outcome.is_none()) {
                if call.due.deadline <= now {
                    call.outcome = Some(Err(error(&call.due)));
                    wakers.extend(call.waker.take());
                    ended += 1;
                } else if next.is_none_or(|next| call.due.deadline < next) {
                    next = Some(call.due.deadline);
                }
            }
            table.waiting -= ended;
            self.waiting.store(table.waiting, Ordering::Relaxed);
            let micros = next.map_or(NEVER, |next| self.micros(next));
            self.earliest.store(micros, Ordering::Release);
        }
        wakers.into_iter().for_each(Waker::wake);
        ended
    }

    /// Ends all calls, and all later ones at once.
    pub(crate) fn end_all(&self, reason: &CloseReason, error: impl Fn() -> CallError) {
        let mut wakers = Vec::new();
        {
            let mut table = self.table.lock();
            table.ended = Some(reason.clone());
            let waiting = table.places.iter_mut().flatten();
            for call in waiting.filter(|call| call.outcome.is_none()) {
                call.outcome = Some(Err(error()));
                wakers.extend(call.waker.take());
            }
            table.waiting = 0;
            self.waiting.store(0, Ordering::Relaxed);
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    fn micros(&self, deadline: Instant) -> u64 {
        u64::try_from(deadline.saturating_duration_since(self.base).as_micros())
            .unwrap_or(NEVER - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(calls: &Calls, ms: u64) -> i32 {
        match calls.begin(
            105,
            Duration::from_millis(ms),
            0,
            1000,
            None,
            Instant::now(),
        ) {
            Ok(opaque) => opaque,
            Err(_) => panic!("refused"),
        }
    }

    fn timeout(_: &Due) -> CallError {
        CallError::Timeout {
            peer: "p".into(),
            code: 1,
            timeout: Duration::ZERO,
        }
    }

    fn answer(calls: &Calls, opaque: i32) -> Vec<i32> {
        let mut answer = Box::new(Command::request(0));
        answer.opaque = opaque;
        let mut stray = Vec::new();
        calls.answered(&mut vec![answer], &mut Vec::new(), |one| {
            stray.push(one.opaque)
        });
        stray
    }

    fn outcome(calls: &Calls, opaque: i32) -> Poll<Option<Outcome>> {
        calls.poll(opaque, &Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn one_timer_serves_calls_with_different_deadlines() {
        let calls = Calls::new();
        assert!(calls.next_deadline().is_none());
        let before = Instant::now();
        begin(&calls, 600_000);
        let late = calls.next_deadline().unwrap();
        assert!(late >= before + Duration::from_secs(599));
        begin(&calls, 900_000);
        assert_eq!(calls.next_deadline(), Some(late));
        begin(&calls, 0);
        assert!(calls.next_deadline().unwrap() <= Instant::now());
        assert_eq!(calls.end_due(timeout), 1);
        assert_eq!(calls.next_deadline(), Some(late));
        assert_eq!(calls.end_due(timeout), 0);
        assert_eq!(calls.len(), 2);
    }

    #[tokio::test]
    async fn an_opaque_in_use_is_not_given_again_after_the_counter_wraps() {
        let calls = Calls::new();
        let first = begin(&calls, 1000);
        calls.table.lock().last_opaque = first - 1;
        assert_ne!(first, begin(&calls, 1000));
        calls.table.lock().last_opaque = i32::MAX;
        assert_eq!(calls.opaque(), 0);
    }

    #[tokio::test]
    async fn every_call_gets_its_own_answer_however_long_the_others_wait() {
        let calls = Calls::new();
        let mut held = Vec::new();
        for round in 0..500 {
            let opaque = begin(&calls, 1000);
            if round % 3 == 0 {
                held.push(opaque);
                continue;
            }
            assert!(outcome(&calls, opaque).is_pending());
            assert!(answer(&calls, opaque).is_empty());
            let Poll::Ready(Some(Ok(own))) = outcome(&calls, opaque) else {
                panic!("no answer")
            };
            assert_eq!(own.opaque, opaque);
            // A second answer, and one for a call that was given up, are nobody's.
            assert_eq!(answer(&calls, opaque), [opaque]);
        }
        assert_eq!(calls.len(), held.len());
        for opaque in held {
            if opaque % 2 == 0 {
                calls.forget(opaque);
                assert_eq!(answer(&calls, opaque), [opaque]);
            } else {
                assert!(answer(&calls, opaque).is_empty());
                assert!(
                    matches!(outcome(&calls, opaque), Poll::Ready(Some(Ok(one))) if one.opaque == opaque)
                );
            }
        }
        assert_eq!((calls.len(), calls.table.lock().taken), (0, 0));
    }

    #[tokio::test]
    async fn ending_fails_the_waiting_and_the_later_calls() {
        let calls = Calls::new();
        let opaque = begin(&calls, 1000);
        let error = || CallError::Timeout {
            peer: "p".into(),
            code: 1,
            timeout: Duration::ZERO,
        };
        calls.end_all(&CloseReason::Peer, error);
        assert!(matches!(outcome(&calls, opaque), Poll::Ready(Some(Err(_)))));
        assert!(matches!(
            calls.begin(1, Duration::ZERO, 0, 10, None, Instant::now()),
            Err(Refused::Ended(CloseReason::Peer))
        ));
    }
}
