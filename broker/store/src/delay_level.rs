//! Delay levels: how long a delayed message waits, and where it waits (store spec 8.1).

use minimq_protocol::properties::{Properties, name};

/// Topic in which delayed messages wait; level L in queue L - 1.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

/// The levels of `messageDelayLevel`, in order; level 1 is the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayLevels(Vec<i64>);

impl DelayLevels {
    /// Reads `1s 5s 10s ... 2h`.
    ///
    /// # Errors
    /// The piece that is no number followed by `s`, `m`, `h` or `d`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let level = |piece: &str| {
            let (number, unit) = piece.split_at_checked(piece.len().checked_sub(1)?)?;
            let unit = match unit {
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return None,
            };
            number
                .parse::<i64>()
                .ok()
                .filter(|number| *number >= 0)?
                .checked_mul(unit)
        };
        text.split(' ')
            .map(|piece| level(piece).ok_or_else(|| piece.to_owned()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The highest level.
    #[must_use]
    pub fn max_level(&self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }

    /// How long a message of `level` waits, ms; levels that do not exist wait a second, as in RocketMQ.
    #[must_use]
    pub fn delay_ms(&self, level: i32) -> i64 {
        usize::try_from(level - 1)
            .ok()
            .and_then(|index| self.0.get(index))
            .copied()
            .unwrap_or(1_000)
    }

    /// When the message of a record in the schedule topic is due: the tags code of its queue entry (store spec 2.10).
    /// `None` if the record is not of that topic or has no level above 0.
    #[must_use]
    pub fn due_time(
        &self,
        topic: &str,
        properties: Properties<'_>,
        store_timestamp: i64,
    ) -> Option<i64> {
        if topic != SCHEDULE_TOPIC {
            return None;
        }
        let level = properties
            .get(name::DELAY)?
            .parse::<i32>()
            .ok()?
            .min(self.max_level());
        (level > 0).then(|| store_timestamp.saturating_add(self.delay_ms(level)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_levels_go_from_one_second_to_two_hours() {
        let levels =
            DelayLevels::parse("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
                .unwrap();
        assert_eq!(
            (levels.max_level(), levels.delay_ms(1), levels.delay_ms(18)),
            (18, 1_000, 7_200_000)
        );
        assert_eq!(levels.delay_ms(19), 1_000);
    }

    #[test]
    fn a_piece_that_is_no_time_is_named() {
        assert_eq!(DelayLevels::parse("1s 5x"), Err("5x".into()));
        assert_eq!(DelayLevels::parse("1s  5s"), Err(String::new()));
        assert_eq!(DelayLevels::parse("1s s"), Err("s".into()));
    }

    #[test]
    fn due_time_is_store_time_plus_delay_and_too_high_levels_are_the_highest() {
        let levels = DelayLevels::parse("1s 5s").unwrap();
        let due = |topic, text| levels.due_time(topic, Properties::new(text), 100);
        assert_eq!(due(SCHEDULE_TOPIC, "DELAY\u{1}2"), Some(5_100));
        assert_eq!(due(SCHEDULE_TOPIC, "DELAY\u{1}9"), Some(5_100));
        assert_eq!(due(SCHEDULE_TOPIC, "DELAY\u{1}0"), None);
        assert_eq!(due("T", "DELAY\u{1}2"), None);
    }
}
