//! A stream of bytes as a connection reads it: frames are cut off until one is bad or not whole.

use bytes::Bytes;
use minimq_protocol::frame::{self, Check};
use minimq_protocol::header::{PullMessageRequest, RegisterBrokerRequest, SendMessageRequest};

/// Small, so that the limit is met.
const MAX_FRAME_LEN: usize = 4096;

pub(crate) fn run(data: &[u8]) {
    let mut stream = Bytes::copy_from_slice(data);
    loop {
        match frame::check(&stream, MAX_FRAME_LEN) {
            Ok(Check::Whole { len }) => {
                assert!((8..=MAX_FRAME_LEN).contains(&len) && len <= stream.len());
                let Ok(command) = frame::parse(stream.split_to(len)) else {
                    return;
                };
                assert!(command.body.len() <= len - 8);
                let _ = SendMessageRequest::decode_for(command.code, &command.ext);
                let _ = SendMessageRequest::decode_v2(&command.ext);
                let _ = command.header::<PullMessageRequest<'_>>();
                let _ = command.header::<RegisterBrokerRequest<'_>>();
                let again = frame::parse(command.to_frame()).expect("what was read can be written");
                assert_eq!((&again.ext, &again.body), (&command.ext, &command.body));
            }
            Ok(Check::Incomplete { need }) => {
                assert!(need > stream.len() && need <= MAX_FRAME_LEN);
                return;
            }
            Err(_) => return,
        }
    }
}
