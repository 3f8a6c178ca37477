//! [`Admin`]: what administration asks of brokers and name servers, typed (client spec 8). One file a family of requests.
//!
//! Methods that take `addr` ask that broker (or name server); the others find out by themselves whom to ask. Names of topics
//! and groups are taken as they are: no namespace is added.

mod access;
mod cluster;
mod config;
mod connections;
mod consumption;
mod dry_run;
mod filters;
mod groups;
mod kv;
mod messages;
mod offsets;
mod own;
mod topics;
mod traces;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use minimq_protocol::Command;
use minimq_protocol::body::BrokerData;
use minimq_protocol::json::BodyError;

pub use access::AccessVersion;
pub use consumption::{MessageTrack, TrackState};
pub use dry_run::PlannedRequest;
pub use messages::{Expression, MessageLookup, PullRequest, PullStatus, PulledMessages};
pub use offsets::QueueReset;
pub use traces::{ConsumeTrace, MessageTrace, SendTrace, read_traces};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::route::Route;

/// Administration of a cluster. A cheap clone; clones of a [dry run](Self::dry_run) write into one plan.
#[derive(Clone)]
pub struct Admin {
    core: Arc<Core>,
    timeout: Duration,
    plan: Option<Arc<dry_run::Plan>>,
}

impl Admin {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            timeout: Duration::from_secs(5),
            plan: None,
        }
    }

    /// Time for one request: 5 s; some that a broker passes on to clients get three times as much.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The name servers known.
    pub fn name_servers(&self) -> Vec<String> {
        self.core
            .name_servers
            .list()
            .iter()
            .map(|addr| addr.to_string())
            .collect()
    }

    /// Any request to any address; the answer's code is not looked at.
    pub async fn raw(&self, addr: &str, request: Command) -> Result<Command> {
        Ok(self.core.remoting.call(addr, request, self.timeout).await?)
    }

    async fn call(&self, addr: &str, request: Command) -> Result<Command> {
        if let Some(answer) = self.write_down(addr, &request) {
            return Ok(answer);
        }
        self.core.call(addr, request, self.timeout).await
    }

    /// A request that a broker passes on to a client or works on for long.
    async fn call_long(&self, addr: &str, request: Command) -> Result<Command> {
        if let Some(answer) = self.write_down(addr, &request) {
            return Ok(answer);
        }
        self.core.call(addr, request, self.timeout * 3).await
    }

    /// A request to some name server and its answer's body.
    async fn name_server<T>(
        &self,
        request: Command,
        read: impl Fn(&[u8]) -> Result<T, BodyError>,
    ) -> Result<T> {
        let (addr, answer) = self.core.call_name_server(request).await?;
        read(&answer.body).map_err(|error| Error::bad_answer(&addr, error))
    }

    /// A request to every name server; the last failure counts.
    async fn every_name_server(&self, request: Command) -> Result<()> {
        let mut result = Err(Error::NoNameServer);
        let mut failed = false;
        for addr in self.name_servers() {
            match self.call(&addr, request.clone()).await {
                Ok(_) if !failed => result = Ok(()),
                Ok(_) => {}
                Err(error) => {
                    failed = true;
                    result = Err(match error {
                        Error::Call(source) => Error::NameServers {
                            tried: addr,
                            source,
                        },
                        other => other,
                    });
                }
            }
        }
        result
    }

    /// The route of a topic, as the name servers know it now.
    pub async fn topic_route(&self, topic: &str) -> Result<Route> {
        self.core.fetch_route(topic).await
    }

    /// One address of each broker of a topic: (broker name, address).
    pub async fn brokers_of(&self, topic: &str) -> Result<Vec<(String, String)>> {
        let route = self.topic_route(topic).await?;
        Ok(route
            .each_broker()
            .map(|(name, addr)| (name.to_owned(), addr.to_owned()))
            .collect())
    }

    /// The same of the brokers a group consumes from: those of its retry topic.
    pub async fn brokers_of_group(&self, group: &str) -> Result<Vec<(String, String)>> {
        match self
            .brokers_of(&minimq_protocol::name::retry_topic(group))
            .await
        {
            Err(Error::TopicNotFound { .. }) => Err(Error::GroupNotFound {
                group: group.to_owned(),
            }),
            other => other,
        }
    }

    async fn first_broker_of(&self, topic: &str) -> Result<String> {
        let route = self.topic_route(topic).await?;
        let addr = route.each_broker().next().map(|(_, addr)| addr.to_owned());
        addr.ok_or_else(|| Error::NoQueue {
            topic: topic.to_owned(),
            wanted: "consume from",
        })
    }
}

/// Reads the body of an answer.
fn body<T>(
    addr: &str,
    answer: &Command,
    read: impl Fn(&[u8]) -> Result<T, BodyError>,
) -> Result<T> {
    read(&answer.body).map_err(|error| Error::bad_answer(addr, error))
}

/// An answer's body as text.
fn text(addr: &str, answer: &Command) -> Result<String> {
    String::from_utf8(answer.body.to_vec()).map_err(|error| Error::bad_answer(addr, error))
}

/// A typed header of an answer.
fn header<'a, H: minimq_protocol::Header<'a>>(addr: &str, answer: &'a Command) -> Result<H> {
    answer
        .header()
        .map_err(|error| Error::bad_answer(addr, error))
}

/// Addresses of masters among some brokers: (broker name, address).
pub(crate) fn masters<'a>(
    brokers: impl IntoIterator<Item = &'a BrokerData>,
) -> Vec<(String, String)> {
    let all = brokers.into_iter();
    let master = |broker: &BrokerData| {
        Some((
            broker.broker_name.clone(),
            broker.broker_addrs.get(&0)?.clone(),
        ))
    };
    all.filter_map(master).collect()
}

/// `key=value` lines, as configurations travel.
fn lines(settings: &BTreeMap<String, String>) -> String {
    settings
        .iter()
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect()
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
