//! The shared core behind a [`Client`](crate::Client): calls, the groups at work, heartbeats (client spec 7), periodic tasks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dashmap::DashMap;
use futures_util::future::{BoxFuture, join_all};
use minimq_protocol::body::{
    ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo, HeartbeatData, MessageQueue,
    ProducerData,
};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::UnregisterClientRequest;
use minimq_protocol::message::MessageView;
use minimq_protocol::unique_key::UniqueKeyGenerator;
use minimq_protocol::{Command, name};
use minimq_remoting::{CallError, Client as Remoting, ClientConfig};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::client::Settings;
use crate::delivery::Delivery;
use crate::error::{Error, Result};
use crate::filter::Upload;
use crate::name_servers::{NameServers, fetch_endpoint};
use crate::random;
use crate::requests::BrokerRequests;
use crate::route::RouteTable;
use crate::trace;

/// Heartbeat rounds wanted by events are at least so far apart.
const HEARTBEAT_GAP: Duration = Duration::from_millis(200);

/// A consumer, as the core and the brokers see it.
pub(crate) trait ConsumerMember: Send + Sync {
    /// Its part of the heartbeat.
    fn heartbeat(&self) -> ConsumerData;
    /// Topics whose routes it needs.
    fn topics(&self) -> Vec<String>;
    /// The group or a route changed: who consumes which queue is to be worked out again.
    fn wake(&self);
    /// Filters that filter servers have to know.
    fn uploads(&self) -> Vec<Upload>;
    /// Goes on at these offsets.
    fn reset_offsets(
        &self,
        topic: String,
        offsets: BTreeMap<MessageQueue, i64>,
    ) -> BoxFuture<'static, ()>;
    /// Offsets reached in the queues of a topic.
    fn offsets(&self, topic: &str) -> BTreeMap<MessageQueue, i64>;
    /// Its state for tools.
    fn running_info(&self) -> ConsumerRunningInfo;
    /// Runs the handler once, outside the queues; `None` for a consumer without one.
    fn consume_directly(
        &self,
        message: MessageView,
        broker: Option<String>,
    ) -> BoxFuture<'static, Option<ConsumeMessageDirectlyResult>>;
    /// Ends it.
    fn stop(&self) -> BoxFuture<'static, ()>;
}

/// A producer, as the core and the brokers see it.
pub(crate) trait ProducerMember: Send + Sync {
    /// Topics whose routes it needs.
    fn topics(&self) -> Vec<String>;
    /// Decides about a transaction and says so to the broker at `addr`.
    fn check_transaction(&self, addr: String, check: Command);
    /// Ends it.
    fn stop(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// What all producers and consumers of a client share.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) client_id: String,
    pub(crate) remoting: Remoting,
    pub(crate) name_servers: NameServers,
    pub(crate) routes: RouteTable,
    pub(crate) producers: DashMap<String, Arc<dyn ProducerMember>>,
    pub(crate) consumers: DashMap<String, Arc<dyn ConsumerMember>>,
    /// Requests that wait for their reply, by correlation id.
    pub(crate) replies: DashMap<String, oneshot::Sender<Delivery>>,
    pub(crate) unique_keys: UniqueKeyGenerator,
    /// Where what a dropped handle leaves behind is cleared up.
    pub(crate) runtime: tokio::runtime::Handle,
    heartbeat_lock: tokio::sync::Mutex<()>,
    heartbeat_wanted: Arc<Notify>,
    closed: AtomicBool,
    pub(crate) stopping: CancellationToken,
}

impl Core {
    pub(crate) fn start(
        settings: Settings,
        name_servers: NameServers,
        client_id: String,
        ip: IpAddr,
        remoting: ClientConfig,
    ) -> Result<Arc<Self>> {
        let requests = Arc::new(BrokerRequests::default());
        let remoting = Remoting::with_requests(remoting, requests.clone())?;
        let salt = random::bits() as u32;
        let zone = jiff::tz::TimeZone::system();
        let core = Arc::new(Self {
            settings,
            client_id,
            remoting,
            name_servers,
            routes: RouteTable::default(),
            producers: DashMap::new(),
            consumers: DashMap::new(),
            replies: DashMap::new(),
            unique_keys: UniqueKeyGenerator::new(ip, std::process::id(), salt, zone),
            runtime: tokio::runtime::Handle::current(),
            heartbeat_lock: tokio::sync::Mutex::default(),
            heartbeat_wanted: Arc::default(),
            closed: AtomicBool::new(false),
            stopping: CancellationToken::new(),
        });
        requests.serve(&core);
        let weak = Arc::downgrade(&core);
        let stopping = core.stopping.clone();
        tokio::spawn(
            stopping
                .clone()
                .run_until_cancelled_owned(refresh_routes(weak.clone())),
        );
        tokio::spawn(
            stopping
                .clone()
                .run_until_cancelled_owned(send_heartbeats(weak.clone())),
        );
        if core.settings.endpoint.is_some() {
            tokio::spawn(stopping.run_until_cancelled_owned(ask_endpoint(weak)));
        }
        Ok(core)
    }

    /// With the client's namespace.
    pub(crate) fn wrap(&self, name: &str) -> String {
        name::with_namespace(name, &self.settings.namespace).into_owned()
    }

    /// Without the client's namespace.
    pub(crate) fn unwrap<'a>(&self, name: &'a str) -> std::borrow::Cow<'a, str> {
        name::without_namespace(name, &self.settings.namespace)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// A request whose answer must be "success".
    pub(crate) async fn call(
        &self,
        addr: &str,
        request: Command,
        timeout: Duration,
    ) -> Result<Command> {
        let answer = self.remoting.call(addr, request, timeout).await?;
        succeeded(addr, answer)
    }

    /// As [`call`](Self::call), to the name servers.
    pub(crate) async fn call_name_server(&self, request: Command) -> Result<(String, Command)> {
        let (addr, answer) = self
            .name_servers
            .call(&self.remoting, &request, self.settings.request_timeout)
            .await?;
        Ok((addr.to_string(), succeeded(&addr, answer)?))
    }

    /// A route differs from what was known: brokers have to hear of us, queues are to be shared out anew.
    pub(crate) fn route_changed(&self) {
        self.want_heartbeat();
        for consumer in &self.consumers {
            consumer.wake();
        }
    }

    /// Has a heartbeat round sent soon.
    pub(crate) fn want_heartbeat(&self) {
        self.heartbeat_wanted.notify_one();
    }

    /// One heartbeat to every broker known, all at once, and the filters to the filter servers. Slaves hear only of consumers.
    pub(crate) async fn heartbeat(&self) {
        let _round = self.heartbeat_lock.lock().await;
        let data = self.heartbeat_data();
        if !data.producer_data_set.is_empty() || !data.consumer_data_set.is_empty() {
            let with_slaves = !data.consumer_data_set.is_empty();
            let body = bytes::Bytes::from(data.to_wire());
            let targets = self
                .routes
                .addresses()
                .into_iter()
                .filter(|(_, slave)| with_slaves || !slave);
            join_all(targets.map(|(addr, _)| {
                let beat = Command::request(request::HEART_BEAT).with_body(body.clone());
                async move {
                    let before = self.received(&addr);
                    if let Err(error) = self.call(&addr, beat, self.settings.request_timeout).await
                    {
                        tracing::debug!(%addr, %error, "heartbeat failed");
                        self.close_if_dead(&addr, before, &error);
                    }
                }
            }))
            .await;
        }
        let uploads: Vec<Upload> = self
            .consumers
            .iter()
            .flat_map(|consumer| consumer.uploads())
            .collect();
        join_all(uploads.iter().map(|upload| upload.to_all(self))).await;
    }

    /// The connection to an address and the bytes that have come on it.
    pub(crate) fn received(&self, addr: &str) -> Option<(u64, u64)> {
        let connection = self.remoting.connection(addr)?;
        Some((connection.id(), connection.received_bytes()))
    }

    /// Closes a connection on which a request got no answer, nor came anything else since `before`: the peer went without
    /// a word, or what lies between forgot the connection. The next request connects anew.
    pub(crate) fn close_if_dead(&self, addr: &str, before: Option<(u64, u64)>, error: &Error) {
        let timed_out = matches!(error, Error::Call(CallError::Timeout { .. }));
        if timed_out && before.is_some() && self.received(addr) == before {
            tracing::warn!(%addr, "nothing comes on this connection any more; it is made anew");
            self.remoting.close(addr);
        }
    }

    fn heartbeat_data(&self) -> HeartbeatData {
        let producer = |group: String| ProducerData { group_name: group };
        let mut data = HeartbeatData {
            client_id: self.client_id.clone(),
            producer_data_set: self
                .producers
                .iter()
                .map(|one| producer(one.key().clone()))
                .collect(),
            consumer_data_set: self.consumers.iter().map(|one| one.heartbeat()).collect(),
        };
        data.producer_data_set
            .sort_by(|a, b| a.group_name.cmp(&b.group_name));
        data.consumer_data_set
            .sort_by(|a, b| a.group_name.cmp(&b.group_name));
        data
    }

    /// Tells every broker that the producer group is left here.
    pub(crate) async fn unregister_producer(&self, group: &str) {
        if self.producers.contains_key(group) {
            // Joined again meanwhile: the brokers must not forget that.
            return self.want_heartbeat();
        }
        self.unregister(Some(group), None).await;
    }

    /// Tells every broker that the consumer group is left here.
    pub(crate) async fn unregister_consumer(&self, group: &str) {
        if self.consumers.contains_key(group) {
            return self.want_heartbeat();
        }
        self.unregister(None, Some(group)).await;
    }

    async fn unregister(&self, producer_group: Option<&str>, consumer_group: Option<&str>) {
        let header = UnregisterClientRequest {
            client_id: &self.client_id,
            producer_group,
            consumer_group,
        };
        // A broker without a connection has forgotten us already.
        let known = self.routes.addresses().into_iter();
        let connected = known.filter(|(addr, _)| self.remoting.connection(addr).is_some());
        join_all(connected.map(|(addr, _)| {
            let request = Command::request_with(request::UNREGISTER_CLIENT, &header);
            async move {
                if let Err(error) = self
                    .call(&addr, request, self.settings.request_timeout)
                    .await
                {
                    tracing::debug!(%addr, %error, "unregistering failed");
                }
            }
        }))
        .await;
    }

    /// Topics whose routes are kept fresh.
    fn topics_in_use(&self) -> Vec<String> {
        let mut topics: Vec<String> = self
            .consumers
            .iter()
            .flat_map(|one| one.topics())
            .chain(self.producers.iter().flat_map(|one| one.topics()))
            .collect();
        topics.sort_unstable();
        topics.dedup();
        topics
    }

    pub(crate) async fn shutdown(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let consumers: Vec<_> = self
            .consumers
            .iter()
            .map(|one| one.value().clone())
            .collect();
        join_all(consumers.iter().map(|one| one.stop())).await;
        // What the others still have to say is sent by the producers of traces: they end last.
        for tracing in [false, true] {
            let producers: Vec<_> = self
                .producers
                .iter()
                .filter(|one| one.key().contains(trace::GROUP_PREFIX) == tracing)
                .map(|one| one.value().clone())
                .collect();
            join_all(producers.into_iter().map(|one| one.stop())).await;
        }
        self.stopping.cancel();
        self.remoting.close_all();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

/// The answer if its code is 0, else what it refuses.
pub(crate) fn succeeded(addr: &str, answer: Command) -> Result<Command> {
    if answer.code == response::SUCCESS {
        return Ok(answer);
    }
    Err(Error::Refused {
        addr: addr.to_owned(),
        code: answer.code,
        remark: answer.remark().to_owned(),
    })
}

/// ms since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

async fn refresh_routes(core: Weak<Core>) {
    loop {
        let Some(period) = core.upgrade().map(|core| core.settings.route_refresh) else {
            return;
        };
        tokio::time::sleep(period).await;
        let Some(core) = core.upgrade() else { return };
        let topics = core.topics_in_use();
        // Name servers answer many at once; eight keep the burst small.
        for some in topics.chunks(8) {
            let core = &core;
            join_all(some.iter().map(|topic| async move {
                if let Err(error) = core.refresh_route(topic, Duration::from_secs(1)).await
                    && !(core.is_provisional(topic) || topic.starts_with(name::RETRY_PREFIX))
                {
                    tracing::debug!(%topic, %error, "route not refreshed");
                }
            }))
            .await;
        }
    }
}

async fn send_heartbeats(core: Weak<Core>) {
    loop {
        {
            let Some(core) = core.upgrade() else { return };
            core.heartbeat().await;
        }
        tokio::time::sleep(HEARTBEAT_GAP).await;
        // The core must be free to go while nothing is to be done.
        let Some((period, wanted)) = core
            .upgrade()
            .map(|core| (core.settings.heartbeat, core.heartbeat_wanted.clone()))
        else {
            return;
        };
        let _ = tokio::time::timeout(period, wanted.notified()).await;
    }
}

async fn ask_endpoint(core: Weak<Core>) {
    loop {
        let Some(period) = core.upgrade().map(|core| core.settings.endpoint_period) else {
            return;
        };
        tokio::time::sleep(period).await;
        let Some(core) = core.upgrade() else { return };
        let Some(url) = core.settings.endpoint.clone() else {
            return;
        };
        match fetch_endpoint(&url, Duration::from_secs(3)).await {
            Ok(list) => {
                if core.name_servers.replace(&list) {
                    tracing::info!(%list, "new list of name servers");
                }
            }
            Err(error) => tracing::warn!(%error, "the list of name servers stays as it is"),
        }
    }
}
