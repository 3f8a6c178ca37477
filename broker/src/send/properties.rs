//! The properties text of a message as it is stored: without `WAIT`, with the cluster's name and what else the
//! broker adds (broker spec 3.3 step 4, 9.1).

use std::ops::Range;

use minimq_protocol::properties::{NAME_SEPARATOR, PAIR_SEPARATOR, name};

use crate::request::Refusal;

/// What was found while rewriting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// Where the text lies in the buffer.
    pub(crate) text: Range<usize>,
    /// The sender waits for flush and replica.
    pub(crate) waits: bool,
    /// Delay level, 0 for none.
    pub(crate) delay_level: i32,
    /// A half message of a transaction.
    pub(crate) is_half: bool,
}

/// Appends the stored form of `text` to `buffer`: pieces that are no property, or have no value, are left out as
/// Java leaves them out; `more` is added behind.
pub(crate) fn rewrite(
    text: &[u8],
    more: &[(&str, &str)],
    buffer: &mut Vec<u8>,
) -> Result<Rewritten, Refusal> {
    let begin = buffer.len();
    let (mut waits, mut is_half, mut delay) = (true, false, None);
    for piece in text.split(|byte| *byte == PAIR_SEPARATOR) {
        let Some(at) = piece.iter().position(|byte| *byte == NAME_SEPARATOR) else {
            continue;
        };
        let (name, value) = (&piece[..at], &piece[at + 1..]);
        if name.is_empty() || value.is_empty() {
            continue;
        }
        if name == name::WAIT.as_bytes() {
            waits = value.eq_ignore_ascii_case(b"true");
            continue;
        }
        if name == name::DELAY.as_bytes() {
            delay = Some(value);
        } else if name == name::TRAN_MSG.as_bytes() {
            is_half = value.eq_ignore_ascii_case(b"true");
        }
        if more.iter().all(|(added, _)| added.as_bytes() != name) {
            buffer.extend_from_slice(piece);
            buffer.push(PAIR_SEPARATOR);
        }
    }
    for (name, value) in more {
        buffer.extend_from_slice(name.as_bytes());
        buffer.push(NAME_SEPARATOR);
        buffer.extend_from_slice(value.as_bytes());
        buffer.push(PAIR_SEPARATOR);
    }
    let delay_level = match delay {
        Some(value) => level(value)?,
        None => 0,
    };
    Ok(Rewritten {
        text: begin..buffer.len(),
        waits,
        delay_level,
        is_half,
    })
}

fn level(value: &[u8]) -> Result<i32, Refusal> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.parse().map_err(|_| {
        Refusal::error(format!(
            "property DELAY is \"{}\", it must be a number",
            String::from_utf8_lossy(value)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str, more: &[(&str, &str)]) -> (String, Rewritten) {
        let mut buffer = b"before".to_vec();
        let found = rewrite(text.as_bytes(), more, &mut buffer).unwrap();
        (
            String::from_utf8(buffer[found.text.clone()].to_vec()).unwrap(),
            found,
        )
    }

    #[test]
    fn wait_goes_and_the_cluster_comes() {
        let (text, found) = rewritten(
            "a\u{1}b\u{2}WAIT\u{1}false\u{2}TAGS\u{1}t\u{2}",
            &[("CLUSTER", "C1")],
        );
        assert_eq!(text, "a\u{1}b\u{2}TAGS\u{1}t\u{2}CLUSTER\u{1}C1\u{2}");
        assert!(!found.waits && !found.is_half);
        assert!(rewritten("", &[]).1.waits);
    }

    #[test]
    fn pieces_that_are_no_property_vanish_and_added_ones_replace() {
        let (text, _) = rewritten(
            "x\u{2}\u{2}a\u{1}\u{2}b\u{1}c\u{1}d\u{2}CLUSTER\u{1}mine",
            &[("CLUSTER", "C1")],
        );
        assert_eq!(text, "b\u{1}c\u{1}d\u{2}CLUSTER\u{1}C1\u{2}");
    }

    #[test]
    fn delay_levels_must_be_numbers() {
        assert_eq!(rewritten("DELAY\u{1}-1\u{2}", &[]).1.delay_level, -1);
        for bad in ["abc", "99999999999", " 1"] {
            assert!(
                rewrite(format!("DELAY\u{1}{bad}").as_bytes(), &[], &mut Vec::new()).is_err(),
                "{bad}"
            );
        }
    }
}
