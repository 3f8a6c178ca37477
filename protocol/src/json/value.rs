//! The parsed tree, and the lookup of object members with the tolerance of the Java library (wire spec 6.1, quirk 3).

use super::error::BodyError;
use std::borrow::Cow;

/// A parsed JSON value. Strings borrow from the text where they contain no escapes.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number that fits an `i64`.
    Integer(i64),
    /// Any other number, as it is written.
    Decimal(Cow<'a, str>),
    /// A string.
    Text(Cow<'a, str>),
    /// An array.
    Array(Vec<Value<'a>>),
    /// An object, members in the order of the text, duplicates kept. A key is mostly text, but may be a number or an
    /// object (quirk 1).
    Object(Vec<(Value<'a>, Value<'a>)>),
    /// `{"$ref":"path"}` that could not be resolved: an error for this entry only, so it reads as absent.
    Reference(Cow<'a, str>),
}

impl<'a> Value<'a> {
    /// The members, or a [`BodyError::Mismatch`] if this is no object.
    pub fn members(&self) -> Result<Members<'_, 'a>, BodyError> {
        match self {
            Value::Object(members) => Ok(Members(members)),
            other => Err(other.mismatch("an object")),
        }
    }

    /// The text, if this is a string.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// True for what reads as "no value": `null` and an unresolved reference.
    pub fn is_absent(&self) -> bool {
        matches!(self, Value::Null | Value::Reference(_))
    }

    /// The error for a value of another form than `expected`.
    pub fn mismatch(&self, expected: &'static str) -> BodyError {
        let found = match self {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Integer(number) => number.to_string(),
            Value::Decimal(number) => shorten(number),
            Value::Text(text) => format!("\"{}\"", shorten(text)),
            Value::Array(_) => "an array".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            Value::Reference(path) => format!("the unresolved reference {}", shorten(path)),
        };
        BodyError::Mismatch {
            at: "body".to_owned(),
            expected,
            found,
        }
    }
}

/// At most 40 characters of `text`, for error messages.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The members of an object.
#[derive(Debug, Clone, Copy)]
pub struct Members<'v, 'a>(pub(super) &'v [(Value<'a>, Value<'a>)]);

impl<'v, 'a> Members<'v, 'a> {
    /// All members in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = (&'v Value<'a>, &'v Value<'a>)> + use<'v, 'a> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The member called by one of `names`: an exact match first, in the order of `names`; else one that differs only
    /// in case and in `_` and `-`. Of several members with one name the last counts.
    pub fn get(&self, names: &[&str]) -> Option<&'v Value<'a>> {
        let exact = |name: &str| {
            self.0
                .iter()
                .rev()
                .find(|(key, _)| key.as_text() == Some(name))
        };
        let alike = |name: &str| {
            self.0
                .iter()
                .rev()
                .find(|(key, _)| key.as_text().is_some_and(|key| alike(key, name)))
        };
        let found = names
            .iter()
            .find_map(|name| exact(name))
            .or_else(|| names.iter().find_map(|name| alike(name)));
        found.map(|(_, value)| value)
    }

    /// The member called by one of `names` as a `T`; `default` when it is missing, or absent in a field that cannot be
    /// empty.
    pub fn field<T: super::FromValue>(
        &self,
        names: &[&str],
        default: impl FnOnce() -> T,
    ) -> Result<T, BodyError> {
        let Some(value) = self.get(names) else {
            return Ok(default());
        };
        let read = T::from_value(value)
            .map_err(|error| error.inside(names.first().copied().unwrap_or_default()))?;
        Ok(read.unwrap_or_else(default))
    }
}

/// Equal but for case, `_` and `-`.
fn alike(left: &str, right: &str) -> bool {
    fn folded(text: &str) -> impl Iterator<Item = u8> {
        text.bytes()
            .filter(|byte| !matches!(byte, b'_' | b'-'))
            .map(|byte| byte.to_ascii_lowercase())
    }
    folded(left).eq(folded(right))
}
