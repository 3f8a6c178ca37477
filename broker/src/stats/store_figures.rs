//! Rates and times of putting and getting, for request 28 (broker spec 13.5).

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Seconds of which counts are kept: the longest rate spans 600.
const KEPT_SECONDS: usize = 601;
/// Upper ends of the time classes, ms, with their names.
const CLASSES: [(u64, &str); 13] = [
    (0, "[<=0ms]"),
    (10, "[0~10ms]"),
    (50, "[10~50ms]"),
    (100, "[50~100ms]"),
    (200, "[100~200ms]"),
    (500, "[200~500ms]"),
    (1000, "[500ms~1s]"),
    (2000, "[1~2s]"),
    (3000, "[2~3s]"),
    (4000, "[3~4s]"),
    (5000, "[4~5s]"),
    (10_000, "[5~10s]"),
    (u64::MAX, "[10s~]"),
];
/// Steps of a doubling in the fine classes.
const STEPS: u64 = 8;
/// Fine classes: up to 2^40 µs.
const FINE: usize = 40 * STEPS as usize;

#[derive(Debug, Clone, Copy, Default)]
struct Second {
    at_ms: i64,
    put: u64,
    found: u64,
    missed: u64,
    given: u64,
}

/// Rates shown.
#[derive(Debug, Clone, Copy)]
pub enum Rate {
    /// Messages stored.
    Put,
    /// Gets that found something.
    Found,
    /// Gets that found nothing.
    Missed,
    /// All gets.
    Gets,
    /// Messages given.
    Given,
}

#[derive(Debug)]
struct History {
    seconds: VecDeque<Second>,
    /// Day of the last look, counted from 1970 in local time.
    day: i64,
    put_at_midnight: [u64; 2],
    given_at_midnight: [u64; 2],
    minute_began_ms: i64,
    last_minute: Option<Minute>,
}

#[derive(Debug, Clone)]
struct Minute {
    classes: [u64; CLASSES.len()],
    fine: Vec<u64>,
}

/// Figures of the store. Counting adds to atomics, once a read of a connection.
#[derive(Debug)]
pub struct StoreFigures {
    found: AtomicU64,
    missed: AtomicU64,
    given: AtomicU64,
    put_longest_ms: AtomicI64,
    get_longest_ms: AtomicI64,
    classes: [AtomicU64; CLASSES.len()],
    fine: Vec<AtomicU64>,
    history: Mutex<History>,
}

/// Totals at the last two midnights and now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// At the midnight before yesterday ended.
    pub yesterday: u64,
    /// At the last midnight.
    pub today: u64,
    /// Now.
    pub now: u64,
}

fn local_day(now_ms: i64) -> i64 {
    let now = jiff::Timestamp::from_millisecond(now_ms).unwrap_or_default();
    let offset = jiff::tz::TimeZone::system().to_offset(now).seconds();
    (now_ms / 1000 + i64::from(offset)).div_euclid(86_400)
}

fn fine_class(micros: u64) -> usize {
    if micros < STEPS {
        return micros as usize;
    }
    let doubling = u64::from(micros.ilog2());
    let step = ((micros - (1 << doubling)) * STEPS) >> doubling;
    (((doubling - 2) * STEPS + step) as usize).min(FINE - 1)
}

/// The upper end of a fine class, µs.
fn fine_end(class: usize) -> u64 {
    let class = class as u64;
    if class < STEPS {
        return class;
    }
    let (doubling, step) = (class / STEPS + 2, class % STEPS);
    (1 << doubling) + ((step + 1) << doubling) / STEPS
}

impl StoreFigures {
    pub(super) fn new(now_ms: i64) -> Self {
        Self {
            found: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            given: AtomicU64::new(0),
            put_longest_ms: AtomicI64::new(0),
            get_longest_ms: AtomicI64::new(0),
            classes: Default::default(),
            fine: (0..FINE).map(|_| AtomicU64::new(0)).collect(),
            history: Mutex::new(History {
                seconds: VecDeque::with_capacity(KEPT_SECONDS),
                day: local_day(now_ms),
                put_at_midnight: [0; 2],
                given_at_midnight: [0; 2],
                minute_began_ms: now_ms,
                last_minute: None,
            }),
        }
    }

    /// Messages were put; it took so long.
    pub fn put_took(&self, messages: u64, time: Duration) {
        let ms = time.as_millis() as u64;
        let class = CLASSES.iter().position(|(end, _)| ms <= *end).unwrap_or(0);
        self.classes[class].fetch_add(messages, Ordering::Relaxed);
        if let Some(fine) = self.fine.get(fine_class(time.as_micros() as u64)) {
            fine.fetch_add(messages, Ordering::Relaxed);
        }
        raise(&self.put_longest_ms, ms as i64);
    }

    /// A get found messages, or none.
    pub fn get_took(&self, messages: usize, time: Duration) {
        if messages > 0 {
            self.found.fetch_add(1, Ordering::Relaxed);
            self.given.fetch_add(messages as u64, Ordering::Relaxed);
        } else {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
        raise(&self.get_longest_ms, time.as_millis() as i64);
    }

    /// Once a second.
    pub(super) fn tick(&self, now_ms: i64, put: u64) {
        let given = self.given.load(Ordering::Relaxed);
        let mut history = self.history.lock();
        if history.seconds.len() >= KEPT_SECONDS {
            history.seconds.pop_front();
        }
        history.seconds.push_back(Second {
            at_ms: now_ms,
            put,
            found: self.found.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
            given,
        });
        let day = local_day(now_ms);
        if day != history.day {
            history.day = day;
            history.put_at_midnight = [history.put_at_midnight[1], put];
            history.given_at_midnight = [history.given_at_midnight[1], given];
        }
        if now_ms - history.minute_began_ms >= 60_000 {
            history.minute_began_ms = now_ms;
            let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
            history.last_minute = Some(Minute {
                classes: std::array::from_fn(|class| take(&self.classes[class])),
                fine: self.fine.iter().map(take).collect(),
            });
        }
    }

    /// A rate over the last 10, 60 and 600 s; a window that is not full yet is empty.
    pub fn rates(&self, rate: Rate) -> String {
        let count = |second: &Second| match rate {
            Rate::Put => second.put,
            Rate::Found => second.found,
            Rate::Missed => second.missed,
            Rate::Gets => second.found + second.missed,
            Rate::Given => second.given,
        };
        let history = self.history.lock();
        let windows = [10, 60, 600].map(|window| {
            let seconds = &history.seconds;
            let first = seconds
                .len()
                .checked_sub(window + 1)
                .and_then(|at| seconds.get(at));
            let (Some(first), Some(last)) = (first, seconds.back()) else {
                return String::new();
            };
            let ms = (last.at_ms - first.at_ms).max(1);
            let rate = count(last).saturating_sub(count(first)) as f64 * 1000.0 / ms as f64;
            format!("{rate:?}")
        });
        windows.join(" ")
    }

    /// Messages stored until the midnights and now.
    pub fn put_totals(&self, now: u64) -> Totals {
        totals(self.history.lock().put_at_midnight, now)
    }

    /// Messages given until the midnights and now.
    pub fn given_totals(&self) -> Totals {
        let now = self.given.load(Ordering::Relaxed);
        totals(self.history.lock().given_at_midnight, now)
    }

    /// The longest put, ms.
    pub fn put_longest_ms(&self) -> i64 {
        self.put_longest_ms.load(Ordering::Relaxed)
    }

    /// The longest get, ms.
    pub fn get_longest_ms(&self) -> i64 {
        self.get_longest_ms.load(Ordering::Relaxed)
    }

    /// Puts of the last whole minute by their time; `None` in the first.
    pub fn put_distribution(&self) -> Option<String> {
        let history = self.history.lock();
        let minute = history.last_minute.as_ref()?;
        let mut text = String::new();
        for ((_, class), count) in CLASSES.iter().zip(minute.classes) {
            // Writing to a string does not fail.
            let _ = write!(text, "{class}:{count} ");
        }
        Some(text)
    }

    /// The time within which this share (0 to 1) of the puts of the last minute were done, ms.
    pub fn put_latency_ms(&self, share: f64) -> f64 {
        let history = self.history.lock();
        let counts: Vec<u64> = match &history.last_minute {
            Some(minute) => minute.fine.clone(),
            None => self
                .fine
                .iter()
                .map(|c| c.load(Ordering::Relaxed))
                .collect(),
        };
        let all: u64 = counts.iter().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (class, count) in counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                return fine_end(class) as f64 / 1000.0;
            }
        }
        0.0
    }
}

fn raise(longest: &AtomicI64, ms: i64) {
    if ms > longest.load(Ordering::Relaxed) {
        longest.fetch_max(ms, Ordering::Relaxed);
    }
}

fn totals([yesterday, today]: [u64; 2], now: u64) -> Totals {
    Totals {
        yesterday,
        today,
        now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_appear_when_their_window_is_full() {
        let figures = StoreFigures::new(0);
        for second in 0..=11 {
            figures.tick(second * 1000, second as u64 * 5);
        }
        assert_eq!(figures.rates(Rate::Put), "5.0  ");
        assert_eq!(figures.rates(Rate::Given), "0.0  ");
    }

    #[test]
    fn times_are_told_by_class_and_by_share() {
        let figures = StoreFigures::new(0);
        assert_eq!(figures.put_distribution(), None);
        figures.put_took(98, Duration::from_micros(300));
        figures.put_took(2, Duration::from_millis(70));
        figures.tick(60_000, 100);
        let text = figures.put_distribution().unwrap();
        assert!(
            text.starts_with("[<=0ms]:98 [0~10ms]:0 [10~50ms]:0 [50~100ms]:2 "),
            "{text}"
        );
        assert!((0.3..0.35).contains(&figures.put_latency_ms(0.9)));
        assert!((70.0..80.0).contains(&figures.put_latency_ms(0.99)));
        assert_eq!(figures.put_longest_ms(), 70);
    }

    #[test]
    fn midnight_moves_totals() {
        let figures = StoreFigures::new(0);
        let day = 86_400_000;
        figures.tick(day, 10);
        figures.tick(2 * day, 25);
        let Totals {
            yesterday,
            today,
            now,
        } = figures.put_totals(30);
        assert_eq!((yesterday, today, now), (10, 25, 30));
    }
}
