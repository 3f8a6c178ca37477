//! JSON as RocketMQ peers write and read it: one tolerant reader, one writer with two flavours (wire spec 6.1).
//!
//! * `error`: what can be wrong with a text or with a value in it.
//! * `value`: the parsed tree, member lookup as the Java library does it.
//! * `reader`: text to tree. `reference`: `{"$ref":"$.path"}` replaced by what it points to.
//! * `writer`: both flavours, compact and indented. `convert`: Rust values from and to JSON.
//!
//! The bodies themselves live in [`crate::body`]; the JSON *header* of a frame is not read here (see `frame`).

mod convert;
mod error;
mod reader;
mod reference;
mod value;
mod writer;

pub use convert::{FromValue, MapKey, ToJson, WriteKey};
pub(crate) use convert::{object_key, write_object_key};
pub use error::{BodyError, JsonError, Problem};
pub use reader::{Limits, read, read_with};
pub use value::{Members, Value};
pub use writer::{Flavour, ObjectWriter, Writer};

use std::borrow::Cow;

/// Reads a value of type `T` from the bytes of a body or of a file, within the default [`Limits`].
///
/// Bytes that are not UTF-8 read as U+FFFD, as Java does. A text of nothing but blanks, or `null`, is
/// [`BodyError::Empty`].
pub fn decode<T: FromValue>(bytes: &[u8]) -> Result<T, BodyError> {
    decode_with(bytes, Limits::default())
}

/// As [`decode`], with limits of the caller's choice.
pub fn decode_with<T: FromValue>(bytes: &[u8], limits: Limits) -> Result<T, BodyError> {
    let text: Cow<'_, str> = String::from_utf8_lossy(bytes);
    if text.trim().is_empty() {
        return Err(BodyError::Empty);
    }
    let value = read_with(&text, limits)?;
    T::from_value(&value)?.ok_or(BodyError::Empty)
}

/// Writes `value` compactly.
pub fn encode<T: ToJson + ?Sized>(value: &T, flavour: Flavour) -> Vec<u8> {
    let mut writer = Writer::compact(flavour);
    value.write(&mut writer);
    writer.into_bytes()
}

/// Writes `value` as Java writes its configuration files: indented by tabs, a member a line, tables with number
/// keys on one line (broker spec 16).
pub fn encode_pretty<T: ToJson + ?Sized>(value: &T, flavour: Flavour) -> Vec<u8> {
    let mut writer = Writer::indented(flavour);
    value.write(&mut writer);
    writer.into_bytes()
}

#[cfg(test)]
mod tests;
