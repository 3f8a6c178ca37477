//! Buffers for bytes that are read from files, used again when the last slice of one is dropped.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes of a buffer that is kept; a longer one is made for one use.
pub(super) const BUFFER_LEN: usize = 64 * 1024;

/// Buffers kept for later.
const KEPT: usize = 64;

/// Buffers not in use.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    free: Mutex<Vec<Vec<u8>>>,
}

/// A buffer in use: it goes back to its pool when it is dropped.
struct Pooled {
    bytes: Vec<u8>,
    used: usize,
    pool: Arc<BufferPool>,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
    }
}

impl BufferPool {
    /// Has `fill` fill a buffer of `len` bytes and say how many it filled.
    pub(super) fn filled<E>(
        self: &Arc<Self>,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Bytes, E> {
        let mut pooled = Pooled {
            bytes: self.free.lock().pop().unwrap_or_default(),
            used: 0,
            pool: Arc::clone(self),
        };
        if pooled.bytes.len() < len {
            pooled.bytes.resize(len.max(BUFFER_LEN), 0);
        }
        pooled.used = fill(&mut pooled.bytes[..len])?.min(len);
        Ok(Bytes::from_owner(pooled))
    }

    fn give_back(&self, bytes: Vec<u8>) {
        let mut free = self.free.lock();
        if bytes.len() == BUFFER_LEN && free.len() < KEPT {
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_once_all_its_slices_are_gone() {
        let pool = Arc::<BufferPool>::default();
        let fill = |byte: u8, len| {
            pool.filled(len, |b| {
                Ok::<_, ()>({
                    b.fill(byte);
                    b.len()
                })
            })
            .unwrap()
        };
        let first = fill(1, 100);
        let part = first.slice(10..20);
        drop(first);
        assert_eq!(pool.free.lock().len(), 0);
        assert_eq!(part, [1; 10][..]);
        drop(part);
        assert_eq!(pool.free.lock().len(), 1);
        drop(fill(2, 200));
        assert_eq!(pool.free.lock().len(), 1);
        drop(fill(3, BUFFER_LEN + 1));
        assert!(pool.free.lock().len() <= 1, "a long one is not kept");
    }
}
