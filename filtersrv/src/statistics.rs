//! Figures of one filter: counted once a batch, told by request and in the log.

use hdrhistogram::Histogram;

/// Messages a batch decided on.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) matched: u64,
    pub(crate) dropped: u64,
    pub(crate) failed: u64,
    /// Failures after the last verdict; nothing if there was none.
    pub(crate) failed_at_end: u64,
    /// The last failure.
    pub(crate) error: Option<String>,
    /// Time for each message, ns.
    pub(crate) nanos: Vec<u64>,
}

impl Counts {
    /// Messages decided on.
    pub(crate) fn received(&self) -> u64 {
        self.matched + self.dropped + self.failed
    }
}

/// The sums.
#[derive(Debug)]
pub(crate) struct Statistics {
    pub(crate) matched: u64,
    pub(crate) dropped: u64,
    pub(crate) failed: u64,
    pub(crate) failures_in_a_row: u64,
    pub(crate) last_error: Option<String>,
    /// ns; one significant digit. `None` only if the bounds were wrong.
    times: Option<Histogram<u32>>,
    /// As many as were received when they were last logged.
    logged: u64,
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            matched: 0,
            dropped: 0,
            failed: 0,
            failures_in_a_row: 0,
            last_error: None,
            times: Histogram::new_with_bounds(1, 10_000_000_000, 1).ok(),
            logged: 0,
        }
    }
}

impl Statistics {
    /// Adds a batch.
    pub(crate) fn add(&mut self, counts: Counts) {
        self.matched += counts.matched;
        self.dropped += counts.dropped;
        self.failed += counts.failed;
        if counts.matched + counts.dropped > 0 {
            self.failures_in_a_row = 0;
        }
        self.failures_in_a_row += counts.failed_at_end;
        if counts.error.is_some() {
            self.last_error = counts.error;
        }
        if let Some(times) = &mut self.times {
            for nanos in counts.nanos {
                times.saturating_record(nanos);
            }
        }
    }

    /// Messages looked at.
    pub(crate) fn received(&self) -> u64 {
        self.matched + self.dropped + self.failed
    }

    /// A quantile of the time for a message, ns.
    pub(crate) fn quantile(&self, quantile: f64) -> u64 {
        self.times
            .as_ref()
            .map_or(0, |times| times.value_at_quantile(quantile))
    }

    /// Whether there is something new since this was last asked.
    pub(crate) fn take_news(&mut self) -> bool {
        let received = self.received();
        std::mem::replace(&mut self.logged, received) != received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_quantiles_and_failures_in_a_row() {
        let mut sums = Statistics::default();
        let failing = || Counts {
            failed: 2,
            failed_at_end: 2,
            error: Some("why".into()),
            ..Counts::default()
        };
        sums.add(failing());
        sums.add(failing());
        assert_eq!(sums.failures_in_a_row, 4);
        let nanos = (1..=100).map(|n| n * 1000).collect();
        sums.add(Counts {
            matched: 60,
            dropped: 40,
            nanos,
            ..Counts::default()
        });
        assert_eq!((sums.failures_in_a_row, sums.received()), (0, 104));
        assert_eq!(sums.last_error.as_deref(), Some("why"));
        assert!(
            (45_000..=56_000).contains(&sums.quantile(0.5)),
            "{}",
            sums.quantile(0.5)
        );
        assert!(
            (92_000..=110_000).contains(&sums.quantile(0.99)),
            "{}",
            sums.quantile(0.99)
        );
        assert!(sums.take_news());
        assert!(!sums.take_news());
    }
}
