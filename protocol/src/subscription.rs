//! The tag expression of a subscription: `a || b` (client spec 4.3).
//!
//! The subscription that travels in heartbeats and pulls is a body; SQL expressions are the broker's.

use crate::hash::java_string_hash;

/// The expression that takes everything.
pub const ALL: &str = "*";
/// Expression type of tag expressions; also meant where none is given.
pub const TYPE_TAG: &str = "TAG";
/// Expression type of SQL-92 conditions over properties.
pub const TYPE_SQL92: &str = "SQL92";

/// Whether an expression type means a tag expression: absent, empty or `TAG`.
#[must_use]
pub fn is_tag_type(expression_type: Option<&str>) -> bool {
    matches!(expression_type, None | Some("" | TYPE_TAG))
}

/// A tag expression, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagExpression {
    /// The expression as it was given, or `*` for everything.
    pub text: String,
    /// The tags, each once, in the order of the expression. Empty: everything matches.
    pub tags: Vec<String>,
    /// Hash of each tag, each once. A broker makes these itself: C++ and Go clients send wrong ones (wire spec 7.8).
    pub codes: Vec<i32>,
}

/// An expression of nothing but separators. The text is RocketMQ's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("subString split error")]
pub struct TagExpressionError;

impl TagExpression {
    /// Reads an expression; absent, empty and `*` take everything.
    pub fn parse(text: Option<&str>) -> Result<Self, TagExpressionError> {
        let Some(text) = text.filter(|text| !text.is_empty() && *text != ALL) else {
            return Ok(Self {
                text: ALL.to_owned(),
                ..Self::default()
            });
        };
        let pieces = text.split("||");
        if pieces.clone().all(str::is_empty) {
            return Err(TagExpressionError);
        }
        let mut expression = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        // Trimmed as Java trims: everything up to the blank, no other white space.
        for tag in pieces.map(|piece| piece.trim_matches(|character| character <= ' ')) {
            if tag.is_empty() || expression.tags.iter().any(|known| known == tag) {
                continue;
            }
            expression.tags.push(tag.to_owned());
            let code = java_string_hash(tag);
            if !expression.codes.contains(&code) {
                expression.codes.push(code);
            }
        }
        Ok(expression)
    }

    /// Whether every message matches.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.tags.is_empty()
    }

    /// Whether a message may match, as far as the tags code of its queue entry tells; the broker's test.
    #[must_use]
    pub fn may_match_code(&self, tags_code: i64) -> bool {
        // The low 32 bits are the hash; the cast cuts on purpose.
        self.codes.is_empty() || self.codes.contains(&(tags_code as i32))
    }

    /// Whether a message with this tag matches; the consumer's test, which no two tags of one hash deceive.
    #[must_use]
    pub fn matches(&self, tag: Option<&str>) -> bool {
        self.takes_all() || tag.is_some_and(|tag| self.tags.iter().any(|wanted| wanted == tag))
    }
}
