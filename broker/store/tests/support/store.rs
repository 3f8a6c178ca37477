//! A whole store in a test: opened on a simulated disk, written, read as a consumer does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use minimq_protocol::message::MessageView;
use minimq_store::io::{Disk, SimulatedDisk};
use minimq_store::{
    AppendMessage, AppendResult, Blocking, GetRequest, MessageFilter, NoFilter, QueueOffset, Store,
    StoreClock, StoreConfig,
};

/// Longer than anything a test waits for takes.
pub const LONG: Duration = Duration::from_secs(60);

pub fn open(config: &StoreConfig, disk: &Arc<dyn Disk>) -> Store {
    Store::open_on(config, Arc::clone(disk), StoreClock::System, |_| {}).unwrap()
}

pub fn simulated() -> (SimulatedDisk, Arc<dyn Disk>) {
    let disk = SimulatedDisk::new();
    (disk.clone(), Arc::new(disk))
}

pub fn append(store: &Store, message: AppendMessage<'_>) -> AppendResult {
    let mut outcomes = Vec::new();
    store.append_blocking(&[message], &mut outcomes);
    outcomes.remove(0).unwrap()
}

/// Waits until all that was appended can be read.
pub fn dispatched(store: &Store) {
    assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
}

pub fn until(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "it did not happen");
        std::thread::yield_now();
    }
}

/// All messages that a consumer of a queue gets.
pub fn messages(store: &Store, topic: &str, queue_id: i32) -> Vec<MessageView> {
    messages_of(store, topic, queue_id, &mut NoFilter)
}

/// Those that pass a filter.
pub fn messages_of(
    store: &Store,
    topic: &str,
    queue_id: i32,
    filter: &mut dyn MessageFilter,
) -> Vec<MessageView> {
    let mut messages = Vec::new();
    let reader = store.reader();
    let mut offset = reader.min_offset(topic, queue_id);
    while offset < reader.max_offset(topic, queue_id) {
        let request = GetRequest {
            topic,
            queue_id,
            offset,
            max_count: 32,
            max_bytes: usize::MAX,
        };
        let mut records = Vec::new();
        let result = reader
            .get(&request, filter, Blocking::Allowed, &mut records)
            .unwrap();
        messages.extend(records.into_iter().map(|r| MessageView::parse(r).unwrap()));
        assert!(result.next_begin_offset > offset, "{result:?}");
        offset = QueueOffset(result.next_begin_offset.get());
    }
    messages
}

/// Their bodies.
pub fn bodies(store: &Store, topic: &str, queue_id: i32) -> Vec<String> {
    let body = |message: &MessageView| String::from_utf8(message.body().to_vec()).unwrap();
    messages(store, topic, queue_id).iter().map(body).collect()
}
