//! Runs what the fuzz targets run over their seeds and findings (fuzz/corpus).

use std::path::Path;

#[path = "../../fuzz/entry/binary_header.rs"]
mod binary_header;
#[path = "../../fuzz/entry/frame.rs"]
mod frame;
#[path = "../../fuzz/entry/json.rs"]
mod json;
#[path = "../../fuzz/entry/json_header.rs"]
mod json_header;
#[path = "../../fuzz/entry/message.rs"]
mod message;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus")).join(target);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs = 0;
    for entry in entries {
        let path = entry.expect("entry").path();
        let data =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // Every beginning as well: most bugs sit where something ends too early.
        for len in 0..=data.len() {
            run(&data[..len]);
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}

#[test]
fn frames() {
    replay("frame", frame::run);
}

#[test]
fn json_texts_and_bodies() {
    replay("json", json::run);
}

#[test]
fn json_headers() {
    replay("json_header", json_header::run);
}

#[test]
fn binary_headers() {
    replay("binary_header", binary_header::run);
}

#[test]
fn records() {
    replay("record", message::records_are_read_or_refused);
}

#[test]
fn properties() {
    replay(
        "properties",
        message::properties_are_read_as_java_reads_them,
    );
}

#[test]
fn batches() {
    replay("batch", message::batches_are_read_or_refused);
}
