#![no_main]

#[path = "../entry/message.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::properties_are_read_as_java_reads_them(data));
