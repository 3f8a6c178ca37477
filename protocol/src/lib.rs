//! The RocketMQ 4.x remoting protocol as pure functions: frames, headers, bodies, messages, properties, ids.
//! No sockets, no runtime, no role.
#![forbid(unsafe_code)]

pub mod batch;
pub mod crc;
pub mod hash;
pub mod hex;
pub mod message;
pub mod message_id;
pub mod properties;
pub mod sys_flag;
