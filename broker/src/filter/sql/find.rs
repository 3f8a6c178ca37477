//! The properties that a selector names, found in a message's properties text: most of what a selector costs. Each is
//! searched for when it is asked for, over the whole text at once, without looking at the others.

use std::cell::OnceCell;

use memchr::memchr;
use memchr::memmem::Finder;
use minimq_protocol::properties::{NAME_SEPARATOR, PAIR_SEPARATOR};

/// Properties up to which what was found is kept while one message is looked at.
const KEPT: usize = 8;

/// One property, ready to be searched for.
#[derive(Debug, Clone)]
struct Wanted {
    name: Box<str>,
    /// Of the name between its separators.
    finder: Finder<'static>,
}

/// The properties a selector names, each once.
#[derive(Debug, Clone, Default)]
pub(super) struct Names(Vec<Wanted>);

impl Names {
    pub(super) fn new(names: Vec<Box<str>>) -> Self {
        let wanted = names.into_iter().map(|name| {
            let mut needle = vec![PAIR_SEPARATOR];
            needle.extend_from_slice(name.as_bytes());
            needle.push(NAME_SEPARATOR);
            let finder = Finder::new(&needle).into_owned();
            Wanted { name, finder }
        });
        Self(wanted.collect())
    }

    /// What is found in one text.
    pub(super) fn of<'t>(&self, text: &'t [u8]) -> Found<'_, 't> {
        Found {
            names: &self.0,
            text,
            kept: [const { OnceCell::new() }; KEPT],
        }
    }
}

/// Values in one properties text.
pub(super) struct Found<'n, 't> {
    names: &'n [Wanted],
    text: &'t [u8],
    kept: [OnceCell<Option<&'t str>>; KEPT],
}

impl<'t> Found<'_, 't> {
    /// The value of a property, by the rules of [`minimq_protocol::properties::Properties`].
    pub(super) fn get(&self, name: &str) -> Option<&'t str> {
        let at = self.names.iter().position(|wanted| *wanted.name == *name)?;
        let search = || {
            let value = self.names.get(at)?.last_value(self.text)?;
            std::str::from_utf8(value).ok()
        };
        match self.kept.get(at) {
            Some(kept) => *kept.get_or_init(search),
            None => search(),
        }
    }
}

impl Wanted {
    /// The value of the last pair with this name; a pair without a value is none.
    fn last_value<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        let first = text
            .strip_prefix(self.name.as_bytes())
            .and_then(|rest| rest.strip_prefix(&[NAME_SEPARATOR]));
        let mut last = first.and_then(value_at_start);
        let mut rest = text;
        while let Some(at) = self.finder.find(rest) {
            rest = rest
                .get(at + self.finder.needle().len()..)
                .unwrap_or_default();
            last = value_at_start(rest).or(last);
        }
        last
    }
}

fn value_at_start(text: &[u8]) -> Option<&[u8]> {
    let value = match memchr(PAIR_SEPARATOR, text) {
        Some(end) => text.get(..end)?,
        None => text,
    };
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use minimq_protocol::properties::Properties;
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => Just(1u8), 4 => Just(2u8), 1 => Just(0u8), 1 => Just(3u8),
            6 => Just(b'a'), 6 => Just(b'b'), 1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..100)
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_its_reader_reads_it(bytes in text()) {
            let all = ["a", "b", "ab", "aaa", "c", "d", "e", "f", "bb", "ba"];
            let names = Names::new(all.map(Into::into).to_vec());
            let found = names.of(&bytes);
            let properties = Properties::from_bytes(&bytes);
            for name in all.iter().chain(&all) {
                prop_assert_eq!(found.get(name), properties.get(name));
            }
            prop_assert_eq!(found.get("not asked for"), None);
        }
    }
}
