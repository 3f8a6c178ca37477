//! Which member of a group consumes which queue: pure functions that all members compute alike (client spec 4.4).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use md5::{Digest, Md5};
use minimq_protocol::body::MessageQueue;

/// How queues are shared out among the members of a group. All members must use the same.
#[derive(Clone, Default)]
pub enum Allocation {
    /// Neighbouring queues to each member, as evenly as possible.
    #[default]
    Average,
    /// One queue to each member in turn.
    AverageByCircle,
    /// By a hash ring with that many virtual nodes a member; a change of members moves few queues.
    ConsistentHash {
        /// Virtual nodes a member; stock clients use 10.
        virtual_nodes: usize,
    },
    /// These queues and no others, whoever else is there.
    Fixed(Vec<MessageQueue>),
    /// Only queues of brokers named `room@…` of these rooms, evenly.
    MachineRoom(BTreeSet<String>),
    /// Queues to members in the same room; those of rooms without members to everybody.
    Nearby {
        /// How queues are shared out within a room.
        inner: Box<Allocation>,
        /// Who is where.
        rooms: Arc<dyn Rooms>,
    },
    /// The application's own way.
    Custom(Arc<dyn CustomAllocation>),
}

/// Says which room brokers and clients are in.
pub trait Rooms: Send + Sync {
    /// The room of a broker.
    fn of_broker(&self, broker_name: &str) -> Option<String>;
    /// The room of a client.
    fn of_client(&self, client_id: &str) -> Option<String>;
}

/// An allocation of the application's own.
pub trait CustomAllocation: Send + Sync {
    /// The queues of member `own`. Queues and ids are sorted; every member must come to a result that fits the others'.
    fn allocate(&self, own: &str, queues: &[MessageQueue], ids: &[String]) -> Vec<MessageQueue>;
}

/// Why queues cannot be shared out; what one has is kept then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// Nothing to share out or nobody to get it.
    #[error("no queues or no members")]
    Empty,
    /// The broker does not know this member (yet).
    #[error("the client id {0} is not among the members of the group")]
    NotAMember(String),
    /// A broker or client is in no room.
    #[error("{0} is in no room")]
    NoRoom(String),
}

impl Allocation {
    /// The queues of member `own`. Both lists may be in any order.
    pub fn allocate(
        &self,
        own: &str,
        queues: &[MessageQueue],
        ids: &[String],
    ) -> Result<Vec<MessageQueue>, AllocationError> {
        if let Allocation::Fixed(queues) = self {
            return Ok(queues.clone());
        }
        if own.is_empty() || queues.is_empty() || ids.is_empty() {
            return Err(AllocationError::Empty);
        }
        let mut queues = queues.to_vec();
        queues.sort_by(java_queue_order);
        let mut ids = ids.to_vec();
        ids.sort_by(|a, b| java_order(a, b));
        let mut part: Vec<MessageQueue> = Vec::new();
        let mut member = false;
        // A broker that has not yet noticed the end of an old connection lists its client twice. The others leave both
        // shares to it: it has to take both.
        for (index, _) in ids.iter().enumerate().filter(|(_, id)| *id == own) {
            member = true;
            for queue in self.share(own, index, &queues, &ids)? {
                if !part.contains(&queue) {
                    part.push(queue);
                }
            }
        }
        match member {
            true => Ok(part),
            false => Err(AllocationError::NotAMember(own.to_owned())),
        }
    }

    fn share(
        &self,
        own: &str,
        index: usize,
        queues: &[MessageQueue],
        ids: &[String],
    ) -> Result<Vec<MessageQueue>, AllocationError> {
        let part = |start: usize, len: usize| {
            queues
                .iter()
                .skip(start)
                .take(len)
                .cloned()
                .collect::<Vec<_>>()
        };
        Ok(match self {
            Allocation::Average => {
                let (each, rest) = (queues.len() / ids.len(), queues.len() % ids.len());
                let size = match queues.len() <= ids.len() {
                    true => 1,
                    false => each + usize::from(index < rest),
                };
                let start = if rest > 0 && index < rest {
                    index * size
                } else {
                    index * size + rest
                };
                part(start, size)
            }
            Allocation::AverageByCircle => queues
                .iter()
                .skip(index)
                .step_by(ids.len())
                .cloned()
                .collect(),
            Allocation::ConsistentHash { virtual_nodes } => {
                let ring = ring(ids, *virtual_nodes);
                queues
                    .iter()
                    .filter(|queue| owner(&ring, &queue.to_string()) == Some(own))
                    .cloned()
                    .collect()
            }
            Allocation::Fixed(queues) => queues.clone(),
            Allocation::MachineRoom(rooms) => {
                let here = |queue: &&MessageQueue| {
                    let mut parts = queue.broker_name.split('@');
                    matches!((parts.next(), parts.next(), parts.next()), (Some(room), Some(_), None) if rooms.contains(room))
                };
                let queues: Vec<_> = queues.iter().filter(here).cloned().collect();
                let (each, rest) = (queues.len() / ids.len(), queues.len() % ids.len());
                let mut own: Vec<_> = queues
                    .iter()
                    .skip(index * each)
                    .take(each)
                    .cloned()
                    .collect();
                if index < rest {
                    own.extend(queues.get(index + ids.len() * each).cloned());
                }
                own
            }
            Allocation::Nearby { inner, rooms } => nearby(inner, &**rooms, own, queues, ids)?,
            Allocation::Custom(custom) => custom.allocate(own, queues, ids),
        })
    }

    /// The name stock clients give it.
    pub fn name(&self) -> String {
        match self {
            Allocation::Average => "AVG".to_owned(),
            Allocation::AverageByCircle => "AVG_BY_CIRCLE".to_owned(),
            Allocation::ConsistentHash { .. } => "CONSISTENT_HASH".to_owned(),
            Allocation::Fixed(_) => "CONFIG".to_owned(),
            Allocation::MachineRoom(_) => "MACHINE_ROOM".to_owned(),
            Allocation::Nearby { inner, .. } => format!("MACHINE_ROOM_NEARBY-{}", inner.name()),
            Allocation::Custom(_) => "CUSTOM".to_owned(),
        }
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

fn nearby(
    inner: &Allocation,
    rooms: &dyn Rooms,
    own: &str,
    queues: &[MessageQueue],
    ids: &[String],
) -> Result<Vec<MessageQueue>, AllocationError> {
    let room = |found: Option<String>, of: &str| {
        found
            .filter(|room| !room.is_empty())
            .ok_or_else(|| AllocationError::NoRoom(of.to_owned()))
    };
    let mut queues_of: BTreeMap<String, Vec<MessageQueue>> = BTreeMap::new();
    for queue in queues {
        let room = room(rooms.of_broker(&queue.broker_name), &queue.broker_name)?;
        queues_of.entry(room).or_default().push(queue.clone());
    }
    let mut ids_of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for id in ids {
        ids_of
            .entry(room(rooms.of_client(id), id)?)
            .or_default()
            .push(id.clone());
    }
    let own_room = room(rooms.of_client(own), own)?;
    let mut mine = Vec::new();
    for (room, queues) in &queues_of {
        match ids_of.get(room) {
            Some(ids) if *room == own_room => mine.extend(inner.allocate(own, queues, ids)?),
            Some(_) => {}
            None => mine.extend(inner.allocate(own, queues, ids)?),
        }
    }
    Ok(mine)
}

/// Hash → member.
fn ring(ids: &[String], virtual_nodes: usize) -> BTreeMap<u32, &str> {
    let nodes = ids.iter().flat_map(|id| {
        (0..virtual_nodes).map(move |node| (ring_hash(&format!("{id}-{node}")), id.as_str()))
    });
    nodes.collect()
}

fn owner<'a>(ring: &BTreeMap<u32, &'a str>, key: &str) -> Option<&'a str> {
    let at = ring_hash(key);
    ring.range(at..)
        .next()
        .or_else(|| ring.iter().next())
        .map(|(_, id)| *id)
}

/// The first four bytes of the MD5 sum.
fn ring_hash(key: &str) -> u32 {
    let sum = Md5::digest(key.as_bytes());
    let (first, _) = sum.split_at(4);
    first
        .iter()
        .fold(0, |hash, byte| hash << 8 | u32::from(*byte))
}

/// Order of UTF-16 code units, as Java compares texts.
fn java_order(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

fn java_queue_order(a: &MessageQueue, b: &MessageQueue) -> Ordering {
    java_order(&a.topic, &b.topic)
        .then_with(|| java_order(&a.broker_name, &b.broker_name))
        .then_with(|| a.queue_id.cmp(&b.queue_id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queues(count: usize) -> Vec<MessageQueue> {
        (0..count)
            .map(|n| MessageQueue::new("TopicA", format!("b{}", n % 3), (n / 3) as i32))
            .collect()
    }

    fn strategy(name: &str) -> Allocation {
        match name {
            "AVG" => Allocation::Average,
            "AVG_BY_CIRCLE" => Allocation::AverageByCircle,
            "CONSISTENT_HASH" => Allocation::ConsistentHash { virtual_nodes: 10 },
            other => panic!("no strategy {other}"),
        }
    }

    /// Every line of the stock client's results: the queues are those that any member got in that column.
    #[test]
    fn results_are_those_of_the_stock_client() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/golden/values/allocate.tsv"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let rows: Vec<Vec<serde_json::Value>> = text
            .lines()
            .skip(1)
            .map(|line| {
                line.split('\t')
                    .map(|cell| serde_json::from_str(cell).unwrap())
                    .collect()
            })
            .collect();
        assert!(rows.len() > 100);
        let texts = |value: &serde_json::Value| -> Vec<String> {
            value
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one.as_str().unwrap().to_owned())
                .collect()
        };
        for row in &rows {
            let [name, count, ids, own, expected] = &row[..] else {
                panic!("{row:?}")
            };
            let all = golden_queues(count.as_u64().unwrap() as usize);
            let got = strategy(name.as_str().unwrap())
                .allocate(own.as_str().unwrap(), &all, &texts(ids))
                .unwrap();
            let got: Vec<_> = got
                .iter()
                .map(|queue| format!("{}:{}", queue.broker_name, queue.queue_id))
                .collect();
            assert_eq!(got, texts(expected), "{row:?}");
        }
    }

    /// The list the golden values were made from: queues of topic `T`, in turn of two brokers, the second first.
    fn golden_queues(count: usize) -> Vec<MessageQueue> {
        let broker = |n: usize| {
            if n.is_multiple_of(2) {
                "broker-b"
            } else {
                "broker-a"
            }
        };
        (0..count)
            .map(|n| MessageQueue::new("T", broker(n), (n / 2) as i32))
            .collect()
    }

    #[test]
    fn a_member_the_broker_does_not_know_is_told_so() {
        let error = Allocation::Average
            .allocate("x", &queues(3), &["a".into()])
            .unwrap_err();
        assert_eq!(error, AllocationError::NotAMember("x".into()));
        assert_eq!(
            Allocation::Average.allocate("x", &[], &["x".into()]),
            Err(AllocationError::Empty)
        );
    }

    #[test]
    fn a_machine_room_gets_only_its_own_queues() {
        let all: Vec<_> = ["r1@a", "r2@b", "plain"]
            .iter()
            .map(|broker| MessageQueue::new("t", *broker, 0))
            .collect();
        let rooms = Allocation::MachineRoom(BTreeSet::from(["r1".to_owned()]));
        assert_eq!(rooms.allocate("x", &all, &["x".into()]).unwrap(), all[..1]);
    }

    struct FirstLetter;
    impl Rooms for FirstLetter {
        fn of_broker(&self, broker_name: &str) -> Option<String> {
            broker_name.get(..1).map(str::to_owned)
        }
        fn of_client(&self, client_id: &str) -> Option<String> {
            client_id.get(..1).map(str::to_owned)
        }
    }

    #[test]
    fn rooms_without_members_are_shared_by_all() {
        let all: Vec<_> = ["a1", "b1", "c1"]
            .iter()
            .map(|broker| MessageQueue::new("t", *broker, 0))
            .collect();
        let nearby = Allocation::Nearby {
            inner: Box::default(),
            rooms: Arc::new(FirstLetter),
        };
        let ids = ["ax".to_owned(), "bx".to_owned()];
        assert_eq!(
            nearby.allocate("ax", &all, &ids).unwrap(),
            [all[0].clone(), all[2].clone()]
        );
        assert_eq!(nearby.allocate("bx", &all, &ids).unwrap(), [all[1].clone()]);
    }

    proptest! {
        /// Every queue has exactly one owner, whatever the order in which members see queues and ids.
        #[test]
        fn every_queue_has_one_owner(
            count in 1usize..60,
            members in proptest::collection::btree_set("[abc][a-z0-9]{0,5}", 1..12),
            which in 0usize..6,
            turn in 0usize..60,
            twice in any::<bool>(),
        ) {
            // Brokers in rooms `a`, `b` and `c`: both `a@1`, as machine rooms want it, and by their first letter.
            let all: Vec<MessageQueue> = (0..count)
                .map(|n| MessageQueue::new("t", format!("{}@{}", ["a", "b", "c"][n % 3], n % 7), n as i32))
                .collect();
            let ids: Vec<String> = members.into_iter().collect();
            let mut listed = ids.clone();
            if twice {
                listed.extend(ids.first().cloned());
            }
            let mut owned = Vec::new();
            for (at, own) in ids.iter().enumerate() {
                let strategy = match which {
                    0 => Allocation::Average,
                    1 => Allocation::AverageByCircle,
                    2 => Allocation::ConsistentHash { virtual_nodes: 10 },
                    3 => Allocation::MachineRoom(["a", "b", "c"].map(str::to_owned).into()),
                    4 => Allocation::Nearby {
                        inner: Box::default(),
                        rooms: Arc::new(FirstLetter),
                    },
                    // By hand: every member is given its part.
                    _ => Allocation::Fixed(all.iter().skip(at).step_by(ids.len()).cloned().collect()),
                };
                let (mut queues, mut ids) = (all.clone(), listed.clone());
                queues.rotate_left(turn % count);
                let by = turn % ids.len();
                ids.rotate_left(by);
                owned.extend(strategy.allocate(own, &queues, &ids).unwrap());
            }
            owned.sort();
            let mut all = all;
            all.sort();
            prop_assert_eq!(owned, all);
        }
    }
}
