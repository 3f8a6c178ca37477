//! Random numbers for spreading load and for ids that do not collide; not for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 64 random bits: the standard library's hasher keys, which the system seeds.
pub(crate) fn bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A number below `limit`; 0 when that is 0.
pub(crate) fn below(limit: usize) -> usize {
    match limit {
        0 => 0,
        // Modulo bias is far below what spreading load notices.
        _ => (bits() % limit as u64) as usize,
    }
}

/// 32 hexadecimal characters, for correlation ids.
pub(crate) fn id() -> String {
    format!("{:016x}{:016x}", bits(), bits())
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_differ_and_stay_below_the_limit() {
        assert_ne!(super::id(), super::id());
        assert!((0..100).all(|_| super::below(3) < 3));
        assert_eq!(super::below(0), 0);
    }
}
