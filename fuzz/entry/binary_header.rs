//! Any bytes as a ROCKETMQ header: what is read can be written, and reads the same again.

use bytes::Bytes;
use minimq_protocol::{SerializeType, frame};

pub(crate) fn run(header: &[u8]) {
    let mut bytes = (4 + header.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(
        &SerializeType::Rocketmq
            .header_word(header.len() as u32)
            .to_be_bytes(),
    );
    bytes.extend_from_slice(header);
    let Ok(command) = frame::parse(Bytes::from(bytes)) else {
        return;
    };
    let again = frame::parse(command.to_frame()).expect("what was read can be written");
    assert_eq!(again, command);
    for (key, _) in command.ext.iter() {
        let last = command.ext.iter().rfind(|(name, _)| *name == key);
        assert_eq!(
            command.ext.get(key),
            last.map(|(_, value)| value)
                .filter(|value| !value.is_empty())
        );
    }
    let mut json = command.clone();
    json.serialize = SerializeType::Json;
    let json = frame::parse(json.to_frame()).expect("what was read can be written");
    assert_eq!(
        (&json.ext, &json.remark, json.code),
        (&command.ext, &command.remark, command.code)
    );
}
