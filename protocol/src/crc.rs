//! The body checksum of a message (wire spec 7.1, field 3). Nothing else of a record is covered by a checksum.

/// CRC-32 (IEEE 802.3, as in zlib) of a stored body with the top bit cleared; 0 for no body.
///
/// The body is taken as stored, i.e. compressed if it is sent compressed.
#[must_use]
pub fn body_crc(body: &[u8]) -> i32 {
    (crc32fast::hash(body) & 0x7FFF_FFFF).cast_signed()
}
