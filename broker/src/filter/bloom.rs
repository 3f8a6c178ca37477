//! Bloom bits of registered filters (broker spec 10.5), bit for bit as RocketMQ stores them
//! in the consume queue's extension file. What is evaluated against them lives elsewhere.

/// Parameters of the filter bits: `k` positions out of `m` bits for each name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BloomParameters {
    k: u32,
    m: u32,
}

impl BloomParameters {
    /// `error_rate` in percent (1..=99, key `maxErrorRateOfBloomFilter`), `expected` names
    /// (at least 1, key `expectConsumerNumUseFilter`). `None` when one is out of range.
    pub fn new(error_rate: i32, expected: i32) -> Option<Self> {
        if !(1..100).contains(&error_rate) || expected < 1 {
            return None;
        }
        let rate = f64::from(error_rate) / 100.0;
        let k = (rate.ln() / 0.5f64.ln()).ceil();
        let bits =
            (f64::from(expected) * (1.0 / rate).ln() / 2f64.ln() * std::f64::consts::LOG2_E).ceil();
        let m = (bits / 8.0).ceil() * 8.0;
        if m > f64::from(i32::MAX) {
            return None;
        }
        Some(Self {
            k: k as u32,
            m: m as u32,
        })
    }

    /// Positions a name.
    pub fn k(&self) -> u32 {
        self.k
    }

    /// Bits in all, a multiple of 8.
    pub fn m(&self) -> u32 {
        self.m
    }

    /// The bit positions of `name` (a filter's name is `GROUP#TOPIC`), in the order RocketMQ computes them.
    pub fn positions(&self, name: &str) -> Vec<u32> {
        let hash = murmur3_low64(name.as_bytes());
        let (h1, h2) = (hash as u32 as i32, (hash >> 32) as u32 as i32);
        (1..=self.k as i32)
            .map(|i| {
                let combined = h1.wrapping_add(i.wrapping_mul(h2));
                let positive = if combined < 0 { !combined } else { combined };
                positive as u32 % self.m
            })
            .collect()
    }

    /// An empty bit set of `m / 8` bytes.
    pub fn empty_bits(&self) -> Vec<u8> {
        vec![0; (self.m / 8) as usize]
    }
}

/// Sets each position in `bits`; positions beyond its end are ignored.
pub fn set_bits(bits: &mut [u8], positions: &[u32]) {
    for &position in positions {
        if let Some(byte) = bits.get_mut((position / 8) as usize) {
            *byte |= 1 << (position % 8);
        }
    }
}

/// Whether every position is set; a position beyond the end is not.
pub fn all_set(bits: &[u8], positions: &[u32]) -> bool {
    positions.iter().all(|&position| {
        bits.get((position / 8) as usize)
            .is_some_and(|byte| byte & (1 << (position % 8)) != 0)
    })
}

/// First half of murmur3 x64 128 with seed 0.
fn murmur3_low64(data: &[u8]) -> u64 {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let mix1 = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix2 = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let word = |part: &[u8]| {
        part.iter()
            .rev()
            .fold(0u64, |sum, &b| (sum << 8) | u64::from(b))
    };
    let (mut h1, mut h2) = (0u64, 0u64);
    let blocks = data.chunks_exact(16);
    let tail = blocks.remainder();
    for block in blocks {
        let (low, high) = block.split_at(8);
        h1 = (h1 ^ mix1(word(low)))
            .rotate_left(27)
            .wrapping_add(h2)
            .wrapping_mul(5)
            .wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix2(word(high)))
            .rotate_left(31)
            .wrapping_add(h1)
            .wrapping_mul(5)
            .wrapping_add(0x3849_5ab5);
    }
    let (low, high) = tail.split_at(tail.len().min(8));
    h2 ^= mix2(word(high));
    h1 ^= mix1(word(low));
    h1 ^= data.len() as u64;
    h2 ^= data.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    let finish = |mut k: u64| {
        k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        k ^ (k >> 33)
    };
    finish(h1).wrapping_add(finish(h2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(name: &str) -> Vec<Vec<String>> {
        let path = format!(
            "{}/../tests/golden/values/{name}",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        text.lines()
            .skip(1)
            .map(|l| l.split('\t').map(String::from).collect())
            .collect()
    }

    #[test]
    fn positions_and_bits_equal_the_recorded_ones() {
        let parameters = BloomParameters::new(20, 32).unwrap();
        assert_eq!((parameters.k(), parameters.m()), (3, 112));
        let rows = rows("bloom-f20-n32.tsv");
        assert!(rows.len() > 10);
        for row in rows {
            let name: String = serde_json::from_str(&row[0]).unwrap();
            let expected: Vec<u32> = serde_json::from_str(&row[1]).unwrap();
            let positions = parameters.positions(&name);
            assert_eq!(positions, expected, "{name}");
            let mut bits = parameters.empty_bits();
            set_bits(&mut bits, &positions);
            let hex: String = bits.iter().map(|b| format!("{b:02X}")).collect();
            assert_eq!(hex, row[2], "{name}");
            assert!(all_set(&bits, &positions));
        }
    }

    #[test]
    fn parameters_equal_the_recorded_ones() {
        for row in rows("bloom-params.tsv") {
            let number = |i: usize| row[i].parse::<i32>();
            let (Ok(rate), Ok(expected)) = (number(0), number(1)) else {
                panic!("{row:?}")
            };
            match (number(2), number(3)) {
                (Ok(k), Ok(m)) => {
                    let p =
                        BloomParameters::new(rate, expected).unwrap_or_else(|| panic!("{row:?}"));
                    assert_eq!((p.k() as i32, p.m() as i32), (k, m), "{row:?}");
                }
                _ => assert_eq!(BloomParameters::new(rate, expected), None, "{row:?}"),
            }
        }
    }
}
