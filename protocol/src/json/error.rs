//! What can be wrong with a JSON text, and with a value in it.

use thiserror::Error;

/// A text that is not JSON, not even in the tolerant dialect, or goes beyond the [`Limits`](super::Limits).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("JSON: {problem} at byte {at}")]
pub struct JsonError {
    /// Byte offset in the text.
    pub at: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Problem {
    /// The text ends inside a value.
    #[error("the text ends too early")]
    Ended,
    /// Something else stands where the named thing must.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A backslash followed by something that is no escape.
    #[error("unknown escape")]
    Escape,
    /// Text after the value.
    #[error("text after the end of the value")]
    Trailing,
    /// Values nested more deeply than allowed.
    #[error("nested more than {0} deep")]
    TooDeep(usize),
    /// More keys and values than allowed.
    #[error("more than {0} keys and values")]
    TooMany(usize),
}

/// Why a body could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BodyError {
    /// No body, only blanks, or the text `null`.
    #[error("the body is empty")]
    Empty,
    /// The text is not JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A value has the wrong form.
    #[error("{at}: expected {expected}, found {found}")]
    Mismatch {
        /// Path of the value, such as `brokerDatas[1].brokerAddrs`; `body` for the outermost one.
        at: String,
        /// What would have been right.
        expected: &'static str,
        /// What stands there, shortened.
        found: String,
    },
    /// The compressed form of a broker registration (wire spec 6.4) is broken.
    #[error("compressed registration: {0}")]
    Registration(String),
}

impl BodyError {
    /// Puts a member name or `[index]` before the path of a mismatch.
    pub(crate) fn inside(self, step: &str) -> Self {
        match self {
            BodyError::Mismatch {
                at,
                expected,
                found,
            } => {
                let at = match at.as_str() {
                    "" | "body" => step.to_owned(),
                    at if at.starts_with('[') => format!("{step}{at}"),
                    at => format!("{step}.{at}"),
                };
                BodyError::Mismatch {
                    at,
                    expected,
                    found,
                }
            }
            other => other,
        }
    }
}
