//! Upper-case hexadecimal text of message ids and unique keys (wire spec 7.6).

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Writes the digits of `bytes` to the front of `out` and returns them; `None` if `out` is shorter than two digits a byte.
pub fn write<'a>(bytes: &[u8], out: &'a mut [u8]) -> Option<&'a str> {
    let out = out.get_mut(..bytes.len() * 2)?;
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    }
    std::str::from_utf8(out).ok()
}

/// The digits of `bytes`, upper case.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Reads digits of either case; `None` for an odd number of them or any other character.
///
/// RocketMQ reads any character as some digit and so takes garbage for an id; this does not.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![0; text.len() / 2];
    decode_into(text, &mut bytes)?;
    Some(bytes)
}

/// As [`decode`], into a buffer that must have exactly the right length.
#[must_use]
pub fn decode_into(text: &str, out: &mut [u8]) -> Option<()> {
    if text.len() != out.len() * 2 {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let [high, low] = *pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(())
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'A'..=b'F' => Some(character - b'A' + 10),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}
