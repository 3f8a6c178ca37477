//! Reader of the JSON header (wire spec 1.2): one pass over the bytes, straight into a [`Command`], with all that the
//! Java peer tolerates. JSON *bodies* are read elsewhere; a header needs no tree.
//!
//! Accepted beyond JSON: member names in any letter case, with `_`, unquoted or in single quotes; numbers as strings
//! and strings as numbers; superfluous commas inside objects; fastjson's extra escapes; invalid UTF-8 (replaced).

use std::ops::Range;

use bytes::Bytes;

use super::json_text::{Unescape, find_end, is_blank, is_number, parse_int, usual_int, usual_name};
use super::{Command, SerializeType};
use crate::byte_str::ByteStr;
use crate::ext_fields::{ExtFields, Span};
use crate::frame::FrameError;
use crate::language::Language;

/// What went wrong is in [`Reader::failure`], so that results stay small enough for registers.
type Result<T> = std::result::Result<T, Stop>;

struct Stop;

/// Objects and arrays inside an unknown member may nest this deep, inside an ext field one deeper.
const MAX_DEPTH: u32 = 32;

/// Reads a whole header into a command that holds nothing yet.
pub(crate) fn read(head: Bytes, command: &mut Command) -> std::result::Result<(), FrameError> {
    read_header(head, command, true)
}

/// `quick`: see [`Reader::quick`].
fn read_header(
    head: Bytes,
    command: &mut Command,
    quick: bool,
) -> std::result::Result<(), FrameError> {
    let mut members = Members::default();
    let valid = std::str::from_utf8(&head).ok();
    let mut reader = Reader {
        text: &head,
        at: 0,
        depth: 0,
        quick: quick && valid.is_some(),
        valid,
        ext: &mut command.ext,
        failure: (0, ""),
    };
    if reader.header(&mut members).is_err() {
        let (at, what) = reader.failure;
        return Err(FrameError::Json { at, what });
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
            Member::Other => reader.skip_value()?,
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
    /// Names and numbers are taken in one step where they are written as everybody writes them. The result is the same.
    quick: bool,
    /// The whole header, if it is valid UTF-8: then every piece of it is.
    valid: Option<&'h str>,
    /// Collects the fields; its arena takes all unescaped text.
    ext: &'c mut ExtFields,
    /// Offset and reason, once a function has stopped.
    failure: (usize, &'static str),
}

impl Reader<'_, '_> {
    fn header(&mut self, members: &mut Members) -> Result<()> {
        self.blanks();
        self.expect(b'{', "no opening brace")?;
        while self.member(|reader, name| members.read(reader, name))? {}
        self.blanks();
        if self.at < self.text.len() {
            return Err(self.stop("something behind the closing brace"));
        }
        Ok(())
    }

    fn ext_fields(&mut self) -> Result<()> {
        if self.peek() == Some(b'{') {
            self.ext.restart(true);
            self.at += 1;
            loop {
                self.usual_fields();
                if !self.member(|reader, name| reader.ext_field(name))? {
                    return Ok(());
                }
            }
        }
        match self.value()? {
            None => self.ext.restart(false),
            Some(_) => return Err(self.stop("extFields is not an object")),
        }
        Ok(())
    }

    /// Fields as everybody writes them: `"name":"value"` without blanks and escapes, commas between. What looks different,
    /// and the closing brace, is left to [`member`](Self::member).
    fn usual_fields(&mut self) {
        let text = self.text;
        while self.quick
            && let Some(name) = usual_name(text, self.at)
            && text.get(name.end + 2) == Some(&b'"')
            && let Some(end) = find_end(text, name.end + 3, b'"')
            && let Some([b'"', next @ (b',' | b'}'), ..]) = text.get(end..)
        {
            let value = Span::in_head(name.end + 3..end);
            if !self.ext.push_spans(Span::in_head(name), value) {
                return;
            }
            self.at = end + 1 + usize::from(*next == b',');
        }
    }

    fn ext_field(&mut self, name: Span) -> Result<()> {
        match self.value()? {
            Some(value) if !self.ext.push_spans(name, value) => {
                Err(self.stop("too many ext fields"))
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
        if self.quick
            && let Some((number, len)) = usual_int(self.text, self.at)
        {
            self.at += len;
            return Ok(number);
        }
        let at = self.at;
        match self.value()? {
            None => Ok(0),
            Some(span) => match parse_int(self.bytes(span)) {
                Some(number) => Ok(number),
                None => Err(self.stop_at(at, "not a 32-bit number")),
            },
        }
    }

    /// The next member of an object; false at its end. `read` reads the value of the name it is given.
    #[inline]
    fn member(&mut self, read: impl FnOnce(&mut Self, Span) -> Result<()>) -> Result<bool> {
        self.blanks_and_commas();
        if self.eat(b'}') {
            return Ok(false);
        }
        let name = match usual_name(self.text, self.at) {
            Some(name) if self.quick => {
                self.at = name.end + 2;
                Span::in_head(name)
            }
            _ => self.unusual_name()?,
        };
        self.blanks();
        read(self, name)?;
        self.blanks();
        match self.peek() {
            Some(b',' | b'}') => Ok(true),
            _ => Err(self.stop("neither comma nor closing brace behind a value")),
        }
    }

    /// A member's name, however it is written, and the colon behind it.
    #[cold]
    fn unusual_name(&mut self) -> Result<Span> {
        let name = self.name()?;
        self.blanks();
        self.expect(b':', "no colon behind a name")?;
        Ok(name)
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
                    return Err(self.stop("no member name"));
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
            _ => self.literal(),
        }
    }

    /// A number, `true`, `false`, or `null`: `None`.
    fn literal(&mut self) -> Result<Option<Span>> {
        let start = self.at;
        match self.word() {
            b"null" => Ok(None),
            word if word == b"true" || word == b"false" || is_number(word) => {
                Ok(Some(Span::in_head(start..self.at)))
            }
            _ => Err(self.stop_at(start, "not a value")),
        }
    }

    /// An object or array as its own text.
    fn nested(&mut self) -> Result<Span> {
        let start = self.at;
        if self.depth > MAX_DEPTH {
            return Err(self.stop("nested too deeply"));
        }
        self.depth += 1;
        if self.eat(b'{') {
            while self.member(|reader, _| reader.value().map(drop))? {}
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
                return Err(self.stop("neither comma nor closing bracket behind a value"));
            }
        }
    }

    #[inline]
    fn string(&mut self, quote: u8) -> Result<Span> {
        let start = self.at + 1;
        let Some(end) = find_end(self.text, start, quote) else {
            return Err(self.stop("string without end"));
        };
        if self.text[end] == quote {
            self.at = end + 1;
            return Ok(self.checked(start..end));
        }
        self.escaped_string(start, end, quote)
    }

    /// A string whose first backslash is at `escape`.
    fn escaped_string(&mut self, start: usize, escape: usize, quote: u8) -> Result<Span> {
        if self.depth > 0 {
            return self.skip_string(start, escape, quote);
        }
        let mut strings = Unescape {
            text: self.text,
            valid: self.valid,
            at: start,
            quote,
        };
        let mut outcome = Ok(());
        let span = self.ext.store(|arena| outcome = strings.run(arena, escape));
        self.at = strings.at;
        match outcome {
            Ok(()) => Ok(span),
            Err(what) => Err(self.stop(what)),
        }
    }

    /// Inside a nested value, which is taken as it stands.
    fn skip_string(&mut self, start: usize, mut escape: usize, quote: u8) -> Result<Span> {
        loop {
            let Some(end) = find_end(self.text, escape + 2, quote) else {
                return Err(self.stop("string without end"));
            };
            if self.text[end] == quote {
                self.at = end + 1;
                return Ok(Span::in_head(start..end));
            }
            escape = end;
        }
    }

    /// Steps over a value that nobody wants.
    fn skip_value(&mut self) -> Result<()> {
        self.depth += 1;
        self.value()?;
        self.depth -= 1;
        Ok(())
    }

    /// The range itself, or, where it is not UTF-8, a repaired copy.
    #[inline]
    fn checked(&mut self, range: Range<usize>) -> Span {
        let whole = self.valid.is_some() || self.depth > 0;
        if whole || std::str::from_utf8(&self.text[range.clone()]).is_ok() {
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
            Err(self.stop(what))
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

    #[cold]
    fn stop(&mut self, what: &'static str) -> Stop {
        self.stop_at(self.at, what)
    }

    #[cold]
    fn stop_at(&mut self, at: usize, what: &'static str) -> Stop {
        self.failure = (at, what);
        Stop
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// Read with the quick steps and without them.
    fn both_ways(head: &[u8]) -> [std::result::Result<Command, FrameError>; 2] {
        [true, false].map(|quick| {
            let mut command = Command::default();
            read_header(Bytes::copy_from_slice(head), &mut command, quick).map(|()| command)
        })
    }

    /// The JSON headers of the recorded frames.
    fn recorded() -> Vec<Vec<u8>> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/frames");
        let files = std::fs::read_dir(folder).expect("the recorded frames");
        let headers: Vec<_> = files
            .map(|file| file.and_then(|file| std::fs::read(file.path())))
            .filter_map(|frame| {
                let frame = frame.expect("a recorded frame");
                let word = frame.get(4..8)?;
                let len = usize::from_be_bytes([0, 0, 0, 0, 0, word[1], word[2], word[3]]);
                (word[0] == 0).then(|| frame[8..8 + len].to_vec())
            })
            .collect();
        assert!(headers.len() > 400, "only {} headers", headers.len());
        headers
    }

    #[test]
    fn the_quick_steps_read_recorded_headers_as_the_tolerant_ones_do() {
        for header in RECORDED.iter() {
            let [quick, tolerant] = both_ways(header);
            assert!(quick.is_ok());
            assert_eq!(quick, tolerant, "{}", header.escape_ascii());
        }
    }

    static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(recorded);

    /// Pieces of headers, good ones more often than bad ones.
    const PIECES: [&[u8]; 43] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b" ",
        b"\n",
        b"\"",
        b"'",
        b"\\",
        b"-",
        b"\xFF",
        b"\"code\":",
        b"\"code\":310,",
        b"\"flag\":0}",
        b"\"opaque\":-7,",
        b"\"opaque\":2147483647,",
        b"\"opaque\":2147483648,",
        b"\"version\":1234567890,",
        b"\"version\" : 409 ,",
        b"\"language\":\"JAVA\",",
        b"\"extFields\":{",
        b"\"a\":\"group\",",
        b"\"b\":\"topic\"",
        b"\"i\":\"x\\u0001y\\u0002\",",
        b"\"i\":\"\\u00e4\\u007F\\u12\",",
        b"\"\":\"\",",
        b"\"\"\":\"\",",
        b"\"\\\":\"1\",",
        b"\"\\u0061\":\"1\"}",
        b"\"k\":false,",
        b"\"k\":null",
        b"\"n\":{\"m\":[1,\"2\"]},",
        b"\"queueId\":3,",
        b"'single':'1',",
        b"bare:1,",
        b"\"\xC3\xA4\":\"\xC3\xA4\",",
        b"12",
        b"007,",
        b"1.5e3,",
        b"\"remark\":\"no\",",
        b"true",
    ];

    proptest! {
        #[test]
        fn the_quick_steps_read_any_pieces_as_the_tolerant_ones_do(
            pieces in vec(select(&PIECES[..]), 0..24),
            whole in any::<bool>(),
        ) {
            let mut header = pieces.concat();
            if whole {
                header = [b"{", &header[..], b"}"].concat();
            }
            let [quick, tolerant] = both_ways(&header);
            prop_assert_eq!(quick, tolerant);
        }

        #[test]
        fn the_quick_steps_read_damaged_headers_as_the_tolerant_ones_do(
            which in any::<prop::sample::Index>(),
            damages in vec((any::<prop::sample::Index>(), select(&PIECES[..]), 0..3_usize), 1..4),
        ) {
            let mut header = which.get(&RECORDED).clone();
            for (at, piece, removed) in damages {
                let at = at.index(header.len());
                let end = header.len().min(at + removed);
                header.splice(at..end, piece.iter().copied());
            }
            let [quick, tolerant] = both_ways(&header);
            prop_assert_eq!(quick, tolerant);
        }
    }
}
