//! Version numbers of the protocol (wire spec 2.5): ordinals in one fixed list of 613 names, and those that
//! behaviour depends on (wire spec 2.6).

use std::borrow::Cow;

/// What our commands carry: V4_9_8, the release this program follows.
pub const CURRENT: i32 = V4_9_8;

/// From here on consumers answer relayed requests 220 and 221.
pub const V3_0_7_SNAPSHOT: i32 = 28;
/// From here on a broker registers with a `RegisterBrokerBody` (code 103).
pub const V3_0_11: i32 = 37;
/// From here on consumers answer relayed requests 307 and 309.
pub const V3_1_8_SNAPSHOT: i32 = 62;
/// From here on `maxReconsumeTimes` in a header overrides the group's.
pub const V3_4_9: i32 = 121;
/// The least version of a heartbeat answer that makes Java clients send SQL expressions.
pub const V4_1_0_SNAPSHOT: i32 = 232;
/// What release 4.2.0 sends.
pub const V4_2_0_SNAPSHOT: i32 = 252;
/// The last version whose signatures leave `_UNIQUE_KEY_QUERY` out.
pub const V4_9_3: i32 = 399;
/// From here on clients read route bodies in standard JSON (code 105).
pub const V4_9_4: i32 = 401;
/// The release this program follows.
pub const V4_9_8: i32 = 409;
/// The first 5.x version.
pub const V5_0_0: i32 = 413;

/// Ordinal of `HIGHER_VERSION`, the last of the list.
pub const HIGHER_VERSION: i32 = 612;

/// The irregular names at the beginning of the list.
const FIRST: [&str; 16] = [
    "V3_0_0_SNAPSHOT",
    "V3_0_0_ALPHA1",
    "V3_0_0_BETA1",
    "V3_0_0_BETA2",
    "V3_0_0_BETA3",
    "V3_0_0_BETA4",
    "V3_0_0_BETA5",
    "V3_0_0_BETA6_SNAPSHOT",
    "V3_0_0_BETA6",
    "V3_0_0_BETA7_SNAPSHOT",
    "V3_0_0_BETA7",
    "V3_0_0_BETA8_SNAPSHOT",
    "V3_0_0_BETA8",
    "V3_0_0_BETA9_SNAPSHOT",
    "V3_0_0_BETA9",
    "V3_0_0_FINAL",
];

/// The name of a version number, e.g. 409 → `V4_9_8`. Numbers above the list are `HIGHER_VERSION`, negative ones
/// (which Java does not handle) too.
pub fn name(version: i32) -> Cow<'static, str> {
    let Ok(index) = usize::try_from(version) else {
        return Cow::Borrowed("HIGHER_VERSION");
    };
    if let Some(name) = FIRST.get(index) {
        return Cow::Borrowed(name);
    }
    // Each release takes two numbers, its SNAPSHOT first; counted from the number of the release itself.
    let release = version + (1 - version % 2);
    let (major, minor, patch) = match release {
        ..47 => (3, 0, (release - 15) / 2),
        47..67 => (3, 1, (release - 47) / 2),
        67..87 => (3, 2, (release - 67) / 2),
        // Nine releases each, patch numbers 1 to 9.
        87..213 => (3, 3 + (release - 87) / 18, 1 + (release - 87) % 18 / 2),
        213..413 => (4, (release - 213) / 20, (release - 213) % 20 / 2),
        413..612 => (5, (release - 413) / 20, (release - 413) % 20 / 2),
        _ => return Cow::Borrowed("HIGHER_VERSION"),
    };
    let suffix = if version == release { "" } else { "_SNAPSHOT" };
    Cow::Owned(format!("V{major}_{minor}_{patch}{suffix}"))
}
