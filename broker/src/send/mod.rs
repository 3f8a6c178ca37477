//! Sending: codes 10, 310, 320 and the way back of failed messages, 36 (broker spec 3).
//!
//! `plan` turns a request into what is to be stored or refuses it, `append` stores all sends of a read under one
//! lock hold and answers them, `properties` rewrites the properties text, `back` serves 36.

mod append;
mod back;
mod plan;
mod properties;
mod reply;

pub(crate) use append::store_one;
pub use append::{Collected, append_collected};
pub use back::send_back;
pub use reply::reply;
