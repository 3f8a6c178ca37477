//! Filters that heartbeats registered, their file `consumerFilter.json`, and the bloom bits of each message for them
//! (broker spec 10.5, 10.6).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use minimq_common::atomic_file::AtomicFileError;
use minimq_protocol::body::{
    BloomFilterData, ConsumerFilterData, ConsumerFilterTable, FilterDataByGroup, SubscriptionData,
};
use minimq_protocol::json::Flavour;
use minimq_protocol::properties::Properties;
use minimq_protocol::subscription::is_tag_type;
use minimq_store::{DispatchRecord, FilterBits};
use parking_lot::RwLock;

use crate::client_registry::selector_of;
use crate::config::BrokerConfig;
use crate::saved::SavedFile;

use super::bloom::{BloomParameters, set_bits};
use super::sql::Selector;
use super::stored_bits::StoredBits;

/// After a restart, filters that were alive count as dead since so long before it.
const DEAD_BEFORE_START_MS: i64 = 30_000;

#[derive(Debug, Clone)]
struct Registered {
    data: ConsumerFilterData,
    selector: Arc<Selector>,
    positions: Arc<[u32]>,
    /// Bits of messages stored later than this were computed for this filter and no other.
    bits_after_ms: i64,
    /// Tells it from its predecessors.
    number: i64,
}

/// Topic → group → filter.
type Topics = HashMap<String, HashMap<String, Registered>>;

/// All registered filters.
#[derive(Debug)]
pub struct RegisteredFilters {
    topics: RwLock<Topics>,
    bloom: Option<BloomParameters>,
    file: SavedFile,
    /// Latest store time of any message whose bits were computed, or that was there before.
    newest_ms: AtomicI64,
    /// Filters made so far.
    made: AtomicI64,
}

/// What is known of the messages that a starting broker finds.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoredBefore {
    /// Store time of the last of them.
    pub newest_ms: i64,
    /// The file of filters was written after the last of them: the last stop was a clean one. Else their bits may
    /// have been computed for filters that the file does not have.
    pub file_is_newer: bool,
}

impl RegisteredFilters {
    /// What `consumerFilter.json` holds. Bits of other parameters make its whole content useless.
    pub fn load(
        root: &Path,
        config: &BrokerConfig,
        now_ms: i64,
        before: StoredBefore,
    ) -> Result<Self, AtomicFileError> {
        let keys = &config.broker;
        let expected = i32::try_from(keys.expect_consumer_num_use_filter).unwrap_or(i32::MAX);
        let bloom = BloomParameters::new(keys.max_error_rate_of_bloom_filter, expected);
        let file = SavedFile::new(root, "consumerFilter.json");
        let saved = file
            .read(ConsumerFilterTable::from_json)?
            .unwrap_or_default();
        let this = Self {
            topics: RwLock::default(),
            bloom,
            file,
            newest_ms: AtomicI64::new(before.newest_ms),
            made: AtomicI64::new(0),
        };
        let mut topics = Topics::new();
        for (topic, groups) in saved.filter_data_by_topic {
            for (group, mut data) in groups.group_filter_data {
                data.topic.clone_from(&topic);
                data.consumer_group.clone_from(&group);
                let positions = this.positions(&group, &topic);
                if data.bloom_filter_data.as_ref() != this.bloom_data(&positions).as_ref() {
                    tracing::warn!(
                        topic,
                        group,
                        "consumerFilter.json was written with other bloom parameters, its content is dropped"
                    );
                    return Ok(this);
                }
                if !data.is_dead() {
                    data.dead_time = data.born_time.max(now_ms - DEAD_BEFORE_START_MS);
                }
                if let Some(mut registered) = this.compiled(data) {
                    if !before.file_is_newer {
                        registered.bits_after_ms = registered.data.born_time.max(before.newest_ms);
                    }
                    topics
                        .entry(topic.clone())
                        .or_default()
                        .insert(group, registered);
                }
            }
        }
        *this.topics.write() = topics;
        Ok(this)
    }

    fn positions(&self, group: &str, topic: &str) -> Vec<u32> {
        self.bloom
            .map(|bloom| bloom.positions(&format!("{group}#{topic}")))
            .unwrap_or_default()
    }

    fn bloom_data(&self, positions: &[u32]) -> Option<BloomFilterData> {
        Some(BloomFilterData {
            bit_num: i32::try_from(self.bloom?.m()).ok()?,
            bit_pos: positions.iter().map(|position| *position as i32).collect(),
        })
    }

    fn compiled(&self, mut data: ConsumerFilterData) -> Option<Registered> {
        let selector = selector_of(data.expression.as_deref()?).ok()?;
        let positions = self.positions(&data.consumer_group, &data.topic);
        data.bloom_filter_data = self.bloom_data(&positions);
        Some(Registered {
            bits_after_ms: data.born_time,
            data,
            selector,
            positions: positions.into(),
            number: self.made.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// What stored bits say for this selector, if it is the one a group registered for a topic.
    pub fn stored_bits(
        &self,
        topic: &str,
        group: &str,
        selector: &Arc<Selector>,
    ) -> Option<StoredBits> {
        let bloom = self.bloom?;
        let topics = self.topics.read();
        let registered = topics.get(topic)?.get(group)?;
        let same = Arc::ptr_eq(&registered.selector, selector) || registered.selector == *selector;
        same.then(|| StoredBits {
            positions: registered.positions.clone(),
            bytes: (bloom.m() / 8) as usize,
            after_ms: registered.bits_after_ms,
            filter: registered.number,
        })
    }

    /// The compiled filter of a group on a topic.
    pub fn selector(&self, topic: &str, group: &str) -> Option<Arc<Selector>> {
        let topics = self.topics.read();
        Some(topics.get(topic)?.get(group)?.selector.clone())
    }

    /// The filter of a group on a topic.
    pub fn get(&self, topic: &str, group: &str) -> Option<ConsumerFilterData> {
        let topics = self.topics.read();
        topics
            .get(topic)?
            .get(group)
            .map(|found| found.data.clone())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.topics.read().values().map(HashMap::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a heartbeat says of one group.
    pub fn heartbeat<'s>(
        &self,
        group: &str,
        subscriptions: impl Iterator<Item = &'s SubscriptionData> + Clone,
        now_ms: i64,
    ) {
        let wanted = subscriptions.clone().filter(|subscription| {
            !is_tag_type(Some(&subscription.expression_type)) && !subscription.sub_string.is_empty()
        });
        // Nearly always there is nothing to do: no filter wanted, none there.
        if wanted.clone().next().is_none() && self.is_empty() {
            return;
        }
        let mut topics = self.topics.write();
        for subscription in wanted {
            self.register(&mut topics, group, subscription, now_ms);
        }
        for (topic, groups) in topics.iter_mut() {
            if subscriptions
                .clone()
                .all(|subscription| subscription.topic != *topic)
                && let Some(registered) = groups.get_mut(group)
            {
                registered.die(now_ms);
            }
        }
    }

    fn register(
        &self,
        topics: &mut Topics,
        group: &str,
        subscription: &SubscriptionData,
        now_ms: i64,
    ) {
        let groups = topics.entry(subscription.topic.clone()).or_default();
        let made = || {
            self.compiled(ConsumerFilterData {
                // Messages dispatched so far are not newer than that, whatever was done to the clock.
                born_time: now_ms.max(self.newest_ms.load(Ordering::SeqCst)),
                client_version: subscription.sub_version,
                consumer_group: group.to_owned(),
                expression: Some(subscription.sub_string.clone()),
                expression_type: Some(subscription.expression_type.clone()),
                topic: subscription.topic.clone(),
                ..Default::default()
            })
        };
        let Some(known) = groups.get_mut(group) else {
            groups.extend(made().map(|made| (group.to_owned(), made)));
            return;
        };
        let version = subscription.sub_version;
        if version <= known.data.client_version {
            if version == known.data.client_version && known.data.is_dead() {
                known.live();
            }
            return;
        }
        let same = known.data.expression.as_deref() == Some(&subscription.sub_string)
            && known.data.expression_type.as_deref() == Some(&subscription.expression_type);
        if same {
            known.data.client_version = version;
            known.live();
        } else if let Some(made) = made() {
            *known = made;
        } else {
            groups.remove(group);
        }
    }

    /// The last consumer of a group has gone.
    pub fn group_gone(&self, group: &str, now_ms: i64) {
        if self.is_empty() {
            return;
        }
        for groups in self.topics.write().values_mut() {
            if let Some(registered) = groups.get_mut(group) {
                registered.die(now_ms);
            }
        }
    }

    /// Drops what has been dead for long, and writes the file if its content changed.
    pub fn save(&self, now_ms: i64, clean_after_ms: i64) {
        self.topics.write().retain(|_, groups| {
            groups.retain(|_, registered| {
                let data = &registered.data;
                !data.is_dead() || now_ms - data.dead_time < clean_after_ms
            });
            !groups.is_empty()
        });
        self.file
            .write_or_log(|| self.to_table().to_json_pretty(Flavour::Fastjson));
    }

    fn to_table(&self) -> ConsumerFilterTable {
        let topics = self.topics.read();
        let by_group = |topic: &String, groups: &HashMap<String, Registered>| FilterDataByGroup {
            group_filter_data: groups
                .iter()
                .map(|(group, registered)| {
                    let dead = registered.data.is_dead();
                    (
                        group.clone(),
                        ConsumerFilterData {
                            dead,
                            ..registered.data.clone()
                        },
                    )
                })
                .collect(),
            topic: topic.clone(),
        };
        ConsumerFilterTable {
            filter_data_by_topic: topics
                .iter()
                .map(|(topic, groups)| (topic.clone(), by_group(topic, groups)))
                .collect(),
        }
    }
}

impl Registered {
    fn die(&mut self, now_ms: i64) {
        if !self.data.is_dead() {
            self.data.dead_time = now_ms.max(self.data.born_time);
        }
    }

    fn live(&mut self) {
        self.data.dead_time = 0;
    }
}

impl FilterBits for RegisteredFilters {
    fn bits_of(&self, record: &DispatchRecord<'_>, out: &mut Vec<u8>) {
        let Some(bloom) = self.bloom else { return };
        let topics = self.topics.read();
        // Under the lock: a filter registered behind this one does not count this message as its own.
        self.newest_ms
            .fetch_max(record.store_timestamp, Ordering::SeqCst);
        let Some(groups) = topics.get(record.topic).filter(|groups| !groups.is_empty()) else {
            return;
        };
        let begin = out.len();
        out.extend_from_slice(&bloom.empty_bits());
        let properties = Properties::from_bytes(record.properties);
        for registered in groups.values() {
            if registered.selector.matches_properties(properties)
                && let Some(bits) = out.get_mut(begin..)
            {
                set_bits(bits, &registered.positions);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(topic: &str, expression: &str, sub_version: i64) -> SubscriptionData {
        SubscriptionData {
            topic: topic.into(),
            sub_string: expression.into(),
            sub_version,
            expression_type: "SQL92".into(),
            ..Default::default()
        }
    }

    fn filters(root: &Path, now_ms: i64) -> RegisteredFilters {
        let before = StoredBefore::default();
        RegisteredFilters::load(root, &BrokerConfig::default(), now_ms, before).unwrap()
    }

    fn beat(filters: &RegisteredFilters, all: &[SubscriptionData], now_ms: i64) {
        filters.heartbeat("G", all.iter(), now_ms);
    }

    #[test]
    fn newer_versions_replace_and_what_is_left_out_dies() {
        let folder = tempfile::tempdir().unwrap();
        let filters = filters(folder.path(), 0);
        beat(&filters, &[subscription("T", "a > 1", 5)], 10);
        beat(&filters, &[subscription("T", "a > 2", 5)], 20);
        let data = filters.get("T", "G").unwrap();
        assert_eq!(
            (data.expression.as_deref(), data.born_time),
            (Some("a > 1"), 10)
        );
        beat(&filters, &[subscription("T", "a > 2", 6)], 30);
        let data = filters.get("T", "G").unwrap();
        assert_eq!(
            (data.expression.as_deref(), data.born_time),
            (Some("a > 2"), 30)
        );
        beat(&filters, &[subscription("T2", "b = 1", 7)], 40);
        assert!(filters.get("T", "G").unwrap().is_dead());
        beat(&filters, &[subscription("T", "a > 2", 6)], 50);
        assert!(!filters.get("T", "G").unwrap().is_dead());
        beat(&filters, &[subscription("T", "a >", 8)], 60);
        assert!(
            filters.get("T", "G").is_none(),
            "one that does not compile goes"
        );
    }

    #[test]
    fn the_file_brings_filters_back_as_dead_ones_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let first = filters(folder.path(), 0);
        beat(&first, &[subscription("T", "a > 1", 5)], 10);
        first.save(20, 1000);
        let second = filters(folder.path(), 100_000);
        assert_eq!(second.get("T", "G").unwrap().dead_time, 70_000);
        second.save(71_001, 1000);
        assert!(second.is_empty());

        first.save(30, 1000);
        let mut other = BrokerConfig::default();
        other.broker.expect_consumer_num_use_filter = 64;
        let before = StoredBefore::default();
        let third = RegisteredFilters::load(folder.path(), &other, 0, before).unwrap();
        assert!(third.is_empty(), "bits of other parameters");
    }

    fn dispatched(filters: &RegisteredFilters, store_timestamp: i64) {
        let record = DispatchRecord {
            topic: "T",
            queue_id: 0,
            physical_offset: minimq_store::PhysicalOffset(0),
            size: 100,
            tags_code: 0,
            store_timestamp,
            queue_offset: minimq_store::QueueOffset(0),
            keys: "",
            uniq_key: None,
            sys_flag: 0,
            prepared_transaction_offset: 0,
            properties: b"",
            damaged: false,
        };
        filters.bits_of(&record, &mut Vec::new());
    }

    fn bits_after(filters: &RegisteredFilters, expression: &str) -> Option<i64> {
        let selector = selector_of(expression).unwrap();
        let bits = filters.stored_bits("T", "G", &selector);
        bits.map(|bits| bits.after_ms)
    }

    #[test]
    fn bits_count_for_messages_behind_all_that_were_there_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        let first = filters(folder.path(), 0);
        dispatched(&first, 5_000);
        // The clock was set back since that message.
        beat(&first, &[subscription("T", "a > 1", 5)], 1_000);
        assert_eq!(bits_after(&first, "a > 1"), Some(5_000));
        assert_eq!(bits_after(&first, "a > 2"), None, "not what is registered");
        beat(&first, &[subscription("T", "a > 1", 6)], 9_000);
        assert_eq!(
            bits_after(&first, "a > 1"),
            Some(5_000),
            "still the same filter"
        );
        first.save(9_000, 1_000_000);

        // After a clean stop the file tells all; after a crash it may be older than the bits.
        for (file_is_newer, expected) in [(true, 5_000), (false, 8_000)] {
            let before = StoredBefore {
                newest_ms: 8_000,
                file_is_newer,
            };
            let config = BrokerConfig::default();
            let again = RegisteredFilters::load(folder.path(), &config, 9_500, before).unwrap();
            assert_eq!(bits_after(&again, "a > 1"), Some(expected));
        }
    }
}
