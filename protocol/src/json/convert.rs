//! Rust values from and to JSON, with the conversions the Java library does (wire spec 6.1, quirk 3): numbers from
//! strings and back, booleans from both, object keys from the object or from a string holding its text.

use super::error::BodyError;
use super::value::Value;
use super::writer::{Flavour, Writer};
use super::{encode, reader};
use std::collections::{BTreeMap, BTreeSet};

/// What can be read from a [`Value`].
pub trait FromValue: Sized {
    /// `Ok(None)` where Java reads null: `null`, an unresolved reference, an empty string for a number, an enum name
    /// nobody knows.
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError>;
}

/// What can be written as JSON.
pub trait ToJson {
    /// Writes the value.
    fn write(&self, writer: &mut Writer);

    /// True if the value is to be left out.
    fn is_null(&self) -> bool {
        false
    }

    /// True for numbers: arrays of them are never broken into lines.
    fn is_number(&self) -> bool {
        false
    }
}

/// What can be written as the key of a map.
pub trait WriteKey {
    /// Writes the key as the writer's flavour wants it.
    fn write_key(&self, writer: &mut Writer);

    /// True for string keys, which get a line of their own.
    fn is_text(&self) -> bool {
        false
    }
}

/// What can be the key of a map.
pub trait MapKey: WriteKey + Ord + Sized {
    /// Reads the key; `Ok(None)` drops the entry.
    fn from_key(key: &Value<'_>) -> Result<Option<Self>, BodyError>;
}

impl FromValue for bool {
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError> {
        let text = match value {
            Value::Null | Value::Reference(_) => return Ok(None),
            Value::Bool(value) => return Ok(Some(*value)),
            Value::Integer(number) => return Ok(Some(*number == 1)),
            Value::Text(text) => text.trim(),
            _ => return Err(value.mismatch("a boolean")),
        };
        match text.to_ascii_lowercase().as_str() {
            "" | "null" => Ok(None),
            "true" | "1" | "y" | "t" => Ok(Some(true)),
            "false" | "0" | "n" | "f" => Ok(Some(false)),
            _ => Err(value.mismatch("a boolean")),
        }
    }
}

/// A whole number of any of the accepted forms.
fn whole(value: &Value<'_>) -> Result<Option<i64>, BodyError> {
    let text = match value {
        Value::Null | Value::Reference(_) => return Ok(None),
        Value::Bool(value) => return Ok(Some(i64::from(*value))),
        Value::Integer(number) => return Ok(Some(*number)),
        Value::Decimal(text) => text,
        Value::Text(text) => text,
        _ => return Err(value.mismatch("a whole number")),
    };
    let text = text.trim();
    if matches!(text, "" | "null" | "NULL") {
        return Ok(None);
    }
    if let Ok(number) = text.parse() {
        return Ok(Some(number));
    }
    // A fraction is cut off, as Java's `longValue` does; beyond 2^63 it is an error.
    match text.parse::<f64>() {
        Ok(number) if number.abs() < 9.2e18 => Ok(Some(number as i64)),
        _ => Err(value.mismatch("a whole number")),
    }
}

impl FromValue for i64 {
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError> {
        whole(value)
    }
}

impl FromValue for i32 {
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError> {
        let Some(number) = whole(value)? else {
            return Ok(None);
        };
        i32::try_from(number)
            .map(Some)
            .map_err(|_| value.mismatch("a whole number of 32 bits"))
    }
}

impl FromValue for f64 {
    /// What is not finite reads as null, as it is written.
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError> {
        let text = match value {
            Value::Null | Value::Reference(_) => return Ok(None),
            Value::Integer(number) => return Ok(Some(*number as f64)),
            Value::Decimal(text) => text,
            Value::Text(text) => text,
            _ => return Err(value.mismatch("a number")),
        };
        let text = text.trim();
        if matches!(text, "" | "null" | "NULL") {
            return Ok(None);
        }
        let number: f64 = text.parse().map_err(|_| value.mismatch("a number"))?;
        Ok(Some(number).filter(|number| number.is_finite()))
    }
}

impl FromValue for String {
    /// A number or boolean reads as its text, an array or object as its JSON text.
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError> {
        Ok(match value {
            Value::Null | Value::Reference(_) => None,
            Value::Bool(value) => Some(value.to_string()),
            Value::Integer(number) => Some(number.to_string()),
            Value::Decimal(text) | Value::Text(text) => Some(text.clone().into_owned()),
            Value::Array(_) | Value::Object(_) => {
                Some(String::from_utf8_lossy(&encode(value, Flavour::Fastjson)).into_owned())
            }
        })
    }
}

impl<T: FromValue> FromValue for Option<T> {
    /// Always `Some`: a value that reads as null is `Some(None)`.
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError> {
        Ok(Some(T::from_value(value)?))
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    /// Items that read as null are left out.
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError> {
        let items = match value {
            Value::Null | Value::Reference(_) => return Ok(None),
            Value::Array(items) => items,
            _ => return Err(value.mismatch("an array")),
        };
        let mut read = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            read.extend(T::from_value(item).map_err(|error| error.inside(&format!("[{index}]")))?);
        }
        Ok(Some(read))
    }
}

impl<T: FromValue + Ord> FromValue for BTreeSet<T> {
    /// As a list.
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError> {
        Ok(Vec::from_value(value)?.map(BTreeSet::from_iter))
    }
}

impl<K: MapKey, T: FromValue> FromValue for BTreeMap<K, T> {
    /// Entries whose key or value reads as null are left out; of two entries with one key the last counts.
    fn from_value(value: &Value<'_>) -> Result<Option<Self>, BodyError> {
        if value.is_absent() {
            return Ok(None);
        }
        let mut map = BTreeMap::new();
        for (key, item) in value.members()?.iter() {
            let inside = |error: BodyError| match String::from_value(key) {
                Ok(Some(key)) => error.inside(&key),
                _ => error,
            };
            let Some(key) = K::from_key(key).map_err(inside)? else {
                continue;
            };
            if let Some(item) = T::from_value(item).map_err(inside)? {
                map.insert(key, item);
            }
        }
        Ok(Some(map))
    }
}

impl MapKey for String {
    fn from_key(key: &Value<'_>) -> Result<Option<Self>, BodyError> {
        String::from_value(key)
    }
}

impl WriteKey for String {
    fn write_key(&self, writer: &mut Writer) {
        writer.text(self);
    }

    fn is_text(&self) -> bool {
        true
    }
}

macro_rules! number_keys {
    ($($number:ty),*) => {$(
        impl MapKey for $number {
            fn from_key(key: &Value<'_>) -> Result<Option<Self>, BodyError> {
                <$number>::from_value(key)
            }
        }

        impl WriteKey for $number {
            fn write_key(&self, writer: &mut Writer) {
                match writer.flavour() {
                    Flavour::Standard => writer.raw(&format!("\"{self}\"")),
                    Flavour::Fastjson => self.write(writer),
                }
            }
        }

        impl ToJson for $number {
            fn write(&self, writer: &mut Writer) {
                writer.raw(itoa::Buffer::new().format(*self));
            }

            fn is_number(&self) -> bool {
                true
            }
        }
    )*};
}
number_keys!(i32, i64);

/// Reads a key that is an object, or a string holding the JSON text of one.
pub(crate) fn object_key<T: FromValue>(key: &Value<'_>) -> Result<Option<T>, BodyError> {
    match key {
        Value::Text(text) => {
            let object =
                reader::read(text).map_err(|_| key.mismatch("an object or its JSON text"))?;
            T::from_value(&object)
        }
        object => T::from_value(object),
    }
}

/// Writes a key that is an object.
pub(crate) fn write_object_key<T: ToJson>(key: &T, writer: &mut Writer) {
    match writer.flavour() {
        Flavour::Fastjson => key.write(writer),
        Flavour::Standard => {
            let text = encode(key, Flavour::Standard);
            writer.text(&String::from_utf8_lossy(&text));
        }
    }
}

impl ToJson for bool {
    fn write(&self, writer: &mut Writer) {
        writer.raw(if *self { "true" } else { "false" });
    }
}

impl ToJson for f64 {
    /// As Java writes doubles: always with a fraction, `1.0E10` from ten million on and below a thousandth. What is not
    /// finite is null.
    fn write(&self, writer: &mut Writer) {
        if !self.is_finite() {
            return writer.raw("null");
        }
        if *self == 0.0 || (1e-3..1e7).contains(&self.abs()) {
            return writer.raw(&format!("{self:?}"));
        }
        let text = format!("{self:E}");
        let (digits, exponent) = text.split_once('E').unwrap_or((&text, "0"));
        let fraction = if digits.contains('.') { "" } else { ".0" };
        writer.raw(&format!("{digits}{fraction}E{exponent}"));
    }

    fn is_number(&self) -> bool {
        true
    }
}

impl ToJson for str {
    fn write(&self, writer: &mut Writer) {
        writer.text(self);
    }
}

impl ToJson for String {
    fn write(&self, writer: &mut Writer) {
        writer.text(self);
    }
}

impl<T: ToJson> ToJson for Option<T> {
    fn write(&self, writer: &mut Writer) {
        match self {
            Some(value) => value.write(writer),
            None => writer.raw("null"),
        }
    }

    fn is_null(&self) -> bool {
        self.as_ref().is_none_or(ToJson::is_null)
    }
}

impl<T: ToJson> ToJson for Vec<T> {
    fn write(&self, writer: &mut Writer) {
        writer.array(self);
    }
}

impl<T: ToJson> ToJson for BTreeSet<T> {
    /// On one line, even indented.
    fn write(&self, writer: &mut Writer) {
        writer.set(self.iter());
    }
}

impl<K: MapKey, T: ToJson> ToJson for BTreeMap<K, T> {
    fn write(&self, writer: &mut Writer) {
        let mut object = writer.object();
        for (key, value) in self {
            object.entry(key, value);
        }
        object.end();
    }
}

impl ToJson for Value<'_> {
    fn write(&self, writer: &mut Writer) {
        match self {
            Value::Null => writer.raw("null"),
            Value::Bool(value) => value.write(writer),
            Value::Integer(number) => number.write(writer),
            Value::Decimal(text) => writer.raw(text),
            Value::Text(text) => writer.text(text),
            Value::Array(items) => writer.array(items),
            Value::Object(members) => {
                let mut object = writer.object();
                for (key, value) in members {
                    object.entry(&Key(key), value);
                }
                object.end();
            }
            Value::Reference(path) => {
                let mut object = writer.object();
                object.field("$ref", path.as_ref());
                object.end();
            }
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    fn is_number(&self) -> bool {
        matches!(self, Value::Integer(_) | Value::Decimal(_))
    }
}

/// A key of a parsed object, for writing it again.
struct Key<'v, 'a>(&'v Value<'a>);

impl WriteKey for Key<'_, '_> {
    fn is_text(&self) -> bool {
        matches!(self.0, Value::Text(_))
    }

    fn write_key(&self, writer: &mut Writer) {
        match (self.0, writer.flavour()) {
            (Value::Text(text), _) => writer.text(text),
            (Value::Integer(number), _) => number.write_key(writer),
            (other, Flavour::Fastjson) => other.write(writer),
            (other, Flavour::Standard) => write_object_key(other, writer),
        }
    }
}
