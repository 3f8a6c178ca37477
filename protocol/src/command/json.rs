//! Reader of the JSON header (wire spec 1.2): one pass over the bytes, straight into a [`Command`], with all that the
//! Java peer tolerates. JSON *bodies* are read elsewhere; a header needs no tree.
//!
//! Accepted beyond JSON: member names in any letter case, with `_`, unquoted or in single quotes; numbers as strings
//! and strings as numbers; superfluous commas inside objects; fastjson's extra escapes; invalid UTF-8 (replaced).

use bytes::Bytes;
use memchr::memchr2;

use super::{Command, SerializeType};
use crate::byte_str::ByteStr;
use crate::ext_fields::{ExtFields, Span};
use crate::frame::FrameError;
use crate::language::Language;

type Result<T> = std::result::Result<T, FrameError>;

/// Objects and arrays inside an ext field or unknown member may nest this deep.
const MAX_DEPTH: u32 = 32;

/// Reads a whole header into a command that holds nothing yet.
pub(crate) fn read(head: Bytes, command: &mut Command) -> Result<()> {
    let mut members = Members::default();
    let mut reader = Reader {
        text: &head,
        at: 0,
        depth: 0,
        valid: std::str::from_utf8(&head).is_ok(),
        ext: &mut command.ext,
    };
    reader.blanks();
    reader.members(&mut |reader: &mut Reader<'_, '_>, name| members.read(reader, name))?;
    reader.blanks();
    if reader.at < reader.text.len() {
        return Err(reader.error("something behind the closing brace"));
    }
    command.remark = members.remark.map(|span| {
        let in_frame = span
            .is_in_head()
            .then(|| ByteStr::try_from(head.slice(span.range())).ok());
        in_frame.flatten().unwrap_or_else(|| {
            let text = String::from_utf8_lossy(reader.bytes(span));
            ByteStr::from(&*text)
        })
    });
    command.serialize = SerializeType::Json;
    command.code = members.code;
    command.language = members.language;
    command.version = members.version;
    command.opaque = members.opaque;
    command.flag = members.flag;
    command.ext.attach(head);
    Ok(())
}

/// What a header holds beside ext fields.
#[derive(Default)]
struct Members {
    code: i32,
    language: Language,
    version: i32,
    opaque: i32,
    flag: i32,
    remark: Option<Span>,
}

impl Members {
    fn read(&mut self, reader: &mut Reader<'_, '_>, name: Span) -> Result<()> {
        match member_of(reader.bytes(name)) {
            Member::Code => self.code = reader.int()?,
            Member::Language => self.language = reader.language()?,
            Member::Version => self.version = reader.int()?,
            Member::Opaque => self.opaque = reader.int()?,
            Member::Flag => self.flag = reader.int()?,
            Member::Remark => self.remark = reader.value()?,
            Member::ExtFields => reader.ext_fields()?,
            Member::Other => drop(reader.value()?),
        }
        Ok(())
    }
}

enum Member {
    Code,
    Language,
    Version,
    Opaque,
    Flag,
    Remark,
    ExtFields,
    Other,
}

/// Exact names first, then as fastjson matches: any letter case, `_` and `-` left out.
fn member_of(name: &[u8]) -> Member {
    match name {
        b"code" => Member::Code,
        b"language" => Member::Language,
        b"version" => Member::Version,
        b"opaque" => Member::Opaque,
        b"flag" => Member::Flag,
        b"remark" => Member::Remark,
        b"extFields" => Member::ExtFields,
        b"serializeTypeCurrentRPC" => Member::Other,
        _ => {
            let is = |known: &str| {
                let letters = name
                    .iter()
                    .filter(|byte| !matches!(byte, b'_' | b'-'))
                    .map(u8::to_ascii_lowercase);
                letters.eq(known.bytes())
            };
            match () {
                () if is("code") => Member::Code,
                () if is("language") => Member::Language,
                () if is("version") => Member::Version,
                () if is("opaque") => Member::Opaque,
                () if is("flag") => Member::Flag,
                () if is("remark") => Member::Remark,
                () if is("extfields") => Member::ExtFields,
                () => Member::Other,
            }
        }
    }
}

struct Reader<'h, 'c> {
    text: &'h [u8],
    at: usize,
    depth: u32,
    /// The whole header is valid UTF-8, so every piece of it is.
    valid: bool,
    /// Collects the fields; its arena takes all unescaped text.
    ext: &'c mut ExtFields,
}

impl Reader<'_, '_> {
    fn ext_fields(&mut self) -> Result<()> {
        if self.peek() == Some(b'{') {
            self.ext.restart(true);
            return self.members(&mut |reader: &mut Reader<'_, '_>, name| reader.ext_field(name));
        }
        match self.value()? {
            None => self.ext.restart(false),
            Some(_) => return Err(self.error("extFields is not an object")),
        }
        Ok(())
    }

    fn ext_field(&mut self, name: Span) -> Result<()> {
        match self.value()? {
            Some(value) if !self.ext.push_spans(name, value) => {
                Err(self.error("too many ext fields"))
            }
            _ => Ok(()),
        }
    }

    /// Ordinal, or name in any letter case; nothing else fails the frame.
    fn language(&mut self) -> Result<Language> {
        let quoted = matches!(self.peek(), Some(b'"' | b'\''));
        let Some(span) = self.value()? else {
            return Ok(Language::UNKNOWN_NAME);
        };
        let text = self.bytes(span);
        Ok(match parse_int(text).map(u8::try_from) {
            Some(Ok(code)) if !quoted => Language::from_code(code),
            _ => Language::from_name(text),
        })
    }

    fn int(&mut self) -> Result<i32> {
        let at = self.at;
        match self.value()? {
            None => Ok(0),
            Some(span) => parse_int(self.bytes(span)).ok_or(FrameError::Json {
                at,
                what: "not a 32-bit number",
            }),
        }
    }

    /// The members of an object; `member` reads the value of the name it is given.
    fn members(&mut self, member: &mut impl FnMut(&mut Self, Span) -> Result<()>) -> Result<()> {
        self.expect(b'{', "no opening brace")?;
        loop {
            self.blanks_and_commas();
            if self.eat(b'}') {
                return Ok(());
            }
            let name = self.name()?;
            self.blanks();
            self.expect(b':', "no colon behind a name")?;
            self.blanks();
            member(self, name)?;
            self.blanks();
            if !matches!(self.peek(), Some(b',' | b'}')) {
                return Err(self.error("neither comma nor closing brace behind a value"));
            }
        }
    }

    /// A member's name: quoted, a bare word, or (fastjson's map keys, only met in values) a number or an object.
    fn name(&mut self) -> Result<Span> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(quote),
            Some(b'{' | b'[') => self.nested(),
            _ => {
                let start = self.at;
                let word = self.word();
                if word.is_empty() {
                    return Err(self.error("no member name"));
                }
                Ok(Span::in_head(start..self.at))
            }
        }
    }

    /// Any value as text; `None` for null.
    fn value(&mut self) -> Result<Option<Span>> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(quote).map(Some),
            Some(b'{' | b'[') => self.nested().map(Some),
            _ => {
                let start = self.at;
                match self.word() {
                    b"null" => Ok(None),
                    word if word == b"true" || word == b"false" || is_number(word) => {
                        Ok(Some(Span::in_head(start..self.at)))
                    }
                    _ => Err(FrameError::Json {
                        at: start,
                        what: "not a value",
                    }),
                }
            }
        }
    }

    /// An object or array as its own text.
    fn nested(&mut self) -> Result<Span> {
        let start = self.at;
        if self.depth >= MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        self.depth += 1;
        if self.peek() == Some(b'{') {
            self.members(&mut |reader: &mut Self, _| reader.value().map(drop))?;
        } else {
            self.elements()?;
        }
        self.depth -= 1;
        Ok(self.checked(start..self.at))
    }

    fn elements(&mut self) -> Result<()> {
        self.expect(b'[', "no opening bracket")?;
        loop {
            self.blanks_and_commas();
            if self.eat(b']') {
                return Ok(());
            }
            self.value()?;
            self.blanks();
            if !matches!(self.peek(), Some(b',' | b']')) {
                return Err(self.error("neither comma nor closing bracket behind a value"));
            }
        }
    }

    fn string(&mut self, quote: u8) -> Result<Span> {
        let start = self.at + 1;
        let Some(end) = find_end(self.text, start, quote) else {
            return Err(self.error("string without end"));
        };
        if self.text[end] == quote {
            self.at = end + 1;
            return Ok(self.checked(start..end));
        }
        let mut strings = Unescape {
            text: self.text,
            at: start,
            quote,
        };
        let mut outcome = Ok(());
        let span = self.ext.store(|arena| outcome = strings.run(arena));
        self.at = strings.at;
        outcome.map(|()| span)
    }

    /// The range itself, or, where it is not UTF-8, a repaired copy.
    fn checked(&mut self, range: std::ops::Range<usize>) -> Span {
        if self.valid || std::str::from_utf8(&self.text[range.clone()]).is_ok() {
            return Span::in_head(range);
        }
        let text = String::from_utf8_lossy(&self.text[range]);
        self.ext.store(|arena| arena.push_str(&text))
    }

    fn bytes(&self, span: Span) -> &[u8] {
        if span.is_in_head() {
            self.text.get(span.range()).unwrap_or_default()
        } else {
            self.ext.bytes(span)
        }
    }

    /// A run of the characters of names, numbers and literals.
    fn word(&mut self) -> &[u8] {
        let rest = &self.text[self.at..];
        let is_word = |byte: &u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-' | b'+' | b'.')
        };
        let len = rest
            .iter()
            .position(|byte| !is_word(byte))
            .unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<()> {
        if self.eat(byte) {
            Ok(())
        } else {
            Err(self.error(what))
        }
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.at += 1;
        }
    }

    fn blanks_and_commas(&mut self) {
        while self
            .peek()
            .is_some_and(|byte| byte == b',' || is_blank(byte))
        {
            self.at += 1;
        }
    }

    fn error(&self, what: &'static str) -> FrameError {
        FrameError::Json { at: self.at, what }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0C)
}

/// Position of the quote, or of the first backslash before it.
///
/// Eight bytes at a time, since most strings are shorter than the set-up of `memchr`, which takes over in long ones.
fn find_end(text: &[u8], start: usize, quote: u8) -> Option<usize> {
    const NEAR: usize = 64;
    let mut at = start;
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let found =
            zero_bytes(word ^ ONES * u64::from(quote)) | zero_bytes(word ^ ONES * b'\\' as u64);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
        if at - start >= NEAR {
            break;
        }
    }
    memchr2(quote, b'\\', text.get(at..)?).map(|len| at + len)
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// The top bit of the lowest byte that is zero (of higher ones too, but some of those may be wrong).
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// `-`, digits, fraction, exponent.
fn is_number(word: &[u8]) -> bool {
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
fn parse_int(text: &[u8]) -> Option<i32> {
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

/// The rest of a string that has escapes.
struct Unescape<'h> {
    text: &'h [u8],
    at: usize,
    quote: u8,
}

impl Unescape<'_> {
    /// Appends the text up to the closing quote and steps over that.
    fn run(&mut self, out: &mut String) -> Result<()> {
        loop {
            let Some(end) = find_end(self.text, self.at, self.quote) else {
                return Err(self.error("string without end"));
            };
            let plain = &self.text[self.at..end];
            match std::str::from_utf8(plain) {
                Ok(plain) => out.push_str(plain),
                Err(_) => out.push_str(&String::from_utf8_lossy(plain)),
            }
            self.at = end + 1;
            if self.text[end] == self.quote {
                return Ok(());
            }
            let escaped = self.escape()?;
            out.push(escaped);
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<char> {
        let Some(byte) = self.text.get(self.at).copied() else {
            return Err(self.error("string without end"));
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
            _ => return Err(self.error("unknown escape")),
        })
    }

    /// A UTF-16 unit or pair; half a pair becomes U+FFFD.
    fn unicode(&mut self) -> Result<char> {
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

    fn hex(&mut self, digits: usize) -> Result<u32> {
        let mut number = 0;
        for _ in 0..digits {
            let digit = self
                .text
                .get(self.at)
                .and_then(|byte| char::from(*byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.error("bad hexadecimal escape"));
            };
            number = number << 4 | digit;
            self.at += 1;
        }
        Ok(number)
    }

    fn error(&self, what: &'static str) -> FrameError {
        FrameError::Json { at: self.at, what }
    }
}
