//! What a pull with a selector is spared: messages that the bits in the queue's extension already rule out (broker
//! spec 10.3), and the filters of retry topics (`filterSupportRetry`).
//!
//! Bits are believed only for messages stored after the group's filter was made, only while the pull's selector is
//! that filter, and only if it still is when the read is done: a message is never passed over on the word of bits
//! that were computed for another expression.

use std::sync::Arc;

use minimq_protocol::message::RecordRef;
use minimq_protocol::name;
use minimq_protocol::properties::name as property;
use minimq_store::MessageFilter;
use minimq_store::consume_queue::ExtUnit;

use crate::client_registry::PullFilter;

use super::bloom::all_set;
use super::registered::RegisteredFilters;

/// The bits of one registered filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBits {
    pub(super) positions: Arc<[u32]>,
    /// Length of a bit map with the parameters of now.
    pub(super) bytes: usize,
    /// Bits of messages stored later than this were computed for this filter.
    pub(super) after_ms: i64,
    /// Which filter: two of one group are not the same, even with equal times.
    pub(super) filter: i64,
}

impl StoredBits {
    /// Whether the selector is not true for a message with this unit.
    pub fn rule_out(&self, unit: &ExtUnit) -> bool {
        unit.store_timestamp > self.after_ms
            && unit.bit_map.len() == self.bytes
            && !all_set(&unit.bit_map, &self.positions)
    }
}

/// A pull's filter, with what stored bits add to it.
#[derive(Debug)]
pub struct Wanted<'f> {
    filter: &'f PullFilter,
    bits: Option<StoredBits>,
    /// Registered filters and the group whose retry topic is read.
    retried: Option<(&'f RegisteredFilters, &'f str)>,
}

impl<'f> Wanted<'f> {
    /// By the filter alone.
    pub fn new(filter: &'f PullFilter) -> Self {
        Self {
            filter,
            bits: None,
            retried: None,
        }
    }

    /// With stored bits, if the filter is the one that the group registered for the topic.
    #[must_use]
    pub fn with_bits(mut self, registered: &RegisteredFilters, topic: &str, group: &str) -> Self {
        self.bits = match self.filter {
            PullFilter::Sql(selector) => registered.stored_bits(topic, group, selector),
            PullFilter::All | PullFilter::Tags(_) => None,
        };
        self
    }

    /// Of a retry topic: by the filter that the group registered for the topic a message came from.
    #[must_use]
    pub fn with_retry(mut self, registered: &'f RegisteredFilters, topic: &'f str) -> Self {
        self.retried = name::group_of_retry_topic(topic).map(|group| (registered, group));
        self
    }

    /// Whether what was read with these bits holds: they are those of the filter that is registered still.
    #[must_use]
    pub fn holds(&self, registered: &RegisteredFilters, topic: &str, group: &str) -> bool {
        let (Some(bits), PullFilter::Sql(selector)) = (&self.bits, self.filter) else {
            return true;
        };
        registered.stored_bits(topic, group, selector).as_ref() == Some(bits)
    }
}

impl MessageFilter for Wanted<'_> {
    fn matches_entry(&mut self, tags_code: Option<i64>, unit: Option<&ExtUnit>) -> bool {
        if let (Some(bits), Some(unit)) = (&self.bits, unit)
            && bits.rule_out(unit)
        {
            return false;
        }
        tags_code.is_none_or(|code| self.filter.may_match(code))
    }

    fn matches_record(&mut self, record: &[u8]) -> bool {
        let Some((registered, group)) = self.retried else {
            return self.filter.matches_record(record);
        };
        let Ok(message) = RecordRef::parse_slice(record) else {
            return false;
        };
        let properties = message.properties();
        properties
            .get(property::RETRY_TOPIC)
            .and_then(|topic| registered.selector(topic, group))
            .is_none_or(|selector| selector.matches_properties(properties))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(store_timestamp: i64, bit_map: &[u8]) -> ExtUnit {
        ExtUnit {
            tags_code: 0,
            store_timestamp,
            bit_map: bit_map.to_vec(),
        }
    }

    #[test]
    fn bits_count_after_the_birth_and_in_their_own_length_only() {
        let bits = StoredBits {
            positions: Arc::from([0, 9]),
            bytes: 2,
            after_ms: 100,
            filter: 0,
        };
        assert!(bits.rule_out(&unit(101, &[0, 0])));
        assert!(bits.rule_out(&unit(101, &[1, 0])), "one bit of two");
        assert!(!bits.rule_out(&unit(101, &[1, 2])), "both");
        assert!(!bits.rule_out(&unit(100, &[0, 0])), "not after the birth");
        assert!(!bits.rule_out(&unit(101, &[])), "never computed");
        assert!(!bits.rule_out(&unit(101, &[0])), "of other parameters");
    }
}
