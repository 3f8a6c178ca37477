//! [`Change`]: what an event changed, for the log and for tests.

use std::fmt;
use std::sync::Arc;

/// One change, as a line an operator reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An address is new, or back.
    AddressUp {
        /// Cluster of the registration.
        cluster: Arc<str>,
        /// Broker name.
        broker: Arc<str>,
        /// Broker id.
        id: i64,
        /// The address.
        addr: Arc<str>,
        /// Where slaves fetch the log.
        ha_server_addr: Arc<str>,
    },
    /// A broker has another master address than before, or its first.
    Master {
        /// Broker name.
        broker: Arc<str>,
        /// The address before.
        from: Option<Arc<str>>,
        /// The address now.
        to: Arc<str>,
    },
    /// Topics came or changed with a registration, or went with one.
    Topics {
        /// Broker name.
        broker: Arc<str>,
        /// Topics nobody had.
        created: usize,
        /// Topics with other queues at this broker than before.
        changed: usize,
        /// Topics this broker has no more.
        removed: usize,
        /// Some of their names.
        names: Vec<String>,
    },
    /// A broker has other filter servers than before.
    FilterServers {
        /// Its address.
        addr: Arc<str>,
        /// How many.
        count: usize,
    },
    /// An address was not heard of for too long. Its connection is to be closed.
    Expired {
        /// The address.
        addr: Arc<str>,
        /// The connection of its last registration.
        connection: u64,
        /// Time since it was heard of, ms.
        silent_ms: i64,
    },
    /// An address is gone.
    AddressDown {
        /// The address.
        addr: Arc<str>,
        /// The brokers it belonged to, with its id there.
        was: Vec<(Arc<str>, i64)>,
    },
    /// The last address of a broker is gone, and its queues with it.
    BrokerDown {
        /// Broker name.
        broker: Arc<str>,
        /// Topics that had queues there.
        topics: usize,
    },
    /// An unregistration was ignored: the address has registered on a newer connection since.
    LateUnregistration {
        /// The address.
        addr: Arc<str>,
    },
    /// A topic was deleted.
    TopicDeleted {
        /// Topic.
        topic: Arc<str>,
        /// Only at the brokers of this cluster.
        cluster: Option<Arc<str>>,
    },
    /// Permissions at a broker were changed by an administrator.
    Permission {
        /// Broker name.
        broker: Arc<str>,
        /// Whether writing is allowed now.
        write: bool,
        /// Topics with queues there.
        topics: usize,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressUp {
                cluster,
                broker,
                id,
                addr,
                ha_server_addr,
            } => write!(
                f,
                "broker {broker} ({cluster}) id {id} registered at {addr}, HA {ha_server_addr}"
            ),
            Self::Master { broker, from, to } => match from {
                Some(from) => write!(
                    f,
                    "broker {broker} has its master at {to}, before at {from}"
                ),
                None => write!(f, "broker {broker} has its master at {to}"),
            },
            Self::Topics {
                broker,
                created,
                changed,
                removed,
                names,
            } => {
                write!(
                    f,
                    "broker {broker}: {created} topics new, {changed} with other queues, {removed} gone: {}",
                    names.join(", ")
                )?;
                let all = created + changed + removed;
                if all > names.len() {
                    write!(f, " and {} more", all - names.len())?;
                }
                Ok(())
            }
            Self::FilterServers { addr, count } => {
                write!(f, "broker at {addr} has {count} filter servers")
            }
            Self::Expired {
                addr, silent_ms, ..
            } => write!(f, "broker at {addr} was silent for {silent_ms} ms"),
            Self::AddressDown { addr, was } => {
                write!(f, "broker address {addr} is gone")?;
                for (broker, id) in was {
                    write!(f, ", was id {id} of {broker}")?;
                }
                Ok(())
            }
            Self::BrokerDown { broker, topics } => {
                write!(
                    f,
                    "broker {broker} has no address left, its queues of {topics} topics are gone"
                )
            }
            Self::LateUnregistration { addr } => write!(
                f,
                "unregistration of {addr} ignored: it has registered on a newer connection"
            ),
            Self::TopicDeleted { topic, cluster } => match cluster {
                Some(cluster) => write!(f, "topic {topic} deleted in cluster {cluster}"),
                None => write!(f, "topic {topic} deleted"),
            },
            Self::Permission {
                broker,
                write,
                topics,
            } => {
                let done = if *write { "given back" } else { "taken away" };
                write!(
                    f,
                    "write permission of broker {broker} {done} for {topics} topics"
                )
            }
        }
    }
}
