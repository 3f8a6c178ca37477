//! Java's `.properties` dialect (wire spec 6.16): reading it as `java.util.Properties` does, and
//! changing single keys while comments, order and blank lines of the file stay as they are.
//!
//! Bytes that are UTF-8 are read as UTF-8, all others as ISO-8859-1; untouched lines are written
//! back byte for byte. What [`PropertiesFile::set`] writes is ASCII with `\uXXXX`, so that readers
//! of either encoding agree. No meaning of keys lives here; that is [`mod@crate::config`].

use std::fmt::Write as _;

/// A text that is not in the dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `{text}` is not a \\uXXXX escape (four hexadecimal digits are needed)")]
pub struct PropertiesError {
    /// Line of the file, counted from 1.
    pub line: usize,
    /// The broken escape as it stands there.
    pub text: String,
}

/// One `key=value`, as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Unescaped key.
    pub key: &'a str,
    /// Unescaped value.
    pub value: &'a str,
    /// First line of the entry, counted from 1; 0 for entries added by [`PropertiesFile::set`].
    pub line: usize,
}

/// A properties file as a list of lines, some of which are entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PropertiesFile {
    lines: Vec<Line>,
    byte_order_mark: bool,
    latin1: bool,
    windows_newlines: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    /// Blank or comment, with its line end.
    Other(String),
    Entry {
        /// All natural lines of the entry, with their line ends.
        raw: String,
        /// Length of `raw` up to the value, when key and separator stand on the first line.
        prefix: Option<usize>,
        key: String,
        value: String,
        line: usize,
    },
}

impl PropertiesFile {
    /// Reads a whole file or request body.
    ///
    /// # Errors
    /// A `\u` that four hexadecimal digits do not follow; nothing else is an error in this dialect.
    pub fn parse(bytes: &[u8]) -> Result<Self, PropertiesError> {
        let (text, latin1) = match std::str::from_utf8(bytes) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (bytes.iter().map(|&b| char::from(b)).collect(), true),
        };
        let (byte_order_mark, text) = match text.strip_prefix('\u{feff}') {
            Some(rest) => (true, rest),
            None => (false, text.as_str()),
        };
        Ok(Self {
            lines: parse_lines(text)?,
            byte_order_mark,
            latin1,
            windows_newlines: text.contains("\r\n"),
        })
    }

    /// Value of `key`; the last entry wins, as in Java.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries()
            .filter(|e| e.key == key)
            .last()
            .map(|e| e.value)
    }

    /// All entries in file order, repeated keys included.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.lines.iter().filter_map(|line| match line {
            Line::Other(_) => None,
            Line::Entry {
                key, value, line, ..
            } => Some(Entry {
                key,
                value,
                line: *line,
            }),
        })
    }

    /// Gives `key` this value: in place where the key stands (its last place, if it is repeated;
    /// earlier ones go), else at the end. A value that is already there leaves the line as it is.
    pub fn set(&mut self, key: &str, value: &str) {
        let places: Vec<usize> = (0..self.lines.len())
            .filter(|&i| self.lines[i].has_key(key))
            .collect();
        let Some((&last, earlier)) = places.split_last() else {
            self.append(key, value);
            return;
        };
        let end = self.newline();
        if let Line::Entry {
            raw,
            prefix,
            value: old,
            line,
            ..
        } = &self.lines[last]
            && old != value
        {
            let mut text = match prefix {
                Some(length) => raw[..*length].to_owned(),
                None => encode_key(key) + "=",
            };
            let prefix = Some(text.len());
            escape_into(&mut text, value, true);
            text.push_str(end);
            let line = *line;
            self.lines[last] = Line::Entry {
                raw: text,
                prefix,
                key: key.into(),
                value: value.into(),
                line,
            };
        }
        for &place in earlier.iter().rev() {
            self.lines.remove(place);
        }
    }

    /// Takes every entry of `key` out; true if there was one.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.lines.len();
        self.lines.retain(|line| !line.has_key(key));
        self.lines.len() < before
    }

    /// The file's bytes; equal to what was parsed as long as nothing was changed.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = String::new();
        if self.byte_order_mark {
            text.push('\u{feff}');
        }
        for line in &self.lines {
            text.push_str(match line {
                Line::Other(raw) | Line::Entry { raw, .. } => raw,
            });
        }
        if self.latin1 {
            // Every char came from one byte or is ASCII that `set` wrote.
            return text
                .chars()
                .map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?'))
                .collect();
        }
        text.into_bytes()
    }

    fn append(&mut self, key: &str, value: &str) {
        let end = self.newline();
        if let Some(Line::Other(raw) | Line::Entry { raw, .. }) = self.lines.last_mut() {
            // A backslash at the end would join the new line to this one.
            let dangling = swallows_next(raw);
            if raw.ends_with(['\n', '\r']) {
                if dangling {
                    raw.push_str(end);
                }
            } else {
                if dangling {
                    raw.pop();
                }
                raw.push_str(end);
            }
        }
        let mut raw = encode_key(key) + "=";
        let prefix = Some(raw.len());
        escape_into(&mut raw, value, true);
        raw.push_str(end);
        self.lines.push(Line::Entry {
            raw,
            prefix,
            key: key.into(),
            value: value.into(),
            line: 0,
        });
    }

    fn newline(&self) -> &'static str {
        if self.windows_newlines { "\r\n" } else { "\n" }
    }
}

impl Line {
    fn has_key(&self, wanted: &str) -> bool {
        matches!(self, Line::Entry { key, .. } if key == wanted)
    }
}

/// Appends `key=value` and a newline as the bodies of codes 26 and 319 hold them: UTF-8, with only
/// those escapes without which a reader would see another key or value.
pub fn append_pair(out: &mut String, key: &str, value: &str) {
    for c in key.chars() {
        if matches!(c, ' ' | '=' | ':' | '#' | '!') {
            out.push('\\');
            out.push(c);
        } else {
            escape_char(out, c, false);
        }
    }
    out.push('=');
    escape_into(out, value, false);
    out.push('\n');
}

fn encode_key(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for c in key.chars() {
        match c {
            ' ' | '=' | ':' | '#' | '!' => {
                out.push('\\');
                out.push(c);
            }
            c => escape_char(&mut out, c, true),
        }
    }
    out
}

fn escape_into(out: &mut String, value: &str, ascii_only: bool) {
    let mut leading = true;
    for c in value.chars() {
        leading &= c == ' ';
        if leading {
            out.push('\\');
            out.push(' ');
        } else {
            escape_char(out, c, ascii_only);
        }
    }
}

fn escape_char(out: &mut String, c: char, ascii_only: bool) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0c' => out.push_str("\\f"),
        c if c.is_control() || c == '\u{feff}' || (ascii_only && !c.is_ascii()) => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04X}");
            }
        }
        c => out.push(c),
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// Content and raw text (with the line end) of each natural line.
fn natural_lines(text: &str) -> Vec<(&str, &str)> {
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let content_len = rest.find(['\n', '\r']).unwrap_or(rest.len());
        let end_len = match rest.as_bytes().get(content_len..) {
            Some([b'\r', b'\n', ..]) => 2,
            Some([_, ..]) => 1,
            _ => 0,
        };
        let (raw, after) = rest.split_at(content_len + end_len);
        lines.push((&raw[..content_len], raw));
        rest = after;
    }
    lines
}

fn continues(content: &str) -> bool {
    content.bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 1
}

/// `raw`, one entry or comment, ends in a backslash that joins the following line to it.
fn swallows_next(raw: &str) -> bool {
    let comment = raw.trim_start_matches(is_blank).starts_with(['#', '!']);
    !comment
        && natural_lines(raw)
            .last()
            .is_some_and(|(content, _)| continues(content))
}

fn parse_lines(text: &str) -> Result<Vec<Line>, PropertiesError> {
    let natural = natural_lines(text);
    let mut lines = Vec::with_capacity(natural.len());
    let mut next = 0;
    while let Some(&(content, first_raw)) = natural.get(next) {
        let line = next + 1;
        next += 1;
        let trimmed = content.trim_start_matches(is_blank);
        if trimmed.is_empty() || trimmed.starts_with(['#', '!']) {
            lines.push(Line::Other(first_raw.to_owned()));
            continue;
        }
        let indent = content.len() - trimmed.len();
        let mut raw = first_raw.to_owned();
        let mut logical = trimmed.to_owned();
        let mut last = trimmed;
        let mut first_len = logical.len();
        while continues(last) {
            logical.pop();
            first_len = first_len.min(logical.len());
            let Some(&(content, following_raw)) = natural.get(next) else {
                break;
            };
            next += 1;
            raw.push_str(following_raw);
            last = content.trim_start_matches(is_blank);
            logical.push_str(last);
        }
        if logical.is_empty() {
            lines.push(Line::Other(raw));
            continue;
        }
        let (key_len, value_at, separator) = split(&logical);
        let key = unescape(&logical[..key_len], line)?;
        let value = unescape(&logical[value_at..], line)?;
        let prefix = (separator && value_at <= first_len).then_some(indent + value_at);
        lines.push(Line::Entry {
            raw,
            prefix,
            key,
            value,
            line,
        });
    }
    Ok(lines)
}

/// Key length, start of the value, and whether a `=` or `:` stands between.
fn split(logical: &str) -> (usize, usize, bool) {
    let mut escaped = false;
    let mut key_len = logical.len();
    for (at, c) in logical.char_indices() {
        if !escaped && (is_blank(c) || c == '=' || c == ':') {
            key_len = at;
            break;
        }
        escaped = c == '\\' && !escaped;
    }
    let mut separator = false;
    let mut value_at = logical.len();
    for (at, c) in logical[key_len..].char_indices() {
        if is_blank(c) {
            continue;
        }
        if !separator && (c == '=' || c == ':') {
            separator = true;
            continue;
        }
        value_at = key_len + at;
        break;
    }
    (key_len, value_at, separator)
}

fn unescape(text: &str, line: usize) -> Result<String, PropertiesError> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    // UTF-16 units: a pair of \u escapes may make one character, as in Java.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => match chars.next() {
                Some('u') => {
                    let digits: String = chars.clone().take(4).collect();
                    let unit = (digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
                        .then(|| u16::from_str_radix(&digits, 16).ok())
                        .flatten();
                    let Some(unit) = unit else {
                        return Err(PropertiesError {
                            line,
                            text: format!("\\u{digits}"),
                        });
                    };
                    units.push(unit);
                    chars.nth(3);
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some(other) => other,
                None => break,
            },
            other => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    Ok(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let file = PropertiesFile::parse(text.as_bytes()).unwrap();
        file.entries()
            .map(|e| (e.key.to_owned(), e.value.to_owned()))
            .collect()
    }

    fn one(text: &str) -> (String, String) {
        let all = pairs(text);
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.into(), value.into())
    }

    #[test]
    fn separators_are_equals_colon_or_blank() {
        for text in [
            "a=b",
            "a:b",
            "a b",
            "a\tb",
            "  a = b",
            "a : b",
            "a\x0c=\tb",
            "\ta b",
        ] {
            assert_eq!(one(text), pair("a", "b"), "{text:?}");
        }
        assert_eq!(one("a==b"), pair("a", "=b"));
        assert_eq!(one("a = : b"), pair("a", ": b"));
        assert_eq!(one("a"), pair("a", ""));
        assert_eq!(one("=b"), pair("", "b"));
        assert_eq!(one("a=b  "), pair("a", "b  "));
        assert_eq!(one("a\\=b\\:c\\ d=e"), pair("a=b:c d", "e"));
    }

    #[test]
    fn comments_and_blank_lines_are_no_entries_and_do_not_continue() {
        assert_eq!(
            pairs("# a=b\\\n! c=d\n\n   \n  # e\nf=g\n"),
            [pair("f", "g")]
        );
        assert_eq!(one("a=b#c!d"), pair("a", "b#c!d"));
    }

    #[test]
    fn a_backslash_at_the_line_end_continues_it() {
        assert_eq!(one("a=b,\\\n    c,\\\r\n\td"), pair("a", "b,c,d"));
        assert_eq!(one("a=b\\\\\n").1, "b\\");
        assert_eq!(pairs("a=b\\\\\nc=d"), [pair("a", "b\\"), pair("c", "d")]);
        assert_eq!(pairs("a=b\\\n\nc=d"), [pair("a", "b"), pair("c", "d")]);
        assert_eq!(one("a=b\\\n#c"), pair("a", "b#c"));
        assert_eq!(one("a=b\\"), pair("a", "b"));
        assert_eq!(one("ke\\\n  y=v"), pair("key", "v"));
    }

    #[test]
    fn escapes_are_java_s() {
        assert_eq!(one("a=\\t\\n\\r\\f\\q\\\\"), pair("a", "\t\n\r\x0cq\\"));
        assert_eq!(
            one("\\u0061\\u0062=\\u00e9\\uD83D\\uDE00"),
            pair("ab", "é😀")
        );
        assert_eq!(one("broker\\u0050ath=x"), pair("brokerPath", "x"));
        assert_eq!(one("a=\\uD83D").1, "\u{fffd}");
    }

    #[test]
    fn a_broken_unicode_escape_names_its_line() {
        let error = PropertiesFile::parse(b"a=b\n\nc=\\u12g4\n").unwrap_err();
        assert_eq!(
            error,
            PropertiesError {
                line: 3,
                text: "\\u12g4".into()
            }
        );
        assert!(PropertiesFile::parse(b"a=\\u12").is_err());
        assert!(PropertiesFile::parse(b"\\u+123=1").is_err());
    }

    #[test]
    fn latin_1_and_utf_8_are_both_read_and_kept() {
        let latin1 = PropertiesFile::parse(b"# caf\xe9\na=\xe9\n").unwrap();
        assert_eq!(latin1.get("a"), Some("é"));
        let mut changed = latin1.clone();
        changed.set("b", "消é");
        assert_eq!(changed.to_bytes(), b"# caf\xe9\na=\xe9\nb=\\u6D88\\u00E9\n");
        let utf8 = PropertiesFile::parse("\u{feff}a=é\n".as_bytes()).unwrap();
        assert_eq!(utf8.get("a"), Some("é"));
        assert_eq!(utf8.to_bytes(), "\u{feff}a=é\n".as_bytes());
    }

    #[test]
    fn set_changes_one_line_and_keeps_all_others() {
        let text = "# name\nbrokerName = a\n\n  listenPort : 1 # two\nlong=1,\\\n   2\nend=1";
        let mut file = PropertiesFile::parse(text.as_bytes()).unwrap();
        file.set("brokerName", "b c");
        file.set("listenPort", "10911");
        file.set("long", " 3");
        file.set("end", "1");
        file.set("new", "x=y");
        let expected =
            "# name\nbrokerName = b c\n\n  listenPort : 10911\nlong=\\ 3\nend=1\nnew=x=y\n";
        assert_eq!(String::from_utf8(file.to_bytes()).unwrap(), expected);
    }

    #[test]
    fn windows_line_ends_stay() {
        let mut file = PropertiesFile::parse(b"a=1\r\nb=2\r\n").unwrap();
        file.set("a", "3");
        file.set("c", "4");
        assert_eq!(file.to_bytes(), b"a=3\r\nb=2\r\nc=4\r\n");
    }

    #[test]
    fn the_last_of_repeated_keys_counts_and_set_leaves_one() {
        let mut file = PropertiesFile::parse(b"a=1\nb=2\na=3\n").unwrap();
        assert_eq!(file.get("a"), Some("3"));
        file.set("a", "4");
        assert_eq!(file.to_bytes(), b"b=2\na=4\n");
        assert!(file.remove("b"));
        assert!(!file.remove("b"));
        assert_eq!(file.to_bytes(), b"a=4\n");
    }

    #[test]
    fn an_appended_line_is_not_swallowed_by_a_dangling_backslash() {
        for text in ["a=b\\", "a=b\\\n", "a=b\\\n   c\\\n", "# c\\\n", "\\"] {
            let mut file = PropertiesFile::parse(text.as_bytes()).unwrap();
            let before = file.get("a").map(str::to_owned);
            file.set("k", "v");
            let again = PropertiesFile::parse(&file.to_bytes()).unwrap();
            assert_eq!(again.get("k"), Some("v"), "{text:?}");
            assert_eq!(again.get("a").map(str::to_owned), before, "{text:?}");
        }
    }

    #[test]
    fn exported_pairs_read_back_equal() {
        let mut out = String::new();
        append_pair(&mut out, "brokerName", "broker-a");
        append_pair(&mut out, "an odd=key", "  C:\\dir\nünter");
        assert_eq!(
            out,
            "brokerName=broker-a\nan\\ odd\\=key=\\ \\ C:\\\\dir\\nünter\n"
        );
        assert_eq!(
            pairs(&out),
            [
                pair("brokerName", "broker-a"),
                pair("an odd=key", "  C:\\dir\nünter")
            ]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic_and_written_back_equal(bytes: Vec<u8>) {
            if let Ok(file) = PropertiesFile::parse(&bytes) {
                prop_assert_eq!(file.to_bytes(), bytes);
            }
        }

        #[test]
        fn any_dialect_like_text_is_written_back_equal(text in "([ab=: \t\\\\#!\n\r]|\\\\u0041|é){0,40}") {
            if let Ok(file) = PropertiesFile::parse(text.as_bytes()) {
                prop_assert_eq!(file.to_bytes(), text.as_bytes());
            }
        }

        #[test]
        fn set_gives_that_value_and_touches_no_other_key(
            text in "([abc][=: ][^\\\\\n\r]{0,4}(\\\\\n x)?\n?|#x\n|\n){0,8}",
            key in "[abc]|.{1,5}", value in ".{0,6}|[ \\\\\n\t=:#é😀]{0,5}",
        ) {
            let Ok(mut file) = PropertiesFile::parse(text.as_bytes()) else { return Ok(()) };
            let before = file.clone();
            file.set(&key, &value);
            let again = PropertiesFile::parse(&file.to_bytes()).unwrap();
            prop_assert_eq!(again.get(&key), Some(value.as_str()));
            for entry in before.entries().filter(|e| e.key != key) {
                prop_assert_eq!(again.get(entry.key), before.get(entry.key));
            }
            file.remove(&key);
            let again = PropertiesFile::parse(&file.to_bytes()).unwrap();
            prop_assert_eq!(again.get(&key), None);
        }

        #[test]
        fn exports_of_any_pairs_read_back_equal(pairs in proptest::collection::vec((".{1,6}", ".{0,8}"), 0..5)) {
            let mut out = String::new();
            for (key, value) in &pairs {
                append_pair(&mut out, key, value);
            }
            let file = PropertiesFile::parse(out.as_bytes()).unwrap();
            let read: Vec<_> = file.entries().map(|e| (e.key.to_owned(), e.value.to_owned())).collect();
            prop_assert_eq!(read, pairs);
        }
    }
}
