//! `minimq demo` as a user runs it: every step is right, its folder is gone, and its status says so.

use std::process::Command;

/// The steps, in their order.
const STEPS: [&str; 12] = [
    "cluster",
    "topic",
    "send",
    "route",
    "WASM filter",
    "broadcasting",
    "SQL filter",
    "ordered",
    "delay",
    "transaction",
    "lag",
    "statistics",
];

#[test]
fn the_tour_is_right_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_minimq"))
        .arg("demo")
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    let lines: Vec<&str> = text.lines().collect();
    let (steps, end) = lines.split_at(lines.len() - 1);
    // What happened, and how to do it oneself.
    assert_eq!(steps.len(), 2 * STEPS.len(), "{text}");
    for ((number, name), step) in (1..).zip(STEPS).zip(steps.chunks(2)) {
        assert!(
            step[0].starts_with(&format!("{number:>2} {name} ")),
            "{text}"
        );
        assert!(!step[0].contains("WRONG"), "{text}");
        assert!(step[1].trim_start().starts_with("> "), "{text}");
    }
    assert!(end[0].starts_with("All 12 steps were right"), "{text}");
    assert!(text.contains("30 of 100 messages came"), "{text}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
