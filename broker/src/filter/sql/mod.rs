//! SQL92 selectors as RocketMQ's broker reads and evaluates them (broker spec 10.4): compiled once
//! a subscription, evaluated against properties that are looked up only when the selector asks.
//!
//! `lexer` makes tokens, `parser` the checked expression, `evaluate` runs it, `number` reads
//! numbers as Java does, `find` finds the properties that a selector names.

use minimq_protocol::properties::Properties;

mod evaluate;
mod find;
mod lexer;
mod number;
mod parser;

pub use evaluate::EvaluationError;

/// Longest selector accepted, in bytes.
pub const MAX_LENGTH: usize = 64 * 1024;
/// Deepest nesting accepted: parentheses, unary operators and chains of comparisons.
pub const MAX_DEPTH: usize = 512;
/// Nesting up to which a selector is compiled on the caller's own stack.
const SHALLOW: usize = 32;
/// Stack of the thread that compiles a deeper one, in bytes.
const DEEP_STACK: usize = 32 * 1024 * 1024;

/// Why a selector does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The text is longer than [`MAX_LENGTH`].
    #[error("the expression has {0} bytes, at most {MAX_LENGTH} are accepted")]
    TooLong(usize),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("the expression is nested deeper than {MAX_DEPTH} levels near byte {0}")]
    TooDeep(usize),
    /// A character that begins no token.
    #[error("unexpected character {character:?} at byte {at}")]
    Character {
        /// The character.
        character: char,
        /// Its byte offset in the text.
        at: usize,
    },
    /// A string or comment without an end.
    #[error("{what} that begins at byte {at} has no end")]
    Unterminated {
        /// "string" or "comment".
        what: &'static str,
        /// Byte offset of its begin.
        at: usize,
    },
    /// A number that Java's parser refuses (too large, or a float that is zero).
    #[error("number {text} at byte {at} is out of range")]
    Number {
        /// As written.
        text: String,
        /// Byte offset of its begin.
        at: usize,
    },
    /// Another token than the grammar wants here.
    #[error("expected {expected} at byte {at}, found {found}")]
    Unexpected {
        /// What the grammar wants.
        expected: &'static str,
        /// The token found, or "the end".
        found: String,
        /// Byte offset of the token.
        at: usize,
    },
    /// The parts do not fit: a comparison with something that cannot be compared, and the like.
    #[error("{what} near byte {at}")]
    Meaning {
        /// What does not fit.
        what: &'static str,
        /// Byte offset just behind the operator's operands.
        at: usize,
    },
}

/// A compiled selector.
#[derive(Debug, Clone)]
pub struct Selector {
    root: parser::Expression,
    names: find::Names,
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl Selector {
    /// Compiles `text`. Like the original, text behind a complete selector is not read
    /// (`a = 1 LIKE 'x'` is `a = 1`).
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > MAX_LENGTH {
            return Err(SelectorError::TooLong(text.len()));
        }
        let root = if possible_depth(text) <= SHALLOW {
            parser::parse(text)
        } else {
            parse_deep(text)
        };
        root.map(|root| {
            let mut names = Vec::new();
            root.names(&mut names);
            let names = find::Names::new(names);
            Self { root, names }
        })
    }

    /// Evaluates against properties: `Some(true)`, `Some(false)`, `None` for SQL's unknown.
    /// `lookup` is asked for a property each time the selector names it.
    pub fn evaluate<'p>(
        &self,
        lookup: impl Fn(&str) -> Option<&'p str>,
    ) -> Result<Option<bool>, EvaluationError> {
        evaluate::evaluate(&self.root, &lookup)
    }

    /// Whether a message with these properties is delivered: unknown and errors are no match.
    pub fn matches<'p>(&self, lookup: impl Fn(&str) -> Option<&'p str>) -> bool {
        self.evaluate(lookup) == Ok(Some(true))
    }

    /// As [`Selector::matches`], on a message's properties text, in which only what the selector asks for is looked for.
    pub fn matches_properties(&self, properties: Properties<'_>) -> bool {
        let found = self.names.of(properties.as_bytes());
        self.matches(|name| found.get(name))
    }
}

/// How deep the parser may recurse at most for this text.
fn possible_depth(text: &str) -> usize {
    let nots = text
        .as_bytes()
        .windows(3)
        .filter(|w| w.eq_ignore_ascii_case(b"not"))
        .count();
    nots + text
        .bytes()
        .filter(|b| matches!(b, b'(' | b'+' | b'-'))
        .count()
}

/// Compiles on a thread with room for [`MAX_DEPTH`] levels; rare, and never per message.
fn parse_deep(text: &str) -> Result<parser::Expression, SelectorError> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .stack_size(DEEP_STACK)
            .spawn_scoped(scope, || parser::parse(text))
            .ok()
            .and_then(|thread| thread.join().ok())
            .unwrap_or(Err(SelectorError::TooDeep(0)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_in_a_properties_text_is_what_its_reader_says() {
        let many = (0..10).map(|n| format!("p{n} = '{n}'"));
        let many = many.collect::<Vec<_>>().join(" AND ");
        let texts: [&[u8]; 6] = [
            b"",
            b"a\x011\x02b\x01x",
            b"a\x011\x02a\x012\x02b\x01x\x02",
            b"a\x01\xff\x02b\x01x",
            b"a\x01\x02broken\x02b\x01x\x01y",
            b"p0\x010\x02p1\x011\x02p2\x012\x02p3\x013\x02p4\x014\x02p5\x015\x02p6\x016\x02p7\x017\x02p8\x018\x02p9\x019",
        ];
        let mut matched = 0;
        for expression in [
            "a = 1",
            "a = 2 AND b = 'x'",
            "a IS NULL OR a > 1",
            "b IN ('x', 'x\u{1}y') AND NOT (a = 7)",
            "TRUE",
            &many,
        ] {
            let selector = Selector::parse(expression).unwrap();
            for text in texts {
                let properties = Properties::from_bytes(text);
                let one_by_one = selector.matches(|name| properties.get(name));
                assert_eq!(
                    selector.matches_properties(properties),
                    one_by_one,
                    "{expression} {text:?}"
                );
                matched += usize::from(one_by_one);
            }
        }
        assert!(matched > 10, "{matched}");
    }
}
