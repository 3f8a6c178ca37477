//! [`ExtFields`]: the string → string map of a command, as an ordered list of slices into the frame.
//!
//! Reading a frame copies nothing: a field is two ranges into the header bytes. Only text that is not in the frame as
//! such (JSON escapes, invalid UTF-8, fields the program adds) lives in an arena, whose memory each thread keeps for
//! its next command. Typed access is in [`crate::header`].

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::header::FieldSink;

/// Fields a header may carry; more make the frame a bad one. Official peers send at most about 30.
pub const MAX_EXT_FIELDS: usize = 65_536;

/// Signed V2 sends have up to 18 fields: those stay without an allocation.
const INLINE_FIELDS: usize = 20;

/// The ext fields of a command, in wire order, doubled keys kept (the last of them counts).
#[derive(Clone, Default)]
pub struct ExtFields {
    head: Bytes,
    arena: Arena,
    fields: SmallVec<[Field; INLINE_FIELDS]>,
    empty_is_absent: bool,
    present: bool,
}

#[derive(Clone, Copy)]
struct Field {
    key: Span,
    value: Span,
}

/// A range of the header bytes or of the arena. Both are shorter than 2³¹ bytes.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

const IN_ARENA: u32 = 1 << 31;

/// The header bytes and the arena.
#[derive(Clone, Copy)]
struct Texts<'a> {
    head: &'a [u8],
    arena: &'a str,
}

impl<'a> Texts<'a> {
    #[inline]
    fn at(self, span: Span) -> Text<'a> {
        if span.is_in_head() {
            Text::Head(self.head.get(span.range()).unwrap_or_default())
        } else {
            Text::Arena(self.arena.get(span.range()).unwrap_or_default())
        }
    }
}

/// A key or value.
#[derive(Clone, Copy)]
pub(crate) enum Text<'a> {
    /// UTF-8, as its reader has seen.
    Head(&'a [u8]),
    Arena(&'a str),
}

impl<'a> Text<'a> {
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        match self {
            Self::Head(bytes) => bytes,
            Self::Arena(text) => text.as_bytes(),
        }
    }

    pub(crate) fn as_str(self) -> &'a str {
        match self {
            // Checked when the frame was read.
            Self::Head(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
            Self::Arena(text) => text,
        }
    }
}

impl Span {
    pub(crate) fn in_head(range: Range<usize>) -> Self {
        Self {
            start: range.start as u32,
            len: (range.end - range.start) as u32,
        }
    }

    fn in_arena(range: Range<usize>) -> Self {
        let mut span = Self::in_head(range);
        span.start |= IN_ARENA;
        span
    }

    pub(crate) fn is_in_head(self) -> bool {
        self.start & IN_ARENA == 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }

    pub(crate) fn range(self) -> Range<usize> {
        let start = (self.start & !IN_ARENA) as usize;
        start..start + self.len as usize
    }
}

impl ExtFields {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// In a binary header an empty value means that the field is absent (wire spec 1.3).
    pub(crate) fn read_from_binary(&mut self) {
        self.empty_is_absent = true;
    }

    /// The header that the spans point into, given by its reader last. It is let go if there are no fields.
    pub(crate) fn attach(&mut self, head: Bytes) {
        if !self.fields.is_empty() {
            self.head = head;
        }
    }

    /// Forgets the fields read so far (a JSON header with two `extFields` members); spans stay valid.
    pub(crate) fn restart(&mut self, present: bool) {
        self.fields.clear();
        self.present = present;
    }

    /// False when there is no room for another field.
    #[must_use]
    pub(crate) fn push_spans(&mut self, key: Span, value: Span) -> bool {
        if self.fields.len() >= MAX_EXT_FIELDS {
            return false;
        }
        self.fields.push(Field { key, value });
        true
    }

    /// Text that is not in the header as such: `write` appends it to the arena.
    pub(crate) fn store(&mut self, write: impl FnOnce(&mut String)) -> Span {
        let arena = self.arena.text_mut();
        let start = arena.len();
        write(arena);
        Span::in_arena(start..arena.len())
    }

    /// What the spans lie in.
    #[inline]
    fn texts(&self) -> Texts<'_> {
        Texts {
            head: &self.head,
            arena: self.arena.text(),
        }
    }

    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        self.texts().at(span).as_bytes()
    }

    fn str(&self, span: Span) -> &str {
        self.texts().at(span).as_str()
    }

    /// Keys and values in wire order, for the typed headers. The value is `None` where an empty one means that the field
    /// is absent (binary headers, wire spec 1.3).
    #[inline]
    pub(crate) fn raw(&self) -> impl Iterator<Item = (&[u8], Option<Text<'_>>)> {
        let (texts, empty_is_absent) = (self.texts(), self.empty_is_absent);
        self.fields.iter().map(move |field| {
            let absent = empty_is_absent && field.value.is_empty();
            (
                texts.at(field.key).as_bytes(),
                (!absent).then(|| texts.at(field.value)),
            )
        })
    }

    /// The value of `key`: of the last field of that name. `None` if there is none, or if its value is empty and came
    /// in a binary header, where Java reads an empty value as absent.
    pub fn get(&self, key: &str) -> Option<&str> {
        let field = self
            .fields
            .iter()
            .rev()
            .find(|field| self.bytes(field.key) == key.as_bytes())?;
        let value = self.str(field.value);
        (!(self.empty_is_absent && value.is_empty())).then_some(value)
    }

    /// Whether [`get`](Self::get) finds a value.
    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// All fields in wire order: doubled keys and empty values included, as a signature needs them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> + ExactSizeIterator {
        self.fields
            .iter()
            .map(|field| (self.str(field.key), self.str(field.value)))
    }

    /// Number of fields, doubled keys counted twice.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Whether JSON carries an `extFields` member: there are fields, or the peer sent an empty object.
    pub fn is_present(&self) -> bool {
        self.present || !self.fields.is_empty()
    }

    /// Adds a field at the end; an earlier one of the same name no longer counts, but stays.
    pub fn push(&mut self, key: &str, value: &str) {
        let key = self.store(|arena| arena.push_str(key));
        let value = self.store(|arena| arena.push_str(value));
        self.fields.push(Field { key, value });
    }

    /// Adds a field in place of those of the same name.
    pub fn set(&mut self, key: &str, value: &str) {
        self.remove(key);
        self.push(key, value);
    }

    /// Takes all fields of that name away; whether there were any.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.fields.len();
        let Self {
            head,
            arena,
            fields,
            ..
        } = self;
        let texts = Texts {
            head,
            arena: arena.text(),
        };
        fields.retain(|field| texts.at(field.key).as_bytes() != key.as_bytes());
        fields.len() != before
    }
}

/// A typed header written into ext fields.
impl FieldSink for ExtFields {
    fn put(&mut self, key: &str, value: &str) {
        self.push(key, value);
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Extend<(K, V)> for ExtFields {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, fields: I) {
        for (key, value) in fields {
            self.push(key.as_ref(), value.as_ref());
        }
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for ExtFields {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(fields: I) -> Self {
        let mut ext = Self::new();
        ext.extend(fields);
        ext
    }
}

/// The same fields in the same order.
impl PartialEq for ExtFields {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.fields.iter().zip(&other.fields).all(|(a, b)| {
                self.bytes(a.key) == other.bytes(b.key)
                    && self.bytes(a.value) == other.bytes(b.value)
            })
    }
}

impl Eq for ExtFields {}

impl fmt::Debug for ExtFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Text of one command. Its memory goes back to the thread's spare buffers, so that escaped values (every JSON send
/// has them in its properties) cost no allocation once a thread is warm.
#[derive(Default)]
struct Arena(String);

/// Buffers a thread keeps: as many as a read holds commands, most of the time. Their largest size, and that of all.
const SPARE_BUFFERS: usize = 512;
const SPARE_BUFFER_LEN: usize = 32 * 1024;
const SPARE_BYTES: usize = 256 * 1024;

/// What a thread keeps.
struct Spare {
    buffers: Vec<String>,
    bytes: usize,
}

impl Spare {
    fn take(&mut self) -> Option<String> {
        let text = self.buffers.pop()?;
        self.bytes -= text.capacity();
        Some(text)
    }

    fn give(&mut self, mut text: String) {
        let bytes = self.bytes + text.capacity();
        if self.buffers.len() < SPARE_BUFFERS && bytes <= SPARE_BYTES {
            text.clear();
            self.bytes = bytes;
            self.buffers.push(text);
        }
    }
}

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare { buffers: Vec::new(), bytes: 0 }) };
}

impl Arena {
    fn text(&self) -> &str {
        &self.0
    }

    fn text_mut(&mut self) -> &mut String {
        if self.0.capacity() == 0 {
            let spare = SPARE.try_with(|spare| spare.borrow_mut().take());
            self.0 = spare.ok().flatten().unwrap_or_default();
        }
        &mut self.0
    }
}

impl Clone for Arena {
    fn clone(&self) -> Self {
        let mut copy = Self::default();
        if !self.0.is_empty() {
            copy.text_mut().push_str(&self.0);
        }
        copy
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.0.capacity() == 0 || self.0.capacity() > SPARE_BUFFER_LEN {
            return;
        }
        let text = std::mem::take(&mut self.0);
        // Fails while the thread ends: then the buffer is simply freed.
        let _ = SPARE.try_with(|spare| spare.borrow_mut().give(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> ExtFields {
        pairs.iter().copied().collect()
    }

    #[test]
    fn the_last_of_a_doubled_key_counts_and_both_are_listed() {
        let ext = fields(&[("topic", "T1"), ("queueId", "0"), ("topic", "T2")]);
        assert_eq!(ext.get("topic"), Some("T2"));
        assert_eq!(ext.len(), 3);
        assert_eq!(ext.iter().next(), Some(("topic", "T1")));
        assert_eq!(ext.get("Topic"), None);
    }

    #[test]
    fn set_leaves_one_and_remove_leaves_none() {
        let mut ext = fields(&[("a", "1"), ("b", "2"), ("a", "3")]);
        ext.set("a", "4");
        assert_eq!(ext.iter().collect::<Vec<_>>(), [("b", "2"), ("a", "4")]);
        assert!(ext.remove("b"));
        assert!(!ext.remove("b"));
        assert_eq!(ext.len(), 1);
    }

    #[test]
    fn a_clone_is_independent() {
        let mut ext = fields(&[("a", "1")]);
        let copy = ext.clone();
        ext.set("a", "2");
        assert_eq!(copy.get("a"), Some("1"));
        assert_ne!(copy, ext);
    }
}
