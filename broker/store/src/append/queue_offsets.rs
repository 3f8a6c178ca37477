//! The next offset of every queue: the "topic-queue table" (store spec 2.6, 6.7). Used under the append lock only.

use std::collections::HashMap;

/// Queue ids below this are kept in an array a topic; a broker's topics have few queues, numbered from 0.
const DENSE: usize = 1024;

/// Next offsets by topic and queue id. A queue that was never seen starts at 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueOffsets {
    /// Place of each topic in `offsets`.
    topics: HashMap<Box<str>, usize>,
    offsets: Vec<TopicOffsets>,
    /// The topic asked for last, and its place: messages of one topic often come together.
    last: Option<(String, usize)>,
}

#[derive(Clone, Debug, Default)]
struct TopicOffsets {
    dense: Vec<i64>,
    sparse: HashMap<i32, i64>,
}

impl QueueOffsets {
    /// The next offset of a queue, to read and move. Allocates only for a queue that is new.
    pub(crate) fn next(&mut self, topic: &str, queue_id: i32) -> &mut i64 {
        let place = match &self.last {
            Some((last, place)) if last == topic => *place,
            _ => self.place(topic),
        };
        let topic = &mut self.offsets[place];
        match usize::try_from(queue_id) {
            Ok(index) if index < DENSE => {
                if topic.dense.len() <= index {
                    topic.dense.resize(index + 1, 0);
                }
                &mut topic.dense[index]
            }
            _ => topic.sparse.entry(queue_id).or_insert(0),
        }
    }

    /// Where a topic's offsets are.
    fn place(&mut self, topic: &str) -> usize {
        let place = match self.topics.get(topic) {
            Some(place) => *place,
            None => {
                self.topics.insert(topic.into(), self.offsets.len());
                self.offsets.push(TopicOffsets::default());
                self.offsets.len() - 1
            }
        };
        // Reuses the memory of the name before, as long as names are about as long.
        match &mut self.last {
            Some((last, at)) => {
                last.clear();
                last.push_str(topic);
                *at = place;
            }
            None => self.last = Some((topic.into(), place)),
        }
        place
    }

    /// The next offset of a queue, if it was seen.
    pub(crate) fn get(&self, topic: &str, queue_id: i32) -> Option<i64> {
        let topic = self.offsets.get(*self.topics.get(topic)?)?;
        match usize::try_from(queue_id) {
            Ok(index) if index < DENSE => topic.dense.get(index).copied(),
            _ => topic.sparse.get(&queue_id).copied(),
        }
    }

    /// Every queue that has messages, with its next offset.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, i32, i64)> {
        self.topics.iter().flat_map(|(topic, place)| {
            let topic_offsets = self.offsets.get(*place);
            let dense = topic_offsets
                .into_iter()
                .flat_map(|offsets| (0..).zip(&offsets.dense).map(|(id, next)| (id, *next)));
            let sparse = topic_offsets
                .into_iter()
                .flat_map(|offsets| offsets.sparse.iter().map(|(id, next)| (*id, *next)));
            dense
                .chain(sparse)
                .filter(|(_, next)| *next > 0)
                .map(move |(id, next)| (&**topic, id, next))
        })
    }

    /// Moves the next offset of a queue forward to `offset`, never back.
    pub(crate) fn raise(&mut self, topic: &str, queue_id: i32, offset: i64) {
        let next = self.next(topic, queue_id);
        *next = offset.max(*next);
    }

    /// Forgets a topic: its queues start at 0 again.
    pub(crate) fn forget_topic(&mut self, topic: &str) {
        if let Some(place) = self.topics.get(topic) {
            self.offsets[*place] = TopicOffsets::default();
        }
    }

    /// Forgets one queue.
    pub(crate) fn forget_queue(&mut self, topic: &str, queue_id: i32) {
        if self.get(topic, queue_id).is_some() {
            *self.next(topic, queue_id) = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_count_from_zero_by_themselves_and_start_again_when_forgotten() {
        let mut offsets = QueueOffsets::default();
        *offsets.next("A", 3) += 2;
        *offsets.next("B", 3) += 1;
        *offsets.next("A", -7) += 1;
        *offsets.next("A", i32::MAX) += 5;
        assert_eq!(
            (
                *offsets.next("A", 3),
                *offsets.next("A", 0),
                *offsets.next("A", -7)
            ),
            (2, 0, 1)
        );
        assert_eq!(
            (offsets.get("A", i32::MAX), offsets.get("C", 0)),
            (Some(5), None)
        );
        offsets.raise("A", 3, 1);
        offsets.raise("B", 3, 9);
        offsets.forget_topic("A");
        assert_eq!((offsets.get("A", 3), offsets.get("B", 3)), (None, Some(9)));
        offsets.forget_queue("B", 3);
        assert_eq!(*offsets.next("B", 3), 0);
    }
}
