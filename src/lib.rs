//! mini-MQ: a message queue that speaks the RocketMQ 4.x remoting protocol.
#![forbid(unsafe_code)]
