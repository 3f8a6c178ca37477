//! Writes JSON in both flavours, compact or indented as Java's configuration files are.

use super::convert::{ToJson, WriteKey};

/// How keys that are not strings, and characters outside ASCII, are written (wire spec 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Legal JSON in plain ASCII: number keys quoted, object keys as a string holding their JSON text, other characters
    /// as `\uXXXX`. Every Java client reads it; a Go client does not read object-keyed tables in this form.
    Standard,
    /// As the Java library writes by default: number keys bare, object keys as objects, characters outside ASCII raw.
    Fastjson,
}

/// A JSON text under construction.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    flavour: Flavour,
    indented: bool,
    level: usize,
}

impl Writer {
    /// A writer without white space.
    pub fn compact(flavour: Flavour) -> Self {
        Writer {
            out: Vec::with_capacity(256),
            flavour,
            indented: false,
            level: 0,
        }
    }

    /// A writer that indents by tabs.
    pub fn indented(flavour: Flavour) -> Self {
        Writer {
            indented: true,
            ..Writer::compact(flavour)
        }
    }

    /// The flavour this writer was made for.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// What has been written: valid UTF-8.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Text that is JSON already.
    pub(super) fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Begins an object; [`ObjectWriter::end`] ends it.
    pub fn object(&mut self) -> ObjectWriter<'_> {
        self.raw("{");
        self.level += 1;
        ObjectWriter {
            writer: self,
            empty: true,
        }
    }

    /// Writes an array, null items included. Indented, each item gets a line, but for arrays of numbers.
    pub fn array<T: ToJson>(&mut self, items: &[T]) {
        let lines = self.indented && !items.iter().all(ToJson::is_number);
        self.items(items.iter(), lines);
    }

    /// Writes an array that stays on one line, as Java's sets do.
    pub fn set<'i, T: ToJson + 'i>(&mut self, items: impl Iterator<Item = &'i T>) {
        self.items(items, false);
    }

    fn items<'i, T: ToJson + 'i>(&mut self, items: impl Iterator<Item = &'i T>, lines: bool) {
        self.raw("[");
        self.level += 1;
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.raw(",");
            }
            if lines {
                self.new_line();
            }
            item.write(self);
        }
        self.level -= 1;
        if lines {
            self.new_line();
        }
        self.raw("]");
    }

    /// Writes a string with its quotes.
    pub fn text(&mut self, text: &str) {
        self.raw("\"");
        let mut plain = 0;
        for (at, character) in text.char_indices() {
            if self.writes_as_it_is(character) {
                continue;
            }
            self.raw(text.get(plain..at).unwrap_or_default());
            self.escape(character);
            plain = at + character.len_utf8();
        }
        self.raw(text.get(plain..).unwrap_or_default());
        self.raw("\"");
    }

    fn writes_as_it_is(&self, character: char) -> bool {
        match character {
            '"' | '\\' | '\0'..='\u{1f}' | '\u{7f}' => false,
            ' '..='~' => true,
            '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => false,
            _ => self.flavour == Flavour::Fastjson,
        }
    }

    fn escape(&mut self, character: char) {
        let short = match character {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            _ => {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    self.raw(&format!("\\u{unit:04X}"));
                }
                return;
            }
        };
        self.raw(short);
    }

    fn new_line(&mut self) {
        self.out.push(b'\n');
        self.out.extend(std::iter::repeat_n(b'\t', self.level));
    }
}

/// An object under construction.
#[derive(Debug)]
pub struct ObjectWriter<'w> {
    writer: &'w mut Writer,
    empty: bool,
}

impl ObjectWriter<'_> {
    fn comma(&mut self) {
        if !self.empty {
            self.writer.raw(",");
        }
        self.empty = false;
    }

    /// A member with a name of our own, which needs no escapes. Null is left out.
    pub fn field<T: ToJson + ?Sized>(&mut self, name: &str, value: &T) {
        if value.is_null() {
            return;
        }
        self.comma();
        if self.writer.indented {
            self.writer.new_line();
        }
        self.writer.raw("\"");
        self.writer.raw(name);
        self.writer.raw("\":");
        value.write(self.writer);
    }

    /// An entry of a map. Null is left out. Keys that are not strings stay on the line, as Java writes them.
    pub fn entry<K: WriteKey, T: ToJson + ?Sized>(&mut self, key: &K, value: &T) {
        if value.is_null() {
            return;
        }
        self.comma();
        if self.writer.indented && key.is_text() {
            self.writer.new_line();
        }
        key.write_key(self.writer);
        self.writer.raw(":");
        value.write(self.writer);
    }

    /// Ends the object.
    pub fn end(self) {
        self.writer.level -= 1;
        if self.writer.indented && !self.empty {
            self.writer.new_line();
        }
        self.writer.raw("}");
    }
}
