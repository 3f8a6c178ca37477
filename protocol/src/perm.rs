//! Permission bits of a topic on one broker.

/// Set by nobody; known to readers.
pub const PRIORITY: i32 = 8;
/// Messages may be consumed.
pub const READ: i32 = 4;
/// Messages may be sent.
pub const WRITE: i32 = 2;
/// Automatically created topics may take this topic's settings.
pub const INHERIT: i32 = 1;

/// Whether messages may be consumed.
#[must_use]
pub fn is_readable(perm: i32) -> bool {
    perm & READ != 0
}

/// Whether messages may be sent.
#[must_use]
pub fn is_writable(perm: i32) -> bool {
    perm & WRITE != 0
}

/// Whether automatically created topics may take this topic's settings.
#[must_use]
pub fn is_inherited(perm: i32) -> bool {
    perm & INHERIT != 0
}

/// The form of lists and remarks: `RWX`, with `-` for a bit that is not set.
#[must_use]
pub fn text(perm: i32) -> &'static str {
    match perm & (READ | WRITE | INHERIT) {
        0 => "---",
        1 => "--X",
        2 => "-W-",
        3 => "-WX",
        4 => "R--",
        5 => "R-X",
        6 => "RW-",
        _ => "RWX",
    }
}
