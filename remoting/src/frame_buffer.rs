//! Bytes on their way out: encoded heads in one buffer, large bodies beside them as they are, all handed to
//! the socket together. Who writes them, and when, is not known here.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Bytes, BytesMut};
use minimq_protocol::{Command, Header, RequestId, encode_answer_head};

use crate::buffer_pool;

/// Bodies shorter than this are copied behind their head: cheaper than a piece of their own.
const COPY_BELOW: usize = 2048;
/// Pieces handed to one system call.
pub(crate) const MAX_SLICES: usize = 128;

enum Piece {
    /// So many bytes from the front of `heads`.
    Heads(usize),
    Body(Bytes),
}

/// An end that a buffer once had.
pub(crate) struct Mark {
    heads: usize,
    pieces: usize,
    last_heads: usize,
    len: usize,
}

/// Frames to be written, in order.
#[derive(Default)]
pub struct FrameBuffer {
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
        let head = self.head(|out| command.encode_head(out));
        self.push_body(&command.body);
        head + command.body.len()
    }

    /// Appends a command whose body is its own body and `body` behind it. Returns the frame's length.
    pub fn push_with_slices(&mut self, command: &Command, body: &[Bytes]) -> usize {
        let body_len = command.body.len() + body.iter().map(Bytes::len).sum::<usize>();
        let head = self.head(|out| command.encode_head_for(out, body_len));
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
        let head = self.head(|out| {
            encode_answer_head(out, to.serialize, to.opaque, code, remark, header, body_len);
        });
        for slice in body {
            self.push_body(slice);
        }
        head + body_len
    }

    /// Appends bytes that are already encoded frames.
    pub fn push_encoded(&mut self, frames: &Bytes) {
        self.push_body(frames);
    }

    /// The present end, for [`truncate`](Self::truncate).
    pub(crate) fn mark(&self) -> Mark {
        let last_heads = match self.pieces.back() {
            Some(Piece::Heads(n)) => *n,
            _ => 0,
        };
        Mark {
            heads: self.heads.len(),
            pieces: self.pieces.len(),
            last_heads,
            len: self.len,
        }
    }

    /// Takes off what was pushed since the mark.
    pub(crate) fn truncate(&mut self, mark: Mark) {
        self.heads.truncate(mark.heads);
        self.pieces.truncate(mark.pieces);
        if let (Some(Piece::Heads(n)), 1..) = (self.pieces.back_mut(), mark.last_heads) {
            *n = mark.last_heads;
        }
        self.len = mark.len;
    }

    /// Moves everything from `other` to the end of this one.
    pub fn append(&mut self, other: &mut FrameBuffer) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        self.heads_mut().extend_from_slice(&other.heads);
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
        self.pieces.clear();
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

    fn heads_mut(&mut self) -> &mut BytesMut {
        if self.heads.capacity() == 0 {
            self.heads = buffer_pool::take(buffer_pool::SMALLEST);
        }
        &mut self.heads
    }

    fn head(&mut self, encode: impl FnOnce(&mut BytesMut)) -> usize {
        let heads = self.heads_mut();
        let before = heads.len();
        encode(heads);
        let added = heads.len() - before;
        self.added_to_heads(added);
        added
    }

    fn push_body(&mut self, body: &Bytes) {
        if body.is_empty() {
        } else if body.len() < COPY_BELOW {
            self.heads_mut().extend_from_slice(body);
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
