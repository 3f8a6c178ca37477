//! Text to [`Value`]: JSON and what the Java library accepts beyond it (wire spec 6.1, quirks 1 and 3).
//!
//! Beyond JSON: keys that are numbers, objects or bare names; single quotes; extra commas; comments; `undefined` and
//! `NaN` as null; number suffixes; the escapes `\x41`, `\'`, `\v` and `\0` to `\7`; `Set[…]`. Depth and size are
//! limited, so neither the stack nor the memory grows with a hostile text.

use super::error::{JsonError, Problem};
use super::reference;
use super::value::Value;
use std::borrow::Cow;

/// How much a text may contain. A node takes 32 bytes of memory while the body is read, and up to 200 bytes in the typed
/// body that it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Nesting of arrays and objects.
    pub depth: usize,
    /// Keys and values together.
    pub nodes: usize,
}

impl Limits {
    /// For what any client may send: heartbeats of 10,000 subscriptions, locks on 25,000 queues.
    pub const SMALL: Limits = Limits {
        depth: 64,
        nodes: 200_000,
    };
    /// For the tables of a whole broker: as many topics as one frame holds, a million offsets.
    pub const LARGE: Limits = Limits {
        depth: 64,
        nodes: 2_000_000,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Limits::SMALL
    }
}

/// Reads one value and nothing after it but blanks, within the default [`Limits`].
pub fn read(text: &str) -> Result<Value<'_>, JsonError> {
    read_with(text, Limits::default())
}

/// As [`read`], with limits of the caller's choice.
pub fn read_with(text: &str, limits: Limits) -> Result<Value<'_>, JsonError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader {
        text,
        bytes: text.as_bytes(),
        at: 0,
        depth: 0,
        nodes: 0,
        limits,
        saw_reference: false,
    };
    let mut value = reader.value()?;
    reader.skip_blanks()?;
    if reader.at < reader.bytes.len() {
        return Err(reader.error(Problem::Trailing));
    }
    if reader.saw_reference {
        reference::resolve(&mut value, limits);
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    nodes: usize,
    limits: Limits,
    saw_reference: bool,
}

impl<'a> Reader<'a> {
    fn error(&self, problem: Problem) -> JsonError {
        JsonError {
            at: self.at,
            problem,
        }
    }

    /// `expected` is missing here, or the text is over.
    fn missing(&self, expected: &'static str) -> JsonError {
        self.error(if self.at < self.bytes.len() {
            Problem::Expected(expected)
        } else {
            Problem::Ended
        })
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Moves past `byte` if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let taken = self.peek() == Some(byte);
        self.at += usize::from(taken);
        taken
    }

    /// The text from `start` to here. Both stand at ASCII characters, so the fallback never shows.
    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn skip_blanks(&mut self) -> Result<(), JsonError> {
        loop {
            match self.peek() {
                Some(b' ' | b'\n' | b'\r' | b'\t' | 0x0c | 0x08) => self.at += 1,
                Some(b'/') => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), JsonError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = if rest.starts_with(b"//") {
            rest.iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            let inside = rest.get(2..).unwrap_or_default();
            let end = inside
                .windows(2)
                .position(|pair| pair == b"*/")
                .ok_or(self.error(Problem::Ended))?;
            end + 4
        } else {
            return Err(self.error(Problem::Expected("a value")));
        };
        self.at += length;
        Ok(())
    }

    fn count_node(&mut self) -> Result<(), JsonError> {
        self.nodes += 1;
        if self.nodes > self.limits.nodes {
            Err(self.error(Problem::TooMany(self.limits.nodes)))
        } else {
            Ok(())
        }
    }

    fn value(&mut self) -> Result<Value<'a>, JsonError> {
        self.skip_blanks()?;
        self.count_node()?;
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(quote @ (b'"' | b'\'')) => Ok(Value::Text(self.string(quote)?)),
            Some(b'-' | b'.' | b'0'..=b'9') => self.number(),
            Some(byte) if starts_name(byte) => self.word(),
            _ => Err(self.missing("a value")),
        }
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<Value<'a>, JsonError>,
    ) -> Result<Value<'a>, JsonError> {
        if self.depth >= self.limits.depth {
            return Err(self.error(Problem::TooDeep(self.limits.depth)));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// After `[`.
    fn array(&mut self) -> Result<Value<'a>, JsonError> {
        let mut items = Vec::new();
        loop {
            self.skip_commas()?;
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            items.push(self.value()?);
            self.skip_blanks()?;
            if !matches!(self.peek(), Some(b',' | b']')) {
                return Err(self.missing("',' or ']'"));
            }
        }
    }

    /// After `{`.
    fn object(&mut self) -> Result<Value<'a>, JsonError> {
        let mut members = Vec::new();
        loop {
            self.skip_commas()?;
            if self.take(b'}') {
                return Ok(self.object_or_reference(members));
            }
            let key = self.key()?;
            self.skip_blanks()?;
            if !self.take(b':') {
                return Err(self.missing("':'"));
            }
            let value = self.value()?;
            members.push((key, value));
            self.skip_blanks()?;
            if !matches!(self.peek(), Some(b',' | b'}')) {
                return Err(self.missing("',' or '}'"));
            }
        }
    }

    fn object_or_reference(&mut self, mut members: Vec<(Value<'a>, Value<'a>)>) -> Value<'a> {
        let is_reference = match members.as_slice() {
            [(key, Value::Text(_))] => key.as_text() == Some("$ref"),
            _ => false,
        };
        match members.pop() {
            Some((_, Value::Text(path))) if is_reference => {
                self.saw_reference = true;
                Value::Reference(path)
            }
            Some(last) => {
                members.push(last);
                Value::Object(members)
            }
            None => Value::Object(members),
        }
    }

    fn skip_commas(&mut self) -> Result<(), JsonError> {
        self.skip_blanks()?;
        while self.take(b',') {
            self.skip_blanks()?;
        }
        Ok(())
    }

    fn key(&mut self) -> Result<Value<'a>, JsonError> {
        match self.peek() {
            Some(byte) if starts_name(byte) => {
                self.count_node()?;
                Ok(Value::Text(Cow::Borrowed(self.name())))
            }
            _ => self.value(),
        }
    }

    fn name(&mut self) -> &'a str {
        let start = self.at;
        while self
            .peek()
            .is_some_and(|byte| starts_name(byte) || byte.is_ascii_digit())
        {
            self.at += 1;
        }
        self.since(start)
    }

    fn word(&mut self) -> Result<Value<'a>, JsonError> {
        let start = self.at;
        match self.name() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            "null" | "undefined" | "NaN" => Ok(Value::Null),
            "Set" | "TreeSet" if self.peek() == Some(b'[') => self.nested(Self::array),
            _ => {
                self.at = start;
                Err(self.error(Problem::Expected("a value")))
            }
        }
    }

    fn skip_digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Value<'a>, JsonError> {
        let start = self.at;
        self.take(b'-');
        let mut digits = self.skip_digits();
        let mut whole = true;
        if self.take(b'.') {
            digits += self.skip_digits();
            whole = false;
        }
        if digits == 0 {
            return Err(self.missing("a digit"));
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.skip_digits() == 0 {
                return Err(self.missing("an exponent"));
            }
            whole = false;
        }
        let text = self.since(start);
        // Java's type letters; the value is the same without them.
        if matches!(self.peek(), Some(b'L' | b'S' | b'B' | b'F' | b'D')) {
            self.at += 1;
        }
        match text.parse() {
            Ok(number) if whole => Ok(Value::Integer(number)),
            _ => Ok(Value::Decimal(legal_number(text))),
        }
    }

    /// A string in `quote`s; the opening one comes next. A raw line feed inside is fine.
    fn string(&mut self, quote: u8) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let mut owned = String::new();
        loop {
            let start = self.at;
            let rest = self.bytes.get(start..).unwrap_or_default();
            let length = rest
                .iter()
                .position(|byte| *byte == quote || *byte == b'\\');
            self.at += length.ok_or(JsonError {
                at: self.bytes.len(),
                problem: Problem::Ended,
            })?;
            let piece = self.since(start);
            if self.take(quote) {
                if owned.is_empty() {
                    return Ok(Cow::Borrowed(piece));
                }
                owned.push_str(piece);
                return Ok(Cow::Owned(owned));
            }
            owned.push_str(piece);
            owned.push(self.escape()?);
        }
    }

    /// An escape; the backslash comes next.
    fn escape(&mut self) -> Result<char, JsonError> {
        self.at += 1;
        let byte = self.peek().ok_or(self.error(Problem::Ended))?;
        let character = match byte {
            b'"' | b'\'' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' | b'F' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'v' => '\u{b}',
            b'0'..=b'7' => char::from(byte - b'0'),
            b'x' => {
                return self
                    .hex(2)
                    .map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            b'u' => return self.unicode(),
            _ => return Err(self.error(Problem::Escape)),
        };
        self.at += 1;
        Ok(character)
    }

    /// The letter of the escape comes next, then `digits` hexadecimal digits.
    fn hex(&mut self, digits: usize) -> Result<u32, JsonError> {
        self.at += 1;
        let text = self
            .bytes
            .get(self.at..self.at + digits)
            .ok_or(self.error(Problem::Ended))?;
        let mut unit = 0;
        for byte in text {
            let digit = char::from(*byte)
                .to_digit(16)
                .ok_or(self.error(Problem::Escape))?;
            unit = unit * 16 + digit;
        }
        self.at += digits;
        Ok(unit)
    }

    /// `uXXXX`, or a surrogate pair of two of them. Half a pair reads as U+FFFD.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let unit = self.hex(4)?;
        if (0xd800..0xdc00).contains(&unit)
            && self
                .bytes
                .get(self.at..)
                .is_some_and(|rest| rest.starts_with(b"\\u"))
        {
            let start = self.at;
            self.at += 1;
            let low = self.hex(4)?;
            if (0xdc00..0xe000).contains(&low) {
                let character = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = start;
        }
        Ok(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
    }
}

/// `text` with exactly the digits JSON wants around the point, so that it can be written again.
fn legal_number(text: &str) -> Cow<'_, str> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    let end = digits.find(['.', 'e', 'E']).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let no_fraction = rest == "." || rest.starts_with(".e") || rest.starts_with(".E");
    if !no_fraction && !whole.is_empty() && (whole == "0" || !whole.starts_with('0')) {
        return Cow::Borrowed(text);
    }
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let fraction = if no_fraction { ".0" } else { "" };
    let rest = rest.get(usize::from(no_fraction)..).unwrap_or_default();
    Cow::Owned(format!("{sign}{whole}{fraction}{rest}"))
}

/// True for what begins an unquoted name; every byte of a non-ASCII character counts.
fn starts_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte == b'$' || byte >= 0x80
}
