//! One thing counted, and its figures over a minute, an hour and a day.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};

use minimq_protocol::body::BrokerStatsItem;
use parking_lot::Mutex;

/// What figures span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// Samples of 10 s.
    Minute,
    /// Samples of 10 min.
    Hour,
    /// Samples of 1 h.
    Day,
}

impl Period {
    /// Time between two samples, ms, and samples kept.
    fn shape(self) -> (i64, usize) {
        match self {
            Self::Minute => (10_000, 7),
            Self::Hour => (600_000, 7),
            Self::Day => (3_600_000, 25),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at_ms: i64,
    value: i64,
    times: i64,
}

/// A sum and how often something was added to it.
#[derive(Debug, Default)]
pub struct Item {
    value: AtomicI64,
    times: AtomicI64,
    samples: Mutex<[VecDeque<Sample>; 3]>,
}

impl Item {
    /// Adds.
    pub fn add(&self, value: i64, times: i64) {
        self.value.fetch_add(value, Ordering::Relaxed);
        self.times.fetch_add(times, Ordering::Relaxed);
    }

    /// Takes a sample.
    pub fn sample(&self, period: Period, now_ms: i64) {
        let (interval_ms, kept) = period.shape();
        let mut samples = self.samples.lock();
        let list = &mut samples[period as usize];
        if list.is_empty() {
            list.push_back(Sample {
                at_ms: now_ms - interval_ms,
                value: 0,
                times: 0,
            });
        }
        list.push_back(Sample {
            at_ms: now_ms,
            value: self.value.load(Ordering::Relaxed),
            times: self.times.load(Ordering::Relaxed),
        });
        if list.len() > kept {
            list.pop_front();
        }
    }

    /// The figures between the first and the last sample kept.
    pub fn figures(&self, period: Period) -> BrokerStatsItem {
        let samples = self.samples.lock();
        let list = &samples[period as usize];
        let (Some(first), Some(last)) = (list.front(), list.back()) else {
            return BrokerStatsItem::default();
        };
        let sum = last.value - first.value;
        let ratio = |below: i64, factor: f64| {
            if below > 0 {
                sum as f64 * factor / below as f64
            } else {
                0.0
            }
        };
        BrokerStatsItem {
            sum,
            tps: ratio(last.at_ms - first.at_ms, 1000.0),
            avgpt: ratio(last.times - first.times, 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_span_the_samples_kept() {
        let item = Item::default();
        assert_eq!(item.figures(Period::Minute), BrokerStatsItem::default());
        item.add(30, 10);
        item.sample(Period::Minute, 10_000);
        let figures = item.figures(Period::Minute);
        assert_eq!((figures.sum, figures.tps, figures.avgpt), (30, 3.0, 3.0));
        for n in 2..=20 {
            item.add(10, 1);
            item.sample(Period::Minute, n * 10_000);
        }
        let figures = item.figures(Period::Minute);
        assert_eq!((figures.sum, figures.tps, figures.avgpt), (60, 1.0, 10.0));
        assert_eq!(item.figures(Period::Day), BrokerStatsItem::default());
    }
}
