//! From bytes of a socket to whole frames: where they are read to, how much at a time, and where one frame
//! ends. Frames are slices of the read buffer; nothing is copied. What a frame means is not known here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use minimq_protocol::FrameError;
use minimq_protocol::frame::{self, Check};

use crate::buffer_pool;

/// A begun frame up to this size waits in a buffer of its own length instead of a pooled one.
const SMALL_REST: usize = 1024;
/// So many reads in a row that use little of the buffer make the next ones smaller.
const SHRINK_AFTER: u8 = 16;

/// Bytes that all connections of a server or client together may spend on begun frames that do not fit an
/// ordinary read buffer.
#[derive(Debug)]
pub(crate) struct PartialBudget {
    limit: usize,
    used: AtomicUsize,
}

impl PartialBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
        })
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.limit {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        true
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The limit in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

/// There is no room for the frame that has begun: the [`PartialBudget`] is used up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    /// Length of the frame.
    pub(crate) frame_len: usize,
}

/// The receiving half of a connection, apart from the socket.
pub(crate) struct Reader {
    buffer: BytesMut,
    /// Class of the buffers to read into; follows how much the peer sends at a time.
    class: usize,
    small_reads: u8,
    /// Length of the frame at the front of the buffer, as far as known.
    need: usize,
    max_frame_len: usize,
    budget: Arc<PartialBudget>,
    /// Bytes taken from the budget for the frame that has begun.
    reserved: usize,
    /// The buffer was made for one large frame and belongs to no class.
    large: bool,
}

impl Reader {
    pub(crate) fn new(max_frame_len: usize, budget: Arc<PartialBudget>) -> Self {
        Self {
            buffer: BytesMut::new(),
            class: buffer_pool::SMALLEST,
            small_reads: 0,
            need: 0,
            max_frame_len,
            budget,
            reserved: 0,
            large: false,
        }
    }

    /// The buffer with room at its end for the next read.
    pub(crate) fn room(&mut self) -> Result<&mut BytesMut, NoRoom> {
        let size = buffer_pool::size_of_class(self.class);
        let held = self.buffer.len();
        let spare = self.buffer.capacity() - held;
        let missing = self.need.saturating_sub(held).max(1);
        if self.need > buffer_pool::size_of_class(buffer_pool::LARGEST) {
            // A frame larger than any pooled buffer: room in steps, so that announcing one costs nothing.
            if spare == 0 {
                self.grow_to(self.need.min((4 * held).max(1 << 20)))?;
            }
        } else if spare < missing.max(size / 2) {
            let class = if self.need > size {
                self.class + 1
            } else {
                self.class
            };
            self.move_to(buffer_pool::take(class.min(buffer_pool::LARGEST)), missing);
        }
        Ok(&mut self.buffer)
    }

    fn move_to(&mut self, mut fresh: BytesMut, missing: usize) {
        fresh.extend_from_slice(&self.buffer);
        fresh.reserve(missing);
        self.replace(fresh);
    }

    fn replace(&mut self, fresh: BytesMut) {
        let old = std::mem::replace(&mut self.buffer, fresh);
        if !std::mem::take(&mut self.large) {
            buffer_pool::give(old);
        }
    }

    fn grow_to(&mut self, capacity: usize) -> Result<(), NoRoom> {
        // The smaller buffer goes as the larger one comes.
        let more = capacity - self.reserved.min(capacity);
        if !self.budget.take(more) {
            return Err(NoRoom {
                frame_len: self.need,
            });
        }
        let mut fresh = BytesMut::with_capacity(capacity);
        fresh.extend_from_slice(&self.buffer);
        self.replace(fresh);
        self.large = true;
        self.reserved += more;
        Ok(())
    }

    /// Notes how many bytes a read brought and whether it used up the room.
    pub(crate) fn filled(&mut self, read: usize, room: usize) {
        if read == room {
            self.class = (self.class + 1).min(buffer_pool::LARGEST);
            self.small_reads = 0;
        } else if read < buffer_pool::size_of_class(self.class) / 8 {
            self.small_reads += 1;
            if self.small_reads >= SHRINK_AFTER {
                self.small_reads = 0;
                self.class = self.class.saturating_sub(1);
            }
        } else {
            self.small_reads = 0;
        }
    }

    /// The next whole frame, length word included; `None`: more bytes are needed.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        match frame::check(&self.buffer, self.max_frame_len)? {
            Check::Incomplete { need } => {
                self.need = need;
                Ok(None)
            }
            Check::Whole { len } => {
                self.need = 0;
                if self.reserved > 0 {
                    self.budget.give(std::mem::take(&mut self.reserved));
                }
                Ok(Some(self.buffer.split_to(len).freeze()))
            }
        }
    }

    /// Is a frame begun and not whole?
    pub(crate) fn has_rest(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The socket has nothing more for now: hold as little memory as possible.
    pub(crate) fn rest(&mut self) {
        if self.buffer.is_empty() {
            if self.buffer.capacity() > 0 || self.large {
                self.replace(BytesMut::new());
            }
        } else if self.buffer.len() <= SMALL_REST && self.buffer.capacity() > 2 * SMALL_REST {
            let small = BytesMut::from(&self.buffer[..]);
            self.replace(small);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.budget.give(self.reserved);
    }
}
