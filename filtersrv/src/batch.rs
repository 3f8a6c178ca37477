//! The messages of one pull through one filter: one batch a filter at a time, within a limit of time. What is kept are
//! slices of what the broker sent, byte for byte.
//!
//! Filters run on threads of their own number. Handing a batch to another thread and back takes many times longer than
//! an ordinary filter needs for it, so one that has shown itself quick runs at once where it is wanted, with a limit so
//! short that nobody else notices; a batch that passes this limit goes to the threads, and so do the filter's next ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_filter_engine::{Failure, Instance, InstanceError};
use minimq_protocol::message::{MessageView, split_records};
use tokio::sync::Semaphore;

use crate::active_filter::ActiveFilter;
use crate::config::ErrorPolicy;
use crate::statistics::Counts;

/// What a filter that runs at once has for a message and for a batch.
const AT_ONCE: Times = Times {
    message: Some(Duration::from_millis(1)),
    batch: Duration::from_millis(2),
};

/// Limits of time.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// Processor time for a message; beyond it the message is undecided. `None`: the engine's own limit, and passing it is
    /// a failure.
    message: Option<Duration>,
    /// Time for all messages; the rest is undecided.
    batch: Duration,
}

/// How a batch ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Every message is decided.
    All,
    /// The time is used up: from this queue offset on nothing is decided.
    Undecided(i64),
    /// No verdict on the message at this queue offset, and the policy is to fail; or the filter does not start.
    Failed {
        /// Queue offset.
        offset: i64,
        /// Why.
        reason: String,
    },
    /// What the broker sent is not made of records from here on; the queue offset behind the last good one.
    Damaged {
        /// Queue offset, if there was a good one.
        behind: Option<i64>,
        /// What is wrong.
        reason: String,
    },
}

/// A batch that has been run.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The records to pass on; neighbours are one slice.
    pub(crate) kept: Vec<Bytes>,
    /// How it ended.
    pub(crate) end: End,
    /// It came further than nowhere.
    decided: bool,
}

/// Runs batches.
#[derive(Debug)]
pub(crate) struct BatchRunner {
    threads: Arc<Semaphore>,
    policy: ErrorPolicy,
    times: Times,
}

impl BatchRunner {
    /// At most `threads` batches run at one time, each for `budget`.
    pub(crate) fn new(threads: usize, policy: ErrorPolicy, budget: Duration) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(threads)),
            policy,
            times: Times {
                message: None,
                batch: budget,
            },
        }
    }

    /// Runs the records of `body`. Waits for its turn: the filter's first, so that waiting for a slow filter takes no
    /// thread away from others.
    pub(crate) async fn run(
        &self,
        filter: &Arc<ActiveFilter>,
        body: Bytes,
    ) -> Result<Batch, String> {
        let mut slot = filter.slot().clone().lock_owned().await;
        if filter.is_quick() {
            let batch = run(filter, &mut slot, &body, self.policy, AT_ONCE);
            if batch.decided {
                return Ok(batch);
            }
        }
        // The semaphore is never closed.
        let permit = self.threads.clone().acquire_owned().await;
        let (filter, policy, times) = (filter.clone(), self.policy, self.times);
        let work = move || {
            let batch = run(&filter, &mut slot, &body, policy, times);
            drop((slot, permit));
            batch
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| format!("the filter's run failed: {error}"))
    }
}

/// What a batch has collected.
struct Collected<'b> {
    body: &'b Bytes,
    kept: Vec<(usize, usize)>,
    counts: Counts,
}

impl Collected<'_> {
    fn keep(&mut self, begin: usize, end: usize) {
        match self.kept.last_mut() {
            Some((_, last)) if *last == begin => *last = end,
            _ => self.kept.push((begin, end)),
        }
    }

    fn failed(&mut self, offset: i64, reason: &str) {
        self.counts.failed += 1;
        self.counts.failed_at_end += 1;
        self.counts.error = Some(format!("queue offset {offset}: {reason}"));
    }

    fn slices(&self) -> Vec<Bytes> {
        let within = |(begin, end): &(usize, usize)| *begin <= *end && *end <= self.body.len();
        self.kept
            .iter()
            .filter(|range| within(range))
            .map(|(begin, end)| self.body.slice(*begin..*end))
            .collect()
    }
}

fn run(
    filter: &ActiveFilter,
    slot: &mut Option<Instance>,
    body: &Bytes,
    policy: ErrorPolicy,
    times: Times,
) -> Batch {
    let begin = Instant::now();
    let mut collected = Collected {
        body,
        kept: Vec::new(),
        counts: Counts::default(),
    };
    let end = run_all(filter, slot, &mut collected, policy, times);
    filter.took(begin.elapsed());
    let decided = collected.counts.received() > 0 || !matches!(end, End::Undecided(_));
    let kept = collected.slices();
    filter.count(collected.counts);
    Batch { kept, end, decided }
}

fn run_all(
    filter: &ActiveFilter,
    slot: &mut Option<Instance>,
    collected: &mut Collected<'_>,
    policy: ErrorPolicy,
    times: Times,
) -> End {
    let begin = Instant::now();
    let mut records = split_records(collected.body.clone());
    let mut at = 0;
    let mut behind = None;
    let mut next = records.next();
    while let Some(first) = &next {
        let offset = match first {
            Ok(view) => view.queue_offset(),
            Err(error) => {
                return End::Damaged {
                    behind,
                    reason: error.to_string(),
                };
            }
        };
        if collected.counts.received() > 0 && begin.elapsed() >= times.batch {
            return End::Undecided(offset);
        }
        let instance = match filter.instance(slot) {
            Ok(instance) => instance,
            Err(error) => return does_not_start(filter, collected, offset, &error),
        };
        // As long as this instance can go on.
        let mut batch = match times.message {
            Some(limit) => instance.batch_within(limit),
            None => instance.batch(),
        };
        let mut last = Instant::now();
        while let Some(Ok(view)) = &next {
            if collected.counts.received() > 0 && last.duration_since(begin) >= times.batch {
                return End::Undecided(view.queue_offset());
            }
            let verdict = batch.run(view);
            if times.message.is_some() && matches!(verdict, Err(Failure::TimedOut(_))) {
                return End::Undecided(view.queue_offset());
            }
            let now = Instant::now();
            collected
                .counts
                .nanos
                .push(now.duration_since(last).as_nanos() as u64);
            last = now;
            let end = at + view.size();
            if let Some(end) = decide(filter, collected, view, (at, end), verdict, policy) {
                return end;
            }
            behind = Some(view.queue_offset().saturating_add(1));
            at = end;
            next = records.next();
            if batch.is_spent() {
                break;
            }
        }
    }
    filter.was_in_time();
    End::All
}

/// Takes a verdict; the end of the batch if it is that.
fn decide(
    filter: &ActiveFilter,
    collected: &mut Collected<'_>,
    view: &MessageView<Bytes>,
    (begin, end): (usize, usize),
    verdict: Result<bool, Failure>,
    policy: ErrorPolicy,
) -> Option<End> {
    let failure = match verdict {
        Ok(keep) => {
            collected.counts.failed_at_end = 0;
            if keep {
                collected.counts.matched += 1;
                collected.keep(begin, end);
            } else {
                collected.counts.dropped += 1;
            }
            return None;
        }
        Err(failure) => failure,
    };
    let offset = view.queue_offset();
    let reason = failure.to_string();
    tracing::debug!(%reason, offset, topic = %filter.key.topic, group = %filter.key.group, "the filter failed");
    collected.failed(offset, &reason);
    let timed_out = matches!(failure, Failure::TimedOut(_));
    if timed_out {
        filter.timed_out(Instant::now());
    }
    match policy {
        ErrorPolicy::Fail => return Some(End::Failed { offset, reason }),
        ErrorPolicy::Pass => collected.keep(begin, end),
        ErrorPolicy::Drop => {}
    }
    // A filter that timed out gets no further message now, whatever the policy: others want the thread.
    timed_out.then(|| End::Undecided(offset.saturating_add(1)))
}

/// Without an instance there is no verdict on anything: whatever the policy, the pull fails.
fn does_not_start(
    filter: &ActiveFilter,
    collected: &mut Collected<'_>,
    offset: i64,
    error: &InstanceError,
) -> End {
    let reason = format!("the filter does not start: {error}");
    if matches!(error, InstanceError::Start(_)) {
        filter.timed_out(Instant::now());
        collected.counts.error = Some(format!("queue offset {offset}: {reason}"));
    }
    End::Failed { offset, reason }
}
