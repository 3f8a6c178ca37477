//! The recorded frames.

use bytes::Bytes;
use minimq_protocol::{Command, frame};
use serde_json::{Map, Value};

use super::{frame_index, golden};

pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) index: Value,
    pub(crate) bytes: Bytes,
}

impl Golden {
    pub(crate) fn command(&self) -> Command {
        frame::parse(self.bytes.clone()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    pub(crate) fn header(&self) -> &[u8] {
        let len = u32::from_be_bytes([0, self.bytes[5], self.bytes[6], self.bytes[7]]);
        &self.bytes[8..8 + len as usize]
    }

    pub(crate) fn request_code(&self) -> i32 {
        self.index["requestCode"].as_i64().expect("requestCode") as i32
    }
}

pub(crate) fn golden_frames() -> Vec<Golden> {
    let frames: Vec<_> = frame_index()
        .into_iter()
        .map(|index| {
            let name = index["file"].as_str().expect("file").to_owned();
            let bytes = golden(&format!("frames/{name}")).into();
            Golden { name, index, bytes }
        })
        .collect();
    assert!(frames.len() > 800, "only {} frames", frames.len());
    frames
}

/// As a map: the last of doubled keys counts.
pub(crate) fn ext_map(command: &Command) -> Map<String, Value> {
    command
        .ext
        .iter()
        .map(|(key, value)| (key.to_owned(), Value::from(value)))
        .collect()
}
