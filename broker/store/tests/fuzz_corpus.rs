//! Runs what the fuzz target `recovery` runs over its seeds and findings (fuzz/corpus/recovery).
//!
//! `MINIMQ_SOAK_S` adds so many seconds of random damage.

use std::path::Path;
use std::time::{Duration, Instant};

#[path = "../../../fuzz/entry/recovery.rs"]
mod recovery;

#[test]
fn damaged_stores_are_opened_or_refused_and_nothing_is_invented() {
    let folder = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/recovery"
    ));
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    for path in paths {
        println!("{}", path.display());
        recovery::run(&std::fs::read(&path).unwrap());
    }

    let soak: u64 = std::env::var("MINIMQ_SOAK_S")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(0);
    let (begun, mut random, mut runs) = (Instant::now(), 0x9E37_79B9_7F4A_7C15_u64, 0_u64);
    let seed = std::env::var("MINIMQ_SOAK_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1_u64);
    random ^= seed.wrapping_mul(0x2545_F491_4F6C_DD1D);
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 24) as u8
    };
    while begun.elapsed() < Duration::from_secs(soak) {
        let len = 1 + 7 * usize::from(next() % 10);
        let program: Vec<u8> = (0..len).map(|_| next()).collect();
        // A run that fails is found again by its bytes.
        let hex: String = program.iter().map(|byte| format!("{byte:02x}")).collect();
        let run = std::panic::catch_unwind(|| recovery::run(&program));
        assert!(run.is_ok(), "fails with {hex}");
        runs += 1;
    }
    if soak > 0 {
        println!("{runs} random damages");
    }
}
