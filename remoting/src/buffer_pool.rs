//! Spare buffers, a few for each worker thread, in three sizes. A connection holds a buffer only while it has
//! bytes in it, so thousands of idle connections hold none.
//! What is read into them and written from them is not known here.

use std::cell::RefCell;

use bytes::BytesMut;

/// Size of each class and how many spare buffers a thread keeps of it.
const CLASSES: [(usize, usize); 3] = [(8 << 10, 32), (64 << 10, 8), (256 << 10, 4)];

/// The class with the smallest buffers.
pub(crate) const SMALLEST: usize = 0;
/// The class with the largest buffers.
pub(crate) const LARGEST: usize = CLASSES.len() - 1;

thread_local! {
    static SPARE: RefCell<[Vec<BytesMut>; CLASSES.len()]> = const { RefCell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

/// Size in bytes of the buffers of a class.
pub(crate) const fn size_of_class(class: usize) -> usize {
    CLASSES[if class < LARGEST { class } else { LARGEST }].0
}

/// The class above that of a buffer.
pub(crate) fn class_above(capacity: usize) -> usize {
    let below = CLASSES.iter().filter(|(size, _)| *size <= capacity);
    below.count().min(LARGEST)
}

/// An empty buffer with at least the size of its class.
pub(crate) fn take(class: usize) -> BytesMut {
    let class = class.min(LARGEST);
    SPARE
        .with_borrow_mut(|spare| spare[class].pop())
        .unwrap_or_else(|| BytesMut::with_capacity(CLASSES[class].0))
}

/// Gives a buffer back, whatever is in it. It is freed instead when frames cut from it are still alive, when
/// it fits no class, or when the thread has enough spare ones.
pub(crate) fn give(mut buffer: BytesMut) {
    buffer.clear();
    if buffer.capacity() > 2 * CLASSES[LARGEST].0 {
        return;
    }
    for class in (0..CLASSES.len()).rev() {
        let (size, keep) = CLASSES[class];
        if buffer.try_reclaim(size) {
            SPARE.with_borrow_mut(|spare| {
                if spare[class].len() < keep && buffer.capacity() <= 2 * CLASSES[LARGEST].0 {
                    spare[class].push(buffer);
                }
            });
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_given_back_is_handed_out_again() {
        let mut buffer = take(1);
        buffer.extend_from_slice(b"frame");
        let frame = buffer.split_to(5).freeze();
        drop(frame);
        give(buffer);
        let again = take(1);
        assert!(again.is_empty());
        assert!(again.capacity() >= size_of_class(1));
    }

    #[test]
    fn a_buffer_whose_frames_are_alive_is_not_reused() {
        let mut buffer = take(SMALLEST);
        buffer.extend_from_slice(b"frame");
        let frame = buffer.split_to(5).freeze();
        give(buffer);
        let mut other = take(SMALLEST);
        other.extend_from_slice(b"XXXXX");
        assert_eq!(&frame[..], b"frame");
    }
}
