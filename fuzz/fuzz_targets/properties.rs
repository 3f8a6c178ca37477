//! Properties texts: see `protocol/tests/properties/message.rs`.
#![no_main]

#[path = "../../protocol/tests/properties/message.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::properties_are_read_as_java_reads_them(data));
