//! The types a key may have, and how each is read and written.

use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Whose rules a value is read by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// At start: anything that is not clearly a value is an error.
    Start,
    /// At run time: booleans as Java reads them (`true` in any case is true, all else false).
    RunTime,
}

/// A type that a key may have.
pub trait Value: Sized {
    /// What is expected, as in "a number".
    const EXPECTED: &'static str;

    /// Reads the text of a file, variable, option or update.
    ///
    /// # Errors
    /// What would have been right; usually [`Value::EXPECTED`].
    fn parse(text: &str, reading: Reading) -> Result<Self, String>;

    /// The text that reads back as this value; `None` when nothing is set.
    fn show(&self) -> Option<String>;
}

impl Value for bool {
    const EXPECTED: &'static str = "true or false";

    fn parse(text: &str, reading: Reading) -> Result<Self, String> {
        if reading == Reading::RunTime {
            return Ok(text.eq_ignore_ascii_case("true"));
        }
        let text = text.trim();
        if text.eq_ignore_ascii_case("true") {
            Ok(true)
        } else if text.eq_ignore_ascii_case("false") {
            Ok(false)
        } else {
            Err(Self::EXPECTED.to_owned())
        }
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = "a whole number";

            fn parse(text: &str, _reading: Reading) -> Result<Self, String> {
                text.trim().parse().map_err(|error: std::num::ParseIntError| match error.kind() {
                    std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                        format!("a whole number from {} to {}", <$type>::MIN, <$type>::MAX)
                    }
                    _ => Self::EXPECTED.to_owned(),
                })
            }

            fn show(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}

whole_numbers!(i32, i64, u16, u32, u64, usize);

impl Value for f64 {
    const EXPECTED: &'static str = "a number";

    fn parse(text: &str, _reading: Reading) -> Result<Self, String> {
        match text.trim().parse() {
            Ok(number) if f64::is_finite(number) => Ok(number),
            _ => Err(Self::EXPECTED.to_owned()),
        }
    }

    fn show(&self) -> Option<String> {
        // With a fraction always, as Java writes a double.
        Some(format!("{self:?}"))
    }
}

impl Value for String {
    const EXPECTED: &'static str = "a text";

    fn parse(text: &str, _reading: Reading) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn show(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Value for PathBuf {
    const EXPECTED: &'static str = "a path";

    fn parse(text: &str, _reading: Reading) -> Result<Self, String> {
        if text.trim().is_empty() || text.contains('\0') {
            return Err(Self::EXPECTED.to_owned());
        }
        Ok(PathBuf::from(text))
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string_lossy().into_owned())
    }
}

/// A value that may be missing: an empty text is "not set".
impl<T: Value> Value for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn parse(text: &str, reading: Reading) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        T::parse(text, reading)
            .map(Some)
            .map_err(|expected| expected + ", or nothing")
    }

    fn show(&self) -> Option<String> {
        self.as_ref().and_then(Value::show)
    }
}

/// A number of bytes: plain, or with `K`, `M` or `G` (binary, any case). Always written plain, as
/// tools of other implementations read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// So many mebibytes.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }
}

impl Value for ByteSize {
    const EXPECTED: &'static str = "a number of bytes, as in 1048576 or 1M";

    fn parse(text: &str, _reading: Reading) -> Result<Self, String> {
        let text = text.trim();
        let (digits, shift) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
            Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
            Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
            _ => (text, 0),
        };
        let bytes = digits
            .trim_end()
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(1 << shift));
        // Other implementations hold sizes in signed 64 bits.
        match bytes.filter(|&bytes| i64::try_from(bytes).is_ok()) {
            Some(bytes) => Ok(Self(bytes)),
            None => Err(Self::EXPECTED.to_owned()),
        }
    }

    fn show(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

/// The `range` flag of a declaration.
///
/// # Errors
/// What is expected, with both ends of the range.
#[doc(hidden)]
pub fn check_range<T: Value + PartialOrd>(
    value: &T,
    range: &RangeInclusive<T>,
) -> Result<(), String> {
    if range.contains(value) {
        return Ok(());
    }
    let end = |value: &T| value.show().unwrap_or_default();
    Err(format!(
        "{} from {} to {}",
        T::EXPECTED,
        end(range.start()),
        end(range.end())
    ))
}
