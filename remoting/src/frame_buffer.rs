//! Bytes on their way out: encoded heads in one buffer, large bodies beside them as they are, all handed to
//! the socket together. Who writes them, and when, is not known here.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Bytes, BytesMut};
use minimq_protocol::{
    Command, Header, RequestId, SerializeType, encode_answer_head, encode_request_head,
};

use crate::buffer_pool;

/// Bodies shorter than this are copied behind their head: cheaper than a piece of their own.
const COPY_BELOW: usize = 2048;
/// Pieces handed to one system call.
pub(crate) const MAX_SLICES: usize = 128;

/// A buffer with less than this in it is grown rather than followed by another.
const SMALL: usize = buffer_pool::size_of_class(buffer_pool::SMALLEST) / 2;
/// Room a head is likely to need.
const USUAL_HEAD: usize = 768;

enum Piece {
    /// So many bytes from the front of `heads`.
    Heads(usize),
    /// A buffer of heads that became full, or a part of one.
    Full(BytesMut),
    Body(Bytes),
}

/// Frames to be written, in order.
#[derive(Default)]
pub struct FrameBuffer {
    /// Where heads are encoded now. All [`Piece::Heads`] together are its length; none is before a [`Piece::Full`].
    heads: BytesMut,
    pieces: VecDeque<Piece>,
    len: usize,
}

impl FrameBuffer {
    /// An empty buffer; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is nothing in it?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a whole command. Its body is copied when short, shared otherwise. Returns the frame's length.
    pub fn push(&mut self, command: &Command) -> usize {
        let head = self.head(command.body.len(), |out| command.encode_head(out));
        self.push_body(&command.body);
        head + command.body.len()
    }

    /// Appends a command whose body is its own body and `body` behind it. Returns the frame's length.
    pub fn push_with_slices(&mut self, command: &Command, body: &[Bytes]) -> usize {
        let body_len = command.body.len() + body.iter().map(Bytes::len).sum::<usize>();
        let head = self.head(body_len, |out| command.encode_head_for(out, body_len));
        self.push_body(&command.body);
        for slice in body {
            self.push_body(slice);
        }
        head + body_len
    }

    /// Appends an answer without building a command; `body` follows the head, slice by slice.
    /// Returns the frame's length.
    pub fn push_answer<'h>(
        &mut self,
        to: RequestId,
        code: i32,
        remark: Option<&str>,
        header: Option<&impl Header<'h>>,
        body: &[Bytes],
    ) -> usize {
        let body_len = body.iter().map(Bytes::len).sum();
        let head = self.head(body_len, |out| {
            encode_answer_head(out, to.serialize, to.opaque, code, remark, header, body_len);
        });
        for slice in body {
            self.push_body(slice);
        }
        head + body_len
    }

    /// Appends a request without building a command. Its body is copied when short, shared otherwise. Returns the
    /// frame's length.
    pub fn push_request<'h>(
        &mut self,
        serialize: SerializeType,
        code: i32,
        opaque: i32,
        header: &impl Header<'h>,
        body: &Bytes,
    ) -> usize {
        let head = self.head(body.len(), |out| {
            encode_request_head(out, serialize, code, opaque, header, body.len());
        });
        self.push_body(body);
        head + body.len()
    }

    /// Appends bytes that are already encoded frames.
    pub fn push_encoded(&mut self, frames: &Bytes) {
        self.push_body(frames);
    }

    /// Takes off all that is behind the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        while self.len > len {
            let over = self.len - len;
            let (cut, whole) = match self.pieces.back_mut() {
                None => return,
                Some(Piece::Heads(n)) => {
                    let cut = over.min(*n);
                    self.heads.truncate(self.heads.len() - cut);
                    *n -= cut;
                    (cut, *n == 0)
                }
                Some(Piece::Full(buffer)) => {
                    let cut = over.min(buffer.len());
                    buffer.truncate(buffer.len() - cut);
                    (cut, buffer.is_empty())
                }
                Some(Piece::Body(body)) => {
                    let cut = over.min(body.len());
                    body.truncate(body.len() - cut);
                    (cut, body.is_empty())
                }
            };
            self.len -= cut;
            if whole {
                self.pieces.pop_back();
            }
        }
    }

    /// Moves everything from `other` to the end of this one. Little is copied, much is taken over as it is.
    pub fn append(&mut self, other: &mut FrameBuffer) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        let full = |piece: &Piece| matches!(piece, Piece::Full(_));
        if other.pieces.iter().any(full) || other.heads.len() > SMALL {
            self.seal();
            self.pieces.append(&mut other.pieces);
            std::mem::swap(&mut self.heads, &mut other.heads);
            self.len += other.len;
            other.clear();
            return;
        }
        self.heads_mut(other.heads.len())
            .extend_from_slice(&other.heads);
        for piece in other.pieces.drain(..) {
            match (piece, self.pieces.back_mut()) {
                (Piece::Heads(more), Some(Piece::Heads(n))) => *n += more,
                (piece, _) => self.pieces.push_back(piece),
            }
        }
        self.len += other.len;
        other.clear();
    }

    /// Throws everything away and gives its memory back.
    pub fn clear(&mut self) {
        self.len = 0;
        for piece in self.pieces.drain(..) {
            if let Piece::Full(buffer) = piece {
                buffer_pool::give(buffer);
            }
        }
        if self.pieces.capacity() > 2 * MAX_SLICES {
            self.pieces = VecDeque::new();
        }
        if self.heads.capacity() > 0 {
            buffer_pool::give(std::mem::take(&mut self.heads));
        }
    }

    /// Fills `slices` from the front; says how many were filled.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; MAX_SLICES]) -> usize {
        let mut heads = &self.heads[..];
        let mut used = 0;
        for (slot, piece) in slices.iter_mut().zip(&self.pieces) {
            *slot = match piece {
                Piece::Heads(n) => {
                    let (now, later) = heads.split_at(*n);
                    heads = later;
                    IoSlice::new(now)
                }
                Piece::Full(buffer) => IoSlice::new(buffer),
                Piece::Body(body) => IoSlice::new(body),
            };
            used += 1;
        }
        used
    }

    /// Forgets `written` bytes at the front.
    pub(crate) fn advance(&mut self, mut written: usize) {
        debug_assert!(written <= self.len);
        self.len -= written;
        if self.len == 0 {
            self.clear();
            return;
        }
        while written > 0 {
            let whole = match self.pieces.front_mut() {
                None => return,
                Some(Piece::Heads(n)) => {
                    let part = written.min(*n);
                    bytes::Buf::advance(&mut self.heads, part);
                    *n -= part;
                    written -= part;
                    *n == 0
                }
                Some(Piece::Full(buffer)) => {
                    let part = written.min(buffer.len());
                    bytes::Buf::advance(buffer, part);
                    written -= part;
                    if buffer.is_empty() {
                        buffer_pool::give(std::mem::take(buffer));
                        true
                    } else {
                        false
                    }
                }
                Some(Piece::Body(body)) => {
                    let part = written.min(body.len());
                    bytes::Buf::advance(body, part);
                    written -= part;
                    body.is_empty()
                }
            };
            if whole {
                self.pieces.pop_front();
            }
        }
    }

    /// The buffer to encode into, likely with room for `more`. A full one is not grown, which would copy it, but
    /// followed by another, a larger one if it was small.
    fn heads_mut(&mut self, more: usize) -> &mut BytesMut {
        let capacity = self.heads.capacity();
        if capacity == 0 {
            self.heads = buffer_pool::take(buffer_pool::SMALLEST);
        } else if capacity - self.heads.len() < more && self.heads.len() > SMALL {
            self.seal();
            self.heads = buffer_pool::take(buffer_pool::class_above(capacity));
        }
        &mut self.heads
    }

    /// Turns what is in `heads` into pieces of its own.
    fn seal(&mut self) {
        let mut rest = std::mem::take(&mut self.heads);
        for piece in &mut self.pieces {
            if let Piece::Heads(n) = piece {
                let part = if *n == rest.len() {
                    std::mem::take(&mut rest)
                } else {
                    rest.split_to(*n)
                };
                *piece = Piece::Full(part);
            }
        }
    }

    fn head(&mut self, body_len: usize, encode: impl FnOnce(&mut BytesMut)) -> usize {
        let copied = if body_len < COPY_BELOW { body_len } else { 0 };
        let heads = self.heads_mut(USUAL_HEAD + copied);
        let before = heads.len();
        encode(heads);
        let added = heads.len() - before;
        self.added_to_heads(added);
        added
    }

    fn push_body(&mut self, body: &Bytes) {
        if body.is_empty() {
        } else if body.len() < COPY_BELOW {
            self.heads_mut(body.len()).extend_from_slice(body);
            self.added_to_heads(body.len());
        } else {
            self.pieces.push_back(Piece::Body(body.clone()));
            self.len += body.len();
        }
    }

    fn added_to_heads(&mut self, added: usize) {
        self.len += added;
        match self.pieces.back_mut() {
            Some(Piece::Heads(n)) => *n += added,
            _ => self.pieces.push_back(Piece::Heads(added)),
        }
    }
}

impl std::fmt::Debug for FrameBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameBuffer")
            .field("len", &self.len)
            .field("pieces", &self.pieces.len())
            .finish()
    }
}
