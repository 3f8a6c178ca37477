//! What all instances of an engine may hold together: their number and the bytes of their memories.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shared counters with their limits.
#[derive(Debug)]
pub(crate) struct Budget {
    instances: AtomicUsize,
    max_instances: usize,
    memory: AtomicUsize,
    max_memory: usize,
}

impl Budget {
    pub(crate) fn new(max_instances: usize, max_memory: usize) -> Arc<Self> {
        Arc::new(Self {
            instances: AtomicUsize::new(0),
            max_instances,
            memory: AtomicUsize::new(0),
            max_memory,
        })
    }

    pub(crate) fn instances(&self) -> usize {
        self.instances.load(Ordering::Relaxed)
    }

    pub(crate) fn max_instances(&self) -> usize {
        self.max_instances
    }

    pub(crate) fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }
}

fn take(counter: &AtomicUsize, amount: usize, limit: usize) -> bool {
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(amount).filter(|sum| *sum <= limit)
        })
        .is_ok()
}

/// One instance's part of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    memory: usize,
}

impl Share {
    /// A place for one more instance, without memory yet.
    pub(crate) fn take(budget: &Arc<Budget>) -> Option<Self> {
        take(&budget.instances, 1, budget.max_instances).then(|| Self {
            budget: budget.clone(),
            memory: 0,
        })
    }

    /// Grows this instance's memory to `bytes`; `false` when the sum of all would pass the limit.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.memory);
        let taken = take(&self.budget.memory, more, self.budget.max_memory);
        if taken {
            self.memory += more;
        }
        taken
    }

    /// Bytes of this instance's memory.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.memory.fetch_sub(self.memory, Ordering::Relaxed);
        self.budget.instances.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_and_memory_are_bounded_and_given_back() {
        let budget = Budget::new(2, 100);
        let mut first = Share::take(&budget).unwrap();
        let mut second = Share::take(&budget).unwrap();
        assert!(Share::take(&budget).is_none());
        assert!(first.grow_to(60));
        assert!(!second.grow_to(41));
        assert!(second.grow_to(40));
        assert_eq!((budget.instances(), budget.memory()), (2, 100));
        drop(first);
        assert_eq!((budget.instances(), budget.memory()), (1, 40));
        assert!(Share::take(&budget).unwrap().grow_to(60));
    }
}
