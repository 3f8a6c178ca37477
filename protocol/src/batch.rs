//! The body of a batch send (wire spec 7.2): small records back to back. Not a stored record: the broker makes one of each.

use bytes::BufMut;

use crate::properties::MAX_PROPERTIES_LEN;

/// Bytes of a batch record without body and properties.
pub const BATCH_RECORD_OVERHEAD: usize = 22;

/// One message of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchRecord<'a> {
    /// The application's flag.
    pub flag: i32,
    /// The body; batches are not compressed.
    pub body: &'a [u8],
    /// Properties text of this message alone, see [`crate::properties`]; the request's come behind it.
    pub properties: &'a [u8],
}

/// Why a batch body cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The body ends inside a record.
    #[error(
        "batch record {index} at byte {at} is cut: its {part} needs {need} bytes, {have} are left"
    )]
    Cut {
        /// Number of the record, from 0.
        index: usize,
        /// Position of the record in the body.
        at: usize,
        /// What was being read.
        part: &'static str,
        /// Bytes it takes.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// A negative length.
    #[error("batch record {index} at byte {at} has a {part} of length {len}")]
    Negative {
        /// Number of the record, from 0.
        index: usize,
        /// Position of the record in the body.
        at: usize,
        /// What was being read.
        part: &'static str,
        /// The length found.
        len: i32,
    },
    /// Properties that do not fit the signed 16-bit length.
    #[error("the properties of a batch record have {len} bytes, the most is {MAX_PROPERTIES_LEN}")]
    PropertiesTooLong {
        /// Their length in bytes.
        len: usize,
    },
    /// A body that does not fit the signed 32-bit length.
    #[error("the body of a batch record has {len} bytes, more than its length field holds")]
    BodyTooLong {
        /// Its length in bytes.
        len: usize,
    },
}

impl BatchRecord<'_> {
    /// Bytes of the encoded record.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        BATCH_RECORD_OVERHEAD + self.body.len() + self.properties.len()
    }

    /// Appends the record. Magic and checksum are 0: the broker ignores them.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), BatchError> {
        let properties_len =
            i16::try_from(self.properties.len()).map_err(|_| BatchError::PropertiesTooLong {
                len: self.properties.len(),
            })?;
        let too_long = |_| BatchError::BodyTooLong {
            len: self.body.len(),
        };
        let total = i32::try_from(self.encoded_len()).map_err(too_long)?;
        let body_len = i32::try_from(self.body.len()).map_err(too_long)?;
        out.put_i32(total);
        out.put_i32(0);
        out.put_i32(0);
        out.put_i32(self.flag);
        out.put_i32(body_len);
        out.put_slice(self.body);
        out.put_i16(properties_len);
        out.put_slice(self.properties);
        Ok(())
    }
}

/// The records of a batch body. Ends after the first error.
///
/// As the broker of 4.9.8, it goes by the lengths of body and properties and ignores total size, magic and checksum.
#[must_use]
pub fn records(body: &[u8]) -> BatchRecords<'_> {
    BatchRecords {
        body,
        at: 0,
        index: 0,
    }
}

/// Iterator of [`records`].
#[derive(Clone, Debug)]
pub struct BatchRecords<'a> {
    body: &'a [u8],
    at: usize,
    index: usize,
}

impl<'a> BatchRecords<'a> {
    fn read(&self) -> Result<(BatchRecord<'a>, usize), BatchError> {
        let mut at = self.at;
        let mut take = |part: &'static str, need: usize| {
            let rest = self.body.get(at..).unwrap_or_default();
            let cut = BatchError::Cut {
                index: self.index,
                at: self.at,
                part,
                need,
                have: rest.len(),
            };
            at = at.saturating_add(need);
            rest.get(..need).ok_or(cut)
        };
        let negative = |part: &'static str, len: i32| BatchError::Negative {
            index: self.index,
            at: self.at,
            part,
            len,
        };

        take("size, magic and checksum", 12)?;
        let flag = be_i32(take("flag", 4)?);
        let len = be_i32(take("body length", 4)?);
        let body = take(
            "body",
            usize::try_from(len).map_err(|_| negative("body", len))?,
        )?;
        let len = be_i16(take("properties length", 2)?);
        let len = usize::try_from(len).map_err(|_| negative("properties text", i32::from(len)))?;
        let properties = take("properties text", len)?;
        Ok((
            BatchRecord {
                flag,
                body,
                properties,
            },
            at,
        ))
    }
}

impl<'a> Iterator for BatchRecords<'a> {
    type Item = Result<BatchRecord<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.body.len() {
            return None;
        }
        match self.read() {
            Ok((record, end)) => {
                self.at = end;
                self.index += 1;
                Some(Ok(record))
            }
            Err(error) => {
                self.at = self.body.len();
                Some(Err(error))
            }
        }
    }
}

fn be_i32(bytes: &[u8]) -> i32 {
    bytes.try_into().map_or(0, i32::from_be_bytes)
}

fn be_i16(bytes: &[u8]) -> i16 {
    bytes.try_into().map_or(0, i16::from_be_bytes)
}
