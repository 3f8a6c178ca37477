//! Where the properties of one message stand in its text: found at a guest's first question, so that each further one
//! compares names instead of searching the text again.

use minimq_protocol::properties::{NAME_SEPARATOR, PAIR_SEPARATOR};

/// Room for so many properties is kept from one message to the next.
const KEPT: usize = 256;

/// One property of the text, which is shorter than 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    name: (u32, u32),
    value: (u32, u32),
}

fn part(text: &[u8], (begin, end): (u32, u32)) -> Option<&[u8]> {
    text.get(begin as usize..end as usize)
}

/// The properties of the text that was last read.
#[derive(Debug, Default)]
pub(crate) struct PropertyIndex {
    pairs: Vec<Pair>,
    read: bool,
}

impl PropertyIndex {
    /// Another message begins.
    pub(crate) fn forget(&mut self) {
        self.read = false;
        if self.pairs.capacity() > KEPT {
            self.pairs = Vec::new();
        }
    }

    fn pairs(&mut self, text: &[u8]) -> &[Pair] {
        if !self.read {
            self.read = true;
            read(text, &mut self.pairs);
        }
        &self.pairs
    }

    /// How many there are, doubled names included.
    pub(crate) fn count(&mut self, text: &[u8]) -> usize {
        self.pairs(text).len()
    }

    /// The name of the property at this place.
    pub(crate) fn name<'t>(&mut self, text: &'t [u8], index: usize) -> Option<&'t [u8]> {
        part(text, self.pairs(text).get(index)?.name)
    }

    /// The value of a name; of two equal names the later counts.
    pub(crate) fn value<'t>(&mut self, text: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
        let found = self
            .pairs(text)
            .iter()
            .rev()
            .find(|pair| part(text, pair.name) == Some(name));
        part(text, found?.value)
    }
}

/// The rules of [`minimq_protocol::properties::Properties`], in one pass.
fn read(text: &[u8], pairs: &mut Vec<Pair>) {
    pairs.clear();
    let mut begin = 0;
    let mut name_end = None;
    let mut end_piece = |begin: u32, name_end: Option<u32>, end: u32| {
        if let Some(name_end) = name_end
            && begin < name_end
            && name_end + 1 < end
        {
            pairs.push(Pair {
                name: (begin, name_end),
                value: (name_end + 1, end),
            });
        }
    };
    separators(text, |at, byte| {
        let at = at as u32;
        if byte == PAIR_SEPARATOR {
            end_piece(begin, name_end.take(), at);
            begin = at + 1;
        } else if name_end.is_none() {
            name_end = Some(at);
        }
    });
    end_piece(begin, name_end, text.len() as u32);
}

/// Tells the place of each separator. They are so near to each other that a search begun anew for each takes longer than
/// looking at all bytes, up to 64 at a time.
fn separators(text: &[u8], mut tell: impl FnMut(usize, u8)) {
    let mut tell = |at: usize| {
        if let Some(byte @ (NAME_SEPARATOR | PAIR_SEPARATOR)) = text.get(at).copied() {
            tell(at, byte);
        }
    };
    let (words, rest) = text.as_chunks::<8>();
    let mut begin = 0;
    for block in words.chunks(8) {
        let mut found = block
            .iter()
            .rev()
            .fold(0, |bits, word| bits << 8 | low_bytes(*word));
        while found != 0 {
            tell(begin + found.trailing_zeros() as usize);
            found &= found - 1;
        }
        begin += 8 * block.len();
    }
    for at in begin..begin + rest.len() {
        tell(at);
    }
}

/// A bit for each of eight bytes: whether it is at most 2, as both separators are.
fn low_bytes(word: [u8; 8]) -> u64 {
    const EACH: u64 = u64::MAX / 255;
    const HIGH: u64 = EACH << 7;
    let word = u64::from_le_bytes(word);
    // The high bit of each byte that is 3 or more, by a sum that carries into it but not beyond.
    let more = ((word & !HIGH) + EACH * (128 - 3)) | word;
    // The high bits side by side.
    ((!more & HIGH) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg(test)]
mod tests {
    use super::*;
    use minimq_protocol::properties::Properties;

    fn is_as_the_protocol_reads_it(text: &[u8]) {
        let mut index = PropertyIndex::default();
        let properties = Properties::from_bytes(text);
        let names: Vec<&[u8]> = properties.iter_bytes().map(|(name, _)| name).collect();
        assert_eq!(index.count(text), names.len(), "{text:?}");
        for (at, name) in names.iter().enumerate() {
            assert_eq!(index.name(text, at), Some(*name), "{text:?}");
            let last = properties.iter_bytes().filter(|(other, _)| other == name);
            assert_eq!(
                index.value(text, name),
                last.last().map(|(_, value)| value),
                "{text:?}"
            );
        }
        assert_eq!(index.name(text, names.len()), None);
        assert_eq!(index.value(text, b"nobody has this name"), None);
        assert_eq!(index.value(text, b""), None);
    }

    #[test]
    fn texts_of_all_forms_are_read_as_the_protocol_reads_them() {
        for text in [
            &b""[..],
            b"a\x01b",
            b"a\x01b\x02",
            b"\x02\x02a\x01b\x02\x02c\x01d\x02",
            b"a\x01\x02\x01b\x02c\x02d\x01e\x01f",
            b"same\x01first\x02same\x01second",
            b"KEYS\x01order-1000017\x02UNIQ_KEY\x017F0000013B2A5FFD2B279541C3240016\x02WAIT\x01true",
        ] {
            is_as_the_protocol_reads_it(text);
        }
    }

    #[test]
    fn random_texts_are_read_as_the_protocol_reads_them() {
        let mut state = 7_u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..5000 {
            let length = random() % 200;
            // Some with separators here and there, some made of little else.
            let rare = random() % 3 * 20;
            let text: Vec<u8> = (0..length)
                .map(|_| {
                    b"\x00\x01\x01\x01\x02\x02\x03ab\x7f\x80\xff"[(random() % (12 + rare)).min(11)]
                })
                .collect();
            is_as_the_protocol_reads_it(&text);
        }
    }

    #[test]
    fn each_message_is_read_anew() {
        let mut index = PropertyIndex::default();
        assert_eq!(index.value(b"a\x01one", b"a"), Some(&b"one"[..]));
        index.forget();
        assert_eq!(index.value(b"b\x01two", b"a"), None);
        assert_eq!(index.value(b"b\x01two", b"b"), Some(&b"two"[..]));
    }
}
