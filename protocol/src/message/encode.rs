//! Writing a record (V1) into memory that the caller owns.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use super::layout::{BORN_HOST_AT, MAGIC_V1, MAX_TOPIC_LEN, MIN_RECORD_LEN, body_at};
use crate::properties::{MAX_PROPERTIES_LEN, PAIR_SEPARATOR, joined_len, needs_separator};
use crate::sys_flag::message::{BORN_HOST_V6, STORE_HOST_V6};

/// Bytes before the body with two IPv6 hosts.
const MAX_HEAD_LEN: usize = body_at(BORN_HOST_V6 | STORE_HOST_V6);

/// Everything a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFields<'a> {
    /// Topic, at most 127 bytes.
    pub topic: &'a str,
    /// Queue of the topic.
    pub queue_id: i32,
    /// The application's flag.
    pub flag: i32,
    /// Position in the queue; may be patched later, see [`super::patch`].
    pub queue_offset: i64,
    /// Position in the commit log; may be patched later, see [`super::patch`].
    pub physical_offset: i64,
    /// Flag word. The bits that tell IPv6 hosts are set and cleared by the encoder.
    pub sys_flag: i32,
    /// When the producer made it, ms since 1970.
    pub born_timestamp: i64,
    /// Address of the producer. Written in its own family: an IPv4 address mapped into IPv6 takes 20 bytes.
    pub born_host: SocketAddr,
    /// When it is stored, ms since 1970; may be patched later, see [`super::patch`].
    pub store_timestamp: i64,
    /// Address of the broker.
    pub store_host: SocketAddr,
    /// Failed deliveries so far.
    pub reconsume_times: i32,
    /// Commit-log offset of the half message, for commit and rollback records, else 0.
    pub prepared_transaction_offset: i64,
    /// Checksum of `body`: [`crate::crc::body_crc`], computed by the caller outside any lock.
    pub body_crc: i32,
    /// Body as it is to be stored.
    pub body: &'a [u8],
    /// Properties text.
    pub properties: &'a [u8],
    /// Further properties, joined behind with exactly one separator: those of the request in a batch, the broker's own.
    pub appended_properties: &'a [u8],
}

/// Why a record cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Longer than the length byte holds.
    #[error("the topic has {len} bytes, the most is {MAX_TOPIC_LEN}")]
    TopicTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// Longer than the length field holds; both texts together.
    #[error("the properties have {len} bytes, the most is {MAX_PROPERTIES_LEN}")]
    PropertiesTooLong {
        /// Their length in bytes, joined.
        len: usize,
    },
    /// The whole record is longer than its size field holds.
    #[error("the record would have {len} bytes, more than a signed 32-bit number")]
    RecordTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The memory given is shorter than the record.
    #[error("the record needs {need} bytes, the memory given has {have}")]
    Room {
        /// Bytes needed.
        need: usize,
        /// Bytes given.
        have: usize,
    },
}

impl RecordFields<'_> {
    /// The flag word as it is written: with the bits that the hosts demand.
    #[must_use]
    pub fn written_sys_flag(&self) -> i32 {
        let bit = |host: &SocketAddr, mask: i32| if host.is_ipv6() { mask } else { 0 };
        self.sys_flag & !(BORN_HOST_V6 | STORE_HOST_V6)
            | bit(&self.born_host, BORN_HOST_V6)
            | bit(&self.store_host, STORE_HOST_V6)
    }

    /// Bytes of the record.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let fixed = MIN_RECORD_LEN - body_at(0) + body_at(self.written_sys_flag());
        fixed
            + self.body.len()
            + self.topic.len()
            + joined_len(self.properties, self.appended_properties)
    }

    /// Whether the record can be written at all; gives its length.
    pub fn validate(&self) -> Result<usize, EncodeError> {
        if self.topic.len() > MAX_TOPIC_LEN {
            return Err(EncodeError::TopicTooLong {
                len: self.topic.len(),
            });
        }
        let properties_len = joined_len(self.properties, self.appended_properties);
        if properties_len > MAX_PROPERTIES_LEN {
            return Err(EncodeError::PropertiesTooLong {
                len: properties_len,
            });
        }
        let len = self.encoded_len();
        if i32::try_from(len).is_err() {
            return Err(EncodeError::RecordTooLong { len });
        }
        Ok(len)
    }

    /// Writes the record to the start of `out` and gives its length. Writes nothing if it fails.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let len = self.validate()?;
        let have = out.len();
        let Some(out) = out.get_mut(..len) else {
            return Err(EncodeError::Room { need: len, have });
        };
        let (head, head_len) = self.head(len);
        let joint = needs_separator(self.properties, self.appended_properties);
        let properties_len = joined_len(self.properties, self.appended_properties);

        // The lengths were checked by `validate`; the pieces add up to `len`, so no piece meets a slice too short.
        let mut out = Cursor(out);
        out.put(head.get(..head_len).unwrap_or_default());
        out.put(self.body);
        out.put(&[self.topic.len() as u8]);
        out.put(self.topic.as_bytes());
        out.put(&(properties_len as u16).to_be_bytes());
        out.put(self.properties);
        if joint {
            out.put(&[PAIR_SEPARATOR]);
        }
        out.put(self.appended_properties);
        debug_assert!(out.0.is_empty());
        Ok(len)
    }

    /// The record in memory of its own.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut out = vec![0; self.validate()?];
        self.encode_into(&mut out)?;
        Ok(out.into())
    }

    /// All that stands before the body.
    fn head(&self, len: usize) -> ([u8; MAX_HEAD_LEN], usize) {
        let mut head = [0; MAX_HEAD_LEN];
        let (fixed, rest) = head.split_at_mut(BORN_HOST_AT);
        let mut fixed = Cursor(fixed);
        fixed.put(&(len as u32).to_be_bytes());
        fixed.put(&MAGIC_V1.to_be_bytes());
        fixed.put(&self.body_crc.to_be_bytes());
        fixed.put(&self.queue_id.to_be_bytes());
        fixed.put(&self.flag.to_be_bytes());
        fixed.put(&self.queue_offset.to_be_bytes());
        fixed.put(&self.physical_offset.to_be_bytes());
        fixed.put(&self.written_sys_flag().to_be_bytes());
        fixed.put(&self.born_timestamp.to_be_bytes());
        let mut rest = Cursor(rest);
        rest.put_host(&self.born_host);
        rest.put(&self.store_timestamp.to_be_bytes());
        rest.put_host(&self.store_host);
        rest.put(&self.reconsume_times.to_be_bytes());
        rest.put(&self.prepared_transaction_offset.to_be_bytes());
        rest.put(&(self.body.len() as u32).to_be_bytes());
        let head_len = MAX_HEAD_LEN - rest.0.len();
        (head, head_len)
    }
}

/// The part of the output that is still to be written.
struct Cursor<'a>(&'a mut [u8]);

impl Cursor<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if let Some((front, rest)) = std::mem::take(&mut self.0).split_at_mut_checked(bytes.len()) {
            front.copy_from_slice(bytes);
            self.0 = rest;
        }
    }

    fn put_host(&mut self, host: &SocketAddr) {
        match host.ip() {
            IpAddr::V4(ip) => self.put(&ip.octets()),
            IpAddr::V6(ip) => self.put(&ip.octets()),
        }
        self.put(&u32::from(host.port()).to_be_bytes());
    }
}
