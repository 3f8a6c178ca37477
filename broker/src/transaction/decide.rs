//! What a round does with one half message: a pure decision.

use minimq_protocol::message::MessageView;
use minimq_protocol::properties::name as property;

use super::half;

/// Settings and time of a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// When the round began.
    pub(super) start_ms: i64,
    /// Now.
    pub(super) now_ms: i64,
    /// Age before the first question.
    pub(super) immunity_ms: i64,
    /// Questions before a message is put aside.
    pub(super) max_checks: i64,
    /// Age at which it is put aside anyway.
    pub(super) max_age_ms: i64,
}

/// What a half message says about its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Half {
    pub(super) born_ms: i64,
    pub(super) stored_ms: i64,
    pub(super) checks: i64,
    /// Its own immunity, of the property; `None` without one.
    pub(super) own_immunity_ms: Option<i64>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Put it aside: nobody will decide.
    Discard,
    /// Store it again behind the others and ask about the copy.
    Ask,
    /// Store it again behind the others: its own immunity is longer than that of the others.
    Wait,
    /// It and what is behind it is too young: the round ends here.
    End,
}

impl Half {
    pub(super) fn of(message: &MessageView, default_immunity_ms: i64) -> Self {
        let properties = message.properties();
        let own = properties
            .get(property::CHECK_IMMUNITY_TIME_IN_SECONDS)
            .map(|text| match text.trim().parse::<i64>() {
                Ok(seconds) if seconds != -1 => seconds.saturating_mul(1000),
                _ => default_immunity_ms,
            });
        Self {
            born_ms: message.born_timestamp(),
            stored_ms: message.store_timestamp(),
            checks: half::number(properties, property::TRANSACTION_CHECK_TIMES).unwrap_or(0),
            own_immunity_ms: own,
        }
    }

    pub(super) fn decide(&self, rules: &Rules) -> Decision {
        let age_ms = rules.now_ms - self.born_ms;
        if self.checks >= rules.max_checks || age_ms > rules.max_age_ms {
            return Decision::Discard;
        }
        if self.stored_ms >= rules.start_ms {
            return Decision::End;
        }
        // A birth in the future: the clock was set back, or the producer's is wrong. Then nothing says how long to wait.
        if age_ms < 0 {
            return Decision::Ask;
        }
        match self.own_immunity_ms {
            Some(immunity_ms) if age_ms < immunity_ms => Decision::Wait,
            None if age_ms < rules.immunity_ms => Decision::End,
            _ => Decision::Ask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        start_ms: 100_000,
        now_ms: 100_000,
        immunity_ms: 6_000,
        max_checks: 15,
        max_age_ms: 1_000_000,
    };

    fn aged(age_ms: i64) -> Half {
        Half {
            born_ms: RULES.now_ms - age_ms,
            stored_ms: RULES.start_ms - 1,
            checks: 0,
            own_immunity_ms: None,
        }
    }

    #[test]
    fn a_young_message_ends_the_round_and_an_old_one_is_asked_about() {
        assert_eq!(aged(5_999).decide(&RULES), Decision::End);
        assert_eq!(aged(6_000).decide(&RULES), Decision::Ask);
        let fresh = Half {
            stored_ms: RULES.start_ms,
            ..aged(60_000)
        };
        assert_eq!(fresh.decide(&RULES), Decision::End);
    }

    #[test]
    fn its_own_immunity_counts_instead() {
        let own = |ms| Half {
            own_immunity_ms: Some(ms),
            ..aged(30_000)
        };
        assert_eq!(own(60_000).decide(&RULES), Decision::Wait);
        assert_eq!(own(30_000).decide(&RULES), Decision::Ask);
        let young = Half {
            own_immunity_ms: Some(1_000),
            ..aged(2_000)
        };
        assert_eq!(
            young.decide(&RULES),
            Decision::Ask,
            "shorter than the others' too"
        );
    }

    #[test]
    fn too_many_questions_or_too_much_time_put_it_aside() {
        let asked = |checks| Half {
            checks,
            ..aged(60_000)
        };
        assert_eq!(asked(14).decide(&RULES), Decision::Ask);
        assert_eq!(asked(15).decide(&RULES), Decision::Discard);
        assert_eq!(aged(1_000_001).decide(&RULES), Decision::Discard);
    }

    #[test]
    fn a_birth_in_the_future_is_asked_about() {
        assert_eq!(aged(-1).decide(&RULES), Decision::Ask);
    }
}
