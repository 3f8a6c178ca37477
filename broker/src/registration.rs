//! Telling every name server who this broker is and what it has: at start, every 30 s, and at once on a change
//! (broker spec 1.7, 1.8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use minimq_common::names;
use minimq_protocol::Command;
use minimq_protocol::body::{
    DataVersion, KvTable, RegisterBrokerBody, TopicConfig, TopicFilterType,
};
use minimq_protocol::code::{request, response};
use minimq_protocol::crc::body_crc;
use minimq_protocol::header::{
    QueryDataVersionRequest, QueryDataVersionResponse, RegisterBrokerRequest,
    UnRegisterBrokerRequest,
};
use minimq_protocol::perm;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::broker::Broker;
use crate::config::BrokerConfig;

/// How long the unregistration of a name server may take.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(3);
/// Changes within this time are told together.
const GATHER: Duration = Duration::from_millis(5);

/// Says when there is something new to tell.
#[derive(Debug, Default)]
pub struct Registration {
    changed: Notify,
    /// Changes so far.
    wanted: AtomicU64,
    /// Changes the name servers have been told of.
    told: watch::Sender<u64>,
    /// Name servers that did not answer the last time: nobody waits for them.
    silent: Mutex<BTreeSet<String>>,
}

/// How long a change of a topic waits for the name servers before it is answered.
const TELL_TIMEOUT: Duration = Duration::from_secs(3);
/// A name server that has not answered for so long when the next change is there counts as silent.
const SLOW: Duration = Duration::from_secs(1);

impl Registration {
    /// Topics or filter servers have changed: tell the name servers soon.
    pub fn changed(&self) {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// How many changes there were so far.
    pub fn changes(&self) -> u64 {
        self.wanted.load(Ordering::SeqCst)
    }

    fn set_told(&self, changes: u64) {
        self.told.send_modify(|told| *told = changes.max(*told));
    }
}

impl Broker {
    /// Waits until the name servers were told of all changes so far, did not answer in time, or the broker stops:
    /// whoever made a topic finds it in the next route (as with 4.9.8, which registers before it answers).
    pub(crate) async fn name_servers_told(&self) {
        let wanted = self.registration.changes();
        let mut told = self.registration.told.subscribe();
        tokio::select! {
            () = self.stopping.cancelled() => {}
            _ = tokio::time::timeout(TELL_TIMEOUT, told.wait_for(|told| *told >= wanted)) => {}
        }
    }

    /// Waits until the name servers were told for the first time, for a hanging one not for long. Whoever asks them then
    /// finds this broker.
    pub(crate) async fn registered_at_start(self: &Arc<Self>) {
        if self.name_servers().is_empty() {
            tracing::warn!(
                "no name server is configured (namesrvAddr): clients cannot find this broker"
            );
            return;
        }
        let broker = self.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = broker.stopping.cancelled() => {}
                () = broker.check_advertised_address() => {}
            }
        });
        self.name_servers_told().await;
    }

    /// An address that does not answer here will not answer clients either.
    async fn check_advertised_address(&self) {
        let address = &self.identity.address;
        let dialled = tokio::time::timeout(
            Duration::from_secs(3),
            tokio::net::TcpStream::connect(address),
        )
        .await;
        let why = match dialled {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer within 3 s".to_owned(),
        };
        tracing::warn!(
            %address, why,
            "the address told to clients does not answer: set brokerIP1 to an address that clients reach"
        );
    }

    /// The periodic task; ends when the broker stops. Being there is the first change.
    pub(crate) async fn keep_registered(self: Arc<Self>) {
        let mut gather = Duration::ZERO;
        loop {
            let period = self
                .config
                .get()
                .broker
                .register_name_server_period
                .clamp(10_000, 60_000);
            let mut changed = tokio::select! {
                () = self.stopping.cancelled() => return,
                () = self.settings_changed.notified() => continue,
                () = tokio::time::sleep(Duration::from_millis(period as u64)) => false,
                () = self.registration.changed.notified() => true,
            };
            let wanted =
                changed || self.config.get().broker.force_register || self.version_differs().await;
            if !wanted {
                continue;
            }
            loop {
                if changed {
                    tokio::time::sleep(gather).await;
                    gather = GATHER;
                }
                // A change does not wait until a name server that hangs has been given up: all are told anew.
                // What changes because the broker stops is not told: it takes itself off the list.
                changed = tokio::select! {
                    biased;
                    () = self.stopping.cancelled() => return,
                    () = self.register() => false,
                    () = self.registration.changed.notified() => true,
                };
                if !changed {
                    break;
                }
            }
        }
    }

    /// The configured name servers.
    pub fn name_servers(&self) -> Vec<String> {
        let configured = self
            .config
            .get()
            .broker
            .namesrv_addr
            .clone()
            .or_else(names::from_environment);
        let list = configured.unwrap_or_default();
        names::parse_list(&list).unwrap_or_else(|error| {
            if !list.trim().is_empty() {
                tracing::warn!(%error, "namesrvAddr");
            }
            Vec::new()
        })
    }

    /// Calls every name server at once, each for at most `registerBrokerTimeoutMills`.
    fn start_calls(&self, command: &Command) -> JoinSet<(String, Option<Command>)> {
        let timeout = self
            .config
            .get()
            .broker
            .register_broker_timeout_mills
            .max(100) as u64;
        let timeout = Duration::from_millis(timeout);
        let mut calls = JoinSet::new();
        for server in self.name_servers() {
            let (client, command) = (self.client.clone(), command.clone());
            calls.spawn(async move {
                let answer = client.call(&server, command, timeout).await;
                let answer = answer.inspect_err(
                    |error| tracing::warn!(server, %error, "the name server does not answer"),
                );
                (server, answer.ok())
            });
        }
        calls
    }

    async fn call_name_servers(&self, command: &Command) -> Vec<(String, Command)> {
        let all = self.start_calls(command).join_all().await;
        all.into_iter()
            .filter_map(|(server, answer)| Some((server, answer?)))
            .collect()
    }

    /// Tells all name servers; done when each has answered or its time is up. Those who wait for the news to be told
    /// wait for the ones that answered the last time.
    async fn register(self: &Arc<Self>) {
        let changes = self.registration.changes();
        let command = self.registration_command(&self.config.to_arc());
        let mut round = Round::begin(self);
        let mut calls = self.start_calls(&command);
        while let Some(done) = calls.join_next().await {
            let Ok((server, answer)) = done else { continue };
            round.has_ended(&server, answer.is_some());
            if round.nobody_is_left() {
                self.registration.set_told(changes);
            }
            let Some(answer) = answer else { continue };
            if answer.code != response::SUCCESS {
                tracing::warn!(
                    server,
                    code = answer.code,
                    remark = answer.remark(),
                    "registration refused"
                );
            } else if let Ok(table) = KvTable::from_json(&answer.body) {
                self.take_over_order(&table.table);
            }
        }
        self.registration.set_told(changes);
    }

    /// Which topics are ordered is kept by the name servers (broker spec 2.7).
    fn take_over_order(self: &Arc<Self>, ordered: &BTreeMap<String, String>) {
        let changed = self
            .topics
            .set_ordered(|topic| ordered.contains_key(topic), self.clock.now_ms());
        if changed {
            self.in_background(|broker| broker.topics.save());
        }
    }

    fn registration_command(&self, config: &BrokerConfig) -> Command {
        let body = RegisterBrokerBody {
            filter_server_list: Some(self.filter_servers.addresses()),
            topic_config_serialize_wrapper: {
                let mut wrapper = self.topics.to_wrapper();
                mask_permissions(
                    &mut wrapper.topic_config_table,
                    config.broker.broker_permission,
                );
                wrapper
            },
        };
        let compressed = config.broker.compressed_register;
        let bytes = if compressed {
            body.to_compressed()
        } else {
            body.to_wire()
        };
        let identity = &self.identity;
        let header = RegisterBrokerRequest {
            broker_name: &identity.name,
            broker_addr: &identity.address,
            cluster_name: &identity.cluster,
            ha_server_addr: &identity.ha_address,
            broker_id: identity.id,
            compressed,
            body_crc32: body_crc(&bytes),
        };
        Command::request_with(request::REGISTER_BROKER, &header).with_body(bytes)
    }

    /// Whether some name server does not know this broker's topics as they are.
    async fn version_differs(&self) -> bool {
        let own = self.topics.version();
        let identity = &self.identity;
        let header = QueryDataVersionRequest {
            broker_name: &identity.name,
            broker_addr: &identity.address,
            cluster_name: &identity.cluster,
            broker_id: identity.id,
        };
        let command =
            Command::request_with(request::QUERY_DATA_VERSION, &header).with_body(own.to_wire());
        let answers = self.call_name_servers(&command).await;
        // A server that did not answer may have been started anew.
        answers.len() < self.name_servers().len()
            || answers
                .iter()
                .filter(|(_, answer)| answer.code == response::SUCCESS)
                .any(|(_, answer)| {
                    let changed = answer
                        .header::<QueryDataVersionResponse>()
                        .map_or(true, |header| header.changed);
                    let other =
                        DataVersion::from_json(&answer.body).is_ok_and(|version| version != own);
                    changed || (!answer.body.is_empty() && other)
                })
    }

    /// Takes this broker out of every name server.
    pub(crate) async fn unregister(&self) {
        let identity = &self.identity;
        let header = UnRegisterBrokerRequest {
            broker_name: &identity.name,
            broker_addr: &identity.address,
            cluster_name: &identity.cluster,
            broker_id: identity.id,
        };
        let command = Command::request_with(request::UNREGISTER_BROKER, &header);
        let all = self.call_name_servers(&command);
        if tokio::time::timeout(UNREGISTER_TIMEOUT, all).await.is_err() {
            tracing::warn!("not every name server has taken the unregistration");
        }
    }
}

/// One registration: who has not answered yet.
struct Round<'b> {
    broker: &'b Broker,
    begun: Instant,
    waiting: BTreeSet<String>,
}

impl<'b> Round<'b> {
    fn begin(broker: &'b Broker) -> Self {
        Self {
            broker,
            begun: Instant::now(),
            waiting: broker.name_servers().into_iter().collect(),
        }
    }

    fn has_ended(&mut self, server: &str, answered: bool) {
        self.waiting.remove(server);
        let mut silent = self.broker.registration.silent.lock();
        if answered {
            silent.remove(server);
        } else {
            silent.insert(server.to_owned());
        }
    }

    /// Whether only silent ones have not answered.
    fn nobody_is_left(&self) -> bool {
        self.waiting
            .is_subset(&self.broker.registration.silent.lock())
    }
}

impl Drop for Round<'_> {
    /// Cut short by the next change: who let this one wait for long is not waited for.
    fn drop(&mut self) {
        if self.begun.elapsed() >= SLOW {
            let mut silent = self.broker.registration.silent.lock();
            silent.append(&mut self.waiting);
        }
    }
}

/// A broker that lacks a permission passes none of it on: each topic gets the broker's (broker spec 1.8 step 2).
fn mask_permissions(topics: &mut BTreeMap<String, TopicConfig>, broker: i32) {
    if perm::is_readable(broker) && perm::is_writable(broker) {
        return;
    }
    for topic in topics.values_mut() {
        *topic = TopicConfig {
            perm: broker,
            topic_filter_type: TopicFilterType::SingleTag,
            topic_sys_flag: 0,
            order: false,
            ..topic.clone()
        };
    }
}
