//! How a header is declared.

/// Declares headers: `field: Type = b"wireName"`, with `or default` for a primitive field that may be missing.
macro_rules! header {
    ($(
        $(#[$attribute:meta])*
        pub struct $name:ident $(<$lifetime:lifetime>)? {
            $( $(#[$doc:meta])* $field:ident: $type:ty = $key:literal $(or $default:expr)? ),* $(,)?
        }
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name $(<$lifetime>)? {
            $( $(#[$doc])* pub $field: $type, )*
        }

        $crate::header::macros::header_impl! {
            [$($lifetime)?] $name,
            decode: |ext| $crate::header::header_fields!(@decode ext, $name, $($field: $type = $key $(or $default)?,)*),
            write: |header, sink| $crate::header::header_fields!(@write header, sink, $($field = $key,)*)
        }
    )*};
}

/// The `Header` implementation of a struct with or without borrowed text.
macro_rules! header_impl {
    ([] $name:ident, decode: |$ext:ident| $decode:expr, write: |$header:ident, $sink:ident| $write:expr) => {
        impl<'a> $crate::header::Header<'a> for $name {
            fn decode($ext: &'a $crate::ExtFields) -> Result<Self, $crate::HeaderError> {
                Ok($decode)
            }

            fn write(&self, $sink: &mut impl $crate::FieldSink) {
                let $header = self;
                $write
            }
        }
    };
    ([$lifetime:lifetime] $name:ident, decode: |$ext:ident| $decode:expr, write: |$header:ident, $sink:ident| $write:expr) => {
        impl<$lifetime> $crate::header::Header<$lifetime> for $name<$lifetime> {
            fn decode($ext: &$lifetime $crate::ExtFields) -> Result<Self, $crate::HeaderError> {
                Ok($decode)
            }

            fn write(&self, $sink: &mut impl $crate::FieldSink) {
                let $header = self;
                $write
            }
        }
    };
}

/// The two halves of a header: an expression that reads its fields (with `?`), and one that writes them. Values are
/// collected first and read last, so that only the last of a doubled key has to be well formed.
macro_rules! header_fields {
    (@decode $ext:ident, $name:ident, $($field:ident: $type:ty = $key:literal $(or $default:expr)?,)*) => {{
        $( let mut $field = None; )*
        for (key, value) in $ext.raw() {
            match key {
                $( $key => $field = value, )*
                _ => {}
            }
        }
        $name {
            $(
                $field: match $field {
                    Some(raw) => <$type as $crate::header::FieldValue<'_>>::read(const { $crate::header::macros::key_text($key) }, raw)?,
                    None => $crate::header::header_fields!(@absent $key, $type, $($default)?),
                },
            )*
        }
    }};
    (@absent $key:literal, $type:ty, $default:expr) => { $default };
    (@absent $key:literal, $type:ty,) => {
        <$type as $crate::header::FieldValue<'_>>::absent(const { $crate::header::macros::key_text($key) })?
    };
    (@write $header:expr, $sink:ident, $($field:ident = $key:literal,)*) => {{
        $( $crate::header::FieldValue::write(&$header.$field, $crate::header::macros::field_name!($key), $sink); )*
    }};
}

/// The [`FieldName`](crate::header::FieldName) of a wire name.
macro_rules! field_name {
    ($key:literal) => {{
        use $crate::header::macros::{joined, key_text};
        const JSON: &[u8] = &joined::<{ $key.len() + 6 }>(&[b"\",\"", $key, b"\":\""]);
        const BINARY: &[u8] = &joined::<{ $key.len() + 2 }>(&[&[0, $key.len() as u8], $key]);
        const NAME: &$crate::header::FieldName =
            &$crate::header::FieldName::new(key_text($key), JSON, BINARY);
        NAME
    }};
}

pub(super) use {field_name, header, header_fields, header_impl};

/// The parts one behind the other, `N` bytes together. Wire names are short, and ASCII without quotes.
pub(super) const fn joined<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let (mut all, mut filled, mut part) = ([0; N], 0, 0);
    while part < parts.len() {
        let mut at = 0;
        while at < parts[part].len() {
            all[filled] = parts[part][at];
            filled += 1;
            at += 1;
        }
        part += 1;
    }
    all
}

/// Wire names are declared as bytes, for matching; this is the text of one.
pub(super) const fn key_text(key: &'static [u8]) -> &'static str {
    assert!(key.len() < 256 && key.is_ascii(), "wire names are short");
    match std::str::from_utf8(key) {
        Ok(text) => text,
        Err(_) => panic!("wire names are ASCII"),
    }
}
