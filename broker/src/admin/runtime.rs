//! Figures about the running broker: code 28 (broker spec 13.5).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use minimq_protocol::body::KvTable;
use minimq_protocol::{Command, name, version};

use crate::broker::Broker;
use crate::request::{Handled, success};
use crate::stats::Rate;

/// What stands for "no limit" where 4.9.8 has a buffer pool.
const NO_POOL: i32 = i32::MAX;

/// Code 28.
pub fn runtime_info(broker: &Arc<Broker>, request: &Command) -> Handled {
    let mut table = Table::default();
    table.broker(broker);
    table.puts_and_gets(broker);
    table.store(broker);
    table.disks(broker);
    table.queues_of_threads(broker);
    table.stages(broker);
    Ok(success(request).with_body(KvTable { table: table.0 }.to_wire()))
}

#[derive(Default)]
struct Table(BTreeMap<String, String>);

impl Table {
    fn put(&mut self, key: impl Into<String>, value: impl ToString) {
        self.0.insert(key.into(), value.to_string());
    }

    fn broker(&mut self, broker: &Broker) {
        self.put("bootTimestamp", broker.started_ms);
        let seconds = (broker.clock.now_ms() - broker.started_ms).max(0) / 1000;
        let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
        let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
        self.put(
            "runtime",
            format!("[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"),
        );
        self.put("brokerVersion", version::CURRENT);
        self.put("brokerVersionDesc", version::name(version::CURRENT));
        let opens = broker
            .config
            .get()
            .broker
            .start_accept_send_request_time_stamp;
        self.put("startAcceptSendRequestTimeStamp", opens);
    }

    fn puts_and_gets(&mut self, broker: &Broker) {
        let counters = broker.store.log_store().counters();
        let put = counters.appended_messages.load(Ordering::Relaxed);
        let bytes = counters.appended_bytes.load(Ordering::Relaxed);
        let figures = &broker.stats.store;
        self.put("putMessageTimesTotal", put.max(1));
        self.put(
            "putMessageFailedTimes",
            counters.refused_messages.load(Ordering::Relaxed),
        );
        self.put("putMessageSizeTotal", bytes);
        self.put(
            "putMessageAverageSize",
            format!("{:?}", bytes as f64 / put.max(1) as f64),
        );
        self.put("putMessageEntireTimeMax", figures.put_longest_ms());
        self.put("getMessageEntireTimeMax", figures.get_longest_ms());
        let distribution = figures.put_distribution();
        self.put(
            "putMessageDistributeTime",
            distribution.as_deref().unwrap_or("null"),
        );
        for (key, share) in [("putLatency99", 0.99), ("putLatency999", 0.999)] {
            self.put(key, format!("{:.2}", figures.put_latency_ms(share)));
        }
        for (key, rate) in [
            ("putTps", Rate::Put),
            ("getFoundTps", Rate::Found),
            ("getMissTps", Rate::Missed),
            ("getTotalTps", Rate::Gets),
            ("getTransferedTps", Rate::Given),
        ] {
            self.put(key, figures.rates(rate));
        }
        for (what, totals) in [
            ("msgPutTotal", figures.put_totals(put)),
            ("msgGetTotal", figures.given_totals()),
        ] {
            self.put(format!("{what}YesterdayMorning"), totals.yesterday);
            self.put(format!("{what}TodayMorning"), totals.today);
            self.put(format!("{what}TodayNow"), totals.now);
        }
    }

    fn store(&mut self, broker: &Broker) {
        let store = &broker.store;
        let log = store.log();
        self.put("dispatchMaxBuffer", 0);
        self.put("dispatchBehindBytes", store.dispatch_behind_bytes());
        self.put(
            "pageCacheLockTimeMills",
            store.log_store().append_lock_held_ms(),
        );
        self.put("commitLogMinOffset", log.min_offset());
        self.put("commitLogMaxOffset", log.max_offset());
        let earliest = store.reader().earliest_time_of_all().ok().flatten();
        self.put("earliestMessageTimeStamp", earliest.unwrap_or(-1));
        self.put("remainTransientStoreBufferNumbs", NO_POOL);
        let unflushed = log.max_offset().get() - log.flushed_offset().get();
        self.put("remainHowManyDataToCommit", human(0));
        self.put("remainHowManyDataToFlush", human(unflushed.max(0) as u64));
        for (level, offset) in broker.delay.to_wrapper().offset_table {
            let max = store.reader().max_offset(name::SCHEDULE_TOPIC, level - 1);
            self.put(
                format!("scheduleMessageOffset_{level}"),
                format!("{offset},{max}"),
            );
        }
    }

    fn disks(&mut self, broker: &Broker) {
        let config = broker.config.get();
        let root = config.store.store_path_root_dir.clone();
        let ratio = |path: &Path| {
            let space = broker.store.log_store().disk().space(path).ok();
            space.filter(|space| space.total > 0).map_or(-1.0, |space| {
                let used = space.total.saturating_sub(space.free);
                used as f64 / (used + space.usable).max(1) as f64
            })
        };
        let mut least = f64::INFINITY;
        for path in config.store.store_path_commit_log.split(',') {
            let path = path.trim();
            let used = ratio(Path::new(path));
            least = least.min(used);
            self.put(format!("commitLogDiskRatio_{path}"), format!("{used:?}"));
        }
        self.put("commitLogDiskRatio", format!("{least:?}"));
        self.put("consumeQueueDiskRatio", format!("{:?}", ratio(&root)));
        if let Ok(space) = broker.store.log_store().disk().space(&root) {
            let (total, free) = (human(space.total), human(space.free));
            self.put(
                "commitLogDirCapacity",
                format!("Total : {total}, Free : {free}."),
            );
        }
    }

    /// Beyond 4.9.8: what each stage of a send and of the store did and how long it took.
    fn stages(&mut self, broker: &Broker) {
        for (name, value) in broker.stats.send.snapshot() {
            self.put(format!("send.{name}"), value);
        }
        for (name, value) in broker.store.log_store().counters().snapshot() {
            self.put(format!("store.{name}"), value);
        }
    }

    /// There are no queues before threads here: always empty.
    fn queues_of_threads(&mut self, broker: &Broker) {
        let config = broker.config.get();
        let keys = &config.broker;
        for (pool, capacity) in [
            ("send", keys.send_thread_pool_queue_capacity),
            ("pull", keys.pull_thread_pool_queue_capacity),
            ("query", keys.query_thread_pool_queue_capacity),
        ] {
            self.put(format!("{pool}ThreadPoolQueueSize"), 0);
            self.put(format!("{pool}ThreadPoolQueueCapacity"), capacity);
            self.put(format!("{pool}ThreadPoolQueueHeadWaitTimeMills"), 0);
        }
        self.put("EndTransactionQueueSize", 0);
        self.put(
            "EndTransactionThreadPoolQueueCapacity",
            keys.end_transaction_pool_queue_capacity,
        );
    }
}

/// `n B`, or with one decimal `KiB`, `MiB`, ….
fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_their_largest_unit() {
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.5 KiB");
        assert_eq!(human(3 << 30), "3.0 GiB");
        assert_eq!(human(u64::MAX), "16.0 EiB");
    }
}
