//! Who is connected: producers and consumers by their heartbeats (broker spec 6).

mod heartbeat;
mod notify;
mod registry;
mod requests;
mod subscription;

pub use heartbeat::heartbeat;
pub use notify::Notices;
pub use registry::{ClientRegistry, GroupView, Member};
pub(crate) use requests::property_filter_off;
pub use requests::{
    all_producers, check_client, consumer_connections, consumer_ids, producer_connections,
    topic_consumed_by, unregister,
};
pub use subscription::{PullFilter, Subscription, filter_of, selector_of};
