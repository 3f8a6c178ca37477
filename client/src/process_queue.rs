//! The messages of one queue between pulling and the end of their consumption: pure, time and network are elsewhere
//! (client spec 4.10). What may be committed is never past an unfinished message.

use std::collections::{BTreeMap, VecDeque};

/// How much of a queue may be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Messages.
    pub(crate) messages: usize,
    /// Bytes of their bodies.
    pub(crate) bytes: usize,
    /// Distance of the first unfinished message to the last; `None` for ordered consumption.
    pub(crate) span: Option<i64>,
}

/// Messages of one queue by queue offset.
#[derive(Debug)]
pub(crate) struct ProcessQueue<M> {
    /// To be handed out, in order.
    waiting: VecDeque<(i64, M)>,
    /// All that are not finished, waiting or handed out, with their sizes.
    unfinished: BTreeMap<i64, usize>,
    bytes: usize,
    /// Everything before it has been pulled.
    next: i64,
}

impl<M> ProcessQueue<M> {
    /// Begins at an offset.
    pub(crate) fn new(start: i64) -> Self {
        Self {
            waiting: VecDeque::new(),
            unfinished: BTreeMap::new(),
            bytes: 0,
            next: start,
        }
    }

    /// Adds pulled messages (offset, size, message) in order of their offsets; pulling goes on at `next`. Messages before
    /// the place pulled to are left out: they are here or finished.
    pub(crate) fn put(&mut self, messages: impl IntoIterator<Item = (i64, usize, M)>, next: i64) {
        for (offset, size, message) in messages {
            if offset < self.next {
                continue;
            }
            self.unfinished.insert(offset, size);
            self.bytes += size;
            self.waiting.push_back((offset, message));
            self.next = offset + 1;
        }
        self.next = self.next.max(next);
    }

    /// Hands out up to `max` messages.
    pub(crate) fn take(&mut self, max: usize) -> Vec<(i64, M)> {
        let count = self.waiting.len().min(max);
        self.waiting.drain(..count).collect()
    }

    /// Takes messages back that were handed out last, to be handed out next.
    pub(crate) fn put_back(&mut self, messages: Vec<(i64, M)>) {
        for (offset, message) in messages.into_iter().rev() {
            if self.unfinished.contains_key(&offset) {
                let at = self.waiting.partition_point(|(other, _)| *other < offset);
                self.waiting.insert(at, (offset, message));
            }
        }
    }

    /// A message handed out is finished.
    pub(crate) fn finish(&mut self, offset: i64) {
        if let Some(size) = self.unfinished.remove(&offset) {
            self.bytes -= size;
        }
    }

    /// What may be committed: the first unfinished message, or the place pulled to if there is none.
    pub(crate) fn committable(&self) -> i64 {
        self.unfinished.keys().next().copied().unwrap_or(self.next)
    }

    /// Where to pull on.
    pub(crate) fn next(&self) -> i64 {
        self.next
    }

    /// Unfinished messages.
    pub(crate) fn len(&self) -> usize {
        self.unfinished.len()
    }

    /// Those of them that were not handed out.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of the unfinished messages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// First and last unfinished offset.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        Some((
            *self.unfinished.keys().next()?,
            *self.unfinished.keys().next_back()?,
        ))
    }

    /// Whether pulling has to wait. Never while it is empty.
    pub(crate) fn is_full(&self, limits: &Limits) -> bool {
        let Some((first, last)) = self.bounds() else {
            return false;
        };
        self.len() >= limits.messages.max(1)
            || self.bytes >= limits.bytes.max(1)
            || limits.span.is_some_and(|span| last - first > span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const LIMITS: Limits = Limits {
        messages: 5,
        bytes: 1000,
        span: Some(20),
    };

    #[test]
    fn a_stuck_message_holds_the_commit_and_the_others_go_on() {
        let mut queue = ProcessQueue::new(10);
        queue.put((10..14).map(|offset| (offset, 1, offset)), 14);
        assert_eq!(queue.take(10).len(), 4);
        for offset in [11, 12, 13] {
            queue.finish(offset);
        }
        assert_eq!(queue.committable(), 10);
        queue.finish(10);
        assert_eq!((queue.committable(), queue.bytes()), (14, 0));
    }

    #[test]
    fn a_stretch_without_matches_can_be_committed() {
        let mut queue = ProcessQueue::<()>::new(0);
        queue.put([], 100);
        assert_eq!((queue.committable(), queue.next()), (100, 100));
    }

    #[test]
    fn messages_put_back_come_first_and_in_order() {
        let mut queue = ProcessQueue::new(0);
        queue.put((0..6).map(|offset| (offset, 1, offset)), 6);
        let first = queue.take(2);
        let second = queue.take(2);
        queue.put_back(second);
        queue.put_back(first);
        let order: Vec<i64> = queue
            .take(9)
            .into_iter()
            .map(|(offset, _)| offset)
            .collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Pull(u8, u8),
        Take(u8),
        Finish(u8),
        PutBack(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..6u8, 0..5u8).prop_map(|(count, gap)| Step::Pull(count, gap)),
            (1..4u8).prop_map(Step::Take),
            any::<u8>().prop_map(Step::Finish),
            any::<u8>().prop_map(Step::PutBack),
        ]
    }

    proptest! {
        /// Whatever happens in whatever order: nothing unfinished is ever passed by, nothing is handed out twice at a time,
        /// and once everything is finished pulling may go on.
        #[test]
        fn the_commit_never_passes_an_unfinished_message(steps in proptest::collection::vec(step(), 0..200)) {
            let mut queue = ProcessQueue::new(3);
            let mut unfinished = BTreeSet::new();
            let mut out: Vec<(i64, i64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Pull(count, gap) if !queue.is_full(&LIMITS) => {
                        let start = queue.next() + i64::from(gap);
                        let end = start + i64::from(count);
                        queue.put((start..end).map(|offset| (offset, 7, offset)), end);
                        unfinished.extend(start..end);
                    }
                    Step::Pull(..) => prop_assert!(!unfinished.is_empty(), "full although nothing is unfinished"),
                    Step::Take(count) => {
                        let taken = queue.take(count.into());
                        for one in &taken {
                            prop_assert!(out.iter().all(|other| other.0 != one.0));
                            prop_assert!(unfinished.contains(&one.0));
                        }
                        out.extend(taken);
                    }
                    Step::Finish(which) if !out.is_empty() => {
                        let (offset, _) = out.remove(usize::from(which) % out.len());
                        queue.finish(offset);
                        unfinished.remove(&offset);
                    }
                    Step::PutBack(which) if !out.is_empty() => {
                        let one = out.remove(usize::from(which) % out.len());
                        queue.put_back(vec![one]);
                    }
                    Step::Finish(_) | Step::PutBack(_) => {}
                }
                prop_assert_eq!(queue.committable(), unfinished.first().copied().unwrap_or(queue.next()));
                prop_assert_eq!(queue.len(), unfinished.len());
                prop_assert_eq!(queue.waiting() + out.len(), unfinished.len());
                prop_assert_eq!(queue.bytes(), unfinished.len() * 7);
            }
        }

        /// With any limits, batches and order of finishing, pulling and handling together always come to the end: a full
        /// queue has something to hand out or to finish, and room follows.
        #[test]
        fn flow_control_never_stops_for_good(
            messages in 1usize..8,
            bytes in 1usize..40,
            span in proptest::option::of(0i64..12),
            batch in 1usize..6,
            gaps in proptest::collection::vec(0i64..5, 60),
            picks in proptest::collection::vec(any::<u8>(), 400),
        ) {
            let limits = Limits { messages, bytes, span };
            let mut offset = 0;
            let offsets: Vec<i64> = gaps.iter().map(|gap| { offset += 1 + gap; offset }).collect();
            let end = offset + 1;
            let (mut queue, mut out, mut done) = (ProcessQueue::new(0), Vec::new(), 0);
            for pick in picks.iter().cycle().take(4000) {
                if !queue.is_full(&limits) && queue.next() < end {
                    let next: Vec<i64> = offsets.iter().copied().filter(|one| *one >= queue.next()).take(batch).collect();
                    let upto = next.last().map_or(end, |last| last + 1);
                    queue.put(next.into_iter().map(|one| (one, 7, one)), upto);
                }
                match pick % 2 {
                    0 => out.extend(queue.take(1)),
                    _ if out.is_empty() => {}
                    _ => {
                        let (one, _) = out.remove(usize::from(*pick) / 2 % out.len());
                        queue.finish(one);
                        done += 1;
                    }
                }
                if done == offsets.len() {
                    break;
                }
            }
            // Only an unlucky order of picks needs more turns than there were: go on alternately.
            while done < offsets.len() {
                let before = (queue.next(), queue.waiting(), out.len(), done);
                if !queue.is_full(&limits) && queue.next() < end {
                    let next: Vec<i64> = offsets.iter().copied().filter(|one| *one >= queue.next()).take(batch).collect();
                    let upto = next.last().map_or(end, |last| last + 1);
                    queue.put(next.into_iter().map(|one| (one, 7, one)), upto);
                }
                out.extend(queue.take(1));
                if let Some((one, _)) = out.pop() {
                    queue.finish(one);
                    done += 1;
                }
                prop_assert_ne!(before, (queue.next(), queue.waiting(), out.len(), done), "it is stuck");
            }
            prop_assert_eq!((queue.len(), queue.bytes()), (0, 0));
        }

        /// Ordered consumption takes one message and no other until that is done or put back: each offset ends once, in order,
        /// and no two are out at a time.
        #[test]
        fn ordered_messages_are_never_out_two_at_a_time(fails in proptest::collection::vec(any::<bool>(), 0..200)) {
            let mut queue = ProcessQueue::new(0);
            queue.put((0..30).map(|offset| (offset, 1, offset)), 30);
            let mut ended = Vec::new();
            for again in fails.into_iter().chain(std::iter::repeat_n(false, 30)) {
                let Some((offset, message)) = queue.take(1).pop() else { break };
                prop_assert_eq!(queue.len() - queue.waiting(), 1);
                prop_assert_eq!(queue.committable(), offset);
                match again {
                    true => queue.put_back(vec![(offset, message)]),
                    false => {
                        queue.finish(offset);
                        ended.push(offset);
                    }
                }
            }
            prop_assert_eq!(ended, (0..30).collect::<Vec<i64>>());
        }
    }
}
