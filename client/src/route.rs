//! Routes: which brokers hold a topic, in which queues one may send, from which consume (client spec 2).
//! Fetching is here, the periodic refresh in `tasks`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use minimq_protocol::body::{MessageQueue, TopicRouteData};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::GetRouteInfoRequest;
use minimq_protocol::{Command, name, perm};
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::random;

/// Queues of a broker in one route that are believed; a table of a broken server does not exhaust memory.
const MAX_QUEUES: i32 = 65_536;

/// What is known of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The answer of the name server, lists sorted by broker name.
    pub data: TopicRouteData,
    /// Queues to send to, in an order that all producers agree on.
    pub writable: Arc<[MessageQueue]>,
    /// Queues to consume from, sorted.
    pub readable: Arc<[MessageQueue]>,
}

impl Route {
    /// Works out the queues of `topic`.
    pub(crate) fn new(topic: &str, mut data: TopicRouteData) -> Self {
        data.queue_datas
            .sort_by(|a, b| a.broker_name.cmp(&b.broker_name));
        data.broker_datas
            .sort_by(|a, b| a.broker_name.cmp(&b.broker_name));
        let writable = writable(topic, &data);
        let mut readable = Vec::new();
        for queues in &data.queue_datas {
            if perm::is_readable(queues.perm) {
                push_queues(
                    &mut readable,
                    topic,
                    &queues.broker_name,
                    queues.read_queue_nums,
                );
            }
        }
        Self {
            writable: writable.into(),
            readable: readable.into(),
            data,
        }
    }

    /// Addresses of a broker by id, 0 is the master.
    pub fn broker(&self, broker_name: &str) -> Option<&BTreeMap<i64, String>> {
        let broker = self
            .data
            .broker_datas
            .iter()
            .find(|broker| broker.broker_name == broker_name)?;
        Some(&broker.broker_addrs)
    }

    /// A master of a random broker, or a slave where there is none.
    pub fn any_broker(&self) -> Option<&str> {
        let brokers = &self.data.broker_datas;
        let first = random::below(brokers.len());
        (0..brokers.len())
            .filter_map(|step| brokers.get((first + step) % brokers.len()))
            .find_map(|broker| any_address(&broker.broker_addrs))
    }

    /// One address of each broker: the master, or a slave where there is none.
    pub fn each_broker(&self) -> impl Iterator<Item = (&str, &str)> {
        self.data
            .broker_datas
            .iter()
            .filter_map(|broker| Some((&*broker.broker_name, any_address(&broker.broker_addrs)?)))
    }

    /// Filter servers beside the broker with that address.
    pub fn filter_servers(&self, broker_addr: &str) -> &[String] {
        self.data
            .filter_server_table
            .get(broker_addr)
            .map_or(&[], Vec::as_slice)
    }

    /// The route of a topic that is to be created from the template `self`: at most `queues` a broker.
    fn for_new_topic(&self, topic: &str, queues: i32) -> Self {
        let mut data = self.data.clone();
        for one in &mut data.queue_datas {
            let count = one.read_queue_nums.min(queues);
            one.read_queue_nums = count;
            one.write_queue_nums = count;
        }
        Self::new(topic, data)
    }
}

/// The master's address, or any.
pub(crate) fn any_address(addrs: &BTreeMap<i64, String>) -> Option<&str> {
    let master = addrs.get(&0);
    master
        .or_else(|| addrs.values().nth(random::below(addrs.len())))
        .map(String::as_str)
}

/// The address with that id; for a slave that is gone the next id; then any (client spec 2.7).
pub(crate) fn address_to_read(addrs: &BTreeMap<i64, String>, id: i64) -> Option<(&str, bool)> {
    let found = addrs
        .get_key_value(&id)
        .or_else(|| {
            if id == 0 {
                None
            } else {
                addrs.get_key_value(&(id + 1))
            }
        })
        .or_else(|| addrs.iter().next());
    found.map(|(id, addr)| (addr.as_str(), *id != 0))
}

fn writable(topic: &str, data: &TopicRouteData) -> Vec<MessageQueue> {
    let mut queues = Vec::new();
    if let Some(order) = data
        .order_topic_conf
        .as_deref()
        .filter(|conf| !conf.is_empty())
    {
        for item in order.split(';') {
            if let Some((broker, count)) = item.split_once(':') {
                push_queues(
                    &mut queues,
                    topic,
                    broker,
                    count.trim().parse().unwrap_or(0),
                );
            }
        }
        return queues;
    }
    for one in &data.queue_datas {
        let has_master = data.broker_datas.iter().any(|broker| {
            broker.broker_name == one.broker_name && broker.broker_addrs.contains_key(&0)
        });
        if perm::is_writable(one.perm) && has_master {
            push_queues(&mut queues, topic, &one.broker_name, one.write_queue_nums);
        }
    }
    queues
}

fn push_queues(queues: &mut Vec<MessageQueue>, topic: &str, broker: &str, count: i32) {
    queues.extend((0..count.min(MAX_QUEUES)).map(|id| MessageQueue::new(topic, broker, id)));
}

/// All routes in use.
#[derive(Debug, Default)]
pub(crate) struct RouteTable {
    topics: DashMap<Arc<str>, Known>,
    /// Held by the one who fetches a topic; the others take what it found.
    fetching: DashMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>,
    /// Broker name → id → address, of all routes.
    brokers: RwLock<HashMap<String, BTreeMap<i64, String>>>,
    /// Counts changes, so that what is worked out from routes can be kept until the next one.
    changes: AtomicU64,
}

#[derive(Debug, Clone)]
struct Known {
    route: Arc<Route>,
    /// Made from the template topic: a real one replaces it.
    provisional: bool,
    fetched: Instant,
}

impl RouteTable {
    pub(crate) fn get(&self, topic: &str) -> Option<Arc<Route>> {
        Some(self.topics.get(topic)?.route.clone())
    }

    pub(crate) fn broker(&self, broker_name: &str) -> Option<BTreeMap<i64, String>> {
        self.brokers.read().get(broker_name).cloned()
    }

    /// All addresses: (address, is it a slave?).
    pub(crate) fn addresses(&self) -> Vec<(String, bool)> {
        let brokers = self.brokers.read();
        let all = brokers.values().flatten();
        all.map(|(id, addr)| (addr.clone(), *id != 0)).collect()
    }

    pub(crate) fn forget(&self, topic: &str) {
        self.topics.remove(topic);
        self.fetching.remove(topic);
        self.collect_brokers();
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// How often routes have changed so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Stores a route; whether it differs from what was known.
    fn put(&self, topic: &str, route: Arc<Route>, provisional: bool) -> bool {
        let known = Known {
            route: route.clone(),
            provisional,
            fetched: Instant::now(),
        };
        let before = self.topics.insert(topic.into(), known);
        let changed = before.is_none_or(|before| before.route != route);
        if changed {
            self.collect_brokers();
            self.changes.fetch_add(1, Ordering::Release);
        }
        changed
    }

    fn collect_brokers(&self) {
        let mut brokers: HashMap<String, BTreeMap<i64, String>> = HashMap::new();
        let mut newest: HashMap<String, Instant> = HashMap::new();
        for known in &self.topics {
            for broker in &known.route.data.broker_datas {
                // Of two routes the one fetched last knows the broker's addresses.
                let seen = newest.get(&broker.broker_name);
                if seen.is_none_or(|seen| *seen < known.fetched) {
                    newest.insert(broker.broker_name.clone(), known.fetched);
                    brokers.insert(broker.broker_name.clone(), broker.broker_addrs.clone());
                }
            }
        }
        *self.brokers.write() = brokers;
    }
}

impl Core {
    /// Asks the name servers for a route; the table is not touched.
    pub(crate) async fn fetch_route(&self, topic: &str) -> Result<Route> {
        let header = GetRouteInfoRequest {
            topic,
            accept_standard_json_only: Some(true),
        };
        let request = Command::request_with(request::GET_ROUTEINFO_BY_TOPIC, &header);
        let (addr, answer) = self
            .name_servers
            .call(&self.remoting, &request, self.settings.request_timeout)
            .await?;
        match answer.code {
            response::SUCCESS if !answer.body.is_empty() => {
                let data = TopicRouteData::from_json(&answer.body)
                    .map_err(|error| Error::bad_answer(&addr, error))?;
                Ok(Route::new(topic, data))
            }
            response::SUCCESS | response::TOPIC_NOT_EXIST => Err(Error::TopicNotFound {
                topic: topic.to_owned(),
                remark: answer.remark().to_owned(),
            }),
            code => Err(Error::Refused {
                addr: addr.to_string(),
                code,
                remark: answer.remark().to_owned(),
            }),
        }
    }

    /// The route of a topic: the one known, else a fetched one.
    pub(crate) async fn route(&self, topic: &str) -> Result<Arc<Route>> {
        match self.routes.get(topic) {
            Some(route) => Ok(route),
            None => self.refresh_route(topic, Duration::ZERO).await,
        }
    }

    /// Fetches a route, unless somebody did within `fresh`. A topic that has gone keeps its last route.
    pub(crate) async fn refresh_route(&self, topic: &str, fresh: Duration) -> Result<Arc<Route>> {
        let begun = Instant::now();
        let lock = self
            .routes
            .fetching
            .entry(topic.into())
            .or_default()
            .clone();
        let _fetching = lock.lock().await;
        if let Some(known) = self.routes.topics.get(topic)
            && known.fetched + fresh >= begun
        {
            return Ok(known.route.clone());
        }
        let route = Arc::new(self.fetch_route(topic).await?);
        if self.routes.put(topic, route.clone(), false) {
            self.route_changed();
        }
        Ok(route)
    }

    /// The route to send by: that of the topic, or of the template from which brokers create it.
    pub(crate) async fn route_to_send(&self, topic: &str, queues: i32) -> Result<Arc<Route>> {
        if let Some(known) = self.routes.topics.get(topic)
            && !known.route.writable.is_empty()
        {
            return Ok(known.route.clone());
        }
        match self.refresh_route(topic, Duration::from_millis(200)).await {
            Err(missing @ Error::TopicNotFound { .. }) => {
                let template = match self.fetch_route(name::AUTO_CREATE_TOPIC).await {
                    Ok(template) => template,
                    Err(Error::TopicNotFound { .. }) => return Err(missing),
                    Err(error) => return Err(error),
                };
                let route = Arc::new(template.for_new_topic(topic, queues));
                if self.routes.put(topic, route.clone(), true) {
                    self.route_changed();
                }
                Ok(route)
            }
            other => other,
        }
    }

    /// Whether the topic's route is only a guess until the brokers have created the topic.
    pub(crate) fn is_provisional(&self, topic: &str) -> bool {
        self.routes
            .topics
            .get(topic)
            .is_some_and(|known| known.provisional)
    }

    /// The master's address of a broker.
    pub(crate) async fn master(&self, topic: &str, broker_name: &str) -> Result<String> {
        let known = |core: &Core| core.routes.broker(broker_name)?.remove(&0);
        if let Some(addr) = known(self) {
            return Ok(addr);
        }
        let _ = self.refresh_route(topic, Duration::from_secs(1)).await?;
        known(self).ok_or_else(|| Error::BrokerNotFound {
            broker_name: broker_name.to_owned(),
        })
    }

    /// Where offsets of a queue are kept: the master, else any broker of that name.
    pub(crate) async fn master_or_slave(&self, topic: &str, broker_name: &str) -> Result<String> {
        match self.master(topic, broker_name).await {
            Err(Error::BrokerNotFound { .. }) => {
                let addrs = self.routes.broker(broker_name).unwrap_or_default();
                let addr = any_address(&addrs).ok_or_else(|| Error::BrokerNotFound {
                    broker_name: broker_name.to_owned(),
                })?;
                Ok(addr.to_owned())
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minimq_protocol::body::{BrokerData, QueueData};

    fn queues(broker: &str, perm: i32, read: i32, write: i32) -> QueueData {
        QueueData {
            broker_name: broker.into(),
            perm,
            read_queue_nums: read,
            write_queue_nums: write,
            ..QueueData::default()
        }
    }

    fn broker(name: &str, ids: &[i64]) -> BrokerData {
        BrokerData {
            broker_name: name.into(),
            broker_addrs: ids.iter().map(|id| (*id, format!("{name}:{id}"))).collect(),
            cluster: None,
        }
    }

    fn ids(queues: &[MessageQueue]) -> Vec<String> {
        queues
            .iter()
            .map(|queue| format!("{}:{}", queue.broker_name, queue.queue_id))
            .collect()
    }

    #[test]
    fn only_writable_brokers_with_a_master_are_sent_to_in_order_of_their_names() {
        let data = TopicRouteData {
            queue_datas: vec![
                queues("b", 6, 1, 2),
                queues("a", 6, 1, 1),
                queues("c", 4, 2, 2),
                queues("d", 6, 1, 1),
            ],
            broker_datas: vec![
                broker("b", &[0]),
                broker("a", &[0, 1]),
                broker("c", &[0]),
                broker("d", &[1]),
            ],
            ..TopicRouteData::default()
        };
        let route = Route::new("t", data);
        assert_eq!(ids(&route.writable), ["a:0", "b:0", "b:1"]);
        assert_eq!(ids(&route.readable), ["a:0", "b:0", "c:0", "c:1", "d:0"]);
        assert_eq!(route.each_broker().count(), 4);
        assert_eq!(ids(&route.for_new_topic("n", 1).writable), ["a:0", "b:0"]);
    }

    #[test]
    fn an_order_configuration_decides_alone() {
        let data = TopicRouteData {
            order_topic_conf: Some("b:1;a:2".into()),
            ..TopicRouteData::default()
        };
        assert_eq!(ids(&Route::new("t", data).writable), ["b:0", "a:0", "a:1"]);
    }

    #[test]
    fn a_missing_slave_is_replaced_by_the_next_id_and_then_by_any() {
        let addrs = broker("a", &[0, 2]).broker_addrs;
        assert_eq!(address_to_read(&addrs, 1), Some(("a:2", true)));
        assert_eq!(address_to_read(&addrs, 7), Some(("a:0", false)));
        assert_eq!(
            address_to_read(&broker("a", &[3]).broker_addrs, 0),
            Some(("a:3", true))
        );
        assert_eq!(address_to_read(&BTreeMap::new(), 0), None);
    }
}
