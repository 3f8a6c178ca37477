//! Text to numbers exactly as Java's `Integer`, `Long` and `Double.valueOf` read it.

/// The decimal digits of the basic multilingual plane that Java takes beside ASCII: the zero of each block.
const OTHER_ZEROS: [u32; 36] = [
    0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66,
    0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90,
    0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10,
];

/// Digits of which every number fits into 64 bits.
const NEVER_TOO_LONG: usize = 18;

fn digit(c: char) -> Option<i64> {
    if let Some(d) = c.to_digit(10) {
        return Some(i64::from(d));
    }
    let code = c as u32;
    OTHER_ZEROS
        .iter()
        .find(|&&zero| (zero..zero + 10).contains(&code))
        .map(|zero| i64::from(code - zero))
}

/// A 64-bit decimal: optional sign, then digits only.
pub(super) fn long(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    if digits.len() <= NEVER_TOO_LONG
        && let Some(n) = digits.bytes().try_fold(0, |sum: i64, byte| {
            let digit = byte.wrapping_sub(b'0');
            (digit < 10).then(|| sum * 10 + i64::from(digit))
        })
    {
        return Some(if negative { -n } else { n });
    }
    digits.chars().try_fold(0i64, |sum, c| {
        let d = digit(c)?;
        let tens = sum.checked_mul(10)?;
        if negative {
            tens.checked_sub(d)
        } else {
            tens.checked_add(d)
        }
    })
}

/// A 32-bit decimal.
pub(super) fn int(text: &str) -> Option<i32> {
    long(text).and_then(|n| i32::try_from(n).ok())
}

/// A double: blanks around it, sign, `NaN`, `Infinity`, decimal or hexadecimal digits, a trailing `d` or `f`.
pub(super) fn double(text: &str) -> Option<f64> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = match rest {
        "NaN" => f64::NAN,
        "Infinity" => f64::INFINITY,
        _ => {
            let body = rest.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(rest);
            match body.strip_prefix("0x").or_else(|| body.strip_prefix("0X")) {
                // The suffix letters are hexadecimal digits too, but the exponent is obligatory
                // and decimal, so a suffix can only stand behind it.
                Some(hexadecimal) => hex_magnitude(hexadecimal)?,
                None => decimal_magnitude(body)?,
            }
        }
    };
    Some(if negative { -magnitude } else { magnitude })
}

fn decimal_magnitude(body: &str) -> Option<f64> {
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
        return None;
    }
    if let Some(exponent) = exponent {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if unsigned.is_empty() || !digits(unsigned) {
            return None;
        }
    }
    body.parse().ok()
}

/// `HEX.HEXpEXP` without the leading `0x`, rounded to the nearest double.
fn hex_magnitude(body: &str) -> Option<f64> {
    let at = body.find(['p', 'P'])?;
    let (mantissa, exponent) = (&body[..at], &body[at + 1..]);
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let exponent: i64 = exponent.parse().unwrap_or(if exponent.starts_with('-') {
        -1 << 40
    } else {
        1 << 40
    });
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    let mut significand = 0u64;
    let mut scale = exponent;
    let mut sticky = false;
    for (i, c) in whole.chars().chain(fraction.chars()).enumerate() {
        let nibble = u64::from(c.to_digit(16)?);
        if significand >> 58 == 0 {
            significand = (significand << 4) | nibble;
            scale -= if i >= whole.len() { 4 } else { 0 };
        } else {
            sticky |= nibble != 0;
            scale += if i >= whole.len() { 0 } else { 4 };
        }
    }
    Some(scale_to_double(significand, sticky, scale))
}

/// `significand · 2^scale` to the nearest double, ties to even; `sticky` stands for lost non-zero bits below.
fn scale_to_double(significand: u64, sticky: bool, scale: i64) -> f64 {
    if significand == 0 {
        return 0.0;
    }
    let width = 64 - i64::from(significand.leading_zeros());
    let top = width + scale; // value lies in [2^(top-1), 2^top)
    if top > 1024 {
        return f64::INFINITY;
    }
    if top < -1074 {
        return 0.0;
    }
    let kept = if top > -1021 { 53 } else { 53 - (-1021 - top) };
    let dropped = width - kept;
    let (rounded, unit) = if dropped <= 0 {
        (significand, scale)
    } else {
        let dropped = dropped as u32;
        let (head, tail) = if dropped >= 64 {
            (0, significand)
        } else {
            (significand >> dropped, significand & ((1 << dropped) - 1))
        };
        let half = 1u64 << (dropped - 1).min(63);
        let up = tail > half || (tail == half && (sticky || head & 1 == 1));
        (head + u64::from(up), scale + i64::from(dropped))
    };
    // At most 53 significant bits are left, so the two exact multiplications do not round again.
    let half_unit = (unit / 2) as i32;
    rounded as f64 * 2f64.powi(half_unit) * 2f64.powi((unit - i64::from(half_unit)) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_as_java_reads_them() {
        assert_eq!(int("+5"), Some(5));
        assert_eq!(int("-2147483648"), Some(i32::MIN));
        assert_eq!(int("2147483648"), None);
        assert_eq!(long("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(long("9223372036854775808"), None);
        assert_eq!(long("１２"), Some(12));
        for bad in ["", "+", "-", " 5", "5 ", "5.0", "+-5", "0x5", "中"] {
            assert_eq!(long(bad), None, "{bad}");
        }
    }

    #[test]
    fn doubles_as_java_reads_them() {
        for (text, value) in [
            ("1e3", 1000.0),
            (" 5 ", 5.0),
            ("5.", 5.0),
            (".5", 0.5),
            ("1.5d", 1.5),
            ("1F", 1.0),
            ("-Infinity", f64::NEG_INFINITY),
            ("0x1p3", 8.0),
            ("0x1.8p1d", 3.0),
            ("0X.8P0", 0.5),
            ("0x1p-1074", f64::from_bits(1)),
            ("0x1.fffffffffffff7p1023", f64::MAX),
            ("0x1.fffffffffffff8p1023", f64::INFINITY),
            ("1e400", f64::INFINITY),
        ] {
            assert_eq!(double(text), Some(value), "{text}");
        }
        assert!(double("NaN").unwrap().is_nan());
        for bad in [
            "",
            "inf",
            "nan",
            "infinity",
            "1e",
            ".",
            "e5",
            "1_0",
            "0x1",
            "d",
            "1dd",
            "--1",
            "Infinityd",
        ] {
            assert_eq!(double(bad), None, "{bad}");
        }
    }
}
