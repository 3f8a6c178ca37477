//! What operators ask and change, unless it belongs to one noun (those requests are with their noun): settings,
//! progress of groups, figures, clean-ups, whole tables for slaves, calls passed on to clients (broker spec 13).

mod cleaning;
mod config;
mod consumption;
mod own;
mod relay;
mod runtime;
mod tables;
mod time_span;

pub use cleaning::{expired_log, expired_queues, unused_topics};
pub use config::{get as get_config, update as update_config};
pub use consumption::{consume_stats, correction_offsets, stats_of_all_groups, topic_stats};
pub use own::{damaged_records, held_pulls, mixed_subscriptions, queue_locks};
pub use relay::{consume_directly, running_info};
pub use runtime::runtime_info;
pub use tables::{all_delay_offsets, all_offsets, all_topics, system_topics};
pub use time_span::time_span;
