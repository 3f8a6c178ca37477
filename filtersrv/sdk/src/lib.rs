//! Write a message filter in Rust.
//!
//! ```
//! use minimq_filter_sdk::{Message, filter};
//!
//! #[filter]
//! fn keep(message: &Message) -> bool {
//!     message.property_i64("SequenceId").is_ok_and(|n| n > 10 && n % 3 == 0)
//! }
//!
//! // The same function in an ordinary test:
//! assert!(keep(&Message::new("TopicA").with_property("SequenceId", "12")));
//! assert!(!keep(&Message::new("TopicA")));
//! ```
//!
//! Built as a `cdylib` for `wasm32-unknown-unknown` the function becomes the module's exports (ABI 1);
//! elsewhere [`Message`] holds what a test gives it. A filter must be a pure function of the message:
//! after a restart or a rebalance messages are filtered again, and instances come and go.
#![no_std]

extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use minimq_filter_sdk_macros::{filter, init};

#[cfg(target_arch = "wasm32")]
#[path = "guest.rs"]
mod source;
#[cfg(not(target_arch = "wasm32"))]
#[path = "native.rs"]
mod source;

pub use source::Message;

/// Why the host could not answer, or why the filter cannot decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// No such property or text.
    Absent,
    /// The property's text is no number of the asked kind.
    NotANumber,
    /// The body is compressed and does not decode.
    BodyNotDecodable,
    /// The host does not know what was asked.
    Unsupported,
    /// The filter's own error, 1 to 1,000,000: the server reports it negated.
    Own(u32),
}

impl Error {
    #[cfg_attr(not(target_arch = "wasm32"), allow(dead_code))]
    fn from_code(code: i32) -> Self {
        match code {
            -1 => Self::Absent,
            -3 => Self::NotANumber,
            -5 => Self::BodyNotDecodable,
            _ => Self::Unsupported,
        }
    }

    fn code(self) -> i32 {
        match self {
            Self::Absent => -1,
            Self::NotANumber => -3,
            Self::Unsupported => -4,
            Self::BodyNotDecodable => -5,
            Self::Own(own) => -100 - own.clamp(1, 1_000_000) as i32,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("no such property"),
            Self::NotANumber => f.write_str("the property is not a number"),
            Self::BodyNotDecodable => f.write_str("the body does not decode"),
            Self::Unsupported => f.write_str("the filter server does not know this question"),
            Self::Own(own) => write!(f, "the filter's error {own}"),
        }
    }
}

impl core::error::Error for Error {}

/// What a filter function may answer.
pub trait Verdict {
    /// As the ABI wants it: 1 keep, 0 drop, negative an error.
    fn answer(self) -> i32;
}

impl Verdict for bool {
    fn answer(self) -> i32 {
        i32::from(self)
    }
}

impl Verdict for Result<bool, Error> {
    fn answer(self) -> i32 {
        match self {
            Ok(keep) => i32::from(keep),
            Err(error) => error.code(),
        }
    }
}

/// How important a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something is wrong.
    Error,
    /// Something may be wrong.
    Warn,
    /// Worth knowing.
    Info,
    /// Only while looking for a fault.
    Debug,
}

// Selectors of ABI 1.
const TOPIC: i32 = 0;
const GROUP: i32 = 1;
const TAGS: i32 = 2;
const KEYS: i32 = 3;
const MESSAGE_ID: i32 = 4;
const BORN_HOST: i32 = 5;
const STORE_HOST: i32 = 6;
const OFFSET_MESSAGE_ID: i32 = 7;
const CLASS_NAME: i32 = 8;

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident: $selector:ident,)*) => {
        impl Message {
            $($(#[$doc])*
            pub fn $name(&self) -> Option<String> {
                self.text($selector).ok()
            })*
        }
    };
}

texts! {
    /// The message's topic.
    topic: TOPIC,
    /// The consumer group this filter serves.
    group: GROUP,
    /// The message's tags.
    tags: TAGS,
    /// The message's keys, separated by blanks.
    keys: KEYS,
    /// The id clients show: the unique key if there is one, else the broker's id.
    message_id: MESSAGE_ID,
    /// `ip:port` of the producer.
    born_host: BORN_HOST,
    /// `ip:port` of the broker that stored it.
    store_host: STORE_HOST,
    /// The broker's id.
    offset_message_id: OFFSET_MESSAGE_ID,
    /// The class name of the subscription: parameters for a module that serves many.
    class_name: CLASS_NAME,
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $selector:literal,)*) => {
        impl Message {
            $($(#[$doc])*
            pub fn $name(&self) -> i64 {
                self.number($selector).unwrap_or_default()
            })*
        }
    };
}

numbers! {
    /// Queue of the topic.
    queue_id: 0,
    /// Position in the queue.
    queue_offset: 1,
    /// Position in the commit log, in bytes.
    physical_offset: 2,
    /// When the producer made it, ms since 1970.
    born_timestamp: 3,
    /// When the broker stored it, ms since 1970.
    store_timestamp: 4,
    /// The application's flag.
    flag: 5,
    /// RocketMQ's flag word as stored.
    sys_flag: 6,
    /// Failed deliveries so far.
    reconsume_times: 7,
    /// Bytes of the body as stored, perhaps compressed.
    stored_body_len: 9,
    /// Checksum of the stored body.
    body_crc: 10,
    /// Offset of the half message of a transaction.
    prepared_offset: 11,
    /// Bytes of the whole record.
    record_size: 12,
}

impl Message {
    /// Bytes of the body, decompressed.
    pub fn body_len(&self) -> Result<usize, Error> {
        self.number(8).map(|length| length as usize)
    }

    /// The whole body, decompressed. For a part of a large one see [`Message::read_body`].
    pub fn body(&self) -> Result<Vec<u8>, Error> {
        let mut body = alloc::vec![0; self.body_len()?];
        let length = self.read_body(0, &mut body)?;
        body.truncate(length);
        Ok(body)
    }

    /// All properties, the system's among them, as names.
    pub fn property_names(&self) -> impl Iterator<Item = String> + '_ {
        (0..).map_while(|index| self.property_name(index))
    }
}
