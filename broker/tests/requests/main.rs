//! A broker in this process answers raw requests.

mod access;
mod administration;
mod answers;
mod queries;
mod request_reply;
mod sql;
mod statistics;
mod support;
mod tls;
mod transactions;
