//! The RocketMQ 4.x remoting protocol as pure functions: frames, headers, bodies, messages, properties, ids.
//! No sockets, no runtime, no role.
#![forbid(unsafe_code)]
