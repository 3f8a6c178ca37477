//! Reading the golden tables: tab-separated, each cell JSON, a number or upper-case hexadecimal.
#![allow(dead_code)] // each test binary uses its part

pub(crate) mod frames;

use std::path::PathBuf;

use serde_json::Value;

/// A file of tests/golden; a missing one fails the test.
pub(crate) fn golden(path: &str) -> Vec<u8> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden")).join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of a table below its line of column names. Panics if there is none.
pub(crate) fn rows(table: &str) -> Vec<Vec<String>> {
    let text = String::from_utf8(golden(&format!("values/{table}.tsv"))).unwrap();
    let rows: Vec<Vec<String>> = text
        .lines()
        .skip(1)
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect();
    assert!(!rows.is_empty(), "{table} has no rows");
    rows
}

/// A cell that holds JSON.
pub(crate) fn json(cell: &str) -> Value {
    serde_json::from_str(cell).unwrap_or_else(|error| panic!("{cell}: {error}"))
}

/// A cell that holds a JSON string.
pub(crate) fn string(cell: &str) -> String {
    optional(cell).unwrap_or_else(|| panic!("{cell} is null"))
}

/// A cell that holds a JSON string or null.
pub(crate) fn optional(cell: &str) -> Option<String> {
    match json(cell) {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => panic!("{other} is no string"),
    }
}

/// A cell that holds a number (or any other thing that parses).
pub(crate) fn number<T: std::str::FromStr>(cell: &str) -> T {
    cell.parse()
        .ok()
        .unwrap_or_else(|| panic!("{cell} does not parse"))
}

/// A cell that holds bytes.
pub(crate) fn bytes(cell: &str) -> Vec<u8> {
    minimq_protocol::hex::decode(cell).unwrap_or_else(|| panic!("{cell} is not hexadecimal"))
}

/// The list of recorded frames.
pub(crate) fn frame_index() -> Vec<Value> {
    serde_json::from_slice(&golden("frames/index.json")).unwrap()
}

/// The body of a recorded frame.
pub(crate) fn frame_body(entry: &Value) -> Vec<u8> {
    let frame = golden(&format!("frames/{}", entry["file"].as_str().unwrap()));
    let body_len = usize::try_from(entry["bodyLength"].as_u64().unwrap()).unwrap();
    frame[frame.len() - body_len..].to_vec()
}
