//! From bytes of a socket to whole frames: where they are read to, how much at a time, and where one frame
//! ends. Frames are slices of the read buffer; nothing is copied. What a frame means is not known here.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use minimq_protocol::FrameError;
use minimq_protocol::frame::{self, Check};

use crate::budget::Budgets;
use crate::buffer_pool;

/// Waiting, a begun frame may hold so many bytes without asking the budget.
const FREE_REST: usize = 16 << 10;
/// So many reads in a row that use little of the buffer make the next ones smaller.
const SHRINK_AFTER: u8 = 16;

/// There is no room for the frame that has begun: the budget for begun frames is used up.
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
    budgets: Arc<Budgets>,
    /// Bytes taken from the budget for the frame that has begun.
    reserved: usize,
    /// The buffer was made for one large frame and belongs to no class.
    large: bool,
}

impl Reader {
    pub(crate) fn new(max_frame_len: usize, budgets: Arc<Budgets>) -> Self {
        Self {
            buffer: BytesMut::new(),
            class: buffer_pool::SMALLEST,
            small_reads: 0,
            need: 0,
            max_frame_len,
            budgets,
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
        } else if spare < missing || held < size / 4 && spare < size / 2 {
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
        if !self.budgets.begun.take(more) {
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
                    self.budgets.begun.give(std::mem::take(&mut self.reserved));
                }
                Ok(Some(self.buffer.split_to(len).freeze()))
            }
        }
    }

    /// Is a frame begun and not whole?
    pub(crate) fn has_rest(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The socket has nothing more for now: hold as little memory as possible, and account for it.
    pub(crate) fn rest(&mut self) -> Result<(), NoRoom> {
        let (held, capacity) = (self.buffer.len(), self.buffer.capacity());
        if held == 0 {
            if capacity > 0 || self.large {
                self.replace(BytesMut::new());
            }
            return Ok(());
        }
        if !self.large && held <= capacity / 4 {
            let own = BytesMut::from(&self.buffer[..]);
            self.replace(own);
        }
        let more = self.buffer.capacity().saturating_sub(self.reserved);
        if more > FREE_REST {
            if !self.budgets.begun.take(more) {
                return Err(NoRoom {
                    frame_len: self.need,
                });
            }
            self.reserved += more;
        }
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.budgets.begun.give(self.reserved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    /// Small, reproducible pseudo-random numbers.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % limit
        }
    }

    fn frame(number: u32, len: usize) -> Vec<u8> {
        let mut frame = ((len - 4) as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&[0, 0, 0, 0]);
        frame.extend(number.to_be_bytes().iter().cycle().take(len - 8));
        frame
    }

    #[test]
    fn frames_of_all_sizes_come_out_as_they_went_in_however_they_are_cut() {
        let budgets = Arc::new(Budgets {
            begun: Budget::new(64 << 20),
            queued: Budget::new(0),
        });
        let mut random = Random(7);
        for round in 0..20 {
            let mut reader = Reader::new(16 << 20, budgets.clone());
            let sizes = [40, 3_000, 70_000, 300_000, 2_000_000];
            let largest = sizes[round % sizes.len()];
            let frames: Vec<_> = (0..40)
                .map(|number| frame(number, 8 + random.below(largest)))
                .collect();
            let stream = frames.concat();
            let (mut at, mut found, mut kept) = (0, 0, Vec::new());
            while at < stream.len() {
                let room = reader.room().expect("room");
                let spare = room.capacity() - room.len();
                assert!(spare > 0);
                let read = (1 + random.below(2 * largest))
                    .min(spare)
                    .min(stream.len() - at);
                room.extend_from_slice(&stream[at..at + read]);
                at += read;
                reader.filled(read, spare);
                while let Some(frame) = reader.next_frame().expect("a frame") {
                    assert!(frame == frames[found], "frame {found} of round {round}");
                    found += 1;
                    // Some are held for long, some for a while.
                    if random.below(4) == 0 {
                        kept.push(frame);
                    }
                }
                if random.below(3) == 0 {
                    reader.rest().expect("room to rest");
                }
                if random.below(5) == 0 {
                    kept.clear();
                }
            }
            assert_eq!((found, reader.has_rest()), (frames.len(), false));
            assert_eq!(budgets.begun.used(), 0);
        }
    }

    #[test]
    fn a_begun_frame_is_accounted_for_and_given_back_when_its_connection_goes() {
        let budgets = Arc::new(Budgets {
            begun: Budget::new(3 << 20),
            queued: Budget::new(0),
        });
        let begin = |len: usize| {
            let mut reader = Reader::new(16 << 20, budgets.clone());
            let bytes = frame(1, len);
            let mut left = &bytes[..len - 1];
            while !left.is_empty() {
                let room = reader.room()?;
                let part = left.len().min(room.capacity() - room.len());
                room.extend_from_slice(&left[..part]);
                left = &left[part..];
                assert_eq!(reader.next_frame(), Ok(None));
                reader.rest()?;
            }
            Ok(reader)
        };
        let small = begin(10_000).expect("free");
        assert_eq!(budgets.begun.used(), 0);
        let middle = begin(200_000).expect("room");
        assert!(
            (200_000..600_000).contains(&budgets.begun.used()),
            "{}",
            budgets.begun.used()
        );
        let large = begin(2 << 20).expect("room");
        assert_eq!(begin(2 << 20).err(), Some(NoRoom { frame_len: 2 << 20 }));
        drop((small, middle, large));
        assert_eq!(budgets.begun.used(), 0);
    }
}
