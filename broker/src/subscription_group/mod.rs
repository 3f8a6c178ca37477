//! Consumer groups' settings: the table with its file, how groups appear by themselves, and the requests that
//! change them (broker spec 15).

mod admin;
mod table;

pub use admin::{delete, get_all, update_and_create};
pub use table::GroupTable;
