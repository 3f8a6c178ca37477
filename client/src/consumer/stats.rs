//! Speed of a consumer by topic, for tools: sums of whole seconds over the last minute, failures over the last hour.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use minimq_protocol::body::ConsumeStatus;
use parking_lot::Mutex;
use tokio::time::Instant;

const WINDOW: u64 = 60;
const HOUR: u64 = 3600;

#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    second: u64,
    pulls: u64,
    pulled: u64,
    pull_ms: u64,
    done: u64,
    failed: u64,
    consume_time: Duration,
}

#[derive(Debug, Default)]
struct Topic {
    seconds: VecDeque<Sums>,
    /// Failures by minute.
    failures: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
pub(crate) struct Stats {
    begun: Instant,
    topics: Mutex<HashMap<String, Topic>>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            topics: Mutex::default(),
        }
    }
}

impl Stats {
    fn second(&self) -> u64 {
        self.begun.elapsed().as_secs()
    }

    fn add(&self, second: u64, topic: &str, change: impl FnOnce(&mut Sums), failures: u64) {
        let mut topics = self.topics.lock();
        if !topics.contains_key(topic) {
            topics.insert(topic.to_owned(), Topic::default());
        }
        let Some(entry) = topics.get_mut(topic) else {
            return;
        };
        if entry
            .seconds
            .back()
            .is_none_or(|last| last.second != second)
        {
            entry.seconds.push_back(Sums {
                second,
                ..Sums::default()
            });
            while entry
                .seconds
                .front()
                .is_some_and(|first| first.second + WINDOW < second)
            {
                entry.seconds.pop_front();
            }
        }
        if let Some(last) = entry.seconds.back_mut() {
            change(last);
        }
        if failures > 0 {
            let minute = second / 60;
            match entry.failures.back_mut() {
                Some((last, count)) if *last == minute => *count += failures,
                _ => entry.failures.push_back((minute, failures)),
            }
            while entry
                .failures
                .front()
                .is_some_and(|(first, _)| first * 60 + HOUR < second)
            {
                entry.failures.pop_front();
            }
        }
    }

    pub(crate) fn pulled(&self, topic: &str, messages: usize, took: Duration) {
        self.pulled_at(self.second(), topic, messages, took);
    }

    fn pulled_at(&self, second: u64, topic: &str, messages: usize, took: Duration) {
        let change = |sums: &mut Sums| {
            sums.pulls += 1;
            sums.pulled += messages as u64;
            sums.pull_ms += millis(took);
        };
        self.add(second, topic, change, 0);
    }

    /// How many were done and how many failed, and the time all took together.
    pub(crate) fn consumed(&self, topic: &str, counts: [usize; 2], took: Duration) {
        self.consumed_at(self.second(), topic, counts, took);
    }

    fn consumed_at(&self, second: u64, topic: &str, counts: [usize; 2], took: Duration) {
        let [done, failed] = counts.map(|count| count as u64);
        let change = |sums: &mut Sums| {
            sums.done += done;
            sums.failed += failed;
            sums.consume_time += took;
        };
        self.add(second, topic, change, failed);
    }

    pub(crate) fn all(&self, subscribed: &[String]) -> BTreeMap<String, ConsumeStatus> {
        self.all_at(self.second(), subscribed)
    }

    fn all_at(&self, now: u64, subscribed: &[String]) -> BTreeMap<String, ConsumeStatus> {
        let topics = self.topics.lock();
        let status = |topic: &String| {
            let Some(entry) = topics.get(topic) else {
                return ConsumeStatus::default();
            };
            let recent = entry
                .seconds
                .iter()
                .filter(|sums| sums.second + WINDOW >= now);
            let mut all = Sums::default();
            for sums in recent {
                all.pulls += sums.pulls;
                all.pulled += sums.pulled;
                all.pull_ms += sums.pull_ms;
                all.done += sums.done;
                all.failed += sums.failed;
                all.consume_time += sums.consume_time;
            }
            let rate = |count: u64| count as f64 / WINDOW.min(now.max(1)) as f64;
            let mean = |sum: u64, count: u64| {
                if count == 0 {
                    0.0
                } else {
                    sum as f64 / count as f64
                }
            };
            let last_hour = entry
                .failures
                .iter()
                .filter(|(minute, _)| minute * 60 + HOUR >= now);
            ConsumeStatus {
                consume_failed_msgs: last_hour
                    .map(|(_, count)| i64::try_from(*count).unwrap_or(i64::MAX))
                    .sum(),
                consume_failed_tps: rate(all.failed),
                consume_ok_tps: rate(all.done),
                consume_rt: mean(millis(all.consume_time), all.done + all.failed),
                pull_rt: mean(all.pull_ms, all.pulls),
                pull_tps: rate(all.pulled),
            }
        };
        subscribed
            .iter()
            .map(|topic| (topic.clone(), status(topic)))
            .collect()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_minute_and_failures_of_the_last_hour() {
        let stats = Stats::default();
        for second in 1..=10 {
            stats.pulled_at(second, "t", 6, Duration::from_millis(4));
            stats.consumed_at(second, "t", [1, 0], Duration::from_millis(2));
        }
        stats.consumed_at(10, "t", [0, 1], Duration::from_millis(13));
        let now = stats.all_at(10, &["t".to_owned(), "u".to_owned()]);
        assert_eq!(
            (now["t"].pull_tps, now["t"].pull_rt, now["t"].consume_rt),
            (6.0, 4.0, 3.0)
        );
        assert_eq!(now["t"].consume_failed_msgs, 1);
        assert_eq!(now["u"], ConsumeStatus::default());
        let later = stats.all_at(130, &["t".to_owned()]);
        assert_eq!(
            (later["t"].pull_tps, later["t"].consume_failed_msgs),
            (0.0, 1)
        );
    }
}
