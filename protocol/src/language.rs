//! The implementation language a peer names in each command (wire spec 2.4).

use std::fmt;

/// Implementation language of the sender of a command (wire spec 2.4).
///
/// What a peer sends is never an error: a code or name outside the table is [`Language::Unknown`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// `JAVA`, code 0: also what a missing JSON member means, and [what we send](Language::SENT).
    #[default]
    Java,
    /// `CPP`, code 1: gets the array form of the reset-offset body (wire spec 6.9).
    Cpp,
    /// `DOTNET`, code 2.
    Dotnet,
    /// `PYTHON`, code 3.
    Python,
    /// `DELPHI`, code 4.
    Delphi,
    /// `ERLANG`, code 5.
    Erlang,
    /// `RUBY`, code 6.
    Ruby,
    /// `OTHER`, code 7.
    Other,
    /// `HTTP`, code 8.
    Http,
    /// `GO`, code 9.
    Go,
    /// `PHP`, code 10.
    Php,
    /// `OMS`, code 11.
    Oms,
    /// `RUST`, code 12 (since 4.9.4).
    Rust,
    /// `NODE_JS`, code 13 (5.x).
    NodeJs,
    /// A code outside the table, or 255 for a name outside it. Java reads both as "no language".
    Unknown(u8),
}

/// Indexed by code.
const TABLE: [(Language, &str); 14] = [
    (Language::Java, "JAVA"),
    (Language::Cpp, "CPP"),
    (Language::Dotnet, "DOTNET"),
    (Language::Python, "PYTHON"),
    (Language::Delphi, "DELPHI"),
    (Language::Erlang, "ERLANG"),
    (Language::Ruby, "RUBY"),
    (Language::Other, "OTHER"),
    (Language::Http, "HTTP"),
    (Language::Go, "GO"),
    (Language::Php, "PHP"),
    (Language::Oms, "OMS"),
    (Language::Rust, "RUST"),
    (Language::NodeJs, "NODE_JS"),
];

impl Language {
    /// What our own commands say: `JAVA`, the only value every release knows.
    ///
    /// `RUST` exists since 4.9.4; older peers read it as "no language" and leave it out of their connection lists.
    /// Nothing depends on the difference, so the safe value wins (wire spec 2.4).
    pub const SENT: Language = Language::Java;

    /// What stands for a name outside the table.
    pub const UNKNOWN_NAME: Language = Language::Unknown(u8::MAX);

    /// From the byte of a binary header or the ordinal of a JSON header.
    pub fn from_code(code: u8) -> Self {
        match TABLE.get(usize::from(code)) {
            Some((language, _)) => *language,
            None => Language::Unknown(code),
        }
    }

    /// From a name in any letter case.
    pub fn from_name(name: &[u8]) -> Self {
        TABLE
            .iter()
            .find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name))
            .map_or(Language::UNKNOWN_NAME, |(language, _)| *language)
    }

    /// The byte of a binary header.
    pub fn code(self) -> u8 {
        match self {
            Language::Java => 0,
            Language::Cpp => 1,
            Language::Dotnet => 2,
            Language::Python => 3,
            Language::Delphi => 4,
            Language::Erlang => 5,
            Language::Ruby => 6,
            Language::Other => 7,
            Language::Http => 8,
            Language::Go => 9,
            Language::Php => 10,
            Language::Oms => 11,
            Language::Rust => 12,
            Language::NodeJs => 13,
            Language::Unknown(code) => code,
        }
    }

    /// The name used in JSON; `None` for [`Language::Unknown`].
    pub fn name(self) -> Option<&'static str> {
        TABLE.get(usize::from(self.code())).map(|(_, name)| *name)
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "UNKNOWN({})", self.code()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_keeps_its_value_and_every_name_its_language() {
        for code in 0..=u8::MAX {
            assert_eq!(Language::from_code(code).code(), code);
        }
        for (index, (language, name)) in TABLE.iter().enumerate() {
            assert_eq!(usize::from(language.code()), index);
            assert_eq!(language.name(), Some(*name));
            assert_eq!(
                Language::from_name(name.to_ascii_lowercase().as_bytes()),
                *language
            );
        }
    }

    #[test]
    fn foreign_codes_and_names_are_unknown() {
        assert_eq!(Language::from_code(99), Language::Unknown(99));
        assert_eq!(Language::from_name(b"KLINGON"), Language::UNKNOWN_NAME);
        assert_eq!(Language::UNKNOWN_NAME.name(), None);
    }
}
