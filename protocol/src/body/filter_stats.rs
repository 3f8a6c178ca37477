//! Figures of a filter server: answer to GET_FILTER_STATS, a request of mini-MQ's own.

use super::body;

body! {
    /// Figures of one filter: one module that one group uses for one topic. `received` is `matched` + `dropped` +
    /// `failed`.
    #[derive(Eq)]
    pub struct FilterStats: Standard {
        /// Name given at the upload.
        class_name: String = "className";
        /// Consumer group.
        consumer_group: String = "consumerGroup";
        /// Messages the filter did not want.
        dropped: i64 = "dropped";
        /// Messages on which it gave no verdict.
        failed: i64 = "failed";
        /// Failures since the last verdict.
        failures_in_a_row: i64 = "failuresInARow";
        /// SHA-256 of the upload, hexadecimal.
        hash: String = "hash";
        /// The last failure, with the message's offset.
        last_error: Option<String> = "lastError";
        /// Messages let through.
        matched: i64 = "matched";
        /// Bytes of its instance's memory; 0 without an instance.
        memory: i64 = "memory";
        /// Bytes of the module.
        module_size: i64 = "moduleSize";
        /// Median time for a message, ns.
        p50_nanos: i64 = "p50Nanos";
        /// 99th percentile of the time for a message, ns.
        p99_nanos: i64 = "p99Nanos";
        /// Messages it has looked at.
        received: i64 = "received";
        /// `active`, `backing off` (timed out a moment ago) or `failing` (20 failures in a row and more).
        state: String = "state";
        /// Topic.
        topic: String = "topic";
        /// Connections that have uploaded it.
        users: i64 = "users";
    }
}

body! {
    /// Answer to GET_FILTER_STATS.
    #[derive(Eq)]
    pub struct FilterServerStats: Standard {
        /// The broker it filters for.
        broker_addr: String = "brokerAddr";
        /// That broker's name; nothing before the first registration.
        broker_name: Option<String> = "brokerName";
        /// The filters, by topic and group.
        filters: Vec<FilterStats> = "filters";
        /// Bytes of all instances' memories.
        instance_memory: i64 = "instanceMemory";
        /// Instances alive.
        instances: i64 = "instances";
        /// Pulls under way.
        pulls: i64 = "pulls";
    }
}
