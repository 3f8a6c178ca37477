//! Requests to a broker in this process, case by case. `support` starts it and speaks to it, `invariants` judges what
//! consumers got; the other modules are one family of cases each.
//!
//! Cases of other crates or roles are not here: frames and hostile bytes are the transport's, routes the name server's.

#![allow(unreachable_pub)]

mod invariants;
mod support;

mod acknowledged;
mod consumers;
mod long_poll;
mod pull;
mod replay;
mod restart;
mod send;
mod wire;
