//! White lists of client addresses, in all forms of `plain_acl.yml` (broker spec 14.2).
//!
//! One difference to 4.9.8 on purpose: `::` stands for as many zero groups as the address lacks
//! also before a range or `*`; there it counts as one group, so that `2001:db8::1-5` does not match
//! `2001:db8::3`.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

/// A text that is no form of address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address: expected an IPv4 or IPv6 address, several by comma, a last part in braces as in 10.0.0.{{1,2}}, or a part that is * or a range as in 10.0.0.1-20"
)]
pub struct AddressError(pub String);

/// The addresses that some entries together match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressList {
    all: bool,
    exact: HashSet<IpAddr>,
    v4: Vec<Pattern<u8>>,
    v6: Vec<Pattern<u16>>,
}

/// Addresses whose leading parts are fixed and whose next part is in a range; the rest is free.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern<T> {
    fixed: Vec<T>,
    low: T,
    high: T,
}

impl<T: Copy + PartialOrd> Pattern<T> {
    fn matches(&self, parts: &[T]) -> bool {
        match parts.split_at_checked(self.fixed.len()) {
            Some((fixed, [decides, ..])) => {
                self.fixed == fixed && self.low <= *decides && *decides <= self.high
            }
            _ => false,
        }
    }
}

impl AddressList {
    /// The list of one entry; an empty one matches nothing.
    ///
    /// # Errors
    /// [`AddressError`] with the entry.
    pub fn parse(entry: &str) -> Result<Self, AddressError> {
        let mut list = Self::default();
        list.add(entry)?;
        Ok(list)
    }

    /// Adds an entry; the list is unchanged when it is refused.
    ///
    /// # Errors
    /// [`AddressError`] with the entry.
    pub fn add(&mut self, entry: &str) -> Result<(), AddressError> {
        let mut added = Self::default();
        added
            .add_forms(entry.trim())
            .ok_or_else(|| AddressError(entry.to_owned()))?;
        self.all |= added.all;
        self.exact.extend(added.exact);
        self.v4.extend(added.v4);
        self.v6.extend(added.v6);
        Ok(())
    }

    /// Whether an entry matches; an IPv4 address in IPv6 clothes counts as IPv4.
    #[must_use]
    pub fn matches(&self, address: IpAddr) -> bool {
        if self.all {
            return true;
        }
        let address = address.to_canonical();
        if self.exact.contains(&address) {
            return true;
        }
        match address {
            IpAddr::V4(v4) => self.v4.iter().any(|pattern| pattern.matches(&v4.octets())),
            IpAddr::V6(v6) => self
                .v6
                .iter()
                .any(|pattern| pattern.matches(&v6.segments())),
        }
    }

    fn add_forms(&mut self, entry: &str) -> Option<()> {
        if let Some(inside) = entry.strip_suffix('}') {
            let (head, parts) = inside.split_once('{')?;
            if !head.ends_with(['.', ':']) {
                return None;
            }
            for part in items(parts) {
                self.exact.insert(exact(&format!("{head}{part}"))?);
            }
            return Some(());
        }
        for part in items(entry) {
            self.add_one(part)?;
        }
        Some(())
    }

    fn add_one(&mut self, entry: &str) -> Option<()> {
        if matches!(entry, "*" | "*.*.*.*" | "*:*:*:*:*:*:*:*") {
            self.all = true;
        } else if !entry.contains(['*', '-']) {
            self.exact.insert(exact(entry)?);
        } else if entry.contains(':') {
            self.v6.push(pattern_v6(entry)?);
        } else {
            self.v4.push(pattern_v4(entry)?);
        }
        Some(())
    }
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn exact(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>()
        .ok()
        .map(|address| address.to_canonical())
}

/// The first part that is `*` or a range decides; it is not the first of the address.
fn pattern_v4(entry: &str) -> Option<Pattern<u8>> {
    let parts: Vec<&str> = entry.split('.').collect();
    let decides = parts.iter().position(|part| part.contains(['*', '-']))?;
    if parts.len() != Ipv4Addr::UNSPECIFIED.octets().len() || decides == 0 {
        return None;
    }
    let octet = |text: &str| text.parse::<u8>().ok();
    let (fixed, rest) = parts.split_at_checked(decides)?;
    let ranges = rest
        .iter()
        .map(|part| range(part, octet, (0, u8::MAX)))
        .collect::<Option<Vec<_>>>()?;
    let (low, high) = *ranges.first()?;
    Some(Pattern {
        fixed: fixed
            .iter()
            .map(|part| octet(part))
            .collect::<Option<_>>()?,
        low,
        high,
    })
}

/// As IPv4, but only the last or last but one part may decide. An address that is too short goes
/// on freely.
fn pattern_v6(entry: &str) -> Option<Pattern<u16>> {
    const GROUPS: usize = 8;
    let parts: Vec<&str> = match entry.split_once("::") {
        None => entry.split(':').collect(),
        Some((_, tail)) if tail.contains("::") => return None,
        Some((head, tail)) => {
            let head: Vec<&str> = head.split(':').filter(|_| !head.is_empty()).collect();
            let tail: Vec<&str> = tail.split(':').collect();
            let zeros = GROUPS
                .checked_sub(head.len() + tail.len())
                .filter(|&zeros| zeros > 0)?;
            head.into_iter()
                .chain(std::iter::repeat_n("0", zeros))
                .chain(tail)
                .collect()
        }
    };
    let decides = parts.iter().position(|part| part.contains(['*', '-']))?;
    if parts.len() > GROUPS || decides == 0 || decides + 2 < parts.len() {
        return None;
    }
    let group = |text: &str| {
        u16::from_str_radix(text, 16)
            .ok()
            .filter(|_| !text.starts_with('+'))
    };
    let (fixed, rest) = parts.split_at_checked(decides)?;
    let ranges = rest
        .iter()
        .map(|part| range(part, group, (0, u16::MAX)))
        .collect::<Option<Vec<_>>>()?;
    let (low, high) = *ranges.first()?;
    Some(Pattern {
        fixed: fixed
            .iter()
            .map(|part| group(part))
            .collect::<Option<_>>()?,
        low,
        high,
    })
}

/// `*`, `m-n` with m ≤ n, or one number.
fn range<T: Copy + PartialOrd>(
    part: &str,
    number: impl Fn(&str) -> Option<T>,
    all: (T, T),
) -> Option<(T, T)> {
    if part == "*" {
        return Some(all);
    }
    let (low, high) = part.split_once('-').unwrap_or((part, part));
    let (low, high) = (number(low)?, number(high)?);
    (low <= high).then_some((low, high))
}
