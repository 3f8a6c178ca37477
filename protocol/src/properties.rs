//! The properties text of a message (wire spec 7.3) and the reserved names (7.4).
//!
//! `name 0x01 value 0x02 name 0x01 value …`: read in place, without building a map.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// Between a name and its value.
pub const NAME_SEPARATOR: u8 = 1;
/// Between a pair and the next; may also stand at the end.
pub const PAIR_SEPARATOR: u8 = 2;
/// Longest properties text of a record, in bytes: its length is a signed 16-bit number.
pub const MAX_PROPERTIES_LEN: usize = 32_767;

/// Reserved property names (wire spec 7.4).
pub mod name {
    /// Index keys separated by blanks.
    pub const KEYS: &str = "KEYS";
    /// The tag.
    pub const TAGS: &str = "TAGS";
    /// `true` or `false`: answer after flush and replication.
    pub const WAIT: &str = "WAIT";
    /// Delay level, from 1.
    pub const DELAY: &str = "DELAY";
    /// Original topic of a message in a retry or dead-letter topic.
    pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
    /// Original topic of a delayed or half message.
    pub const REAL_TOPIC: &str = "REAL_TOPIC";
    /// Original queue id of a delayed or half message.
    pub const REAL_QID: &str = "REAL_QID";
    /// `true`: a transactional half message.
    pub const TRAN_MSG: &str = "TRAN_MSG";
    /// Producer group of a transactional message.
    pub const PGROUP: &str = "PGROUP";
    /// Smallest offset of the queue; added by the consumer.
    pub const MIN_OFFSET: &str = "MIN_OFFSET";
    /// Largest offset of the queue; added by the consumer.
    pub const MAX_OFFSET: &str = "MAX_OFFSET";
    /// Legacy routing id.
    pub const BUYER_ID: &str = "BUYER_ID";
    /// Id of the first delivery of a retried message.
    pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
    /// Legacy flag of internal tools.
    pub const TRANSFER_FLAG: &str = "TRANSFER_FLAG";
    /// Legacy flag of internal tools.
    pub const CORRECTION_FLAG: &str = "CORRECTION_FLAG";
    /// Legacy flag of internal tools.
    pub const MQ2_FLAG: &str = "MQ2_FLAG";
    /// Retry count when a consumer itself sends to a retry topic.
    pub const RECONSUME_TIME: &str = "RECONSUME_TIME";
    /// Retry limit when a consumer itself sends to a retry topic.
    pub const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
    /// Region of the broker; also an ext field of send answers.
    pub const MSG_REGION: &str = "MSG_REGION";
    /// Whether messages are traced; also an ext field of send answers.
    pub const TRACE_ON: &str = "TRACE_ON";
    /// The producer's unique key, see [`crate::message_id`].
    pub const UNIQ_KEY: &str = "UNIQ_KEY";
    /// When consumption began, in ms; added by the consumer.
    pub const CONSUME_START_TIME: &str = "CONSUME_START_TIME";
    /// Original queue offset of a half message that was put again.
    pub const TRAN_PREPARED_QUEUE_OFFSET: &str = "TRAN_PREPARED_QUEUE_OFFSET";
    /// Transaction checks so far.
    pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
    /// No transaction check before this age in seconds.
    pub const CHECK_IMMUNITY_TIME_IN_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
    /// Namespace of the client.
    pub const INSTANCE_ID: &str = "INSTANCE_ID";
    /// Correlation of a request and its reply.
    pub const CORRELATION_ID: &str = "CORRELATION_ID";
    /// Client id to push the reply to.
    pub const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
    /// Time-out of a request in ms.
    pub const TTL: &str = "TTL";
    /// When a reply arrived, in ms; added by the requester.
    pub const ARRIVE_TIME: &str = "ARRIVE_TIME";
    /// When a reply was pushed, in ms.
    pub const PUSH_REPLY_TIME: &str = "PUSH_REPLY_TIME";
    /// Cluster of the broker that stored the message.
    pub const CLUSTER: &str = "CLUSTER";
    /// `reply` marks a reply message.
    pub const MSG_TYPE: &str = "MSG_TYPE";
    /// Names of light queues, joined by `,`.
    pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
    /// Offsets in the light queues, joined by `,`.
    pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
    /// Transaction id as clients keep it; not in the reserved list.
    pub const TRANSACTION_ID: &str = "__transactionId__";
    /// Delivery time of messages from the cloud product; not in the reserved list.
    pub const START_DELIVER_TIME: &str = "__STARTDELIVERTIME";

    /// Names that a user property may not have. Java's list: it leaves out
    /// [`TRAN_PREPARED_QUEUE_OFFSET`], [`TRANSACTION_CHECK_TIMES`], [`CHECK_IMMUNITY_TIME_IN_SECONDS`] and
    /// [`INNER_MULTI_DISPATCH`].
    pub const RESERVED: [&str; 31] = [
        KEYS,
        TAGS,
        WAIT,
        DELAY,
        RETRY_TOPIC,
        REAL_TOPIC,
        REAL_QID,
        TRAN_MSG,
        PGROUP,
        MIN_OFFSET,
        MAX_OFFSET,
        BUYER_ID,
        ORIGIN_MESSAGE_ID,
        TRANSFER_FLAG,
        CORRECTION_FLAG,
        MQ2_FLAG,
        RECONSUME_TIME,
        MAX_RECONSUME_TIMES,
        MSG_REGION,
        TRACE_ON,
        UNIQ_KEY,
        CONSUME_START_TIME,
        INSTANCE_ID,
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        TTL,
        ARRIVE_TIME,
        PUSH_REPLY_TIME,
        CLUSTER,
        MSG_TYPE,
        INNER_MULTI_QUEUE_OFFSET,
    ];
}

/// A properties text, read in place.
///
/// Java's rules: pieces between 0x02 are pairs if they hold 0x01 with something before and something after it, else
/// they do not exist; a value reaches to the end of its piece, further 0x01 included; of two equal names the later
/// counts.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties<'a>(&'a [u8]);

impl<'a> Properties<'a> {
    /// Over a text that is known to be UTF-8, as in a request header.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self(text.as_bytes())
    }

    /// Over bytes of a record, whose text nobody checked yet.
    #[must_use]
    pub fn from_bytes(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// The text as it stands in the record.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Whether the text is empty. A text without any pair need not be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of `name`; `None` also if the value is not UTF-8.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        std::str::from_utf8(self.get_bytes(name)?).ok()
    }

    /// The value of `name` as it stands in the record.
    #[must_use]
    pub fn get_bytes(&self, name: &str) -> Option<&'a [u8]> {
        self.iter_bytes()
            .filter(|(found, _)| *found == name.as_bytes())
            .last()
            .map(|(_, value)| value)
    }

    /// All pairs in order, doubled names included; a pair that is not UTF-8 is left out.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.iter_bytes().filter_map(|(name, value)| {
            Some((
                std::str::from_utf8(name).ok()?,
                std::str::from_utf8(value).ok()?,
            ))
        })
    }

    /// All pairs in order, doubled names included; what is not UTF-8 is replaced as Java does when it decodes.
    pub fn iter_lossy(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a> {
        self.iter_bytes().map(|(name, value)| {
            (
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(value),
            )
        })
    }

    /// All pairs in order as they stand in the record, doubled names included.
    #[must_use]
    pub fn iter_bytes(&self) -> Pairs<'a> {
        Pairs { rest: self.0 }
    }

    /// Looks for signs that the text was torn or overwritten.
    #[must_use]
    pub fn soundness(&self) -> Soundness {
        if let Some(at) = memchr(0, self.0) {
            let to_the_end = self
                .0
                .get(at..)
                .is_some_and(|rest| rest.iter().all(|byte| *byte == 0));
            return Soundness::ZeroBytes { at, to_the_end };
        }
        match std::str::from_utf8(self.0) {
            Ok(_) => Soundness::Sound,
            Err(error) => Soundness::NotUtf8 {
                at: error.valid_up_to(),
            },
        }
    }
}

impl std::fmt::Debug for Properties<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_map().entries(self.iter_lossy()).finish()
    }
}

/// Verdict of [`Properties::soundness`].
///
/// No checksum covers the properties of a record (store spec 6.8): a record torn there has consistent lengths and zero
/// bytes in its text. A producer may legally write a zero byte into a value, so it is the caller who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Soundness {
    /// UTF-8 without zero bytes.
    Sound,
    /// Holds zero bytes.
    ZeroBytes {
        /// Position of the first one in the text.
        at: usize,
        /// Nothing but zero bytes follows.
        to_the_end: bool,
    },
    /// Not UTF-8.
    NotUtf8 {
        /// Position in the text.
        at: usize,
    },
}

/// Iterator of [`Properties::iter_bytes`].
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let Some(at) = memchr2(NAME_SEPARATOR, PAIR_SEPARATOR, self.rest) else {
                self.rest = &[];
                return None;
            };
            let (name, after) = cut(self.rest, at);
            if self.rest.get(at) == Some(&PAIR_SEPARATOR) {
                self.rest = after;
                continue;
            }
            let (value, rest) = match memchr(PAIR_SEPARATOR, after) {
                Some(at) => cut(after, at),
                None => (after, &[][..]),
            };
            self.rest = rest;
            if !name.is_empty() && !value.is_empty() {
                return Some((name, value));
            }
        }
        None
    }
}

/// What stands before and what stands after position `at`.
fn cut(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    (
        bytes.get(..at).unwrap_or_default(),
        bytes.get(at + 1..).unwrap_or_default(),
    )
}

/// Whether a 0x02 must stand between `first` and `second` when they are joined.
#[must_use]
pub fn needs_separator(first: &[u8], second: &[u8]) -> bool {
    !second.is_empty() && first.last().is_some_and(|last| *last != PAIR_SEPARATOR)
}

/// Length of `first` and `second` joined with exactly one separator between them.
#[must_use]
pub fn joined_len(first: &[u8], second: &[u8]) -> usize {
    first.len() + usize::from(needs_separator(first, second)) + second.len()
}

/// A properties text being written. Writes no separator after the last pair, as 4.9.1 and later.
///
/// Keep one and [`clear`](Self::clear) it instead of allocating for each message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertiesBuf {
    text: String,
    /// The text ends with a separator, so that the next pair needs none.
    separated: bool,
}

impl PropertiesBuf {
    /// An empty text.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a pair as it is. Separators inside name or value make other pairs of it on reading: what comes from a user
    /// goes through [`check_user_property`] first.
    pub fn push(&mut self, name: &str, value: &str) -> &mut Self {
        self.separate();
        self.text.push_str(name);
        self.text.push(char::from(NAME_SEPARATOR));
        self.text.push_str(value);
        self
    }

    /// Appends a whole text, with one separator between what is here and it.
    pub fn push_text(&mut self, text: &str) -> &mut Self {
        if !text.is_empty() {
            self.separate();
            self.text.push_str(text);
            self.separated = text.as_bytes().last() == Some(&PAIR_SEPARATOR);
        }
        self
    }

    /// Appends those pairs of `properties` whose name `keep` accepts; what is no pair is left behind.
    pub fn extend(
        &mut self,
        properties: Properties<'_>,
        mut keep: impl FnMut(&str) -> bool,
    ) -> &mut Self {
        for (name, value) in properties.iter() {
            if keep(name) {
                self.push(name, value);
            }
        }
        self
    }

    fn separate(&mut self) {
        if !self.text.is_empty() && !self.separated {
            self.text.push(char::from(PAIR_SEPARATOR));
        }
        self.separated = false;
    }

    /// Makes it empty, keeping the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.separated = false;
    }

    /// The text so far.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text so far, to be read.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        Properties::new(&self.text)
    }

    /// The text.
    #[must_use]
    pub fn into_string(self) -> String {
        self.text
    }
}

/// Why a user property cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserPropertyError {
    /// Name or value is empty or only white space.
    #[error("the name or value of a property can not be blank: name \"{name}\", value \"{value}\"")]
    Blank {
        /// Name of the property.
        name: String,
        /// Its value.
        value: String,
    },
    /// The name is one of [`name::RESERVED`].
    #[error("the property name \"{name}\" is used by the system, choose another")]
    Reserved {
        /// Name of the property.
        name: String,
    },
    /// Byte 1 or 2 in name or value would split the property in two on reading.
    #[error(
        "property \"{name}\" holds the control character U+0001 or U+0002, which separates properties: remove it"
    )]
    Separator {
        /// Name of the property.
        name: String,
    },
}

/// Checks a property that a user of a client wants on a message.
pub fn check_user_property(name: &str, value: &str) -> Result<(), UserPropertyError> {
    if name.trim().is_empty() || value.trim().is_empty() {
        return Err(UserPropertyError::Blank {
            name: name.to_owned(),
            value: value.to_owned(),
        });
    }
    if name::RESERVED.contains(&name) {
        return Err(UserPropertyError::Reserved {
            name: name.to_owned(),
        });
    }
    let separator = |text: &str| memchr2(NAME_SEPARATOR, PAIR_SEPARATOR, text.as_bytes()).is_some();
    if separator(name) || separator(value) {
        return Err(UserPropertyError::Separator {
            name: name.to_owned(),
        });
    }
    Ok(())
}
