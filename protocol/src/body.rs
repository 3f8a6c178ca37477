//! The JSON bodies of requests and answers, and of the configuration files that hold the same data (wire spec 6,
//! broker spec 16). Properties texts, messages and frames are elsewhere.
//!
//! Each body is declared once by `body!`: field, JSON name (and other spellings that are read), default. A body offers
//! `from_json`, `to_json`, `to_json_pretty` (configuration files) and `to_wire`, which takes the flavour every official
//! client understands. A missing member takes its default; so does null, except in an `Option`.

mod acl;
mod connection;
mod consume_queue;
mod consumption;
mod filter_data;
mod filter_stats;
mod heartbeat;
mod lists;
mod offsets;
mod own;
mod queue;
mod registration;
mod reset_offset;
mod route;
mod running_info;
mod subscription_group;
mod topic;

pub use crate::json::{BodyError, Flavour};
pub use acl::*;
pub use connection::*;
pub use consume_queue::*;
pub use consumption::*;
pub use filter_data::*;
pub use filter_stats::*;
pub use heartbeat::*;
pub use lists::*;
pub use offsets::*;
pub use own::*;
pub use queue::*;
pub use registration::*;
pub use reset_offset::*;
pub use route::*;
pub use running_info::*;
pub use subscription_group::*;
pub use topic::*;

/// Declares a body: a struct with public fields, `Default`, reading and writing.
///
/// `struct Name: FLAVOUR, large { field: Type = "jsonName" | "otherSpelling", default expression; … }`, fields in the
/// order of their JSON names, which is the order Java writes (checked when compiling). `FLAVOUR` is what `to_wire`
/// writes; `large` stands at bodies that hold tables of a whole broker.
macro_rules! body {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident: $flavour:ident $(, $size:ident)? {
            $(
                $(#[$field_attribute:meta])*
                $field:ident: $type:ty = $json:literal $(| $alias:literal)* $(, default $default:expr)?;
            )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( $(#[$field_attribute])* pub $field: $type, )*
        }

        const _: () = assert!($crate::body::in_order(&[$($json),*]), "fields must stand in the order of their JSON names");

        impl Default for $name {
            fn default() -> Self {
                $name { $( $field: $crate::body::default_value!($($default)?), )* }
            }
        }

        impl $crate::json::FromValue for $name {
            fn from_value(value: &$crate::json::Value<'_>) -> Result<Option<Self>, $crate::json::BodyError> {
                if value.is_absent() {
                    return Ok(None);
                }
                let members = value.members()?;
                Ok(Some($name {
                    $( $field: members.field(&[$json $(, $alias)*], || $crate::body::default_value!($($default)?))?, )*
                }))
            }
        }

        impl $crate::json::ToJson for $name {
            fn write(&self, writer: &mut $crate::json::Writer) {
                let mut object = writer.object();
                $( object.field($json, &self.$field); )*
                object.end();
            }
        }

        $crate::body::body_methods!($name, $flavour $(, $size)?);
    };
}

/// The inherent methods every body has.
macro_rules! body_methods {
    ($name:ident, $flavour:ident $(, $size:ident)?) => {
        impl $name {
            /// The flavour every official client reads this body in.
            pub const WIRE: $crate::json::Flavour = $crate::json::Flavour::$flavour;

            /// How large the body may be.
            pub const LIMITS: $crate::json::Limits = $crate::body::limits!($($size)?);

            /// Reads the body, tolerantly (wire spec 6.1), within [`Self::LIMITS`].
            pub fn from_json(bytes: &[u8]) -> Result<Self, $crate::json::BodyError> {
                $crate::json::decode_with(bytes, Self::LIMITS)
            }

            /// Writes the body compactly.
            pub fn to_json(&self, flavour: $crate::json::Flavour) -> Vec<u8> {
                $crate::json::encode(self, flavour)
            }

            /// Writes the body compactly in the flavour [`Self::WIRE`].
            pub fn to_wire(&self) -> Vec<u8> {
                self.to_json(Self::WIRE)
            }

            /// Writes the body indented, as Java's configuration files are.
            pub fn to_json_pretty(&self, flavour: $crate::json::Flavour) -> Vec<u8> {
                $crate::json::encode_pretty(self, flavour)
            }
        }
    };
}

macro_rules! limits {
    () => {
        $crate::json::Limits::SMALL
    };
    (large) => {
        $crate::json::Limits::LARGE
    };
}

macro_rules! default_value {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}

/// Declares an enum that travels as its Java name, and is read from the name in any case or from the ordinal. In a body
/// it stands as `Option`: unknown names and ordinals read as `None`, or as the field's default.
macro_rules! wire_enum {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $( $(#[$variant_attribute:meta])* $variant:ident = $text:literal, )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $( $(#[$variant_attribute])* $variant, )*
        }

        impl $name {
            /// All values in the order of their ordinals.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $( $name::$variant => $text, )* }
            }

            /// The value with this name, in any case.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str().eq_ignore_ascii_case(name))
            }

            /// The value with this ordinal, as C++ clients send it.
            pub fn from_ordinal(ordinal: i64) -> Option<Self> {
                Self::ALL.get(usize::try_from(ordinal).ok()?).copied()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::json::FromValue for $name {
            fn from_value(value: &$crate::json::Value<'_>) -> Result<Option<Self>, $crate::json::BodyError> {
                use $crate::json::Value;
                match value {
                    Value::Null | Value::Reference(_) => Ok(None),
                    Value::Integer(ordinal) => Ok(Self::from_ordinal(*ordinal)),
                    Value::Text(text) => match text.parse() {
                        Ok(ordinal) => Ok(Self::from_ordinal(ordinal)),
                        Err(_) => Ok(Self::from_name(text)),
                    },
                    _ => Err(value.mismatch("a name")),
                }
            }
        }

        impl $crate::json::ToJson for $name {
            fn write(&self, writer: &mut $crate::json::Writer) {
                writer.text(self.as_str());
            }
        }
    };
}

pub(crate) use {body, body_methods, default_value, limits, wire_enum};

/// True if the names are in ascending order.
const fn in_order(names: &[&str]) -> bool {
    let mut index = 1;
    while index < names.len() {
        let (left, right) = (names[index - 1].as_bytes(), names[index].as_bytes());
        let mut at = 0;
        while at < left.len() && at < right.len() && left[at] == right[at] {
            at += 1;
        }
        let less = if at < left.len() && at < right.len() {
            left[at] < right[at]
        } else {
            left.len() < right.len()
        };
        if !less {
            return false;
        }
        index += 1;
    }
    true
}
