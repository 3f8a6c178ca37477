//! Where each field of a record stands, and the one function that measures a record.

use std::ops::Range;

use crate::sys_flag::message::{BORN_HOST_V6, STORE_HOST_V6};

/// Magic of a record with a topic length of one byte: what 4.x writes and accepts.
pub const MAGIC_V1: i32 = 0xDAA3_20A7_u32.cast_signed();
/// Magic of a record with a topic length of two bytes (5.x); read here, never written.
pub const MAGIC_V2: i32 = 0xDAA3_20AB_u32.cast_signed();
/// Magic of the filler that ends a commit-log file.
pub const MAGIC_BLANK: i32 = 0xCBD4_3194_u32.cast_signed();
/// Bytes of a filler that are defined: its size and its magic.
pub const BLANK_LEN: usize = 8;

/// Position of the record's size, i32.
pub const TOTAL_SIZE_AT: usize = 0;
/// Position of the magic, i32.
pub const MAGIC_AT: usize = 4;
/// Position of the body's checksum, i32.
pub const BODY_CRC_AT: usize = 8;
/// Position of the queue id, i32.
pub const QUEUE_ID_AT: usize = 12;
/// Position of the application's flag, i32.
pub const FLAG_AT: usize = 16;
/// Position of the queue offset, i64.
pub const QUEUE_OFFSET_AT: usize = 20;
/// Position of the commit-log offset, i64.
pub const PHYSICAL_OFFSET_AT: usize = 28;
/// Position of the flag word, i32.
pub const SYS_FLAG_AT: usize = 36;
/// Position of the born timestamp, i64.
pub const BORN_TIMESTAMP_AT: usize = 40;
/// Position of the born host: address, then port as i32.
pub const BORN_HOST_AT: usize = 48;

/// Bytes of a record with two IPv4 hosts and empty body, topic and properties. Each IPv6 host adds 12.
pub const MIN_RECORD_LEN: usize = 91;
/// Longest topic of a record, in bytes: its length is a signed byte.
pub const MAX_TOPIC_LEN: usize = 127;

/// Bytes of a host field.
#[must_use]
pub const fn host_len(v6: bool) -> usize {
    if v6 { 20 } else { 8 }
}

/// Position of the store timestamp, i64, in a record with this flag word.
#[must_use]
pub const fn store_timestamp_at(sys_flag: i32) -> usize {
    BORN_HOST_AT + host_len(sys_flag & BORN_HOST_V6 != 0)
}

/// Position of the store host in a record with this flag word.
#[must_use]
pub const fn store_host_at(sys_flag: i32) -> usize {
    store_timestamp_at(sys_flag) + 8
}

/// Position of the reconsume times, i32, in a record with this flag word.
#[must_use]
pub const fn reconsume_times_at(sys_flag: i32) -> usize {
    store_host_at(sys_flag) + host_len(sys_flag & STORE_HOST_V6 != 0)
}

/// Position of the prepared-transaction offset, i64, in a record with this flag word.
#[must_use]
pub const fn prepared_transaction_offset_at(sys_flag: i32) -> usize {
    reconsume_times_at(sys_flag) + 4
}

/// Position of the body length, i32, in a record with this flag word.
#[must_use]
pub const fn body_len_at(sys_flag: i32) -> usize {
    prepared_transaction_offset_at(sys_flag) + 8
}

/// Position of the body in a record with this flag word.
#[must_use]
pub const fn body_at(sys_flag: i32) -> usize {
    body_len_at(sys_flag) + 4
}

/// Sets what is only known under the store's lock. Does nothing to a slice too short to be a record.
pub fn patch(record: &mut [u8], queue_offset: i64, physical_offset: i64, store_timestamp: i64) {
    let at = store_timestamp_at(read_i32(record, SYS_FLAG_AT));
    for (at, value) in [
        (QUEUE_OFFSET_AT, queue_offset),
        (PHYSICAL_OFFSET_AT, physical_offset),
        (at, store_timestamp),
    ] {
        if let Some(field) = record.get_mut(at..at + 8) {
            field.copy_from_slice(&value.to_be_bytes());
        }
    }
}

#[inline]
pub(crate) fn read<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .unwrap_or([0; N])
}

#[inline]
pub(crate) fn read_i32(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(read(bytes, at))
}

#[inline]
pub(crate) fn read_i64(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(read(bytes, at))
}

/// Why bytes are no readable record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Neither a record's magic nor a filler's.
    #[error("no message here: magic {magic:#010x} instead of 0xdaa320a7")]
    Magic {
        /// What stands there; 0 if fewer than 8 bytes are left.
        magic: i32,
    },
    /// The filler at the end of a commit-log file: the rest of the file is unused.
    #[error("no message here but the filler of {size} bytes that ends a commit-log file")]
    Blank {
        /// Bytes to the end of the file, as the filler says.
        size: i32,
    },
    /// The record says that it is longer than what is there, or shorter than any record.
    #[error(
        "the message says it has {size} bytes; at least {MIN_RECORD_LEN} and at most the {available} that are left were expected"
    )]
    Size {
        /// What the record says.
        size: i32,
        /// Bytes there are.
        available: usize,
    },
    /// The lengths of body, topic and properties do not add up to the record's size.
    #[error("the message says it has {size} bytes, but its {part} does not fit that")]
    Lengths {
        /// What the record says.
        size: usize,
        /// The field that does not fit.
        part: &'static str,
    },
    /// The topic is not UTF-8.
    #[error("the topic of the message of {size} bytes is not UTF-8")]
    TopicNotUtf8 {
        /// Bytes of the record.
        size: usize,
    },
    /// A port outside 0 to 65535.
    #[error("the {host} of the message of {size} bytes has port {port}, outside 0 to 65535")]
    Port {
        /// Bytes of the record.
        size: usize,
        /// Born host or store host.
        host: &'static str,
        /// The value found.
        port: i32,
    },
}

impl MessageError {
    /// Bytes after which the next record may start, if the record's own word for it can be believed.
    #[must_use]
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::Magic { .. } | Self::Blank { .. } | Self::Size { .. } => None,
            Self::Lengths { size, .. } | Self::TopicNotUtf8 { size } | Self::Port { size, .. } => {
                Some(*size)
            }
        }
    }
}

/// Where the parts of one record stand. All positions lie inside the bytes that were measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    size: u32,
    body_at: u32,
    body_len: u32,
    topic_at: u32,
    topic_len: u16,
    properties_len: u16,
}

impl Layout {
    /// Measures the record at the start of `bytes`: magic, size, and that the lengths add up to it exactly.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, MessageError> {
        let size = read_i32(bytes, TOTAL_SIZE_AT);
        let topic_length_len = match read_i32(bytes, MAGIC_AT) {
            MAGIC_V1 => 1,
            MAGIC_V2 => 2,
            MAGIC_BLANK => return Err(MessageError::Blank { size }),
            magic => return Err(MessageError::Magic { magic }),
        };
        let wrong_size = MessageError::Size {
            size,
            available: bytes.len(),
        };
        let record = match usize::try_from(size) {
            Ok(size) if size >= MIN_RECORD_LEN => bytes.get(..size).ok_or(wrong_size)?,
            _ => return Err(wrong_size),
        };
        let wrong = |part: &'static str| MessageError::Lengths {
            size: record.len(),
            part,
        };

        // Sums cannot overflow: each length is at most 31 bits and is checked against the size before the next one.
        let body_at = body_at(read_i32(record, SYS_FLAG_AT));
        let body_len = u32::try_from(read_i32(record, body_at - 4)).map_err(|_| wrong("body"))?;
        let topic_length_at = body_at + body_len as usize;
        let topic_at = topic_length_at + topic_length_len;
        if topic_at > record.len() {
            return Err(wrong("body"));
        }
        let topic_len = if topic_length_len == 1 {
            u16::try_from(i8::from_be_bytes(read(record, topic_length_at)))
        } else {
            u16::try_from(i16::from_be_bytes(read(record, topic_length_at)))
        }
        .map_err(|_| wrong("topic"))?;
        let properties_length_at = topic_at + usize::from(topic_len);
        if properties_length_at + 2 > record.len() {
            return Err(wrong("topic"));
        }
        let properties_len = u16::try_from(i16::from_be_bytes(read(record, properties_length_at)))
            .map_err(|_| wrong("properties text"))?;
        if properties_length_at + 2 + usize::from(properties_len) != record.len() {
            return Err(wrong("properties text"));
        }
        // All of these are at most `size`, which is an i32.
        Ok(Self {
            size: record.len() as u32,
            body_at: body_at as u32,
            body_len,
            topic_at: topic_at as u32,
            topic_len,
            properties_len,
        })
    }

    /// As [`Layout::of`], and [`Layout::check_fields`].
    #[inline]
    pub(crate) fn of_message(bytes: &[u8]) -> Result<Self, MessageError> {
        let layout = Self::of(bytes)?;
        layout.check_fields(bytes)?;
        Ok(layout)
    }

    /// What readers of single fields rely on: a UTF-8 topic and ports that are ports.
    #[inline]
    pub(crate) fn check_fields(&self, bytes: &[u8]) -> Result<(), MessageError> {
        let size = self.size();
        if std::str::from_utf8(bytes.get(self.topic()).unwrap_or_default()).is_err() {
            return Err(MessageError::TopicNotUtf8 { size });
        }
        let sys_flag = read_i32(bytes, SYS_FLAG_AT);
        for (host, end) in [
            ("born host", store_timestamp_at(sys_flag)),
            ("store host", reconsume_times_at(sys_flag)),
        ] {
            let port = read_i32(bytes, end - 4);
            if u16::try_from(port).is_err() {
                return Err(MessageError::Port { size, host, port });
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.size as usize
    }

    #[inline]
    pub(crate) fn body(&self) -> Range<usize> {
        self.body_at as usize..(self.body_at + self.body_len) as usize
    }

    #[inline]
    pub(crate) fn topic(&self) -> Range<usize> {
        let at = self.topic_at as usize;
        at..at + usize::from(self.topic_len)
    }

    #[inline]
    pub(crate) fn properties(&self) -> Range<usize> {
        let at = self.topic().end + 2;
        at..at + usize::from(self.properties_len)
    }
}
