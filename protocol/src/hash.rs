//! Java's string hash and the codes made from it: tag codes and index keys (wire spec 7.8, store spec on the index).

/// A Java string hash that is fed piece by piece: `h = 31 * h + c` over UTF-16 code units, wrapping in 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JavaHash(i32);

impl JavaHash {
    /// Hashes on over `text`.
    #[must_use]
    pub fn update(self, text: &str) -> Self {
        let mut hash = self.0;
        if text.is_ascii() {
            for &byte in text.as_bytes() {
                hash = hash.wrapping_mul(31).wrapping_add(i32::from(byte));
            }
        } else {
            for unit in text.encode_utf16() {
                hash = hash.wrapping_mul(31).wrapping_add(i32::from(unit));
            }
        }
        Self(hash)
    }

    /// The hash of what was fed so far.
    #[must_use]
    pub fn finish(self) -> i32 {
        self.0
    }

    /// The absolute value, as the index file keeps it; 0 where that does not fit.
    #[must_use]
    pub fn index_hash(self) -> i32 {
        self.0.checked_abs().unwrap_or(0)
    }
}

/// `String.hashCode()`.
#[must_use]
pub fn java_string_hash(text: &str) -> i32 {
    JavaHash::default().update(text).finish()
}

/// The tags code of a consume-queue entry: the sign-extended hash of the whole `TAGS` value, 0 if there is none.
#[must_use]
pub fn tags_code(tags: Option<&str>) -> i64 {
    tags.map_or(0, |tags| i64::from(java_string_hash(tags)))
}

/// The hash under which the index file keeps `topic#key`, see [`JavaHash::index_hash`].
#[must_use]
pub fn index_key_hash(topic: &str, key: &str) -> i32 {
    JavaHash::default()
        .update(topic)
        .update("#")
        .update(key)
        .index_hash()
}
