//! The judgement over bytes that should be a record: for recovery, scans and tools (store spec 2.10).

use super::layout::{Layout, MessageError};
use super::{MessageView, RecordRef};
use crate::properties::Soundness;

/// Whether [`check`] reads the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyBody {
    /// Compare the body's checksum.
    Crc,
    /// Do not touch the body.
    Skip,
}

/// What stands at the start of some bytes.
#[derive(Clone, Debug)]
pub enum Verdict<'a> {
    /// A record without fault.
    Whole(RecordRef<'a>),
    /// The filler that ends a commit-log file; nothing after its 8 bytes means anything.
    Blank {
        /// Bytes to the end of the file, as the filler says.
        size: i32,
    },
    /// Lengths are consistent, so the next record starts at `size`; the content is not what was written.
    Damaged {
        /// Bytes of the record.
        size: usize,
        /// The record as far as it can be read; `None` where a field read by everyone is bad.
        record: Option<RecordRef<'a>>,
        /// The first fault found.
        damage: Damage,
    },
    /// No record: other magic, a size that cannot be, or lengths that do not add up to the size.
    ///
    /// For the last of these, [`MessageError::size`] gives the record's own word for its size.
    NotARecord(MessageError),
}

/// A fault in a record of consistent lengths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The body is not the one that was stored.
    #[error("the body's checksum is {computed}, the record says {stored}")]
    BodyCrc {
        /// What the record says.
        stored: i32,
        /// The checksum of what is there.
        computed: i32,
    },
    /// The topic is not UTF-8, or a host has an impossible port.
    #[error(transparent)]
    Field(MessageError),
    /// The topic holds a zero byte.
    #[error("the topic holds a zero byte")]
    TopicZeroByte,
    /// The properties text holds zero bytes or is not UTF-8. A producer may legally write a zero byte into a value: whether
    /// this is a torn record is the caller's decision, see [`Soundness`].
    #[error("the properties text is not sound: {0:?}")]
    Properties(Soundness),
}

/// Judges the record at the start of `bytes`, which reach to the end of what is readable.
///
/// That the physical offset is the real position and that queue offsets continue is the caller's to compare.
#[must_use]
pub fn check(bytes: &[u8], verify_body: VerifyBody) -> Verdict<'_> {
    let layout = match Layout::of(bytes) {
        Ok(layout) => layout,
        Err(MessageError::Blank { size }) => return Verdict::Blank { size },
        Err(error) => return Verdict::NotARecord(error),
    };
    let size = layout.size();
    if let Err(error) = layout.check_fields(bytes) {
        return Verdict::Damaged {
            size,
            record: None,
            damage: Damage::Field(error),
        };
    }
    let record = MessageView {
        raw: bytes.get(..size).unwrap_or_default(),
        layout,
    };
    let damage = if verify_body == VerifyBody::Crc && !record.body_crc_holds() {
        Some(Damage::BodyCrc {
            stored: record.body_crc(),
            computed: crate::crc::body_crc(record.body()),
        })
    } else if record.topic().as_bytes().contains(&0) {
        Some(Damage::TopicZeroByte)
    } else {
        match record.properties().soundness() {
            Soundness::Sound => None,
            unsound => Some(Damage::Properties(unsound)),
        }
    };
    match damage {
        None => Verdict::Whole(record),
        Some(damage) => Verdict::Damaged {
            size,
            record: Some(record),
            damage,
        },
    }
}
