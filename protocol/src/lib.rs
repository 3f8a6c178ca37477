//! The RocketMQ 4.x remoting protocol as pure functions: frames, headers, bodies, messages, properties, ids.
//! No sockets, no runtime, no role.
//!
//! To read it, begin with [`frame`] (bytes to frames), go on to [`command`] (both header encodings),
//! [`ext_fields`] (where header fields live) and [`header`] (the typed headers on top of them).
#![forbid(unsafe_code)]

pub mod acl_signature;
pub mod batch;
pub mod body;
pub mod byte_str;
pub mod code;
pub mod command;
pub mod compression;
pub mod crc;
pub mod delay_level;
pub mod ext_fields;
pub mod frame;
pub mod hash;
pub mod header;
pub mod hex;
pub mod json;
pub mod language;
pub mod message;
pub mod message_id;
pub mod name;
pub mod perm;
pub mod properties;
pub mod subscription;
pub mod sys_flag;
pub mod unique_key;
pub mod version;

pub use byte_str::ByteStr;
pub use command::{Command, RequestId, SerializeType, encode_answer_head, encode_request_head};
pub use ext_fields::ExtFields;
pub use frame::FrameError;
pub use header::{FieldSink, Header, HeaderError, NoHeader};
pub use language::Language;
