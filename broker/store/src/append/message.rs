//! One message to be appended, and what is computed about it before the lock.

use std::net::SocketAddr;

use minimq_protocol::crc::body_crc;
use minimq_protocol::message::{BLANK_LEN, MAX_TOPIC_LEN, RecordFields};
use minimq_protocol::properties::{MAX_PROPERTIES_LEN, joined_len};

use crate::damage::is_torn;
use crate::error::AppendError;
use crate::offset::{PhysicalOffset, QueueOffset};
use crate::recent_records::Digest;

/// A message as the broker hands it over: topic, queue, flags and properties are final, delay and transaction rewriting
/// is done.
#[derive(Clone, Copy, Debug)]
pub struct AppendMessage<'a> {
    /// Topic it is stored under, 1 to 127 bytes.
    pub topic: &'a str,
    /// Queue it is stored under.
    pub queue_id: i32,
    /// The producer's own flag.
    pub flag: i32,
    /// `sysFlag`; the bits for IPv6 hosts are set here. A record with transaction bits *prepared* or *rollback* gets queue
    /// offset 0 and no place in the queue.
    pub sys_flag: i32,
    /// The producer's clock, ms.
    pub born_timestamp: i64,
    /// The producer's address.
    pub born_host: SocketAddr,
    /// The broker's address.
    pub store_host: SocketAddr,
    /// Failed deliveries so far.
    pub reconsume_times: i32,
    /// Physical offset of the half message, for commit and rollback records, else 0.
    pub prepared_transaction_offset: i64,
    /// Body as it is stored.
    pub body: &'a [u8],
    /// Properties text.
    pub properties: &'a [u8],
    /// Further properties, joined behind with exactly one separator: those of the request in a batch.
    pub appended_properties: &'a [u8],
    /// It belongs to the same client batch as the message before it: all of a batch are stored in one file, one after the
    /// other, with one store time and consecutive queue offsets, or none is (store spec 2.8).
    pub joins_previous: bool,
}

/// Where a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendResult {
    /// First byte of its record.
    pub physical_offset: PhysicalOffset,
    /// Its number in the queue.
    pub queue_offset: QueueOffset,
    /// Length of its record.
    pub size: i32,
    /// The broker's clock when it was stored, ms.
    pub store_timestamp: i64,
}

impl AppendResult {
    /// First byte after its record: what a flush or a slave must have reached.
    #[must_use]
    pub fn end(&self) -> PhysicalOffset {
        self.physical_offset.plus(i64::from(self.size))
    }
}

/// What became of one message.
pub type AppendOutcome = Result<AppendResult, AppendError>;

/// What is known of a message before the lock is taken.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Length of its record; of a refused one 0.
    pub(crate) len: usize,
    pub(crate) body_crc: i32,
    /// `None` of a refused one, and if it cannot be told from the message alone.
    pub(crate) digest: Option<Digest>,
    pub(crate) refused: Option<AppendError>,
}

/// What a message may be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_message_size: usize,
    pub(crate) file_size: usize,
}

impl AppendMessage<'_> {
    /// Checks it and computes what needs no lock.
    pub(crate) fn prepare(&self, limits: Limits) -> Prepared {
        match self.check(limits) {
            Err(refused) => Prepared {
                len: 0,
                body_crc: 0,
                digest: None,
                refused: Some(refused),
            },
            Ok(len) => {
                let body_crc = if self.body.is_empty() {
                    0
                } else {
                    body_crc(self.body)
                };
                Prepared {
                    len,
                    body_crc,
                    digest: Digest::of(self),
                    refused: None,
                }
            }
        }
    }

    /// The record's length, if it can be stored.
    fn check(&self, limits: Limits) -> Result<usize, AppendError> {
        let (body, topic) = (self.body.len(), self.topic.len());
        if body > limits.max_message_size {
            return Err(AppendError::BodyTooLong {
                len: body,
                max: limits.max_message_size,
            });
        }
        if topic == 0 || topic > MAX_TOPIC_LEN || memchr::memchr(0, self.topic.as_bytes()).is_some()
        {
            return Err(AppendError::TopicIllegal { len: topic });
        }
        let properties = joined_len(self.properties, self.appended_properties);
        if properties > MAX_PROPERTIES_LEN {
            return Err(AppendError::PropertiesTooLong { len: properties });
        }
        if is_torn(self.properties)
            || (!self.appended_properties.is_empty() && is_torn(self.appended_properties))
        {
            let reason = "not UTF-8, or zero bytes at the border or in a row, as in a torn record";
            return Err(AppendError::PropertiesIllegal { reason });
        }
        let len = self.fields(0).encoded_len();
        if len + BLANK_LEN > limits.file_size {
            return Err(AppendError::LargerThanFile {
                len: len as u64,
                file_size: limits.file_size as u64,
            });
        }
        Ok(len)
    }

    /// The record's fields; offsets and store time are set under the lock.
    pub(crate) fn fields(&self, body_crc: i32) -> RecordFields<'_> {
        RecordFields {
            topic: self.topic,
            queue_id: self.queue_id,
            flag: self.flag,
            queue_offset: 0,
            physical_offset: 0,
            sys_flag: self.sys_flag,
            born_timestamp: self.born_timestamp,
            born_host: self.born_host,
            store_timestamp: 0,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: self.prepared_transaction_offset,
            body_crc,
            body: self.body,
            properties: self.properties,
            appended_properties: self.appended_properties,
        }
    }
}
