//! What an account may do with a topic or group, and when that is enough (wire spec 8.3).

use std::fmt;

/// A permission byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permission(u8);

impl Permission {
    /// Nothing, whatever else is set.
    pub const DENY: Self = Self(1);
    /// As a need: to publish or to subscribe.
    pub const ANY: Self = Self(2);
    /// To publish.
    pub const PUB: Self = Self(4);
    /// To subscribe.
    pub const SUB: Self = Self(8);
    /// To publish and to subscribe.
    pub const PUB_SUB: Self = Self(12);

    /// The permission with this byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// Its byte.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// The permission of a text, if it is one of the five: `DENY`, `PUB`, `SUB`, `PUB|SUB`,
    /// `SUB|PUB`, spelt exactly so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "DENY" => Some(Self::DENY),
            "PUB" => Some(Self::PUB),
            "SUB" => Some(Self::SUB),
            "PUB|SUB" | "SUB|PUB" => Some(Self::PUB_SUB),
            _ => None,
        }
    }

    /// Whether who owns `self` has `needed`.
    #[must_use]
    pub const fn allows(self, needed: Self) -> bool {
        if self.0 & Self::DENY.0 != 0 {
            return false;
        }
        if needed.0 & Self::ANY.0 != 0 {
            return self.0 & Self::PUB_SUB.0 != 0;
        }
        self.0 & needed.0 != 0
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PUB => out.write_str("PUB"),
            Self::SUB => out.write_str("SUB"),
            Self::PUB_SUB => out.write_str("PUB|SUB"),
            Self::ANY => out.write_str("ANY"),
            _ => out.write_str("DENY"),
        }
    }
}
