//! Messages as the host of a WebAssembly guest tells them: each question is a call of ABI 1.

use alloc::string::String;
use alloc::vec::Vec;

use crate::{Error, Level};

mod host {
    #[link(wasm_import_module = "minimq")]
    unsafe extern "C" {
        pub(super) fn property(name: *const u8, name_len: usize, out: *mut u8, cap: usize) -> i32;
        pub(super) fn property_i64(name: *const u8, name_len: usize, out: *mut i64) -> i32;
        pub(super) fn property_f64(name: *const u8, name_len: usize, out: *mut f64) -> i32;
        pub(super) fn property_name(index: i32, out: *mut u8, cap: usize) -> i32;
        pub(super) fn text(which: i32, out: *mut u8, cap: usize) -> i32;
        pub(super) fn number(which: i32, out: *mut i64) -> i32;
        pub(super) fn body(from: usize, out: *mut u8, len: usize) -> i32;
        pub(super) fn log(level: i32, at: *const u8, len: usize);
    }
}

/// The message being looked at.
#[derive(Debug)]
pub struct Message(());

fn checked(code: i32) -> Result<usize, Error> {
    usize::try_from(code).map_err(|_| Error::from_code(code))
}

/// Asks once with a small buffer, and again when the answer is longer.
fn read_text(ask: impl Fn(*mut u8, usize) -> i32) -> Result<String, Error> {
    let mut bytes: Vec<u8> = alloc::vec![0; 128];
    let mut length = checked(ask(bytes.as_mut_ptr(), bytes.len()))?;
    if length > bytes.len() {
        bytes.resize(length, 0);
        length = checked(ask(bytes.as_mut_ptr(), bytes.len()))?;
    }
    bytes.truncate(length);
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

impl Message {
    /// The message the host is asking about. Called by the attribute's code.
    pub fn current() -> Self {
        Self(())
    }

    /// A property's text.
    pub fn property(&self, name: &str) -> Option<String> {
        // SAFETY: both ranges are live slices of this guest; the host checks them again.
        read_text(|out, cap| unsafe { host::property(name.as_ptr(), name.len(), out, cap) }).ok()
    }

    /// A property as a whole number.
    pub fn property_i64(&self, name: &str) -> Result<i64, Error> {
        let mut value = 0;
        // SAFETY: `value` outlives the call, the name is a live slice.
        checked(unsafe { host::property_i64(name.as_ptr(), name.len(), &mut value) })?;
        Ok(value)
    }

    /// A property as a number.
    pub fn property_f64(&self, name: &str) -> Result<f64, Error> {
        let mut value = 0.0;
        // SAFETY: `value` outlives the call, the name is a live slice.
        checked(unsafe { host::property_f64(name.as_ptr(), name.len(), &mut value) })?;
        Ok(value)
    }

    pub(crate) fn property_name(&self, index: i32) -> Option<String> {
        // SAFETY: the range given is a live buffer.
        read_text(|out, cap| unsafe { host::property_name(index, out, cap) }).ok()
    }

    pub(crate) fn text(&self, which: i32) -> Result<String, Error> {
        // SAFETY: the range given is a live buffer.
        read_text(|out, cap| unsafe { host::text(which, out, cap) })
    }

    pub(crate) fn number(&self, which: i32) -> Result<i64, Error> {
        let mut value = 0;
        // SAFETY: `value` outlives the call.
        checked(unsafe { host::number(which, &mut value) })?;
        Ok(value)
    }

    /// Copies the decompressed body from byte `from` on into `out`; gives the bytes copied.
    pub fn read_body(&self, from: usize, out: &mut [u8]) -> Result<usize, Error> {
        // SAFETY: `out` is a live slice of this length.
        checked(unsafe { host::body(from, out.as_mut_ptr(), out.len()) })
    }

    /// Writes a line to the server's log: at most 1 KiB, ten a second.
    pub fn log(&self, level: Level, line: &str) {
        // SAFETY: the line is a live slice.
        unsafe { host::log(level as i32, line.as_ptr(), line.len()) }
    }
}
