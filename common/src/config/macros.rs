//! The declaration macros. Their grammar is shown in [`mod@crate::config`].

/// Declares a configuration struct: `field: type = default, "key", flags…;` per key, then
/// optionally `with { field: OtherSection, … }`.
///
/// Flags: `mutable`, `important`, `secret`, `ignored("reason")`, `alias("oldSpelling", …)`,
/// `range(low..=high)`, `derived(|c| expression)` (the default follows from other keys of `c`, a
/// `&Self`; it is computed again after each change until the key is set itself).
#[macro_export]
macro_rules! config {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident : $type:ty = $default:expr, $key:literal
                    $(, $flag:ident $( ( $($arg:tt)* ) )? )* ;
            )*
        }
        $(with {
            $( $(#[doc = $section_doc:literal])* $section:ident : $section_type:ty ),* $(,)?
        })?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $vis struct $name {
            $(
                $(#[doc = $doc])*
                #[doc = ""]
                #[doc = concat!("Key `", $key, "`.")]
                pub $field: $type,
            )*
            $($(
                $(#[doc = $section_doc])*
                pub $section: $section_type,
            )*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                    $($($section: <$section_type as Default>::default(),)*)?
                }
            }
        }

        #[allow(unreachable_pub, dead_code)]
        impl $name {
            /// The keys declared here, without those of nested sections.
            pub const KEYS: &'static [$crate::config::Key] = &[$({
                let key = $crate::config::Key::declare(
                    $key,
                    <$type as $crate::config::Value>::EXPECTED,
                    concat!($($doc, "\n"),*),
                );
                $(let key = $crate::__config_flag!(key, $flag $(($($arg)*))?);)*
                key
            }),*];
        }

        impl $crate::config::Section for $name {
            #[allow(unused_variables)]
            fn keys(visit: &mut dyn FnMut(&'static $crate::config::Key)) {
                Self::KEYS.iter().for_each(|key| visit(key));
                $($(<$section_type as $crate::config::Section>::keys(visit);)*)?
            }

            #[allow(unused_mut, unused_variables)]
            fn set(
                &mut self,
                name: &str,
                text: &str,
                reading: $crate::config::Reading,
            ) -> Result<bool, String> {
                let mut known = false;
                $(if name == $key {
                    let value = <$type as $crate::config::Value>::parse(text, reading)?;
                    $($crate::__config_range!(value, $flag $(($($arg)*))?);)*
                    self.$field = value;
                    known = true;
                })*
                $($(known |= $crate::config::Section::set(&mut self.$section, name, text, reading)?;)*)?
                Ok(known)
            }

            #[allow(unused_variables, unused_mut, unused_assignments)]
            fn show(&self, visit: &mut dyn FnMut(&'static $crate::config::Key, Option<String>)) {
                let mut keys = Self::KEYS.iter();
                $(if let Some(key) = keys.next() {
                    visit(key, $crate::config::Value::show(&self.$field));
                })*
                $($($crate::config::Section::show(&self.$section, visit);)*)?
            }

            #[allow(unused_variables)]
            fn derive(&mut self, given: &dyn Fn(&str) -> bool) {
                $($($crate::__config_derive!(self, $field, $type, $key, given, $flag $(($($arg)*))?);)*)*
                $($($crate::config::Section::derive(&mut self.$section, given);)*)?
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __config_flag {
    ($key:ident, mutable) => {{
        let mut key = $key;
        key.mutable = true;
        key
    }};
    ($key:ident, important) => {{
        let mut key = $key;
        key.important = true;
        key
    }};
    ($key:ident, secret) => {{
        let mut key = $key;
        key.secret = true;
        key
    }};
    ($key:ident, ignored($reason:literal)) => {{
        let mut key = $key;
        key.ignored = Some($reason);
        key
    }};
    ($key:ident, alias($($alias:literal),+)) => {{
        let mut key = $key;
        key.aliases = &[$($alias),+];
        key
    }};
    ($key:ident, range($($arg:tt)*)) => {
        $key
    };
    ($key:ident, derived($($arg:tt)*)) => {
        $key
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __config_range {
    ($value:ident, range($range:expr)) => {
        $crate::config::check_range(&$value, &($range))?
    };
    ($value:ident, $flag:ident $(($($arg:tt)*))?) => {};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __config_derive {
    ($self:ident, $field:ident, $type:ty, $key:literal, $given:ident, derived($function:expr)) => {
        if !$given($key) {
            let function: fn(&Self) -> $type = $function;
            let value = function($self);
            $self.$field = value;
        }
    };
    ($self:ident, $field:ident, $type:ty, $key:literal, $given:ident, $flag:ident $(($($arg:tt)*))?) => {};
}

/// Declares an enum that is the value of a key, each variant with its text:
/// `pub enum BrokerRole { AsyncMaster = "ASYNC_MASTER", … }`. Read in any case, written as
/// declared.
#[macro_export]
macro_rules! config_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $text:literal ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $( $(#[$variant_meta])* $variant, )+
        }

        #[allow(unreachable_pub, dead_code)]
        impl $name {
            /// The text in files and listings.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )+
                }
            }
        }

        impl $crate::config::Value for $name {
            const EXPECTED: &'static str = concat!("one of", $(" ", $text),+);

            fn parse(text: &str, _reading: $crate::config::Reading) -> Result<Self, String> {
                let text = text.trim();
                $(if text.eq_ignore_ascii_case($text) {
                    return Ok(Self::$variant);
                })+
                Err(<Self as $crate::config::Value>::EXPECTED.to_owned())
            }

            fn show(&self) -> Option<String> {
                Some(self.text().to_owned())
            }
        }
    };
}
