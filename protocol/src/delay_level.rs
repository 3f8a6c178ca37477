//! The delay levels of a broker: setting `messageDelayLevel` (broker spec 9).

/// The levels of RocketMQ where nothing else is set.
pub const DEFAULT: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

/// Delays by level; level 1 is the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayLevels(Vec<i64>);

/// An item that is no delay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "delay level {level} is \"{item}\": a whole number and one of s, m, h, d was expected, items apart by one blank"
)]
pub struct DelayLevelError {
    /// The level, from 1.
    pub level: usize,
    /// Its text.
    pub item: String,
}

impl DelayLevels {
    /// Reads `1s 5s 10s …`; blanks at the end are ignored.
    pub fn parse(text: &str) -> Result<Self, DelayLevelError> {
        text.trim_end_matches(' ')
            .split(' ')
            .enumerate()
            .map(|(index, item)| {
                delay_ms(item).ok_or_else(|| DelayLevelError {
                    level: index + 1,
                    item: item.to_owned(),
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The highest level.
    #[must_use]
    pub fn max_level(&self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }

    /// The level that a message with this `DELAY` gets: at most the highest; `None` if it is not delayed.
    #[must_use]
    pub fn effective(&self, level: i32) -> Option<i32> {
        (level > 0).then(|| level.min(self.max_level()))
    }

    /// Delay of a level in ms, above the highest that of the highest; `None` if the level is not above 0.
    #[must_use]
    pub fn delay_ms(&self, level: i32) -> Option<i64> {
        let index = usize::try_from(self.effective(level)? - 1).ok()?;
        self.0.get(index).copied()
    }

    /// When a message stored at `store_timestamp` (ms) is due; `None` if it is not delayed.
    ///
    /// This is the tags code of its consume-queue entry (wire spec 7.8).
    #[must_use]
    pub fn due(&self, level: i32, store_timestamp: i64) -> Option<i64> {
        Some(store_timestamp.saturating_add(self.delay_ms(level)?))
    }

    /// Levels and their delays in ms, from level 1.
    pub fn iter(&self) -> impl Iterator<Item = (i32, i64)> + '_ {
        (1..).zip(self.0.iter().copied())
    }
}

impl Default for DelayLevels {
    /// The levels of [`DEFAULT`].
    fn default() -> Self {
        let (s, m, h) = (1000, 60_000, 3_600_000);
        let minutes = (1..=10).map(|minutes| minutes * m);
        Self(
            [s, 5 * s, 10 * s, 30 * s]
                .into_iter()
                .chain(minutes)
                .chain([20 * m, 30 * m, h, 2 * h])
                .collect(),
        )
    }
}

fn delay_ms(item: &str) -> Option<i64> {
    let unit = item.chars().last()?;
    let unit_ms = match unit {
        's' => 1000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        _ => return None,
    };
    item.strip_suffix(unit)?
        .parse::<i64>()
        .ok()?
        .checked_mul(unit_ms)
}
