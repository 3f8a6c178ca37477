//! Appending allocates nothing, whatever the number of messages: only scratch memory that is kept.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use support::{message, open, real, small_config};

/// Counts what the current thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn appending_allocates_nothing_once_its_scratch_memory_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_config(folder.path());
    config.mapped_file_size_commit_log = 16 << 20;
    let (log, _) = open(&config, &real());
    let body = vec![b'x'; 1000];
    let properties = "KEYS\u{1}k\u{2}TAGS\u{1}TagA";
    let messages: Vec<_> = (0..32)
        .map(|index| message(["A", "B"][index % 2], (index % 4) as i32, &body, properties))
        .collect();
    let mut outcomes = Vec::with_capacity(64);
    // Queues that are new, and the scratch memory.
    for at_once in [1, 32] {
        log.append_blocking(&messages[..at_once], &mut outcomes);
        outcomes.clear();
    }
    let before = ALLOCATIONS.get();
    for round in 0..200 {
        log.append_blocking(
            &messages[..if round % 2 == 0 { 1 } else { 32 }],
            &mut outcomes,
        );
        assert!(outcomes.iter().all(Result::is_ok));
        outcomes.clear();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    log.close().unwrap();
}
