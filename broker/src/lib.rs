//! The mini-MQ broker as a library.
#![forbid(unsafe_code)]

pub mod filter;
