//! Whatever a command holds comes back from both encodings, however the stream is cut; other bytes never panic.

use bytes::{Bytes, BytesMut};
use minimq_protocol::frame::{self, Check, MAX_FRAME_LEN};
use minimq_protocol::{ByteStr, Command, ExtFields, Language, SerializeType};
use proptest::collection::vec;
use proptest::prelude::*;

fn commands() -> impl Strategy<Value = Command> {
    let text = prop_oneof![
        "[a-zA-Z0-9_%|-]{0,20}",
        // Separators, quotes, backslashes, controls, and any character.
        "[\\x00-\\x02\"\\\\\u{7f}\u{e4}\u{2028}\u{1F600}]{0,12}",
        any::<String>(),
    ];
    let numbers = (
        any::<i16>(),
        any::<i16>(),
        any::<i32>(),
        any::<i32>(),
        0..14_u8,
    );
    let fields = vec((text.clone(), text.clone()), 0..30);
    (
        numbers,
        proptest::option::of(text),
        fields,
        vec(any::<u8>(), 0..64),
        any::<bool>(),
    )
        .prop_map(
            |((code, version, opaque, flag, language), remark, fields, body, binary)| Command {
                code: code.into(),
                language: Language::from_code(language),
                version: version.into(),
                opaque,
                flag,
                remark: remark.map(ByteStr::from),
                ext: fields.into_iter().collect(),
                body: body.into(),
                serialize: if binary {
                    SerializeType::Rocketmq
                } else {
                    SerializeType::Json
                },
            },
        )
}

/// A binary header does not tell an empty remark from none.
fn as_read(command: &Command) -> Command {
    let mut command = command.clone();
    if command.serialize == SerializeType::Rocketmq {
        command.remark = command.remark.filter(|remark| !remark.is_empty());
    }
    command
}

proptest! {
    #[test]
    fn a_command_comes_back_as_it_was(command in commands()) {
        let frame = command.to_frame();
        prop_assert_eq!(frame::check(&frame, MAX_FRAME_LEN), Ok(Check::Whole { len: frame.len() }));
        let read = frame::parse(frame).expect("a good frame");
        prop_assert_eq!(&read, &as_read(&command));
        prop_assert_eq!(frame::parse(read.to_frame()).expect("a good frame"), read);
    }

    #[test]
    fn a_stream_gives_the_same_commands_however_it_is_cut(
        sent in vec(commands(), 1..6),
        cuts in vec(1..200_usize, 1..40),
    ) {
        let mut stream = BytesMut::new();
        sent.iter().for_each(|command| command.encode(&mut stream));
        let mut stream = stream.freeze();
        let mut buffer = BytesMut::new();
        let mut received = Vec::new();
        let mut cuts = cuts.into_iter().cycle();
        while !stream.is_empty() {
            let cut = cuts.next().unwrap_or(1).min(stream.len());
            buffer.extend_from_slice(&stream.split_to(cut));
            loop {
                match frame::check(&buffer, MAX_FRAME_LEN).expect("good frames") {
                    Check::Whole { len } => {
                        received.push(frame::parse(buffer.split_to(len).freeze()).expect("a good frame"));
                    }
                    Check::Incomplete { need } => {
                        prop_assert!(need > buffer.len());
                        break;
                    }
                }
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(received, sent.iter().map(as_read).collect::<Vec<_>>());
    }

    #[test]
    fn the_head_alone_and_the_body_behind_it_are_the_frame(command in commands()) {
        let mut out = BytesMut::from(&b"earlier"[..]);
        command.encode_head(&mut out);
        out.extend_from_slice(&command.body);
        prop_assert_eq!(&out[7..], &command.to_frame()[..]);
    }

    #[test]
    fn json_headers_are_json_to_others_and_theirs_to_us(command in commands()) {
        let command = command.with_serialize(SerializeType::Json);
        let frame = command.to_frame();
        let header = &frame[8..frame.len() - command.body.len()];
        let value: serde_json::Value = serde_json::from_slice(header).expect("JSON");
        for (key, _) in command.ext.iter() {
            prop_assert_eq!(value["extFields"][key].as_str(), command.ext.get(key));
        }
        let theirs = serde_json::to_vec_pretty(&value).expect("JSON");
        let mut frame = (4 + theirs.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&(theirs.len() as u32).to_be_bytes());
        frame.extend_from_slice(&theirs);
        let read = frame::parse(frame.into()).expect("a good frame");
        for (key, _) in command.ext.iter() {
            prop_assert_eq!(read.ext.get(key), command.ext.get(key));
        }
        prop_assert_eq!(read.remark.as_deref(), command.remark.as_deref());
        prop_assert_eq!((read.code, read.opaque, read.flag), (command.code, command.opaque, command.flag));
    }

    #[test]
    fn damaged_frames_are_refused_or_read_but_never_panic(
        command in commands(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut frame = command.to_frame().to_vec();
        let start = 8.min(frame.len() - 1);
        for (index, byte) in damage {
            let at = start + index.index(frame.len() - start);
            frame[at] = byte;
        }
        if let Ok(read) = frame::parse(Bytes::from(frame)) {
            let again = frame::parse(read.to_frame()).expect("what was read can be written");
            prop_assert_eq!(again.ext, read.ext);
        }
    }

    #[test]
    fn set_then_get(fields in vec(("[a-c]", "[a-z]{0,3}"), 0..10), key in "[a-c]", value in "[a-z]{0,3}") {
        let mut ext: ExtFields = fields.into_iter().collect();
        ext.set(&key, &value);
        prop_assert_eq!(ext.get(&key), Some(&*value));
        prop_assert_eq!(ext.iter().filter(|(name, _)| *name == key).count(), 1);
    }
}
