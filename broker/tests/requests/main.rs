//! A broker in this process answers raw requests.

mod access;
mod administration;
mod answers;
mod queries;
mod registration;
mod request_reply;
mod right_fields;
mod sql;
mod sql_bits;
mod statistics;
mod support;
mod tls;
mod transaction_crashes;
mod transactions;
mod warnings;
