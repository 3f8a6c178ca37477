//! The record of a stored message: one form on the wire and on disk (wire spec 7.1, store spec 2).
//!
//! [`MessageView`] reads a record in place, over [`Bytes`] or a plain slice ([`RecordRef`]); [`check`] tells a good record
//! from a damaged one and from what is no record; [`RecordFields`] writes one. The body of a batch send has another form:
//! [`crate::batch`].

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use crate::message_id::OffsetId;
use crate::properties::{self, Properties};
use crate::sys_flag;

mod check;
mod encode;
mod layout;

pub use check::{Damage, Verdict, VerifyBody, check};
pub use encode::{EncodeError, RecordFields};
pub use layout::*;

/// One record, checked once and then read in place without errors.
///
/// Of the topic it is known that it is UTF-8, of the ports that they are ports. The body's checksum and the properties
/// text are not looked at: see [`check`] and [`Properties`].
#[derive(Clone)]
pub struct MessageView<B = Bytes> {
    raw: B,
    layout: Layout,
}

/// A record in borrowed memory.
pub type RecordRef<'a> = MessageView<&'a [u8]>;

impl MessageView<Bytes> {
    /// The record at the start of `raw`; what follows it is left out.
    pub fn parse(mut raw: Bytes) -> Result<Self, MessageError> {
        let layout = Layout::of_message(&raw)?;
        raw.truncate(layout.size());
        Ok(Self { raw, layout })
    }

    /// The record's bytes.
    #[must_use]
    pub fn into_raw(self) -> Bytes {
        self.raw
    }

    /// The body as stored, sharing the record's memory.
    #[must_use]
    pub fn body_bytes(&self) -> Bytes {
        let range = self.layout.body();
        // `Layout::of` found the whole record in `raw`, so the range lies inside.
        if range.end <= self.raw.len() {
            self.raw.slice(range)
        } else {
            Bytes::new()
        }
    }
}

impl<'a> RecordRef<'a> {
    /// The record at the start of `raw`; what follows it is left out.
    pub fn parse_slice(raw: &'a [u8]) -> Result<Self, MessageError> {
        let layout = Layout::of_message(raw)?;
        Ok(Self {
            raw: raw.get(..layout.size()).unwrap_or_default(),
            layout,
        })
    }
}

impl<B: AsRef<[u8]>> MessageView<B> {
    fn bytes(&self) -> &[u8] {
        self.raw.as_ref()
    }

    /// The record's bytes.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        self.bytes()
    }

    /// Bytes of the whole record.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// [`MAGIC_V1`] or [`MAGIC_V2`].
    #[must_use]
    pub fn magic(&self) -> i32 {
        read_i32(self.bytes(), MAGIC_AT)
    }

    /// Checksum of the stored body as the record says, see [`crate::crc`].
    #[must_use]
    pub fn body_crc(&self) -> i32 {
        read_i32(self.bytes(), BODY_CRC_AT)
    }

    /// Queue of the topic.
    #[must_use]
    pub fn queue_id(&self) -> i32 {
        read_i32(self.bytes(), QUEUE_ID_AT)
    }

    /// The application's flag.
    #[must_use]
    pub fn flag(&self) -> i32 {
        read_i32(self.bytes(), FLAG_AT)
    }

    /// Position in the queue, in messages.
    #[must_use]
    pub fn queue_offset(&self) -> i64 {
        read_i64(self.bytes(), QUEUE_OFFSET_AT)
    }

    /// Position in the commit log, in bytes.
    #[must_use]
    pub fn physical_offset(&self) -> i64 {
        read_i64(self.bytes(), PHYSICAL_OFFSET_AT)
    }

    /// Flag word, see [`crate::sys_flag::message`].
    #[must_use]
    pub fn sys_flag(&self) -> i32 {
        read_i32(self.bytes(), SYS_FLAG_AT)
    }

    /// When the producer made it, ms since 1970.
    #[must_use]
    pub fn born_timestamp(&self) -> i64 {
        read_i64(self.bytes(), BORN_TIMESTAMP_AT)
    }

    /// Address of the producer.
    #[must_use]
    pub fn born_host(&self) -> SocketAddr {
        self.host(BORN_HOST_AT, sys_flag::message::BORN_HOST_V6)
    }

    /// When the broker stored it, ms since 1970.
    #[must_use]
    pub fn store_timestamp(&self) -> i64 {
        read_i64(self.bytes(), store_timestamp_at(self.sys_flag()))
    }

    /// Address of the broker that stored it.
    #[must_use]
    pub fn store_host(&self) -> SocketAddr {
        self.host(
            store_host_at(self.sys_flag()),
            sys_flag::message::STORE_HOST_V6,
        )
    }

    /// Failed deliveries so far.
    #[must_use]
    pub fn reconsume_times(&self) -> i32 {
        read_i32(self.bytes(), reconsume_times_at(self.sys_flag()))
    }

    /// Commit-log offset of the half message, for commit and rollback records.
    #[must_use]
    pub fn prepared_transaction_offset(&self) -> i64 {
        read_i64(
            self.bytes(),
            prepared_transaction_offset_at(self.sys_flag()),
        )
    }

    /// The body as stored: compressed if the flag word says so.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.bytes().get(self.layout.body()).unwrap_or_default()
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        // UTF-8 was checked on parsing; the type cannot remember it without unsafe code.
        std::str::from_utf8(self.bytes().get(self.layout.topic()).unwrap_or_default())
            .unwrap_or_default()
    }

    /// The properties text.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        Properties::from_bytes(
            self.bytes()
                .get(self.layout.properties())
                .unwrap_or_default(),
        )
    }

    /// Property `TAGS`.
    #[must_use]
    pub fn tags(&self) -> Option<&str> {
        self.properties().get(properties::name::TAGS)
    }

    /// Property `KEYS`.
    #[must_use]
    pub fn keys(&self) -> Option<&str> {
        self.properties().get(properties::name::KEYS)
    }

    /// Property `UNIQ_KEY`: what clients show as the message id if it is there.
    #[must_use]
    pub fn unique_key(&self) -> Option<&str> {
        self.properties().get(properties::name::UNIQ_KEY)
    }

    /// The broker's id of the record, made of store host and commit-log offset.
    #[must_use]
    pub fn message_id(&self) -> OffsetId {
        OffsetId {
            host: self.store_host(),
            physical_offset: self.physical_offset(),
        }
    }

    /// Whether the stored checksum is that of the body. Java checks this for a body only if there is one.
    #[must_use]
    pub fn body_crc_holds(&self) -> bool {
        let body = self.body();
        body.is_empty() || crate::crc::body_crc(body) == self.body_crc()
    }

    /// Its fields, to write it again, perhaps changed.
    #[must_use]
    pub fn fields(&self) -> RecordFields<'_> {
        RecordFields {
            topic: self.topic(),
            queue_id: self.queue_id(),
            flag: self.flag(),
            queue_offset: self.queue_offset(),
            physical_offset: self.physical_offset(),
            sys_flag: self.sys_flag(),
            born_timestamp: self.born_timestamp(),
            born_host: self.born_host(),
            store_timestamp: self.store_timestamp(),
            store_host: self.store_host(),
            reconsume_times: self.reconsume_times(),
            prepared_transaction_offset: self.prepared_transaction_offset(),
            body_crc: self.body_crc(),
            body: self.body(),
            properties: self.properties().as_bytes(),
            appended_properties: &[],
        }
    }

    fn host(&self, at: usize, v6: i32) -> SocketAddr {
        let (bytes, v6) = (self.bytes(), self.sys_flag() & v6 != 0);
        let ip = if v6 {
            IpAddr::from(read::<16>(bytes, at))
        } else {
            IpAddr::from(read::<4>(bytes, at))
        };
        let port = read_i32(bytes, at + host_len(v6) - 4);
        // Checked on parsing.
        SocketAddr::new(ip, u16::try_from(port).unwrap_or_default())
    }
}

impl<B: AsRef<[u8]>> std::fmt::Debug for MessageView<B> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("MessageView")
            .field("topic", &self.topic())
            .field("queue_id", &self.queue_id())
            .field("queue_offset", &self.queue_offset())
            .field("physical_offset", &self.physical_offset())
            .field("size", &self.size())
            .field("sys_flag", &self.sys_flag())
            .field("body_len", &self.body().len())
            .field("properties", &self.properties())
            .finish_non_exhaustive()
    }
}

/// The records of a pull or query answer, which follow each other without count or separator.
///
/// A record that cannot be read but whose size is known yields its error and is stepped over; any other error is the last
/// item. (RocketMQ's readers drop everything after the first bad record.)
#[must_use]
pub fn split_records(raw: Bytes) -> Records {
    Records { rest: raw }
}

/// Iterator of [`split_records`].
#[derive(Clone, Debug)]
pub struct Records {
    rest: Bytes,
}

impl Iterator for Records {
    type Item = Result<MessageView, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = MessageView::parse(self.rest.clone());
        let step = match &parsed {
            Ok(view) => view.size(),
            Err(error) => error.size().unwrap_or(self.rest.len()),
        };
        self.rest = self.rest.split_off(step.min(self.rest.len()));
        Some(parsed)
    }
}
