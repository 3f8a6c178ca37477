//! Message filters a broker evaluates for its consumers: SQL92 selectors, and the bloom bits
//! that let the queue index pre-select messages for them.

pub mod bloom;
pub mod registered;
pub mod sql;
pub mod stored_bits;
