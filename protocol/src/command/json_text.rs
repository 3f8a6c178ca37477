//! The small pieces of JSON text: ends of strings, numbers, escapes.

use std::ops::Range;

use memchr::memchr2;

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0C)
}

/// The name of a member as everybody writes them: `"name":` without escapes or blanks, at `at`.
#[inline]
pub(super) fn usual_name(text: &[u8], at: usize) -> Option<Range<usize>> {
    let rest = text.get(at..)?;
    // Names of one letter, of which a send has many.
    if let [b'"', letter, b'"', b':', ..] = rest
        && !matches!(letter, b'"' | b'\\')
    {
        return Some(at + 1..at + 2);
    }
    if rest.first() != Some(&b'"') {
        return None;
    }
    let end = find_end(text, at + 1, b'"')?;
    text.get(end..)?.starts_with(b"\":").then_some(at + 1..end)
}

/// A number of a header as everybody writes them: up to ten digits, then a comma or the closing brace; and its length.
#[inline]
pub(super) fn usual_int(text: &[u8], at: usize) -> Option<(i32, usize)> {
    let mut number = 0;
    for (len, byte) in text.get(at..)?.iter().take(11).enumerate() {
        match byte {
            b'0'..=b'9' => number = number * 10 + i64::from(byte - b'0'),
            b',' | b'}' if len > 0 => return Some((i32::try_from(number).ok()?, len)),
            _ => return None,
        }
    }
    None
}

/// Position of the quote, or of the first backslash before it.
///
/// Eight bytes at a time, since most strings are shorter than the set-up of `memchr`, which takes over in long ones.
#[inline(always)]
pub(super) fn find_end(text: &[u8], start: usize, quote: u8) -> Option<usize> {
    const NEAR: usize = 64;
    let quotes = ONES * u64::from(quote);
    let mut rest = text.get(start..)?;
    let mut at = start;
    while let Some((chunk, behind)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let found = zero_bytes(word ^ quotes) | zero_bytes(word ^ BACKSLASHES);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        rest = behind;
        at += 8;
        if at >= start + NEAR {
            break;
        }
    }
    memchr2(quote, b'\\', rest).map(|len| at + len)
}

const ONES: u64 = 0x0101_0101_0101_0101;
const BACKSLASHES: u64 = ONES * b'\\' as u64;

/// The top bit of the lowest byte that is zero (of higher ones too, but some of those may be wrong).
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// `-`, digits, fraction, exponent.
pub(super) fn is_number(word: &[u8]) -> bool {
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let word = word.strip_prefix(b"-").unwrap_or(word);
    if digits(word) {
        return true;
    }
    let (mantissa, exponent) = match word.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&word[..at], Some(&word[at + 1..])),
        None => (word, None),
    };
    let (whole, fraction) = match mantissa.iter().position(|byte| *byte == b'.') {
        Some(at) => (&mantissa[..at], Some(&mantissa[at + 1..])),
        None => (mantissa, None),
    };
    let exponent = exponent.map(|text| {
        text.strip_prefix(b"+")
            .or(text.strip_prefix(b"-"))
            .unwrap_or(text)
    });
    digits(whole) && fraction.is_none_or(digits) && exponent.is_none_or(digits)
}

/// As fastjson casts to an int: empty text is 0, booleans are 1 and 0, fractions are cut off.
pub(super) fn parse_int(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    match text {
        "" | "null" | "false" => return Some(0),
        "true" => return Some(1),
        _ => {}
    }
    // No `inf` or `nan`.
    let numeric = |byte: u8| !byte.is_ascii_alphabetic() || matches!(byte, b'e' | b'E');
    if !text.bytes().all(numeric) {
        return None;
    }
    let number = text.parse::<f64>().ok()?.trunc();
    (f64::from(i32::MIN)..=f64::from(i32::MAX))
        .contains(&number)
        .then_some(number as i32)
}

/// The character of an escape like `\u0001` or `\u007F`.
#[inline]
fn control(text: &[u8]) -> Option<char> {
    let [b'\\', b'u', b'0', b'0', high @ b'0'..=b'7', low, ..] = text else {
        return None;
    };
    let low = char::from(*low).to_digit(16)?;
    Some(char::from((high - b'0') << 4 | low as u8))
}

/// A string that has escapes.
pub(super) struct Unescape<'h> {
    pub(super) text: &'h [u8],
    /// The same, if it is valid UTF-8.
    pub(super) valid: Option<&'h str>,
    pub(super) at: usize,
    pub(super) quote: u8,
}

impl Unescape<'_> {
    /// Appends the text up to the closing quote and steps over that; `end` is the first backslash.
    pub(super) fn run(&mut self, out: &mut String, mut end: usize) -> Result<(), &'static str> {
        loop {
            match self.valid.and_then(|text| text.get(self.at..end)) {
                Some(plain) => out.push_str(plain),
                None => out.push_str(&String::from_utf8_lossy(&self.text[self.at..end])),
            }
            self.at = end + 1;
            if self.text[end] == self.quote {
                return Ok(());
            }
            match control(&self.text[end..]) {
                // What stands between properties, most of the time.
                Some(control) => {
                    out.push(control);
                    self.at = end + 6;
                }
                None => out.push(self.escape()?),
            }
            end = match find_end(self.text, self.at, self.quote) {
                Some(end) => end,
                None => return Err("string without end"),
            };
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<char, &'static str> {
        let Some(byte) = self.text.get(self.at).copied() else {
            return Err("string without end");
        };
        self.at += 1;
        Ok(match byte {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' | b'F' => '\u{c}',
            b'v' => '\u{b}',
            b'"' | b'\\' | b'/' | b'\'' => char::from(byte),
            b'0'..=b'7' => char::from(byte - b'0'),
            b'x' => char::from(self.hex(2)? as u8),
            b'u' => self.unicode()?,
            _ => return Err("unknown escape"),
        })
    }

    /// A UTF-16 unit or pair; half a pair becomes U+FFFD.
    fn unicode(&mut self) -> Result<char, &'static str> {
        let unit = self.hex(4)?;
        if (0xD800..0xDC00).contains(&unit) && self.text[self.at..].starts_with(b"\\u") {
            let behind = self.at;
            self.at += 2;
            let low = self.hex(4)?;
            if (0xDC00..0xE000).contains(&low) {
                let pair = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                return Ok(char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = behind;
        }
        Ok(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self, digits: usize) -> Result<u32, &'static str> {
        let mut number = 0;
        for _ in 0..digits {
            let digit = self
                .text
                .get(self.at)
                .and_then(|byte| char::from(*byte).to_digit(16));
            let Some(digit) = digit else {
                return Err("bad hexadecimal escape");
            };
            number = number << 4 | digit;
            self.at += 1;
        }
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_way_to_unescape_a_control_character_is_the_long_one() {
        let digits = "0123456789abcdefABCDEFgG\"\\";
        for high in digits.chars() {
            for low in digits.chars() {
                let text = format!("\\u00{high}{low}\"");
                let mut long = Unescape {
                    text: text.as_bytes(),
                    valid: Some(&text),
                    at: 1,
                    quote: b'"',
                };
                let long = long.escape().ok().filter(char::is_ascii);
                assert_eq!(control(text.as_bytes()), long, "{text}");
            }
        }
        for text in [
            "", "\\", "\\u", "\\u0", "\\u00", "\\u001", "\\u0101", "\\v0001",
        ] {
            assert_eq!(control(text.as_bytes()), None, "{text}");
        }
    }
}
