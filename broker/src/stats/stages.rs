//! Where the time of sends goes beside the store's own counters: one read in [`TIME_ONE_IN`] of a connection is timed,
//! stage by stage (request 28, keys `send.…`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One read in so many is timed, so that a message pays next to nothing for it.
const TIME_ONE_IN: u32 = 32;

/// Sums over the reads that were timed.
#[derive(Debug, Default)]
pub struct SendStages {
    reads: AtomicU64,
    messages: AtomicU64,
    parse: AtomicU64,
    append: AtomicU64,
    answer: AtomicU64,
    write: AtomicU64,
}

impl SendStages {
    /// All names with their values now.
    pub fn snapshot(&self) -> [(&'static str, u64); 6] {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("timed_reads", of(&self.reads)),
            ("timed_messages", of(&self.messages)),
            ("parse_nanos", of(&self.parse)),
            ("append_nanos", of(&self.append)),
            ("answer_nanos", of(&self.answer)),
            ("write_nanos", of(&self.write)),
        ]
    }
}

/// Times some reads of one connection. A stage ends where the next begins.
#[derive(Debug, Default)]
pub struct ReadTimer {
    reads: u32,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    last: Instant,
    /// Nanoseconds of parse, append, answer.
    stages: [u64; 3],
    at: usize,
    messages: usize,
}

impl ReadTimer {
    /// A read begins: frames are cut and looked at.
    pub fn begin(&mut self) {
        self.reads = self.reads.wrapping_add(1);
        self.running = self.reads.is_multiple_of(TIME_ONE_IN).then(|| Running {
            last: Instant::now(),
            stages: [0; 3],
            at: 0,
            messages: 0,
        });
    }

    /// A stage of the read's sends ends: parse, then append, then answer.
    pub fn stage(&mut self) {
        if let Some(running) = &mut self.running {
            let nanos = lap(&mut running.last);
            if let Some(stage) = running.stages.get_mut(running.at) {
                *stage = nanos;
            }
            running.at += 1;
        }
    }

    /// The read holds so many messages sent.
    pub fn messages(&mut self, count: usize) {
        if let Some(running) = &mut self.running {
            running.messages = count;
        }
    }

    /// What follows is no stage of a send: this read does not count.
    pub fn give_up(&mut self) {
        self.running = None;
    }

    /// The answers have been written. A read without sends does not count.
    pub fn written(&mut self, sums: &SendStages) {
        let Some(mut running) = self.running.take() else {
            return;
        };
        let [parse, append, answer] = running.stages;
        if running.at != running.stages.len() || running.messages == 0 {
            return;
        }
        for (sum, by) in [
            (&sums.reads, 1),
            (&sums.messages, running.messages as u64),
            (&sums.parse, parse),
            (&sums.append, append),
            (&sums.answer, answer),
            (&sums.write, lap(&mut running.last)),
        ] {
            sum.fetch_add(by, Ordering::Relaxed);
        }
    }
}

/// Nanoseconds since `last`, which becomes now.
fn lap(last: &mut Instant) -> u64 {
    let now = Instant::now();
    let nanos = now.duration_since(*last).as_nanos();
    *last = now;
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(timer: &mut ReadTimer, sums: &SendStages, messages: usize) {
        timer.begin();
        if messages > 0 {
            timer.messages(messages);
            (0..3).for_each(|_| timer.stage());
        }
        timer.written(sums);
    }

    #[test]
    fn one_read_in_many_is_timed_and_only_if_it_holds_sends() {
        let (mut timer, sums) = (ReadTimer::default(), SendStages::default());
        let timed = |sums: &SendStages| {
            let [(_, reads), (_, messages), ..] = sums.snapshot();
            (reads, messages)
        };
        (1..TIME_ONE_IN).for_each(|_| read(&mut timer, &sums, 5));
        assert_eq!(timed(&sums), (0, 0));
        read(&mut timer, &sums, 5);
        assert_eq!(timed(&sums), (1, 5));
        // Written again without a read.
        timer.written(&sums);
        (0..TIME_ONE_IN).for_each(|_| read(&mut timer, &sums, 0));
        assert_eq!(timed(&sums), (1, 5));
        (0..3 * TIME_ONE_IN).for_each(|_| read(&mut timer, &sums, 2));
        assert_eq!(timed(&sums), (4, 11));
    }
}
