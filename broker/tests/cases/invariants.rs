//! What must hold whatever happens: every acknowledged message reaches every group at least once, and a queue's
//! messages come in the order in which they were acknowledged to their producer.
//!
//! A test notes what was acknowledged and what was delivered; [`Ledger::faults`] says what does not fit.

use std::collections::{BTreeMap, HashMap};

/// Topic and queue.
pub type Queue = (String, i32);

#[derive(Debug, Default)]
pub struct Ledger {
    /// Offset → body, of each queue.
    acknowledged: BTreeMap<Queue, BTreeMap<i64, String>>,
    /// Last offset acknowledged to a producer on a queue.
    last_of_producer: HashMap<(String, Queue), i64>,
    /// What a group got of a queue, in order.
    delivered: BTreeMap<(String, Queue), Vec<(i64, String)>>,
    faults: Vec<String>,
}

impl Ledger {
    /// A send of `producer` was answered with success.
    pub fn acknowledged(&mut self, producer: &str, queue: &Queue, offset: i64, body: &str) {
        let known = self
            .acknowledged
            .entry(queue.clone())
            .or_default()
            .insert(offset, body.to_owned());
        if let Some(known) = known {
            self.faults
                .push(format!("{queue:?} {offset} is both {known} and {body}"));
        }
        let last = self
            .last_of_producer
            .entry((producer.to_owned(), queue.clone()))
            .or_insert(-1);
        if offset <= *last {
            self.faults.push(format!(
                "{producer}: {body} got {queue:?} {offset} after {last}"
            ));
        }
        *last = offset;
    }

    /// A consumer of `group` got a message.
    pub fn delivered(&mut self, group: &str, queue: &Queue, offset: i64, body: &str) {
        self.delivered
            .entry((group.to_owned(), queue.clone()))
            .or_default()
            .push((offset, body.to_owned()));
    }

    /// How many messages were acknowledged.
    pub fn count(&self) -> usize {
        self.acknowledged.values().map(BTreeMap::len).sum()
    }

    /// Everything that must not be.
    pub fn faults(&self, groups: &[&str]) -> Vec<String> {
        let mut faults = self.faults.clone();
        for group in groups {
            for (queue, messages) in &self.acknowledged {
                let key = (group.to_string(), queue.clone());
                let got = self.delivered.get(&key).map_or(&[][..], Vec::as_slice);
                let by_offset: HashMap<i64, &str> =
                    got.iter().map(|(at, body)| (*at, body.as_str())).collect();
                for (offset, body) in messages {
                    match by_offset.get(offset) {
                        None => faults.push(format!("{group} never got {queue:?} {offset} {body}")),
                        Some(other) if other != body => faults.push(format!(
                            "{group} got {other} as {queue:?} {offset}, acknowledged was {body}"
                        )),
                        Some(_) => {}
                    }
                }
            }
        }
        for ((group, queue), got) in &self.delivered {
            // Repeats are allowed; what comes for the first time comes behind everything before it.
            let mut highest = -1;
            let mut bodies: HashMap<i64, &str> = HashMap::new();
            for (offset, body) in got {
                if *offset > highest + 1 {
                    faults.push(format!(
                        "{group} got {queue:?} {offset} right after {highest}"
                    ));
                }
                highest = highest.max(*offset);
                if *bodies.entry(*offset).or_insert(body) != body {
                    faults.push(format!("{group} got two bodies as {queue:?} {offset}"));
                }
            }
        }
        faults
    }
}

#[test]
fn the_ledger_finds_each_kind_of_fault() {
    let queue = || ("T".to_owned(), 0);
    let filled = |got: &[(i64, &str)]| {
        let mut ledger = Ledger::default();
        for (offset, body) in [(0, "a"), (1, "b"), (2, "c")] {
            ledger.acknowledged("p", &queue(), offset, body);
        }
        for (offset, body) in got {
            ledger.delivered("G", &queue(), *offset, body);
        }
        ledger.faults(&["G"])
    };
    let good = [(0, "a"), (1, "b"), (0, "a"), (1, "b"), (2, "c")];
    assert_eq!(filled(&good), Vec::<String>::new());
    for bad in [
        &[(0, "a"), (1, "b")][..],
        &[(0, "a"), (2, "c"), (1, "b")],
        &[(0, "a"), (1, "x"), (2, "c")],
        &[(0, "a"), (1, "b"), (2, "c"), (1, "x")],
    ] {
        assert!(!filled(bad).is_empty(), "{bad:?}");
    }
    let mut twice = Ledger::default();
    twice.acknowledged("p", &queue(), 1, "a");
    twice.acknowledged("q", &queue(), 1, "b");
    assert!(twice.faults(&[]).len() == 1);
    let mut backwards = Ledger::default();
    backwards.acknowledged("p", &queue(), 1, "a");
    backwards.acknowledged("p", &queue(), 0, "b");
    assert!(backwards.faults(&[]).len() == 1);
}
