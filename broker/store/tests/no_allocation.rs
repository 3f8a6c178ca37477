//! Appending allocates nothing, whatever the number of messages: only scratch memory that is kept. Reading allocates no more
//! than records can need, whatever a damaged entry says.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use minimq_store::{Store, StoreConfig};
use support::store::{bodies, dispatched};
use support::{message, open, real, small_config};

/// Counts what the current thread allocates, and notes the longest piece.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LONGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        let _ = LONGEST.try_with(|longest| longest.set(longest.get().max(layout.size())));
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

#[test]
fn an_entry_that_says_a_wrong_length_is_passed_over_and_asks_for_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        hot_window_bytes: 1,
        ..small_config(folder.path())
    };
    let store = Store::open(&config, |_| {}).unwrap();
    let expected: Vec<_> = (0..300).map(|number| format!("{number:0300}")).collect();
    let mut outcomes = Vec::new();
    for body in &expected {
        store.append_blocking(&[message("t", 0, body.as_bytes(), "")], &mut outcomes);
    }
    dispatched(&store);
    store.flush_queues().unwrap();
    // The place of the length in entries of the first file.
    let path = folder.path().join(format!("consumequeue/t/0/{:020}", 0));
    let mut bytes = std::fs::read(&path).unwrap();
    let wrong = [(3, i32::MAX), (5, i32::MAX / 2), (7, 16 * 1024), (9, -7)];
    for (number, len) in wrong {
        bytes[number * 20 + 8..][..4].copy_from_slice(&len.to_be_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    LONGEST.set(0);
    let read = bodies(&store, "t", 0);
    assert!(LONGEST.get() <= 1 << 20, "{} bytes at once", LONGEST.get());
    let is_right = |number: &usize| wrong.iter().all(|(wrong, _)| wrong != number);
    let right = (0..expected.len()).filter(is_right).map(|n| &expected[n]);
    assert!(read.iter().eq(right), "{read:?}");
    store.close().unwrap();
}
