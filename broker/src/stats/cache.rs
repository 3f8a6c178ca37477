//! What a connection remembers of the statistics it counts to, so that counting needs neither lock nor text.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Item, Kind, Stats};

/// Names one connection remembers at most; then it begins anew.
const MAX_NAMES: usize = 4000;

#[derive(Debug)]
struct PutItems {
    nums: Arc<Item>,
    size: Arc<Item>,
}

impl PutItems {
    fn count(&self, stored: &Stored<'_>) {
        self.nums.add(stored.count, stored.calls);
        self.size.add(stored.bytes, stored.calls);
    }
}

/// Topics a connection sends to.
#[derive(Debug, Default)]
pub struct PutCache {
    generation: u64,
    topics: HashMap<Box<str>, PutItems>,
}

impl PutCache {
    /// Counts `count` messages of one topic and queue, stored in `calls` sends.
    pub fn count(&mut self, stats: &Stats, stored: &Stored<'_>) {
        let generation = stats.generation();
        if self.generation != generation {
            self.topics.clear();
            self.generation = generation;
        }
        match self.topics.get(stored.topic) {
            Some(items) => items.count(stored),
            None => {
                let items = PutItems {
                    nums: stats.item(Kind::TopicPutNums, stored.topic),
                    size: stats.item(Kind::TopicPutSize, stored.topic),
                };
                items.count(stored);
                if self.topics.len() >= MAX_NAMES {
                    self.topics.clear();
                }
                self.topics.insert(stored.topic.into(), items);
            }
        }
        stats.broker_put.add(stored.count, stored.calls);
        stats.delayed(stored.topic, stored.queue_id, stored.count, stored.bytes);
    }
}

/// Messages stored one after the other in one queue.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// Topic as written.
    pub topic: &'a str,
    /// Queue as written.
    pub queue_id: i32,
    /// Messages.
    pub count: i64,
    /// Sends.
    pub calls: i64,
    /// Bytes of the records.
    pub bytes: i64,
}

/// What the pulls of one group from one queue count to.
#[derive(Debug)]
pub struct GetItems {
    pub(super) nums: Arc<Item>,
    pub(super) size: Arc<Item>,
    latency: Arc<Item>,
}

impl GetItems {
    /// A read took so long.
    pub fn took(&self, ms: i64) {
        self.latency.add(ms, 1);
    }
}

type QueuesOfTopic = HashMap<Box<str>, Vec<(i32, Arc<GetItems>)>>;

/// Groups a connection pulls for.
#[derive(Debug, Default)]
pub struct GetCache {
    generation: u64,
    known: usize,
    groups: HashMap<Box<str>, QueuesOfTopic>,
}

impl GetCache {
    /// Where the pulls of a group from a queue are counted; `by_queue`: latency of each queue apart.
    pub fn items(
        &mut self,
        stats: &Stats,
        group: &str,
        topic: &str,
        queue_id: i32,
        by_queue: bool,
    ) -> Arc<GetItems> {
        let generation = stats.generation();
        if self.generation != generation {
            self.forget();
            self.generation = generation;
        }
        let known = self.groups.get(group).and_then(|topics| topics.get(topic));
        let known = known.and_then(|queues| queues.iter().find(|(id, _)| *id == queue_id));
        if let Some((_, items)) = known {
            return items.clone();
        }
        let key = format!("{topic}@{group}");
        let latency_key = if by_queue {
            format!("{queue_id}@{key}")
        } else {
            key.clone()
        };
        let items = Arc::new(GetItems {
            nums: stats.item(Kind::GroupGetNums, &key),
            size: stats.item(Kind::GroupGetSize, &key),
            latency: stats.item(Kind::GroupGetLatency, &latency_key),
        });
        if self.known >= MAX_NAMES {
            self.forget();
        }
        let topics = self.groups.entry(group.into()).or_default();
        let queues = topics.entry(topic.into()).or_default();
        queues.push((queue_id, items.clone()));
        self.known += 1;
        items
    }

    fn forget(&mut self) {
        self.groups.clear();
        self.known = 0;
    }
}

#[cfg(test)]
mod tests {
    use minimq_protocol::delay_level::DelayLevels;

    use super::*;

    #[test]
    fn as_many_names_as_may_be_remembered_are_and_one_more_begins_anew() {
        let levels = DelayLevels::parse("1s").unwrap();
        let stats = Stats::new("C1", &levels, 0);
        let (mut puts, mut gets) = (PutCache::default(), GetCache::default());
        let names: Vec<_> = (0..=MAX_NAMES).map(|n| format!("topic{n}")).collect();
        let (last, others) = names.split_last().unwrap();
        let mut use_topic = |topic: &String| {
            let stored = Stored {
                topic,
                queue_id: 0,
                count: 1,
                calls: 1,
                bytes: 10,
            };
            puts.count(&stats, &stored);
            gets.items(&stats, "group", topic, 0, false);
            (puts.topics.len(), gets.known)
        };
        for topic in others.iter().chain(others) {
            use_topic(topic);
        }
        assert_eq!(use_topic(&others[0]), (MAX_NAMES, MAX_NAMES));
        assert_eq!(use_topic(last), (1, 1));
    }
}
