//! Frames (wire spec 1.1, 1.4): [`check`] tells from eight bytes whether a whole frame is there and within limits,
//! [`parse`] turns a whole frame into a [`Command`] without copying. Neither panics on any input.
//!
//! What the two header encodings look like is in [`crate::command`].

use bytes::{Buf, Bytes};

use crate::command::{Command, SerializeType, binary, json};

/// The largest frame every peer must accept and none may send, length word included: length word ≤ 16 777 212.
pub const MAX_FRAME_LEN: usize = 16_777_216;

/// The length word and the header word.
pub const PREFIX_LEN: usize = 8;

/// The largest header: its length has 24 bits.
pub const MAX_HEADER_LEN: usize = 0xFF_FFFF;

/// What [`check`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Not a whole frame yet.
    Incomplete {
        /// Bytes the whole frame will have, length word included; 8 while the length word is not there.
        need: usize,
    },
    /// The buffer begins with a whole frame.
    Whole {
        /// Bytes of that frame, length word included.
        len: usize,
    },
}

/// Why bytes are not a frame. Fatal for the connection: no answer is sent, nothing is resynchronised (wire spec 1.4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Over the receiver's limit, by its length word alone.
    #[error("a frame of {len} bytes is over the limit of {max}")]
    TooLarge {
        /// Length of the frame, length word included.
        len: usize,
        /// The limit it was checked against.
        max: usize,
    },
    /// Negative, or shorter than the header word.
    #[error("the length word {length} is below 4")]
    BadLength {
        /// The length word.
        length: i32,
    },
    /// The header would end behind the frame.
    #[error("a header of {header_len} bytes does not fit the length word {length}")]
    HeaderTooLong {
        /// Header length of the header word.
        header_len: usize,
        /// The length word.
        length: usize,
    },
    /// The top byte of the header word.
    #[error("serialize type {0} is neither 0 (JSON) nor 1 (ROCKETMQ)")]
    SerializeType(u8),
    /// [`parse`] was given more or less than one frame.
    #[error("{len} bytes are not one whole frame")]
    NotOneFrame {
        /// Bytes given.
        len: usize,
    },
    /// The JSON header cannot be read.
    #[error("bad JSON header at byte {at}: {what}")]
    Json {
        /// Offset in the header.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// The binary header cannot be read.
    #[error("bad binary header at byte {at}: {what}")]
    Binary {
        /// Offset in the header.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
}

/// Whether `buf` begins with a whole frame of at most `max_frame_len` bytes (length word included). Reads the first
/// eight bytes only, so it may be asked again after each read; what is over the limit is refused before its data comes.
pub fn check(buf: &[u8], max_frame_len: usize) -> Result<Check, FrameError> {
    let Some(word) = buf.first_chunk::<4>() else {
        return Ok(Check::Incomplete { need: PREFIX_LEN });
    };
    let word = i32::from_be_bytes(*word);
    let length = match usize::try_from(word) {
        Ok(length) if length >= 4 => length,
        _ => return Err(FrameError::BadLength { length: word }),
    };
    let len = length + 4;
    if len > max_frame_len {
        return Err(FrameError::TooLarge {
            len,
            max: max_frame_len,
        });
    }
    let Some(prefix) = buf.first_chunk::<PREFIX_LEN>() else {
        return Ok(Check::Incomplete { need: len });
    };
    let [.., serialize, a, b, c] = *prefix;
    if SerializeType::from_byte(serialize).is_none() {
        return Err(FrameError::SerializeType(serialize));
    }
    let header_len = u32::from_be_bytes([0, a, b, c]) as usize;
    if header_len > length - 4 {
        return Err(FrameError::HeaderTooLong { header_len, length });
    }
    Ok(if buf.len() < len {
        Check::Incomplete { need: len }
    } else {
        Check::Whole { len }
    })
}

/// Reads one whole frame, length word included. Ext fields, remark and body of the result are slices of `frame`.
pub fn parse(mut frame: Bytes) -> Result<Command, FrameError> {
    match check(&frame, usize::MAX)? {
        Check::Whole { len } if len == frame.len() => {}
        _ => return Err(FrameError::NotOneFrame { len: frame.len() }),
    }
    frame.advance(4);
    let word = frame.get_u32();
    // `check` saw that the header is inside.
    let body = frame.split_off((word & 0xFF_FFFF) as usize);
    let mut command = Command {
        body,
        ..Command::default()
    };
    match SerializeType::from_byte((word >> 24) as u8) {
        Some(SerializeType::Rocketmq) => binary::read(frame, &mut command)?,
        _ => json::read(frame, &mut command)?,
    }
    Ok(command)
}
