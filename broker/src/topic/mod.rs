//! Topics: the table, how it fills by itself, and the requests that change it (broker spec 2).

mod admin;
mod auto_create;
mod table;

/// Most queues of one topic: who walks them has to come to an end.
pub const MAX_QUEUES: i32 = 16_384;

pub use admin::{delete, update_and_create};
pub use auto_create::Wanted;
pub use table::TopicTable;
