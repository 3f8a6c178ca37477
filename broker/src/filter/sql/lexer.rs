//! Text to tokens, longest match first as the original's generated scanner does. Lazy: what stands
//! behind the token just asked for has not been looked at.

use super::SelectorError;
use super::number;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Name(String),
    Text(String),
    Int(i32),
    Long(i64),
    Double(f64),
    Keyword(Keyword),
    Symbol(&'static str),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    Not,
    And,
    Or,
    Between,
    In,
    True,
    False,
    Null,
    Is,
}

const KEYWORDS: [(&str, Keyword); 9] = [
    ("NOT", Keyword::Not),
    ("AND", Keyword::And),
    ("OR", Keyword::Or),
    ("BETWEEN", Keyword::Between),
    ("IN", Keyword::In),
    ("TRUE", Keyword::True),
    ("FALSE", Keyword::False),
    ("NULL", Keyword::Null),
    ("IS", Keyword::Is),
];

const SYMBOLS: [&str; 11] = ["<>", ">=", "<=", "=", ">", "<", "(", ")", ",", "+", "-"];

pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    /// The next token and the byte offset where it begins.
    pub(super) fn next(&mut self) -> Result<(Token, usize), SelectorError> {
        self.skip_blanks_and_comments()?;
        let (rest, at) = (self.rest(), self.at);
        let Some(first) = rest.chars().next() else {
            return Ok((Token::End, at));
        };
        let (token, length) = if first == '\'' {
            string(rest).ok_or(SelectorError::Unterminated { what: "string", at })?
        } else if first.is_ascii_digit() || first == '.' {
            number_token(rest, at)?
        } else if is_name_start(first) {
            word(rest)
        } else if let Some(symbol) = SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
            (Token::Symbol(symbol), symbol.len())
        } else {
            return Err(SelectorError::Character {
                character: first,
                at,
            });
        };
        self.at += length;
        Ok((token, at))
    }

    fn skip_blanks_and_comments(&mut self) -> Result<(), SelectorError> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
            self.at += rest.len() - trimmed.len();
            let skip = if trimmed.starts_with("--") {
                // Without a line end this is no comment but two minus signs.
                trimmed.find(['\n', '\r']).map(|end| end + 1)
            } else if let Some(inside) = trimmed.strip_prefix("/*") {
                let end = inside.find("*/").ok_or(SelectorError::Unterminated {
                    what: "comment",
                    at: self.at,
                })?;
                Some(end + 4)
            } else {
                None
            };
            match skip {
                Some(length) => self.at += length,
                None => return Ok(()),
            }
        }
    }
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || c == '$'
}

fn word(rest: &str) -> (Token, usize) {
    let length = rest
        .find(|c: char| !is_name_start(c) && !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let name = &rest[..length];
    let keyword = KEYWORDS
        .iter()
        .find(|(text, _)| text.eq_ignore_ascii_case(name));
    (
        keyword.map_or_else(|| Token::Name(name.to_owned()), |(_, k)| Token::Keyword(*k)),
        length,
    )
}

/// `'…'` with doubled quotes inside.
fn string(rest: &str) -> Option<(Token, usize)> {
    let mut value = String::new();
    let mut at = 1;
    loop {
        let piece = rest.get(at..)?;
        let end = piece.find('\'')?;
        value.push_str(&piece[..end]);
        at += end + 1;
        if !piece[end + 1..].starts_with('\'') {
            return Some((Token::Text(value), at));
        }
        value.push('\'');
        at += 1;
    }
}

/// The longer of an integer and a float that begin here.
fn number_token(rest: &str, at: usize) -> Result<(Token, usize), SelectorError> {
    let digits = |from: usize| from + rest[from..].bytes().take_while(u8::is_ascii_digit).count();
    let byte = |i: usize| rest.as_bytes().get(i).copied();
    let out_of_range = |length: usize| SelectorError::Number {
        text: rest[..length].to_owned(),
        at,
    };

    let whole = digits(0);
    let point = byte(whole) == Some(b'.');
    let mantissa = if point { digits(whole + 1) } else { whole };
    if point && mantissa == 1 {
        return Err(SelectorError::Character { character: '.', at });
    }
    let mut end = mantissa;
    if matches!(byte(mantissa), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(byte(mantissa + 1), Some(b'+' | b'-')));
        let exponent = mantissa + 1 + sign;
        end = if exponent <= rest.len() && digits(exponent) > exponent {
            digits(exponent)
        } else {
            mantissa
        };
    }
    if point || end > mantissa {
        let value = number::double(&rest[..end]).filter(|v| v.is_finite() && *v > 0.0);
        return value
            .map(|v| (Token::Double(v), end))
            .ok_or_else(|| out_of_range(end));
    }

    // An integer with a leading zero is the zero alone; what follows it is the next token.
    let length = if byte(0) == Some(b'0') { 1 } else { whole };
    let value = number::long(&rest[..length]).ok_or_else(|| out_of_range(length))?;
    let suffix = usize::from(matches!(byte(length), Some(b'l' | b'L')));
    let token = i32::try_from(value).map_or(Token::Long(value), Token::Int);
    Ok((token, length + suffix))
}
