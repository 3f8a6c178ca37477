//! Delayed messages: those of `SCHEDULE_TOPIC_XXXX` are delivered to their topics when their time has come
//! (broker spec 9.2). One thread for all levels: it sleeps until the next message is due or one arrives.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_common::atomic_file::AtomicFileError;
use minimq_protocol::body::DelayOffsetWrapper;
use minimq_protocol::json::Flavour;
use minimq_protocol::message::MessageView;
use minimq_protocol::name;
use minimq_protocol::properties::name as property;
use minimq_store::consume_queue::ExtUnit;
use minimq_store::signal::Signal;
use minimq_store::{AppendError, AppendMessage, Blocking, GetRequest, MessageFilter, QueueOffset};
use parking_lot::Mutex;
use std::collections::BTreeMap;

use crate::broker::Broker;
use crate::saved::SavedFile;

/// Messages delivered at once.
const BATCH: usize = 32;
/// Pause after a failure.
const RETRY: Duration = Duration::from_millis(100);
/// Longest sleep: a clock that was set is noticed within it.
const LONGEST: Duration = Duration::from_secs(1);

/// Positions of all levels, with their file `delayOffset.json`.
#[derive(Debug)]
pub struct DelayQueue {
    offsets: Mutex<BTreeMap<i32, i64>>,
    file: SavedFile,
    arrival: Signal,
    arrivals: std::sync::atomic::AtomicU64,
}

impl DelayQueue {
    /// What `delayOffset.json` holds.
    pub fn load(root: &Path) -> Result<Self, AtomicFileError> {
        let file = SavedFile::new(root, "delayOffset.json");
        let saved = file
            .read(DelayOffsetWrapper::from_json)?
            .unwrap_or_default();
        Ok(Self {
            offsets: Mutex::new(saved.offset_table),
            file,
            arrival: Signal::default(),
            arrivals: std::sync::atomic::AtomicU64::new(0),
        })
    }

    /// A delayed message was stored.
    pub fn arrived(&self) {
        self.arrivals
            .fetch_add(1, std::sync::atomic::Ordering::Release);
        self.arrival.notify();
    }

    /// The table as body of 45 and of the file.
    pub fn to_wrapper(&self) -> DelayOffsetWrapper {
        DelayOffsetWrapper {
            offset_table: self.offsets.lock().clone(),
        }
    }

    /// Writes the file if its content changed.
    pub fn save(&self) {
        self.file
            .write_or_log(|| self.to_wrapper().to_json_pretty(Flavour::Fastjson));
    }

    fn seen(&self) -> u64 {
        self.arrivals.load(std::sync::atomic::Ordering::Acquire)
    }
}

/// Lets due entries pass and remembers when the first other one is.
struct DueFilter {
    now_ms: i64,
    /// A due time further away than this is one of a clock that was set back since: due now.
    furthest_ms: i64,
    next_due: Option<i64>,
}

impl MessageFilter for DueFilter {
    fn matches_entry(&mut self, tags_code: Option<i64>, _unit: Option<&ExtUnit>) -> bool {
        // Behind the first that is not due nothing is looked at: order within a level is kept.
        if self.next_due.is_some() {
            return false;
        }
        let due = tags_code.unwrap_or(0);
        let is_due = due <= self.now_ms || due > self.now_ms + self.furthest_ms;
        if !is_due {
            self.next_due = Some(due);
        }
        is_due
    }
}

enum Level {
    /// Nothing waits.
    Empty,
    /// The next is due then, ms since 1970.
    Waits(i64),
    /// There may be more right now.
    More,
    /// Something failed.
    Failed,
}

impl Broker {
    /// Delivers delayed messages until the broker stops; on a thread of its own.
    pub(crate) fn deliver_delayed(self: &Arc<Self>) {
        let mut saved = Instant::now();
        let levels: Vec<(i32, i64)> = self.delay_levels.iter().collect();
        while !self.stopping.is_cancelled() {
            let seen = self.delay.seen();
            let mut sleep = LONGEST;
            for (level, delay_ms) in &levels {
                loop {
                    match self.deliver_level(*level, *delay_ms) {
                        Level::More => continue,
                        Level::Empty => {}
                        Level::Waits(due) => {
                            let left = (due - self.clock.now_ms()).max(0) as u64;
                            sleep = sleep.min(Duration::from_millis(left));
                        }
                        Level::Failed => sleep = sleep.min(RETRY),
                    }
                    break;
                }
            }
            let period = self.config.get().store.flush_delay_offset_interval.max(1) as u64;
            if saved.elapsed() >= Duration::from_millis(period) {
                saved = Instant::now();
                self.delay.save();
            }
            let stopping = || self.stopping.is_cancelled() || self.delay.seen() != seen;
            self.delay
                .arrival
                .wait(sleep.max(Duration::from_millis(1)), stopping);
        }
    }

    /// Ends the waiting of the delivery thread.
    pub(crate) fn stop_delivery(&self) {
        self.delay.arrived();
    }

    fn deliver_level(self: &Arc<Self>, level: i32, delay_ms: i64) -> Level {
        let queue_id = level - 1;
        let reader = self.store.reader();
        let (min, max) = (
            reader.min_offset(name::SCHEDULE_TOPIC, queue_id).get(),
            reader.max_offset(name::SCHEDULE_TOPIC, queue_id).get(),
        );
        let stored = self.delay.offsets.lock().get(&level).copied();
        let offset = stored.unwrap_or(0).clamp(min, max.max(min));
        if offset >= max {
            return Level::Empty;
        }
        let request = GetRequest {
            topic: name::SCHEDULE_TOPIC,
            queue_id,
            offset: QueueOffset(offset),
            max_count: BATCH,
            max_bytes: usize::MAX,
        };
        let mut filter = DueFilter {
            now_ms: self.clock.now_ms(),
            furthest_ms: delay_ms,
            next_due: None,
        };
        let mut records = Vec::new();
        let got = match reader.get(&request, &mut filter, Blocking::Allowed, &mut records) {
            Ok(got) => got,
            Err(error) => {
                tracing::error!(level, offset, %error, "delayed messages cannot be read");
                return Level::Failed;
            }
        };
        let delivered = match self.deliver(&records) {
            Ok(()) => {
                let bytes = records.iter().map(Bytes::len).sum();
                self.stats.delivered(queue_id, records.len(), bytes);
                records
                    .last()
                    .and_then(queue_offset_of)
                    .map(|last| last + 1)
            }
            Err(error) => {
                tracing::warn!(level, offset, %error, "a delayed message was not delivered, tried again");
                return Level::Failed;
            }
        };
        let next = match filter.next_due {
            Some(_) => delivered.unwrap_or(offset),
            None => got.next_begin_offset.get().max(delivered.unwrap_or(offset)),
        };
        if stored != Some(next) {
            self.delay.offsets.lock().insert(level, next);
        }
        match filter.next_due {
            Some(due) => Level::Waits(due),
            None if next > offset && next < max => Level::More,
            None if next > offset => Level::Empty,
            None => Level::Failed,
        }
    }

    /// Stores due messages under their own topics, all or none.
    fn deliver(&self, records: &[Bytes]) -> Result<(), AppendError> {
        let messages: Vec<MessageView> = records
            .iter()
            .filter_map(|r| MessageView::parse(r.clone()).ok())
            .collect();
        let mut appends = Vec::with_capacity(messages.len());
        for message in &messages {
            let properties = message.properties();
            let topic = properties.get(property::REAL_TOPIC);
            let queue_id = properties
                .get(property::REAL_QID)
                .and_then(|id| id.parse().ok());
            let (Some(topic), Some(queue_id)) = (topic, queue_id) else {
                tracing::error!(
                    at = message.physical_offset(),
                    "a delayed message names no topic, dropped"
                );
                continue;
            };
            if topic == name::TRANS_HALF_TOPIC {
                tracing::error!(
                    at = message.physical_offset(),
                    "a delayed half message, dropped"
                );
                continue;
            }
            appends.push(AppendMessage {
                topic,
                queue_id,
                flag: message.flag(),
                sys_flag: message.sys_flag(),
                born_timestamp: message.born_timestamp(),
                born_host: message.born_host(),
                store_host: message.store_host(),
                reconsume_times: message.reconsume_times(),
                prepared_transaction_offset: message.prepared_transaction_offset(),
                body: message.body(),
                properties: properties.as_bytes(),
                appended_properties: &[],
                joins_previous: false,
            });
        }
        let mut outcomes = Vec::with_capacity(appends.len());
        self.store.append_blocking(&appends, &mut outcomes);
        if self.config.get().store.enable_schedule_message_stats {
            self.stats.stored_by_broker(&appends, &outcomes);
        }
        outcomes.into_iter().try_for_each(|outcome| match outcome {
            // What can never be stored must not stop those behind it.
            Err(
                error @ (AppendError::BodyTooLong { .. }
                | AppendError::TopicIllegal { .. }
                | AppendError::PropertiesTooLong { .. }
                | AppendError::PropertiesIllegal { .. }
                | AppendError::LargerThanFile { .. }),
            ) => {
                tracing::error!(%error, "a delayed message cannot be stored, dropped");
                Ok(())
            }
            other => other.map(drop),
        })
    }
}

fn queue_offset_of(record: &Bytes) -> Option<i64> {
    MessageView::parse(record.clone())
        .ok()
        .map(|message| message.queue_offset())
}
