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
        $( let mut $field: Option<&[u8]> = None; )*
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
        $( $crate::header::FieldValue::write(&$header.$field, const { $crate::header::macros::key_text($key) }, $sink); )*
    }};
}

pub(super) use {header, header_fields, header_impl};

/// Wire names are declared as bytes, for matching; this is the text of one.
pub(super) const fn key_text(key: &'static [u8]) -> &'static str {
    match std::str::from_utf8(key) {
        Ok(text) => text,
        Err(_) => panic!("wire names are ASCII"),
    }
}
