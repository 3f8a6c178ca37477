#![no_main]

#[path = "../entry/message.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::batches_are_read_or_refused(data));
