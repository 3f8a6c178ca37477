//! The index: hash files from which messages are found by key and time (store spec 5), read and written as 4.9.8
//! reads and writes them.
//!
//! | module | what |
//! |---|---|
//! | [`table`] | all files; which record goes where; queries |
//! | `file` | one file: chains of entries |
//! | `slots` | the slots of the file being written |
//! | `layout` | the bytes |
//! | `walk` | the entries one after the other, for tools |
//!
//! Not here: the thread that follows the log (`dispatch`), reading the records found (`read`).

mod file;
mod layout;
mod slots;
pub mod table;
#[cfg(test)]
mod tests;
mod walk;

pub use table::{Found, Index};
pub(crate) use walk::{IndexEntries, IndexPlace, infer_geometry};
