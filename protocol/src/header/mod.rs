//! Typed headers: the ext fields of each code as a struct (wire spec 3, 4). Each is declared once, with its wire names,
//! and works for JSON and binary headers alike, since both end up in [`ExtFields`].
//!
//! A struct has the name of Java's class without `Header`; mandatory fields are plain, optional ones `Option`, and
//! `or` gives the default of a primitive field. Text borrows from the command. Unknown fields are ignored.
//! One family of codes a file.

use std::borrow::Cow;

use crate::ext_fields::{ExtFields, Text};

mod access;
mod admin;
mod callback;
mod client;
mod filter_server;
mod macros;
mod name_server;
mod pull;
mod send;

pub use crate::command::{EncodedFields, FieldName};
pub use access::*;
pub use admin::*;
pub use callback::*;
pub use client::*;
pub use filter_server::*;
pub use name_server::*;
pub use pull::*;
pub use send::*;

use macros::{header, header_fields};

/// A typed header.
pub trait Header<'a>: Sized {
    /// Reads it in one pass over the fields; of a doubled key the last counts.
    fn decode(ext: &'a ExtFields) -> Result<Self, HeaderError>;

    /// Writes every field that has a value, with its wire name.
    fn write(&self, sink: &mut impl FieldSink);
}

/// Where typed headers write their fields: ext fields, or the output buffer in one of the two encodings.
pub trait FieldSink {
    /// Adds a field.
    fn put(&mut self, key: &str, value: &str);

    /// Adds a field of a declared name.
    fn put_named(&mut self, name: &FieldName, value: &str) {
        self.put(name.text, value);
    }

    /// As [`put_named`](Self::put_named), with a value that needs no escape in JSON.
    fn put_plain(&mut self, name: &FieldName, value: &str) {
        self.put_named(name, value);
    }

    /// Adds fields that have been encoded before.
    fn put_encoded(&mut self, fields: &EncodedFields) {
        for (key, value) in fields.iter() {
            self.put(key, value);
        }
    }
}

/// Why ext fields are not the header wanted. Its text is the remark of the answer (code 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A mandatory field is not there.
    #[error("header field {field} is missing")]
    Missing {
        /// Wire name.
        field: &'static str,
    },
    /// A field has not the form of its type.
    #[error("header field {field} is \"{value}\", not {expected}")]
    Malformed {
        /// Wire name.
        field: &'static str,
        /// What was sent, cut after 64 characters.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

impl HeaderError {
    /// For a value that is not `expected`.
    pub fn malformed(field: &'static str, value: &str, expected: &'static str) -> Self {
        Self::Malformed {
            field,
            value: value.chars().take(64).collect(),
            expected,
        }
    }
}

/// No fields at all: for answers without a header, and for ignoring one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoHeader;

impl<'a> Header<'a> for NoHeader {
    fn decode(_: &'a ExtFields) -> Result<Self, HeaderError> {
        Ok(Self)
    }

    fn write(&self, _: &mut impl FieldSink) {}
}

/// Two headers in one, for codes whose fields come from two places.
impl<'a, A: Header<'a>, B: Header<'a>> Header<'a> for (A, B) {
    fn decode(ext: &'a ExtFields) -> Result<Self, HeaderError> {
        Ok((A::decode(ext)?, B::decode(ext)?))
    }

    fn write(&self, sink: &mut impl FieldSink) {
        self.0.write(sink);
        self.1.write(sink);
    }
}

/// A type that a header field can have (wire spec 3).
trait FieldValue<'a>: Sized {
    /// From the text of a field that is there.
    fn read(field: &'static str, raw: Text<'a>) -> Result<Self, HeaderError>;

    /// For a field that is not there.
    fn absent(field: &'static str) -> Result<Self, HeaderError> {
        Err(HeaderError::Missing { field })
    }

    fn write(&self, name: &FieldName, sink: &mut impl FieldSink);
}

impl<'a> FieldValue<'a> for &'a str {
    fn read(_: &'static str, raw: Text<'a>) -> Result<Self, HeaderError> {
        Ok(raw.as_str())
    }

    fn write(&self, name: &FieldName, sink: &mut impl FieldSink) {
        sink.put_named(name, self);
    }
}

/// Text of the command, or made for the answer.
impl<'a> FieldValue<'a> for Cow<'a, str> {
    fn read(field: &'static str, raw: Text<'a>) -> Result<Self, HeaderError> {
        <&str>::read(field, raw).map(Cow::Borrowed)
    }

    fn write(&self, name: &FieldName, sink: &mut impl FieldSink) {
        sink.put_named(name, self);
    }
}

/// Most numbers: nothing but up to 18 digits.
fn short_number(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + i64::from(digit))
    })
}

#[cold]
fn out_of_range(field: &'static str, number: i64, expected: &'static str) -> HeaderError {
    HeaderError::malformed(field, itoa::Buffer::new().format(number), expected)
}

macro_rules! integer_field {
    ($($integer:ty, $expected:literal;)*) => {$(
        /// Strict decimal as Java parses it: no blanks, in range, a leading `+` is accepted.
        impl<'a> FieldValue<'a> for $integer {
            fn read(field: &'static str, raw: Text<'a>) -> Result<Self, HeaderError> {
                if let Some(number) = short_number(raw.as_bytes()) {
                    let read = Self::try_from(number);
                    return read.map_err(|_| out_of_range(field, number, $expected));
                }
                let text = raw.as_str();
                text.parse().map_err(|_| HeaderError::malformed(field, text, $expected))
            }

            fn write(&self, name: &FieldName, sink: &mut impl FieldSink) {
                sink.put_plain(name, itoa::Buffer::new().format(*self));
            }
        }
    )*};
}

integer_field! {
    i32, "a 32-bit number";
    i64, "a 64-bit number";
}

/// `true` in any letter case is true, everything else is false.
impl<'a> FieldValue<'a> for bool {
    fn read(_: &'static str, raw: Text<'a>) -> Result<Self, HeaderError> {
        Ok(raw.as_bytes().eq_ignore_ascii_case(b"true"))
    }

    fn write(&self, name: &FieldName, sink: &mut impl FieldSink) {
        sink.put_plain(name, if *self { "true" } else { "false" });
    }
}

impl<'a, T: FieldValue<'a>> FieldValue<'a> for Option<T> {
    fn read(field: &'static str, raw: Text<'a>) -> Result<Self, HeaderError> {
        T::read(field, raw).map(Some)
    }

    fn absent(_: &'static str) -> Result<Self, HeaderError> {
        Ok(None)
    }

    fn write(&self, name: &FieldName, sink: &mut impl FieldSink) {
        if let Some(value) = self {
            value.write(name, sink);
        }
    }
}
