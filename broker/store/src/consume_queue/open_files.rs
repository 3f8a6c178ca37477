//! A bounded set of open files, shared by all queues: a broker has thousands of queues and few of them are
//! busy at a time, so no queue keeps a descriptor of its own.
//!
//! Not here: names, lengths and contents of the files (`segments`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::io::DiskFile;

/// One file: the address space it belongs to, and the address of its first byte there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) owner: u64,
    pub(crate) start: i64,
}

/// Open files, the least recently used given up first (second chance).
#[derive(Debug)]
pub(crate) struct OpenFiles {
    capacity: usize,
    next_owner: AtomicU64,
    clock: Mutex<Clock>,
}

#[derive(Debug, Default)]
struct Clock {
    slots: Vec<Slot>,
    places: HashMap<FileId, usize>,
    hand: usize,
}

#[derive(Debug)]
struct Slot {
    id: FileId,
    file: Arc<dyn DiskFile>,
    used: bool,
}

impl OpenFiles {
    /// A set that holds at most `capacity` files (at least one).
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            next_owner: AtomicU64::new(0),
            clock: Mutex::default(),
        }
    }

    /// A number for a new address space, never handed out before.
    pub(crate) fn new_owner(&self) -> u64 {
        self.next_owner.fetch_add(1, Ordering::Relaxed)
    }

    /// The file if it is open.
    pub(crate) fn get(&self, id: FileId) -> Option<Arc<dyn DiskFile>> {
        let mut clock = self.clock.lock();
        let place = *clock.places.get(&id)?;
        let slot = &mut clock.slots[place];
        slot.used = true;
        Some(Arc::clone(&slot.file))
    }

    /// Keeps `file` open; another one is closed when the set is full.
    pub(crate) fn insert(&self, id: FileId, file: Arc<dyn DiskFile>) {
        let slot = Slot {
            id,
            file,
            used: false,
        };
        // Closing can take a while, so what leaves the set is dropped after the lock.
        let _closed = self.clock.lock().insert(slot, self.capacity);
    }

    /// Closes a file that is about to be deleted.
    pub(crate) fn forget(&self, id: FileId) {
        let _closed = self.clock.lock().remove(id);
    }

    /// Number of files open now.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.clock.lock().slots.len()
    }
}

impl Clock {
    fn insert(&mut self, slot: Slot, capacity: usize) -> Option<Slot> {
        if let Some(&place) = self.places.get(&slot.id) {
            return Some(std::mem::replace(&mut self.slots[place], slot));
        }
        if self.slots.len() < capacity {
            self.places.insert(slot.id, self.slots.len());
            self.slots.push(slot);
            return None;
        }
        let place = self.unused();
        self.places.remove(&self.slots[place].id);
        self.places.insert(slot.id, place);
        Some(std::mem::replace(&mut self.slots[place], slot))
    }

    /// Moves the hand to a file not used since it passed last, at most one round.
    fn unused(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if !std::mem::take(&mut slot.used) {
                return self.hand;
            }
        }
    }

    fn remove(&mut self, id: FileId) -> Option<Slot> {
        let place = self.places.remove(&id)?;
        let slot = self.slots.swap_remove(place);
        if let Some(moved) = self.slots.get(place) {
            self.places.insert(moved.id, place);
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Disk, RealDisk};

    fn file() -> Arc<dyn DiskFile> {
        RealDisk
            .open("/dev/null".as_ref())
            .expect("/dev/null opens")
    }

    #[test]
    fn the_set_never_grows_past_its_capacity_and_keeps_what_is_used() {
        let files = OpenFiles::new(4);
        let hot = FileId {
            owner: files.new_owner(),
            start: 0,
        };
        files.insert(hot, file());
        for start in 1..100 {
            files.insert(FileId { owner: 7, start }, file());
            assert!(files.len() <= 4);
            assert!(
                files.get(hot).is_some(),
                "a file used between all others stays open"
            );
        }
        assert!(
            files
                .get(FileId {
                    owner: 7,
                    start: 99
                })
                .is_some()
        );
        assert!(files.get(FileId { owner: 7, start: 1 }).is_none());
    }

    #[test]
    fn a_forgotten_file_is_gone_and_the_others_stay() {
        let files = OpenFiles::new(3);
        for start in 0..3 {
            files.insert(FileId { owner: 1, start }, file());
        }
        files.forget(FileId { owner: 1, start: 0 });
        assert!(files.get(FileId { owner: 1, start: 0 }).is_none());
        assert!(files.get(FileId { owner: 1, start: 1 }).is_some());
        assert!(files.get(FileId { owner: 1, start: 2 }).is_some());
        assert_eq!(files.len(), 2);
    }
}
