//! The filter server with a real broker and name server in one process, or with a broker that answers what a test
//! wants; spoken to with raw requests, as stock consumers send them.

mod access;
mod hostile;
mod limits;
mod pulls;
mod repository;
mod shared;
mod stock;
mod story;
mod support;
mod uploads;
