//! How far each consumer group has consumed: the table with its file, and the requests about offsets of groups
//! and queues (broker spec 5).

mod requests;
mod reset;
mod table;

pub use requests::{clone_group, earliest_store_time, max, min, query, search, update};
pub use reset::{consumer_status, reset};
pub use table::OffsetTable;
