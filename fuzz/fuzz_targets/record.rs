//! Records of stored messages: see `protocol/tests/properties/message.rs`.
#![no_main]

#[path = "../../protocol/tests/properties/message.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::records_are_read_or_refused(data));
