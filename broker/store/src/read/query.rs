//! Messages by key (store spec 5.6): the index says where records with a key's hash are, the log has them.

use bytes::Bytes;
use minimq_protocol::message::RecordRef;

use super::Reader;
use crate::consume_queue::{Blocking, ReadError};
use crate::error::StoreError;

/// Rounds that go further back in time when a round found only records that are gone.
const ROUNDS: usize = 3;

/// What a query found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryResult {
    /// Records whose topic and key hash as asked, oldest first. Whether the key is the one asked for is for the client to
    /// see.
    pub records: Vec<Bytes>,
    /// Where they begin in the log.
    pub physical_offsets: Vec<i64>,
    /// Store time of the newest record in the index; 0 if nothing was found.
    pub index_last_update_timestamp: i64,
    /// Where it begins in the log.
    pub index_last_update_physical_offset: i64,
}

impl Reader {
    /// The newest `max` messages (at most `maxMsgsNumBatch`) of a topic with a key, stored between `begin` and `end`, to
    /// the second. Reads the disk.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        max: usize,
        begin: i64,
        end: i64,
    ) -> Result<QueryResult, StoreError> {
        let max = max.min(self.limits().query_count);
        let mut result = QueryResult::default();
        let mut end = end;
        for _ in 0..ROUNDS {
            let mut found = self.index.query(topic, key, max, begin, end)?;
            if found.physical_offsets.is_empty() {
                break;
            }
            found.physical_offsets.sort_unstable();
            // A record may be in the index twice: after a crash 4.9.8 adds some again.
            found.physical_offsets.dedup();
            result.index_last_update_timestamp = found.last_update_timestamp;
            result.index_last_update_physical_offset = found.last_update_physical;
            for (n, at) in found.physical_offsets.iter().enumerate() {
                let Some(record) = self
                    .record_at(*at, Blocking::Allowed)
                    .map_err(ReadError::into_store_error)?
                else {
                    continue;
                };
                if n == 0 {
                    end = RecordRef::parse_slice(&record).map_or(end, |r| r.store_timestamp());
                }
                result.records.push(record);
                result.physical_offsets.push(*at);
            }
            if !result.records.is_empty() || end < begin {
                break;
            }
        }
        Ok(result)
    }
}
